//! NAT64 under test. The tester writes and reads frames of IPv4; its connections have IPv6 inside.

use super::gateway::Turn;
use super::tester::Tester;
use crate::clock;
use crate::frame::{self, End, Frame};
use crate::ipv6::{Buffer, Ends, Gateway, Session, Translation};
use natgate_engine::{Config, Packet, Side, Timestamp};

/// A gateway, and buffers for its packets.
pub(super) struct Nat64 {
    pub(super) gateway: Gateway,
    buffers: Vec<Buffer>,
}

impl Nat64 {
    pub(super) fn new(config: Config, batch: usize) -> Self {
        let gateway = Gateway::new(Translation::Nat64, config, batch);
        Self { gateway, buffers: vec![Buffer::EMPTY; batch] }
    }

    /// Takes a batch of the tester's frames. Then the tester checks what came out.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        from: Side,
        frames: &[Frame],
        tester: &mut Tester,
    ) -> Turn {
        for (frame, buffer) in frames.iter().zip(&mut self.buffers) {
            let (source, destination) = (frame::source(frame), frame::destination(frame));
            let ends = match from {
                Side::Inside => inside(source, destination),
                Side::Outside => Ends::Ipv4(source, destination),
            };
            buffer.write_numbered(ends, frame::number(frame));
        }
        let buffers = self.buffers[..frames.len()].iter_mut();
        let mut packets: Vec<Packet<'_>> = buffers.map(Buffer::packet).collect();
        let start = clock::now();
        while self.gateway.advance(now) {}
        let left = self.gateway.take(now, from, &mut packets);
        let time = clock::now() - start;
        let mut passed = left == frames.len();
        for packet in &packets {
            passed &= receive(from.other(), packet.bytes(), tester);
        }
        Turn { time, passed }
    }
}

/// Ends of a packet from a subscriber, whom the tester knows by an IPv4 address.
fn inside(internal: End, remote: End) -> Ends {
    let host = u64::from(internal.0 - Tester::first_subscriber());
    let session = Session { host, place: u64::from(internal.1) - 1024 };
    Translation::Nat64.outbound(session, remote)
}

/// Checks a packet that came out on a side; returns true if it is correct.
fn receive(at: Side, bytes: &[u8], tester: &mut Tester) -> bool {
    let Some((ends, number)) = Ends::read(bytes) else { return false };
    let Some((internal, remote)) = tester.ends(number) else { return false };
    let (source, destination) = match (at, ends) {
        (Side::Outside, Ends::Ipv4(source, destination)) => (source, destination),
        (Side::Inside, Ends::Ipv6(..)) if ends == inside(internal, remote).reversed() => {
            (remote, internal)
        }
        _ => return false,
    };
    let mut frame = Frame([0; 64]);
    frame::numbered(&mut frame, source, destination, number);
    tester.receive(at, &frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_another_host_is_noticed() {
        let mut tester = Tester::new(10);
        let (internal, remote) = tester.ends(3).expect("a connection");
        let mut is_right = |ends: Ends, number: u64| {
            let mut buffer = Buffer::EMPTY;
            buffer.write_numbered(ends, number);
            receive(Side::Inside, buffer.packet().bytes(), &mut tester)
        };
        let answer = inside(internal, remote).reversed();
        assert!(is_right(answer, 3));
        assert!(!is_right(answer, 4) && !is_right(answer, 10));
        assert!(!is_right(inside((internal.0 ^ 1, internal.1), remote).reversed(), 3));
        assert!(!is_right(Ends::Ipv4(remote, internal), 3));
    }

    #[test]
    fn every_datagram_has_a_checksum() {
        let (internal, remote) = Tester::new(1).ends(0).expect("a connection");
        for ends in [inside(internal, remote), Ends::Ipv4(remote, internal)] {
            let mut buffer = Buffer::EMPTY;
            // Some numbers among so many lead to the sum whose complement is zero.
            for number in 0..1 << 17 {
                buffer.write_numbered(ends, number);
                let packet = buffer.packet();
                // The datagram has 26 bytes.
                let at = packet.len() - 26 + 6;
                assert_ne!(packet.bytes()[at..at + 2], [0, 0], "{number}");
                assert_eq!(Ends::read(packet.bytes()), Some((ends, number)));
            }
        }
    }
}
