//! The programs of the fast path.
//!
//! ```text
//! not IPv4, options, a fragment, not UDP, TTL below 2              -> kernel
//! its endpoints are not in the table                               -> kernel
//! else write the entry's values, TTL less one, checksums, time of use
//! return bpf_redirect(interface)
//! ```
//! Register 6 points to the frame, register 8 to the entry. The others are scratch.

use super::{Action, Endpoint, Hop, Key, UDP};
use crate::bed::bpf::load;
use natgate_io::bpf::assembler::*;
use natgate_io::bpf::test_run;
use std::io;
use std::mem::offset_of;

const FRAME: u8 = 6;
const FOUND: u8 = 8;
const STACK: u8 = 10;
/// Offsets in the frame.
const TYPE: i16 = 12;
const IP: i16 = 14;
const PIECE: i16 = IP + 6;
const TIME_TO_LIVE: i16 = IP + 8;
const PROTOCOL: i16 = IP + 9;
const HEADER_CHECKSUM: i16 = IP + 10;
const SOURCE: i16 = IP + 12;
const DESTINATION: i16 = IP + 16;
const PORTS: i16 = IP + 20;
const PAYLOAD_CHECKSUM: i16 = PORTS + 6;
const LEAST: i32 = 14 + 20 + 8;
/// Offset of the key on the stack.
const KEY: i16 = -(size_of::<Key>() as i16);

/// Program that looks endpoints up in the table, translates, and sends.
pub(super) fn translate(table: i32) -> Code {
    let mut code = Code::default();
    let mut left = begin(&mut code);
    const fn at(offset: usize) -> i16 {
        KEY + offset as i16
    }
    for (field, place) in [
        (SOURCE, at(offset_of!(Key, source))),
        (DESTINATION, at(offset_of!(Key, destination))),
        (PORTS, at(offset_of!(Key, ports))),
    ] {
        code.load(LOAD_WORD, 0, FRAME, field);
        code.store(STORE_WORD, STACK, 0, place);
    }
    code.put(PUT_WORD, STACK, at(offset_of!(Key, protocol)), UDP as i32);
    code.load_map(1, table);
    code.copy(2, STACK);
    code.op(ADD, 2, KEY.into());
    code.call(LOOK_UP);
    left.push(code.jump(JUMP_EQUAL, [0, 0], 0));
    code.copy(FOUND, 0);
    rewrite(&mut code);
    code.call(COARSE_TIME);
    code.store(STORE_DOUBLE, FOUND, 0, offset_of!(Action, used) as i16);
    code.load(LOAD_WORD, 1, FOUND, offset_of!(Action, interface) as i16);
    end(code, left)
}

/// Program that sends the packet unchanged by another interface.
pub(super) fn forward(hop: Hop) -> Code {
    let mut code = Code::default();
    let left = begin(&mut code);
    let stations = hop.stations.concat();
    for (bytes, place) in stations.chunks_exact(4).zip([0, 4, 8]) {
        let word = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        code.put(PUT_WORD, FRAME, place, word);
    }
    code.op(MOVE, 1, hop.interface as i32);
    end(code, left)
}

/// Reads the headers. Frames for the kernel leave by the returned jumps.
fn begin(code: &mut Code) -> Vec<Jump> {
    let network = |half: u16| i32::from(u16::from_ne_bytes(half.to_be_bytes()));
    let mut left = Vec::new();
    code.load(LOAD_WORD, FRAME, 1, 0);
    code.load(LOAD_WORD, 3, 1, 4);
    code.copy(2, FRAME);
    code.op(ADD, 2, LEAST);
    left.push(code.jump(JUMP_GREATER, [2, 3], 0));
    code.load(LOAD_HALF, 0, FRAME, TYPE);
    left.push(code.jump(JUMP_UNEQUAL, [0, 0], network(0x0800)));
    code.load(LOAD_BYTE, 0, FRAME, IP);
    left.push(code.jump(JUMP_UNEQUAL, [0, 0], 0x45));
    code.load(LOAD_HALF, 0, FRAME, PIECE);
    left.push(code.jump(JUMP_SET, [0, 0], network(0x3fff)));
    code.load(LOAD_BYTE, 0, FRAME, PROTOCOL);
    left.push(code.jump(JUMP_UNEQUAL, [0, 0], UDP as i32));
    code.load(LOAD_BYTE, 0, FRAME, TIME_TO_LIVE);
    left.push(code.jump(JUMP_AT_MOST, [0, 0], 1));
    left
}

/// Writes the entry's values into the frame.
fn rewrite(code: &mut Code) {
    code.load(LOAD_BYTE, 0, FRAME, TIME_TO_LIVE);
    code.op(SUBTRACT, 0, 1);
    code.store(STORE_BYTE, FRAME, 0, TIME_TO_LIVE);
    code.load(LOAD_HALF, 0, FRAME, HEADER_CHECKSUM);
    amend(code, offset_of!(Action, header_delta));
    code.store(STORE_HALF, FRAME, 0, HEADER_CHECKSUM);
    code.load(LOAD_HALF, 0, FRAME, PAYLOAD_CHECKSUM);
    // RFC 768: zero is no checksum, and a checksum of zero is sent as all ones.
    let none = code.jump(JUMP_EQUAL, [0, 0], 0);
    amend(code, offset_of!(Action, payload_delta));
    let other = code.jump(JUMP_UNEQUAL, [0, 0], 0);
    code.op(MOVE, 0, 0xffff);
    code.land(other);
    code.store(STORE_HALF, FRAME, 0, PAYLOAD_CHECKSUM);
    code.land(none);
    let stations = offset_of!(Action, stations) as i16;
    for (load, store, from, to) in [
        (LOAD_DOUBLE, STORE_DOUBLE, stations, 0),
        (LOAD_WORD, STORE_WORD, stations + 8, 8),
        (LOAD_WORD, STORE_WORD, offset_of!(Action, source) as i16, SOURCE),
        (LOAD_WORD, STORE_WORD, offset_of!(Action, destination) as i16, DESTINATION),
        (LOAD_WORD, STORE_WORD, offset_of!(Action, ports) as i16, PORTS),
    ] {
        code.load(load, 0, FOUND, from);
        code.store(store, FRAME, 0, to);
    }
}

/// Adds a delta to the inverse of the checksum in register 0; uses register 1.
fn amend(code: &mut Code, delta: usize) {
    code.op(XOR, 0, 0xffff);
    code.load(LOAD_HALF, 1, FOUND, delta as i16);
    code.with(ADD, 0, 1);
    code.copy(1, 0);
    code.op(RIGHT, 1, 16);
    code.op(AND, 0, 0xffff);
    code.with(ADD, 0, 1);
    code.op(XOR, 0, 0xffff);
}

/// Sends by the interface in register 1.
fn end(mut code: Code, left: Vec<Jump>) -> Code {
    code.op(MOVE, 2, 0);
    code.call(REDIRECT);
    code.exit();
    left.into_iter().for_each(|jump| code.land(jump));
    code.op(MOVE, 0, XDP_PASS);
    code.exit();
    code
}

/// Time of one run of the program, nanoseconds. `found` is true if the table has the packet's
/// entry.
pub(super) fn time(found: bool) -> io::Result<f64> {
    /// Fewer runs than the packet's time to live, which each run decreases by one.
    const RUNS: u32 = 50;
    const CALLS: u32 = 1000;
    let table = super::table(1)?;
    let program = load("the fast path's program", &translate(table.descriptor()))?;
    let ends = [Endpoint { address: 1, port: 1 }, Endpoint { address: 2, port: 2 }];
    if found {
        // The translation does not change the endpoints, so every run finds the entry.
        table.update(&super::key(ends[0], ends[1]), &super::action(Hop::default(), ends, ends))?;
    }
    let frame = packet(ends);
    let mut nanoseconds = 0;
    for _ in 0..CALLS {
        nanoseconds += test_run(&program, &frame, RUNS)?.time.as_nanos();
    }
    Ok(nanoseconds as f64 / f64::from(CALLS))
}

/// The shortest packet between two endpoints, with checksums that need not be right.
fn packet([source, destination]: [Endpoint; 2]) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[22..24].copy_from_slice(&[64, UDP as u8]);
    frame[26..30].copy_from_slice(&source.address.to_be_bytes());
    frame[30..34].copy_from_slice(&destination.address.to_be_bytes());
    frame[34..36].copy_from_slice(&source.port.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.port.to_be_bytes());
    frame[40] = 1;
    frame
}

#[cfg(test)]
mod tests {
    use super::super::{Table, action, key};
    use super::*;
    use natgate_io::bpf::Outcome;
    use natgate_wire::checksum::{checksum, fold, pseudo_header, sum};
    use std::os::fd::OwnedFd;

    const REDIRECTED: u32 = 4;
    const INTERNAL: Endpoint = Endpoint { address: 0x6440_0007, port: 10_001 };
    const EXTERNAL: Endpoint = Endpoint { address: 0xcb00_7105, port: 61_234 };
    const REMOTE: Endpoint = Endpoint { address: 0xc633_6401, port: 53 };
    const HOP: Hop = Hop { stations: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]], interface: 1 };

    fn udp_sum(frame: &[u8; 60]) -> u16 {
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| frame[at + byte]));
        let pseudo = pseudo_header(word(26), word(30), UDP as u8, 26);
        !fold(sum(&frame[34..], pseudo))
    }

    /// A complete packet with correct checksums, and this number as its payload.
    fn whole(ends: [Endpoint; 2], number: u16) -> [u8; 60] {
        let mut frame = packet(ends);
        frame[16..18].copy_from_slice(&46_u16.to_be_bytes());
        frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
        let header = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&header.to_be_bytes());
        frame[42..44].copy_from_slice(&number.to_be_bytes());
        frame[40..42].fill(0);
        let payload = match udp_sum(&frame) {
            0 => 0xffff,
            other => other,
        };
        frame[40..42].copy_from_slice(&payload.to_be_bytes());
        frame
    }

    fn loaded(table: &Table) -> OwnedFd {
        let program = translate(table.descriptor());
        load("the program", &program).expect("the verifier takes it, from root")
    }

    fn one_flow() -> Table {
        let table = Table::table(1).expect("maps need root: run the tests as root");
        let action = action(HOP, [INTERNAL, REMOTE], [EXTERNAL, REMOTE]);
        table.update(&key(INTERNAL, REMOTE), &action).unwrap();
        table
    }

    #[test]
    fn what_is_in_the_table_is_translated_with_right_checksums_whatever_they_are() {
        let table = one_flow();
        let program = loaded(&table);
        for number in (0..=u16::MAX).step_by(3) {
            let frame = whole([INTERNAL, REMOTE], number);
            let Outcome { answer, frame: after, .. } = test_run(&program, &frame, 1).unwrap();
            let mut expected = whole([EXTERNAL, REMOTE], number);
            expected[..12].copy_from_slice(&HOP.stations.concat());
            expected[22] -= 1;
            expected[24..26].fill(0);
            let header = checksum(&expected[14..34]);
            expected[24..26].copy_from_slice(&header.to_be_bytes());
            assert_eq!((answer, after.as_slice()), (REDIRECTED, expected.as_slice()), "{number}");
        }
        assert!(table.look_up(&key(INTERNAL, REMOTE)).unwrap().used > 0);
    }

    #[test]
    fn no_checksum_stays_none() {
        let program = loaded(&one_flow());
        let mut frame = whole([INTERNAL, REMOTE], 5);
        frame[40..42].fill(0);
        let Outcome { answer, frame: after, .. } = test_run(&program, &frame, 1).unwrap();
        assert_eq!((answer, &after[40..42]), (REDIRECTED, &[0, 0][..]));
    }

    #[test]
    fn all_else_is_left_to_the_kernel_as_it_is() {
        let program = loaded(&one_flow());
        let other = Endpoint { port: 54, ..REMOTE };
        let mut frames = vec![whole([INTERNAL, other], 0), whole([REMOTE, INTERNAL], 0)];
        for (at, byte) in [(12, 0x86), (14, 0x46), (20, 0x20), (21, 1), (22, 1), (22, 0), (23, 6)] {
            let mut frame = whole([INTERNAL, REMOTE], 0);
            frame[at] = byte;
            frames.push(frame);
        }
        for frame in frames {
            let Outcome { answer, frame: after, .. } = test_run(&program, &frame, 1).unwrap();
            assert_eq!((answer, after.as_slice()), (XDP_PASS as u32, frame.as_slice()));
        }
    }

    #[test]
    fn the_forwarder_changes_the_stations_alone() {
        let program = load("the program", &forward(HOP)).expect("it needs root");
        let frame = whole([INTERNAL, REMOTE], 0);
        let Outcome { answer, frame: after, .. } = test_run(&program, &frame, 1).unwrap();
        assert_eq!((answer, &after[..12]), (REDIRECTED, HOP.stations.concat().as_slice()));
        assert_eq!(after[12..], frame[12..]);
    }
}
