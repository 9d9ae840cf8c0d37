//! The generator's program.
//!
//! It drops the frame unless a packet is due. Then it cuts the frame to a length, draws a flow, and
//! finds the flow's endpoints; from outside, a map has the external endpoint. It writes the
//! headers, the flow's number and the checksums, and sends the frame by the side's interface. A
//! returned frame has the changes of the subject, so the program writes every field again that a
//! translator changes. Registers: 6 the frame's length, 7 the frame, 8 the flow; 2 and 3 the source
//! address and port, 4 and 5 the destination address and port.

use super::{Order, RATE_BITS, constants};
use crate::bed::bpf;
use natgate_io::bpf::Map;
use natgate_io::bpf::assembler::*;
use natgate_tester::{Place, Template, Way};
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;

/// One side of the generator.
pub(super) struct Side {
    /// Templates by length. A length may occur several times; every template is equally likely.
    pub(super) templates: Vec<Template>,
    pub(super) interface: u32,
}

/// Parameters of the program.
pub(super) struct Program<'a> {
    pub(super) place: Place,
    pub(super) flows: u32,
    pub(super) sides: &'a [Side; 2],
    pub(super) way: Way,
}

const LEN: u8 = 6;
const FRAME: u8 = 7;
const FLOW: u8 = 8;
const SOURCE: (u8, u8) = (2, 3);
const DESTINATION: (u8, u8) = (4, 5);
const STACK: u8 = 10;
/// Offsets on the stack.
const KEY: i16 = -4;
const HEADER_SUM: i16 = -8;
const PAYLOAD_SUM: i16 = -12;
const CONTEXT: i16 = -24;
/// Offsets in the program's context.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
/// Bytes of the shortest frame.
const LEAST: i32 = 60;
/// Offsets in the frame.
const IP: i16 = 14;
const UDP: i16 = 34;
const FLOW_AT: i16 = 44;
/// Binary logarithm of a subscriber's number of flows, in the tester's numbering.
const FLOWS_BITS: i32 = 6;
const FIRST_PORT: i32 = 10_000;
const REMOTE_PORT: i32 = 53;

impl Program<'_> {
    /// Loads the program into the kernel. `order` is the descriptor of the map with the order.
    pub(super) fn load(
        &self,
        order: i32,
        endpoints: Option<&Map<u32, u64>>,
    ) -> io::Result<OwnedFd> {
        let map = endpoints.map_or(0, Map::descriptor);
        bpf::load("the generator's program", &self.code(order, map))
    }

    fn code(&self, order: i32, map: i32) -> Code {
        let mut code = Code::default();
        code.store(STORE_DOUBLE, STACK, 1, CONTEXT);
        let idle = wait(&mut code, order);
        self.cut(&mut code);
        code.load(LOAD_DOUBLE, 1, STACK, CONTEXT);
        code.load(LOAD_WORD, FRAME, 1, DATA);
        code.load(LOAD_WORD, 3, 1, DATA_END);
        code.copy(2, FRAME);
        code.op(ADD, 2, LEAST);
        let short = code.jump(JUMP_GREATER, [2, 3], 0);
        let templates = &self.sides[0].templates;
        for (place, template) in templates.iter().enumerate() {
            if place == 0 || templates[place - 1].bytes.len() != template.bytes.len() {
                lengths(&mut code, template);
            }
        }
        code.call(RANDOM);
        code.copy(FLOW, 0);
        code.op(LEFT, FLOW, 32);
        code.op(RIGHT, FLOW, 32);
        code.op(MULTIPLY, FLOW, self.flows as i32);
        code.op(RIGHT, FLOW, 32);
        // The lowest random bit has almost no influence on the flow.
        let inbound = match self.way {
            Way::Both => Some(code.jump(JUMP_SET, [0, 0], 1)),
            _ => None,
        };
        if self.way != Way::Down {
            self.outbound(&mut code);
        }
        if let Some(inbound) = inbound {
            code.land(inbound);
        }
        let lost = (self.way != Way::Up).then(|| self.inbound(&mut code, map));
        [short].into_iter().chain(idle).chain(lost).for_each(|jump| code.land(jump));
        code.op(MOVE, 0, XDP_DROP);
        code.exit();
        code
    }

    /// Draws the frame's length, and cuts the frame to it.
    fn cut(&self, code: &mut Code) {
        let lengths: Vec<i32> =
            self.sides[0].templates.iter().map(|one| one.bytes.len() as i32).collect();
        let (Some(first), Some(longest)) = (lengths.first(), lengths.last()) else { return };
        code.op(MOVE, LEN, *first);
        if first == longest {
            return;
        }
        code.call(RANDOM);
        code.op(LEFT, 0, 32);
        code.op(RIGHT, 0, 32);
        code.op(MULTIPLY, 0, lengths.len() as i32);
        code.op(RIGHT, 0, 32);
        for (place, len) in (0..).zip(&lengths) {
            let other = code.jump(JUMP_UNEQUAL, [0, 0], place);
            code.op(MOVE, LEN, *len);
            code.land(other);
        }
        code.load(LOAD_DOUBLE, 1, STACK, CONTEXT);
        code.copy(2, LEN);
        code.op(ADD, 2, -*longest);
        code.call(ADJUST_TAIL);
    }

    fn outbound(&self, code: &mut Code) {
        let [subscribers, remote] = constants(&self.place);
        code.copy(SOURCE.0, FLOW);
        code.op(RIGHT, SOURCE.0, FLOWS_BITS);
        code.add_word(SOURCE.0, subscribers);
        code.copy(SOURCE.1, FLOW);
        code.op(AND, SOURCE.1, (1 << FLOWS_BITS) - 1);
        code.op(ADD, SOURCE.1, FIRST_PORT);
        self.remote(code, DESTINATION, remote);
        send(code, &self.sides[0]);
    }

    /// Returns the jump for flows that do not exist.
    fn inbound(&self, code: &mut Code, map: i32) -> Jump {
        let [_, remote] = constants(&self.place);
        code.store(STORE_WORD, STACK, FLOW, KEY);
        code.load_map(1, map);
        code.copy(2, STACK);
        code.op(ADD, 2, KEY.into());
        code.call(LOOK_UP);
        let lost = code.jump(JUMP_EQUAL, [0, 0], 0);
        code.load(LOAD_WORD, DESTINATION.0, 0, 0);
        code.load(LOAD_HALF, DESTINATION.1, 0, 4);
        self.remote(code, SOURCE, remote);
        send(code, &self.sides[1]);
        lost
    }

    /// Writes the remote endpoint of the flow. The number of remote addresses is a power of two.
    fn remote(&self, code: &mut Code, (address, port): (u8, u8), first: u32) {
        code.copy(address, FLOW);
        code.op(AND, address, self.place.remotes as i32 - 1);
        code.add_word(address, first);
        code.op(MOVE, port, REMOTE_PORT);
    }
}

/// Continues if a packet is due, and counts it. Returns the jumps for the other cases.
fn wait(code: &mut Code, order: i32) -> [Jump; 3] {
    const NOW: u8 = FLOW;
    let at = |field: usize| field as i16;
    code.call(TIME);
    code.copy(NOW, 0);
    code.put(PUT_WORD, STACK, KEY, 0);
    code.load_map(1, order);
    code.copy(2, STACK);
    code.op(ADD, 2, KEY.into());
    code.call(LOOK_UP);
    let none = code.jump(JUMP_EQUAL, [0, 0], 0);
    code.load(LOAD_DOUBLE, 1, 0, at(offset_of!(Order, end)));
    let over = code.jump(JUMP_AT_LEAST, [NOW, 1], 0);
    // Register 1: the number of packets that are due by now.
    code.load(LOAD_DOUBLE, 2, 0, at(offset_of!(Order, begin)));
    code.copy(1, NOW);
    code.with(SUBTRACT, 1, 2);
    code.load(LOAD_DOUBLE, 2, 0, at(offset_of!(Order, rate)));
    code.with(MULTIPLY, 1, 2);
    code.op(RIGHT, 1, RATE_BITS);
    code.load(LOAD_DOUBLE, 2, 0, at(offset_of!(Order, sent)));
    let early = code.jump(JUMP_AT_LEAST, [2, 1], 0);
    code.op(ADD, 2, 1);
    code.store(STORE_DOUBLE, 0, 2, at(offset_of!(Order, sent)));
    [none, over, early]
}

/// Writes the packet and sends it.
fn send(code: &mut Code, side: &Side) {
    let Some(Template { bytes, .. }) = side.templates.first() else { return };
    // Ethernet header, and the IPv4 header up to its checksum, without the length.
    for at in [0, 4, 8, IP + 4] {
        constant(code, PUT_WORD, at, bytes);
    }
    for at in [12, IP, IP + 8] {
        constant(code, PUT_HALF, at, bytes);
    }
    // Register 1: the sum of both addresses.
    code.op(MOVE, 1, 0);
    for address in [SOURCE.0, DESTINATION.0] {
        code.add_halves(1, address);
    }
    code.copy(0, 1);
    code.load(LOAD_WORD, 9, STACK, HEADER_SUM);
    code.with(ADD, 0, 9);
    code.checksum(0);
    code.store(STORE_HALF, FRAME, 0, IP + 10);
    code.with(ADD, 1, SOURCE.1);
    code.with(ADD, 1, DESTINATION.1);
    code.add_halves(1, FLOW);
    code.load(LOAD_WORD, 9, STACK, PAYLOAD_SUM);
    code.with(ADD, 1, 9);
    code.checksum(1);
    let whole = code.jump(JUMP_UNEQUAL, [1, 0], 0);
    code.op(MOVE, 1, 0xffff);
    code.land(whole);
    code.store(STORE_HALF, FRAME, 1, UDP + 6);
    for (register, at) in [(SOURCE.0, IP + 12), (DESTINATION.0, IP + 16), (FLOW, FLOW_AT)] {
        code.op(SWAP, register, 32);
        code.store(STORE_WORD, FRAME, register, at);
    }
    for (register, at) in [(SOURCE.1, UDP), (DESTINATION.1, UDP + 2)] {
        code.op(SWAP, register, 16);
        code.store(STORE_HALF, FRAME, register, at);
    }
    code.op(MOVE, 1, side.interface as i32);
    code.op(MOVE, 2, 0);
    code.call(REDIRECT);
    code.exit();
}

/// Writes the template's bytes at an offset.
fn constant(code: &mut Code, size: u8, at: i16, bytes: &[u8]) {
    let from = at as usize;
    let value = match size {
        PUT_WORD => i32::from_ne_bytes(bytes[from..from + 4].try_into().unwrap_or_default()),
        _ => i16::from_ne_bytes([bytes[from], bytes[from + 1]]).into(),
    };
    code.put(size, FRAME, at, value);
}

/// For frames of the template's length, writes the lengths and stores the sums on the stack.
fn lengths(code: &mut Code, template: &Template) {
    let Template { bytes, header_sum, payload_sum } = template;
    let other = code.jump(JUMP_UNEQUAL, [LEN, 0], bytes.len() as i32);
    constant(code, PUT_HALF, IP + 2, bytes);
    constant(code, PUT_HALF, UDP + 4, bytes);
    for (sum, at) in [(header_sum, HEADER_SUM), (payload_sum, PAYLOAD_SUM)] {
        code.put(PUT_WORD, STACK, at, *sum as i32);
    }
    code.land(other);
}
