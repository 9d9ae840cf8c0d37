//! IP headers read and to be written, of whole packets and of quoted ones.

use super::{ConvertSettings, Hops};
use natgate_engine::DropReason;
use natgate_wire::ipv6::{Fragment, Walk, next};
use natgate_wire::{Ipv4, Ipv6, ipv4, ipv6, protocol};

/// Largest IPv4 packet from IPv6 that routers may fragment unasked, bytes (RFC 7915 section 5.1).
pub(super) const MAY_FRAGMENT: usize = 1260;
pub(super) const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv6 packet's headers, read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv6Headers<'p> {
    pub(super) packet: Ipv6<&'p [u8]>,
    pub(super) walk: Walk,
    /// The transport header and what follows it, as far as available.
    pub(super) transport: &'p [u8],
    /// Length of `transport` in the complete packet, bytes.
    pub(super) transport_len: usize,
}

impl<'p> Ipv6Headers<'p> {
    /// Reads the headers of a packet. `packet` ends with the packet, or before.
    pub(super) fn read(bytes: &'p [u8], packet: Ipv6<&'p [u8]>) -> Result<Self, DropReason> {
        let walk = packet.walk().map_err(|_| DropReason::ExtensionHeaders)?;
        let end = packet.total_len();
        //= rfc7915#section-5.1-extension
        let transport = &bytes[walk.transport..end.min(bytes.len())];
        Ok(Self { packet, walk, transport, transport_len: end - walk.transport })
    }

    /// The fragment header, also of a whole packet (RFC 6946).
    pub(super) fn fragment(&self) -> Option<Fragment> {
        self.walk.fragment.map(|(_, fragment)| fragment)
    }

    /// The part of the datagram that the packet carries.
    pub(super) fn part(&self) -> Part {
        self.fragment().map_or(Part::Whole, |fragment| Part::of(fragment.offset, fragment.more))
    }
}

/// The part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    First,
    Later,
}

impl Part {
    fn of(offset: usize, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::Whole,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}

/// The part of the datagram that an IPv4 packet carries.
pub(super) fn part_of(packet: &Ipv4<&[u8]>) -> Part {
    Part::of(packet.fragment_offset(), packet.more_fragments())
}

/// An IPv6 header to be written, with a fragment header if the packet is a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv6Header {
    traffic_class: u8,
    hop_limit: u8,
    next_header: u8,
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) fragment: Option<Fragment>,
}

impl Ipv6Header {
    /// The header in place of an IPv4 one.
    pub(super) fn new(
        from: &Ipv4<&[u8]>,
        (source, destination): (u128, u128),
        settings: &ConvertSettings,
    ) -> Self {
        //= rfc7915#section-4.1-next-header
        let next_header = match from.protocol() {
            protocol::ICMP => protocol::ICMPV6,
            other => other,
        };
        //= rfc7915#section-4-no-header
        //= rfc7915#section-4.1-fragment-next-header
        let fragment = (part_of(from) != Part::Whole).then(|| Fragment {
            next_header,
            offset: from.fragment_offset(),
            more: from.more_fragments(),
            identification: from.identification().into(),
        });
        Self {
            //= rfc7915#section-4.1-traffic-class
            traffic_class: settings.traffic_class.unwrap_or(from.service()),
            hop_limit: from.ttl(),
            next_header,
            source,
            destination,
            fragment,
        }
    }

    /// Counts the hop, if the conversion does.
    pub(super) fn hop(mut self, settings: &ConvertSettings) -> Self {
        self.hop_limit = after_hop(self.hop_limit, settings);
        self
    }

    /// Length of the headers, bytes.
    pub(super) fn len(&self) -> usize {
        let fragment = if self.fragment.is_some() { ipv6::FRAGMENT_LEN } else { 0 };
        ipv6::HEADER_LEN + fragment
    }

    /// Writes the headers to the front of `bytes`; a payload of `payload_len` bytes follows.
    pub(super) fn write(&self, bytes: &mut [u8], payload_len: usize) {
        let mut header = Ipv6::init(&mut *bytes);
        header.set_traffic_class(self.traffic_class);
        header.set_payload_len((self.len() - ipv6::HEADER_LEN + payload_len) as u16);
        header.set_next_header(self.fragment.map_or(self.next_header, |_| next::FRAGMENT));
        header.set_hop_limit(self.hop_limit);
        header.set_source(self.source);
        header.set_destination(self.destination);
        if let Some(fragment) = self.fragment {
            fragment.write(&mut bytes[ipv6::HEADER_LEN..]);
        }
    }
}

/// An IPv4 header to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipv4Header {
    service: u8,
    total_len: u16,
    pub(super) identification: u16,
    fragment_field: u16,
    ttl: u8,
    protocol: u8,
    pub(super) source: u32,
    pub(super) destination: u32,
}

impl Ipv4Header {
    /// The header in place of an IPv6 one. `None`: the packet would be too long for IPv4.
    pub(super) fn new(
        from: &Ipv6Headers,
        (source, destination): (u32, u32),
        settings: &ConvertSettings,
    ) -> Option<Self> {
        //= rfc7915#section-5.1.1-total-length
        let total_len = u16::try_from(ipv4::HEADER_LEN + from.transport_len).ok()?;
        let (identification, fragment_field) = match from.fragment() {
            Some(fragment) => {
                let more = if fragment.more { MORE_FRAGMENTS } else { 0 };
                //= rfc7915#section-5.1.1-offset
                (fragment.identification as u16, more | (fragment.offset / 8) as u16)
            }
            //= rfc7915#section-5-df-clear
            None if usize::from(total_len) <= MAY_FRAGMENT => (0, 0),
            //= rfc7915#section-5-df-set
            None => (0, DONT_FRAGMENT),
        };
        let protocol = match from.walk.protocol {
            protocol::ICMPV6 => protocol::ICMP,
            other => other,
        };
        Some(Self {
            //= rfc7915#section-5.1-tos
            service: settings.service.unwrap_or(from.packet.traffic_class()),
            total_len,
            identification,
            fragment_field,
            ttl: from.packet.hop_limit(),
            protocol,
            source,
            destination,
        })
    }

    /// Counts the hop, if the conversion does.
    pub(super) fn hop(mut self, settings: &ConvertSettings) -> Self {
        self.ttl = after_hop(self.ttl, settings);
        self
    }

    pub(super) fn dont_fragment(&self) -> bool {
        self.fragment_field & DONT_FRAGMENT != 0
    }

    pub(super) fn total_len(&self) -> usize {
        self.total_len.into()
    }

    /// The header of a packet that became an ICMP error with this payload.
    pub(super) fn with_payload(mut self, payload_len: usize) -> Self {
        self.total_len = (ipv4::HEADER_LEN + payload_len) as u16;
        self.fragment_field &= !DONT_FRAGMENT;
        self
    }

    /// Writes the header to the front of `bytes`.
    pub(super) fn write(&self, bytes: &mut [u8]) {
        let mut header = Ipv4::init(bytes, ipv4::HEADER_LEN);
        header.set_service(self.service);
        header.set_total_len(self.total_len);
        header.set_identification(self.identification);
        header.set_fragment_field(self.fragment_field);
        header.set_ttl(self.ttl);
        header.set_protocol(self.protocol);
        header.set_source(self.source);
        header.set_destination(self.destination);
        header.fill_checksum();
    }
}

/// True if a packet with this hop limit ends here.
pub(super) fn expires(hop_limit: u8, settings: &ConvertSettings) -> bool {
    settings.hops == Hops::Decrement && hop_limit <= 1
}

pub(super) fn after_hop(hop_limit: u8, settings: &ConvertSettings) -> u8 {
    match settings.hops {
        Hops::Decrement => hop_limit.saturating_sub(1),
        Hops::Keep => hop_limit,
    }
}
