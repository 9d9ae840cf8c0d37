//! 19.9: the ICMP errors that the gateway makes by section 19.

use super::headers::{Four, Six};
use super::words::{checksum_of, pair, pair6, put, total, total_icmpv6};
use super::{Families, is_martian};
use crate::Transmit;
use natgate_engine::{Side, Timestamp};
use natgate_ipv6::convert::ErrorMessage;
use natgate_ipv6::requester_of;
use natgate_wire::protocol::{ICMP, ICMPV6};
use std::net::Ipv4Addr;

impl Families {
    /// Makes the error about a packet as received, unless none is due.
    pub(crate) fn answer(
        &mut self,
        now: Timestamp,
        side: Side,
        received: &[u8],
        message: ErrorMessage,
    ) {
        let link = if side == Side::Inside { self.settings.inside } else { self.settings.outside };
        let is_six = received[0] >> 4 == 6;
        let may_be = if is_six { may_answer6(received, message) } else { may_answer(received) };
        if link.icmp_errors && !may_be {
            return;
        }
        let bytes = match is_six {
            true => {
                let source = self.error_source6(side);
                source.map(|source| self.error6(source, received, message))
            }
            false => self.error4(side, received, message),
        };
        let requester = match is_six {
            true => requester_of((super::headers::address(received, 8) >> 64) as u64),
            false => Four::read(received, true).map_or(0, |four| four.source),
        };
        self.send_own(now, side, requester, bytes);
    }

    /// Sends an error to a side, unless errors are off there or the rates forbid it.
    pub(crate) fn send_own(
        &mut self,
        now: Timestamp,
        side: Side,
        requester: u32,
        bytes: Option<Vec<u8>>,
    ) {
        let link = if side == Side::Inside { self.settings.inside } else { self.settings.outside };
        let rate = self.config.limits.icmp_errors_per_second;
        let bytes = bytes.filter(|_| link.icmp_errors);
        let is_too_big = bytes.as_deref().is_some_and(is_too_big);
        let rates = if is_too_big { &mut self.too_big } else { &mut self.errors };
        match bytes.filter(|_| rates.take(now, requester, rate)) {
            None => self.counters.errors_suppressed += 1,
            Some(bytes) => {
                self.counters.generated += 1;
                self.made.push(Transmit { time: now, side, realm: 0, bytes });
            }
        }
    }

    /// The source of an IPv4 error to a side.
    pub(crate) fn error_source(&self, side: Side) -> Option<Ipv4Addr> {
        let siit = self.settings.siit.as_ref();
        let stand_in = match side {
            Side::Inside => Some(Ipv4Addr::new(192, 0, 0, 8)),
            Side::Outside => siit.and_then(|siit| siit.icmp_source_ipv4.first().copied()),
        };
        self.own_ipv4(side).or(stand_in)
    }

    /// The own IPv6 address of a side, else of the other side.
    pub(crate) fn error_source6(&self, side: Side) -> Option<u128> {
        self.own_ipv6(side).or(self.own_ipv6(side.other()))
    }

    pub(crate) fn error6(&self, source: u128, quoted: &[u8], message: ErrorMessage) -> Vec<u8> {
        let ends = (source, super::headers::address(quoted, 8));
        let mut error = head(message);
        error.extend(&quoted[..quoted.len().min(1280 - 48)]);
        let checksum = checksum_of(total_icmpv6(ends, &error));
        put(&mut error, 2, checksum);
        let mut out = vec![0x60, 0, 0, 0, 0, 0, ICMPV6, 64];
        // 8.2: the differentiated services of the packet.
        let class = (quoted[0] << 4 | quoted[1] >> 4) & !0b11;
        (out[0], out[1]) = (0x60 | class >> 4, class << 4);
        put(&mut out, 4, error.len() as u16);
        out.extend(pair6(ends));
        out.extend(error);
        out
    }

    fn error4(&self, side: Side, quoted: &[u8], message: ErrorMessage) -> Option<Vec<u8>> {
        let source = self.error_source(side)?.to_bits();
        Some(error4(source, self.mtu(side).into(), quoted, message))
    }
}

/// An error to the sender of an IPv4 packet, over a link of this width.
pub(crate) fn error4(source: u32, mtu: usize, quoted: &[u8], message: ErrorMessage) -> Vec<u8> {
    let destination = Four::read(quoted, true).map_or(0, |four| four.source);
    let mut error = head(message);
    error.extend(&quoted[..quoted.len().min(576.min(mtu) - 28)]); // 8.1
    let checksum = checksum_of(total(&error));
    put(&mut error, 2, checksum);
    // 8.2
    let mut out = vec![0x45, quoted[1] & !0b11, 0, 0, 0, 0, 0x40, 0, 64, ICMP, 0, 0];
    out.extend(pair((source, destination)));
    put(&mut out, 2, (20 + error.len()) as u16);
    let checksum = checksum_of(total(&out));
    put(&mut out, 10, checksum);
    out.extend(error);
    out
}

/// True if an error, which may be in a tunnel, is ICMPv6 2/0 or ICMP 3/4.
fn is_too_big(bytes: &[u8]) -> bool {
    match (bytes[0] >> 4, bytes[6]) {
        (6, ICMPV6) => bytes[40] == 2,
        (6, _) => bytes[60..62] == [3, 4],
        _ => bytes[20..22] == [3, 4],
    }
}

fn head(ErrorMessage { kind, code, word }: ErrorMessage) -> Vec<u8> {
    [&[kind, code, 0, 0], &word.to_be_bytes()[..]].concat()
}

/// Not about a multicast, an ICMPv6 error, or a redirect (RFC 4443 section 2.4).
pub(super) fn may_answer6(quoted: &[u8], message: ErrorMessage) -> bool {
    let (source, destination) =
        (super::headers::address(quoted, 8), super::headers::address(quoted, 24));
    let is_too_big = message.kind == 2;
    if is_martian(source) || destination >> 120 == 0xff && !is_too_big {
        return false;
    }
    let Ok(six) = Six::read(quoted, false) else { return false };
    // Behind an authentication header.
    let bytes = six.transport.bytes;
    let (protocol, at) = match (six.transport.protocol, bytes) {
        (51, [next, words, ..]) => (*next, usize::from(*words) * 4 + 8),
        (protocol, _) => (protocol, 0),
    };
    let is_error = |kind: &u8| *kind < 128 || *kind == 137;
    let is_first = six.transport.offset == 0;
    !(is_first && protocol == ICMPV6 && bytes.get(at).is_some_and(is_error))
}

/// Not about a multicast, an ICMP error, or a fragment other than the first (8.5).
pub(super) fn may_answer(quoted: &[u8]) -> bool {
    let Ok(four) = Four::read(quoted, true) else { return false };
    let is_host = |address: u32| !matches!(address >> 24, 0 | 127 | 224..=255);
    is_host(four.source)
        && is_host(four.destination)
        && four.transport.offset == 0
        && !four.is_error()
}
