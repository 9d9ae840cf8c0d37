//! ICMP errors about packets that cannot be delivered: there is no route (code 0), or the neighbour
//! does not answer ARP (code 1); RFC 1812 sections 3.3.2 and 4.3.3.1.
//!
//! The router sees packets after translation, so it cannot quote what the sender sent. It therefore
//! writes the error that a host beyond would have sent about the translated packet. The translator
//! then finds the sender and corrects the quotation. The source is the undelivered packet's
//! destination, because the translator admits an error from no other address; after translation the
//! router's own address replaces it.
//!
//! Always true: no error is about an ICMP error, a later fragment or a packet of the gateway's own.
//! If packets waited together, one of each conversation is answered. The errors have limits like
//! the translator's own errors, with separate counts: a rate for all, and a quarter of it for one
//! address.

use crate::counters::Origin;
use crate::link::Link;
use crate::pace::Pace;
use natgate_engine::{Limits, Outcome, Timestamp};
use natgate_wire::icmp::kind;
use natgate_wire::{Icmp, Ipv4, icmp, ipv4, protocol};
use std::collections::VecDeque;

/// Most errors that wait to be translated: as many as one batch can make.
const MOST_WAITING: usize = natgate_io::BATCH;

/// Longest error, bytes (RFC 1812 section 4.3.2.3).
const LONGEST: usize = 576;

const HEADERS: usize = ipv4::HEADER_LEN + icmp::HEADER_LEN;

/// TTL before translation, which takes one: the error leaves with the TTL of all the gateway's
/// packets.
const TTL: u8 = 65;

/// Number of addresses that the limits tell apart, by the last twelve bits.
const REQUESTERS: usize = 4096;

/// Code of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// There is no route.
    Network = 0,
    /// The neighbour does not answer. Even if the neighbour is a router, only the host is reported
    /// as unreachable: other hosts of the same network may be reachable another way.
    Host = 1,
}

/// Writes errors and keeps them until they are translated.
#[derive(Debug)]
pub(super) struct Errors {
    waiting: VecDeque<(Link, Vec<u8>)>,
    /// Longest error, bytes.
    longest: usize,
    all: Pace,
    requesters: Vec<Pace>,
}

impl Errors {
    /// Creates the writer with these limits; no error is longer than `mtu`.
    pub(super) fn new(limits: &Limits, mtu: usize) -> Self {
        let per_second = limits.icmp_errors_per_second;
        Self {
            waiting: VecDeque::new(),
            longest: LONGEST.min(mtu),
            all: Pace::new(per_second),
            requesters: vec![Pace::new(per_second / 4); REQUESTERS],
        }
    }

    /// Drops errors that count as coming in by a link.
    pub(super) fn forget(&mut self, link: Link) {
        self.waiting.retain(|(from, _)| *from != link);
    }

    /// Sets another rate and another `mtu`, the longest error.
    pub(super) fn renew(&mut self, per_second: u32, mtu: usize) {
        self.fit(mtu);
        self.all.renew(per_second);
        self.requesters.iter_mut().for_each(|requester| requester.renew(per_second / 4));
    }

    /// Sets the length of the longest error.
    pub(super) fn fit(&mut self, mtu: usize) {
        self.longest = LONGEST.min(mtu);
    }

    /// Makes the error about a packet that should have left by `link`. Returns `None` if the packet
    /// gets no error, and `Some(false)` if too many errors wait.
    //= rfc1812#section-4.3.3.1-network
    //= rfc1812#section-4.3.3.1-host
    pub(super) fn report(
        &mut self,
        link: Link,
        packet: &[u8],
        origin: Option<Origin>,
        unreachable: Unreachable,
    ) -> Option<bool> {
        let error = write(answered(packet, origin)?, unreachable, self.longest)?;
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

    /// Returns true, and counts the error, if one more may be sent to an address.
    //= rfc1812#section-4.3.2.8
    pub(super) fn permits(&mut self, now: Timestamp, requester: u32) -> bool {
        let own = &mut self.requesters[requester as usize % REQUESTERS];
        let permitted = own.permits(now) && self.all.permits(now);
        if permitted {
            own.count(now);
            self.all.count(now);
        }
        permitted
    }
}

/// Returns the packet if it gets an error: it was forwarded, is a whole datagram or the
/// first fragment, and of ICMP only queries and replies.
//= rfc1812#section-4.3.2.7-error
//= rfc1812#section-4.3.2.7-fragment
fn answered(packet: &[u8], origin: Option<Origin>) -> Option<&[u8]> {
    let forwarded = origin.is_some_and(|origin| origin.outcome == Outcome::Forwarded);
    let view = Ipv4::new_checked(packet).ok().filter(|view| view.fragment_offset() == 0)?;
    let is_query = |message: Icmp<&[u8]>| {
        use kind::{ECHO_REPLY, ECHO_REQUEST, TIMESTAMP_REPLY, TIMESTAMP_REQUEST};
        matches!(message.kind(), ECHO_REPLY | ECHO_REQUEST | TIMESTAMP_REPLY | TIMESTAMP_REQUEST)
    };
    let may_be_error = view.protocol() == protocol::ICMP
        && !Icmp::new_checked(view.payload()).is_some_and(is_query);
    (forwarded && !may_be_error).then_some(packet)
}

/// Writes the error about a packet, as the packet's destination would send it.
//= rfc1812#section-4.3.2.2
//= rfc1812#section-4.3.2.3
//= rfc1812#section-4.3.2.5
fn write(packet: &[u8], unreachable: Unreachable, longest: usize) -> Option<Vec<u8>> {
    const DONT_FRAGMENT: u16 = 0x4000;
    /// The class of service, without congestion marks.
    const SERVICE: u8 = 0xfc;
    let about = Ipv4::new_checked(packet).ok()?;
    let quoted = &packet[..usize::from(about.total_len()).min(longest - HEADERS)];
    let mut bytes = vec![0; HEADERS + quoted.len()];
    let total_len = bytes.len() as u16;
    let mut error = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
    error.set_total_len(total_len);
    error.set_service(packet[1] & SERVICE);
    error.set_fragment_field(DONT_FRAGMENT);
    error.set_ttl(TTL);
    error.set_protocol(protocol::ICMP);
    error.set_source(about.destination());
    error.set_destination(about.source());
    error.fill_checksum();
    let message = error.payload_mut();
    message[icmp::HEADER_LEN..].copy_from_slice(quoted);
    let mut message = Icmp::new_checked(message)?;
    message.set_kind(kind::UNREACHABLE);
    message.set_code(unreachable as u8);
    message.fill_checksum();
    Some(bytes)
}

/// Endpoints of a packet. Of packets that wait together one of each conversation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conversation {
    source: u32,
    destination: u32,
    protocol: u8,
    /// Ports, or the identifier of a query.
    ports: [u8; 4],
}

impl Conversation {
    /// Conversation of a packet; `None` if the bytes are no packet.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let packet = Ipv4::new_checked(packet).ok()?;
        let (source, destination) = (packet.source(), packet.destination());
        let at = match packet.protocol() {
            protocol::TCP | protocol::UDP | protocol::DCCP => Some(0),
            // Type, code and checksum differ between messages; identifiers do not.
            protocol::ICMP => Some(4),
            _ => None,
        };
        let ports = at.and_then(|at| packet.payload().get(at..at + 4));
        let mut ports: [u8; 4] = ports.and_then(|ports| ports.try_into().ok()).unwrap_or_default();
        if packet.protocol() == protocol::ICMP {
            ports[2..].fill(0);
        }
        Some(Self { source, destination, protocol: packet.protocol(), ports })
    }
}
