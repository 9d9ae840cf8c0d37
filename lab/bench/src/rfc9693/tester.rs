//! The tester has two ends. The Initiator on the inside makes connections. The Responder on the
//! outside learns their translated endpoints and answers.
//!
//! Connections are numbered. The number determines the endpoints of both ends, which are unique and
//! pseudo-random, as RFC 4814 requires. The datagram carries the number. So both ends can check
//! every field that a translator may damage.

use crate::frame::{self, End, Frame};
use crate::random::{Random, Shuffle};
use natgate_engine::{Prefix, Side};
use std::net::Ipv4Addr;

/// Addresses of subscribers: half of the network that RFC 2544 reserves.
const INSIDE: u32 = 0xc612_0000;
const INSIDE_ADDRESSES: u64 = 1 << 16;
/// Remote addresses: the last quarter of that network.
const OUTSIDE: u32 = 0xc613_8000;
const OUTSIDE_ADDRESSES: u64 = 1 << 15;
/// First external address, in the quarter between.
pub(super) const POOL: u32 = 0xc613_0000;
pub(super) const POOL_ADDRESSES: u32 = 1 << 15;
/// RFC 4814 section 4.5: source ports from 1024 on, destination ports from 1 to 49151.
const SOURCE_PORTS: u64 = 65_536 - 1024;
const DESTINATION_PORTS: u64 = 49_151;

/// Present phase of the tester.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// The Initiator makes one connection after the other.
    Establish,
    /// The Responder sends one datagram back over every connection.
    Validate,
    /// Both ends send over random connections.
    Both,
}

/// Both ends of the tester.
pub(super) struct Tester {
    /// Translated source of each connection in its first datagram to the Responder.
    translated: Vec<End>,
    random: Random,
    pub(super) phase: Phase,
}

impl Tester {
    /// Creates a tester of `connections` connections.
    pub(super) fn new(connections: u64) -> Self {
        Self {
            translated: vec![(u32::MAX, u16::MAX); connections as usize],
            random: Random::new(9693),
            phase: Phase::Establish,
        }
    }

    /// Prefix of the connections' internal addresses.
    pub(super) fn subscribers() -> Prefix {
        Prefix::new(Ipv4Addr::from_bits(INSIDE), 16)
    }

    /// The first of the connections' internal addresses.
    pub(super) fn first_subscriber() -> u32 {
        INSIDE
    }

    /// Internal and remote endpoint of a connection; `None` if there is no such connection.
    pub(super) fn ends(&self, number: u64) -> Option<(End, End)> {
        let is_one = number < self.connections();
        is_one.then(|| (Self::internal(number), Self::remote(number)))
    }

    /// Number of connections.
    pub(super) fn connections(&self) -> u64 {
        self.translated.len() as u64
    }

    fn internal(number: u64) -> End {
        let at = Shuffle::new(INSIDE_ADDRESSES * SOURCE_PORTS).at(number);
        (INSIDE + (at % INSIDE_ADDRESSES) as u32, 1024 + (at / INSIDE_ADDRESSES) as u16)
    }

    fn remote(number: u64) -> End {
        let mixed = Random::new(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next();
        let (address, port) = (mixed % OUTSIDE_ADDRESSES, (mixed >> 32) % DESTINATION_PORTS);
        (OUTSIDE + address as u32, 1 + port as u16)
    }

    /// Writes frame number `place` of the frames that one end sends.
    pub(super) fn write(&mut self, from: Side, place: u64, frame: &mut Frame) {
        let number = match self.phase {
            Phase::Establish => place,
            Phase::Validate => Shuffle::new(self.connections()).at(place),
            Phase::Both => self.random.below(self.connections()),
        };
        let remote = Self::remote(number);
        match from {
            Side::Inside => frame::numbered(frame, Self::internal(number), remote, number),
            Side::Outside => {
                frame::numbered(frame, remote, self.translated[number as usize], number);
            }
        }
    }

    /// Checks a frame that came out at one end; returns true if it is correct.
    pub(super) fn receive(&mut self, at: Side, frame: &Frame) -> bool {
        let number = frame::number(frame);
        if number >= self.connections() {
            return false;
        }
        let (source, destination) = (frame::source(frame), frame::destination(frame));
        let translated = &mut self.translated[number as usize];
        if at == Side::Inside {
            return source == Self::remote(number) && destination == Self::internal(number);
        }
        if self.phase == Phase::Establish {
            *translated = source;
        }
        let in_pool = (POOL..POOL + POOL_ADDRESSES).contains(&source.0);
        in_pool && *translated == source && destination == Self::remote(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn endpoints_are_unique_and_in_their_ranges() {
        let internal: BTreeSet<End> = (0..100_000).map(Tester::internal).collect();
        assert_eq!(internal.len(), 100_000);
        assert!(internal.iter().all(|end| Tester::subscribers().contains(end.0) && end.1 >= 1024));
        let remote: BTreeSet<End> = (0..100_000).map(Tester::remote).collect();
        assert!(remote.len() > 99_000, "{} different remotes", remote.len());
        assert!(remote.iter().all(|end| end.0 >= OUTSIDE && (1..=49_151).contains(&end.1)));
    }

    #[test]
    fn a_wrong_translation_is_noticed() {
        let mut tester = Tester::new(10);
        let mut sent = Frame([0; 64]);
        tester.write(Side::Inside, 3, &mut sent);
        let mut translated = Frame([0; 64]);
        let external = (POOL + 1, 2000);
        frame::numbered(&mut translated, external, frame::destination(&sent), 3);
        assert!(!tester.receive(Side::Outside, &sent), "an internal address outside");
        assert!(tester.receive(Side::Outside, &translated));

        tester.phase = Phase::Both;
        frame::numbered(&mut translated, (POOL + 1, 2001), frame::destination(&sent), 3);
        assert!(!tester.receive(Side::Outside, &translated), "another port than before");

        let remote = Tester::remote(3);
        frame::numbered(&mut translated, remote, Tester::internal(3), 3);
        assert!(tester.receive(Side::Inside, &translated));
        frame::numbered(&mut translated, remote, Tester::internal(4), 3);
        assert!(!tester.receive(Side::Inside, &translated), "another subscriber");
    }
}
