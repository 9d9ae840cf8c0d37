//! Stateless translation: addresses by explicit maps (RFC 7757) and by prefixes (RFC 6052), headers
//! by RFC 7915.

use crate::addresses::{is_example, is_global};
use crate::convert::{Addresses, Converter, ErrorMessage, Place, Plain4, Plain6, Refusal};
use crate::eam::Eam;
use crate::embedding::Pref64;
use crate::explanation::Entry;
use crate::nat64::about_ipv4;
use crate::quick::{Passed, is_ordinary_ipv4};
use crate::settings::{Hairpin, SiitSettings};
use crate::translator::{Taken, Translator, cut_of};
use alloc::string::{String, ToString};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, DropReason, Packet, Side, is_martian};
use natgate_wire::protocol;

/// True if an IPv4 address must not stand in a prefix (RFC 6052 section 3.1). Networks for
/// documentation and benchmarks stand for global ones in examples and laboratories, and pass.
#[inline]
pub(crate) fn is_forbidden(prefix: Pref64, address: Ipv4Addr) -> bool {
    //= rfc6052#section-3.1-represent
    //= rfc6052#section-3.1-translate
    //= rfc6052#section-3.1-drop
    //= rfc6052#section-3.4-internet
    prefix.is_well_known() && !is_global(address) && !is_example(address)
}

/// The state of SIIT.
#[derive(Clone, Debug)]
pub(crate) struct Siit {
    settings: SiitSettings,
    maps: Eam,
    converter: Converter,
    /// The second half of a translation that turns round: the hop has been counted.
    turning: Converter,
}

impl Siit {
    pub(crate) fn new(
        settings: SiitSettings,
        converter: Converter,
        turning: Converter,
    ) -> Result<Self, String> {
        let maps = Eam::new(&settings.maps).map_err(|error| error.to_string())?;
        Ok(Self { settings, maps, converter, turning })
    }

    pub(crate) fn has_prefix_of(&self, address: u128) -> bool {
        let address = Ipv6Addr::from_bits(address);
        self.settings.prefixes.iter().any(|prefix| prefix.contains(address))
    }

    /// True if an IPv6 address has an IPv4 one.
    pub(crate) fn has_ipv4(&self, address: u128) -> bool {
        self.maps.to_ipv4(Ipv6Addr::from_bits(address)).is_some() || self.has_prefix_of(address)
    }

    /// The entry that gives an IPv6 address an IPv4 one, and that address.
    pub(crate) fn entry_of_ipv6(&self, address: Ipv6Addr) -> Option<(Entry, Ipv4Addr)> {
        if let (Some(map), Some(to)) = (self.maps.of_ipv6(address), self.maps.to_ipv4(address)) {
            return Some((Entry::Map(map), to));
        }
        let mut prefixes = self.settings.prefixes.iter();
        prefixes.find_map(|prefix| Some((Entry::Prefix(*prefix), prefix.extract(address)?)))
    }

    /// The entry that gives an IPv4 address an IPv6 one, and that address. `maps`: explicit maps
    /// count.
    pub(crate) fn entry_of_ipv4(&self, address: Ipv4Addr, maps: bool) -> Option<(Entry, Ipv6Addr)> {
        if let (true, Some(map)) = (maps, self.maps.of_ipv4(address)) {
            return Some((Entry::Map(map), self.maps.to_ipv6(address)?));
        }
        let prefix = self.settings.prefixes.first()?;
        Some((Entry::Prefix(*prefix), prefix.embed(address)))
    }

    /// True if sources of packets are not looked up in the explicit maps.
    pub(crate) fn is_simple(&self) -> bool {
        self.settings.hairpin == Hairpin::Simple
    }

    /// What translations count.
    pub(crate) fn counts(&self) -> Converter {
        self.converter.clone()
    }

    /// Takes back what translations have counted since.
    pub(crate) fn restore(&mut self, counts: Converter) {
        self.converter = counts;
    }

    /// Translates a plain packet from inside that nothing but its source may stop, to an IPv4
    /// address. `None`: the packet is unchanged, and has to go the complete way.
    #[inline(always)]
    pub(crate) fn pass_ipv6(
        &mut self,
        packet: &mut Packet<'_>,
        plain: &Plain6,
        (destination, by_prefix): (u32, bool),
    ) -> Option<Passed> {
        if !self.converter.passes_to_ipv4(plain) || by_prefix && self.has_map_of(destination) {
            return None;
        }
        let (source, _) = self.ordinary_ipv4(plain.source)?;
        self.converter.plain_to_ipv4(packet, plain, (source, destination));
        Some((Direction::Outbound, Side::Outside, plain.len()))
    }

    /// Translates a plain packet from outside that nothing but its addresses may stop. `None`: as
    /// for [`Siit::pass_ipv6`].
    #[inline(always)]
    pub(crate) fn pass_ipv4(&self, packet: &mut Packet<'_>, plain: &Plain4) -> Option<Passed> {
        if !self.converter.passes_to_ipv6(plain) {
            return None;
        }
        let source = self.ordinary_ipv6(plain.source, !self.is_simple())?;
        let destination = self.ordinary_ipv6(plain.destination, true)?;
        self.converter.plain_to_ipv6(packet, plain, (source, destination));
        Some((Direction::Inbound, Side::Inside, plain.len()))
    }

    /// The IPv4 address of an IPv6 one, and whether a prefix gave it. `None`: there is none, or the
    /// complete way has to decide.
    #[inline(always)]
    pub(crate) fn ordinary_ipv4(&self, address: u128) -> Option<(u32, bool)> {
        let address = Ipv6Addr::from_bits(address);
        let (ipv4, by_prefix) = match self.maps.to_ipv4(address) {
            Some(ipv4) => (ipv4, false),
            None => {
                let mut prefixes = self.settings.prefixes.iter();
                let (prefix, ipv4) = prefixes.find_map(|it| Some((it, it.extract(address)?)))?;
                (self.settings.non_global.permits(*prefix, ipv4).then_some(ipv4)?, true)
            }
        };
        let ipv4 = ipv4.to_bits();
        is_ordinary_ipv4(ipv4).then_some((ipv4, by_prefix))
    }

    /// The IPv6 address of an IPv4 one. `maps`: explicit maps count. `None`: as above.
    #[inline(always)]
    fn ordinary_ipv6(&self, address: u32, maps: bool) -> Option<u128> {
        let address = Ipv4Addr::from_bits(address);
        if let (true, Some(ipv6)) = (maps, self.maps.to_ipv6(address)) {
            return Some(ipv6.to_bits());
        }
        let prefix = self.settings.prefixes.first()?;
        let is_permitted = self.settings.non_global.permits(*prefix, address);
        is_permitted.then(|| prefix.embed(address).to_bits())
    }

    /// True if an explicit map has an IPv4 address.
    #[inline(always)]
    fn has_map_of(&self, address: u32) -> bool {
        self.maps.to_ipv6(Ipv4Addr::from_bits(address)).is_some()
    }
}

/// Findings of the translation of addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// True if the IPv4 destination came from a prefix and an explicit map has it: of a packet, its
    /// destination; of an error, the source of the packet that it quotes.
    turns: bool,
}

/// Addresses of SIIT.
struct Stateless<'s> {
    siit: &'s SiitSettings,
    maps: &'s Eam,
    /// Sources of errors whose own source cannot be translated.
    error_source: (Option<u32>, Option<u128>),
    /// True if sources of packets are not looked up in the explicit maps (RFC 7757 section 4.2.1).
    simple: bool,
    /// True if an error comes from the destination of the packet that it quotes.
    from_receiver: bool,
    found: Found,
}

impl Stateless<'_> {
    /// The IPv4 address of an IPv6 one, and whether a prefix gave it.
    fn ipv4(&self, address: u128) -> Result<(u32, bool), Refusal> {
        let address = Ipv6Addr::from_bits(address);
        //= rfc7915#section-6-7757
        if let Some(ipv4) = self.maps.to_ipv4(address) {
            return Ok((ipv4.to_bits(), false));
        }
        let mut prefixes = self.siit.prefixes.iter();
        //= rfc7915#section-6-6052
        //= rfc7757#section-3.3.2
        let found = prefixes.find_map(|prefix| Some((prefix, prefix.extract(address)?)));
        let untranslatable =
            //= rfc7915#section-5.4-error
            //= rfc7915#section-5.4-type
            Refusal::with(DropReason::Untranslatable, ErrorMessage::PROHIBITED_IPV6);
        let (prefix, ipv4) = found.ok_or(untranslatable)?;
        if !self.siit.non_global.permits(*prefix, ipv4) {
            return Err(DropReason::NotGlobal.into());
        }
        Ok((ipv4.to_bits(), true))
    }

    /// The IPv6 address of an IPv4 one; `maps`: explicit maps count.
    fn ipv6(&self, address: u32, maps: bool) -> Result<u128, Refusal> {
        let address = Ipv4Addr::from_bits(address);
        if let Some(ipv6) = self.maps.to_ipv6(address).filter(|_| maps) {
            return Ok(ipv6.to_bits());
        }
        //= rfc7915#section-4.4-error
        let untranslatable = Refusal::with(DropReason::Untranslatable, ErrorMessage::PROHIBITED);
        let prefix = self.siit.prefixes.first().ok_or(untranslatable)?;
        if !self.siit.non_global.permits(*prefix, address) {
            return Err(DropReason::NotGlobal.into());
        }
        //= rfc6052#section-3.3-prefix
        //= rfc6052#section-3.3-selected
        //= rfc6052#section-3.3-same
        //= rfc7757#section-3.3.1
        Ok(prefix.embed(address).to_bits())
    }

    fn is_mapped(&self, (address, by_prefix): (u32, bool)) -> bool {
        by_prefix && self.maps.to_ipv6(Ipv4Addr::from_bits(address)).is_some()
    }
}

impl Addresses for Stateless<'_> {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        let new_source = match (self.ipv4(source), place) {
            (Ok(found), Place::Error) if !is_martian(found.0) => found,
            (found, Place::Error) => {
                //= rfc7915#section-6-6791
                let none = found.err().map_or(DropReason::MartianSource, |refusal| refusal.reason);
                (self.error_source.0.ok_or(none)?, false)
            }
            (found, _) => found?,
        };
        let new_destination = self.ipv4(destination)?;
        match place {
            Place::Packet => {
                self.found.turns = self.is_mapped(new_destination);
                //= rfc7915#section-5.1-source
                if is_martian(new_source.0) {
                    return Err(DropReason::MartianSource.into());
                }
            }
            Place::Quoted => self.found.turns = self.is_mapped(new_source),
            Place::Error => {}
        }
        if place != Place::Quoted && is_martian(new_destination.0) {
            return Err(DropReason::MartianDestination.into());
        }
        Ok((new_source.0, new_destination.0))
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        let simple = self.simple;
        match place {
            //= rfc7757#section-3.2-each
            //= rfc7757#section-4.2.1-source
            //= rfc7757#section-4.2.1-instead
            Place::Packet => Ok((self.ipv6(source, !simple)?, self.ipv6(destination, true)?)),
            Place::Error => {
                //= rfc7757#section-4.2.1-outer
                let by_maps = !(simple && self.from_receiver);
                let new_source = match self.ipv6(source, by_maps) {
                    Ok(source) => source,
                    Err(refusal) => self.error_source.1.ok_or(refusal.quiet())?,
                };
                Ok((new_source, self.ipv6(destination, true)?))
            }
            //= rfc7757#section-4.2.1-inner
            Place::Quoted => Ok((self.ipv6(source, true)?, self.ipv6(destination, !simple)?)),
        }
    }
}

impl Translator {
    /// True if an IPv6 packet is SIIT's: from inside, to an address with an IPv4 one.
    //= rfc7915#section-5.6-translate
    pub(crate) fn claims_siit(&self, from: Side, destination: u128) -> bool {
        from == Side::Inside && self.siit.as_ref().is_some_and(|siit| siit.has_ipv4(destination))
    }

    /// True if an IPv4 packet from outside to this address is SIIT's.
    //= rfc7915#section-4.6-translate
    pub(crate) fn claims_siit_ipv4(&self, ends: (u32, u32)) -> bool {
        self.siit.as_ref().is_some_and(|siit| {
            siit.has_map_of(ends.1)
                || !siit.settings.prefixes.is_empty() && !self.is_inside_ipv4(ends)
        })
    }

    /// True if an address is in a prefix of SIIT.
    pub(crate) fn is_siit_prefix(&self, address: u128) -> bool {
        self.siit.as_ref().is_some_and(|siit| siit.has_prefix_of(address))
    }

    /// Sources of errors from an address without a counterpart. One origin has one source (RFC 6791
    /// section 3.2).
    fn error_sources(&self, siit: &SiitSettings, origin: u128) -> (Option<u32>, Option<u128>) {
        let folded = origin as u64 ^ (origin >> 64) as u64;
        let folded = (folded ^ folded >> 32).wrapping_mul(0x9e37_79b1) as u32 >> 8;
        let pick = |count: usize| folded as usize % count.max(1);
        //= rfc6791#section-3.1-dropped
        //= rfc6791#section-3.1-private
        let ipv4 = siit.icmp_source_ipv4.get(pick(siit.icmp_source_ipv4.len()));
        let ipv6 = siit.icmp_source_ipv6.get(pick(siit.icmp_source_ipv6.len()));
        let ipv4 = ipv4.map(|address| address.to_bits());
        let ipv6 = ipv6.map(|address| address.to_bits());
        (
            ipv4.or_else(|| self.error_source_ipv4(Side::Outside)),
            ipv6.or_else(|| self.own_ipv6(Side::Inside)),
        )
    }

    /// Translates a packet from inside to IPv4; back to IPv6 if it turns round.
    pub(crate) fn siit_to_ipv4(&mut self, packet: &mut Packet<'_>) -> Taken {
        let Some(siit) = &self.siit else { return Err(DropReason::NoRoute.into()) };
        let origin = natgate_wire::Ipv6::new_header_checked(packet.bytes());
        let error_source = match origin {
            // This packet is no error.
            Ok(header) if is_udp_or_tcp(header.next_header()) => (None, None),
            origin => {
                let origin = origin.map_or(0, |header| header.source());
                self.error_sources(&siit.settings, origin)
            }
        };
        let Some(siit) = &mut self.siit else { return Err(DropReason::NoRoute.into()) };
        let Siit { settings, maps, converter, turning } = siit;
        let mut addresses = Stateless {
            siit: settings,
            maps,
            error_source,
            simple: false,
            from_receiver: false,
            found: Found::default(),
        };
        let cut = cut_of(converter.to_ipv4(packet, &mut addresses)?);
        //= rfc7757#section-4.2
        //= rfc7757#section-4.2.2
        if !addresses.found.turns || settings.hairpin != Hairpin::Intrinsic {
            return Ok((Direction::Outbound, Side::Outside, cut));
        }
        //= rfc7757#section-4.2.2-rules
        addresses.simple = true;
        addresses.from_receiver = is_from_receiver(packet.bytes());
        //= rfc7757#section-4.2.2-hop
        let converted = turning.to_ipv6(packet, &mut addresses);
        // The packet has changed, so no error can quote it.
        let converted = converted.map_err(|refusal| refusal.quiet())?;
        Ok((Direction::Hairpin, Side::Inside, cut_of(converted)))
    }

    /// Translates a packet from outside to IPv6.
    pub(crate) fn siit_to_ipv6(&mut self, packet: &mut Packet<'_>) -> Taken {
        let Some(siit) = &self.siit else { return Err(DropReason::NoRoute.into()) };
        let origin = natgate_wire::Ipv4::new_header_checked(packet.bytes());
        let (error_source, from_receiver) = match origin {
            // This packet is no error.
            Ok(header) if is_udp_or_tcp(header.protocol()) => ((None, None), false),
            origin => {
                let origin = origin.map_or(0, |header| header.source().into());
                let error_source = self.error_sources(&siit.settings, origin);
                (error_source, is_from_receiver(packet.bytes()))
            }
        };
        let mut addresses = Stateless {
            siit: &siit.settings,
            maps: &siit.maps,
            error_source,
            simple: siit.settings.hairpin == Hairpin::Simple,
            from_receiver,
            found: Found::default(),
        };
        let converted = siit.converter.to_ipv6(packet, &mut addresses)?;
        Ok((Direction::Inbound, Side::Inside, cut_of(converted)))
    }
}

/// True for the protocols of most packets.
fn is_udp_or_tcp(protocol: u8) -> bool {
    matches!(protocol, protocol::UDP | protocol::TCP)
}

/// True if an ICMP error comes from the destination of the packet that it quotes.
fn is_from_receiver(packet: &[u8]) -> bool {
    let source = natgate_wire::Ipv4::new_header_checked(packet).map(|header| header.source());
    about_ipv4(packet).is_some_and(|about| source == Ok(about))
}
