//! Random settings of the translator between the families, and addresses that mean something in
//! them.

use crate::rng::Rng;
use crate::tunnels;
use natgate_engine::{
    AddressRange, Begun, Config, Limits, Match, PoolConfig, Prefix, Rule, RuleAction, SideConfig,
    StaticMapping,
};
use natgate_ipv6::convert::UdpChecksumZero;
use natgate_ipv6::{
    ClatSettings, Conversion, EamEntry, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6,
    Nptv6Settings, Pref64, Prefix6, Settings, Share, Side6, SiitSettings, StaticHost,
};
use natgate_wire::protocol::{TCP, UDP};
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) fn prefix6(text: &str, len: u8) -> Prefix6 {
    Prefix6 { address: text.parse().expect("an address"), len }
}

fn pref64(text: &str, len: u8) -> Pref64 {
    Pref64::new(prefix6(text, len)).expect("a prefix of RFC 6052")
}

fn ipv6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// Own addresses, inside and outside.
pub(crate) const OWN6: [&str; 2] = ["2001:db8:aaaa::1", "2001:db8:bbbb::1"];
pub(crate) const OWN4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 0, 0, 254), Ipv4Addr::new(203, 0, 113, 254)];
/// The external address.
pub(crate) const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The external address of a static mapping.
const WHOLE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// A prefix for SIIT, the CLAT or NAT64, one of each length.
fn one_of_prefixes(rng: &mut Rng, number: u16) -> Pref64 {
    let (text, len) = rng.one_of(&[
        ("2001:db8::", 32),
        ("2001:db8:100::", 40),
        ("2001:db8:122::", 48),
        ("2001:db8:122:300::", 56),
        ("2001:db8:122:344::", 64),
        ("2001:db8:122:344::", 96),
    ]);
    // Prefixes of different numbers do not overlap.
    let moved = ipv6(text).to_bits() + (u128::from(number) << 96);
    Pref64::new(Prefix6 { address: moved.into(), len }).expect("a prefix of RFC 6052")
}

fn siit(rng: &mut Rng) -> SiitSettings {
    let prefixes = match rng.below(5) {
        0 => vec![],
        1 => vec![one_of_prefixes(rng, 0x10), one_of_prefixes(rng, 0x20)],
        2 => vec![pref64("64:ff9b::", 96), one_of_prefixes(rng, 0x20)],
        3 => vec![pref64("64:ff9b::", 96)],
        _ => vec![one_of_prefixes(rng, 0x10)],
    };
    let map = |text: &str, len: u8, ipv4: [u8; 4], ipv4_len: u8| EamEntry {
        ipv6: prefix6(text, len),
        ipv4: Prefix::new(ipv4.into(), ipv4_len),
    };
    let all = [
        map("2001:db8:e000::", 120, [192, 0, 2, 0], 24),
        map("2001:db8:e000::10", 124, [198, 51, 100, 16], 28),
        map("2001:db8:e000::7", 128, [192, 0, 2, 77], 32),
        map("2001:db8:e100::", 64, [198, 51, 100, 0], 24),
        map("2001:db8:e200::1", 128, [8, 8, 8, 8], 32),
        map("2001:db8:e300::", 96, [10, 0, 0, 0], 8),
        map("2001:db8:e400::", 56, [127, 0, 0, 0], 30),
        map("2001:db8:e500::", 96, [0, 0, 0, 0], 0),
    ];
    let maps = all.into_iter().filter(|_| rng.chance(2)).collect();
    let icmp_source_ipv4 = [[192, 0, 2, 200], [192, 0, 2, 201], [192, 0, 2, 202]].map(Into::into);
    let icmp_source_ipv6 = ["2001:db8:cc::1", "2001:db8:cc::2"].map(ipv6);
    SiitSettings {
        prefixes,
        maps,
        icmp_source_ipv4: icmp_source_ipv4[..rng.below(4)].to_vec(),
        icmp_source_ipv6: icmp_source_ipv6[..rng.below(3)].to_vec(),
        hairpin: rng.one_of(&[
            Hairpin::Intrinsic,
            Hairpin::Intrinsic,
            Hairpin::Simple,
            Hairpin::Off,
        ]),
        non_global: rng.one_of(&[NonGlobal::Refuse, NonGlobal::Translate]),
    }
}

fn clat(rng: &mut Rng) -> ClatSettings {
    let well_known = pref64("64:ff9b::", 96);
    let other = one_of_prefixes(rng, 0x30);
    ClatSettings {
        prefix: rng.one_of(&[well_known, other]),
        source: one_of_prefixes(rng, 0x40),
        subscribers: vec![Prefix::new([192, 168, 0, 0].into(), 16)],
    }
}

/// Some pairs of prefixes. Two calls may give a prefix different partners.
pub(crate) fn nptv6(rng: &mut Rng) -> Vec<Nptv6Settings> {
    let pairs = [
        [("fd01:203:405::", 48), ("2001:db8:1::", 48)],
        [("fd02::", 44), ("2001:db8:210::", 48)],
        [("fd03:1:2:300::", 56), ("2001:db8:3:300::", 56)],
        [("fd04:1:2:3::", 64), ("2001:db8:4:5::", 60)],
        [("fd05:1:2:3:4::", 80), ("2001:db8:5:1::", 64)],
        [("fd06::ffff:0", 112), ("2001:db8:6::1:0", 112)],
    ];
    let pair = |[(internal, len), (external, other)]: [(&str, u8); 2]| {
        Nptv6::new(prefix6(internal, len), prefix6(external, other)).expect("a pair")
    };
    let chosen: Vec<_> = pairs.into_iter().filter(|_| rng.chance(2)).collect();
    let turned = |one: [(_, _); 2], rng: &mut Rng| match rng.chance(8) {
        true => [one[1], one[0]],
        false => one,
    };
    chosen
        .into_iter()
        .map(|one| {
            let pair = pair(turned(one, rng));
            Nptv6Settings { pair, icmp_errors: !rng.chance(4) }
        })
        .collect()
}

fn link(rng: &mut Rng, own: &str) -> Side6 {
    Side6 {
        address: (!rng.chance(4)).then(|| (ipv6(own), 64)),
        gateway: None,
        mtu: rng.one_of(&[1280, 1400, 1500, 1500, 9000]),
        icmp_errors: !rng.chance(8),
    }
}

fn conversion(rng: &mut Rng) -> Conversion {
    use UdpChecksumZero::{Compute, Drop, Forward};
    Conversion {
        lowest_mtu: rng.one_of(&[1280, 1280, 1400, 1500]),
        udp_checksum_zero: rng.one_of(&[Compute, Compute, Drop, Forward]),
        traffic_class: rng.one_of(&[None, None, Some(0)]),
        service: rng.one_of(&[None, None, Some(0x10)]),
    }
}

/// Settings without NAT64: tables without state, and routes.
pub(crate) fn stateless(rng: &mut Rng) -> Settings {
    Settings {
        configured: true,
        inside: link(rng, OWN6[0]),
        outside: link(rng, OWN6[1]),
        forwarding: !rng.chance(4),
        filter: rng.one_of(&[Filter::None, Filter::OutboundOnly]),
        conversion: conversion(rng),
        nat64: None,
        siit: (!rng.chance(4)).then(|| siit(rng)),
        clat: rng.chance(2).then(|| clat(rng)),
        nptv6: nptv6(rng),
        dslite: None,
        lw4o6: None,
        map: Vec::new(),
        share: Share::default(),
    }
}

/// Settings with NAT64, and with the other tables now and then.
pub(crate) fn stateful(rng: &mut Rng) -> Settings {
    let (first, second) = (one_of_prefixes(rng, 0x50), one_of_prefixes(rng, 0x60));
    let well_known = pref64("64:ff9b::", 96);
    let all = [prefix6("2001:db8:f000::", 36), prefix6("fd00::", 8)];
    let subscriber_length = rng.one_of(&[48, 64, 64, 120, 126, 128]);
    let hosts = &STATIC_HOSTS.map(ipv6)[..rng.below(STATIC_HOSTS.len() + 1)];
    let nat64 = Nat64Settings {
        prefixes: match rng.below(3) {
            0 => vec![well_known],
            1 => vec![well_known, first, second],
            _ => vec![first, second],
        },
        subscribers: if rng.chance(2) { vec![] } else { all.to_vec() },
        subscriber_length,
        non_global: rng.one_of(&[NonGlobal::Refuse, NonGlobal::Translate]),
        static_hosts: StaticHost::first(hosts, subscriber_length, 1),
    };
    let others = stateless(rng);
    let siit = others.siit.clone().filter(|_| rng.chance(4));
    let siit = siit.filter(|siit| !siit.prefixes.contains(&well_known));
    let clat = others.clat.clone().filter(|clat| rng.chance(4) && clat.prefix != well_known);
    Settings { nat64: Some(nat64), siit, clat, ..others }
}

/// Hosts of static mappings: addresses that packets have.
const STATIC_HOSTS: [&str; 3] =
    ["2001:db8:f000::1", "2001:db8:f000::ffff:ffff:ffff:ffff", "2001:db8:f000::2"];

/// Static mappings of hosts of NAT64 and DS-Lite: ports of a pool, a whole address, and ports in
/// one direction.
fn statics(rng: &mut Rng, settings: &Settings) -> Vec<StaticMapping> {
    let ports = [443, 444, 445, 446].map(|port| (EXTERNAL, Some(port)));
    let places = [(EXTERNAL, Some(80)), (WHOLE, None)].into_iter().chain(ports);
    let realms = settings.host_realms(0);
    let mapping = |(host, external): (&StaticHost, (Ipv4Addr, Option<u16>))| StaticMapping {
        realm: realms.of(host.kind()).expect("the host has a realm"),
        protocol: rng.one_of(&[None, Some(TCP), Some(UDP)]),
        internal: (host.number, external.1.map(|_| rng.one_of(&[80, 5000]))),
        external,
        begun: rng.one_of(&[Begun::Anywhere, Begun::Anywhere, Begun::Outside, Begun::Inside]),
    };
    settings.static_hosts().zip(places).map(mapping).collect()
}

/// A configuration of the engine beside these settings.
pub(crate) fn engine(rng: &mut Rng, settings: &Settings) -> Config {
    let link = |own: Option<Ipv4Addr>, settings: &Side6| SideConfig {
        address: own,
        mtu: Some(settings.mtu),
        silent: !settings.icmp_errors,
        ..SideConfig::default()
    };
    let [inside, outside] = OWN4.map(|own| (!rng.chance(3)).then_some(own));
    let network = rng.chance(3).then(|| Prefix::new([10, 0, 0, 0].into(), 29));
    let [first, last] = [[192, 168, 1, 3], [198, 51, 100, 7]].map(Ipv4Addr::from);
    let inside_routes = rng.chance(3).then_some(AddressRange { first, last });
    let remote = rng.one_of(&[Match::Destination, Match::Source])(
        Prefix::new([8, 8, 0, 0].into(), rng.one_of(&[0, 16])),
        rng.one_of(&[0, 0, 53]),
    );
    let action = if rng.chance(3) { RuleAction::Drop } else { RuleAction::Bypass };
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![AddressRange { first: EXTERNAL, last: EXTERNAL }],
        ports: (2000, 2000 + rng.one_of(&[7, 60, 6000])),
        ..PoolConfig::default()
    };
    let mut config = Config {
        inside: SideConfig { network, ..link(inside, &settings.inside) },
        outside: link(outside, &settings.outside),
        pools: vec![pool],
        inside_routes: inside_routes.into_iter().collect(),
        rules: rng.chance(3).then(|| Rule::new(remote, action)).into_iter().collect(),
        statics: statics(rng, settings),
        limits: Limits {
            // The tables of hosts take little time to make.
            subscribers: Some(1000),
            icmp_errors_per_second: match settings.nat64 {
                // Own errors to hosts are limited by numbers, which are left open.
                Some(_) => 1000,
                None => rng.one_of(&[1, 5, 1000, 1000]),
            },
            ..Limits::default()
        },
        ..Config::default()
    };
    if settings.dslite.is_some() {
        tunnels::limit(rng, &mut config);
    }
    if settings.nat64.is_some() {
        // The model has no limit of NAT64's hosts.
        config.limits.subscribers = Some(1000);
    }
    if settings.nat64.is_some() || settings.dslite.is_some() {
        config.limits.explicit_mappings = rng.one_of(&[5, 100, 100]);
        config.limits.explicit_per_subscriber = rng.one_of(&[2, 64]);
        config.limits.unanswered_give_way = false;
    }
    config
}

const IPV4: [[u8; 4]; 23] = [
    [192, 0, 2, 1],
    [192, 0, 2, 7],
    [192, 0, 2, 18],
    [192, 0, 2, 77],
    [198, 51, 100, 7],
    [198, 51, 100, 17],
    [8, 8, 8, 8],
    [8, 8, 4, 4],
    [10, 0, 0, 5],
    [10, 0, 0, 6],
    [192, 168, 1, 2],
    [192, 168, 1, 3],
    [172, 16, 0, 9],
    [127, 0, 0, 1],
    [0, 0, 0, 0],
    [169, 254, 1, 1],
    [224, 0, 0, 1],
    [255, 255, 255, 255],
    [203, 0, 113, 1],
    [203, 0, 113, 254],
    [203, 0, 113, 9],
    [10, 0, 0, 254],
    [192, 0, 0, 8],
];

/// An IPv4 address: mostly one with a meaning.
pub(crate) fn ipv4_address(rng: &mut Rng) -> u32 {
    let any = rng.next() as u32;
    let usual = rng.below(13);
    let known = if rng.chance(4) { rng.below(IPV4.len()) } else { usual };
    if rng.chance(12) { any } else { u32::from_be_bytes(IPV4[known]) }
}

/// An interface identifier with the words that NPTv6 treats apart.
fn identifier(rng: &mut Rng) -> u128 {
    let word = |rng: &mut Rng| u128::from(rng.one_of(&[0_u16, 1, 5, 0xffff, 0xfffe, 0x1234]));
    let few = (0..5).fold(0, |all, _| all << 16 | word(rng));
    match rng.below(4) {
        0 => rng.one_of(&[0_u128, 1, 5, u64::MAX.into(), 0xffff << 64 | 9]),
        1 => few,
        2 => u128::from(rng.below(4) as u32 + 1),
        _ => u128::from(rng.next()) << 16 | u128::from(rng.next()),
    }
}

/// An address of a prefix.
fn within(rng: &mut Rng, prefix: Prefix6) -> u128 {
    let host = identifier(rng) & u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
    prefix.first().to_bits() | host
}

/// A host inside, and a remote host of IPv4 as NAT64 or SIIT shows it.
pub(crate) fn host_and_remote(rng: &mut Rng, settings: &Settings) -> Option<(u128, u128)> {
    let remote = Ipv4Addr::from_bits(rng.one_of(&[0x0808_0404, 0x0909_0909]));
    if let Some(nat64) = &settings.nat64 {
        let host = within(rng, prefix6("2001:db8:f000::", 64));
        return Some((host, rng.one_of(&nat64.prefixes).embed(remote).to_bits()));
    }
    let siit = settings.siit.as_ref()?;
    // An explicit map of the remote host would give it another address on the way back.
    if siit.maps.iter().any(|map| map.ipv4.contains(remote.to_bits())) {
        return None;
    }
    let map = siit.maps.iter().find(|map| map.ipv4.len() == 32)?;
    Some((map.ipv6.first().to_bits(), siit.prefixes.first()?.embed(remote).to_bits()))
}

/// An IPv6 address: mostly one that a table has.
pub(crate) fn ipv6_address(rng: &mut Rng, settings: &Settings) -> u128 {
    let mut embedding: Vec<Pref64> = Vec::new();
    let mut networks: Vec<Prefix6> = vec![prefix6("2001:db8:f000::", 64)];
    if let Some(siit) = &settings.siit {
        embedding.extend(&siit.prefixes);
        networks.extend(siit.maps.iter().map(|map| map.ipv6));
    }
    embedding.extend(settings.nat64.iter().flat_map(|nat64| &nat64.prefixes));
    embedding.extend(settings.clat.iter().flat_map(|clat| [clat.prefix, clat.source]));
    networks
        .extend(settings.nptv6.iter().flat_map(|one| [one.pair.internal(), one.pair.external()]));
    match rng.below(24) {
        0 => ipv6(rng.one_of(&["::", "::1", "ff02::1", "::ffff:192.0.2.1", "fe80::1"])).to_bits(),
        1 => ipv6(rng.one_of(&OWN6)).to_bits(),
        2 => u128::from(rng.next()) << 64 | u128::from(rng.next()),
        3..14 if !embedding.is_empty() => {
            let prefix = rng.one_of(&embedding);
            let address = prefix.embed(ipv4_address(rng).into()).to_bits();
            // Bits behind the embedded address do not count.
            let noise = u128::from(rng.next() as u8);
            if rng.chance(8) && prefix.prefix().len < 80 { address | noise } else { address }
        }
        _ => {
            let network = rng.one_of(&networks);
            within(rng, network)
        }
    }
}
