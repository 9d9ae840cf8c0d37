//! Settings of all that IPv6 has part in.
//!
//! The settings are plain: the configuration makes them, after its checks. Inside is the IPv6 side
//! of a translation between families and outside the IPv4 side; for a CLAT it is the other way
//! round.

use crate::convert::{ConvertSettings, Hops, UdpChecksumZero};
use crate::hosts::{Hosts, MOST_HOST_BITS, SUBSCRIBERS};
use crate::realms::{HostKind, HostRealms};
use crate::share::Share;
use crate::siit::is_forbidden;
use crate::softwire::{DsliteSettings, Lw4o6Settings, MapSettings};
use crate::translator::filter_records;
use crate::{EamEntry, Nptv6, Pref64, Prefix6};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Config, Prefix};

/// All settings of IPv6. The default has no translation and no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// True if the configuration says anything about IPv6.
    pub configured: bool,
    /// The inside link.
    pub inside: Side6,
    /// The outside link.
    pub outside: Side6,
    /// True if packets that no translation claims are routed.
    pub forwarding: bool,
    /// The filter of routed packets.
    pub filter: Filter,
    /// Conversion between headers of the two families.
    pub conversion: Conversion,
    /// Stateful translation, RFC 6146.
    pub nat64: Option<Nat64Settings>,
    /// Stateless translation, RFC 7915.
    pub siit: Option<SiitSettings>,
    /// The customer's side of 464XLAT, RFC 6877.
    pub clat: Option<ClatSettings>,
    /// Translation of prefixes, RFC 6296. No two pairs overlap.
    pub nptv6: Vec<Nptv6Settings>,
    /// The AFTR of DS-Lite, RFC 6333.
    pub dslite: Option<DsliteSettings>,
    /// The relay of lw4o6, RFC 7596.
    pub lw4o6: Option<Lw4o6Settings>,
    /// The border relay of MAP, RFC 7597 and RFC 7599: one rule each.
    pub map: Vec<MapSettings>,
    /// The part of the work that the translator has.
    pub share: Share,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            configured: false,
            inside: Side6::default(),
            outside: Side6::default(),
            forwarding: true,
            filter: Filter::None,
            conversion: Conversion::default(),
            nat64: None,
            siit: None,
            clat: None,
            nptv6: Vec::new(),
            dslite: None,
            lw4o6: None,
            map: Vec::new(),
            share: Share::default(),
        }
    }
}

impl Settings {
    /// Own IPv6 addresses, inside and outside.
    #[inline]
    pub(crate) fn own_addresses(&self) -> [Option<u128>; 2] {
        let address = |own: Option<(Ipv6Addr, u8)>| own.map(|(address, _)| address.to_bits());
        [address(self.inside.address), address(self.outside.address)]
    }

    /// Bits that the IPv6 addresses of a subscriber have in common, if there are hosts of a kind.
    pub fn subscriber_length(&self, kind: HostKind) -> Option<u8> {
        match kind {
            HostKind::Nat64 => self.nat64.as_ref().map(|nat64| nat64.subscriber_length),
            HostKind::Dslite => self.dslite.as_ref().map(|dslite| dslite.subscriber_length),
        }
    }

    /// Bytes of the tables of a translator, whose part of the work is [`share`](Self::share):
    /// hosts with numbers, prefixes of sessions, the filter. Other tables are small or are in the
    /// settings.
    pub fn memory(&self, config: &Config) -> u64 {
        let most = config.limits.subscribers.map_or(SUBSCRIBERS, |most| most as usize);
        let tables = HostKind::ALL.iter().filter_map(|kind| self.host_bits(*kind));
        let hosts: u64 = tables.map(|bits| Hosts::memory(bits, most, self.share)).sum();
        let prefixes = self.nat64.as_ref().map_or(0, |nat64| nat64.prefixes_memory(config));
        let filter = match self.filter {
            Filter::OutboundOnly => crate::filter::Filter::memory(filter_records(config)),
            Filter::None => 0,
        };
        hosts + prefixes + filter
    }

    /// Bits by which several workers divide packets of IPv6: those that the addresses of a
    /// subscriber have in common. Packets in tunnels of DS-Lite are of its kind, all others of that
    /// of NAT64. If there are hosts of one kind alone, all packets are divided as theirs.
    pub fn divided_length(&self, kind: HostKind) -> u8 {
        let mut kinds = [kind].into_iter().chain(HostKind::ALL);
        kinds.find_map(|kind| self.subscriber_length(kind)).unwrap_or(128)
    }

    /// Bits of a number that tell the hosts of a subscriber apart, if there are hosts of a kind.
    pub fn host_bits(&self, kind: HostKind) -> Option<u8> {
        let length = self.subscriber_length(kind)?;
        Some(match kind {
            HostKind::Nat64 => Hosts::host_bits(length),
            HostKind::Dslite => MOST_HOST_BITS,
        })
    }

    /// The realms of hosts with numbers, behind `others`: realms of the engine besides realm 0.
    pub fn host_realms(&self, others: usize) -> HostRealms {
        HostRealms::behind(others, (self.nat64.is_some(), self.dslite.is_some()))
    }

    /// Adds the realms of NAT64 and DS-Lite to the engine's configuration, as
    /// [`Translator::new`](crate::Translator::new) does: for a configuration that is to replace
    /// that of a translator at work. `numbers` are the numbers of that translator for the
    /// [hosts of static mappings](Self::static_hosts)
    /// ([`Translator::reserve`](crate::Translator::reserve)).
    ///
    /// # Errors
    /// A sentence if there are not as many numbers as hosts.
    pub fn add_realms(&mut self, config: &mut Config, numbers: &[Ipv4Addr]) -> Result<(), String> {
        let hosts = self.static_hosts().count();
        if hosts != numbers.len() {
            let numbers = numbers.len();
            return Err(format!("{hosts} hosts of static mappings have {numbers} numbers"));
        }
        let realms = crate::realms::add(self, config);
        self.renumber(realms, config, numbers);
        Ok(())
    }

    /// Gives the hosts of static mappings, and these in the engine's configuration, other numbers.
    fn renumber(&mut self, realms: HostRealms, config: &mut Config, numbers: &[Ipv4Addr]) {
        let mut now: Vec<((u16, Ipv4Addr), Ipv4Addr)> = Vec::with_capacity(numbers.len());
        for (host, number) in self.static_hosts_mut().zip(numbers) {
            let before = core::mem::replace(&mut host.number, *number);
            now.extend(realms.of(host.kind()).map(|realm| ((realm, before), *number)));
        }
        now.sort_unstable();
        for mapping in config.statics.iter_mut().filter(|mapping| realms.has(mapping.realm)) {
            let (realm, address) = (mapping.realm, &mut mapping.internal.0);
            let found = now.binary_search_by_key(&(realm, *address), |(before, _)| *before);
            *address = found.map_or(*address, |place| now[place].1);
        }
    }

    /// The settings for a translator alone: its numbers of the hosts of static mappings are not
    /// those of several that share the work. The engine's configuration, which has no realm of
    /// numbers yet, gets these numbers, too.
    #[must_use]
    pub fn alone(&self, config: &mut Config) -> Self {
        let mut alone = Self { share: Share::default(), ..self.clone() };
        let mut numbers = Vec::new();
        for kind in HostKind::ALL {
            let length = self.subscriber_length(kind).zip(self.host_bits(kind));
            let hosts = self.static_hosts().filter(|host| host.kind() == kind);
            let names: Vec<_> = hosts.map(|host| (host.address, host.inner)).collect();
            let first = length.map(|length| crate::hosts::first_numbers(&names, length, 1));
            numbers.extend(first.iter().flatten().map(|host| host.number));
        }
        alone.renumber(self.host_realms(config.realms.len()), config, &numbers);
        alone
    }

    /// The hosts of static mappings, those of NAT64 first.
    pub fn static_hosts(&self) -> impl Iterator<Item = &StaticHost> + Clone {
        let of_nat64 = self.nat64.iter().flat_map(|nat64| &nat64.static_hosts);
        of_nat64.chain(self.dslite.iter().flat_map(|dslite| &dslite.static_hosts))
    }

    fn static_hosts_mut(&mut self) -> impl Iterator<Item = &mut StaticHost> {
        let of_nat64 = self.nat64.iter_mut().flat_map(|nat64| &mut nat64.static_hosts);
        of_nat64.chain(self.dslite.iter_mut().flat_map(|dslite| &mut dslite.static_hosts))
    }

    /// The host of a kind that has a static mapping and a number.
    pub fn static_host(&self, kind: HostKind, number: Ipv4Addr) -> Option<&StaticHost> {
        self.static_hosts().find(|host| host.kind() == kind && host.number == number)
    }
}

/// One link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side6 {
    /// The gateway's own address there and the length of its network's prefix, bits.
    pub address: Option<(Ipv6Addr, u8)>,
    /// Next hop of destinations without a route. It may be link-local.
    pub gateway: Option<Ipv6Addr>,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// True if the gateway sends ICMP errors of its own there.
    pub icmp_errors: bool,
}

impl Default for Side6 {
    fn default() -> Self {
        Self { address: None, gateway: None, mtu: 1500, icmp_errors: true }
    }
}

/// The filter of routed IPv6 packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// No filter.
    #[default]
    None,
    /// Outside hosts reach only what inside hosts began: simple security, RFC 6092.
    OutboundOnly,
}

/// Conversion between headers of the two families, RFC 7915.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// Towards IPv6, what does not fit and may be cut is cut to this length, bytes.
    pub lowest_mtu: u16,
    /// Treatment of UDP without checksum towards IPv6.
    pub udp_checksum_zero: UdpChecksumZero,
    /// Traffic class of IPv6 packets; `None`: the type of service.
    pub traffic_class: Option<u8>,
    /// Type of service of IPv4 packets; `None`: the traffic class.
    pub service: Option<u8>,
}

impl Default for Conversion {
    fn default() -> Self {
        let ConvertSettings { lowest_mtu, udp_checksum_zero, traffic_class, service, .. } =
            ConvertSettings::default();
        Self { lowest_mtu, udp_checksum_zero, traffic_class, service }
    }
}

impl Conversion {
    /// Settings of a converter between links of these MTUs. The converter never cuts to more than
    /// the MTU of the IPv6 link.
    pub fn between(self, mtu_ipv6: u16, mtu_ipv4: u16, hops: Hops) -> ConvertSettings {
        let Self { lowest_mtu, udp_checksum_zero, traffic_class, service } = self;
        //= rfc7915#section-4-threshold
        //= rfc7915#section-4.1-threshold
        let lowest_mtu = lowest_mtu.min(mtu_ipv6);
        ConvertSettings {
            lowest_mtu,
            mtu_ipv6,
            mtu_ipv4,
            udp_checksum_zero,
            traffic_class,
            service,
            hops,
        }
    }
}

/// Treatment of IPv4 addresses that are not global, in the well-known prefix (RFC 6052 section
/// 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonGlobal {
    /// The packet is dropped.
    #[default]
    Refuse,
    /// The packet is translated as any other.
    Translate,
}

impl NonGlobal {
    /// True if an IPv4 address may stand in a prefix.
    #[inline(always)]
    pub(crate) fn permits(self, prefix: Pref64, address: Ipv4Addr) -> bool {
        self == Self::Translate || !is_forbidden(prefix, address)
    }
}

/// Stateful translation, RFC 6146.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat64Settings {
    /// Prefixes of destinations; the first is that of new sources. No two overlap.
    pub prefixes: Vec<Pref64>,
    /// Prefixes of the hosts that are translated; empty: all.
    pub subscribers: Vec<Prefix6>,
    /// Bits of an address that name its subscriber: 48 to 128.
    pub subscriber_length: u8,
    /// Addresses that are not global.
    pub non_global: NonGlobal,
    /// Hosts of static mappings, each once. The mappings are in the engine's configuration, in the
    /// realm of these hosts, with their numbers.
    pub static_hosts: Vec<StaticHost>,
}

/// A host of NAT64 or DS-Lite that has static mappings, and its number in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticHost {
    /// The host's address, or the far end of its tunnel.
    pub address: Ipv6Addr,
    /// The host's address behind the tunnel; `None`: there is no tunnel.
    pub inner: Option<Ipv4Addr>,
    /// Its number.
    pub number: Ipv4Addr,
}

impl StaticHost {
    /// The kind of the host.
    pub fn kind(&self) -> HostKind {
        HostKind::of(&self.inner)
    }

    /// Hosts with the numbers that a new translator gives them: subscribers in the order of their
    /// first hosts, and the hosts of each in their order.
    /// `translators` share the work, and each numbers its own subscribers.
    pub fn first(hosts: &[Ipv6Addr], subscriber_length: u8, translators: u16) -> Vec<Self> {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host, None)).collect();
        let bits = Hosts::host_bits(subscriber_length);
        crate::hosts::first_numbers(&hosts, (subscriber_length, bits), translators)
    }

    /// As [`StaticHost::first`], for hosts behind tunnels of DS-Lite: the far end of each tunnel,
    /// and the address behind it. All hosts of a subscriber have the same far end.
    pub fn first_behind(
        hosts: &[(Ipv6Addr, Ipv4Addr)],
        subscriber_length: u8,
        translators: u16,
    ) -> Vec<Self> {
        let hosts: Vec<_> = hosts.iter().map(|(b4, inner)| (*b4, Some(*inner))).collect();
        crate::hosts::first_numbers(&hosts, (subscriber_length, MOST_HOST_BITS), translators)
    }
}

impl Display for StaticHost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.inner {
            Some(inner) => write!(f, "{inner} behind {}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// Hairpinning of hosts with explicit mappings, RFC 7757 section 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpin {
    /// The translator turns such a packet by itself, in one go (section 4.2.2).
    #[default]
    //= rfc7757#section-4.2-default
    Intrinsic,
    /// Such a packet is translated twice (section 4.2.1).
    Simple,
    /// Such a packet is not turned.
    Off,
}

/// Stateless translation, RFC 7915.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiitSettings {
    /// Prefixes that embed IPv4 addresses; the first is that of IPv4 addresses without a map. No
    /// two overlap.
    pub prefixes: Vec<Pref64>,
    /// Explicit mappings, RFC 7757; `Eam::new` takes them.
    pub maps: Vec<EamEntry>,
    /// Sources of ICMP errors from IPv6 addresses without a translation, RFC 6791; empty: the
    /// receiving side's own.
    pub icmp_source_ipv4: Vec<Ipv4Addr>,
    /// Sources of ICMPv6 errors from IPv4 addresses without a translation; empty: the receiving
    /// side's own.
    pub icmp_source_ipv6: Vec<Ipv6Addr>,
    /// Hairpinning.
    pub hairpin: Hairpin,
    /// Addresses that are not global.
    pub non_global: NonGlobal,
}

/// The customer's side of 464XLAT, RFC 6877.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClatSettings {
    /// Prefix of the Internet's IPv4 addresses.
    pub prefix: Pref64,
    /// Prefix of inside IPv4 addresses. It does not overlap `prefix`.
    pub source: Pref64,
    /// Inside IPv4 prefixes whose packets are translated.
    pub subscribers: Vec<Prefix>,
}

/// Translation of a prefix, RFC 6296.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nptv6Settings {
    /// The prefixes.
    pub pair: Nptv6,
    /// True if a packet without a translation is answered by an ICMPv6 error.
    pub icmp_errors: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_converter_and_the_smaller_mtu_cuts() {
        let wide = Conversion { lowest_mtu: 1400, ..Conversion::default() };
        let settings = wide.between(1300, 1500, Hops::Keep);
        assert_eq!(
            (settings.lowest_mtu, settings.mtu_ipv6, settings.hops),
            (1300, 1300, Hops::Keep)
        );
        assert_eq!(
            Conversion::default().between(1500, 1500, Hops::Decrement),
            ConvertSettings::default()
        );
        assert!(Settings::default().forwarding && !Settings::default().configured);
    }
}
