//! RFC 7915: the IP headers of a packet, read and written, and the translation of a packet between
//! the families. A packet becomes a new one; nothing is changed in place.

use super::fragments::Limit;
use super::quotation;
use super::transport::{Sums, To, Transport};
use super::words::{checksum_of, pair, pair6, put, total, total_icmpv6, word};
use natgate_engine::DropReason;
use natgate_ipv6::convert::{Addresses, ConvertSettings, ErrorMessage, Hops, Place, Refusal};
use natgate_wire::protocol::{ICMP, ICMPV6};

/// Bytes that there are before a packet. An ICMP error towards IPv6 grows by as many at most, and
/// one towards IPv4 does not grow.
pub const HEADROOM: usize = 48;
/// Longest ICMP error of either family, bytes.
const LONGEST_ERROR: (usize, usize) = (576, 1280);

/// A translated packet, and the limit of its fragments if it is too long.
pub type Translated = Result<(Vec<u8>, Option<Limit>), Refusal>;

/// An IPv4 packet, read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Four<'p> {
    pub(crate) bytes: &'p [u8],
    pub(crate) options: &'p [u8],
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) total_len: usize,
    pub(crate) transport: Transport<'p>,
}

impl<'p> Four<'p> {
    /// Reads a packet, or one that an ICMP error quotes, which may be incomplete.
    pub(crate) fn read(bytes: &'p [u8], quoted: bool) -> Result<Self, DropReason> {
        let refused = |reason| if quoted { DropReason::IcmpBadEmbedded } else { reason };
        match bytes.first() {
            Some(first) if first >> 4 != 4 => return Err(refused(DropReason::NotIpv4)),
            Some(_) if bytes.len() >= 20 => {}
            _ => return Err(refused(DropReason::BadLength)),
        }
        let header_len = usize::from(bytes[0] % 16) * 4;
        let total_len = usize::from(word(bytes, 2));
        let is_short = header_len < 20 || header_len > bytes.len() || total_len < header_len;
        if is_short || !quoted && total_len > bytes.len() {
            return Err(refused(DropReason::BadLength));
        }
        if !quoted && !total(&bytes[..header_len]).is_multiple_of(0xffff) {
            return Err(DropReason::BadHeaderChecksum); // 2.4
        }
        let address = |at: usize| u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2));
        let field = word(bytes, 6);
        let transport = Transport {
            to: To::Ipv6,
            quoted,
            protocol: bytes[9],
            bytes: &bytes[header_len..total_len.min(bytes.len())],
            full: total_len - header_len,
            offset: usize::from(field % 0x2000) * 8,
            more: field & 0x2000 != 0,
        };
        let (source, destination) = (address(12), address(16));
        let options = &bytes[20..header_len];
        Ok(Self { bytes, options, source, destination, total_len, transport })
    }

    pub(crate) fn ends(&self) -> (u32, u32) {
        (self.source, self.destination)
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.transport.offset > 0 || self.transport.more
    }

    /// True for an ICMP error, or the first fragment of one.
    pub(crate) fn is_error(&self) -> bool {
        let kind = self.transport.bytes.first();
        let is_first = self.transport.protocol == ICMP && self.transport.offset == 0;
        is_first && kind.is_some_and(|kind| [3, 4, 5, 11, 12].contains(kind))
    }

    /// True for an ICMP error that quotes a header.
    pub(crate) fn quotes(&self) -> bool {
        let quote = self.transport.bytes.get(8..).unwrap_or_default();
        self.is_error() && Four::read(quote, true).is_ok()
    }

    /// True if a source route is not used up.
    pub(crate) fn has_source_route(&self) -> bool {
        let mut at = 0;
        while let Some(&kind) = self.options.get(at) {
            let (len, pointer) = (self.options.get(at + 1), self.options.get(at + 2));
            let len = len.copied().unwrap_or(0);
            match kind {
                0 => return false,
                1 => {
                    at += 1;
                    continue;
                }
                131 | 137 if len < 3 || pointer.is_none_or(|&pointer| pointer <= len) => {
                    return true;
                }
                _ if len < 2 => return false,
                _ => at += usize::from(len),
            }
        }
        false
    }

    /// The headers in IPv6 before `len` bytes.
    pub(crate) fn six(
        &self,
        ends: (u128, u128),
        ttl: u8,
        len: usize,
        settings: &ConvertSettings,
    ) -> Vec<u8> {
        let class = settings.traffic_class.unwrap_or(self.bytes[1]);
        let Transport { protocol, offset, more, .. } = self.transport;
        let next = if protocol == ICMP { ICMPV6 } else { protocol };
        let mut out = vec![0x60 | class >> 4, class << 4, 0, 0, 0, 0, next, ttl];
        out.extend(pair6(ends));
        if self.is_fragment() {
            out[6] = 44;
            out.extend([next, 0]);
            out.extend((offset as u16 | u16::from(more)).to_be_bytes());
            out.extend([0, 0, self.bytes[4], self.bytes[5]]);
        }
        let payload_len = out.len() - 40 + len;
        put(&mut out, 4, payload_len as u16);
        out
    }
}

/// Translates an IPv4 packet to IPv6.
///
/// # Errors
/// Reason of the drop, and the error for the sender.
pub fn to_ipv6(
    packet: &[u8],
    settings: &ConvertSettings,
    addresses: &mut dyn Addresses,
) -> Translated {
    let four = Four::read(packet, false)?;
    let is_answered = !four.is_error() && four.transport.offset == 0; // 19.9
    let translated = six_of(&four, settings, addresses);
    translated.map_err(|refusal| if is_answered { refusal } else { Refusal::from(refusal.reason) })
}

fn six_of(four: &Four, settings: &ConvertSettings, addresses: &mut dyn Addresses) -> Translated {
    let is_whole_error = four.is_error() && !four.is_fragment();
    if !is_whole_error {
        four.transport.check(settings.udp_checksum_zero)?;
    }
    let place = if four.is_error() { Place::Error } else { Place::Packet };
    let ends = addresses.to_ipv6(place, four.source, four.destination)?;
    if four.has_source_route() {
        let error = ErrorMessage::SOURCE_ROUTE_FAILED; // 19.8
        return Err(Refusal::with(DropReason::SourceRoute, error));
    }
    let ttl = after_hop(four.bytes[8], settings, ErrorMessage::TTL_EXCEEDED)?;
    if is_whole_error {
        let limit = LONGEST_ERROR.1.min(four.total_len + HEADROOM) - 40;
        let mut message = quotation::to_ipv6(four.transport.bytes, limit, settings, addresses)?;
        let checksum = checksum_of(total_icmpv6(ends, &message));
        put(&mut message, 2, checksum);
        let mut out = four.six(ends, ttl, message.len(), settings);
        out.extend(message);
        return Ok((out, None));
    }
    let mut out = four.six(ends, ttl, four.transport.full, settings);
    // 19.7
    let fragment_len = out.len() - 40;
    if four.bytes[6] & 0x40 != 0 {
        let growth = 20 + fragment_len as u16;
        if out.len() + four.transport.full > settings.mtu_ipv6.into() {
            let error = ErrorMessage::fragmentation_needed(settings.mtu_ipv6 - growth);
            return Err(Refusal::with(DropReason::TooBig, error));
        }
    }
    let sums = Sums { ipv4: total(&pair(four.ends())), ipv6: total(&pair6(ends)) };
    out.extend(four.transport.translated(sums, settings.udp_checksum_zero));
    let limit = usize::from(settings.lowest_mtu.min(settings.mtu_ipv6));
    let is_cut = four.bytes[6] & 0x40 == 0 && out.len() > limit;
    let identification = word(four.bytes, 4).into();
    Ok((out, is_cut.then_some(Limit { len: limit, identification })))
}

/// Counts the hop, if the translation does (19.6).
fn after_hop(hops: u8, settings: &ConvertSettings, error: ErrorMessage) -> Result<u8, Refusal> {
    match (settings.hops, hops) {
        (Hops::Keep, _) => Ok(hops),
        (Hops::Decrement, 0 | 1) => Err(Refusal::with(DropReason::TtlExceeded, error)),
        (Hops::Decrement, _) => Ok(hops - 1),
    }
}

/// An IPv6 packet, read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Six<'p> {
    pub(crate) bytes: &'p [u8],
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) total_len: usize,
    /// Identification of the first fragment header, and the type of the header after it.
    pub(crate) fragment: Option<(u32, u8)>,
    /// Offset of the first number of segments left that is not 0.
    pub(crate) segments_left: Option<usize>,
    /// Offset of the transport header, or of a later fragment's payload.
    pub(crate) at: usize,
    pub(crate) transport: Transport<'p>,
}

impl<'p> Six<'p> {
    /// Reads a packet, or one that an ICMPv6 error quotes, which may be incomplete.
    pub(crate) fn read(bytes: &'p [u8], quoted: bool) -> Result<Self, DropReason> {
        let refused = |reason| if quoted { DropReason::IcmpBadEmbedded } else { reason };
        match bytes.first() {
            Some(first) if first >> 4 != 6 => return Err(refused(DropReason::NotIpv4)),
            Some(_) if bytes.len() >= 40 => {}
            _ => return Err(refused(DropReason::BadLength)),
        }
        let total_len = 40 + usize::from(word(bytes, 4));
        if !quoted && total_len > bytes.len() {
            return Err(DropReason::BadLength);
        }
        let bytes = &bytes[..total_len.min(bytes.len())];
        let mut six = Self {
            bytes,
            source: address(bytes, 8),
            destination: address(bytes, 24),
            total_len,
            fragment: None,
            segments_left: None,
            at: 40,
            transport: Transport {
                to: To::Ipv4,
                quoted,
                protocol: bytes[6],
                bytes: &[],
                full: 0,
                offset: 0,
                more: false,
            },
        };
        six.follow().ok_or(refused(DropReason::ExtensionHeaders))?;
        six.transport.bytes = &bytes[six.at..];
        six.transport.full = total_len - six.at;
        Ok(six)
    }

    /// Follows at most eight extension headers.
    fn follow(&mut self) -> Option<()> {
        for _ in 0..=8 {
            let kind = self.transport.protocol;
            if ![0, 43, 44, 60].contains(&kind) {
                return Some(());
            }
            let header = &self.bytes[self.at..];
            let len = if kind == 44 { 8 } else { 8 + usize::from(*header.get(1)?) * 8 };
            let header = header.get(..len)?;
            if kind == 43 && header[3] != 0 && self.segments_left.is_none() {
                self.segments_left = Some(self.at + 3);
            }
            self.at += len;
            self.transport.protocol = header[0];
            if kind == 44 {
                let field = word(header, 2);
                let identification = u32::from(word(header, 4)) << 16 | u32::from(word(header, 6));
                if self.fragment.is_none() {
                    self.fragment = Some((identification, header[0]));
                    self.transport.offset = usize::from(field & 0xfff8);
                    self.transport.more = field & 1 != 0;
                }
                if field >= 8 {
                    return Some(());
                }
            }
        }
        None
    }

    pub(crate) fn ends(&self) -> (u128, u128) {
        (self.source, self.destination)
    }

    /// True for an ICMPv6 error, or the first fragment of one.
    pub(crate) fn is_error(&self) -> bool {
        let kind = self.transport.bytes.first();
        let is_first = self.transport.protocol == ICMPV6 && self.transport.offset == 0;
        is_first && kind.is_some_and(|kind| *kind < 128)
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.transport.offset > 0 || self.transport.more
    }

    /// The header in IPv4 before `len` bytes. The identification of a packet without one is 0.
    fn four(&self, ends: (u32, u32), ttl: u8, len: usize, settings: &ConvertSettings) -> Vec<u8> {
        let class = (word(self.bytes, 0) >> 4) as u8;
        let service = settings.service.unwrap_or(class);
        let Transport { protocol, offset, more, .. } = self.transport;
        let protocol = if protocol == ICMPV6 { ICMP } else { protocol };
        let mut out = vec![0x45, service, 0, 0, 0, 0, 0, 0, ttl, protocol, 0, 0];
        out.extend(pair(ends));
        put(&mut out, 2, (20 + len) as u16);
        match self.fragment {
            Some((identification, _)) => {
                put(&mut out, 4, identification as u16);
                put(&mut out, 6, (offset / 8) as u16 | u16::from(more) << 13);
            }
            None => put(&mut out, 6, if 20 + len > 1260 { 0x4000 } else { 0 }),
        }
        let checksum = checksum_of(total(&out));
        put(&mut out, 10, checksum);
        out
    }
}

pub(crate) fn address(bytes: &[u8], at: usize) -> u128 {
    bytes[at..at + 16].iter().fold(0, |address, byte| address << 8 | u128::from(*byte))
}

/// Translates an IPv6 packet to IPv4. The identification of a packet without one is 0.
///
/// # Errors
/// Reason of the drop, and the error for the sender.
pub fn to_ipv4(
    packet: &[u8],
    settings: &ConvertSettings,
    addresses: &mut dyn Addresses,
) -> Translated {
    let six = Six::read(packet, false)?;
    four_of(&six, settings, addresses).map_err(|refusal| {
        // RFC 7915 section 5.4: no "prohibited" answers any ICMPv6 message.
        let prohibits = refusal.error == Some(ErrorMessage::PROHIBITED_IPV6);
        let is_icmp = six.transport.protocol == ICMPV6;
        let is_silent = six.is_error() || prohibits && is_icmp;
        if is_silent { Refusal::from(refusal.reason) } else { refusal }
    })
}

/// Extension headers behind a fragment header, which are part of the datagram (19.8).
pub(crate) fn has_late_extension(six: &Six) -> bool {
    six.fragment.is_some_and(|(_, next)| [0, 43, 44, 51, 60, 135, 139, 140].contains(&next))
}

fn four_of(six: &Six, settings: &ConvertSettings, addresses: &mut dyn Addresses) -> Translated {
    if has_late_extension(six) {
        return Err(DropReason::ExtensionHeaders.into());
    }
    let is_whole_error = six.is_error() && !six.is_fragment();
    if !is_whole_error {
        six.transport.check(settings.udp_checksum_zero)?;
    }
    let place = if six.is_error() { Place::Error } else { Place::Packet };
    let ends = addresses.to_ipv4(place, six.source, six.destination)?;
    if let Some(at) = six.segments_left {
        let error = ErrorMessage::erroneous_field(at as u32);
        return Err(Refusal::with(DropReason::SegmentsLeft, error));
    }
    let ttl = after_hop(six.bytes[7], settings, ErrorMessage::HOP_LIMIT_EXCEEDED)?;
    let least = u32::from(settings.mtu_ipv4) + 20;
    let too_big = Refusal::with(DropReason::TooBig, ErrorMessage::packet_too_big(least.max(1280)));
    let len = six.transport.full;
    if 20 + len > 65_535 {
        let is_fragment = six.fragment.is_some();
        return Err(if is_fragment { DropReason::FragmentTooLong.into() } else { too_big });
    }
    if is_whole_error {
        let limit = LONGEST_ERROR.0.min(six.total_len);
        let limit = limit.min(settings.mtu_ipv4.into()) - 20;
        let message = six.transport.bytes;
        let mut message = quotation::to_ipv4(message, six.ends(), limit, settings, addresses)?;
        let checksum = checksum_of(total(&message));
        put(&mut message, 2, checksum);
        let mut out = six.four(ends, ttl, message.len(), settings);
        out.extend(message);
        return Ok((out, None));
    }
    let mut out = six.four(ends, ttl, len, settings);
    let sums = Sums { ipv4: total(&pair(ends)), ipv6: total(&pair6(six.ends())) };
    out.extend(six.transport.translated(sums, settings.udp_checksum_zero));
    let limit = usize::from(settings.mtu_ipv4);
    match out.len() > limit {
        false => Ok((out, None)),
        true if out[6] & 0x40 != 0 => Err(too_big),
        true => Ok((out, Some(Limit { len: limit, identification: 0 }))),
    }
}

/// The IPv4 header and the transport header of a packet that an ICMPv6 error quotes.
pub(crate) fn quoted_four(six: &Six, ends: (u32, u32), settings: &ConvertSettings) -> Vec<u8> {
    let mut out = six.four(ends, six.bytes[7], six.transport.full, settings);
    let sums = Sums { ipv4: total(&pair(ends)), ipv6: total(&pair6(six.ends())) };
    out.extend(six.transport.translated(sums, settings.udp_checksum_zero));
    out
}

/// The IPv6 headers and the transport header of a packet that an ICMP error quotes.
pub(crate) fn quoted_six(four: &Four, ends: (u128, u128), settings: &ConvertSettings) -> Vec<u8> {
    let mut out = four.six(ends, four.bytes[8], four.transport.full, settings);
    let sums = Sums { ipv4: total(&pair(four.ends())), ipv6: total(&pair6(ends)) };
    out.extend(four.transport.translated(sums, settings.udp_checksum_zero));
    out
}
