//! Types, codes, pointers and MTUs of ICMP errors in both families (RFC 7915 sections 4.2 and 5.2).
//! `None` is a message that the other family does not have.

use super::ConvertSettings;
use natgate_wire::{icmp, icmpv6, ipv6};

/// Difference of the header lengths, bytes.
pub(crate) const DIFFERENCE: u32 = (ipv6::HEADER_LEN - natgate_wire::ipv4::HEADER_LEN) as u32;

/// The first eight bytes of an error, without checksum and without the length of RFC 4884.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) code: u8,
    /// The second word.
    pub(super) word: [u8; 4],
}

impl Message {
    const fn new(kind: u8, code: u8, word: u32) -> Self {
        Self { kind, code, word: word.to_be_bytes() }
    }
}

/// Place of the length field of RFC 4884 in the second word, and its unit in bytes.
pub(super) type LengthField = (usize, usize);

/// The length field of an ICMP error.
pub(super) fn length_field(kind: u8) -> Option<LengthField> {
    use icmp::kind::{PARAMETER_PROBLEM, TIME_EXCEEDED, UNREACHABLE};
    matches!(kind, UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM).then_some((1, 4))
}

/// The length field of an ICMPv6 error.
pub(super) fn length_field_v6(kind: u8) -> Option<LengthField> {
    matches!(kind, icmpv6::kind::UNREACHABLE | icmpv6::kind::TIME_EXCEEDED).then_some((0, 8))
}

/// The lengths of a quoted packet, for MTUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quoted {
    /// Its total length, bytes.
    pub(super) total_len: usize,
    /// Length that its headers lose or gain apart from the fixed headers, bytes: 8 for a fragment
    /// header.
    pub(super) fragment_header: u32,
}

/// Translates the head of an ICMP error to ICMPv6.
pub(super) fn to_icmpv6(
    from: Message,
    quoted: Quoted,
    settings: &ConvertSettings,
) -> Option<Message> {
    use icmp::kind::{PARAMETER_PROBLEM, TIME_EXCEEDED, UNREACHABLE};
    use icmpv6::kind as v6;
    //= rfc7915#section-4.2-type
    Some(match (from.kind, from.code) {
        (UNREACHABLE, 2) => Message::new(v6::PARAMETER_PROBLEM, 1, ipv6::NEXT_HEADER as u32),
        (UNREACHABLE, 3) => Message::new(v6::UNREACHABLE, 4, 0),
        (UNREACHABLE, 4) => {
            let mtu = u16::from_be_bytes([from.word[2], from.word[3]]);
            Message::new(v6::PACKET_TOO_BIG, 0, mtu_to_ipv6(mtu, quoted, settings))
        }
        (UNREACHABLE, 0 | 1 | 5..=8 | 11 | 12) => Message::new(v6::UNREACHABLE, 0, 0),
        (UNREACHABLE, 9 | 10 | 13 | 15) => Message::new(v6::UNREACHABLE, 1, 0),
        (TIME_EXCEEDED, code) => Message::new(v6::TIME_EXCEEDED, code, 0),
        (PARAMETER_PROBLEM, 0 | 2) => {
            Message::new(v6::PARAMETER_PROBLEM, 0, pointer_to_ipv6(from.word[0])?)
        }
        _ => return None,
    })
}

/// Translates the head of an ICMPv6 error to ICMP.
pub(super) fn to_icmp(
    from: Message,
    quoted: Quoted,
    settings: &ConvertSettings,
) -> Option<Message> {
    use icmp::kind::{PARAMETER_PROBLEM, TIME_EXCEEDED, UNREACHABLE};
    use icmpv6::kind as v6;
    let word = u32::from_be_bytes(from.word);
    //= rfc7915#section-5.2-type
    Some(match (from.kind, from.code) {
        (v6::UNREACHABLE, 0 | 2 | 3) => Message::new(UNREACHABLE, 1, 0),
        (v6::UNREACHABLE, 1) => Message::new(UNREACHABLE, 10, 0),
        (v6::UNREACHABLE, 4) => Message::new(UNREACHABLE, 3, 0),
        (v6::PACKET_TOO_BIG, _) => {
            Message::new(UNREACHABLE, 4, mtu_to_ipv4(word, quoted, settings).into())
        }
        (v6::TIME_EXCEEDED, code) => Message::new(TIME_EXCEEDED, code, 0),
        (v6::PARAMETER_PROBLEM, 0) => {
            Message::new(PARAMETER_PROBLEM, 0, u32::from(pointer_to_ipv4(word)?) << 24)
        }
        (v6::PARAMETER_PROBLEM, 1) => Message::new(UNREACHABLE, 2, 0),
        _ => return None,
    })
}

/// The MTU for "packet too big".
fn mtu_to_ipv6(mtu: u16, quoted: Quoted, settings: &ConvertSettings) -> u32 {
    let mtu = match mtu {
        //= rfc7915#section-4.2-plateau
        0 => plateau(quoted.total_len),
        _ => u32::from(mtu),
    };
    (mtu + DIFFERENCE)
        //= rfc7915#section-4.2-mtu
        .min(settings.mtu_ipv6.into())
        .min(u32::from(settings.mtu_ipv4) + DIFFERENCE)
        //= rfc7915#section-4.2-mtu-least
        .max(ipv6::MIN_MTU as u32)
}

/// The likely path MTU of a router that does not know RFC 1191: the largest plateau below the
/// length of the packet, if IPv6 can use it.
fn plateau(total_len: usize) -> u32 {
    const PLATEAUS: [u16; 7] = [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492];
    let below = PLATEAUS.into_iter().find(|&plateau| usize::from(plateau) < total_len);
    below.map_or(0, u32::from)
}

/// The MTU for "fragmentation needed". A fragment header in the quoted packet has no counterpart,
/// so its length counts like the difference of the fixed headers.
fn mtu_to_ipv4(mtu: u32, quoted: Quoted, settings: &ConvertSettings) -> u16 {
    //= rfc7915#section-5.2-mtu
    let difference = DIFFERENCE + quoted.fragment_header;
    let mtu = mtu.min(settings.mtu_ipv6.into()).saturating_sub(difference);
    mtu.min(settings.mtu_ipv4.into()) as u16
}

/// Figure 3 of RFC 7915.
fn pointer_to_ipv6(pointer: u8) -> Option<u32> {
    Some(match pointer {
        0 => 0,
        1 => 1,
        2 | 3 => 4,
        8 => 7,
        9 => 6,
        12..=15 => 8,
        16..=19 => 24,
        _ => return None,
    })
}

/// Figure 6 of RFC 7915.
fn pointer_to_ipv4(pointer: u32) -> Option<u8> {
    Some(match pointer {
        0 => 0,
        1 => 1,
        4 | 5 => 2,
        6 => 9,
        7 => 8,
        8..=23 => 12,
        24..=39 => 16,
        _ => return None,
    })
}
