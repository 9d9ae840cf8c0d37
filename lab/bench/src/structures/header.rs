//! Work on a packet's headers in a NAT like the paper's: it reads one pair of fields, writes
//! another pair, and computes both checksums over all bytes that they cover.

use super::record::Key;
use crate::frame::{End, Frame, LEN, destination, source};
use natgate_wire::checksum;

const PROTOCOL: usize = 9;
const HEADER_CHECKSUM: usize = 10;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const PORTS: usize = 20;
const UDP_CHECKSUM: usize = 26;

/// Session of a packet from inside.
#[inline(always)]
pub(super) fn key(frame: &Frame) -> Key {
    let (address, port) = source(frame);
    Key::new(frame.0[PROTOCOL], address, port)
}

#[inline(always)]
pub(super) fn set_source(frame: &mut Frame, end: End) {
    put(frame, SOURCE, end.0.to_be_bytes());
    put(frame, PORTS, end.1.to_be_bytes());
    fill_checksums(frame);
}

#[inline(always)]
pub(super) fn set_destination(frame: &mut Frame, end: End) {
    put(frame, DESTINATION, end.0.to_be_bytes());
    put(frame, PORTS + 2, end.1.to_be_bytes());
    fill_checksums(frame);
}

#[inline(always)]
fn fill_checksums(frame: &mut Frame) {
    put(frame, HEADER_CHECKSUM, [0; 2]);
    let sum = checksum::checksum(&frame.0[..PORTS]);
    put(frame, HEADER_CHECKSUM, sum.to_be_bytes());
    put(frame, UDP_CHECKSUM, [0; 2]);
    let (source, destination) = (source(frame).0, destination(frame).0);
    let length = (LEN - PORTS) as u16;
    let pseudo = checksum::pseudo_header(source, destination, frame.0[PROTOCOL], length);
    let sum = !checksum::fold(checksum::sum(&frame.0[PORTS..LEN], pseudo));
    // RFC 768: a checksum of zero means that the packet has none.
    let sum = if sum == 0 { 0xffff } else { sum };
    put(frame, UDP_CHECKSUM, sum.to_be_bytes());
}

#[inline(always)]
fn put<const LENGTH: usize>(frame: &mut Frame, at: usize, bytes: [u8; LENGTH]) {
    frame.0[at..at + LENGTH].copy_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_rewritten_packet_is_the_one_that_would_have_been_written(
            from: End, to: End, new: End, outbound: bool,
        ) {
            let [mut rewritten, mut wanted] = [Frame([0; 64]); 2];
            frame::udp(&mut rewritten, from, to);
            prop_assert_eq!((source(&rewritten), destination(&rewritten)), (from, to));
            if outbound {
                set_source(&mut rewritten, new);
                frame::udp(&mut wanted, new, to);
            } else {
                set_destination(&mut rewritten, new);
                frame::udp(&mut wanted, from, new);
            }
            let written = wanted.0[UDP_CHECKSUM..UDP_CHECKSUM + 2] != [0; 2];
            prop_assert!(!written || rewritten.0 == wanted.0);
        }
    }
}
