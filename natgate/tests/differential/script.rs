//! The traffic: stories of a few packets each, written from a seed and interleaved at random.
//!
//! Every story has an internal port of its own, so that stories do not meet in the translator. A
//! few stories meet on purpose. The packets of a step may depend on the external endpoint that the
//! translator has assigned to the story, so steps have closures. [`Kind`] is the property of a step
//! that explains its differences.

use std::fmt;
use std::net::Ipv4Addr;

use natgate_engine::Side;
use natgate_wire::{Ipv4, protocol};

use crate::observation::PortHistory;
use crate::packets::{Endpoint, Packet};

mod broken;
mod ordinary;
mod routing;

/// The translators' only external address, which is their own address, too.
pub(crate) const EXTERNAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// The translators' own address on the inside.
pub(crate) const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// A TCP and a UDP service inside: internal endpoint and external endpoint.
pub(crate) const TCP_SERVICE: [Endpoint; 2] = [(Ipv4Addr::new(10, 0, 0, 11), 8080), (EXTERNAL, 80)];
pub(crate) const UDP_SERVICE: [Endpoint; 2] = [(Ipv4Addr::new(10, 0, 0, 12), 853), (EXTERNAL, 53)];

/// Hosts that send from inside. Both translators know them before the first step.
pub(crate) const HOSTS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 0, 0, 11),
    Ipv4Addr::new(10, 0, 0, 12),
    Ipv4Addr::new(10, 0, 0, 13),
    Ipv4Addr::new(10, 0, 0, 14),
];

/// A router on either side that only sends errors.
pub(crate) const ROUTER_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);
pub(crate) const ROUTER_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 200);

/// Number of stories of each kind.
const ROUNDS: usize = 4;

/// Special property of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No special property: every translator treats it equally.
    Ordinary,
    /// A packet from outside without a mapping, or refused by the filter.
    Uninvited,
    /// An uninvited SYN.
    UninvitedSyn,
    /// A TCP segment from inside without a connection and without SYN.
    MidStream,
    /// A TCP segment outside every window.
    OutOfWindow,
    /// Contradictory flags.
    OddFlags,
    /// A wrong checksum of TCP, UDP or ICMP.
    WrongChecksum,
    /// An invalid length or offset of TCP or UDP.
    BadLength,
    /// An ICMP message that is no echo, no timestamp and no error about a packet.
    OddIcmp,
    /// An ICMP reply without a query, from inside.
    UninvitedReply,
    /// An ICMP error about a packet that has not passed.
    UnknownError,
    /// A packet whose time to live ends or that is too large: the translator itself reports it.
    OwnError,
    /// A well-formed datagram in fragments.
    Fragments,
    /// Contradictory fragments.
    BadFragments,
    /// A packet too large for its link that may be fragmented.
    Cut,
    /// A packet with IP options.
    Options,
    /// An invalid source or destination.
    Martian,
    /// A packet from inside whose source is no subscriber.
    Foreign,
    /// A packet with the translator's own address as its source.
    Spoofed,
    /// A packet to the translator itself.
    ToGateway,
    /// A packet from inside to the inside.
    SameSide,
    /// A packet from inside to an external endpoint.
    Hairpin,
    /// Two subscribers that prefer one external port.
    Contended,
    /// DCCP.
    Dccp,
    /// UDP-Lite.
    UdpLite,
    /// A ping of the translator itself, which both answer.
    Ping,
    /// A ping of the translator's outside address, from inside.
    PingAcross,
}

/// Packets of a step, depending on earlier assignments of the translator.
type Packets = Box<dyn Fn(&PortHistory) -> Vec<Vec<u8>> + Send + Sync>;

/// Packets that are sent from one side, one after the other.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    pub(crate) protocol: u8,
    pub(crate) internal: Endpoint,
    pub(crate) remote: Endpoint,
    pub(crate) packets: Packets,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, kind, side, protocol, internal, remote, .. } = self;
        write!(f, "{name} ({kind:?}), from {side:?}, protocol {protocol}, ")?;
        write!(f, "{}:{} with {}:{}", internal.0, internal.1, remote.0, remote.1)
    }
}

impl Step {
    /// Returns true for the error that a translator sends about this step some seconds later.
    pub(crate) fn is_answered_late_by(&self, side: Side, bytes: &[u8]) -> bool {
        const ERROR_TO_HERE: usize = 8;
        let Ok(packet) = Ipv4::new_checked(bytes) else { return false };
        let icmp = packet.payload();
        if packet.protocol() != protocol::ICMP || icmp.first() != Some(&3) {
            return false;
        }
        let Ok(about) = Ipv4::new_header_checked(&icmp[ERROR_TO_HERE..]) else { return false };
        self.kind == Kind::UninvitedSyn
            && self.side == side
            && about.source() == self.remote.0.to_bits()
            && about.payload().starts_with(&self.remote.1.to_be_bytes())
    }
}

/// Pseudo-random numbers from a seed (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// A story in progress, with its endpoints.
struct Story {
    protocol: u8,
    internal: Endpoint,
    remote: Endpoint,
    steps: Vec<Step>,
}

impl Story {
    /// Adds a step from inside.
    fn outbound(&mut self, name: &'static str, kind: Kind, packets: Vec<Vec<u8>>) {
        self.push(name, kind, Side::Inside, Box::new(move |_| packets.clone()));
    }

    /// Adds a step from outside, addressed to the story's external endpoint.
    fn inbound(
        &mut self,
        name: &'static str,
        kind: Kind,
        make: impl Fn(Endpoint) -> Vec<u8> + Send + Sync + 'static,
    ) {
        let Self { protocol, internal, remote, .. } = *self;
        let packets =
            move |known: &PortHistory| vec![make(known.external(protocol, internal, remote))];
        self.push(name, kind, Side::Outside, Box::new(packets));
    }

    fn push(&mut self, name: &'static str, kind: Kind, side: Side, packets: Packets) {
        let Self { protocol, internal, remote, .. } = *self;
        self.steps.push(Step { name, kind, side, protocol, internal, remote, packets });
    }

    /// A packet from inside to the story's remote endpoint, with random data.
    fn question(&self, chance: &mut Chance) -> Packet {
        vary(Packet::udp(self.internal, self.remote, &[]), chance)
    }
}

/// Sets random values in fields that pass a router unchanged.
fn vary(mut packet: Packet, chance: &mut Chance) -> Packet {
    packet.tos = chance.pick(&[0, 0, 0x10, 0xb8, 0x03, 0x01]);
    packet.identification = chance.next() as u16;
    packet.flags = chance.pick(&[0, crate::packets::DONT_FRAGMENT]);
    packet.ttl = chance.pick(&[2, 3, 64, 64, 128, 255]);
    packet
}

/// The host next to a host.
fn neighbor(host: Ipv4Addr) -> Ipv4Addr {
    let index = HOSTS.iter().position(|other| *other == host).expect("one of the hosts");
    HOSTS[(index + 1) % HOSTS.len()]
}

/// Author of the stories, which assigns their endpoints.
pub(crate) struct Author {
    chance: Chance,
    stories: Vec<Vec<Step>>,
    ports: u16,
    remotes: u16,
}

impl Author {
    /// Begins a story with endpoints that no other story has.
    fn story(&mut self, protocol: u8) -> Story {
        self.ports += 1 + self.chance.below(7) as u16;
        self.remotes += 1;
        let internal = (self.chance.pick(&HOSTS), self.ports);
        let remote = (Ipv4Addr::new(198, 51, 100, 1 + self.chance.below(20) as u8), self.remotes);
        Story { protocol, internal, remote, steps: Vec::new() }
    }

    /// Ends a story.
    fn tell(&mut self, story: Story) {
        self.stories.push(story.steps);
    }
}

/// Writes all stories and interleaves them.
pub(crate) fn write(seed: u64) -> Vec<Step> {
    let mut author =
        Author { chance: Chance(seed), stories: Vec::new(), ports: 900, remotes: 7000 };
    for _ in 0..ROUNDS {
        ordinary::write(&mut author);
        broken::write(&mut author);
        routing::write(&mut author);
    }
    let mut chance = author.chance;
    let mut waiting: Vec<_> =
        author.stories.into_iter().map(|s| s.into_iter().peekable()).collect();
    let mut steps = Vec::new();
    while !waiting.is_empty() {
        let index = chance.below(waiting.len());
        steps.extend(waiting[index].next());
        if waiting[index].peek().is_none() {
            drop(waiting.swap_remove(index));
        }
    }
    steps
}
