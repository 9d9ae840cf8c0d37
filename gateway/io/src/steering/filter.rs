//! A [`Steering`] as a program of the kernel's classic packet filter. The program gets a packet,
//! which begins with its IP header, and returns the worker's number.
//!
//! Reading beyond the packet's end ends the program with 0, worker 0. The program is built with
//! labels: a conditional jump reaches 255 instructions only, so farther labels are reached by an
//! unconditional jump.

use super::{
    By, DESTINATION, DESTINATION_IPV6, DESTINATION_PORT, ERRORS, Exception, FRAGMENT,
    FRAGMENT_OFFSET, ICMP_LEN, IDENTIFIER, MOST_STRETCHES, PROTOCOL, QUERIES, SCATTER,
    SCATTER_SHIFT, SOURCE, SOURCE_PORT, Share, Steering, Stretch, WITH_PORTS, masks,
};
use natgate_wire::link::ethertype;
use natgate_wire::protocol::ICMP;

/// Codes of the instructions; A is the accumulator, X the index, M the scratch memory.
#[allow(clippy::cast_possible_truncation)]
mod code {
    const fn of(parts: [u32; 3]) -> u16 {
        (parts[0] | parts[1] | parts[2]) as u16
    }
    use libc::{
        BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_DIV, BPF_H, BPF_IMM, BPF_IND, BPF_JA,
        BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LSH, BPF_MEM,
        BPF_MISC, BPF_MOD, BPF_MSH, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST, BPF_SUB, BPF_TAX, BPF_W,
        BPF_X,
    };
    /// A = the word, half or byte at K, or at X + K.
    pub(super) const WORD: u16 = of([BPF_LD, BPF_W, BPF_ABS]);
    pub(super) const HALF: u16 = of([BPF_LD, BPF_H, BPF_ABS]);
    pub(super) const BYTE: u16 = of([BPF_LD, BPF_B, BPF_ABS]);
    pub(super) const HALF_AT_X: u16 = of([BPF_LD, BPF_H, BPF_IND]);
    pub(super) const BYTE_AT_X: u16 = of([BPF_LD, BPF_B, BPF_IND]);
    /// X = four times the low half of the byte at K: the length of an IP header.
    pub(super) const HEADER_LEN: u16 = of([BPF_LDX, BPF_B, BPF_MSH]);
    /// A = K; A = M\[K\]; M\[K\] = A; X = M\[K\]; X = A.
    pub(super) const CONSTANT: u16 = of([BPF_LD, BPF_W, BPF_IMM]);
    pub(super) const RECALL: u16 = of([BPF_LD, BPF_W, BPF_MEM]);
    pub(super) const STORE: u16 = of([BPF_ST, 0, 0]);
    pub(super) const RECALL_X: u16 = of([BPF_LDX, BPF_W, BPF_MEM]);
    pub(super) const TO_X: u16 = of([BPF_MISC, BPF_TAX, 0]);
    /// A = A op K, or A op X.
    pub(super) const ADD: u16 = of([BPF_ALU, BPF_ADD, BPF_K]);
    pub(super) const MUL: u16 = of([BPF_ALU, BPF_MUL, BPF_K]);
    pub(super) const MOD: u16 = of([BPF_ALU, BPF_MOD, BPF_K]);
    pub(super) const AND: u16 = of([BPF_ALU, BPF_AND, BPF_K]);
    pub(super) const LSH: u16 = of([BPF_ALU, BPF_LSH, BPF_K]);
    pub(super) const RSH: u16 = of([BPF_ALU, BPF_RSH, BPF_K]);
    pub(super) const ADD_X: u16 = of([BPF_ALU, BPF_ADD, BPF_X]);
    pub(super) const SUB_X: u16 = of([BPF_ALU, BPF_SUB, BPF_X]);
    pub(super) const DIV_X: u16 = of([BPF_ALU, BPF_DIV, BPF_X]);
    /// Jumps.
    pub(super) const GO: u16 = of([BPF_JMP, BPF_JA, 0]);
    pub(super) const IF_EQUAL: u16 = of([BPF_JMP, BPF_JEQ, BPF_K]);
    pub(super) const IF_ABOVE: u16 = of([BPF_JMP, BPF_JGT, BPF_K]);
    pub(super) const IF_AT_LEAST: u16 = of([BPF_JMP, BPF_JGE, BPF_K]);
    pub(super) const IF_AT_LEAST_X: u16 = of([BPF_JMP, BPF_JGE, BPF_X]);
    pub(super) const IF_ANY: u16 = of([BPF_JMP, BPF_JSET, BPF_K]);
    /// Returns K, or A.
    pub(super) const ANSWER: u16 = of([BPF_RET, BPF_K, 0]);
    pub(super) const ANSWER_A: u16 = of([BPF_RET, BPF_A, 0]);
}

/// Offset of the frame's EtherType.
const ETHERTYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;

/// Places in the scratch memory: a slice's first port and length, and a quoted packet's protocol.
const FIRST: u32 = 0;
const LEN: u32 = 1;
const QUOTED: u32 = 2;

/// Builds the program for `count` workers.
pub(crate) fn assemble(steering: &Steering, count: usize) -> Vec<libc::sock_filter> {
    let mut program = Program::default();
    let count = count.max(1) as u32;
    let other = program.label();
    program.say(code::WORD, ETHERTYPE);
    program.go_unless(code::IF_EQUAL, ethertype::IPV4.into(), other);
    match &steering.by {
        By::Source => {
            program.say(code::WORD, SOURCE as u32);
            program.say(code::MUL, SCATTER);
            program.say(code::RSH, SCATTER_SHIFT);
            program.say(code::MOD, count);
            program.say(code::ANSWER_A, 0);
        }
        By::Destination(stretches) => by_destination(&mut program, stretches, count),
    }
    program.here(other);
    program.unless_answer(code::IF_EQUAL, ethertype::IPV6.into());
    if let Some(Exception { destination, prefix_len }) = steering.exception {
        let other = program.label();
        // The last word first: a packet that is cut off there belongs to worker 0.
        for place in (0..4).rev() {
            program.say(code::WORD, (DESTINATION_IPV6 + 4 * place) as u32);
            let word = (destination >> (96 - 32 * place)) as u32;
            program.go_unless(code::IF_EQUAL, word, other);
        }
        by_prefix(&mut program, (steering, prefix_len), count);
        program.here(other);
    }
    by_prefix(&mut program, (steering, steering.prefix_len), count);
    program.finish()
}

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

/// A program that is being built.
#[derive(Debug, Default)]
struct Program {
    code: Vec<libc::sock_filter>,
    /// Place of each label, once it is known.
    labels: Vec<usize>,
    /// Unconditional jumps, and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Program {
    fn say(&mut self, code: u16, k: u32) {
        self.code.push(libc::sock_filter { code, jt: 0, jf: 0, k });
    }

    fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    fn here(&mut self, label: Label) {
        self.labels[label.0] = self.code.len();
    }

    fn go(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.say(code::GO, 0);
    }

    /// Jumps to a label if the condition holds.
    fn go_if(&mut self, condition: u16, k: u32, to: Label) {
        self.code.push(libc::sock_filter { code: condition, jt: 0, jf: 1, k });
        self.go(to);
    }

    /// Jumps to a label unless the condition holds.
    fn go_unless(&mut self, condition: u16, k: u32, to: Label) {
        self.code.push(libc::sock_filter { code: condition, jt: 1, jf: 0, k });
        self.go(to);
    }

    /// Returns worker 0 unless the condition holds.
    fn unless_answer(&mut self, condition: u16, k: u32) {
        self.code.push(libc::sock_filter { code: condition, jt: 1, jf: 0, k });
        self.say(code::ANSWER, 0);
    }

    fn finish(mut self) -> Vec<libc::sock_filter> {
        for (at, label) in self.jumps {
            self.code[at].k = (self.labels[label.0] - at - 1) as u32;
        }
        self.code
    }
}

/// Works out the bucket of a prefix of an IPv6 address ([`natgate_wire::ipv6::bucket`]). X is the
/// hash of the words before.
fn by_prefix(program: &mut Program, (steering, prefix_len): (&Steering, u8), count: u32) {
    for (place, mask) in masks(prefix_len).into_iter().enumerate() {
        match mask {
            0 => program.say(code::CONSTANT, 0),
            mask => {
                program.say(code::WORD, (steering.at_ipv6() + 4 * place) as u32);
                program.say(code::AND, mask);
            }
        }
        if place > 0 {
            program.say(code::ADD_X, 0);
        }
        program.say(code::MUL, SCATTER);
        program.say(code::TO_X, 0);
    }
    program.say(code::RSH, SCATTER_SHIFT);
    program.say(code::MOD, count);
    program.say(code::ANSWER_A, 0);
}

fn by_destination(program: &mut Program, stretches: &[Stretch], count: u32) {
    let sliced = program.label();
    program.say(code::WORD, DESTINATION as u32);
    for stretch in stretches.iter().take(MOST_STRETCHES) {
        let next = program.label();
        program.go_unless(code::IF_AT_LEAST, stretch.first.to_bits(), next);
        program.go_if(code::IF_ABOVE, stretch.last.to_bits(), next);
        match stretch.share {
            Share::Whole { place } => {
                program.say(code::ADD, place.wrapping_sub(stretch.first.to_bits()));
                program.say(code::MOD, count);
                program.say(code::ANSWER_A, 0);
            }
            Share::Slices { first, len } => {
                program.say(code::CONSTANT, first.into());
                program.say(code::STORE, FIRST);
                program.say(code::CONSTANT, len.max(1).into());
                program.say(code::STORE, LEN);
                program.go(sliced);
            }
        }
        program.here(next);
    }
    // The kernel checks that every word of scratch memory is stored before it is read, on every
    // path. It counts a return as such a path, but not a jump.
    let nobody = program.label();
    program.go(nobody);
    program.here(sliced);
    by_port(program, count);
    program.here(nobody);
    program.say(code::ANSWER, 0);
}

/// Finds the port, then the slice that contains it.
fn by_port(program: &mut Program, count: u32) {
    let [ports, icmp, query, error, quoted_query, quoted_ports, slice] =
        [(); 7].map(|()| program.label());
    program.say(code::HALF, FRAGMENT as u32);
    program.code.push(libc::sock_filter {
        code: code::IF_ANY,
        jt: 0,
        jf: 1,
        k: FRAGMENT_OFFSET.into(),
    });
    program.say(code::ANSWER, 0);
    program.say(code::HEADER_LEN, 0);
    program.say(code::BYTE, PROTOCOL as u32);
    choose(program, &[(&[ICMP], icmp), (&WITH_PORTS, ports)]);

    program.here(ports);
    program.say(code::HALF_AT_X, DESTINATION_PORT as u32);
    program.go(slice);

    program.here(icmp);
    program.say(code::BYTE_AT_X, 0);
    choose(program, &[(&QUERIES, query), (&ERRORS, error)]);
    program.here(query);
    program.say(code::HALF_AT_X, IDENTIFIER as u32);
    program.go(slice);

    program.here(error);
    program.say(code::BYTE_AT_X, (ICMP_LEN + PROTOCOL) as u32);
    program.say(code::STORE, QUOTED);
    // X is the offset of the quoted packet's own payload, less the ICMP header.
    program.say(code::BYTE_AT_X, ICMP_LEN as u32);
    program.say(code::AND, 0xf);
    program.say(code::LSH, 2);
    program.say(code::ADD_X, 0);
    program.say(code::TO_X, 0);
    program.say(code::RECALL, QUOTED);
    choose(program, &[(&[ICMP], quoted_query), (&WITH_PORTS, quoted_ports)]);
    program.here(quoted_query);
    program.say(code::HALF_AT_X, (ICMP_LEN + IDENTIFIER) as u32);
    program.go(slice);
    program.here(quoted_ports);
    program.say(code::HALF_AT_X, (ICMP_LEN + SOURCE_PORT) as u32);

    program.here(slice);
    program.say(code::RECALL_X, FIRST);
    program.unless_answer(code::IF_AT_LEAST_X, 0);
    program.say(code::SUB_X, 0);
    program.say(code::RECALL_X, LEN);
    program.say(code::DIV_X, 0);
    program.code.push(libc::sock_filter { code: code::IF_AT_LEAST, jt: 0, jf: 1, k: count });
    program.say(code::ANSWER, count - 1);
    program.say(code::ANSWER_A, 0);
}

/// Jumps to the label of the list that contains A; otherwise returns worker 0.
fn choose(program: &mut Program, lists: &[(&[u8], Label)]) {
    for (values, label) in lists {
        for value in *values {
            program.go_if(code::IF_EQUAL, (*value).into(), *label);
        }
    }
    program.say(code::ANSWER, 0);
}
