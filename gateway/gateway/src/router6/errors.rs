//! ICMPv6 errors about packets that cannot be delivered (RFC 4443): there is no route, the
//! neighbour does not answer, or the packet is larger than the link.
//!
//! The router sees packets after translation, so it cannot quote what the sender sent. It therefore
//! writes the error that a host beyond would have sent about the translated packet, from the
//! packet's destination. The translator then finds the sender and corrects the quotation. After
//! translation the router's own address replaces the source.
//!
//! Always true: no error is about an ICMPv6 error, a group, or a packet of the gateway's own. The
//! errors have limits: a rate for all, and a quarter of it for one network of 64 bits.

use crate::counters::Origin;
use crate::link::Link;
use crate::pace::Pace;
use natgate_engine::{Limits, Outcome, Timestamp};
use natgate_wire::icmpv6::kind;
use natgate_wire::ipv6::MIN_MTU;
use natgate_wire::{Icmpv6, Ipv6, icmpv6, ipv6, nd, protocol};
use std::collections::VecDeque;

/// Most errors that wait to be translated: as many as one batch can make.
const MOST_WAITING: usize = natgate_io::BATCH;

const HEADERS: usize = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;

/// Hop limit before translation, which takes one: the error leaves with the hop limit of all the
/// gateway's packets.
const HOPS: u8 = 65;

/// Number of networks that the limits tell apart.
const REQUESTERS: usize = 4096;

/// Reason of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undelivered {
    /// There is no route.
    NoRoute,
    /// The neighbour does not answer.
    Address,
    /// The packet is larger than the link's MTU, bytes.
    TooBig(usize),
}

impl Undelivered {
    /// Type, code and second word of the error.
    //= rfc4443#section-3.1
    //= rfc4443#section-3.2
    fn message(self) -> (u8, u8, u32) {
        match self {
            Self::NoRoute => (kind::UNREACHABLE, 0, 0),
            Self::Address => (kind::UNREACHABLE, 3, 0),
            Self::TooBig(mtu) => (kind::PACKET_TOO_BIG, 0, mtu as u32),
        }
    }
}

/// Writes errors and keeps them until they are translated.
#[derive(Debug)]
pub(super) struct Errors {
    waiting: VecDeque<(Link, Vec<u8>)>,
    all: Pace,
    requesters: Vec<Pace>,
}

impl Errors {
    /// Creates the writer with these limits.
    pub(super) fn new(limits: &Limits) -> Self {
        let per_second = limits.icmp_errors_per_second;
        Self {
            waiting: VecDeque::new(),
            all: Pace::new(per_second),
            requesters: vec![Pace::new(per_second / 4); REQUESTERS],
        }
    }

    /// Sets other limits.
    pub(super) fn renew(&mut self, limits: &Limits) {
        let per_second = limits.icmp_errors_per_second;
        self.all.renew(per_second);
        self.requesters.iter_mut().for_each(|requester| requester.renew(per_second / 4));
    }

    /// Drops errors that count as coming in by a link.
    pub(super) fn forget(&mut self, link: Link) {
        self.waiting.retain(|(from, _)| *from != link);
    }

    /// Makes the error about a packet that should have left by `link`. Returns `None` if the packet
    /// gets no error, and `Some(false)` if too many errors wait.
    pub(super) fn report(
        &mut self,
        link: Link,
        packet: &[u8],
        origin: Option<Origin>,
        reason: Undelivered,
    ) -> Option<bool> {
        let error = write(answered(packet, origin)?, reason)?;
        let room = self.waiting.len() < MOST_WAITING;
        if room {
            self.waiting.push_back((link, error));
        }
        Some(room)
    }

    /// Returns the oldest error and the link that it counts as coming in by.
    pub(super) fn poll(&mut self) -> Option<(Link, Vec<u8>)> {
        self.waiting.pop_front()
    }

    //= rfc4443#section-2.4-f
    /// Returns true, and counts the error, if one more may be sent to an address.
    pub(super) fn permits(&mut self, now: Timestamp, requester: u128) -> bool {
        let own = &mut self.requesters[place(requester)];
        let permitted = own.permits(now) && self.all.permits(now);
        if permitted {
            own.count(now);
            self.all.count(now);
        }
        permitted
    }
}

/// Place of an address's network among the limits.
fn place(address: u128) -> usize {
    let network = (address >> 64) as u64;
    let mixed = network.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 52) as usize % REQUESTERS
}

/// Returns the packet if it gets an error.
//= rfc4443#section-2.4-e
fn answered(packet: &[u8], origin: Option<Origin>) -> Option<&[u8]> {
    let forwarded = origin.is_some_and(|origin| origin.outcome == Outcome::Forwarded);
    let view = Ipv6::new_checked(packet).ok().filter(|_| forwarded)?;
    let is_group = |address: u128| address >> 120 == 0xff;
    if view.source() == 0 || is_group(view.source()) || is_group(view.destination()) {
        return None;
    }
    let walk = view.walk().ok()?;
    let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
    let message = packet.get(walk.transport).copied();
    let tells = |message| icmpv6::is_error(message) || nd::is_discovery(message);
    let is_error = walk.protocol == protocol::ICMPV6 && !is_later && message.is_none_or(tells);
    (!is_error).then_some(packet)
}

//= rfc4443#section-2.4-c
/// Writes the error about a packet, as the packet's destination would send it.
fn write(packet: &[u8], reason: Undelivered) -> Option<Vec<u8>> {
    let about = Ipv6::new_checked(packet).ok()?;
    let (source, destination) = (about.destination(), about.source());
    let quoted = about.total_len().min(MIN_MTU - HEADERS);
    let mut bytes = vec![0; HEADERS + quoted];
    let mut error = Ipv6::init(&mut bytes[..]);
    error.set_payload_len((icmpv6::HEADER_LEN + quoted) as u16);
    error.set_next_header(protocol::ICMPV6);
    error.set_hop_limit(HOPS);
    error.set_source(source);
    error.set_destination(destination);
    if let Some(mut message) = Icmpv6::new_checked(error.payload_mut()) {
        let (kind, code, word) = reason.message();
        message.set_kind(kind);
        message.set_code(code);
        message.set_word(word);
        message.body_mut().copy_from_slice(&packet[..quoted]);
        message.fill_checksum(source, destination);
    }
    Some(bytes)
}

/// Replaces the source of an error; returns false if the bytes are no error.
pub(super) fn set_source(packet: &mut [u8], source: u128) -> bool {
    let Ok(mut error) = Ipv6::new_checked(packet) else { return false };
    let destination = error.destination();
    if error.next_header() != protocol::ICMPV6 {
        return false;
    }
    error.set_source(source);
    let message = Icmpv6::new_checked(error.payload_mut());
    message.map(|mut message| message.fill_checksum(source, destination)).is_some()
}
