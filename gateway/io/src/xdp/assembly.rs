//! Instructions of the XDP program: they send frames to the sockets or leave them to the kernel.
//!
//! ```text
//! if there is a share: frame too short to tell     -> socket
//!                      IPv4 to a group of stations  -> kernel
//!                      IPv4 to an address           -> kernel, if it is one of the share
//!                      ARP about an address         -> kernel, if it is one of the share
//!                      VLAN tag                     -> as the share says
//!                      anything else (IPv6, LLDP)   -> kernel
//! to the socket: return bpf_redirect_map(sockets, context->rx_queue_index, XDP_PASS)
//! ```

use natgate_wire::link::ethertype;
use std::net::Ipv4Addr;

/// Most addresses of a [`KernelShare`].
pub const MOST_SHARED: usize = 32;

/// Frames of an interface that are left to the kernel's own network stack. All other frames come to
/// the sockets.
///
/// Frames that are neither IPv4 nor ARP always go to the kernel, and so does IPv4 to a multicast or
/// broadcast hardware address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelShare {
    /// The kernel has IPv4 packets to these addresses, and ARP about them; at most [`MOST_SHARED`].
    pub addresses: Vec<Ipv4Addr>,
    /// True if the kernel also has all frames with a VLAN tag.
    pub tagged: bool,
}

/// One instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u8,
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// Action for a frame to a socket that does not exist: the kernel gets it.
pub(super) const PASS: i32 = 2;

const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const LOAD_CONSTANT_64: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const AND_CONSTANT: u8 = 0x57;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL_32: u8 = 0x16;
const JUMP_IF_NOT_ZERO: u8 = 0x55;
const JUMP_IF_GREATER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Socket,
    Kernel,
    Ipv4,
    Arp,
    Compare,
}

/// A program that is being built.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    /// Jumps, to be completed when all labels are known.
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn put(&mut self, code: u8, [to, from]: [u8; 2], offset: i16, immediate: i32) {
        let registers =
            if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.code.push(Instruction { code, registers, offset, immediate });
    }

    fn jump(&mut self, code: u8, registers: [u8; 2], immediate: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(code, registers, 0, immediate);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let place = self.labels.iter().find(|(known, _)| *known == label);
            let (_, place) = place.expect("every label has a place");
            // A jump counts from the instruction behind it.
            self.code[at].offset = (*place - at - 1) as i16;
        }
        self.code
    }
}

/// Builds the program for this map of sockets. `otherwise` is the action for frames of a queue
/// without a socket.
pub(super) fn assemble(
    sockets: i32,
    share: Option<&KernelShare>,
    otherwise: i32,
) -> Vec<Instruction> {
    const QUEUE_IN_CONTEXT: i16 = 16;
    const MAP_DESCRIPTOR: u8 = 1;
    const REDIRECT_MAP: i32 = 51;
    let mut program = Assembler::default();
    // Register r1 has the context; sorting leaves it there.
    if let Some(share) = share {
        sort(&mut program, share);
    }
    program.label(Label::Socket);
    program.put(LOAD_WORD, [2, 1], QUEUE_IN_CONTEXT, 0);
    // This instruction is twice as long as the others.
    program.put(LOAD_CONSTANT_64, [1, MAP_DESCRIPTOR], 0, sockets);
    program.put(0, [0, 0], 0, 0);
    program.put(MOVE_CONSTANT, [3, 0], 0, otherwise);
    program.put(CALL, [0, 0], 0, REDIRECT_MAP);
    program.put(EXIT, [0, 0], 0, 0);
    if share.is_some() {
        program.label(Label::Kernel);
        program.put(MOVE_CONSTANT, [0, 0], 0, PASS);
        program.put(EXIT, [0, 0], 0, 0);
    }
    program.finish()
}

/// Lengths of a frame's headers and offsets of fields in them, bytes.
const ETHERNET: i32 = 14;
const TYPE: i16 = 12;
const IPV4: i32 = ETHERNET + 20;
const IPV4_DESTINATION: i16 = 14 + 16;
const ARP: i32 = ETHERNET + 28;
const ARP_TARGET: i16 = 14 + 24;

/// Jumps to the kernel with the kernel's frames; the rest falls through to the socket. The frame
/// begins at r2 and ends at r3; r4 and r5 are scratch.
fn sort(program: &mut Assembler, share: &KernelShare) {
    program.put(LOAD_WORD, [2, 1], 0, 0);
    program.put(LOAD_WORD, [3, 1], 4, 0);
    require(program, ETHERNET);
    program.put(LOAD_HALF, [5, 2], TYPE, 0);
    // The value as a load finds it: in network byte order.
    let kind = |kind: u16| i32::from(u16::from_ne_bytes(kind.to_be_bytes()));
    program.jump(JUMP_IF_EQUAL_32, [5, 0], kind(ethertype::IPV4), Label::Ipv4);
    program.jump(JUMP_IF_EQUAL_32, [5, 0], kind(ethertype::ARP), Label::Arp);
    if !share.tagged {
        for tag in [ethertype::VLAN, SERVICE_VLAN] {
            program.jump(JUMP_IF_EQUAL_32, [5, 0], kind(tag), Label::Socket);
        }
    }
    program.jump(JUMP, [0, 0], 0, Label::Kernel);
    program.label(Label::Ipv4);
    program.put(LOAD_BYTE, [5, 2], 0, 0);
    program.put(AND_CONSTANT, [5, 0], 0, 1);
    program.jump(JUMP_IF_NOT_ZERO, [5, 0], 0, Label::Kernel);
    require(program, IPV4);
    program.put(LOAD_WORD, [5, 2], IPV4_DESTINATION, 0);
    program.jump(JUMP, [0, 0], 0, Label::Compare);
    program.label(Label::Arp);
    require(program, ARP);
    program.put(LOAD_WORD, [5, 2], ARP_TARGET, 0);
    program.label(Label::Compare);
    for address in share.addresses.iter().take(MOST_SHARED) {
        let address = i32::from_ne_bytes(address.octets());
        program.jump(JUMP_IF_EQUAL_32, [5, 0], address, Label::Kernel);
    }
}

/// EtherType of a provider's tag (IEEE 802.1ad).
const SERVICE_VLAN: u16 = 0x88a8;

/// Sends frames with fewer bytes to the socket.
fn require(program: &mut Assembler, len: i32) {
    program.put(MOVE, [4, 2], 0, 0);
    program.put(ADD_CONSTANT, [4, 0], 0, len);
    program.jump(JUMP_IF_GREATER, [4, 3], 0, Label::Socket);
}
