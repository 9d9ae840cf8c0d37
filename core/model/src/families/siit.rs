//! SIIT (specification, 19.18 to 19.20): addresses by explicit maps (RFC 7757), else by a prefix
//! (RFC 6052).

use super::headers::{to_ipv4, to_ipv6};
use super::{Families, Passed};
use crate::bytes::is_martian;
use natgate_engine::{Config, Direction, DropReason, Match, RuleAction, Side};
use natgate_ipv6::convert::{Addresses, ErrorMessage, Hops, Place, Refusal};
use natgate_ipv6::{EamEntry, Hairpin, NonGlobal, Pref64, SiitSettings};
use std::net::Ipv4Addr;

/// The IPv4 address in an address with a prefix of RFC 6052.
pub(crate) fn extract(prefix: Pref64, address: u128) -> Option<u32> {
    let network = prefix.prefix();
    let bytes = address.to_be_bytes();
    let len = usize::from(network.len) / 8;
    if bytes[..len] != network.first().octets()[..len] {
        return None;
    }
    // Byte 8 is reserved.
    let places = (len..16).filter(|place| *place != 8 || len == 12);
    Some(places.take(4).fold(0, |ipv4, place| ipv4 << 8 | u32::from(bytes[place])))
}

/// The address with a prefix that has an IPv4 address in it.
pub(crate) fn embed(prefix: Pref64, ipv4: u32) -> u128 {
    let network = prefix.prefix();
    let mut bytes = network.first().octets();
    let len = usize::from(network.len) / 8;
    let places = (len..16).filter(|place| *place != 8 || len == 12);
    for (place, byte) in places.zip(ipv4.to_be_bytes()) {
        bytes[place] = byte;
    }
    u128::from_be_bytes(bytes)
}

/// 19.12: true if a prefix must not have an IPv4 address in it.
pub(crate) fn is_refused(prefix: Pref64, ipv4: u32, non_global: NonGlobal) -> bool {
    let well_known = u128::from_be_bytes([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let network = prefix.prefix();
    let is_well_known = network.len == 96 && network.first().to_bits() == well_known;
    is_well_known && !is_global(ipv4) && non_global == NonGlobal::Refuse
}

/// True except for special-purpose addresses (RFC 6890). Networks for documentation and benchmarks
/// count as global (19.12).
fn is_global(ipv4: u32) -> bool {
    let [a, b, c, _] = ipv4.to_be_bytes();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0)
            | (192, 168, _)
    )
}

/// An address, and whether a prefix gave it.
type ByPrefix<T> = (T, bool);

/// The translation of addresses.
struct Table<'f> {
    settings: &'f SiitSettings,
    /// Sources of errors whose own source has no translation (19.19).
    error_source: (Option<u32>, Option<u128>),
    /// True if sources of packets come from the prefix, not from explicit maps (19.20).
    simple: bool,
    /// True if an error comes from the destination of the packet that it quotes.
    from_receiver: bool,
    /// True if the IPv4 destination came from a prefix and has an explicit map; for an ICMP error,
    /// if this is so of the source of the quoted packet.
    turns: bool,
}

fn untranslatable(error: ErrorMessage) -> Refusal {
    Refusal::with(DropReason::Untranslatable, error)
}

impl Table<'_> {
    /// The explicit map with the longest prefix.
    fn map_of(&self, is_in: impl Fn(&EamEntry) -> Option<u8>) -> Option<EamEntry> {
        let maps = self.settings.maps.iter();
        let found = maps.filter_map(|map| Some((is_in(map)?, *map)));
        found.max_by_key(|(len, _)| *len).map(|(_, map)| map)
    }

    fn map_of_ipv4(&self, address: u32) -> Option<EamEntry> {
        self.map_of(|map| map.ipv4.contains(address).then(|| map.ipv4.len()))
    }

    fn map_of_ipv6(&self, address: u128) -> Option<EamEntry> {
        self.map_of(|map| map.ipv6.contains(address.into()).then_some(map.ipv6.len))
    }

    fn prefix_of(&self, address: u128) -> Option<(Pref64, u32)> {
        let mut prefixes = self.settings.prefixes.iter();
        prefixes.find_map(|prefix| Some((*prefix, extract(*prefix, address)?)))
    }

    fn ipv4(&self, address: u128) -> Result<ByPrefix<u32>, Refusal> {
        if let Some(map) = self.map_of_ipv6(address) {
            let suffix = (address - map.ipv6.first().to_bits()) >> zeros(&map);
            return Ok((map.ipv4.first() + suffix as u32, false));
        }
        let found = self.prefix_of(address).ok_or(untranslatable(PROHIBITED6))?;
        match is_refused(found.0, found.1, self.settings.non_global) {
            true => Err(DropReason::NotGlobal.into()),
            false => Ok((found.1, true)),
        }
    }

    fn ipv6(&self, address: u32, by_map: bool) -> Result<u128, Refusal> {
        if let Some(map) = self.map_of_ipv4(address).filter(|_| by_map) {
            let suffix = u128::from(address - map.ipv4.first()) << zeros(&map);
            return Ok(map.ipv6.first().to_bits() + suffix);
        }
        let prefix = self.settings.prefixes.first().ok_or(untranslatable(PROHIBITED))?;
        match is_refused(*prefix, address, self.settings.non_global) {
            true => Err(DropReason::NotGlobal.into()),
            false => Ok(embed(*prefix, address)),
        }
    }

    fn is_mapped(&self, (address, by_prefix): ByPrefix<u32>) -> bool {
        by_prefix && self.map_of_ipv4(address).is_some()
    }
}

const PROHIBITED: ErrorMessage = ErrorMessage::new(3, 13, 0);
const PROHIBITED6: ErrorMessage = ErrorMessage::new(1, 1, 0);

/// The zero bits behind the suffix in an IPv6 address of a map; at most 127.
fn zeros(map: &EamEntry) -> u32 {
    let zeros = u32::from(128 - map.ipv6.len) - u32::from(32 - map.ipv4.len());
    zeros.min(127)
}

impl Addresses for Table<'_> {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        let source = self.ipv4(source);
        // 19.19: an address that no packet may have is none.
        let source = match (place, source) {
            (Place::Error, Ok((source, _))) if !is_martian(source) => (source, false),
            (Place::Error, found) => {
                let none = found.err().map_or(DropReason::MartianSource, |one| one.reason);
                (self.error_source.0.ok_or(none)?, false)
            }
            (_, found) => found?,
        };
        let destination = self.ipv4(destination)?;
        match place {
            Place::Packet if is_martian(source.0) => return Err(DropReason::MartianSource.into()),
            Place::Packet => self.turns = self.is_mapped(destination),
            Place::Quoted => self.turns = self.is_mapped(source),
            Place::Error => {}
        }
        if place != Place::Quoted && is_martian(destination.0) {
            return Err(DropReason::MartianDestination.into());
        }
        Ok((source.0, destination.0))
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        let by_map = !self.simple;
        match place {
            Place::Packet => Ok((self.ipv6(source, by_map)?, self.ipv6(destination, true)?)),
            Place::Quoted => Ok((self.ipv6(source, true)?, self.ipv6(destination, by_map)?)),
            Place::Error => {
                let found = self.ipv6(source, by_map || !self.from_receiver);
                let source = match found {
                    Ok(source) => source,
                    Err(refusal) => self.error_source.1.ok_or(refusal.reason)?,
                };
                Ok((source, self.ipv6(destination, true)?))
            }
        }
    }
}

impl Families {
    fn table<'f>(&'f self, settings: &'f SiitSettings, simple: bool, bytes: &[u8]) -> Table<'f> {
        Table {
            settings,
            error_source: (self.substitute(settings, bytes), self.substitute6(settings, bytes)),
            simple,
            from_receiver: is_from_receiver(bytes),
            turns: false,
        }
    }

    /// 19.19: the source of an error from a router without a translation.
    fn substitute(&self, siit: &SiitSettings, bytes: &[u8]) -> Option<u32> {
        let chosen = chosen(siit.icmp_source_ipv4.len(), bytes);
        let configured = siit.icmp_source_ipv4.get(chosen).copied();
        configured.or(self.error_source(Side::Outside)).map(|address| address.to_bits())
    }

    fn substitute6(&self, siit: &SiitSettings, bytes: &[u8]) -> Option<u128> {
        let configured = siit.icmp_source_ipv6.get(chosen(siit.icmp_source_ipv6.len(), bytes));
        let configured = configured.map(|address| address.to_bits());
        configured.or(self.error_source6(Side::Inside))
    }

    pub(crate) fn siit_claims_ipv6(&self, destination: u128) -> bool {
        let Some(siit) = &self.settings.siit else { return false };
        let has_map = siit.maps.iter().any(|map| map.ipv6.contains(destination.into()));
        has_map || self.is_siit_prefix(destination)
    }

    pub(crate) fn is_siit_prefix(&self, address: u128) -> bool {
        let Some(siit) = &self.settings.siit else { return false };
        siit.prefixes.iter().any(|prefix| extract(*prefix, address).is_some())
    }

    pub(crate) fn siit_claims_ipv4(&self, ends: (Ipv4Addr, Ipv4Addr)) -> bool {
        let Some(siit) = &self.settings.siit else { return false };
        let has_map = siit.maps.iter().any(|map| map.ipv4.contains(ends.1.to_bits()));
        has_map || !siit.prefixes.is_empty() && !self.is_for_host_inside(ends)
    }

    /// 19.5: true if a packet from outside is for a host of IPv4 inside, of any realm.
    fn is_for_host_inside(&self, (remote, host): (Ipv4Addr, Ipv4Addr)) -> bool {
        let Config { inside, inside_routes, rules, subscribers, realms, .. } = &self.config;
        let ours = (inside.network, inside_routes, rules, subscribers);
        let realms = realms.iter().filter(|realm| realm.host_bits.is_none());
        let realms = realms.map(|realm| {
            (realm.inside.network, &realm.inside_routes, &realm.rules, &realm.subscribers)
        });
        let all: Vec<_> = core::iter::once(ours).chain(realms).collect();
        let bypasses = |names: &dyn Fn(Match) -> bool| {
            let mut rules = all.iter().flat_map(|(_, _, rules, _)| rules.iter());
            rules.any(|rule| rule.action == RuleAction::Bypass && names(rule.matches))
        };
        let is_subscriber = all.iter().any(|(_, _, _, subscribers)| {
            subscribers.iter().any(|prefix| prefix.contains(host.to_bits()))
        });
        let is_near = all.iter().any(|(network, routes, _, _)| {
            network.is_some_and(|network| network.contains(host.to_bits()))
                || routes.iter().any(|range| range.contains(host))
        });
        is_near
            || bypasses(&|named| match named {
                Match::Source(prefix, _) if prefix.is_empty() => is_subscriber,
                Match::Source(prefix, _) => prefix.contains(host.to_bits()),
                Match::Destination(prefix, _) => is_subscriber && prefix.contains(remote.to_bits()),
            })
    }

    /// A packet from inside, to IPv4; and back, if it turns round (19.20).
    pub(crate) fn siit_to_ipv4(&self, bytes: &[u8]) -> Result<Passed, Refusal> {
        let siit = self.settings.siit.as_ref().expect("SIIT claimed the packet");
        let mut table = self.table(siit, false, bytes);
        let settings = self.conversion(Side::Inside, Hops::Decrement);
        let (ipv4, limit) = to_ipv4(bytes, &settings, &mut table)?;
        if !table.turns || siit.hairpin != Hairpin::Intrinsic {
            let (direction, side) = (Direction::Outbound, Side::Outside);
            return Ok(Passed { direction, side, answers: false, bytes: ipv4, limit });
        }
        let mut back = self.table(siit, true, bytes);
        back.from_receiver = is_from_receiver(&ipv4);
        let settings = self.conversion(Side::Inside, Hops::Keep);
        let turned = to_ipv6(&ipv4, &settings, &mut back);
        let (bytes, limit) = turned.map_err(|refusal| Refusal::from(refusal.reason))?;
        let (direction, side) = (Direction::Hairpin, Side::Inside);
        Ok(Passed { direction, side, answers: false, bytes, limit })
    }

    /// A packet from outside, to IPv6.
    pub(crate) fn siit_to_ipv6(&self, bytes: &[u8]) -> Result<Passed, Refusal> {
        let siit = self.settings.siit.as_ref().expect("SIIT claimed the packet");
        let mut table = self.table(siit, siit.hairpin == Hairpin::Simple, bytes);
        let settings = self.conversion(Side::Inside, Hops::Decrement);
        let (bytes, limit) = to_ipv6(bytes, &settings, &mut table)?;
        let (direction, side) = (Direction::Inbound, Side::Inside);
        Ok(Passed { direction, side, answers: false, bytes, limit })
    }
}

/// The place of the address that stands for the source of a packet, among `count`.
fn chosen(count: usize, bytes: &[u8]) -> usize {
    let source = match bytes[0] >> 4 {
        6 => super::headers::address(bytes, 8),
        _ => super::addresses(bytes).0.to_bits().into(),
    };
    let folded = source as u64 ^ (source >> 64) as u64;
    let folded = (folded ^ folded >> 32).wrapping_mul(0x9e37_79b1) as u32 >> 8;
    folded as usize % count.max(1)
}

/// True if an IPv4 error comes from the destination of the packet that it quotes.
fn is_from_receiver(bytes: &[u8]) -> bool {
    use super::headers::Four;
    let Ok(four) = Four::read(bytes, false) else { return false };
    let quoted = four.transport.bytes.get(8..).and_then(|quote| Four::read(quote, true).ok());
    four.is_error() && quoted.is_some_and(|quoted| quoted.destination == four.source)
}
