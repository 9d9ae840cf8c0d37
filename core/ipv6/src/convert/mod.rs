//! Headers of one family into headers of the other (RFC 7915): one packet, in place in its buffer.
//!
//! [`Converter::to_ipv6`] and [`Converter::to_ipv4`] decide everything before they change the first
//! byte. So a refused packet is as it came, and the error that [`Refusal`] asks for can quote it.
//! The caller answers which addresses take the place of others ([`Addresses`]), sends errors, and
//! sends the fragments of a packet that is too large ([`Converted::Cut`]).
//!
//! Checksums of TCP, UDP, UDP-Lite, DCCP and echo messages change by the difference of the headers
//! (RFC 1624), so a wrong checksum stays wrong. There are two exceptions: a UDP checksum that IPv4
//! left out, and ICMP errors. The checksum of an error is verified, and computed afresh over the
//! translated quotation. Other protocols pass unchanged.
//!
//! IPv4 packets with the number of an IPv6 extension header as protocol are refused: nobody behind
//! an IPv4 address can put extension headers into an IPv6 packet.

mod cut;
mod error;
mod headers;
mod identification;
mod messages;
mod plain;
mod to_ipv4;
mod to_ipv6;
mod transport;

pub use cut::{Cut, Fragments};
pub use identification::Identifications;
pub(crate) use messages::DIFFERENCE;
pub(crate) use plain::{Plain4, Plain6};

use natgate_engine::DropReason;
use natgate_wire::{icmp, icmpv6};

/// Bytes that there should be before a packet, apart from those for the link header. A packet grows
/// by 28 at most. An ICMP error towards IPv6 grows by 48, and is cut to the bytes that there are.
/// No packet towards IPv4 grows.
pub const HEADROOM: usize = 48;

/// Bytes that there must be before a packet towards IPv6.
pub const LEAST_HEADROOM: usize = 28;

/// Settings of the conversion. Lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertSettings {
    /// Towards IPv6, a packet that does not fit and may be cut is cut to this length (RFC 7915
    /// section 4).
    pub lowest_mtu: u16,
    /// MTU of the IPv6 side; at least 1280.
    pub mtu_ipv6: u16,
    /// MTU of the IPv4 side; 65,535: another part checks it. At least 68.
    pub mtu_ipv4: u16,
    /// Treatment of UDP without checksum towards IPv6.
    pub udp_checksum_zero: UdpChecksumZero,
    /// Traffic class of IPv6 packets; `None`: the type of service.
    pub traffic_class: Option<u8>,
    /// Type of service of IPv4 packets; `None`: the traffic class.
    pub service: Option<u8>,
    /// Part of the gateway that decrements hop limit and TTL.
    pub hops: Hops,
}

impl Default for ConvertSettings {
    fn default() -> Self {
        Self {
            lowest_mtu: 1280,
            mtu_ipv6: 1500,
            mtu_ipv4: 1500,
            udp_checksum_zero: UdpChecksumZero::Compute,
            traffic_class: None,
            service: None,
            hops: Hops::Decrement,
        }
    }
}

/// Treatment of an IPv4 UDP datagram without checksum that goes to IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpChecksumZero {
    /// Compute the checksum; refuse the first fragment of a datagram.
    Compute,
    /// Refuse the packet.
    Drop,
    /// Leave the checksum out.
    Forward,
}

/// Part of the gateway that decrements hop limit and TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hops {
    /// The conversion, which refuses an expired packet.
    Decrement,
    /// Another part, before or after the conversion.
    Keep,
}

/// Place of the addresses of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a packet that is no ICMP error.
    Packet,
    /// In an ICMP error. Its source may be a router without an address of the other family (RFC
    /// 6791).
    Error,
    /// In a packet that an ICMP error quotes. It went the other way.
    Quoted,
}

/// The translation of addresses: source and destination together.
pub trait Addresses {
    /// The IPv4 addresses in place of IPv6 ones.
    ///
    /// # Errors
    /// The reason why there are none, and the error for the sender.
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal>;

    /// The IPv6 addresses in place of IPv4 ones.
    ///
    /// # Errors
    /// The reason why there are none, and the error for the sender.
    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal>;
}

/// A packet that cannot be converted. Its bytes are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, as counted.
    pub reason: DropReason,
    /// The ICMP error for the sender, of the packet's own family, if one may be sent.
    pub error: Option<ErrorMessage>,
}

impl Refusal {
    /// A refusal without an error.
    pub const fn silent(reason: DropReason) -> Self {
        Self { reason, error: None }
    }

    /// A refusal with an error.
    pub const fn with(reason: DropReason, error: ErrorMessage) -> Self {
        Self { reason, error: Some(error) }
    }

    /// The refusal without its error.
    pub(crate) const fn quiet(self) -> Self {
        Self::silent(self.reason)
    }
}

impl From<DropReason> for Refusal {
    fn from(reason: DropReason) -> Self {
        Self::silent(reason)
    }
}

/// Contents of an ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// The second word of the message: an MTU or an ICMPv6 pointer.
    pub word: u32,
}

impl ErrorMessage {
    /// ICMP "communication administratively prohibited" (RFC 7915 section 4.4).
    pub const PROHIBITED: Self = Self::new(icmp::kind::UNREACHABLE, 13, 0);
    /// ICMP "source route failed".
    pub const SOURCE_ROUTE_FAILED: Self = Self::new(icmp::kind::UNREACHABLE, 5, 0);
    /// ICMP "time to live exceeded in transit".
    pub const TTL_EXCEEDED: Self = Self::new(icmp::kind::TIME_EXCEEDED, 0, 0);
    /// ICMPv6 "communication with destination administratively prohibited" (RFC 7915 section 5.4).
    pub const PROHIBITED_IPV6: Self = Self::new(icmpv6::kind::UNREACHABLE, 1, 0);
    /// ICMPv6 "address unreachable".
    pub const ADDRESS_UNREACHABLE: Self = Self::new(icmpv6::kind::UNREACHABLE, 3, 0);
    /// ICMPv6 "hop limit exceeded in transit".
    pub const HOP_LIMIT_EXCEEDED: Self = Self::new(icmpv6::kind::TIME_EXCEEDED, 0, 0);

    /// An error.
    pub const fn new(kind: u8, code: u8, word: u32) -> Self {
        Self { kind, code, word }
    }

    /// ICMP "fragmentation needed" with the MTU that would do.
    pub const fn fragmentation_needed(mtu: u16) -> Self {
        Self::new(icmp::kind::UNREACHABLE, 4, mtu as u32)
    }

    /// ICMPv6 "packet too big" with the MTU that would do.
    pub const fn packet_too_big(mtu: u32) -> Self {
        Self::new(icmpv6::kind::PACKET_TOO_BIG, 0, mtu)
    }

    /// ICMPv6 "erroneous header field" with the offset of the field.
    pub const fn erroneous_field(pointer: u32) -> Self {
        Self::new(icmpv6::kind::PARAMETER_PROBLEM, 0, pointer)
    }
}

/// A packet of the other family is in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Converted {
    /// The packet is ready to be sent.
    Whole,
    /// The packet is too large. Send its fragments instead.
    Cut(Cut),
}

/// Converts packets.
#[derive(Clone, Debug)]
pub struct Converter {
    settings: ConvertSettings,
    identifications: Identifications,
}

impl Converter {
    /// Makes a converter. The seed decides identifications.
    pub fn new(settings: ConvertSettings, seed: [u8; 32]) -> Self {
        Self { settings, identifications: Identifications::new(seed) }
    }
}
