//! The generator's program, instruction by instruction.
//!
//! Draws a flow, finds its endpoints (from outside, the external one in a map), writes the headers
//! and the flow's number, sums, and sends the frame by the side's interface. Frames come back from
//! where they went with whatever was done to them, so all that a translator changes is written anew.
//! Registers: 6 the frame's length, 7 the frame, 8 the flow; 2 and 3 source and its port, 4 and 5 destination.

use super::constants;
use crate::bed::bpf::code::*;
use crate::bed::bpf::sys::{self, Map};
use natgate_tester::{Place, Template, Way};
use std::io;
use std::os::fd::OwnedFd;

/// One side that packets are sent by.
pub(super) struct Side {
    /// By length.
    pub(super) templates: Vec<Template>,
    pub(super) interface: u32,
}

/// What the program is made for.
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
/// Where things are on the stack.
const KEY: i16 = -4;
const HEADER_SUM: i16 = -8;
const PAYLOAD_SUM: i16 = -12;
/// Bytes of the shortest frame.
const LEAST: i32 = 60;
/// Where things are in the frame.
const IP: i16 = 14;
const UDP: i16 = 34;
const FLOW_AT: i16 = 44;
/// Flows of a subscriber, as the tester numbers them.
const FLOWS_BITS: i32 = 6;
const FIRST_PORT: i32 = 10_000;
const REMOTE_PORT: i32 = 53;

const DROP: i32 = 1;

impl Program<'_> {
    /// Has the kernel take it.
    pub(super) fn load(&self, endpoints: Option<&Map<u32, u64>>) -> io::Result<OwnedFd> {
        let map = endpoints.map_or(0, Map::descriptor);
        sys::load("the generator's program", &self.code(map).0)
    }

    fn code(&self, map: i32) -> Code {
        let mut code = Code::default();
        code.load(LOAD_WORD, FRAME, 1, 0);
        code.load(LOAD_WORD, 3, 1, 4);
        code.copy(2, FRAME);
        code.op(ADD, 2, LEAST);
        let short = code.jump(JUMP_GREATER, [2, 3], 0);
        code.copy(LEN, 3);
        code.with(SUBTRACT, LEN, FRAME);
        for template in &self.sides[0].templates {
            code.lengths(template);
        }
        code.call(RANDOM);
        code.copy(FLOW, 0);
        code.op(LEFT, FLOW, 32);
        code.op(RIGHT, FLOW, 32);
        code.op(MULTIPLY, FLOW, self.flows as i32);
        code.op(RIGHT, FLOW, 32);
        // The lowest bit of what was drawn has next to nothing to do with the flow.
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
        code.land(short);
        if let Some(lost) = lost {
            code.land(lost);
        }
        code.op(MOVE, 0, DROP);
        code.put(EXIT, 0, 0, 0);
        code
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

    /// Returns the jump for flows that there are not.
    fn inbound(&self, code: &mut Code, map: i32) -> usize {
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

    /// The remote endpoint of the flow; there is a power of two of them.
    fn remote(&self, code: &mut Code, (address, port): (u8, u8), first: u32) {
        code.copy(address, FLOW);
        code.op(AND, address, self.place.remotes as i32 - 1);
        code.add_word(address, first);
        code.op(MOVE, port, REMOTE_PORT);
    }
}

/// Writes the packet and sends it.
fn send(code: &mut Code, side: &Side) {
    let Some(Template { bytes, .. }) = side.templates.first() else { return };
    // Ethernet header, and the IPv4 header to its checksum but for the length.
    for at in [0, 4, 8, IP + 4] {
        code.constant(PUT_WORD, at, bytes);
    }
    for at in [12, IP, IP + 8] {
        code.constant(PUT_HALF, at, bytes);
    }
    // 1: the sum of both addresses.
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
    code.put(EXIT, 0, 0, 0);
}

impl Code {
    /// Writes what the template has at a place.
    fn constant(&mut self, size: u8, at: i16, bytes: &[u8]) {
        let from = at as usize;
        let value = match size {
            PUT_WORD => i32::from_ne_bytes(bytes[from..from + 4].try_into().unwrap_or_default()),
            _ => i16::from_ne_bytes([bytes[from], bytes[from + 1]]).into(),
        };
        self.put(size, FRAME, at, value);
    }

    /// For frames of a template's length, writes the lengths and keeps the sums on the stack.
    fn lengths(&mut self, template: &Template) {
        let Template { bytes, header_sum, payload_sum } = template;
        let other = self.jump(JUMP_UNEQUAL, [LEN, 0], bytes.len() as i32);
        self.constant(PUT_HALF, IP + 2, bytes);
        self.constant(PUT_HALF, UDP + 4, bytes);
        for (sum, at) in [(header_sum, HEADER_SUM), (payload_sum, PAYLOAD_SUM)] {
            self.put(PUT_WORD, STACK, at, *sum as i32);
        }
        self.land(other);
    }
}
