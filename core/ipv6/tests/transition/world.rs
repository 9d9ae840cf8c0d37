//! A translator with its engine, and what happens to a packet.

use crate::explained;
use crate::prefixes::{address, pref64, prefix};
use natgate_engine::{
    AddressRange, Config, DropReason, Engine, Packet, PoolConfig, Prefix, Side, Timestamp,
};
use natgate_ipv6::convert::Cut;
use natgate_ipv6::softwire::{
    Binding, BindingTable, Lw4o6Settings, MapMode, MapParameters, MapRule, MapSettings, PortSets,
    SoftwireSettings,
};
use natgate_ipv6::{
    EamEntry, Fate, Hairpin, Nat64Settings, NonGlobal, Pref64, Settings, SiitSettings, Translator,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const START: Timestamp = Timestamp(1_000_000_000_000);
const ROOM: usize = 128;
/// The gateway's own addresses.
pub(crate) const OWN6: &str = "2001:db8:1::1";
pub(crate) const OWN4: &str = "198.51.100.254";

/// A packet that left, or the reason why it did not.
#[derive(Debug, PartialEq)]
pub(crate) enum Went {
    To(Side, Vec<u8>, Option<Cut>),
    Dropped(DropReason),
    Held,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) translator: Translator,
    pub(crate) now: Timestamp,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::with(settings, |_| ())
    }

    pub(crate) fn with(settings: Settings, change: impl FnOnce(&mut Config)) -> Self {
        let external = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config = Config { pools: vec![pool], ..Config::default() };
        config.outside.address = Some(OWN4.parse().expect("an address"));
        config.inside.mtu = Some(settings.inside.mtu);
        config.outside.mtu = Some(settings.outside.mtu);
        change(&mut config);
        let mut settings = Settings { configured: true, ..settings };
        settings.inside.address = Some((address(OWN6).into(), 64));
        let translator = Translator::new(&settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { engine, translator, now: START }
    }

    fn drops(&self) -> Vec<u64> {
        let both = [self.engine.counters().drops, self.translator.counters().drops];
        both[0].iter().zip(&both[1]).map(|(one, other)| one + other).collect()
    }

    pub(crate) fn take(&mut self, from: Side, bytes: &[u8]) -> Went {
        let mut buffer = vec![0; ROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, ROOM);
        let before = self.drops();
        let Self { translator, engine, now } = self;
        let fate = explained::take(translator, engine, (*now, from), &mut packet);
        if let Fate::Send(departure) = fate {
            return Went::To(departure.side, packet.bytes().to_vec(), departure.cut);
        }
        let after = self.drops();
        let counts = |reason: &DropReason| after[*reason as usize] != before[*reason as usize];
        DropReason::ALL.iter().copied().find(counts).map_or(Went::Held, Went::Dropped)
    }

    /// Takes a packet that leaves whole; returns its bytes.
    #[track_caller]
    pub(crate) fn pass(&mut self, from: Side, to: Side, bytes: &[u8]) -> Vec<u8> {
        match self.take(from, bytes) {
            Went::To(side, bytes, None) if side == to => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Takes a packet that is dropped.
    #[track_caller]
    pub(crate) fn refuse(&mut self, from: Side, bytes: &[u8]) -> DropReason {
        match self.take(from, bytes) {
            Went::Dropped(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// A packet that the translator or the engine sends on its own.
    pub(crate) fn own(&mut self) -> Option<(Side, Vec<u8>)> {
        let mut buffer = vec![0; 66_000];
        if let Some((side, len)) = self.translator.poll_transmit(&mut buffer) {
            return Some((side, buffer[..len].to_vec()));
        }
        let (_, side, len) = self.engine.poll_transmit(&mut buffer[ROOM..])?;
        let mut packet = Packet::new(&mut buffer[..ROOM + len], ROOM);
        let realm = self.engine.transmit_realm();
        if side == Side::Inside && self.translator.realms().has(realm) {
            self.translator.convert_own_to_host(realm, &mut packet).expect("a host");
        }
        Some((side, packet.bytes().to_vec()))
    }
}

pub(crate) fn nat64(net: Pref64) -> Settings {
    let nat64 = Nat64Settings {
        prefixes: vec![net],
        subscribers: Vec::new(),
        subscriber_length: 64,
        non_global: NonGlobal::Translate,
        static_hosts: Vec::new(),
    };
    Settings { nat64: Some(nat64), ..Settings::default() }
}

/// Stateless translation by a prefix, and by explicit maps of one address each.
pub(crate) fn siit(net: Pref64, maps: &[(&str, &str)]) -> Settings {
    let map = |&(ipv6, ipv4): &(&str, &str)| EamEntry {
        ipv6: prefix(ipv6, 128),
        ipv4: Prefix::new(ipv4.parse().expect("an address"), 32),
    };
    let siit = SiitSettings {
        prefixes: vec![net],
        maps: maps.iter().map(map).collect(),
        icmp_source_ipv4: vec![Ipv4Addr::new(192, 0, 2, 200)],
        icmp_source_ipv6: Vec::new(),
        hairpin: Hairpin::Intrinsic,
        non_global: NonGlobal::Translate,
    };
    Settings { siit: Some(siit), ..Settings::default() }
}

/// The prefix of the default mapping rule.
pub(crate) fn dmr() -> Pref64 {
    pref64("2001:db8:ffff::", 64)
}

/// A rule of MAP with 16 EA bits and an offset of 6 bits.
pub(crate) fn map_rule(ipv6: &str, ipv4: &str, len: u8, mode: MapMode) -> MapRule {
    MapRule::new(MapParameters {
        ipv6: prefix(ipv6, 40),
        ipv4: Prefix::new(ipv4.parse().expect("an address"), len),
        ea_length: 16,
        psid_offset: 6,
        psid: None,
        mode,
    })
    .expect("a rule")
}

/// Rules of MAP, each with an MTU of its domain.
pub(crate) fn map(rules: &[(MapRule, Option<u16>)]) -> Settings {
    let of = |&(rule, mtu): &(MapRule, Option<u16>)| MapSettings {
        rule,
        softwire: SoftwireSettings { mtu, path_mtu: true },
    };
    Settings { map: rules.iter().map(of).collect(), ..Settings::default() }
}

/// The address of a rule's customer.
pub(crate) fn customer(rule: &MapRule, ipv4: &str, psid: u16) -> String {
    let ipv4: Ipv4Addr = ipv4.parse().expect("an address");
    Ipv6Addr::from_bits(rule.address_of(ipv4.to_bits(), psid)).to_string()
}

/// Bindings of one IPv4 address, divided in 64 sets of 1024 ports: identifier, B4 and relay.
pub(crate) fn lw4o6(ipv4: &str, mtu: Option<u16>, bindings: &[(u16, &str, &str)]) -> Settings {
    let of = |&(psid, b4, br): &(u16, &str, &str)| Binding {
        ipv4: ipv4.parse().expect("an address"),
        sets: PortSets::new(0, 6).expect("6 bits"),
        psid,
        b4: address(b4).into(),
        br: address(br).into(),
    };
    let relay = bindings[0].2.parse().expect("an address");
    let bindings: Vec<Binding> = bindings.iter().map(of).collect();
    let bindings = BindingTable::new(&bindings, relay, 1).expect("bindings that agree");
    let lw4o6 = Lw4o6Settings {
        address: relay,
        bindings: Arc::new(bindings),
        hairpinning: true,
        icmp_errors: true,
        inbound_icmp: true,
        softwire: SoftwireSettings { mtu, path_mtu: true },
    };
    Settings { lw4o6: Some(lw4o6), ..Settings::default() }
}
