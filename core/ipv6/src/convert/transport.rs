//! The transport header of a converted packet: checksums over the addresses, and the types of echo
//! messages.

use super::UdpChecksumZero;
use super::headers::Part;
use natgate_engine::DropReason;
use natgate_wire::checksum::{fold, sum};
use natgate_wire::ipv6::next;
use natgate_wire::{Delta, Udp, icmp, icmpv6, protocol, tcp, udp};

/// Internet Group Management Protocol.
const IGMP: u8 = 2;

/// The family that a packet is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Towards {
    Ipv4,
    Ipv6,
}

/// The change of a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// The checksum at `at` covers the addresses.
    Checksum {
        at: usize,
        protocol: u8,
    },
    /// A UDP checksum is computed over the first `len` bytes.
    ComputeUdp {
        len: usize,
    },
    /// An echo message gets this type, and ICMPv6's checksum covers the pseudo header. `zeros`: the
    /// message becomes one of zeros only, apart from its checksum.
    Echo {
        kind: u8,
        zeros: bool,
    },
}

/// Partial sums of the headers that checksums cover outside the transport header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    /// The addresses of the IPv4 header.
    ipv4: u32,
    /// The addresses of the IPv6 header.
    ipv6: u32,
    /// The pseudo header of an ICMPv6 message.
    icmpv6: u32,
}

impl Sums {
    /// The sums for a packet with these addresses in its two forms, and `len` bytes from the
    /// transport header on.
    pub(super) fn new(ipv4: (u32, u32), ipv6: (u128, u128), len: usize) -> Self {
        let ipv4 = sum(&ipv4.1.to_be_bytes(), sum(&ipv4.0.to_be_bytes(), 0));
        let ipv6 = sum(&ipv6.1.to_be_bytes(), sum(&ipv6.0.to_be_bytes(), 0));
        let icmpv6 = sum(&ipv6.to_be_bytes(), len as u32 + u32::from(protocol::ICMPV6));
        Self { ipv4, ipv6, icmpv6 }
    }
}

/// Changes of the transport header of a packet that is no ICMP error.
///
/// # Errors
/// The reason why the packet does not pass.
pub(super) fn plan(
    protocol: u8,
    transport: &[u8],
    part: Part,
    towards: Towards,
    zero: UdpChecksumZero,
) -> Result<Change, DropReason> {
    if !has_counterpart(protocol, towards) {
        return Err(DropReason::Untranslatable);
    }
    if is_icmp(protocol, towards) {
        return match part {
            // The checksums of both families differ by the length of the whole message.
            Part::First | Part::Later => Err(DropReason::FragmentedIcmp),
            Part::Whole if transport.len() < icmp::HEADER_LEN => Err(DropReason::BadLength),
            Part::Whole => echo(transport, towards).ok_or(DropReason::IcmpUnsupported),
        };
    }
    //= rfc7915#section-4.5-forward
    //= rfc7915#section-5.5-forward
    let Some(at) = checksum_at(protocol).filter(|_| part != Part::Later) else {
        return Ok(Change::Nothing);
    };
    if transport.len() < at + 2 {
        let short = [DropReason::BadLength, DropReason::FragmentTiny];
        return Err(short[usize::from(part == Part::First)]);
    }
    if protocol != protocol::UDP || transport[at..at + 2] != [0, 0] {
        return Ok(Change::Checksum { at, protocol });
    }
    //= rfc7915#section-4.5-zero
    match (towards, zero) {
        (Towards::Ipv4, _) | (_, UdpChecksumZero::Forward) => Ok(Change::Nothing),
        //= rfc6146#section-3.4-zero-compute
        (_, UdpChecksumZero::Compute) if part == Part::Whole => {
            let datagram = Udp::new_checked(transport).ok_or(DropReason::BadLength)?;
            let len = usize::from(datagram.length());
            let fits = (udp::HEADER_LEN..=transport.len()).contains(&len);
            if fits { Ok(Change::ComputeUdp { len }) } else { Err(DropReason::BadLength) }
        }
        //= rfc7915#section-4.5-zero-first
        //= rfc6146#section-3.4-zero-discard
        _ => Err(DropReason::UdpChecksumZero),
    }
}

/// Changes of the transport header of a packet that an ICMP error quotes. A checksum behind the end
/// of the quotation does not matter. `None`: the packet cannot have been translated.
pub(super) fn plan_quoted(
    protocol: u8,
    transport: &[u8],
    part: Part,
    towards: Towards,
) -> Option<Change> {
    if !has_counterpart(protocol, towards) {
        return None;
    }
    if part == Part::Later {
        return Some(Change::Nothing);
    }
    if is_icmp(protocol, towards) {
        //= rfc7915#section-4.3-depth
        //= rfc7915#section-5.3-depth
        // An error about an error has more than one quotation, which RFC 7915 section 4.3 forbids.
        //= rfc6146#section-3.4-quoted-query
        let long_enough = transport.len() >= icmp::HEADER_LEN;
        return long_enough.then(|| echo(transport, towards)).flatten();
    }
    let at = checksum_at(protocol).filter(|at| transport.len() >= at + 2);
    let at = at.filter(|&at| protocol != protocol::UDP || transport[at..at + 2] != [0, 0]);
    Some(at.map_or(Change::Nothing, |at| Change::Checksum { at, protocol }))
}

impl Change {
    /// Makes the change.
    pub(super) fn apply(self, transport: &mut [u8], towards: Towards, sums: Sums) {
        match self {
            Self::Nothing => {}
            Self::Checksum { at, protocol } => {
                //= rfc7915#section-4.5-update
                //= rfc7915#section-5-checksum
                //= rfc7915#section-5.5-update
                let delta = match towards {
                    Towards::Ipv6 => Delta::NONE.replace_sum(sums.ipv4, sums.ipv6),
                    Towards::Ipv4 => Delta::NONE.replace_sum(sums.ipv6, sums.ipv4),
                };
                let new = match (protocol, delta.apply(get_u16(transport, at))) {
                    (protocol::UDP | protocol::UDP_LITE, 0) => 0xffff,
                    (_, new) => new,
                };
                put_u16(transport, at, new);
            }
            Self::ComputeUdp { len } => {
                let pseudo = len as u32 + u32::from(protocol::UDP);
                let start = sum(&sums.ipv6.to_be_bytes(), pseudo);
                let new = match !fold(sum(&transport[..len], start)) {
                    0 => 0xffff,
                    new => new,
                };
                put_u16(transport, udp::CHECKSUM, new);
            }
            Self::Echo { kind, zeros } => {
                change_echo(kind, zeros, transport, towards, sums.icmpv6);
            }
        }
    }

    /// The change of the first `len` bytes alone.
    pub(super) fn within(self, len: usize) -> Self {
        let end = match self {
            Self::Nothing => 0,
            Self::Checksum { at, .. } => at + 2,
            Self::ComputeUdp { len } => len,
            Self::Echo { .. } => icmpv6::CHECKSUM + 2,
        };
        if end <= len { self } else { Self::Nothing }
    }
}

fn change_echo(kind: u8, zeros: bool, message: &mut [u8], towards: Towards, pseudo: u32) {
    let old = get_u16(message, 0);
    message[0] = kind;
    let delta = Delta::NONE.replace_u16(old, get_u16(message, 0));
    let delta = match towards {
        Towards::Ipv6 => delta.replace_sum(0, pseudo),
        //= rfc7915#section-5.2-checksum
        Towards::Ipv4 => delta.replace_sum(pseudo, 0),
    };
    let new = match delta.apply(get_u16(message, icmpv6::CHECKSUM)) {
        // RFC 1624 has one exception: the checksum of zeros only is not zero.
        0 if zeros => 0xffff,
        new => new,
    };
    put_u16(message, icmpv6::CHECKSUM, new);
}

/// The echo message of the other family.
fn echo(message: &[u8], towards: Towards) -> Option<Change> {
    //= rfc7915#section-4.2-type
    //= rfc7915#section-5.2-type
    let kind = match (towards, message[0]) {
        (Towards::Ipv6, icmp::kind::ECHO_REQUEST) => icmpv6::kind::ECHO_REQUEST,
        (Towards::Ipv6, icmp::kind::ECHO_REPLY) => icmpv6::kind::ECHO_REPLY,
        (Towards::Ipv4, icmpv6::kind::ECHO_REQUEST) => icmp::kind::ECHO_REQUEST,
        (Towards::Ipv4, icmpv6::kind::ECHO_REPLY) => icmp::kind::ECHO_REPLY,
        _ => return None,
    };
    let nothing = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let zeros = kind == 0 && message[1] == 0 && nothing(&message[icmpv6::CHECKSUM + 2..]);
    Some(Change::Echo { kind, zeros })
}

fn is_icmp(protocol: u8, towards: Towards) -> bool {
    match towards {
        Towards::Ipv4 => protocol == protocol::ICMPV6,
        Towards::Ipv6 => protocol == protocol::ICMP,
    }
}

/// False for IGMP, and for IPv4 packets that would get extension headers.
fn has_counterpart(protocol: u8, towards: Towards) -> bool {
    match towards {
        Towards::Ipv4 => true,
        Towards::Ipv6 => !matches!(
            protocol,
            //= rfc7915#section-4.2-igmp
            //= rfc7915#section-4.2-igmp-routing
            IGMP | next::HOP_BY_HOP | next::ROUTING | next::FRAGMENT | next::DESTINATION
        ),
    }
}

/// Offset of the checksum in a transport header whose checksum covers the addresses.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(tcp::CHECKSUM),
        protocol::UDP | protocol::UDP_LITE | protocol::DCCP => Some(udp::CHECKSUM),
        _ => None,
    }
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
