//! Settings that good configurations are read as.

use natgate_control::config::{parse, read_text};
use natgate_control::meaning::Meaning;
use natgate_engine::{
    AddressRange, Allocation, Behavior, Config, Match, PoolConfig, Pooling, Prefix, Refusal, Rule,
    RuleAction, Side, SideConfig, StaticMapping,
};
use natgate_gateway::{
    AnnounceSettings, Backend, KernelSettings, LearnSettings, ReceiveMode, Route, Settings,
    SideSettings, StateSettings,
};
use std::net::Ipv4Addr;
use std::time::Duration;

const SMALLEST: &str = r#"
[inside]
device = "eth1"
[outside]
device = "eth0"
[[pool]]
addresses = ["203.0.113.1"]
"#;

fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address in a test")
}

fn range(first: &str, last: &str) -> AddressRange {
    AddressRange { first: ip(first), last: ip(last) }
}

#[track_caller]
fn good(text: &str) -> Settings {
    parse(text, "test.toml").unwrap_or_else(|problems| panic!("{}", problems.join("\n")))
}

#[test]
fn the_smallest_file_is_the_engines_defaults_with_a_pool() {
    let mtu = SideConfig { mtu: Some(1500), ..SideConfig::default() };
    let pool = PoolConfig {
        name: "default".to_owned(),
        addresses: vec![range("203.0.113.1", "203.0.113.1")],
        ports: (1024, 65_535),
        ..PoolConfig::default()
    };
    let engine =
        Config { inside: mtu.clone(), outside: mtu, pools: vec![pool], ..Config::default() };
    let expected = Settings::new(engine, SideSettings::new("eth1"), SideSettings::new("eth0"));
    assert_eq!(good(SMALLEST), expected);
}

#[test]
fn each_side_has_its_back_end() {
    let text = SMALLEST
        .replace("\"eth1\"", "\"eth1\"\nbackend = \"tun\"")
        .replace("\"eth0\"", "\"eth0\"\nbackend = \"af-xdp\"");
    let settings = good(&text);
    assert_eq!((settings.inside.backend, settings.outside.backend), (Backend::Tun, Backend::AfXdp));
    let read = read_text(&text, "test.toml").expect("it is right");
    let said = Meaning::of(read).to_string();
    assert!(said.contains("inside: eth1 (tun), no address, MTU 1500"), "{said}");
    assert!(said.contains("outside: eth0 (af-xdp), address taken from the device"), "{said}");
}

/// Every key, none with its default.
const EVERYTHING: &str = r#"
[inside]
device  = "veth-in"
backend = "af-packet"
address = "10.0.0.1/8"
gateway = "10.255.255.254"
mtu = 9000
mode = "rate"
ring = 512
icmp_errors = false
management = ["10.0.0.2", "172.31.0.1"]
[outside]
device  = "veth-out"
address = "192.0.2.1/24"
gateway = "192.0.2.254"
mtu = 1400
management = []
[announce]
table = 100
protocol = 200
partner_metric = 7
[shutdown]
drain = "1m"
[learn]
table = 4294967295
[[route]]
prefix = "10.128.0.0/9"
via = "10.0.0.2"
side = "inside"
[[route]]
prefix = "198.51.100.0/25"
via = "192.0.2.253"
[[pool]]
name = "first"
addresses = ["203.0.113.0/28", "203.0.113.77"]
ports = "5000"
[[pool]]
name = "default"
addresses = ["192.0.2.10-192.0.2.20"]
ports = "1024-2047"
[nat]
subscribers = ["10.0.0.0/9", "100.64.0.7"]
mapping = "address-dependent"
filtering = "address-and-port-dependent"
pooling = "soft-paired"
allocation = "preserve"
port_parity = false
hairpinning = false
inbound_refresh = false
tcp_pickup = true
filtering_tcp = "address-dependent"
tcp_mss = 1240
unsolicited_syn = "silent"
refusal = "prohibited"
[nat.block]
size = 512
max_per_subscriber = 4
[limits]
ports_per_subscriber = { tcp = 1, udp = 2, icmp = 3 }
sessions_per_mapping = 4
new_mappings_per_second = 5
icmp_errors_per_second = 6
subscribers = 5
mappings = 7
extra_sessions = 0
fragment_memory = "64KiB"
fragments_per_datagram = 11
held_ports = 8
unanswered_give_way = false
unanswered_kept = 6
asking_share = 7
extra_sessions_per_subscriber = 9
twice_sessions = 10
[timeouts]
udp = "1s"
tcp_established = "1d2h4m5s6ms"
tcp_opening = "90m"
tcp_closing = "30d"
icmp = "1001ms"
other = "2h4m"
hold_down = "1h"
fragment = "500ms"
[state]
file = "/run/ports in use"
interval = "1500ms"
[[static]]
internal = "10.0.0.80:8080"
external = "203.0.113.1:80"
protocol = "tcp"
[[static]]
internal = "10.0.0.81"
external = "198.51.100.9"
[[rule]]
kind = "snat"
match = { source = "10.1.0.0/16", port = 0 }
pool = "first"
[[rule]]
kind = "bypass"
match = { destination = "10.99.0.1", port = 53 }
[[rule]]
kind = "snat"
match = { source = "10.2.0.0/16" }
address = "203.0.113.1"
priority = -7
[[rule]]
kind = "drop"
match = { source = "10.3.0.0/16" }
"#;

fn everything() -> Settings {
    let prefix = |address, len| Prefix::new(ip(address), len);
    let mut engine = Config {
        inside: SideConfig {
            address: Some(ip("10.0.0.1")),
            network: Some(prefix("10.0.0.0", 8)),
            mtu: Some(9000),
            silent: true,
        },
        outside: SideConfig {
            address: Some(ip("192.0.2.1")),
            network: Some(prefix("192.0.2.0", 24)),
            mtu: Some(1400),
            ..SideConfig::default()
        },
        subscribers: vec![prefix("10.0.0.0", 9), prefix("100.64.0.7", 32)],
        inside_routes: vec![range("10.128.0.0", "10.255.255.255")],
        pools: vec![
            PoolConfig {
                name: "first".to_owned(),
                addresses: vec![
                    range("203.0.113.0", "203.0.113.15"),
                    range("203.0.113.77", "203.0.113.77"),
                ],
                ports: (5000, 5000),
                ..PoolConfig::default()
            },
            PoolConfig {
                name: "default".to_owned(),
                addresses: vec![range("192.0.2.10", "192.0.2.20")],
                ports: (1024, 2047),
                ..PoolConfig::default()
            },
        ],
        default_pool: 1,
        mapping: Behavior::AddressDependent,
        filtering: Behavior::AddressAndPortDependent,
        pooling: Pooling::SoftPaired,
        allocation: Allocation::Preserve,
        port_parity: false,
        hairpinning: false,
        inbound_refresh: false,
        tcp_pickup: true,
        filtering_tcp: Some(Behavior::AddressDependent),
        tcp_mss: Some(1240),
        answer_unsolicited_syn: false,
        refusal: Refusal::Prohibited,
        statics: vec![
            StaticMapping {
                protocol: Some(6),
                internal: (ip("10.0.0.80"), Some(8080)),
                external: (ip("203.0.113.1"), Some(80)),
                ..StaticMapping::default()
            },
            StaticMapping {
                protocol: None,
                internal: (ip("10.0.0.81"), None),
                external: (ip("198.51.100.9"), None),
                ..StaticMapping::default()
            },
        ],
        rules: vec![
            Rule::new(Match::Source(prefix("10.1.0.0", 16), 0), RuleAction::Snat(0)),
            Rule::new(Match::Destination(prefix("10.99.0.1", 32), 53), RuleAction::Bypass),
            Rule {
                priority: -7,
                ..Rule::new(
                    Match::Source(prefix("10.2.0.0", 16), 0),
                    RuleAction::SnatTo(0, ip("203.0.113.1")),
                )
            },
            Rule::new(Match::Source(prefix("10.3.0.0", 16), 0), RuleAction::Drop),
        ],
        ..Config::default()
    };
    let limits = &mut engine.limits;
    (limits.tcp_ports, limits.udp_ports, limits.icmp_ports) = (1, 2, 3);
    limits.sessions_per_mapping = 4;
    limits.new_mappings_per_second = 5;
    limits.icmp_errors_per_second = 6;
    limits.subscribers = Some(5);
    limits.mappings = Some(7);
    limits.extra_sessions = Some(0);
    limits.fragment_memory = 65_536;
    limits.fragments_per_datagram = 11;
    limits.held_ports = Some(8);
    limits.unanswered_give_way = false;
    limits.unanswered_kept = 6;
    limits.asking_share = 7;
    limits.extra_sessions_per_subscriber = Some(9);
    limits.twice_sessions = Some(10);
    let timeouts = &mut engine.timeouts;
    let seconds = Duration::from_secs;
    timeouts.udp = seconds(1);
    timeouts.tcp_established = Duration::from_millis(93_845_006);
    timeouts.tcp_opening = seconds(90 * 60);
    timeouts.tcp_closing = seconds(30 * 86_400);
    timeouts.icmp = Duration::from_millis(1001);
    timeouts.other = seconds(7440);
    timeouts.hold_down = seconds(3600);
    timeouts.fragment = Duration::from_millis(500);
    let inside = SideSettings {
        address: Some((ip("10.0.0.1"), 8)),
        gateway: Some(ip("10.255.255.254")),
        mtu: 9000,
        mode: ReceiveMode::Rate,
        ring: Some(512),
        ..SideSettings::new("veth-in")
    };
    let outside = SideSettings {
        address: Some((ip("192.0.2.1"), 24)),
        gateway: Some(ip("192.0.2.254")),
        mtu: 1400,
        ..SideSettings::new("veth-out")
    };
    Settings {
        routes: vec![
            Route { prefix: prefix("10.128.0.0", 9), via: ip("10.0.0.2"), side: Side::Inside },
            Route {
                prefix: prefix("198.51.100.0", 25),
                via: ip("192.0.2.253"),
                side: Side::Outside,
            },
        ],
        kernel: KernelSettings {
            management: [Some(vec![ip("10.0.0.2"), ip("172.31.0.1")]), Some(Vec::new())],
            announce: Some(AnnounceSettings { table: 100, protocol: 200, partner_metric: 7 }),
            learn: Some(LearnSettings { table: u32::MAX }),
            drain: Some(Duration::from_secs(60)),
        },
        state: Some(StateSettings {
            file: "/run/ports in use".into(),
            interval: Duration::from_millis(1500),
        }),
        ..Settings::new(engine, inside, outside)
    }
}

#[test]
fn the_kernels_part_is_explained_and_may_be_left_out() {
    let announce = |more: &str| good(&format!("{SMALLEST}{more}")).kernel.announce;
    assert_eq!(announce(""), None);
    let (table, protocol) = (KernelSettings::MAIN_TABLE, KernelSettings::PROTOCOL);
    let partner_metric = KernelSettings::PARTNER_METRIC;
    let expected = AnnounceSettings { table, protocol, partner_metric };
    assert_eq!(announce("[announce]\n"), Some(expected));
    let read = read_text(EVERYTHING, "test.toml").expect("it is right");
    let said = Meaning::of(read).to_string();
    for line in [
        "  the kernel's own, inside: 10.0.0.2, 172.31.0.1\n",
        "  external addresses are announced as routes of protocol 200 in the kernel's table 100\n",
        "  routes are learnt from the kernel's table 4294967295\n",
        "  when it is told to end, it goes on for 1m\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

//= test rfc6888#REQ-3
//= test rfc4787#REQ-5b
//= test rfc4787#REQ-8a
//= test rfc5382#REQ-3a
//= test rfc5382#REQ-5a
//= test rfc7857#section-2.1
//= test rfc7857#section-8
#[test]
fn every_key_arrives_where_it_belongs() {
    assert_eq!(good(EVERYTHING), everything());
}

#[test]
fn defaults_written_out_change_nothing() {
    let written = format!(
        r#"{SMALLEST}
[nat]
subscribers = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"]
mapping   = "endpoint-independent"
filtering = "endpoint-independent"
pooling   = "paired"
allocation = "random"
port_parity = true
hairpinning = true
inbound_refresh = true
tcp_pickup = false
filtering_tcp = "endpoint-independent"
unsolicited_syn = "answer"
refusal = "host-unreachable"
[limits]
ports_per_subscriber = {{ tcp = 2000, udp = 2000, icmp = 200 }}
sessions_per_mapping = 64
new_mappings_per_second = 500
icmp_errors_per_second = 500
fragment_memory = "16MiB"
[timeouts]
udp = "5m"
tcp_established = "2h4m"
tcp_opening = "4m"
tcp_closing = "4m"
icmp = "60s"
other = "5m"
hold_down = "120s"
fragment = "2s"
"#
    );
    let mut settings = good(&written);
    assert_eq!(settings.engine.filtering_tcp.take(), Some(settings.engine.filtering));
    assert_eq!(settings, good(SMALLEST));
    assert_eq!(read_text(&written, "t").map(|read| read.warnings), Ok(Vec::new()));
}

#[test]
fn a_dpdk_port_may_be_a_virtual_device_with_its_arguments() {
    let device = "net_memif0,role=server,socket=/run/natgate/in.sock";
    let side = format!("\"{device}\"\nbackend = \"dpdk\"\naddress = \"10.0.0.1/8\"");
    let text = SMALLEST.replace("\"eth1\"", &side);
    let settings = good(&text);
    assert_eq!((settings.inside.device.as_str(), settings.inside.backend), (device, Backend::Dpdk));
    assert_eq!((settings.outside.backend, settings.dpdk), (Backend::AfPacket, None));
    let settings = good(&format!("{text}[dpdk]\neal = [\"--in-memory\", \"-m\", \"512\"]\n"));
    let arguments = ["--in-memory", "-m", "512"].map(str::to_owned);
    assert_eq!(settings.dpdk, Some(arguments.to_vec()));
}

#[test]
fn ports_are_remembered_every_ten_seconds_if_at_all() {
    let state = good(&format!("{SMALLEST}[state]\nfile = \"/p\"\n")).state;
    let interval = Duration::from_secs(10);
    assert_eq!(state, Some(StateSettings { file: "/p".into(), interval }));
}

#[test]
fn sizes_may_be_integers_and_ports_wide() {
    let text = format!("{SMALLEST}ports = \"1-65535\"\n[limits]\nfragment_memory = 1_048_576\n");
    let settings = good(&text);
    assert_eq!(settings.engine.pools[0].ports, (1, 65_535));
    assert_eq!(settings.engine.limits.fragment_memory, 1 << 20);
}

#[test]
fn segments_may_be_as_large_as_the_mtu_allows() {
    let text = SMALLEST.replace("[[pool]]", "mtu = 1300\n[nat]\ntcp_mss = \"mtu\"\n[[pool]]");
    assert_eq!(good(&text).engine.tcp_mss, Some(1260));
}

#[test]
fn without_a_pool_named_default_the_first_is_used() {
    let text = SMALLEST.replace("[[pool]]", "[[pool]]\nname = \"a\"")
        + "[[pool]]\nname = \"b\"\naddresses = [\"203.0.113.2\"]\n";
    assert_eq!(good(&text).engine.default_pool, 0);
}
