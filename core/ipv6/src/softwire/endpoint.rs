//! The port by which a packet tells the customer of a shared address: that of TCP, UDP and their
//! like, the identifier of an ICMP query, or a port of the packet that an ICMP error quotes.

use natgate_engine::DropReason;
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6, icmp, icmpv6, ipv6, protocol};

/// Stream Control Transmission Protocol.
const SCTP: u8 = 132;

/// The end of a packet that is the customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Source,
    Destination,
}

impl End {
    /// The customer's end in a packet that an error to or from the customer quotes: the quoted
    /// packet went the other way.
    pub(crate) const fn quoted(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// The port of a packet's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// A port, or an identifier.
    Number(u16),
    /// A fragment other than the first: another packet has the port.
    Later,
    /// The protocol, or the message, has no port.
    Absent,
}

/// True if the first four bytes of a protocol's header are the two ports.
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::DCCP | SCTP)
}

/// The port of an end in the first bytes of a transport header.
fn port_at(transport: &[u8], end: End) -> Option<u16> {
    let at = match end {
        End::Source => 0,
        End::Destination => 2,
    };
    let bytes = transport.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Reads the port of an end of an IPv4 packet.
///
/// # Errors
/// The reason why the packet cannot be assigned.
#[inline]
pub(crate) fn port(packet: &Ipv4<&[u8]>, end: End) -> Result<Port, DropReason> {
    if packet.fragment_offset() != 0 {
        return Ok(Port::Later);
    }
    let transport = packet.payload();
    if has_ports(packet.protocol()) {
        let short = match packet.more_fragments() {
            true => DropReason::FragmentTiny,
            false => DropReason::BadLength,
        };
        return port_at(transport, end).map(Port::Number).ok_or(short);
    }
    match packet.protocol() {
        protocol::ICMP => icmp_port(packet, end),
        _ => Ok(Port::Absent),
    }
}

/// The port of an ICMP message.
#[cold]
fn icmp_port(packet: &Ipv4<&[u8]>, end: End) -> Result<Port, DropReason> {
    let message = Icmp::new_checked(packet.payload()).ok_or(DropReason::BadLength)?;
    match message.kind() {
        //= rfc7596#section-8.1-identifier
        icmp::kind::ECHO_REQUEST | icmp::kind::ECHO_REPLY => Ok(Port::Number(message.identifier())),
        //= rfc7596#section-8.1-embedded
        kind if icmp::is_error(kind) => {
            let customer = match end {
                End::Source => packet.source(),
                End::Destination => packet.destination(),
            };
            quoted_port(message.body(), end.quoted(), customer).map(Port::Number)
        }
        _ => Ok(Port::Absent),
    }
}

/// The port of an end of the IPv4 packet that an error quotes. The end is the customer's.
fn quoted_port(quote: &[u8], end: End, customer: u32) -> Result<u16, DropReason> {
    let bad = DropReason::IcmpBadEmbedded;
    let inner = Ipv4::new_header_checked(quote).map_err(|_| bad)?;
    let address = match end {
        End::Source => inner.source(),
        End::Destination => inner.destination(),
    };
    if address != customer || inner.fragment_offset() != 0 {
        return Err(bad);
    }
    if has_ports(inner.protocol()) {
        return port_at(inner.payload(), end).ok_or(bad);
    }
    let query = Icmp::new_checked(inner.payload()).filter(|message| {
        let is_echo = [icmp::kind::ECHO_REQUEST, icmp::kind::ECHO_REPLY].contains(&message.kind());
        inner.protocol() == protocol::ICMP && is_echo
    });
    query.map(|message| message.identifier()).ok_or(bad)
}

/// The customer's end of an IPv6 packet that is to become IPv4: its address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End6 {
    pub(crate) address: u128,
    pub(crate) port: Port,
    /// True if the end is that of the packet which an error quotes.
    pub(crate) is_quoted: bool,
}

/// Reads the source of an IPv6 packet; of an ICMPv6 error, the destination of the quoted packet.
///
/// # Errors
/// The reason why the packet cannot be assigned.
pub(crate) fn source6(packet: &Ipv6<&[u8]>) -> Result<End6, DropReason> {
    let walk = packet.walk().map_err(|_| DropReason::ExtensionHeaders)?;
    let transport = packet.payload().get(walk.transport - ipv6::HEADER_LEN..).unwrap_or_default();
    let own = |port| End6 { address: packet.source(), port, is_quoted: false };
    if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
        return Ok(own(Port::Later));
    }
    if has_ports(walk.protocol) {
        let port = port_at(transport, End::Source).ok_or(DropReason::BadLength)?;
        return Ok(own(Port::Number(port)));
    }
    if walk.protocol != protocol::ICMPV6 {
        return Ok(own(Port::Absent));
    }
    let message = Icmpv6::new_checked(transport).ok_or(DropReason::BadLength)?;
    match message.kind() {
        icmpv6::kind::ECHO_REQUEST | icmpv6::kind::ECHO_REPLY => {
            Ok(own(Port::Number(message.identifier())))
        }
        kind if icmpv6::is_error(kind) => {
            quoted6(message.body()).ok_or(DropReason::IcmpBadEmbedded)
        }
        _ => Ok(own(Port::Absent)),
    }
}

/// The destination of the IPv6 packet that an error quotes.
fn quoted6(quote: &[u8]) -> Option<End6> {
    let inner = Ipv6::new_header_checked(quote).ok()?;
    let walk = inner.walk().ok()?;
    let transport = quote.get(walk.transport..)?;
    if walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0) {
        return None;
    }
    let port = if has_ports(walk.protocol) {
        port_at(transport, End::Destination)?
    } else {
        Icmpv6::new_checked(transport).filter(|_| walk.protocol == protocol::ICMPV6)?.identifier()
    };
    Some(End6 { address: inner.destination(), port: Port::Number(port), is_quoted: true })
}

/// The destination port of a transport header over IPv6.
pub(crate) fn destination6(protocol: u8, transport: &[u8]) -> Port {
    let port = has_ports(protocol).then(|| port_at(transport, End::Destination)).flatten();
    port.map_or(Port::Absent, Port::Number)
}
