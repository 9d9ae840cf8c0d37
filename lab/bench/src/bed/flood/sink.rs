//! The tester's end of a cable that receives the subject's packets. It is cheap, so the tester does
//! not limit the measurement.
//!
//! An XDP program drops arriving frames. It leaves one random frame in 64 to the tester's checks,
//! and every frame that is not IPv4, such as ARP. The interface counts all frames.

use crate::bed::bpf;
use natgate_io::bpf::Mode;
use natgate_io::bpf::assembler::*;
use std::io;
use std::os::fd::OwnedFd;

/// The tester sees one frame in this number of frames; a power of two.
const OF: i32 = 64;

const FRAME: u8 = 6;
const TYPE: i16 = 12;
const ETHERNET: i32 = 14;

/// Attaches the program to an interface of this thread's namespace until the returned link is
/// dropped.
pub(super) fn attach(interface: u32) -> io::Result<OwnedFd> {
    bpf::attach(&bpf::load("the sink's program", &code())?, interface, Mode::Native)
}

fn code() -> Code {
    let mut code = Code::default();
    code.load(LOAD_WORD, FRAME, 1, 0);
    code.load(LOAD_WORD, 3, 1, 4);
    code.copy(2, FRAME);
    code.op(ADD, 2, ETHERNET);
    let short = code.jump(JUMP_GREATER, [2, 3], 0);
    code.load(LOAD_HALF, 0, FRAME, TYPE);
    let ipv4 = i32::from(u16::from_ne_bytes(0x0800_u16.to_be_bytes()));
    let other = code.jump(JUMP_UNEQUAL, [0, 0], ipv4);
    code.call(RANDOM);
    code.op(AND, 0, OF - 1);
    let drawn = code.jump(JUMP_EQUAL, [0, 0], 0);
    code.op(MOVE, 0, XDP_DROP);
    code.exit();
    [short, other, drawn].into_iter().for_each(|jump| code.land(jump));
    code.op(MOVE, 0, XDP_PASS);
    code.exit();
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_io::bpf::test_run;

    #[test]
    fn one_in_many_and_what_is_not_ipv4_stays() {
        let program = bpf::load("the sink's program", &code()).expect("it needs root");
        let passed = |kind: [u8; 2]| {
            let mut frame = [0; 60];
            frame[12..14].copy_from_slice(&kind);
            let runs = 0..64 * 100;
            runs.filter(|_| test_run(&program, &frame, 1).unwrap().answer == XDP_PASS as u32)
                .count()
        };
        assert_eq!(passed([8, 6]), 6400);
        // Ten standard deviations.
        assert!((1..200).contains(&passed([8, 0])));
    }
}
