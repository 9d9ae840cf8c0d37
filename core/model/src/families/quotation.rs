//! RFC 7915: an ICMP error and the packet that it quotes, with the extensions of RFC 4884.

use super::headers::{Four, Six, has_late_extension, quoted_four, quoted_six};
use super::words::{total, total_icmpv6, word};
use natgate_engine::DropReason;
use natgate_ipv6::convert::{Addresses, ConvertSettings, Place, Refusal};

/// The first eight bytes of an error.
type Head = [u8; 8];

/// Place of the length of a quotation in the head, and its unit in bytes (RFC 4884).
type LengthField = (usize, usize);

fn length_field(kind: u8) -> Option<LengthField> {
    [3, 11, 12].contains(&kind).then_some((5, 4))
}

fn length_field6(kind: u8) -> Option<LengthField> {
    [1, 3].contains(&kind).then_some((4, 8))
}

/// An ICMP error as ICMPv6 of at most `limit` bytes, without its checksum.
pub(crate) fn to_ipv6(
    message: &[u8],
    limit: usize,
    settings: &ConvertSettings,
    addresses: &mut dyn Addresses,
) -> Result<Vec<u8>, Refusal> {
    if message.len() < 8 {
        return Err(DropReason::BadLength.into());
    }
    if total(message) == 0 || !total(message).is_multiple_of(0xffff) {
        return Err(DropReason::IcmpBadChecksum.into());
    }
    let (quote, extension) = split(message, length_field(message[0]));
    let four = Four::read(quote, true)?;
    four.transport.check(settings.udp_checksum_zero)?;
    let head = head_to_ipv6(message, four.total_len, settings);
    let head = head.ok_or(DropReason::IcmpUnsupported)?;
    let ends = addresses.to_ipv6(Place::Quoted, four.source, four.destination)?;
    let quote = quoted_six(&four, ends, settings);
    let least = if quote[6] == 44 { 48 } else { 40 };
    put_together(head, quote, extension, length_field6(head[0]), limit, least)
}

/// An ICMPv6 error as ICMP of at most `limit` bytes, without its checksum. `ends` are its source
/// and destination.
pub(crate) fn to_ipv4(
    message: &[u8],
    ends: (u128, u128),
    limit: usize,
    settings: &ConvertSettings,
    addresses: &mut dyn Addresses,
) -> Result<Vec<u8>, Refusal> {
    if message.len() < 8 {
        return Err(DropReason::BadLength.into());
    }
    if !total_icmpv6(ends, message).is_multiple_of(0xffff) {
        return Err(DropReason::IcmpBadChecksum.into());
    }
    let (quote, extension) = split(message, length_field6(message[0]));
    let six = Six::read(quote, true)?;
    if has_late_extension(&six) {
        return Err(DropReason::IcmpBadEmbedded.into());
    }
    six.transport.check(settings.udp_checksum_zero)?;
    let head = head_to_ipv4(message, six.fragment.is_some(), settings);
    let head = head.ok_or(DropReason::IcmpUnsupported)?;
    let ends = addresses.to_ipv4(Place::Quoted, six.source, six.destination)?;
    if 20 + six.transport.full > 65_535 {
        return Err(DropReason::IcmpBadEmbedded.into());
    }
    let quote = quoted_four(&six, ends, settings);
    put_together(head, quote, extension, length_field(head[0]), limit, 20)
}

/// The quoted packet with its padding, and the extension structure.
fn split(message: &[u8], field: Option<LengthField>) -> (&[u8], &[u8]) {
    let body = &message[8..];
    let len = field.map_or(0, |(at, unit)| usize::from(message[at]) * unit);
    if len == 0 || len > body.len() { (body, &[]) } else { body.split_at(len) }
}

/// An error with its quotation, of which at least `least` bytes must be there, and its extension
/// structure.
fn put_together(
    head: Head,
    mut quote: Vec<u8>,
    extension: &[u8],
    field: Option<LengthField>,
    limit: usize,
    least: usize,
) -> Result<Vec<u8>, Refusal> {
    let room = limit.saturating_sub(8);
    let mut out = head.to_vec();
    let Some((at, unit)) = field.filter(|_| !extension.is_empty() && room > 128) else {
        quote.truncate(room);
        if quote.len() < least {
            return Err(DropReason::IcmpBadEmbedded.into());
        }
        out.extend(quote);
        return Ok(out);
    };
    let beside = room.saturating_sub(extension.len()).max(128).min(255 * unit);
    quote.truncate(beside - beside % unit);
    quote.resize(quote.len().max(128).next_multiple_of(unit), 0);
    out[at] = (quote.len() / unit) as u8;
    out.extend(quote);
    out.extend(extension);
    out.truncate(8 + room);
    Ok(out)
}

const fn head(kind: u8, code: u8) -> Head {
    [kind, code, 0, 0, 0, 0, 0, 0]
}

/// RFC 7915 section 4.2. `total_len` is the length of the quoted packet.
fn head_to_ipv6(message: &[u8], total_len: usize, settings: &ConvertSettings) -> Option<Head> {
    /// Figure 3: the pointer in IPv6 for each pointer in IPv4; 255: none.
    const POINTERS: [u8; 20] =
        [0, 1, 4, 4, 255, 255, 255, 255, 7, 6, 255, 255, 8, 8, 8, 8, 24, 24, 24, 24];
    let (kind, code) = (message[0], message[1]);
    match (kind, code) {
        (3, 2) => Some([4, 1, 0, 0, 0, 0, 0, 6]),
        (3, 3) => Some(head(1, 4)),
        (3, 4) => {
            let mtu = match word(message, 6) {
                0 => plateau(total_len),
                mtu => mtu.into(),
            };
            let sides = u32::from(settings.mtu_ipv6).min(u32::from(settings.mtu_ipv4) + 20);
            let [a, b, c, d] = (mtu + 20).min(sides).max(1280).to_be_bytes();
            Some([2, 0, 0, 0, a, b, c, d])
        }
        (3, 9 | 10 | 13 | 15) => Some(head(1, 1)),
        (3, 0..=12) => Some(head(1, 0)),
        (11, _) => Some(head(3, code)),
        (12, 0 | 2) => {
            let to = POINTERS.get(usize::from(message[4])).filter(|&&to| to != 255)?;
            Some([4, 0, 0, 0, 0, 0, 0, *to])
        }
        _ => None,
    }
}

/// The largest plateau of RFC 1191 below a length.
fn plateau(total_len: usize) -> u32 {
    let plateaus = [65_535, 32_000, 17_914, 8166, 4352, 2002, 1492];
    let below = plateaus.into_iter().find(|plateau| *plateau < total_len);
    below.map_or(0, |plateau| plateau as u32)
}

/// RFC 7915 section 5.2. `is_fragment` is true if the quoted packet has a fragment header.
fn head_to_ipv4(message: &[u8], is_fragment: bool, settings: &ConvertSettings) -> Option<Head> {
    let (kind, code) = (message[0], message[1]);
    let parameter = u32::from(word(message, 4)) << 16 | u32::from(word(message, 6));
    match (kind, code) {
        (1, 0 | 2 | 3) => Some(head(3, 1)),
        (1, 1) => Some(head(3, 10)),
        (1, 4) => Some(head(3, 3)),
        (2, _) => {
            let less = if is_fragment { 28 } else { 20 };
            let mtu = parameter.min(settings.mtu_ipv6.into()).saturating_sub(less);
            let [a, b] = (mtu.min(settings.mtu_ipv4.into()) as u16).to_be_bytes();
            Some([3, 4, 0, 0, 0, 0, a, b])
        }
        (3, _) => Some(head(11, code)),
        (4, 0) => {
            // Figure 6.
            let to = match parameter {
                0 | 1 => parameter as u8,
                4 | 5 => 2,
                6 => 9,
                7 => 8,
                8..24 => 12,
                24..40 => 16,
                _ => return None,
            };
            Some([12, 0, 0, 0, to, 0, 0, 0])
        }
        (4, 1) => Some(head(3, 2)),
        _ => None,
    }
}
