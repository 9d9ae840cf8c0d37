//! The measured translations: their settings, and the ends of packets.

use super::customers::{self, Customer};
use super::packet::{End6, Ends};
use crate::engine::subscribers;
use crate::frame::End;
use natgate_engine::Prefix;
use natgate_ipv6::{
    EamEntry, Hairpin, Nat64Settings, NonGlobal, Nptv6, Nptv6Settings, Pref64, Prefix6, Settings,
    SiitSettings,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Explicit maps, and the addresses of each.
const MAPS: u64 = 1000;
const MAP_BITS: u8 = 7;

/// Prefix of NAT64: the well-known one.
const WELL_KNOWN: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
/// Prefix of SIIT.
const STATELESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0);
/// Subscribers of NAT64, each with a /64.
const SUBSCRIBERS: u128 = 0x2001_0db8_0001_0000_u128 << 64;
/// Hosts with explicit maps; each map has a /64.
const MAPPED: u128 = 0x2001_0db8_000e_0000_u128 << 64;
/// Internal and external prefix of NPTv6.
const INTERNAL: Ipv6Addr = Ipv6Addr::new(0xfd01, 0x203, 0x405, 0, 0, 0, 0, 0);
const EXTERNAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);
/// Remote hosts of NPTv6.
const REMOTE: u128 = 0x2001_0db8_0009_0000_u128 << 64;
/// IPv4 addresses of hosts.
const INSIDE: u32 = 0x0a00_0000;

/// A translation of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Translation {
    /// Stateful, RFC 6146.
    Nat64,
    /// Stateless by one prefix, RFC 7915.
    Siit,
    /// Stateless; explicit maps have the hosts, RFC 7757.
    Maps,
    /// One pair of prefixes, RFC 6296.
    Nptv6,
    /// Stateful, in tunnels, RFC 6333.
    DsLite,
    /// Stateless by a table of bindings, in tunnels, RFC 7596.
    Lw4o6,
    /// Stateless by rules, in tunnels, RFC 7597.
    MapE,
    /// Stateless by rules, RFC 7599.
    MapT,
}

/// A session: its host, and its number among the sessions of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) host: u64,
    pub(crate) place: u64,
}

impl Session {
    /// The source port of a host that has all ports.
    fn port(self) -> u16 {
        (1024 + self.place) as u16
    }
}

fn pref64(address: Ipv6Addr) -> Pref64 {
    Pref64::new(Prefix6 { address, len: 96 }).expect("a prefix of RFC 6052")
}

fn pair() -> Nptv6 {
    let prefix = |address| Prefix6 { address, len: 48 };
    Nptv6::new(prefix(INTERNAL), prefix(EXTERNAL)).expect("the prefixes do not overlap")
}

impl Translation {
    /// The stateful ones come first.
    pub(super) const ALL: [Self; 8] = [
        Self::Nat64,
        Self::DsLite,
        Self::Siit,
        Self::Maps,
        Self::Nptv6,
        Self::Lw4o6,
        Self::MapE,
        Self::MapT,
    ];
    /// Number of stateful translations.
    pub(super) const STATEFUL: usize = 2;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nat64 => "NAT64",
            Self::Siit => "SIIT",
            Self::Maps => "SIIT with 1,000 maps",
            Self::Nptv6 => "NPTv6",
            Self::DsLite => "DS-Lite",
            Self::Lw4o6 => "lw4o6",
            Self::MapE => "MAP-E",
            Self::MapT => "MAP-T",
        }
    }

    /// True if the engine has the sessions.
    pub(super) fn is_stateful(self) -> bool {
        Self::ALL[..Self::STATEFUL].contains(&self)
    }

    /// Hosts, or customers, of so many sessions.
    pub(super) fn hosts(self, sessions: u64) -> u64 {
        match self {
            Self::Lw4o6 => customers::BINDINGS,
            _ => subscribers(sessions),
        }
    }

    /// Settings with this translation alone.
    pub(super) fn settings(self) -> Settings {
        let mut settings = Settings { configured: true, ..Settings::default() };
        match self {
            Self::Nat64 => {
                settings.nat64 = Some(Nat64Settings {
                    prefixes: vec![pref64(WELL_KNOWN)],
                    subscribers: Vec::new(),
                    subscriber_length: 64,
                    non_global: NonGlobal::Refuse,
                    static_hosts: Vec::new(),
                });
            }
            Self::Siit => settings.siit = Some(siit(Vec::new())),
            Self::Maps => settings.siit = Some(siit((0..MAPS).map(map).collect())),
            Self::Nptv6 => {
                settings.nptv6 = vec![Nptv6Settings { pair: pair(), icmp_errors: true }];
            }
            Self::DsLite => settings.dslite = Some(customers::dslite()),
            Self::Lw4o6 => settings.lw4o6 = Some(customers::lw4o6()),
            Self::MapE => settings.map = customers::rules(customers::relay()),
            Self::MapT => settings.map = customers::rules(customers::default_rule()),
        }
        settings
    }

    /// The ends of a packet from inside.
    pub(crate) fn outbound(self, session: Session, remote: End) -> Ends {
        let Session { host, .. } = session;
        let source = |address| (address, session.port());
        let place = u128::from(host);
        let source: End6 = match self {
            Self::Nat64 => source(SUBSCRIBERS | place << 64 | 1),
            Self::Siit => source(embed(STATELESS, INSIDE + host as u32)),
            Self::Maps => {
                let (map, within) = (host % MAPS, host / MAPS);
                source(MAPPED + (u128::from(map) << 64) + u128::from(within))
            }
            Self::Nptv6 => source(internal(host)),
            Self::DsLite => {
                let inner = (customers::INNER, session.port());
                return Ends::Tunneled(customers::tunnel_of_dslite(host), (inner, remote));
            }
            Self::Lw4o6 | Self::MapE => {
                let Customer { end, tunnel } = self.customer(session);
                return Ends::Tunneled(tunnel, (end, remote));
            }
            Self::MapT => {
                let Customer { end, tunnel } = self.customer(session);
                (tunnel.0, end.1)
            }
        };
        Ends::Ipv6(source, self.remote(remote))
    }

    /// The ends of a packet from outside. `external` is the external endpoint of a session of the
    /// engine's.
    pub(crate) fn inbound(self, session: Session, remote: End, external: End) -> Ends {
        let Session { host, .. } = session;
        let receiver = match self {
            Self::Nat64 | Self::DsLite => external,
            Self::Siit => (INSIDE + host as u32, session.port()),
            Self::Maps => {
                let place = ((host % MAPS) << MAP_BITS) + host / MAPS;
                (INSIDE + place as u32, session.port())
            }
            Self::Nptv6 => {
                let outside = pair().outbound(Ipv6Addr::from_bits(internal(host)));
                let outside = outside.and_then(Result::ok).expect("the host has a translation");
                return Ends::Ipv6(self.remote(remote), (outside.to_bits(), session.port()));
            }
            Self::Lw4o6 | Self::MapE | Self::MapT => self.customer(session).end,
        };
        Ends::Ipv4(remote, receiver)
    }

    fn customer(self, Session { host, place }: Session) -> Customer {
        match self {
            Self::MapE => customers::of_rule(customers::relay(), host, place),
            Self::MapT => customers::of_rule(customers::default_rule(), host, place),
            _ => customers::of_binding(host, place),
        }
    }

    /// A remote endpoint as hosts inside know it, if they know it by IPv6.
    fn remote(self, (address, port): End) -> End6 {
        let address = match self {
            Self::Siit | Self::Maps => embed(STATELESS, address),
            Self::Nptv6 => REMOTE | u128::from(address),
            _ => embed(WELL_KNOWN, address),
        };
        (address, port)
    }
}

/// The address of a host of NPTv6 inside. Subnets and interface identifiers vary.
fn internal(host: u64) -> u128 {
    let place = u128::from(host);
    INTERNAL.to_bits() | (place & 0xff) << 64 | 1 << 32 | place >> 8
}

fn embed(prefix: Ipv6Addr, address: u32) -> u128 {
    pref64(prefix).embed(Ipv4Addr::from_bits(address)).to_bits()
}

fn siit(maps: Vec<EamEntry>) -> SiitSettings {
    SiitSettings {
        prefixes: vec![pref64(STATELESS)],
        maps,
        icmp_source_ipv4: Vec::new(),
        icmp_source_ipv6: Vec::new(),
        hairpin: Hairpin::default(),
        non_global: NonGlobal::Refuse,
    }
}

fn map(number: u64) -> EamEntry {
    let ipv6 = Ipv6Addr::from_bits(MAPPED + (u128::from(number) << 64));
    let ipv4 = Ipv4Addr::from_bits(INSIDE + ((number as u32) << MAP_BITS));
    EamEntry {
        ipv6: Prefix6 { address: ipv6, len: 128 - MAP_BITS },
        ipv4: Prefix::new(ipv4, 32 - MAP_BITS),
    }
}
