//! The meaning of the tables of IPv6: each with a sample address, translated there and back.

use super::router6::Router6Meaning;
use super::softwires::{DomainMeaning, DsliteMeaning, Lw4o6Meaning};
use super::text::{grouped, list};
use super::{Meaning, plural};
use crate::config::show_prefix;
use natgate_gateway::Settings as GatewaySettings;
use natgate_ipv6::convert::UdpChecksumZero;
use natgate_ipv6::{
    ClatSettings, Conversion, Eam, EamEntry, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6,
    Nptv6Settings, Pref64, Settings, Side6, SiitSettings, addresses,
};
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most maps and pairs of prefixes that the text lists.
const MOST: usize = 20;

/// The IPv4 address of samples, from RFC 6052 section 2.4, and a global one.
const SAMPLE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 33);
const GLOBAL_SAMPLE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// The meaning of all that is about IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipv6Meaning {
    /// The inside link.
    pub inside: Side6Meaning,
    /// The outside link.
    pub outside: Side6Meaning,
    /// Static routes, static neighbors, and router advertisements.
    #[serde(flatten)]
    pub router: Router6Meaning,
    /// True if packets that no translation claims are routed.
    pub forwarding: bool,
    /// `none` or `outbound-only`.
    pub filter: &'static str,
    /// Longest packet towards IPv6 of what may be cut, bytes.
    pub lowest_mtu: u16,
    /// `compute`, `drop` or `forward`.
    pub udp_checksum_zero: &'static str,
    /// Traffic class of translated packets; `None`: the type of service.
    pub traffic_class: Option<u8>,
    /// Type of service of translated packets; `None`: the traffic class.
    pub tos: Option<u8>,
    /// Stateful translation.
    pub nat64: Option<Nat64Meaning>,
    /// Stateless translation.
    pub siit: Option<SiitMeaning>,
    /// The customer's side of 464XLAT.
    pub clat: Option<ClatMeaning>,
    /// Translation of prefixes, in the file's order.
    pub nptv6: Vec<Nptv6Meaning>,
    /// The AFTR of DS-Lite.
    pub dslite: Option<DsliteMeaning>,
    /// The relay of lw4o6.
    pub lw4o6: Option<Lw4o6Meaning>,
    /// Rules of MAP, in the file's order.
    pub map: Vec<DomainMeaning>,
}

/// A link of IPv6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side6Meaning {
    /// The gateway's address with its prefix length.
    pub address: Option<String>,
    /// Next hop of destinations without a route.
    pub gateway: Option<String>,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

/// An address, its translation, and the translation's own, which is the address again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The address.
    pub from: String,
    /// Its translation.
    pub to: String,
    /// The translation of the translation; `None`: it has none.
    pub back: Option<String>,
}

/// A prefix that embeds IPv4 addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrefixMeaning {
    /// The prefix.
    pub prefix: String,
    /// An IPv4 address in it.
    pub sample: Sample,
}

/// The meaning of `[nat64]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nat64Meaning {
    /// Prefixes of destinations.
    pub prefixes: Vec<PrefixMeaning>,
    /// Prefixes of hosts; empty: all hosts.
    pub subscribers: Vec<String>,
    /// Bits of an address that name its subscriber.
    pub subscriber_length: u8,
    /// `refuse` or `translate`.
    pub non_global: &'static str,
}

/// The meaning of `[siit]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiitMeaning {
    /// Prefixes that embed IPv4 addresses.
    pub prefixes: Vec<PrefixMeaning>,
    /// Explicit mappings, in the file's order.
    pub maps: Vec<MapMeaning>,
    /// Sources of ICMP errors from addresses without a translation.
    pub icmp_source: Vec<String>,
    /// `intrinsic`, `simple` or `off`.
    pub hairpin: &'static str,
    /// `refuse` or `translate`.
    pub non_global: &'static str,
}

/// An explicit mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MapMeaning {
    /// IPv6 prefix.
    pub ipv6: String,
    /// IPv4 prefix.
    pub ipv4: String,
    /// The last IPv4 address. Its longest prefix decides, which may be another map's.
    pub sample: Option<Sample>,
}

/// The meaning of `[clat]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClatMeaning {
    /// Prefix of the Internet's IPv4 addresses.
    pub prefix: PrefixMeaning,
    /// Prefix of inside addresses, with the first subscriber's.
    pub source: PrefixMeaning,
    /// Inside prefixes whose packets are translated.
    pub subscribers: Vec<String>,
}

/// The meaning of one `[[nptv6]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nptv6Meaning {
    /// Internal prefix.
    pub internal: String,
    /// External prefix.
    pub external: String,
    /// True if what has no translation is answered.
    pub icmp_errors: bool,
    /// An internal address.
    pub sample: Option<Sample>,
}

impl Ipv6Meaning {
    /// The meaning, if the configuration says anything about IPv6.
    pub(super) fn of(gateway: &GatewaySettings) -> Option<Self> {
        let settings: &Settings = &gateway.ipv6;
        if !settings.configured {
            return None;
        }
        let Conversion { lowest_mtu, udp_checksum_zero, traffic_class, service } =
            settings.conversion;
        Some(Self {
            inside: Side6Meaning::of(&settings.inside),
            outside: Side6Meaning::of(&settings.outside),
            router: Router6Meaning::of(gateway),
            forwarding: settings.forwarding,
            filter: match settings.filter {
                Filter::None => "none",
                Filter::OutboundOnly => "outbound-only",
            },
            lowest_mtu,
            udp_checksum_zero: match udp_checksum_zero {
                UdpChecksumZero::Compute => "compute",
                UdpChecksumZero::Drop => "drop",
                UdpChecksumZero::Forward => "forward",
            },
            traffic_class,
            tos: service,
            nat64: settings.nat64.as_ref().map(Nat64Meaning::of),
            siit: settings.siit.as_ref().map(SiitMeaning::of),
            clat: settings.clat.as_ref().map(ClatMeaning::of),
            nptv6: settings.nptv6.iter().map(Nptv6Meaning::of).collect(),
            dslite: settings.dslite.as_ref().map(DsliteMeaning::of),
            lw4o6: settings.lw4o6.as_ref().map(Lw4o6Meaning::of),
            map: settings.map.iter().map(|map| DomainMeaning::of(&map.rule)).collect(),
        })
    }
}

impl Side6Meaning {
    fn of(side: &Side6) -> Self {
        Self {
            address: side.address.map(|(address, len)| format!("{address}/{len}")),
            gateway: side.gateway.map(|gateway| gateway.to_string()),
            mtu: side.mtu,
        }
    }
}

impl PrefixMeaning {
    fn of(prefix: Pref64, sample: Ipv4Addr) -> Self {
        let to = prefix.embed(sample);
        let back = prefix.extract(to).map(|back| back.to_string());
        let sample = Sample { from: sample.to_string(), to: to.to_string(), back };
        Self { prefix: prefix.to_string(), sample }
    }

    /// A prefix with a sample that it translates.
    fn of_internet(prefix: Pref64, non_global: NonGlobal) -> Self {
        let refused = prefix.is_well_known()
            && non_global == NonGlobal::Refuse
            && !addresses::is_global(SAMPLE);
        Self::of(prefix, if refused { GLOBAL_SAMPLE } else { SAMPLE })
    }
}

fn non_global(non_global: NonGlobal) -> &'static str {
    match non_global {
        NonGlobal::Refuse => "refuse",
        NonGlobal::Translate => "translate",
    }
}

impl Nat64Meaning {
    fn of(settings: &Nat64Settings) -> Self {
        let prefix = |prefix: &Pref64| PrefixMeaning::of_internet(*prefix, settings.non_global);
        Self {
            prefixes: settings.prefixes.iter().map(prefix).collect(),
            subscribers: settings.subscribers.iter().map(ToString::to_string).collect(),
            subscriber_length: settings.subscriber_length,
            non_global: non_global(settings.non_global),
        }
    }
}

impl SiitMeaning {
    fn of(settings: &SiitSettings) -> Self {
        let table = Eam::new(&settings.maps).unwrap_or_default();
        let prefix = |prefix: &Pref64| PrefixMeaning::of_internet(*prefix, settings.non_global);
        let ipv4 = settings.icmp_source_ipv4.iter().map(ToString::to_string);
        let ipv6 = settings.icmp_source_ipv6.iter().map(ToString::to_string);
        Self {
            prefixes: settings.prefixes.iter().map(prefix).collect(),
            maps: settings.maps.iter().map(|map| MapMeaning::of(&table, map)).collect(),
            icmp_source: ipv4.chain(ipv6).collect(),
            hairpin: match settings.hairpin {
                Hairpin::Intrinsic => "intrinsic",
                Hairpin::Simple => "simple",
                Hairpin::Off => "off",
            },
            non_global: non_global(settings.non_global),
        }
    }
}

impl MapMeaning {
    fn of(table: &Eam, map: &EamEntry) -> Self {
        let from = Ipv4Addr::from_bits(map.ipv4.last());
        let sample = table.to_ipv6(from).map(|to| Sample {
            from: from.to_string(),
            to: to.to_string(),
            back: table.to_ipv4(to).map(|back| back.to_string()),
        });
        Self { ipv6: map.ipv6.to_string(), ipv4: show_prefix(map.ipv4), sample }
    }
}

impl ClatMeaning {
    fn of(settings: &ClatSettings) -> Self {
        let ClatSettings { prefix, source, subscribers } = settings;
        // The first host: the address after that of the network.
        let host = subscribers.first().map_or(SAMPLE, |first| {
            Ipv4Addr::from_bits(first.first() + u32::from(first.first() < first.last()))
        });
        Self {
            prefix: PrefixMeaning::of_internet(*prefix, NonGlobal::Refuse),
            source: PrefixMeaning::of(*source, host),
            subscribers: subscribers.iter().map(|prefix| show_prefix(*prefix)).collect(),
        }
    }
}

impl Nptv6Meaning {
    fn of(settings: &Nptv6Settings) -> Self {
        let Nptv6Settings { pair, icmp_errors } = settings;
        Self {
            internal: pair.internal().to_string(),
            external: pair.external().to_string(),
            icmp_errors: *icmp_errors,
            sample: sample_of(pair),
        }
    }
}

/// The first host of the internal prefix that has a translation.
fn sample_of(pair: &Nptv6) -> Option<Sample> {
    let first = pair.internal().first().to_bits();
    let hosts = [1, 1 << 64 | 1].map(|host| Ipv6Addr::from_bits(first | host));
    hosts.into_iter().find_map(|from| {
        let to = pair.outbound(from)?.ok()?;
        let back = pair.inbound(to).and_then(Result::ok).map(|back| back.to_string());
        Some(Sample { from: from.to_string(), to: to.to_string(), back })
    })
}

impl Display for Sample {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.back {
            Some(back) => write!(f, "{} becomes {}, and back {back}", self.from, self.to),
            None => write!(f, "{} becomes {}, and nothing back", self.from, self.to),
        }
    }
}

impl Meaning {
    /// Writes what is about IPv6, if anything is.
    pub(super) fn ipv6(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(ipv6) = &self.ipv6 else { return Ok(()) };
        writeln!(f, "IPv6")?;
        ipv6.links(f)?;
        ipv6.router.text(f)?;
        ipv6.treatment(f)?;
        if let Some(nat64) = &ipv6.nat64 {
            nat64.text(f)?;
        }
        if let Some(siit) = &ipv6.siit {
            siit.text(f)?;
        }
        if let Some(clat) = &ipv6.clat {
            clat.text(f)?;
        }
        for pair in ipv6.nptv6.iter().take(MOST) {
            pair.text(f)?;
        }
        more(f, ipv6.nptv6.len(), ("pair of prefixes", "pairs of prefixes"))?;
        if let Some(dslite) = &ipv6.dslite {
            dslite.text(f)?;
        }
        if let Some(lw4o6) = &ipv6.lw4o6 {
            lw4o6.text(f)?;
        }
        for domain in ipv6.map.iter().take(MOST) {
            domain.text(f)?;
        }
        more(f, ipv6.map.len(), ("domain", "domains"))
    }
}

fn more(f: &mut Formatter<'_>, all: usize, (one, many): (&str, &str)) -> fmt::Result {
    match all.saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(f, "    and {} more", plural(more as u64, one, many)),
    }
}

impl Ipv6Meaning {
    fn links(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (name, side) in [("inside", &self.inside), ("outside", &self.outside)] {
            let address = side.address.as_deref().unwrap_or("no address");
            write!(f, "  {name}: {address}")?;
            if let Some(gateway) = &side.gateway {
                write!(f, ", next hop {gateway}")?;
            }
            writeln!(f, ", MTU {}", side.mtu)?;
        }
        Ok(())
    }

    /// Writes the treatment of packets.
    fn treatment(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  packets that no table translates: {}",
            match (self.forwarding, self.filter) {
                (false, _) => "dropped",
                (true, "none") => "routed",
                (true, _) => "routed, if the inside began (RFC 6092)",
            }
        )?;
        if self.nat64.is_none() && self.siit.is_none() && self.clat.is_none() {
            return Ok(());
        }
        let lowest = grouped(self.lowest_mtu.into());
        writeln!(f, "  between families: what may be cut is cut to {lowest} bytes towards IPv6")?;
        let checksum = match self.udp_checksum_zero {
            "compute" => "gets one",
            "drop" => "is dropped",
            _ => "stays without",
        };
        writeln!(f, "    UDP without checksum {checksum}")?;
        let field =
            |value: Option<u8>| value.map_or("copied".to_owned(), |value| value.to_string());
        let (class, tos) = (field(self.traffic_class), field(self.tos));
        writeln!(f, "    traffic class {class}, type of service {tos}")
    }
}

fn prefix_lines(f: &mut Formatter<'_>, prefixes: &[PrefixMeaning]) -> fmt::Result {
    for PrefixMeaning { prefix, sample } in prefixes {
        writeln!(f, "    {prefix}: {sample}")?;
    }
    Ok(())
}

fn shown(items: &[String]) -> String {
    let items: Vec<&str> = items.iter().map(String::as_str).collect();
    list(&items, str::to_owned)
}

impl Nat64Meaning {
    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let whose = match self.subscribers.is_empty() {
            true => "all hosts".to_owned(),
            false => shown(&self.subscribers),
        };
        let length = self.subscriber_length;
        writeln!(f, "  nat64: {whose}; a /{length} is one subscriber")?;
        writeln!(f, "    addresses that are not global, in 64:ff9b::/96: {}", self.non_global)?;
        prefix_lines(f, &self.prefixes)
    }
}

impl SiitMeaning {
    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let maps = plural(self.maps.len() as u64, "map", "maps");
        writeln!(f, "  siit: {maps}, hairpin {}", self.hairpin)?;
        writeln!(f, "    addresses that are not global, in 64:ff9b::/96: {}", self.non_global)?;
        match self.icmp_source.is_empty() {
            true => writeln!(f, "    errors from addresses without a map: the side's own source")?,
            false => {
                let sources = shown(&self.icmp_source);
                writeln!(f, "    errors from addresses without a map: from {sources}")?;
            }
        }
        prefix_lines(f, &self.prefixes)?;
        for MapMeaning { ipv6, ipv4, sample } in self.maps.iter().take(MOST) {
            match sample {
                Some(sample) => writeln!(f, "    {ipv6} and {ipv4}: {sample}")?,
                None => writeln!(f, "    {ipv6} and {ipv4}")?,
            }
        }
        more(f, self.maps.len(), ("map", "maps"))
    }
}

impl ClatMeaning {
    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "  clat: packets of {}", shown(&self.subscribers))?;
        let PrefixMeaning { prefix, sample } = &self.source;
        writeln!(f, "    hosts in {prefix}: {sample}")?;
        let PrefixMeaning { prefix, sample } = &self.prefix;
        writeln!(f, "    the Internet in {prefix}: {sample}")
    }
}

impl Nptv6Meaning {
    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { internal, external, icmp_errors, sample } = self;
        let answer = if *icmp_errors { "" } else { ", no ICMP errors" };
        writeln!(f, "  nptv6: {internal} and {external}{answer}")?;
        match sample {
            Some(sample) => writeln!(f, "    {sample}"),
            None => Ok(()),
        }
    }
}
