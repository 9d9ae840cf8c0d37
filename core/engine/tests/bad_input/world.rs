//! The engine that gets bad input, its state that could be damaged, and ways to make faults.

use crate::common::*;
use natgate_engine::{
    Config, Counters, Direction, DropReason, MappingInfo, Outcome, Packet, PoolUsage, SessionInfo,
    Side, StaticMapping, Timestamp, Verdict,
};
use natgate_wire::{Icmp, Ipv4, protocol};
use std::net::Ipv4Addr;

pub(crate) const INNER: &str = "10.0.0.5:4000";
pub(crate) const SIDES: [Side; 2] = [Side::Inside, Side::Outside];
/// IP protocols whose use of pools is compared.
pub(crate) const POOLED: [u8; 3] = [protocol::ICMP, protocol::TCP, protocol::UDP];

/// Everything that a packet could change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    mappings: Vec<MappingInfo>,
    sessions: Vec<SessionInfo>,
    usage: [PoolUsage; 3],
    next_deadline: Option<Timestamp>,
    events: usize,
    sent: usize,
}

/// An engine with live mappings, and the external endpoint of each.
pub(crate) struct World {
    pub(crate) lab: Lab,
    pub(crate) udp: String,
    pub(crate) tcp: String,
    pub(crate) ping: u16,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut lab = Lab::new(&Config {
            statics: vec![StaticMapping {
                protocol: Some(protocol::TCP),
                internal: (Ipv4Addr::new(10, 0, 0, 80), Some(8080)),
                external: (Ipv4Addr::new(203, 0, 113, 9), Some(80)),
                ..StaticMapping::default()
            }],
            // Few ports, because each look at the state visits all possible mappings.
            pools: vec![pool("203.0.113.1", "203.0.113.1", (1024, 1279))],
            ..config()
        });
        let udp_external = lab.external_of(&udp(INNER, REMOTE));
        let tcp_external = lab.external_of(&tcp(INNER, REMOTE, "S", 100, 0));
        lab.inward(&tcp(REMOTE, &tcp_external, "SA", 500, 101));
        let out = lab.out(&ping("10.0.0.5", "198.51.100.7", 77));
        let identifier = u16::from_be_bytes([out[24], out[25]]);
        // A restart of a timer shows from here on.
        lab.wait_s(1.0);
        lab.events.clear();
        Self { lab, udp: udp_external, tcp: tcp_external, ping: identifier }
    }

    pub(crate) fn state(&self) -> State {
        let engine = &self.lab.engine;
        let mut mappings: Vec<_> = engine.mappings().collect();
        mappings.sort_by_key(|mapping| (mapping.id.protocol, mapping.id.external));
        let mut sessions: Vec<_> = engine.sessions().collect();
        sessions.sort_by_key(|session| {
            (session.mapping.protocol, session.mapping.external, session.remote)
        });
        State {
            mappings,
            sessions,
            usage: POOLED.map(|protocol| engine.pool_usage(0, protocol)),
            next_deadline: engine.next_deadline(),
            events: self.lab.events.len(),
            sent: self.lab.sent.len(),
        }
    }

    /// A good packet of the UDP session, from a side.
    pub(crate) fn good(&self, from: Side) -> Vec<u8> {
        match from {
            Side::Inside => udp(INNER, REMOTE),
            Side::Outside => udp(REMOTE, &self.udp),
        }
    }

    /// A good packet of the TCP session, from a side.
    pub(crate) fn good_tcp(&self, from: Side) -> Vec<u8> {
        match from {
            Side::Inside => tcp(INNER, REMOTE, "A", 101, 501),
            Side::Outside => tcp(REMOTE, &self.tcp, "A", 501, 101),
        }
    }

    /// A good query of the ICMP session from inside, a good reply from outside.
    pub(crate) fn good_ping(&self, from: Side) -> Vec<u8> {
        match from {
            Side::Inside => ping("10.0.0.5", "198.51.100.7", 77),
            Side::Outside => {
                let [high, low] = self.ping.to_be_bytes();
                icmp("198.51.100.7", "203.0.113.1", 0, 0, &[high, low, 0, 1, b'x'])
            }
        }
    }

    /// A good ICMP error about the UDP session, from a side, with a changed embedded packet.
    pub(crate) fn error(&self, from: Side, kind: u8, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut about = match from {
            Side::Inside => udp(REMOTE, INNER),
            Side::Outside => udp(&self.udp, REMOTE),
        };
        change(&mut about);
        match from {
            Side::Inside => error("10.0.0.5", "198.51.100.7", kind, 0, &about),
            Side::Outside => error("192.0.2.1", "203.0.113.1", kind, 0, &about),
        }
    }

    /// Feeds a packet that must be dropped for `reason` and leave no trace except one count.
    pub(crate) fn refuse(&mut self, name: &str, from: Side, bytes: &[u8], reason: DropReason) {
        let context = format!("{name}, from {from:?}");
        let (state, counters) = (self.state(), self.lab.engine.counters().clone());
        // The caller's bytes around the packet must not change.
        let mut buffer = [&[0xee; 6][..], bytes].concat();
        let mut packets = [Packet::new(&mut buffer, 6)];
        let mut verdicts = [Verdict::Held];
        self.lab.engine.process(self.lab.now, from, &mut packets, &mut verdicts);
        let received = packets[0].len();
        assert_eq!(verdicts[0], Verdict::Drop(reason), "{context}");
        assert_eq!(buffer, [&[0xee; 6][..], bytes].concat(), "{context}: bytes changed");
        self.lab.wait_s(0.0);
        assert_eq!(self.state(), state, "{context}: state changed");
        let counted = self.lab.engine.counters();
        assert_eq!(*counted, expected_count(counters, counted, reason, received), "{context}");
    }

    /// [`World::refuse`] from both sides, for a packet that is made for each.
    pub(crate) fn refuse_both(
        &mut self,
        name: &str,
        reason: DropReason,
        make: impl Fn(&Self, Side) -> Vec<u8>,
    ) {
        for side in SIDES {
            let bytes = make(self, side);
            self.refuse(name, side, &bytes, reason);
        }
    }

    /// Feeds a packet that must be forwarded to the other side. Returns its new bytes.
    pub(crate) fn forward(&mut self, name: &str, from: Side, bytes: &[u8]) -> Vec<u8> {
        let (verdict, after) = self.lab.pass(from, bytes);
        assert_eq!(verdict, Verdict::Forward(from.other()), "{name}, from {from:?}");
        after
    }

    /// Checks that all sessions still translate, and that no refused packet is answered late.
    pub(crate) fn finish(mut self) {
        for side in SIDES {
            for bytes in [self.good(side), self.good_tcp(side), self.good_ping(side)] {
                ends(&self.forward("afterwards", side, &bytes));
            }
        }
        self.lab.wait_s(7.0);
        assert_eq!((self.lab.sent.len(), self.lab.events.len()), (0, 0));
    }
}

/// The counters with one more drop, in the direction in which it was counted.
pub(crate) fn expected_count(
    mut before: Counters,
    after: &Counters,
    reason: DropReason,
    len: usize,
) -> Counters {
    let more = |direction: &&Direction| {
        let at = (**direction as usize, Outcome::Dropped as usize);
        after.packets[at.0][at.1] > before.packets[at.0][at.1]
    };
    let direction = *Direction::ALL.iter().find(more).expect("a drop is counted");
    before.packets[direction as usize][Outcome::Dropped as usize] += 1;
    before.bytes[direction as usize][Outcome::Dropped as usize] += len as u64;
    before.drops[reason as usize] += 1;
    before
}

/// A copy with one byte replaced and the right header checksum.
pub(crate) fn with(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at] = value;
    sealed(changed)
}

/// The packet with its header checksum right, if it has a header.
pub(crate) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(mut packet) = Ipv4::new_header_checked(&mut bytes[..]) {
        packet.fill_checksum();
    }
    bytes
}

/// The packet with its ICMP and header checksums right.
pub(crate) fn sealed_icmp(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(mut packet) = Ipv4::new_checked(&mut bytes[..])
        && let Some(mut message) = Icmp::new_checked(packet.payload_mut())
    {
        message.fill_checksum();
    }
    sealed(bytes)
}

/// The packet cut to `len` bytes, with that total length.
pub(crate) fn shortened(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut short = bytes[..len].to_vec();
    short[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    sealed(short)
}

pub(crate) fn with_addresses(
    bytes: &[u8],
    source: Option<u32>,
    destination: Option<u32>,
) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let mut packet = Ipv4::new_checked(&mut changed[..]).unwrap();
    packet.set_source(source.unwrap_or(packet.source()));
    packet.set_destination(destination.unwrap_or(packet.destination()));
    sealed(changed)
}

pub(crate) fn address(text: &str) -> u32 {
    endpoint(text).0
}
