//! Configuration and state as data of `ietf-nat`, `ietf-dslite` and `ietf-softwire-br`, judged by
//! yanglint.

mod sample;

use natgate_engine::{
    AddressRange, Allocation, Behavior, BlockConfig, Config, Endpoint, MappingId, MappingKind,
    Match, PoolConfig, PortTimeout, Prefix, RealmConfig, Rule, RuleAction, StaticMapping,
};
use natgate_gateway::ipv6::softwire::{
    Binding, BindingTable, DsliteSettings, Lw4o6Settings, MapMode, MapParameters, MapRule,
    MapSettings, PortSets, SoftwireSettings,
};
use natgate_gateway::ipv6::{
    ClatSettings, EamEntry, Hairpin, Nat64Settings, NonGlobal, Nptv6, Nptv6Settings, Pref64,
    Prefix6, Settings, SiitSettings,
};
use natgate_metrics::yang::{Export, MappingState, configuration, state};
use natgate_wire::protocol;
use serde_json::Value;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, process};

/// Modules whose data is exported, and the one whose features they need.
const MODULES: [&str; 4] = [
    "ietf-softwire-common@2019-11-16.yang",
    "ietf-nat@2019-01-10.yang",
    "ietf-dslite@2019-01-10.yang",
    "ietf-softwire-br@2019-11-16.yang",
];

fn prefix(a: u8, b: u8, len: u8) -> Prefix {
    Prefix::new(Ipv4Addr::new(a, b, 0, 0), len)
}

fn range(first: u8, last: u8) -> AddressRange {
    let address = |last| Ipv4Addr::new(203, 0, 113, last);
    AddressRange { first: address(first), last: address(last) }
}

/// A gateway with one pool.
fn plain() -> Config {
    let pool = PoolConfig {
        name: "default".into(),
        addresses: vec![range(1, 1)],
        ..PoolConfig::default()
    };
    Config { pools: vec![pool], ..Config::default() }
}

/// A gateway that has one of everything that the module has a place for, and some that it has not.
fn rich() -> Config {
    let blocks = BlockConfig { size: 256, ..BlockConfig::default() };
    let mut config = plain();
    config.pools[0].thresholds = vec![80, 95];
    config.pools.push(PoolConfig {
        name: "blocks".into(),
        addresses: vec![range(9, 14), range(20, 20)],
        ports: (1024, 40_959),
        excluded_ports: vec![(5060, 5061)],
        allocation: Some(Allocation::Block(blocks)),
        ..PoolConfig::default()
    });
    config.mapping = Behavior::AddressDependent;
    config.filtering = Behavior::AddressAndPortDependent;
    config.limits.mappings = Some(100_000);
    config.limits.held_ports = Some(1000);
    config.limits.tcp_ports = 100_000;
    let dns =
        PortTimeout { protocol: protocol::UDP, ports: (53, 53), idle: Duration::from_secs(10) };
    config.port_timeouts = vec![dns];
    let fixed = |protocol, port| StaticMapping {
        protocol,
        internal: (Ipv4Addr::new(10, 0, 0, 80), port),
        external: (Ipv4Addr::new(203, 0, 113, 1), port),
        ..StaticMapping::default()
    };
    config.statics = vec![fixed(Some(protocol::TCP), Some(80)), fixed(None, None)];
    let to = Ipv4Addr::new(192, 0, 2, 80);
    config.rules = vec![
        Rule::new(Match::Destination(prefix(198, 51, 16), 0), RuleAction::Bypass),
        Rule::new(Match::Destination(prefix(198, 18, 16), 443), RuleAction::Bypass),
        Rule::new(Match::Source(prefix(10, 9, 16), 0), RuleAction::Bypass),
        Rule::new(Match::Source(prefix(10, 1, 16), 0), RuleAction::Snat(1)),
        Rule::new(Match::Destination(prefix(10, 2, 16), 0), RuleAction::Dnat(to, None)),
        Rule::new(Match::Destination(prefix(10, 3, 16), 80), RuleAction::Dnat(to, Some(8080))),
    ];
    config.realms = vec![RealmConfig {
        name: "leased".into(),
        subscribers: vec![prefix(10, 0, 8)],
        default_pool: 1,
        ..RealmConfig::default()
    }];
    config
}

fn mapped(realm: u16, kind: MappingKind) -> MappingState {
    let id = MappingId {
        protocol: protocol::UDP,
        realm,
        internal: Endpoint::new(0x0a00_0005, 4000),
        external: Endpoint::new(0xcb00_7101, 5000),
        kind,
    };
    MappingState { id, lifetime: Some(299) }
}

/// The complaint of yanglint about data, if any.
fn objections(data: &Value, kind: &str, test: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file: PathBuf =
        env::temp_dir().join(format!("natgate-yang-{test}-{kind}-{}.json", process::id()));
    fs::write(&file, data.to_string()).expect("it can be written");
    let output = Command::new("yanglint")
        .args(["-t", kind, "-p"])
        .arg(folder.join("tests/yang"))
        .args(["-p", "/usr/share/yang/modules/libyang"])
        .arg("-p")
        .arg(folder.join("yang"))
        .args(MODULES.map(|module| folder.join("yang").join(module)))
        .arg(&file)
        .output();
    let output =
        output.expect("yanglint is there (Debian package libyang2-tools; make test installs it)");
    fs::remove_file(&file).expect("it is there");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!output.status.success() || !said.is_empty()).then_some(said)
}

fn accepted(data: &Value, kind: &str, test: &str) {
    let said = objections(data, kind, test);
    assert!(said.is_none(), "{}\n{data:#}", said.unwrap_or_default());
}

#[test]
fn yanglint_finds_what_is_wrong() {
    let mut data = configuration(&plain(), &Settings::default()).data;
    data["ietf-nat:nat"]["instances"]["instance"][0]["policy"][0]["mapping-type"] = "other".into();
    assert!(objections(&data, "config", "wrong").is_some());
}

//= test rfc8512#section-3-valid
#[test]
fn yanglint_accepts_configurations() {
    accepted(&configuration(&plain(), &Settings::default()).data, "config", "plain");
    let Export { data, left_out } = configuration(&rich(), &Settings::default());
    accepted(&data, "config", "rich");
    let sentences = [
        "exclude_ports of pool \"blocks\": port-set-restrict is one range",
        "the dnat rule to 192.0.2.80:8080: dst-ip-address-pool has no ports",
        "the bypass rule for the source 10.9.0.0/16: nat-pass-through is about destinations",
    ];
    for sentence in sentences {
        assert!(left_out.iter().any(|one| one == sentence), "no {sentence} in {left_out:?}");
    }
    assert_eq!(left_out.len(), sentences.len(), "{left_out:?}");
}

//= test rfc8512#section-3-ids
//= test rfc8512#section-3-ports
//= test rfc8512#section-3-thresholds
#[test]
fn a_configuration_is_told_in_the_module_s_words() {
    assert_eq!(configuration(&plain(), &Settings::default()).left_out, [] as [&str; 0]);
    let data = configuration(&rich(), &Settings::default()).data;
    let instances = &data["ietf-nat:nat"]["instances"]["instance"];
    let [first, second] = [&instances[0], &instances[1]];
    assert_eq!((&first["id"], &first["name"]), (&1.into(), &"natgate".into()));
    assert_eq!((&second["id"], &second["name"]), (&2.into(), &"leased".into()));
    let [default, blocks] = [&first["policy"][0], &first["policy"][1]];
    assert_eq!(default["external-ip-address-pool"][0]["external-ip-pool"], "203.0.113.1/32");
    let prefixes = blocks["external-ip-address-pool"].as_array().expect("a list");
    let shown = |one: &Value| format!("{}: {}", one["pool-id"], one["external-ip-pool"]);
    assert_eq!(
        prefixes.iter().map(shown).collect::<Vec<_>>(),
        [
            "2: \"203.0.113.9/32\"",
            "3: \"203.0.113.10/31\"",
            "4: \"203.0.113.12/31\"",
            "5: \"203.0.113.14/32\"",
            "6: \"203.0.113.20/32\"",
        ]
    );
    assert_eq!(blocks["port-allocation-type"], "port-range-allocation");
    assert_eq!(blocks["port-set"]["port-set-size"], 256);
    assert_eq!(blocks["subscriber-match"][0]["subnet"], "10.1.0.0/16");
    assert_eq!(default["mapping-type"], "adm");
    assert_eq!(default["filtering-type"], "edf");
    assert_eq!(default["timers"]["udp-timeout"], 300);
    assert_eq!(default["timers"]["per-port-timeout"][0]["timeout"], 10);
    assert_eq!(default["notify-pool-usage"]["high-threshold"], 95);
    assert_eq!(default["dst-ip-address-pool"][0]["dst-out-ip-pool"], "192.0.2.80/32");
    assert_eq!(first["nat-pass-through"][1]["port"], 443);
    assert_eq!(first["mapping-limits"]["limit-port-mappings"], 100_000);
    let entries = &first["mapping-table"]["mapping-entry"];
    assert_eq!(entries[0]["external-src-port"]["start-port-number"], 80);
    assert!(entries[1]["transport-protocol"].is_null());
    assert_eq!(second["policy"][0]["id"], 2);
    let ports = &blocks["port-set-restrict"];
    let ports = ["start-port-number", "end-port-number"].map(|end| ports[end].as_u64());
    assert_eq!(ports, [Some(1024), Some(40_959)]);
    assert_eq!(default["notify-pool-usage"]["low-threshold"], 0);
    let ids = |list: &Value, id: &str| -> Vec<u64> {
        let entries = list.as_array().expect("a list").iter();
        entries.filter_map(|entry| entry[id].as_u64()).collect()
    };
    assert_eq!(ids(instances, "id"), [1, 2]);
    assert_eq!(ids(&first["policy"], "id"), [1, 2]);
    assert_eq!(ids(entries, "index"), [1, 2]);
}

//= test rfc8512#section-3-valid
//= test rfc8512#section-3-discontinuity
#[test]
fn yanglint_accepts_the_state() {
    let figures = sample::figures();
    accepted(&state((&plain(), &Settings::default()), &figures, &[]).data, "data", "plain");
    let mappings = [
        mapped(0, MappingKind::Dynamic),
        mapped(0, MappingKind::Static),
        mapped(1, MappingKind::Dynamic),
    ];
    let data = state((&rich(), &Settings::default()), &figures, &mappings).data;
    accepted(&data, "data", "rich");
    let instances = &data["ietf-nat:nat"]["instances"]["instance"];
    let statistics = &instances[0]["statistics"];
    assert_eq!(statistics["discontinuity-time"], "2023-11-14T22:13:20Z");
    assert!(instances[1]["statistics"]["discontinuity-time"].is_string());
    // Numbers of 64 bits are strings.
    assert_eq!(statistics["traffic-statistics"]["sent-packets"], "1000");
    assert_eq!(statistics["mappings-statistics"]["total-active-subscribers"], 3);
    assert_eq!(statistics["pools-stats"]["per-pool-stats"][0]["pool-id"], 1);
    let made = |instance: usize| {
        let entries = instances[instance]["mapping-table"]["mapping-entry"].as_array();
        let entries = entries.expect("a table").iter();
        entries.filter(|entry| entry["type"] == "dynamic-implicit").count()
    };
    // Static mappings are those of the configuration.
    assert_eq!((made(0), made(1)), (1, 1));
    assert_eq!(instances[0]["mapping-table"]["mapping-entry"][2]["lifetime"], 299);
}

fn address6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn prefix6(text: &str, len: u8) -> Prefix6 {
    Prefix6 { address: address6(text), len }
}

fn pref64(text: &str, len: u8) -> Pref64 {
    Pref64::new(prefix6(text, len)).expect("a prefix")
}

const TUNNELS: SoftwireSettings = SoftwireSettings { mtu: Some(1480), path_mtu: true };

/// Translators between families and of prefixes.
fn families() -> Settings {
    let pair = Nptv6::new(prefix6("fd00:1::", 48), prefix6("2001:db8:1::", 48)).expect("a pair");
    let eam = EamEntry { ipv6: prefix6("2001:db8:3::", 120), ipv4: prefix(192, 0, 24) };
    Settings {
        nat64: Some(Nat64Settings {
            prefixes: vec![pref64("64:ff9b::", 96)],
            subscribers: vec![prefix6("2001:db8::", 32)],
            subscriber_length: 56,
            non_global: NonGlobal::Refuse,
            static_hosts: Vec::new(),
        }),
        siit: Some(SiitSettings {
            prefixes: vec![pref64("2001:db8:100::", 40)],
            maps: vec![eam],
            icmp_source_ipv4: vec![Ipv4Addr::new(203, 0, 113, 8)],
            icmp_source_ipv6: Vec::new(),
            hairpin: Hairpin::Intrinsic,
            non_global: NonGlobal::Refuse,
        }),
        clat: Some(ClatSettings {
            prefix: pref64("64:ff9b:1::", 96),
            source: pref64("2001:db8:aaaa::", 96),
            subscribers: vec![prefix(10, 0, 8)],
        }),
        nptv6: vec![Nptv6Settings { pair, icmp_errors: true }],
        ..Settings::default()
    }
}

/// An AFTR, a relay of lw4o6 with three bindings, of which two are of one tunnel.
fn tunnels() -> Settings {
    let relay = address6("2001:db8:ffff::2");
    let binding = |last, bits, psid, b4: &str| Binding {
        ipv4: Ipv4Addr::new(203, 0, 113, last),
        sets: PortSets::new(0, bits).expect("bits of a port"),
        psid,
        b4: address6(b4),
        br: relay,
    };
    let bindings = [
        binding(7, 6, 1, "2001:db8:b4::1"),
        binding(7, 6, 2, "2001:db8:b4::2"),
        binding(8, 0, 0, "2001:db8:b4::2"),
    ];
    Settings {
        dslite: Some(DsliteSettings {
            subscriber_length: 128,
            b4_change_interval: std::time::Duration::ZERO,
            address: address6("2001:db8:ffff::1"),
            b4: vec![prefix6("2001:db8:b4::", 40)],
            softwire: TUNNELS,
            static_hosts: Vec::new(),
        }),
        lw4o6: Some(Lw4o6Settings {
            address: relay,
            bindings: Arc::new(BindingTable::new(&bindings, relay, 1).expect("bindings")),
            hairpinning: false,
            icmp_errors: true,
            inbound_icmp: true,
            softwire: TUNNELS,
        }),
        ..Settings::default()
    }
}

/// Rules of MAP-E and of MAP-T.
fn rules() -> Settings {
    let rule = |ipv6: &str, third, mode| {
        let ipv4 = Prefix::new(Ipv4Addr::new(203, 0, third, 0), 24);
        let ipv6 = prefix6(ipv6, 40);
        let parameters =
            MapParameters { ipv6, ipv4, ea_length: 16, psid_offset: 6, psid: None, mode };
        MapSettings { rule: MapRule::new(parameters).expect("a rule"), softwire: TUNNELS }
    };
    let relay = MapMode::Encapsulation(address6("2001:db8:ffff::3"));
    let dmr = MapMode::Translation(pref64("64:ff9b::", 96));
    let map = vec![rule("2001:db8:8000::", 112, relay), rule("2001:db8:9000::", 113, dmr)];
    Settings { map, ..Settings::default() }
}

/// The instance with a name.
fn named<'d>(data: &'d Value, name: &str) -> &'d Value {
    let all = data["ietf-nat:nat"]["instances"]["instance"].as_array().expect("instances");
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {data:#}"))
}

//= test rfc8676#section-7-valid
//= test rfc8512#section-3-valid
#[test]
fn yanglint_accepts_what_ipv6_has_part_in() {
    let figures = sample::figures();
    for (name, ipv6) in [("families", families()), ("tunnels", tunnels()), ("rules", rules())] {
        for (kind, config) in [("plain", plain()), ("rich", rich())] {
            let test = format!("{name}-{kind}");
            accepted(&configuration(&config, &ipv6).data, "config", &test);
            accepted(&state((&config, &ipv6), &figures, &[]).data, "data", &test);
        }
    }
    let mut data = configuration(&plain(), &tunnels()).data;
    data["ietf-softwire-br:br-instances"]["binding"]["bind-instance"][0]["name"] = 7.into();
    assert!(objections(&data, "config", "wrong6").is_some());
}

//= test rfc8512#section-3-ids
#[test]
fn translators_between_families_are_instances() {
    let Export { data, left_out } = configuration(&rich(), &families());
    assert!(left_out.iter().any(|one| one.starts_with("siit.icmp_source")), "{left_out:?}");
    let ids = data["ietf-nat:nat"]["instances"]["instance"].as_array().expect("instances").iter();
    assert_eq!(
        ids.map(|one| one["id"].as_u64()).collect::<Vec<_>>(),
        (1..=6).map(Some).collect::<Vec<_>>()
    );
    let policy = |name| &named(&data, name)["policy"][0];
    assert_eq!(named(&data, "nat64")["type"], "ietf-nat:nat64");
    let nat64 = policy("nat64");
    assert_eq!(nat64["nat64-prefixes"][0]["nat64-prefix"], "64:ff9b::/96");
    assert_eq!(nat64["subscriber-mask-v6"], 56);
    assert_eq!(nat64["subscriber-match"][0]["subnet"], "2001:db8::/32");
    assert_eq!(nat64["external-ip-address-pool"][0]["external-ip-pool"], "203.0.113.1/32");
    assert_eq!(policy("siit")["nat64-prefixes"][0]["stateless-enable"], true);
    assert_eq!(policy("siit")["eam"][0]["ipv6-prefix"], "2001:db8:3::/120");
    let clat = &policy("clat")["clat-parameters"];
    assert_eq!(clat["clat-ipv6-prefixes"][0]["ipv6-prefix"], "2001:db8:aaaa::/96");
    assert_eq!(clat["ipv4-prefixes"][0]["ipv4-prefix"], "10.0.0.0/8");
    let pair = &policy("nptv6")["nptv6-prefixes"][0];
    assert_eq!(pair["external-ipv6-prefix"], "2001:db8:1::/48");
}

//= test rfc8513#section-3-defaults
//= test rfc8676#section-7-unique
//= test rfc8676#section-7-discontinuity
#[test]
fn softwires_are_told_in_the_modules_words() {
    let Export { data, left_out } = configuration(&plain(), &tunnels());
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    assert!(left_out[1].starts_with("1 bindings"), "{left_out:?}");
    let aftr = named(&data, "dslite");
    assert_eq!(aftr["per-interface-binding"], "dslite");
    let policy = &aftr["policy"][0];
    assert_eq!(policy["subscriber-mask-v6"], 128);
    assert_eq!(policy["ietf-dslite:state-migrate"], false);
    assert_eq!(policy["ietf-dslite:max-softwires-per-subscriber"], 1);
    let relay = &data["ietf-softwire-br:br-instances"]["binding"]["bind-instance"][0];
    assert_eq!(
        (&relay["softwire-payload-mtu"], &relay["enable-hairpinning"]),
        (&1440.into(), &false.into())
    );
    let entries = relay["binding-table"]["binding-entry"].as_array().expect("a table");
    assert_eq!(entries.len(), 2);
    let of = |b4| entries.iter().find(|one| one["binding-ipv6info"] == b4).expect(b4);
    assert_eq!(of("2001:db8:b4::1")["port-set"]["psid"], 1);
    let data = configuration(&plain(), &rules()).data;
    let all = &data["ietf-softwire-br:br-instances"]["algorithm"]["algo-instance"];
    assert_eq!(all[0]["br-ipv6-addr"], "2001:db8:ffff::3");
    assert_eq!(all[1]["dmr-ipv6-prefix"], "64:ff9b::/96");
    assert_eq!((&all[0]["ea-len"], &all[0]["port-set"]["psid-len"]), (&16.into(), &8.into()));
    let both = Settings { map: rules().map, ..tunnels() };
    let left_out = configuration(&plain(), &both).left_out;
    assert!(left_out.iter().any(|one| one.starts_with("2 of [[map]]")), "{left_out:?}");
    let data = state((&plain(), &rules()), &sample::figures(), &[]).data;
    let all = &data["ietf-softwire-br:br-instances"]["algorithm"]["algo-instance"];
    assert_eq!(all[0]["traffic-stat"]["sent-ipv4-packets"], "21");
    assert_eq!(all[0]["traffic-stat"]["discontinuity-time"], "2023-11-14T22:13:20Z");
}
