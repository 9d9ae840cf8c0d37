//! The measured translations: their settings, and the addresses of hosts and remote hosts.

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
pub(super) enum Translation {
    /// Stateful, RFC 6146.
    Nat64,
    /// Stateless by one prefix, RFC 7915.
    Siit,
    /// Stateless; explicit maps have the hosts, RFC 7757.
    Maps,
    /// One pair of prefixes, RFC 6296.
    Nptv6,
}

fn pref64(address: Ipv6Addr) -> Pref64 {
    Pref64::new(Prefix6 { address, len: 96 }).expect("a prefix of RFC 6052")
}

fn pair() -> Nptv6 {
    let prefix = |address| Prefix6 { address, len: 48 };
    Nptv6::new(prefix(INTERNAL), prefix(EXTERNAL)).expect("the prefixes do not overlap")
}

impl Translation {
    pub(super) const ALL: [Self; 4] = [Self::Nat64, Self::Siit, Self::Maps, Self::Nptv6];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nat64 => "NAT64",
            Self::Siit => "SIIT",
            Self::Maps => "SIIT with 1,000 maps",
            Self::Nptv6 => "NPTv6",
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
        }
        settings
    }

    /// Address of a host inside.
    pub(super) fn inside(self, host: u64) -> u128 {
        let place = u128::from(host);
        match self {
            Self::Nat64 => SUBSCRIBERS | place << 64 | 1,
            Self::Siit => embed(STATELESS, self.outside_ipv4(host)),
            Self::Maps => {
                let (map, within) = (host % MAPS, host / MAPS);
                MAPPED + (u128::from(map) << 64) + u128::from(within)
            }
            // Subnets and interface identifiers vary.
            Self::Nptv6 => INTERNAL.to_bits() | (place & 0xff) << 64 | 1 << 32 | place >> 8,
        }
    }

    /// The IPv4 address of a host with a stateless translation.
    pub(super) fn outside_ipv4(self, host: u64) -> u32 {
        let place = match self {
            Self::Maps => ((host % MAPS) << MAP_BITS) + host / MAPS,
            _ => host,
        };
        INSIDE + place as u32
    }

    /// The address of a host of NPTv6 outside.
    pub(super) fn outside_ipv6(self, host: u64) -> u128 {
        let outside = pair().outbound(Ipv6Addr::from_bits(self.inside(host)));
        outside.and_then(Result::ok).expect("the host has a translation").to_bits()
    }

    /// Address of a remote host as hosts inside know it.
    pub(super) fn remote(self, remote: u32) -> u128 {
        match self {
            Self::Nat64 => embed(WELL_KNOWN, remote),
            Self::Siit | Self::Maps => embed(STATELESS, remote),
            Self::Nptv6 => REMOTE | u128::from(remote),
        }
    }
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
