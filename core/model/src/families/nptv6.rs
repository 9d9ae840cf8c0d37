//! IPv6 that stays IPv6 (specification, 19.22 and 19.23): the prefixes of NPTv6 (RFC 6296), and
//! routing.

use super::headers::{Six, address};
use super::siit::extract;
use super::{Families, Passed, message};
use natgate_engine::{Direction, DropReason, Side, Timestamp};
use natgate_ipv6::convert::{ErrorMessage, Refusal};
use natgate_ipv6::{Nptv6Settings, Prefix6};
use std::net::Ipv6Addr;

/// Offsets of the addresses in a header.
const SOURCE: usize = 8;
const DESTINATION: usize = 24;

/// Reasons why an address has no translation.
enum Unmapped {
    /// The subnet has no translation (RFC 6296 section 3.2).
    Subnet,
    /// The interface identifier has no translation (RFC 6296 section 3.7).
    Identifier,
}

/// One's complement sum.
fn add(a: u16, b: u16) -> u16 {
    let sum = u32::from(a) + u32::from(b);
    (sum % 0x1_0000 + sum / 0x1_0000) as u16
}

fn sum(prefix: Prefix6) -> u16 {
    prefix.first().segments().into_iter().fold(0, add)
}

/// An address with the prefix `to` in place of `from`, and a word that makes up for the difference.
fn translated(address: u128, from: Prefix6, to: Prefix6) -> Result<u128, Unmapped> {
    let len = from.len.max(to.len); // RFC 6296 section 3.1
    if !(Prefix6 { address: from.first(), len }).contains(address.into()) {
        return Err(Unmapped::Subnet);
    }
    let host = address & (u128::MAX >> len);
    let words = Ipv6Addr::from(address).segments();
    let place = if len <= 48 {
        3 // RFC 6296 section 3.4
    } else {
        if words[4..] == [0; 4] {
            return Err(Unmapped::Identifier);
        }
        // RFC 6296 section 3.5. A word that is part of the prefix cannot change.
        let mut places = (4..8).filter(|place| place * 16 >= usize::from(len));
        places.find(|place| words[*place] != 0xffff).ok_or(Unmapped::Identifier)?
    };
    let mut words = Ipv6Addr::from(to.first().to_bits() | host).segments();
    words[place] = add(words[place], add(sum(from), !sum(to)));
    if words[place] == 0xffff {
        words[place] = 0;
    }
    Ok(Ipv6Addr::from(words).to_bits())
}

fn outward(pair: &Nptv6Settings, address: u128) -> Result<u128, Unmapped> {
    let (internal, external) = (pair.pair.internal(), pair.pair.external());
    // RFC 6296 section 3.2: subnet 0xffff has no mapping.
    let is_short = internal.len.max(external.len) <= 48;
    match is_short && Ipv6Addr::from(address).segments()[3] == 0xffff {
        true => Err(Unmapped::Subnet),
        false => translated(address, internal, external),
    }
}

fn inward(pair: &Nptv6Settings, address: u128) -> Result<u128, Unmapped> {
    translated(address, pair.pair.external(), pair.pair.internal())
}

/// Replaces the address at an offset, with the answer of 19.22 if it has no translation.
fn replace(
    bytes: &mut [u8],
    at: usize,
    pair: Option<&Nptv6Settings>,
    translate: fn(&Nptv6Settings, u128) -> Result<u128, Unmapped>,
) -> Result<(), Refusal> {
    let Some(pair) = pair else { return Ok(()) };
    let new = translate(pair, address(bytes, at)).map_err(|unmapped| {
        let error = match (unmapped, at) {
            (Unmapped::Subnet, SOURCE) => message(1, 1),
            (Unmapped::Subnet, _) => message(1, 0),
            (Unmapped::Identifier, _) => ErrorMessage::new(4, 0, at as u32),
        };
        match pair.icmp_errors {
            true => Refusal::with(DropReason::Untranslatable, error),
            false => Refusal::silent(DropReason::Untranslatable),
        }
    })?;
    bytes[at..at + 16].copy_from_slice(&new.to_be_bytes());
    Ok(())
}

/// The offset of the packet that an ICMPv6 error quotes, if its fixed header is there.
fn quote_at(bytes: &[u8]) -> Option<usize> {
    let six = Six::read(bytes, false).ok().filter(Six::is_error)?;
    let quote = six.transport.bytes.get(8..)?;
    (quote.len() >= 40 && quote[0] >> 4 == 6).then_some(six.at + 8)
}

impl Families {
    fn internal(&self, address: u128) -> Option<&Nptv6Settings> {
        let mut pairs = self.settings.nptv6.iter();
        pairs.find(|pair| pair.pair.internal().contains(address.into()))
    }

    fn external(&self, address: u128) -> Option<&Nptv6Settings> {
        let mut pairs = self.settings.nptv6.iter();
        pairs.find(|pair| pair.pair.external().contains(address.into()))
    }

    /// 19.22, for a packet from inside.
    fn translate_outbound(&self, bytes: &mut [u8], turns: bool) -> Result<(), Refusal> {
        let (source, destination) = (address(bytes, SOURCE), address(bytes, DESTINATION));
        replace(bytes, SOURCE, self.internal(source), outward)?;
        replace(bytes, DESTINATION, self.external(destination), inward)?;
        // The quoted packet went to the sender of the error. Its own sender knows external
        // addresses, and its internal one if it is inside.
        if let Some(at) = quote_at(bytes) {
            let quote = &mut bytes[at..];
            let (source, destination) = (address(quote, SOURCE), address(quote, DESTINATION));
            let _ = replace(quote, DESTINATION, self.internal(destination), outward);
            if turns {
                let _ = replace(quote, SOURCE, self.external(source), inward);
            }
        }
        Ok(())
    }

    /// 19.22, for a packet from outside.
    fn translate_inbound(&self, bytes: &mut [u8]) -> Result<(), Refusal> {
        let destination = self.external(address(bytes, DESTINATION));
        replace(bytes, DESTINATION, destination, inward)?;
        if let Some(at) = quote_at(bytes).filter(|_| destination.is_some()) {
            let quote = &mut bytes[at..];
            let _ = replace(quote, SOURCE, self.external(address(quote, SOURCE)), inward);
        }
        Ok(())
    }

    /// A packet that no table between the families claims.
    pub(crate) fn route(
        &mut self,
        now: Timestamp,
        from: Side,
        received: &[u8],
    ) -> Result<Passed, Refusal> {
        let (source, destination) = (address(received, SOURCE), address(received, DESTINATION));
        if from == Side::Outside && self.is_between_families(destination) {
            return Err(DropReason::NotForUs.into()); // 19.4
        }
        let is_external = self.external(destination).is_some();
        let turns = from == Side::Inside && is_external;
        let is_internal = from == Side::Inside && self.internal(source).is_some();
        if !turns && self.is_beside(from, destination) {
            return Err(DropReason::SameSide.into());
        }
        if self.has_filter() {
            if is_deprecated(source) {
                return Err(DropReason::MartianSource.into());
            }
            if is_deprecated(destination) {
                return Err(DropReason::MartianDestination.into());
            }
            let is_external = from == Side::Outside && self.external(source).is_some();
            if is_external || self.is_beside(from.other(), source) {
                return Err(DropReason::SpoofedSource.into());
            }
            let six = Six::read(received, false).ok();
            let left = six.and_then(|six| six.segments_left);
            if left.is_some_and(|at| received[at - 1] == 0) {
                return Err(DropReason::SegmentsLeft.into());
            }
        }
        if !self.settings.forwarding && !is_external && !is_internal {
            return Err(DropReason::NoRoute.into());
        }
        if received[7] <= 1 {
            return Err(Refusal::with(DropReason::TtlExceeded, message(3, 0))); // 19.6
        }
        let side = if turns { Side::Inside } else { from.other() };
        if received.len() > self.mtu(side).into() {
            let error = ErrorMessage::packet_too_big(self.mtu(side).into());
            return Err(Refusal::with(DropReason::TooBig, error));
        }
        let mut bytes = received.to_vec();
        let direction = match (from, turns) {
            (Side::Inside, true) => Direction::Hairpin,
            (Side::Inside, false) => Direction::Outbound,
            (Side::Outside, _) => Direction::Inbound,
        };
        match from {
            Side::Inside => {
                self.translate_outbound(&mut bytes, turns)?;
                self.note_sender(now, received)?;
            }
            Side::Outside => {
                self.translate_inbound(&mut bytes)?;
                self.check_asked_for(now, &bytes, received)?;
            }
        }
        bytes[7] -= 1;
        Ok(Passed { direction, side, answers: false, bytes, limit: None })
    }

    /// 19.23: true if an address is in the network of a side. Of two such networks the smaller one
    /// counts. Internal prefixes are inside.
    fn is_beside(&self, side: Side, address: u128) -> bool {
        let network = |side: Side| {
            let link =
                if side == Side::Inside { self.settings.inside } else { self.settings.outside };
            let network = link.address.map(|(address, len)| Prefix6 { address, len });
            network
                .filter(|network| network.contains(address.into()))
                .map_or(-1, |network| i32::from(network.len))
        };
        network(side) > network(side.other())
            || side == Side::Inside && self.internal(address).is_some()
    }

    /// True if packets from inside to an address are translated to IPv4 by a prefix.
    fn is_between_families(&self, destination: u128) -> bool {
        let nat64 = self.settings.nat64.iter().flat_map(|nat64| &nat64.prefixes);
        let mut nat64 = nat64.filter(|prefix| extract(**prefix, destination).is_some());
        nat64.next().is_some() || self.is_siit_prefix(destination)
    }
}

/// 19.24: site-local addresses, IPv4-compatible addresses, identifiers of RFC 4843.
fn is_deprecated(address: u128) -> bool {
    let [first, second, middle @ .., _, _] = Ipv6Addr::from(address).segments();
    let is_compatible = first == 0 && second == 0 && middle == [0; 4];
    (0xfec0..=0xfeff).contains(&first)
        || first == 0x2001 && (0x10..=0x1f).contains(&second)
        || is_compatible
}
