//! The technologies: the settings of their gateways, and the ends of their flows.
//!
//! Link 0 is between the tester and the first gateway. The last link leads back to the tester. On
//! each link the inner end has the address 1 and the outer end the address 2. Addresses are those
//! that RFC 5180 and RFC 2544 reserve: 2001:2::/48 and 198.18.0.0/15.

use crate::frame::End;
use crate::full_table;
use crate::ipv6::Ends;
use crate::random::Random;
use natgate_engine::{Prefix, Side, SideConfig, Timeouts};
use natgate_gateway::{
    Route, Route6, Settings, Settings6, SideSettings, StaticNeighbor, StaticNeighbor6,
};
use natgate_ipv6::softwire::{
    Binding, BindingTable, DsliteSettings, Lw4o6Settings, PortSets, SoftwireSettings,
};
use natgate_ipv6::{
    ClatSettings, EamEntry, Hairpin, Nat64Settings, NonGlobal, Pref64, Prefix6,
    Settings as Ipv6Settings, Side6, SiitSettings,
};
use natgate_wire::arp::Mac;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Hosts inside.
const HOSTS: u32 = 200;
/// Longest IP packet of all links: the largest frame of RFC 8219 and the headers of a tunnel.
pub(super) const MTU: u16 = 9216 - 18 + 40;
/// Longer than a measurement.
const TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// IPv4 hosts inside, and those of explicit maps: 198.18.64.0/18.
const INSIDE: u32 = 0xc612_4000;
/// External addresses of sessions: 198.18.128.0 and the next.
const POOL: u32 = 0xc612_8000;
const POOL_ADDRESSES: u32 = 2;
/// Shared addresses of lw4o6.
const SHARED: u32 = 0xc612_c000;
/// Remote hosts: 198.19.0.0/16.
const REMOTE: u32 = 0xc613_0000;
/// The inner address of each host of DS-Lite: 192.168.1.2.
const INNER: u32 = 0xc0a8_0102;
/// Bits of a port-set identifier of lw4o6.
const PSID_LEN: u8 = 6;

/// Subnets of 2001:2::/48. Those of hosts inside are below 0x8000.
const NAT64_HOSTS: u16 = 0x1000;
const B4S: u16 = 0x2000;
const MAPPED_HOSTS: u16 = 0x3000;
const CLAT: u16 = 0x4000;
const NATIVE_HOSTS: u16 = 0x5000;
const RELAY: u16 = 0xe000;
const EMBEDDING: u16 = 0xf064;
const NATIVE_REMOTE: u16 = 0xf001;

/// A technology of RFC 8219's categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technology {
    /// Stateful NAT64 (RFC 6146): single translation.
    Nat64,
    /// Stateless translation by a prefix (RFC 7915): single translation.
    Siit,
    /// Stateless translation by explicit maps (RFC 7757): single translation.
    Eam,
    /// The customer's side of 464XLAT alone (RFC 6877): single translation.
    Clat,
    /// CLAT and NAT64 (RFC 6877): double translation by two gateways.
    Xlat464,
    /// The AFTR of DS-Lite (RFC 6333): encapsulation.
    DsLite,
    /// The lwAFTR of lw4o6 (RFC 7596): encapsulation.
    Lw4o6,
}

/// Source of a packet that has left outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// These ends.
    Known(Ends),
    /// IPv4 from any port of the pool to this remote endpoint.
    FromPool(End),
}

impl Outside {
    /// True if a packet may leave with these ends.
    pub(super) fn admits(&self, ends: &Ends) -> bool {
        match (self, ends) {
            (Self::Known(known), ends) => known == ends,
            (Self::FromPool(remote), Ends::Ipv4((address, _), to)) => {
                (POOL..POOL + POOL_ADDRESSES).contains(address) && to == remote
            }
            (Self::FromPool(_), _) => false,
        }
    }
}

impl Technology {
    /// All, in the order of the report.
    pub const ALL: [Self; 7] =
        [Self::Nat64, Self::Siit, Self::Eam, Self::Clat, Self::Xlat464, Self::DsLite, Self::Lw4o6];

    /// Its name on the command line and in the JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Nat64 => "nat64",
            Self::Siit => "siit",
            Self::Eam => "eam",
            Self::Clat => "clat",
            Self::Xlat464 => "464xlat",
            Self::DsLite => "ds-lite",
            Self::Lw4o6 => "lw4o6",
        }
    }

    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nat64 => "NAT64",
            Self::Siit => "SIIT",
            Self::Eam => "SIIT with explicit maps",
            Self::Clat => "CLAT",
            Self::Xlat464 => "464XLAT",
            Self::DsLite => "DS-Lite",
            Self::Lw4o6 => "lw4o6",
        }
    }

    /// RFC 8219's category, and its setup here.
    pub(super) fn setup(self) -> &'static str {
        match self {
            Self::Nat64 | Self::Siit | Self::Eam | Self::Clat => "single translation, one gateway",
            Self::Xlat464 => "double translation, two gateways",
            Self::DsLite | Self::Lw4o6 => "encapsulation, one gateway; the tester has the tunnels",
        }
    }

    /// True if the sizes of frames are those of IPv6, whose smallest has 84 bytes. Otherwise they
    /// are those of IPv4 at the tester.
    pub(super) fn counts_ipv6(self) -> bool {
        !matches!(self, Self::Xlat464 | Self::DsLite | Self::Lw4o6)
    }

    /// Bytes that a frame has more on the widest link than its size.
    pub(super) fn more(self) -> u16 {
        match self {
            Self::Xlat464 => 20,
            Self::DsLite | Self::Lw4o6 => 40,
            _ => 0,
        }
    }

    /// Settings of the gateways, the innermost first.
    pub(super) fn settings(self) -> Vec<Settings> {
        match self {
            Self::Xlat464 => vec![Self::Clat.gateway(0), Self::Nat64.gateway(1)],
            _ => vec![self.gateway(0)],
        }
    }

    /// Settings of one gateway; its inner link has the number `link`.
    fn gateway(self, link: u8) -> Settings {
        let mut engine = full_table::config(POOL, POOL_ADDRESSES, 4096);
        engine.limits.subscribers = Some(1024);
        engine.timeouts = Timeouts { udp: TIMEOUT, ..Timeouts::default() };
        let of_engine = |link, end| SideConfig {
            address: Some(own4(link, end)),
            network: Some(Prefix::new(own4(link, end), 24)),
            mtu: Some(MTU),
            ..SideConfig::default()
        };
        (engine.inside, engine.outside) = (of_engine(link, 2), of_engine(link + 1, 1));
        let side = |link, end| SideSettings {
            address: Some((own4(link, end), 24)),
            mtu: MTU,
            ..SideSettings::new(format!("link{link}"))
        };
        let (inside, mut outside) = (side(link, 2), side(link + 1, 1));
        outside.gateway = Some(own4(link + 1, 2));
        let inner = Prefix::new(Ipv4Addr::from_bits(INSIDE), 18);
        let routes = vec![Route { prefix: inner, via: own4(link, 1), side: Side::Inside }];
        let ends = [(Side::Inside, link, 1), (Side::Outside, link + 1, 2)];
        let neighbors = ends
            .map(|(side, link, end)| StaticNeighbor {
                side,
                address: own4(link, end),
                mac: mac(link, end),
            })
            .to_vec();
        let neighbors6 = ends.map(|(side, link, end)| StaticNeighbor6 {
            side,
            address: own6(link, end),
            mac: mac(link, end),
        });
        let router6 = Settings6 {
            routes: routes6(link),
            neighbors: neighbors6.to_vec(),
            ..Settings6::default()
        };
        let ipv6 = self.ipv6(link);
        let settings = Settings::new(engine, inside, outside);
        Settings { routes, neighbors, ipv6, router6, ..settings }
    }

    fn ipv6(self, link: u8) -> Ipv6Settings {
        let side = |link, end| Side6 {
            address: Some((own6(link, end), 64)),
            mtu: MTU,
            ..Side6::default()
        };
        let mut settings = Ipv6Settings {
            configured: true,
            inside: side(link, 2),
            outside: side(link + 1, 1),
            ..Ipv6Settings::default()
        };
        match self {
            Self::Nat64 | Self::Xlat464 => settings.nat64 = Some(nat64()),
            Self::Siit => settings.siit = Some(siit(Vec::new())),
            Self::Eam => settings.siit = Some(siit((0..HOSTS).map(map).collect())),
            Self::Clat => {
                settings.clat = Some(ClatSettings {
                    prefix: embedding(EMBEDDING),
                    source: embedding(CLAT),
                    subscribers: vec![Prefix::new(Ipv4Addr::from_bits(INSIDE), 18)],
                });
            }
            Self::DsLite => settings.dslite = Some(dslite()),
            Self::Lw4o6 => settings.lw4o6 = Some(lw4o6()),
        }
        settings
    }

    /// Ends of a flow's packets from inside, as sent and as they leave.
    pub(super) fn flow(self, number: u32) -> (Ends, Outside) {
        let (host, place) = (number % HOSTS, number / HOSTS);
        let (near, remote) = ports(number, place);
        let end = (INSIDE + host, near);
        let embed = |subnet, (address, port): End| -> (u128, u16) {
            (embedding(subnet).embed(Ipv4Addr::from_bits(address)).to_bits(), port)
        };
        let ipv6 = |source| Ends::Ipv6(source, embed(EMBEDDING, remote));
        let stateless = Outside::Known(Ends::Ipv4(end, remote));
        match self {
            Self::Nat64 => {
                let source = subnet(NAT64_HOSTS + host as u16, 1).to_bits();
                (ipv6((source, near)), Outside::FromPool(remote))
            }
            Self::Siit => (ipv6(embed(EMBEDDING, end)), stateless),
            Self::Eam => (ipv6((mapped(host).to_bits(), near)), stateless),
            Self::Clat => (Ends::Ipv4(end, remote), Outside::Known(ipv6(embed(CLAT, end)))),
            Self::Xlat464 => (Ends::Ipv4(end, remote), Outside::FromPool(remote)),
            Self::DsLite => {
                let outer = (b4(host).to_bits(), subnet(RELAY, 1).to_bits());
                let inner = ((INNER, near), remote);
                (Ends::Tunneled(outer, inner), Outside::FromPool(remote))
            }
            Self::Lw4o6 => {
                let Binding { ipv4, psid, b4, br, .. } = binding(host);
                // A set has 1024 ports.
                let port = psid << (16 - PSID_LEN) | (near % 200 + 200 * place as u16);
                let inner = ((ipv4.to_bits(), port), remote);
                let outside = Outside::Known(Ends::Ipv4(inner.0, inner.1));
                (Ends::Tunneled((b4.to_bits(), br.to_bits()), inner), outside)
            }
        }
    }
}

/// Most flows: a set of ports of lw4o6 has five times 200.
pub(super) const MOST_FLOWS: u32 = 5 * HOSTS;

/// Ends of a flow of native IPv6, which no technology changes.
pub(super) fn native(number: u32) -> Ends {
    let (near, (remote, port)) = ports(number, number / HOSTS);
    let host = |net, place: u32| subnet(net, place + 1).to_bits();
    let remote = (host(NATIVE_REMOTE, remote - REMOTE), port);
    Ends::Ipv6((host(NATIVE_HOSTS, number % HOSTS), near), remote)
}

/// Port inside and remote endpoint of a flow, pseudo-random in the ranges of RFC 4814 section 4.5.
/// The ports of a host differ.
fn ports(number: u32, place: u32) -> (u16, End) {
    const EACH: u64 = (65_536 - 1024) / (MOST_FLOWS / HOSTS) as u64;
    let mut random = Random::new(u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let near = 1024 + u64::from(place) * EACH + random.below(EACH);
    let remote = REMOTE + 1 + random.below(65_534) as u32;
    (near as u16, (remote, 1 + random.below(49_151) as u16))
}

/// Hardware address of the end of a link.
pub(super) fn mac(link: u8, end: u8) -> Mac {
    Mac([2, 0, 0, 0, link, end])
}

fn own4(link: u8, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, link, end)
}

fn own6(link: u8, end: u8) -> Ipv6Addr {
    subnet(link.into(), end.into())
}

/// An address in a subnet of 2001:2::/48.
fn subnet(subnet: u16, host: u32) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, subnet, 0, 0, (host >> 16) as u16, host as u16)
}

/// Hosts inside have the lower half of the subnets, or embed their IPv4 address; others are
/// outside.
fn routes6(link: u8) -> Vec<Route6> {
    let embedded = embedding(EMBEDDING).embed(Ipv4Addr::from_bits(INSIDE));
    let route = |address, len, via, side| Route6 { prefix: Prefix6 { address, len }, via, side };
    let (inner, outer) = (own6(link, 1), own6(link + 1, 2));
    vec![
        route(subnet(0, 0), 49, inner, Side::Inside),
        route(embedded, 96 + 18, inner, Side::Inside),
        route(subnet(0, 0), 48, outer, Side::Outside),
    ]
}

/// A /96 that embeds IPv4 addresses.
fn embedding(number: u16) -> Pref64 {
    Pref64::new(Prefix6 { address: subnet(number, 0), len: 96 }).expect("a prefix of RFC 6052")
}

fn nat64() -> Nat64Settings {
    Nat64Settings {
        prefixes: vec![embedding(EMBEDDING)],
        subscribers: Vec::new(),
        subscriber_length: 64,
        non_global: NonGlobal::Refuse,
        static_hosts: Vec::new(),
    }
}

fn siit(maps: Vec<EamEntry>) -> SiitSettings {
    SiitSettings {
        prefixes: vec![embedding(EMBEDDING)],
        maps,
        icmp_source_ipv4: Vec::new(),
        icmp_source_ipv6: Vec::new(),
        hairpin: Hairpin::default(),
        non_global: NonGlobal::Refuse,
    }
}

fn mapped(host: u32) -> Ipv6Addr {
    subnet(MAPPED_HOSTS, host + 1)
}

fn map(host: u32) -> EamEntry {
    EamEntry {
        ipv6: Prefix6 { address: mapped(host), len: 128 },
        ipv4: Prefix::new(Ipv4Addr::from_bits(INSIDE + host), 32),
    }
}

const SOFTWIRE: SoftwireSettings = SoftwireSettings { mtu: None, path_mtu: false };

fn b4(host: u32) -> Ipv6Addr {
    subnet(B4S + host as u16, 1)
}

fn dslite() -> DsliteSettings {
    DsliteSettings {
        address: subnet(RELAY, 1),
        b4: vec![Prefix6 { address: subnet(B4S, 0), len: 52 }],
        subscriber_length: 128,
        b4_change_interval: Duration::ZERO,
        softwire: SOFTWIRE,
        static_hosts: Vec::new(),
    }
}

/// The binding of a customer. No set of ports has well-known ones.
fn binding(host: u32) -> Binding {
    let sets = (1 << PSID_LEN) - 1;
    Binding {
        ipv4: Ipv4Addr::from_bits(SHARED + host / sets),
        sets: PortSets::new(0, PSID_LEN).expect("an identifier that fits a port"),
        psid: (1 + host % sets) as u16,
        b4: b4(host),
        br: subnet(RELAY, 1),
    }
}

fn lw4o6() -> Lw4o6Settings {
    let bindings: Vec<Binding> = (0..HOSTS).map(binding).collect();
    let table = BindingTable::new(&bindings, subnet(RELAY, 1), 1);
    Lw4o6Settings {
        address: subnet(RELAY, 1),
        bindings: Arc::new(table.expect("no two bindings are equal")),
        hairpinning: true,
        icmp_errors: true,
        inbound_icmp: true,
        softwire: SOFTWIRE,
    }
}
