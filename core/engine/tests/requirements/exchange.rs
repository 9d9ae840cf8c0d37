//! Exchanges of an outbound packet and its reply, for each protocol with ports or identifiers. ICMP
//! errors quote these packets. An exchange keeps each packet as it was on both sides: an error
//! quotes the packet that the sender of the error received, and must arrive with a quotation that
//! the receiver of the error recognizes.

use crate::common::*;
use natgate_engine::{Config, Side, Verdict};
use natgate_wire::{Ipv4, protocol};
use std::net::Ipv4Addr;

pub(crate) const HOST: &str = "10.0.0.5";
pub(crate) const REMOTE_HOST: &str = "198.51.100.7";
/// A router between the gateway and the subscriber, and one on the way to the remote host.
pub(crate) const INSIDE_ROUTER: &str = "10.0.0.9";
pub(crate) const OUTSIDE_ROUTER: &str = "192.0.2.1";
pub(crate) const EXTERNAL: &str = "203.0.113.1";
/// The protocols with a port or an identifier, whose packets ICMP errors quote.
pub(crate) const PROTOCOLS: [u8; 4] =
    [protocol::UDP, protocol::TCP, protocol::DCCP, protocol::ICMP];
const DCCP_REQUEST: u8 = 0;
const DCCP_RESPONSE: u8 = 1;
/// Every ICMP error to the sender of a packet: destination unreachable for each reason, source
/// quench, time exceeded, parameter problem.
pub(crate) const ERRORS: [(u8, u8); 22] = [
    (3, 0),
    (3, 1),
    (3, 2),
    (3, 3),
    (3, 4),
    (3, 5),
    (3, 6),
    (3, 7),
    (3, 8),
    (3, 9),
    (3, 10),
    (3, 11),
    (3, 12),
    (3, 13),
    (3, 14),
    (3, 15),
    (4, 0),
    (11, 0),
    (11, 1),
    (12, 0),
    (12, 1),
    (12, 2),
];

/// Sender of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The remote host.
    Remote,
    /// A router outside.
    OutsideRouter,
    /// The subscriber's host.
    Host,
    /// A router inside.
    InsideRouter,
}

impl Place {
    pub(crate) const ALL: [Self; 4] =
        [Self::Remote, Self::OutsideRouter, Self::Host, Self::InsideRouter];

    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Remote => REMOTE_HOST,
            Self::OutsideRouter => OUTSIDE_ROUTER,
            Self::Host => HOST,
            Self::InsideRouter => INSIDE_ROUTER,
        }
    }

    pub(crate) fn side(self) -> Side {
        match self {
            Self::Remote | Self::OutsideRouter => Side::Outside,
            Self::Host | Self::InsideRouter => Side::Inside,
        }
    }

    /// A router's error quotes a packet with one hop left, a host's error a packet with more.
    fn ttl(self) -> u8 {
        match self {
            Self::OutsideRouter | Self::InsideRouter => 1,
            Self::Remote | Self::Host => 50,
        }
    }
}

/// A packet out and its reply.
pub(crate) struct Exchange {
    pub(crate) lab: Lab,
    /// The packet as the subscriber sent it.
    pub(crate) sent: Vec<u8>,
    /// The packet as it left.
    pub(crate) left: Vec<u8>,
    /// The reply as it came.
    pub(crate) came: Vec<u8>,
    /// The reply as the subscriber received it.
    pub(crate) received: Vec<u8>,
}

impl Exchange {
    pub(crate) fn new(protocol: u8) -> Self {
        Self::shaped(&config(), protocol, <[u8]>::to_vec)
    }

    /// An exchange with both packets changed by `shape` before they reach the gateway.
    pub(crate) fn shaped(config: &Config, protocol: u8, shape: impl Fn(&[u8]) -> Vec<u8>) -> Self {
        let mut lab = Lab::new(config);
        let sent = shape(&request(protocol));
        let left = lab.out(&sent);
        let came = shape(&answer(&left));
        let received = lab.inward(&came);
        Self { lab, sent, left, came, received }
    }

    /// The packet that an error from a place quotes, as the packet was at that place.
    pub(crate) fn about(&self, place: Place) -> Vec<u8> {
        let packet = if place.side() == Side::Outside { &self.left } else { &self.received };
        with_ttl(packet, place.ttl())
    }

    /// The quoted packet as its sender sent it, with the TTL that the place received.
    pub(crate) fn original(&self, place: Place) -> Vec<u8> {
        let packet = if place.side() == Side::Outside { &self.sent } else { &self.came };
        with_ttl(packet, place.ttl())
    }

    /// An error from a place to the sender of the quoted packet.
    pub(crate) fn error(&self, place: Place, error: (u8, u8), about: &[u8]) -> Vec<u8> {
        let to = source(about);
        error_with((place.address(), &to), error, [0; 4], about)
    }

    /// Passes an error that must be translated and leave by the other side. Returns its new bytes.
    pub(crate) fn forward(&mut self, place: Place, error: &[u8]) -> Vec<u8> {
        let (verdict, told) = self.lab.pass(place.side(), error);
        assert_eq!(verdict, Verdict::Forward(place.side().other()), "{place:?}");
        told
    }
}

/// A subscriber's first packet of a protocol.
pub(crate) fn request(protocol: u8) -> Vec<u8> {
    match protocol {
        protocol::UDP => udp("10.0.0.5:4000", REMOTE),
        protocol::TCP => tcp("10.0.0.5:4000", REMOTE, "S", 100, 0),
        protocol::DCCP => dccp("10.0.0.5:4000", REMOTE, DCCP_REQUEST),
        _ => ping(HOST, REMOTE_HOST, 77),
    }
}

/// The remote host's reply to a packet of the same protocol.
pub(crate) fn answer(left: &[u8]) -> Vec<u8> {
    let (to, from) = ends(&without_options(left));
    match left[9] {
        protocol::UDP => udp(&from, &to),
        protocol::TCP => tcp(&from, &to, "SA", 500, 101),
        protocol::DCCP => dccp(&from, &to, DCCP_RESPONSE),
        _ => icmp(&from, &to, 0, 0, &without_options(left)[24..]),
    }
}

fn without_options(bytes: &[u8]) -> Vec<u8> {
    let header_len = Ipv4::new_checked(bytes).unwrap().header_len();
    let mut short = [&bytes[..20], &bytes[header_len..]].concat();
    short[0] = 0x45;
    let total_len = short.len() as u16;
    let mut packet = Ipv4::new_header_checked(&mut short[..]).unwrap();
    packet.set_total_len(total_len);
    packet.fill_checksum();
    short
}

/// The source address of a packet that may be incomplete.
pub(crate) fn source(bytes: &[u8]) -> String {
    Ipv4Addr::from_bits(Ipv4::new_header_checked(bytes).unwrap().source()).to_string()
}

/// Passes a packet that must be dropped without any answer, at once or later. Returns the reason.
pub(crate) fn silently(lab: &mut Lab, from: Side, bytes: &[u8]) -> natgate_engine::DropReason {
    let before = lab.sent.len();
    let reason = lab.refused(from, bytes);
    lab.wait_s(7.0);
    assert_eq!(lab.sent.len(), before, "{reason:?} was answered");
    reason
}
