//! A second conversion, slow and plain: it reads bytes by their offsets, makes a new packet, and
//! computes every checksum over everything. A wrong checksum is off by as much afterwards, which
//! ordinary arithmetic modulo 65,535 says.
//!
//! The twin knows neither buffers nor cutting: it says the whole packet, and whether it is to be
//! cut.

use crate::support::{ERROR_SOURCE, PREFIX, checksum_at, embed};
use natgate_engine::DropReason as R;
use natgate_ipv6::convert::{ConvertSettings, Hops, UdpChecksumZero};

/// The packet, and the limit of its fragments.
pub(crate) type Twin = Result<(Vec<u8>, Option<usize>), R>;

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn set16(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// The sum of all words.
fn total(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| b.into())).sum()
}

/// The checksum that belongs to a sum.
fn checksum_of(total: u64) -> u16 {
    match total {
        0 => 0xffff,
        _ => 0xffff - (1 + (total - 1) % 0xffff) as u16,
    }
}

/// A checksum after `old` was replaced by `new` among the words that it covers.
fn moved(checksum: u16, old: u64, new: u64) -> u16 {
    let covered = u64::from(0xffff - checksum) + 0xffff - old % 0xffff + new % 0xffff;
    checksum_of(if covered == 0 { 0xffff } else { covered })
}

/// The checksum of a transport header in its new packet.
struct Pseudo {
    old: u64,
    new: u64,
    /// Whether `transport` is complete and not a fragment.
    complete: bool,
}

impl Pseudo {
    /// Writes the checksum at `at` of `new`, which was `old` before.
    fn write(&self, old: &[u8], new: &mut [u8], at: usize, never_zero: bool) {
        let field = be16(old, at);
        let right = self.complete && (total(old) + self.old).is_multiple_of(0xffff);
        set16(new, at, 0);
        let mut value = if right {
            checksum_of(total(new) + self.new)
        } else {
            // The field itself does not count.
            let without = |bytes: &[u8]| total(&bytes[..2]);
            moved(field, self.old + without(old), self.new + without(new))
        };
        if value == 0 && self.new == 0 && new.iter().all(|&byte| byte == 0) {
            value = 0xffff;
        }
        if never_zero && value == 0 {
            value = 0xffff;
        }
        set16(new, at, value.into());
    }
}

/// Translates what follows the IP headers, unless it is an ICMP error.
#[expect(clippy::too_many_arguments, reason = "the twin is plain")]
fn transport(
    towards_six: bool,
    quoted: bool,
    protocol: u8,
    old: &[u8],
    full: usize,
    (offset, more): (usize, bool),
    (four, six): (u64, u64),
    zero: UdpChecksumZero,
) -> Result<Vec<u8>, R> {
    let mut new = old.to_vec();
    if protocol == if towards_six { 1 } else { 58 } {
        return query(towards_six, quoted, old, full, (offset, more), six);
    }
    let Some(at) = checksum_at(protocol).filter(|_| offset == 0) else { return Ok(new) };
    if old.len() < at + 2 {
        return match (quoted, more) {
            (true, _) => Ok(new),
            (_, true) => Err(R::FragmentTiny),
            _ => Err(R::BadLength),
        };
    }
    let (old_sum, new_sum) = if towards_six { (four, six) } else { (six, four) };
    if protocol == 17 && be16(old, at) == 0 {
        if quoted || !towards_six || zero == UdpChecksumZero::Forward {
            return Ok(new);
        }
        if zero == UdpChecksumZero::Drop || more {
            return Err(R::UdpChecksumZero);
        }
        return with_checksum(old, six);
    }
    // Protocol and length are the same in both pseudo headers. UDP's own length may be another.
    let rest = u64::from(protocol) + full as u64;
    let complete = offset == 0 && !more && old.len() == full && protocol == 6;
    let pseudo = Pseudo { old: old_sum + rest, new: new_sum + rest, complete };
    if complete {
        pseudo.write(old, &mut new, at, false);
    } else {
        let value = moved(be16(old, at), old_sum, new_sum);
        let never_zero = matches!(protocol, 17 | 136);
        set16(&mut new, at, if never_zero && value == 0 { 0xffff } else { value.into() });
    }
    Ok(new)
}

/// Translates an ICMP message that is no error.
fn query(
    towards_six: bool,
    quoted: bool,
    old: &[u8],
    full: usize,
    (offset, more): (usize, bool),
    six: u64,
) -> Result<Vec<u8>, R> {
    let mut new = old.to_vec();
    if (offset > 0 || more) && !quoted {
        return Err(R::FragmentedIcmp);
    }
    if offset > 0 {
        return Ok(new);
    }
    if old.len() < 8 {
        return Err(if quoted { R::IcmpBadEmbedded } else { R::BadLength });
    }
    let kinds = if towards_six { [(8, 128), (0, 129)] } else { [(128, 8), (129, 0)] };
    let kind = kinds.into_iter().find(|&(kind, _)| kind == old[0]);
    let unknown = if quoted { R::IcmpBadEmbedded } else { R::IcmpUnsupported };
    new[0] = kind.ok_or(unknown)?.1;
    let pseudo = six + 58 + (full as u64 >> 16) + (full as u64 & 0xffff);
    let (old_sum, new_sum) = if towards_six { (0, pseudo) } else { (pseudo, 0) };
    let complete = !more && old.len() == full;
    Pseudo { old: old_sum, new: new_sum, complete }.write(old, &mut new, 2, false);
    Ok(new)
}

/// The UDP datagram without a checksum, with the one that IPv6 requires.
fn with_checksum(old: &[u8], six: u64) -> Result<Vec<u8>, R> {
    let len = usize::from(be16(old, 4));
    if old.len() < 8 || len < 8 || len > old.len() {
        return Err(R::BadLength);
    }
    let sum = checksum_of(total(&old[..len]) + six + 17 + len as u64);
    let mut new = old.to_vec();
    set16(&mut new, 6, if sum == 0 { 0xffff } else { sum.into() });
    Ok(new)
}

/// The TTL or hop limit of the new packet.
fn hops(old: u8, quoted: bool, settings: &ConvertSettings) -> Result<u8, R> {
    match settings.hops {
        Hops::Decrement if !quoted => match old {
            0 | 1 => Err(R::TtlExceeded),
            _ => Ok(old - 1),
        },
        _ => Ok(old),
    }
}

/// IPv4 to IPv6.
pub(crate) fn to_ipv6(packet: &[u8], settings: &ConvertSettings) -> Twin {
    six_of(packet, false, settings)
}

fn unexpired(options: &[u8]) -> bool {
    let mut at = 0;
    while at < options.len() {
        match options[at] {
            0 => return false,
            1 => at += 1,
            131 | 137 => {
                let (Some(&len), Some(&pointer)) = (options.get(at + 1), options.get(at + 2))
                else {
                    return true;
                };
                if len < 3 || pointer <= len {
                    return true;
                }
                at += usize::from(len);
            }
            _ => match options.get(at + 1) {
                Some(&len) if len >= 2 => at += usize::from(len),
                _ => return false,
            },
        }
    }
    false
}

/// The length of an IPv4 header that is right.
fn header_len(packet: &[u8], quoted: bool) -> Result<usize, R> {
    let short = if quoted { R::IcmpBadEmbedded } else { R::BadLength };
    match packet.first() {
        None => return Err(short),
        Some(first) if first >> 4 != 4 => return Err(if quoted { short } else { R::NotIpv4 }),
        _ if packet.len() < 20 => return Err(short),
        _ => {}
    }
    let header_len = usize::from(packet[0] % 16) * 4;
    let total_len = usize::from(be16(packet, 2));
    if header_len < 20 || header_len > packet.len() || total_len < header_len {
        return Err(short);
    }
    if !quoted && total_len > packet.len() {
        return Err(short);
    }
    if !quoted && !total(&packet[..header_len]).is_multiple_of(0xffff) {
        return Err(R::BadHeaderChecksum);
    }
    Ok(header_len)
}

fn six_of(packet: &[u8], quoted: bool, settings: &ConvertSettings) -> Twin {
    let header_len = header_len(packet, quoted)?;
    let total_len = usize::from(be16(packet, 2));
    let old = &packet[header_len..total_len.min(packet.len())];
    let full = total_len - header_len;
    let field = be16(packet, 6);
    let (offset, more) = (usize::from(field % 0x2000) * 8, field & 0x2000 != 0);
    let fragment = offset > 0 || more;
    let protocol = packet[9];
    if [0, 2, 43, 44, 60].contains(&protocol) {
        return Err(if quoted { R::IcmpBadEmbedded } else { R::Untranslatable });
    }
    let source = u32::from_be_bytes(packet[12..16].try_into().unwrap());
    let destination = u32::from_be_bytes(packet[16..20].try_into().unwrap());
    let ends = [embed(source).to_be_bytes(), embed(destination).to_be_bytes()].concat();
    let is_error =
        protocol == 1 && !fragment && [3, 4, 5, 11, 12].contains(old.first().unwrap_or(&0));
    let error = is_error && !quoted;
    let new = match error {
        true => Vec::new(),
        false => {
            let sums = (total(&packet[12..20]), total(&ends));
            let zero = settings.udp_checksum_zero;
            transport(true, quoted, protocol, old, full, (offset, more), sums, zero)?
        }
    };
    if destination >> 24 == 10 {
        return Err(R::Untranslatable);
    }
    if !quoted && unexpired(&packet[20..header_len]) {
        return Err(R::SourceRoute);
    }
    let ttl = hops(packet[8], quoted, settings)?;
    let (new, full) = match error {
        true => {
            let limit = 1280.min(total_len + 48);
            let mut message = error_six(old, limit, settings)?;
            let sum = total(&message) + total(&ends) + 58 + message.len() as u64;
            set16(&mut message, 2, checksum_of(sum).into());
            let len = message.len();
            (message, len)
        }
        false => (new, full),
    };
    let next = if protocol == 1 { 58 } else { protocol };
    let class = settings.traffic_class.unwrap_or(packet[1]);
    let mut out = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 0, next, ttl];
    set16(&mut out, 4, full + if fragment { 8 } else { 0 });
    out.extend(&ends);
    if fragment {
        out[6] = 44;
        out.extend([next, 0]);
        out.extend((offset as u16 | u16::from(more)).to_be_bytes());
        out.extend([0, 0, packet[4], packet[5]]);
    }
    let whole_len = out.len() + full;
    out.extend(new);
    if error || quoted { Ok((out, None)) } else { fitted(packet, out, whole_len, settings) }
}

/// `out`, made of the IPv4 packet `packet`, with the limit of its fragments.
fn fitted(packet: &[u8], out: Vec<u8>, whole_len: usize, settings: &ConvertSettings) -> Twin {
    let field = be16(packet, 6);
    let fragment = field & 0x3fff != 0;
    let total_len = usize::from(be16(packet, 2));
    if field & 0x4000 != 0 {
        let too_big = total_len + 20 + if fragment { 8 } else { 0 } > settings.mtu_ipv6.into();
        return if too_big { Err(R::TooBig) } else { Ok((out, None)) };
    }
    let limit = usize::from(settings.lowest_mtu.min(settings.mtu_ipv6));
    let how = (whole_len > limit).then_some(limit);
    Ok((out, how))
}

/// Splits an error at the length of RFC 4884, given in units of `unit` bytes at `at`.
fn split(message: &[u8], at: usize, unit: usize, has: bool) -> (&[u8], &[u8]) {
    let len = if has { usize::from(message[at]) * unit } else { 0 };
    match len {
        0 => (&message[8..], &[]),
        len if 8 + len > message.len() => (&message[8..], &[]),
        len => (&message[8..8 + len], &message[8 + len..]),
    }
}

/// An error with quotation and extension structure, of `limit` bytes.
fn put_together(
    head: [u8; 8],
    mut quote: Vec<u8>,
    extension: &[u8],
    field: Option<(usize, usize)>,
    limit: usize,
    least: usize,
) -> Result<Vec<u8>, R> {
    let room = limit.saturating_sub(8);
    let mut out = head.to_vec();
    match field.filter(|_| !extension.is_empty() && room > 128) {
        None => {
            quote.truncate(room);
            if quote.len() < least {
                return Err(R::IcmpBadEmbedded);
            }
            out.extend(quote);
        }
        Some((at, unit)) => {
            let beside = room.saturating_sub(extension.len()).max(128).min(255 * unit);
            quote.truncate(beside - beside % unit);
            if quote.len() < 128 {
                quote.resize(128, 0);
            }
            while !quote.len().is_multiple_of(unit) {
                quote.push(0);
            }
            out[at] = (quote.len() / unit) as u8;
            out.extend(quote);
            out.extend(extension);
            out.truncate(8 + room);
        }
    }
    Ok(out)
}

fn error_six(message: &[u8], limit: usize, settings: &ConvertSettings) -> Result<Vec<u8>, R> {
    if message.len() < 8 {
        return Err(R::BadLength);
    }
    if total(message) == 0 || !total(message).is_multiple_of(0xffff) {
        return Err(R::IcmpBadChecksum);
    }
    let (kind, code) = (message[0], message[1]);
    let (quote, extension) = split(message, 5, 4, [3, 11, 12].contains(&kind));
    let inner = six_of(quote, true, settings);
    if inner == Err(R::IcmpBadEmbedded) {
        return Err(R::IcmpBadEmbedded);
    }
    let plain = |kind, code| Some([kind, code, 0, 0, 0, 0, 0, 0]);
    let head = match (kind, code) {
        (3, 2) => Some([4, 1, 0, 0, 0, 0, 0, 6]),
        (3, 3) => plain(1, 4),
        (3, 4) => {
            let total_len = u32::from(be16(quote, 2));
            let mtu = match be16(message, 6) {
                0 => *[65_535, 32_000, 17_914, 8166, 4352, 2002, 1492]
                    .iter()
                    .find(|&&plateau| plateau < total_len)
                    .unwrap_or(&0),
                mtu => mtu.into(),
            };
            let sides = u32::from(settings.mtu_ipv6).min(u32::from(settings.mtu_ipv4) + 20);
            let [a, b, c, d] = (mtu + 20).min(sides).max(1280).to_be_bytes();
            Some([2, 0, 0, 0, a, b, c, d])
        }
        (3, 9 | 10 | 13 | 15) => plain(1, 1),
        (3, 0..=12) => plain(1, 0),
        (11, _) => plain(3, code),
        (12, 0 | 2) => {
            let figure_3 =
                [0, 1, 4, 4, 255, 255, 255, 255, 7, 6, 255, 255, 8, 8, 8, 8, 24, 24, 24, 24];
            let to = figure_3.get(usize::from(message[4])).filter(|&&to| to != 255);
            to.map(|&to| [4, 0, 0, 0, 0, 0, 0, to])
        }
        _ => None,
    };
    let head = head.ok_or(R::IcmpUnsupported)?;
    let quote = inner?.0;
    let field = [1, 3].contains(&head[0]).then_some((4, 8));
    let least = if quote[6] == 44 { 48 } else { 40 };
    put_together(head, quote, extension, field, limit.saturating_sub(40), least)
}

/// IPv6 to IPv4. The identification of a packet without one is zero here.
pub(crate) fn to_ipv4(packet: &[u8], settings: &ConvertSettings) -> Twin {
    four_of(packet, false, settings)
}

/// What the extension headers say: protocol, offset of the transport header, fragment header,
/// segments left.
type Chain = (u8, usize, Option<(u8, usize, bool, u16)>, bool);

fn chain(packet: &[u8]) -> Option<Chain> {
    let (mut next, mut at, mut fragment, mut segments) = (packet[6], 40, None, false);
    let mut count = 0;
    while [0, 43, 44, 60].contains(&next) {
        count += 1;
        if count > 8 || at + 8 > packet.len() {
            return None;
        }
        let header = &packet[at..];
        let len = if next == 44 { 8 } else { 8 + usize::from(header[1]) * 8 };
        if len > header.len() {
            return None;
        }
        segments |= next == 43 && header[3] != 0;
        let later = next == 44 && be16(header, 2) >= 8;
        if next == 44 && fragment.is_none() {
            let offset = usize::from(be16(header, 2) & 0xfff8);
            fragment = Some((header[0], offset, header[3] & 1 != 0, be16(header, 6)));
        }
        next = header[0];
        at += len;
        if later {
            break;
        }
    }
    Some((next, at, fragment, segments))
}

/// Looks at the fixed header of IPv6.
fn check_six(packet: &[u8], quoted: bool) -> Result<(), R> {
    let short = if quoted { R::IcmpBadEmbedded } else { R::BadLength };
    match packet.first() {
        None => return Err(short),
        Some(first) if first >> 4 != 6 => return Err(if quoted { short } else { R::NotIpv4 }),
        _ if packet.len() < 40 => return Err(short),
        _ => {}
    }
    let total_len = 40 + usize::from(be16(packet, 4));
    if !quoted && total_len > packet.len() { Err(short) } else { Ok(()) }
}

/// Writes the header of IPv4 before `new`, whose packet has `full` bytes behind the header.
fn with_header_four(
    start: [u8; 12],
    ends: [u8; 8],
    fragment: Option<(u8, usize, bool, u16)>,
    full: usize,
    new: Vec<u8>,
) -> Vec<u8> {
    let mut out = [&start[..], &ends[..]].concat();
    set16(&mut out, 2, 20 + full);
    match fragment {
        Some((_, offset, more, identification)) => {
            set16(&mut out, 4, identification.into());
            set16(&mut out, 6, offset / 8 + if more { 0x2000 } else { 0 });
        }
        None => set16(&mut out, 6, if 20 + full > 1260 { 0x4000 } else { 0 }),
    }
    let sum = checksum_of(total(&out));
    set16(&mut out, 10, sum.into());
    out.extend(new);
    out
}

fn four_of(packet: &[u8], quoted: bool, settings: &ConvertSettings) -> Twin {
    check_six(packet, quoted)?;
    let total_len = 40 + usize::from(be16(packet, 4));
    let packet = &packet[..total_len.min(packet.len())];
    let chained = if quoted { R::IcmpBadEmbedded } else { R::ExtensionHeaders };
    let (protocol, at, fragment, segments) = chain(packet).ok_or(chained)?;
    let behind = fragment.map_or(59, |(next, ..)| next);
    if [0, 43, 44, 51, 60, 135, 139, 140].contains(&behind) {
        return Err(chained);
    }
    let (old, full) = (&packet[at..], total_len - at);
    let (offset, more) = fragment.map_or((0, false), |(_, offset, more, _)| (offset, more));
    let source = u128::from_be_bytes(packet[8..24].try_into().unwrap());
    let destination = u128::from_be_bytes(packet[24..40].try_into().unwrap());
    let strip = |address: u128| (address >> 32 == PREFIX >> 32).then_some(address as u32);
    let piece = offset > 0 || more;
    let is_error = protocol == 58 && offset == 0 && old.first().is_some_and(|&kind| kind < 128);
    let error = is_error && !piece && !quoted;
    let stand_in = (is_error && !quoted).then_some(ERROR_SOURCE);
    let ends = strip(source).or(stand_in).zip(strip(destination));
    let bytes = ends.map_or([0; 8], |(source, destination)| {
        (u64::from(source) << 32 | u64::from(destination)).to_be_bytes()
    });
    let new = match error {
        true => Vec::new(),
        false => {
            let sums = (total(&bytes), total(&packet[8..40]));
            let zero = settings.udp_checksum_zero;
            transport(false, quoted, protocol, old, full, (offset, more), sums, zero)?
        }
    };
    if ends.is_none() {
        return Err(R::Untranslatable);
    }
    if segments && !quoted {
        return Err(R::SegmentsLeft);
    }
    let ttl = hops(packet[7], quoted, settings)?;
    if 20 + full > 65_535 {
        return Err(match fragment {
            _ if quoted => R::IcmpBadEmbedded,
            Some(_) => R::FragmentTooLong,
            None => R::TooBig,
        });
    }
    let (new, full) = match error {
        true => {
            let limit = 576.min(total_len + 48).min(settings.mtu_ipv4.into());
            let mut message = error_four(old, total(&packet[8..40]), limit, settings)?;
            let sum = total(&message);
            set16(&mut message, 2, checksum_of(sum).into());
            let len = message.len();
            (message, len)
        }
        false => (new, full),
    };
    let service = settings.service.unwrap_or((be16(packet, 0) >> 4) as u8);
    let protocol = if protocol == 58 { 1 } else { protocol };
    let start = [0x45, service, 0, 0, 0, 0, 0, 0, ttl, protocol, 0, 0];
    let out = with_header_four(start, bytes, fragment, full, new);
    let dont_fragment = out[6] & 0x40 != 0;
    let limit = usize::from(settings.mtu_ipv4);
    match 20 + full > limit && !quoted {
        false => Ok((out, None)),
        true if dont_fragment => Err(R::TooBig),
        true => Ok((out, Some(limit))),
    }
}

fn error_four(
    message: &[u8],
    ends: u64,
    limit: usize,
    settings: &ConvertSettings,
) -> Result<Vec<u8>, R> {
    if message.len() < 8 {
        return Err(R::BadLength);
    }
    let len = message.len() as u64;
    let sum = total(message) + ends + 58 + (len >> 16) + (len & 0xffff);
    if !sum.is_multiple_of(0xffff) {
        return Err(R::IcmpBadChecksum);
    }
    let (kind, code) = (message[0], message[1]);
    let (quote, extension) = split(message, 4, 8, [1, 3].contains(&kind));
    let inner = four_of(quote, true, settings);
    // A quoted packet too long for IPv4 is the last thing that is looked at.
    let too_long = quote.len() >= 40 && inner == Err(R::IcmpBadEmbedded);
    if inner == Err(R::IcmpBadEmbedded) && !(too_long && be16(quote, 4) > 65_515) {
        return Err(R::IcmpBadEmbedded);
    }
    let plain = |kind, code| Some([kind, code, 0, 0, 0, 0, 0, 0]);
    let word = u32::from_be_bytes(message[4..8].try_into().unwrap());
    let head = match (kind, code) {
        (1, 0 | 2 | 3) => plain(3, 1),
        (1, 1) => plain(3, 10),
        (1, 4) => plain(3, 3),
        (2, _) => {
            let fragment = chain(&quote[..quote.len().min(40 + usize::from(be16(quote, 4)))])
                .is_some_and(|(_, _, fragment, _)| fragment.is_some());
            let less = if fragment { 28 } else { 20 };
            let mtu = word.min(settings.mtu_ipv6.into()).saturating_sub(less);
            let [a, b] = (mtu.min(settings.mtu_ipv4.into()) as u16).to_be_bytes();
            Some([3, 4, 0, 0, 0, 0, a, b])
        }
        (3, _) => plain(11, code),
        (4, 0) => {
            let to = match word {
                0 => Some(0),
                1 => Some(1),
                4 | 5 => Some(2),
                6 => Some(9),
                7 => Some(8),
                8..24 => Some(12),
                24..40 => Some(16),
                _ => None,
            };
            to.map(|to| [12, 0, 0, 0, to, 0, 0, 0])
        }
        (4, 1) => plain(3, 2),
        _ => None,
    };
    let head = head.ok_or(match too_long {
        true => inner.clone().unwrap_err(),
        false => R::IcmpUnsupported,
    })?;
    let field = [3, 11, 12].contains(&head[0]).then_some((5, 4));
    put_together(head, inner?.0, extension, field, limit.saturating_sub(20), 20)
}
