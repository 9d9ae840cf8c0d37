//! Customers of softwires: their bindings, rules, tunnels and endpoints.

use crate::frame::End;
use crate::random::Random;
use natgate_engine::Prefix;
use natgate_ipv6::softwire::{
    Binding, BindingTable, DsliteSettings, Lw4o6Settings, MapMode, MapParameters, MapRule,
    MapSettings, PortSets, SoftwireSettings,
};
use natgate_ipv6::{Pref64, Prefix6};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bindings of lw4o6.
pub(super) const BINDINGS: u64 = 1_000_000;
/// Changes of bindings a second.
const CHANGES: u32 = 10_000;
/// Domains of MAP.
pub(super) const DOMAINS: u64 = 10_000;
/// The inner address of every host of DS-Lite.
pub(super) const INNER: u32 = 0xc0a8_0102;

/// The gateway's end of tunnels.
const RELAY: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
/// Tunnel ends of DS-Lite and lw4o6, each in a /64.
const ENDS: u128 = 0x2001_0db8_00b4_0000_u128 << 64;
/// The first address of customers of lw4o6 and MAP.
const SHARED: u32 = 0x0b00_0000;
/// Bits of a port-set identifier.
const PSID_LEN: u8 = 6;
/// Bits of a port before the identifier, of MAP.
const PSID_OFFSET: u8 = 6;
/// Bits of an address that the rules of MAP leave to customers.
const SUFFIX: u8 = 8;
/// The IPv6 prefix of a rule and its place.
const RULES: u128 = 0x2a00_u128 << 112;
const RULE_LEN: u8 = 40;

/// A customer's endpoint, and the ends of the tunnel: the customer's and the gateway's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Customer {
    pub(super) end: End,
    pub(super) tunnel: (u128, u128),
}

const SOFTWIRE: SoftwireSettings = SoftwireSettings { mtu: None, path_mtu: false };

/// The AFTR of DS-Lite.
pub(super) fn dslite() -> DsliteSettings {
    let b4 = Prefix6 { address: Ipv6Addr::from_bits(ENDS), len: 40 };
    DsliteSettings {
        address: RELAY,
        b4: vec![b4],
        subscriber_length: 128,
        b4_change_interval: Duration::ZERO,
        softwire: SOFTWIRE,
        static_hosts: Vec::new(),
    }
}

/// The ends of the tunnel of a host of DS-Lite.
pub(super) fn tunnel_of_dslite(host: u64) -> (u128, u128) {
    (ENDS | u128::from(host) << 64 | 1, RELAY.to_bits())
}

/// The relay of lw4o6 with all bindings.
pub(super) fn lw4o6() -> Lw4o6Settings {
    let sets = port_sets();
    let bindings: Vec<Binding> = (0..BINDINGS).map(|number| binding(number, sets)).collect();
    let bindings = BindingTable::new(&bindings, RELAY, 1).expect("no two bindings are equal");
    Lw4o6Settings {
        address: RELAY,
        bindings: Arc::new(bindings),
        hairpinning: true,
        icmp_errors: true,
        inbound_icmp: true,
        softwire: SOFTWIRE,
    }
}

fn port_sets() -> PortSets {
    PortSets::new(0, PSID_LEN).expect("an identifier that fits a port")
}

fn binding(number: u64, sets: PortSets) -> Binding {
    let Customer { end, tunnel } = of_binding(number, 0);
    Binding {
        ipv4: Ipv4Addr::from_bits(end.0),
        sets,
        psid: psid_of_binding(number),
        b4: Ipv6Addr::from_bits(tunnel.0),
        br: RELAY,
    }
}

/// Changes bindings at random until the end, [`CHANGES`] a second. A change gives a binding the
/// same tunnel and another place, so that its packets go on.
pub(super) fn change_bindings(bindings: &BindingTable, is_over: &AtomicBool) {
    let (sets, pause) = (port_sets(), Duration::from_secs(1) / CHANGES);
    let (mut random, mut next) = (Random::new(13), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += pause;
        let changed = bindings.set(binding(random.below(BINDINGS), sets));
        assert_eq!(changed, Ok(false), "the table has the binding");
    }
}

fn psid_of_binding(number: u64) -> u16 {
    (number & ((1 << PSID_LEN) - 1)) as u16
}

/// The customer of a binding, with the port at a place in the port set.
pub(super) fn of_binding(number: u64, place: u64) -> Customer {
    let port = psid_of_binding(number) << (16 - PSID_LEN) | (place + 1) as u16;
    Customer {
        end: (SHARED + (number >> PSID_LEN) as u32, port),
        tunnel: (ENDS | u128::from(number) << 64 | 1, RELAY.to_bits()),
    }
}

/// The mode of MAP-E.
pub(super) fn relay() -> MapMode {
    MapMode::Encapsulation(RELAY)
}

/// The mode of MAP-T.
pub(super) fn default_rule() -> MapMode {
    let address = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);
    MapMode::Translation(Pref64::new(Prefix6 { address, len: 96 }).expect("a prefix of RFC 6052"))
}

/// The rules of all domains.
pub(super) fn rules(mode: MapMode) -> Vec<MapSettings> {
    let settings = |domain| MapSettings { rule: rule(mode, domain), softwire: SOFTWIRE };
    (0..DOMAINS).map(settings).collect()
}

fn rule(mode: MapMode, domain: u64) -> MapRule {
    let ipv6 = RULES | u128::from(domain) << (128 - RULE_LEN);
    let ipv4 = SHARED + ((domain as u32) << SUFFIX);
    let parameters = MapParameters {
        ipv6: Prefix6 { address: Ipv6Addr::from_bits(ipv6), len: RULE_LEN },
        ipv4: Prefix::new(Ipv4Addr::from_bits(ipv4), 32 - SUFFIX),
        ea_length: SUFFIX + PSID_LEN,
        psid_offset: PSID_OFFSET,
        psid: None,
        mode,
    };
    MapRule::new(parameters).expect("a rule that fits an address")
}

/// A customer of MAP, with the port at a place in the port set. Customers go round the domains.
pub(super) fn of_rule(mode: MapMode, number: u64, place: u64) -> Customer {
    let (domain, within) = (number % DOMAINS, number / DOMAINS);
    let rest = 16 - PSID_OFFSET - PSID_LEN;
    let psid = (within % (1 << PSID_LEN)) as u16;
    // The first block of ports has none of any set.
    let block = 1 + (place >> rest) as u16;
    let port = block << (16 - PSID_OFFSET) | psid << rest | (place % (1 << rest)) as u16;
    let address = SHARED + ((domain as u32) << SUFFIX) + within as u32;
    let customer = rule(mode, domain).customer(Ipv4Addr::from_bits(address), psid);
    Customer { end: (address, port), tunnel: (customer.address.to_bits(), RELAY.to_bits()) }
}
