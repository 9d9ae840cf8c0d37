//! Reads the tables of IPv6: `[ipv6]`, `[nat64]`, `[siit]`, `[clat]`, `[[nptv6]]`, and the keys
//! `address6` and `gateway6` of the sides. [`super::router6`] reads what the router needs besides.
//!
//! Each value is checked by itself here; [`super::ipv6_checks`] compares values with each other.

use super::draft::{Draft, SideDraft};
use super::dslite::{self, DsliteDraft};
use super::problem::{Located, Place};
use super::reader::{Section, Value};
use super::router6::{self, AdvertiseDraft};
use super::sections::is_usable;
use super::softwires::{self, Lw4o6Draft};
use super::{values, values6};
use natgate_engine::Prefix;
use natgate_ipv6::convert::UdpChecksumZero;
use natgate_ipv6::{
    ClatSettings, Conversion, Eam, EamEntry, Filter, Hairpin, HostKind, Nat64Settings, NonGlobal,
    Nptv6, Nptv6Settings, Pref64, Prefix6, Settings, Share, Side6, SiitSettings, StaticHost,
};
use std::net::{IpAddr, Ipv6Addr};

/// Bounds of an IPv6 MTU: the packet that every link must carry (RFC 8200 section 5), and the
/// largest packet.
const MTU_BOUNDS: (u64, u64) = (1280, 65_535);

/// Bounds of the bits that name a subscriber: a site's prefix, one address.
const SUBSCRIBER_LENGTHS: (u64, u64) = (48, 128);
/// A link's prefix.
const SUBSCRIBER_LENGTH: u8 = 64;

/// All tables of IPv6.
pub(super) struct Ipv6Draft {
    /// Places of the tables, in the order of the contract.
    pub(super) tables: Vec<Place>,
    pub(super) forwarding: bool,
    pub(super) filter: Filter,
    pub(super) conversion: Conversion,
    /// Places of the keys about conversion.
    pub(super) converting: Vec<Place>,
    pub(super) nat64: Option<Nat64Draft>,
    pub(super) siit: Option<SiitDraft>,
    pub(super) clat: Option<ClatDraft>,
    pub(super) nptv6: Vec<Nptv6Draft>,
    pub(super) dslite: Option<DsliteDraft>,
    pub(super) lw4o6: Option<Lw4o6Draft>,
    pub(super) map: Vec<softwires::MapDraft>,
    pub(super) advertise: Option<AdvertiseDraft>,
}

/// `[nat64]`.
pub(super) struct Nat64Draft {
    pub(super) place: Place,
    pub(super) prefixes: Vec<Located<Pref64>>,
    pub(super) subscribers: Vec<Located<Prefix6>>,
    pub(super) subscriber_length: u8,
    pub(super) non_global: NonGlobal,
}

/// `[siit]`.
pub(super) struct SiitDraft {
    pub(super) place: Place,
    pub(super) prefixes: Vec<Located<Pref64>>,
    pub(super) maps: Vec<MapDraft>,
    pub(super) icmp_source: Vec<Located<IpAddr>>,
    pub(super) hairpin: Hairpin,
    pub(super) non_global: NonGlobal,
}

/// `[[siit.map]]`.
pub(super) struct MapDraft {
    pub(super) ipv6: Located<Prefix6>,
    pub(super) ipv4: Located<Prefix>,
}

/// `[clat]`. A faulty prefix is absent.
pub(super) struct ClatDraft {
    pub(super) place: Place,
    pub(super) prefix: Option<Located<Pref64>>,
    pub(super) source: Option<Located<Pref64>>,
}

/// `[[nptv6]]`.
pub(super) struct Nptv6Draft {
    pub(super) place: Place,
    pub(super) internal: Located<Prefix6>,
    pub(super) external: Located<Prefix6>,
    pub(super) pair: Nptv6,
    pub(super) icmp_errors: bool,
}

/// Reads the gateway's own IPv6 address of a side and the length of its network's prefix.
pub(super) fn read_address6(section: &Section<'_>) -> Option<Located<(Ipv6Addr, u8)>> {
    let wanted = "an IPv6 address with its prefix length";
    section.get("address6")?.parsed(wanted, values6::interface_address6)
}

/// Reads the next hop of a side.
pub(super) fn read_gateway6(section: &Section<'_>) -> Option<Located<Ipv6Addr>> {
    section.get("gateway6")?.parsed("an IPv6 address", values6::address6)
}

/// True if a file needs no `[[pool]]`: only stateless tables translate.
pub(super) fn needs_no_pool(root: &Section<'_>) -> bool {
    let stateless = ["siit", "clat", "nptv6", "lw4o6", "map"];
    let stateful = ["nat64", "dslite", "static", "rule", "realm", "class", "pcp", "alg"];
    let has = |keys: &[&'static str]| keys.iter().any(|key| root.get(key).is_some());
    has(&stateless) && !has(&stateful)
}

/// Reads all tables.
pub(super) fn read(root: &Section<'_>) -> Ipv6Draft {
    let section = root.section("ipv6", "ipv6");
    let (nat64, siit) = (root.section("nat64", "nat64"), root.section("siit", "siit"));
    let clat = root.section("clat", "clat");
    let nptv6 = root.sections("nptv6");
    let dslite = root.section("dslite", "dslite");
    let (lw4o6, map) = (root.section("lw4o6", "lw4o6"), root.sections("map"));
    let present = [&section, &nat64, &siit, &clat].into_iter().chain(&nptv6);
    let present = present.chain([&dslite, &lw4o6]).chain(&map);
    let tables = present.filter(|table| table.is_present()).map(|table| table.place.clone());
    let forwarding = section.get("forwarding").and_then(|value| value.boolean());
    let filters = [("none", Ok(Filter::None)), ("outbound-only", Ok(Filter::OutboundOnly))];
    let filter = section.get("filter").and_then(|value| value.word(&filters));
    let converting = ["lowest_mtu", "udp_checksum_zero", "traffic_class", "tos"].into_iter();
    let draft = Ipv6Draft {
        tables: tables.collect(),
        forwarding: forwarding.unwrap_or(true),
        filter: filter.unwrap_or_default(),
        conversion: read_conversion(&section),
        converting: converting.filter_map(|key| Some(section.get(key)?.place)).collect(),
        nat64: read_nat64(&nat64),
        siit: read_siit(&siit),
        clat: read_clat(&clat),
        nptv6: nptv6.iter().filter_map(read_nptv6).collect(),
        dslite: dslite::read(&dslite),
        lw4o6: softwires::read_lw4o6(&lw4o6),
        map: map.iter().filter_map(softwires::read_map).collect(),
        advertise: router6::read_advertise(&section.section("advertise", "ipv6.advertise")),
    };
    if let Some(value) = section.get("filter")
        && draft.filter == Filter::OutboundOnly
        && !draft.forwarding
    {
        value.wrong("has no effect, because forwarding is false; take it out");
    }
    draft
}

fn read_conversion(section: &Section<'_>) -> Conversion {
    let mut conversion = Conversion::default();
    let mtu = section.get("lowest_mtu");
    if let Some(mtu) = mtu.and_then(|value| value.integer(MTU_BOUNDS.0..=MTU_BOUNDS.1)) {
        conversion.lowest_mtu = mtu as u16;
    }
    let words = [
        ("compute", Ok(UdpChecksumZero::Compute)),
        ("drop", Ok(UdpChecksumZero::Drop)),
        ("forward", Ok(UdpChecksumZero::Forward)),
    ];
    if let Some(word) = section.get("udp_checksum_zero").and_then(|value| value.word(&words)) {
        conversion.udp_checksum_zero = word;
    }
    let classes = [("copy", Ok(None)), ("zero", Ok(Some(0)))];
    conversion.traffic_class =
        section.get("traffic_class").and_then(|value| value.word(&classes)).flatten();
    conversion.service = section.get("tos").and_then(|value| match value.is_integer() {
        true => value.integer(0..=u64::from(u8::MAX)).map(|tos| tos as u8),
        false => value.word(&[("copy", Ok(None))]).flatten(),
    });
    conversion
}

fn read_non_global(section: &Section<'_>) -> NonGlobal {
    let words = [("refuse", Ok(NonGlobal::Refuse)), ("translate", Ok(NonGlobal::Translate))];
    section.get("non_global").and_then(|value| value.word(&words)).unwrap_or_default()
}

/// Reads a prefix that embeds IPv4 addresses.
pub(super) fn read_pref64(value: &Value<'_>) -> Option<Located<Pref64>> {
    value.parsed("an IPv6 prefix in quotes", |text| {
        let prefix = values6::unicast_prefix6(text)?;
        Pref64::new(prefix).map_err(|error| error.to_string())
    })
}

/// Reads an array of prefixes that embed IPv4 addresses.
fn read_pref64s(value: &Value<'_>, example: &str) -> Vec<Located<Pref64>> {
    let Some(items) = value.items("an array of IPv6 prefixes") else { return Vec::new() };
    if items.is_empty() {
        value.wrong(format!("has no prefix; write one such as {example}"));
    }
    items.iter().filter_map(read_pref64).collect()
}

fn read_nat64(section: &Section<'_>) -> Option<Nat64Draft> {
    if !section.is_present() {
        return None;
    }
    let well_known = || {
        let address = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
        let prefix = Pref64::new(Prefix6 { address, len: 96 }).expect("the well-known prefix");
        vec![Located { value: prefix, place: section.place.clone() }]
    };
    let prefixes = section.get("prefixes").map(|value| read_pref64s(&value, "\"64:ff9b::/96\""));
    let subscribers = section.get("subscribers").and_then(|value| {
        let items = value.items("an array of IPv6 prefixes")?;
        if items.is_empty() {
            value.wrong("names nobody; write prefixes of hosts, or leave it out for all");
        }
        let read = |item: &Value<'_>| item.parsed("an IPv6 prefix", values6::unicast_or_all);
        Some(items.iter().filter_map(read).collect())
    });
    let length = section.get("subscriber_length");
    let length =
        length.and_then(|value| value.integer(SUBSCRIBER_LENGTHS.0..=SUBSCRIBER_LENGTHS.1));
    Some(Nat64Draft {
        place: section.place.clone(),
        //= rfc6052#section-3.4-well-known
        //= rfc6052#section-3.4-specific
        //= rfc6146#section-3.5.4-default
        //= rfc6146#section-3.5.4-configured
        //= rfc6146#section-3.5.4-algorithm-default
        prefixes: prefixes.unwrap_or_else(well_known),
        subscribers: subscribers.unwrap_or_default(),
        subscriber_length: length.map_or(SUBSCRIBER_LENGTH, |length| length as u8),
        non_global: read_non_global(section),
    })
}

fn read_siit(section: &Section<'_>) -> Option<SiitDraft> {
    if !section.is_present() {
        return None;
    }
    let example = "\"2001:db8:100::/40\"";
    let prefixes = section.get("prefixes").map(|value| read_pref64s(&value, example));
    if prefixes.is_none() && section.get("map").is_none() {
        let message = format!("translates nothing; write prefixes = [{example}] or [[siit.map]]");
        section.report.missing(&section.place, message);
    }
    let sources = section.get("icmp_source").and_then(|value| value.items("an array of addresses"));
    let words = [
        ("intrinsic", Ok(Hairpin::Intrinsic)),
        ("simple", Ok(Hairpin::Simple)),
        ("off", Ok(Hairpin::Off)),
    ];
    let hairpin = section.get("hairpin").and_then(|value| value.word(&words));
    Some(SiitDraft {
        place: section.place.clone(),
        prefixes: prefixes.unwrap_or_default(),
        maps: section.tables("map", "siit.map").iter().filter_map(read_map).collect(),
        icmp_source: sources.unwrap_or_default().iter().filter_map(read_source).collect(),
        hairpin: hairpin.unwrap_or_default(),
        non_global: read_non_global(section),
    })
}

fn read_source(value: &Value<'_>) -> Option<Located<IpAddr>> {
    let source = value.parsed("an address in quotes", values6::address_of_either)?;
    match source.value {
        IpAddr::V4(address) => is_usable(value, address).then_some(source),
        IpAddr::V6(_) => Some(source),
    }
}

fn read_map(section: &Section<'_>) -> Option<MapDraft> {
    let ipv6 = section
        .require("ipv6", "\"2001:db8:3::/120\"")
        .and_then(|value| value.parsed("an IPv6 prefix", values6::unicast_prefix6));
    let ipv4 = section
        .require("ipv4", "\"1.0.0.0/24\"")
        .and_then(|value| value.parsed("an IPv4 prefix", values::prefix));
    let map = MapDraft { ipv6: ipv6?, ipv4: ipv4? };
    match Eam::new(&[map.entry()]) {
        Ok(_) => Some(map),
        Err(error) => {
            let widest = map.ipv4.value.len() + 96;
            let remedy = format!("write an IPv6 prefix of {widest} bits or fewer");
            section.report.wrong(&map.ipv6.place, format!("{error}; {remedy}"));
            None
        }
    }
}

fn read_clat(section: &Section<'_>) -> Option<ClatDraft> {
    if !section.is_present() {
        return None;
    }
    let prefix = section.require("prefix", "\"64:ff9b::/96\"");
    let source = section.require("source", "\"2001:db8:aaaa::/96\"");
    Some(ClatDraft {
        place: section.place.clone(),
        prefix: prefix.and_then(|value| read_pref64(&value)),
        source: source.and_then(|value| read_pref64(&value)),
    })
}

fn read_nptv6(section: &Section<'_>) -> Option<Nptv6Draft> {
    let read = |key, example| {
        let value = section.require(key, example)?;
        value.parsed("an IPv6 prefix", values6::unicast_prefix6)
    };
    //= rfc6296#section-4.1-manual
    let internal = read("internal", "\"fd00:1::/48\"");
    let external = read("external", "\"2001:db8:1::/48\"");
    let icmp_errors = section.get("icmp_errors").and_then(|value| value.boolean());
    let (internal, external) = (internal?, external?);
    match Nptv6::new(internal.value, external.value) {
        Ok(pair) => Some(Nptv6Draft {
            place: section.place.clone(),
            internal,
            external,
            pair,
            icmp_errors: icmp_errors.unwrap_or(true),
        }),
        Err(error) => {
            section.report.wrong(&external.place, format!("{error}; write another prefix"));
            None
        }
    }
}

impl MapDraft {
    /// The map as the translator has it.
    pub(super) fn entry(&self) -> EamEntry {
        EamEntry { ipv6: self.ipv6.value, ipv4: self.ipv4.value }
    }
}

impl SideDraft {
    /// The connected IPv6 network, if the file gives it.
    pub(super) fn network6(&self) -> Option<Prefix6> {
        let (address, len) = self.address6.as_ref()?.value;
        Some(Prefix6 { address, len })
    }

    fn settings6(&self) -> Side6 {
        Side6 {
            address: self.address6.as_ref().map(|address| address.value),
            gateway: self.gateway6.as_ref().map(|gateway| gateway.value),
            mtu: self.mtu,
            icmp_errors: self.icmp_errors,
        }
    }
}

impl Nat64Draft {
    fn settings(&self, static_hosts: Vec<StaticHost>) -> Nat64Settings {
        Nat64Settings {
            static_hosts,
            prefixes: self.prefixes.iter().map(|prefix| prefix.value).collect(),
            subscribers: self.subscribers.iter().map(|prefix| prefix.value).collect(),
            subscriber_length: self.subscriber_length,
            non_global: self.non_global,
        }
    }
}

impl SiitDraft {
    fn settings(&self) -> SiitSettings {
        let sources = self.icmp_source.iter().map(|source| source.value);
        SiitSettings {
            prefixes: self.prefixes.iter().map(|prefix| prefix.value).collect(),
            maps: self.maps.iter().map(MapDraft::entry).collect(),
            icmp_source_ipv4: sources
                .clone()
                .filter_map(|source| match source {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                })
                .collect(),
            icmp_source_ipv6: sources
                .filter_map(|source| match source {
                    IpAddr::V4(_) => None,
                    IpAddr::V6(address) => Some(address),
                })
                .collect(),
            hairpin: self.hairpin,
            non_global: self.non_global,
        }
    }
}

impl Draft {
    /// The gateway's own addresses of IPv6.
    pub(super) fn own_addresses6(&self) -> impl Iterator<Item = Ipv6Addr> {
        let sides = [&self.inside, &self.outside].into_iter();
        sides.filter_map(|side| side.address6.as_ref().map(|address| address.value.0))
    }

    /// The places of all that is about IPv6: keys of the sides, then tables.
    pub(super) fn ipv6_places(&self) -> Vec<Place> {
        let of_side = |side: &SideDraft| {
            let address = side.address6.as_ref().map(|address| address.place.clone());
            let gateway = side.gateway6.as_ref().map(|gateway| gateway.place.clone());
            [address, gateway].into_iter().flatten()
        };
        let sides = of_side(&self.inside).chain(of_side(&self.outside));
        let tables = self.ipv6.tables.iter().cloned();
        sides.chain(self.router6.places()).chain(tables).collect()
    }

    /// Converts the tables to settings.
    pub(super) fn to_ipv6(&self) -> Settings {
        if self.ipv6_places().is_empty() {
            return Settings::default();
        }
        let Ipv6Draft { forwarding, filter, conversion, nat64, siit, clat, nptv6, .. } = &self.ipv6;
        let Ipv6Draft { dslite, lw4o6, map, .. } = &self.ipv6;
        let subscribers = || self.subscribers.iter().map(|prefix| prefix.value).collect();
        let clat = clat.as_ref().map(|clat| {
            let value = |prefix: &Option<Located<Pref64>>| {
                prefix.as_ref().expect("a CLAT without its prefix is a problem").value
            };
            let (prefix, source) = (value(&clat.prefix), value(&clat.source));
            ClatSettings { prefix, source, subscribers: subscribers() }
        });
        let pair =
            |one: &Nptv6Draft| Nptv6Settings { pair: one.pair, icmp_errors: one.icmp_errors };
        Settings {
            configured: true,
            inside: self.inside.settings6(),
            outside: self.outside.settings6(),
            forwarding: *forwarding,
            filter: *filter,
            conversion: *conversion,
            nat64: nat64.as_ref().map(|nat64| nat64.settings(self.static_hosts(HostKind::Nat64))),
            siit: siit.as_ref().map(SiitDraft::settings),
            clat,
            nptv6: nptv6.iter().map(pair).collect(),
            dslite: dslite
                .as_ref()
                .map(|dslite| dslite.settings(self.static_hosts(HostKind::Dslite))),
            lw4o6: lw4o6.as_ref().map(Lw4o6Draft::settings),
            map: map.iter().map(softwires::MapDraft::settings).collect(),
            // Each worker gets a part.
            share: Share::default(),
        }
    }
}
