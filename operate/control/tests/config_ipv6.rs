//! The tables of IPv6: what they are read as, what is refused and where, and what check says.

use natgate_control::config::{Configuration, read_text, reread};
use natgate_control::meaning::Meaning;
use natgate_engine::{Engine, Prefix, Side, Timestamp};
use natgate_gateway::{AdvertiseSettings, Route6, StaticNeighbor6};
use natgate_ipv6::convert::UdpChecksumZero;
use natgate_ipv6::{
    ClatSettings, Conversion, EamEntry, Filter, Hairpin, Nat64Settings, NonGlobal, Nptv6,
    Nptv6Settings, Pref64, Prefix6, Settings, Share, Side6, SiitSettings,
};
use natgate_wire::arp::Mac;
use std::path::Path;
use std::time::Duration;

/// The file that most tests add to; the addition begins in line 7.
const SIDES: &str = r#"[inside]
device = "eth1"
address6 = "2001:db8:0:1::1/64"
[outside]
device = "eth0"
address = "192.0.2.1/24"
"#;

const POOL: &str = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";

fn prefix(text: &str) -> Prefix6 {
    let (address, len) = text.split_once('/').expect("a prefix");
    Prefix6 { address: address.parse().expect("an address"), len: len.parse().expect("a length") }
}

fn pref64(text: &str) -> Pref64 {
    Pref64::new(prefix(text)).expect("a prefix that embeds")
}

#[track_caller]
fn read(text: &str) -> Configuration {
    read_text(text, "t").unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"))
}

/// Checks the problems of what stands behind the sides: `LINE KEY: `, then a part of the message.
#[track_caller]
fn refused(added: &str, expected: &[(&str, &str)]) {
    let text = format!("{SIDES}{added}");
    let problems = read_text(&text, "t").expect_err(&text);
    let found: Vec<String> = problems
        .iter()
        .map(|one| format!("{} {}: {}", one.line.expect("a line"), one.key, one.message))
        .collect();
    let agrees = |(found, (start, part)): (&String, &(&str, &str))| {
        found.starts_with(start) && found.contains(part)
    };
    let all = found.len() == expected.len() && found.iter().zip(expected).all(agrees);
    assert!(all, "in\n{text}\nfound    {found:#?}\nexpected {expected:#?}");
}

//= test rfc7915#section-4-threshold
//= test rfc7915#section-4.1-threshold
//= test rfc7915#section-4.1-traffic-class
//= test rfc7915#section-5.1-tos
//= test rfc7915#section-4.5-zero
//= test rfc7757#section-3.2-length
//= test rfc6296#section-4.1-manual
#[test]
fn every_key_is_read() {
    let text = r#"
[inside]
device = "eth1"
address6 = "2001:db8:0:1::1/64"
gateway6 = "fe80::1"
mtu = 1400
[outside]
device = "eth0"
address = "192.0.2.1/24"
address6 = "2001:db8:0:2::1/64"
gateway6 = "2001:db8:0:2::2"
icmp_errors = false
[[pool]]
addresses = ["203.0.113.1"]
[nat]
subscribers = ["192.168.0.0/16"]
[ipv6]
forwarding = true
filter = "outbound-only"
lowest_mtu = 1300
udp_checksum_zero = "forward"
traffic_class = "zero"
tos = 32
[nat64]
prefixes = ["64:ff9b::/96", "2001:db8:64::/48"]
subscribers = ["2001:db8:1000::/36"]
subscriber_length = 56
non_global = "translate"
[siit]
prefixes = ["2001:db8:100::/40"]
icmp_source = ["203.0.113.8", "2001:db8::8"]
hairpin = "simple"
non_global = "translate"
[[siit.map]]
ipv6 = "2001:db8:3::/120"
ipv4 = "1.0.0.0/24"
[[siit.map]]
ipv6 = "2001:db8:4::7"
ipv4 = "1.0.0.7"
[clat]
prefix = "64:ff9b::/96"
source = "2001:db8:aaaa::/96"
[[nptv6]]
internal = "fd00:1::/48"
external = "2001:db8:1::/48"
icmp_errors = false
[[nptv6]]
internal = "fd00:2::/56"
external = "2001:db8:2::/48"
"#;
    let ip = |text: &str| text.parse().expect("an address");
    let map = |ipv6, ipv4, len| EamEntry { ipv6: prefix(ipv6), ipv4: Prefix::new(ip(ipv4), len) };
    let pair = |internal, external, icmp_errors| Nptv6Settings {
        pair: Nptv6::new(prefix(internal), prefix(external)).expect("a pair"),
        icmp_errors,
    };
    let expected = Settings {
        configured: true,
        inside: Side6 {
            address: Some(("2001:db8:0:1::1".parse().unwrap(), 64)),
            gateway: Some("fe80::1".parse().unwrap()),
            mtu: 1400,
            icmp_errors: true,
        },
        outside: Side6 {
            address: Some(("2001:db8:0:2::1".parse().unwrap(), 64)),
            gateway: Some("2001:db8:0:2::2".parse().unwrap()),
            mtu: 1500,
            icmp_errors: false,
        },
        forwarding: true,
        filter: Filter::OutboundOnly,
        conversion: Conversion {
            lowest_mtu: 1300,
            udp_checksum_zero: UdpChecksumZero::Forward,
            traffic_class: Some(0),
            service: Some(32),
        },
        nat64: Some(Nat64Settings {
            prefixes: vec![pref64("64:ff9b::/96"), pref64("2001:db8:64::/48")],
            subscribers: vec![prefix("2001:db8:1000::/36")],
            subscriber_length: 56,
            non_global: NonGlobal::Translate,
            static_hosts: vec![],
        }),
        siit: Some(SiitSettings {
            prefixes: vec![pref64("2001:db8:100::/40")],
            maps: vec![
                map("2001:db8:3::/120", "1.0.0.0", 24),
                map("2001:db8:4::7/128", "1.0.0.7", 32),
            ],
            icmp_source_ipv4: vec![ip("203.0.113.8")],
            icmp_source_ipv6: vec!["2001:db8::8".parse().unwrap()],
            hairpin: Hairpin::Simple,
            non_global: NonGlobal::Translate,
        }),
        clat: Some(ClatSettings {
            prefix: pref64("64:ff9b::/96"),
            source: pref64("2001:db8:aaaa::/96"),
            subscribers: vec![Prefix::new(ip("192.168.0.0"), 16)],
        }),
        dslite: None,
        lw4o6: None,
        map: Vec::new(),
        share: Share::default(),
        nptv6: vec![
            pair("fd00:1::/48", "2001:db8:1::/48", false),
            pair("fd00:2::/56", "2001:db8:2::/48", true),
        ],
    };
    let read = read(text);
    assert_eq!(read.settings.ipv6, expected);
    assert_eq!(read.warnings, []);
}

//= test rfc6052#section-3.4-well-known
//= test rfc6146#section-3.5.4-default
//= test rfc6146#section-3.5.4-algorithm-default
#[test]
fn defaults_are_those_of_the_contract() {
    let read = read(&format!("{SIDES}{POOL}[nat64]\n"));
    let ipv6 = &read.settings.ipv6;
    let nat64 = Nat64Settings {
        prefixes: vec![pref64("64:ff9b::/96")],
        subscribers: Vec::new(),
        subscriber_length: 64,
        non_global: NonGlobal::Refuse,
        static_hosts: Vec::new(),
    };
    assert_eq!(ipv6.nat64.as_ref(), Some(&nat64));
    assert_eq!(ipv6.conversion, Conversion::default());
    assert_eq!((ipv6.forwarding, ipv6.filter), (true, Filter::None));
    let ipv4_alone = "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\nmtu = 576\n";
    let read = read_text(&format!("{ipv4_alone}{POOL}"), "t").expect("a good file");
    assert_eq!(read.settings.ipv6, Settings::default());
}

#[test]
fn tables_without_state_need_no_pool() {
    for table in [
        "[siit]\nprefixes = [\"2001:db8:100::/40\"]\n",
        "[clat]\nprefix = \"64:ff9b::/96\"\nsource = \"2001:db8:aaaa::/96\"\n",
        "[[nptv6]]\ninternal = \"fd00:1::/48\"\nexternal = \"2001:db8:1::/48\"\n",
    ] {
        let read = read(&format!("{SIDES}{table}"));
        let config = read.settings.engine.clone();
        assert!(Engine::new(&config, [0; 32], Timestamp(0)).is_ok());
        assert_eq!(config.subscribers, []);
        let said = Meaning::of(read).to_string();
        assert!(said.contains("Pools\n  none: "), "{said}");
        assert!(said.contains("Translation\n  from IPv4 to IPv4: none\n"), "{said}");
        let text = format!("{SIDES}{table}[nat64]\n");
        let problems = read_text(&text, "t").expect_err("NAT64 needs a pool");
        assert!(problems.iter().any(|one| one.key == "pool"), "{problems:?}");
    }
    refused("[ipv6]\n", &[("1 pool: ", "is missing")]);
}

#[test]
fn pairs_change_at_a_reload() {
    let pair = |internal: &str, external: &str| {
        format!("[[nptv6]]\ninternal = \"{internal}\"\nexternal = \"{external}\"\n")
    };
    let first = pair("fd00:1::/48", "2001:db8:1::/48");
    let in_force = read(&format!("{SIDES}{POOL}{first}")).settings;
    let file = std::env::temp_dir().join(format!("natgate-pairs-{}.toml", std::process::id()));
    let reread_with = |text: &str, in_force: &natgate_gateway::Settings| {
        std::fs::write(&file, text).expect("the file can be written");
        reread(&file, in_force).map(|read| read.settings.ipv6.nptv6.len())
    };
    let second = pair("fd00:2::/48", "2001:db8:2::/48");
    let overlapping = pair("fd00:1:0:5::/64", "2001:db8:3::/64");
    for (pairs, count) in [
        (format!("{first}{second}"), 2),
        (pair("fd00:1::/48", "2001:db8:2::/48"), 1),
        (format!("{first}icmp_errors = false\n"), 1),
        (String::new(), 0),
    ] {
        let done = reread_with(&format!("{SIDES}{POOL}{pairs}"), &in_force);
        assert_eq!(done.expect("pairs that may change"), count, "{pairs}");
    }
    let keys = |result: Result<usize, Vec<natgate_control::config::Problem>>| -> Vec<String> {
        result.expect_err("a problem").into_iter().map(|one| one.key.to_string()).collect()
    };
    let refused = reread_with(&format!("{SIDES}{POOL}{first}{overlapping}"), &in_force);
    assert_eq!(keys(refused), ["nptv6[1].internal"]);
    // Other tables need a restart, and the first pair of a gateway that has no IPv6 does.
    let siit = "[siit]\nprefixes = [\"2001:db8:100::/40\"]\n";
    let refused = reread_with(&format!("{SIDES}{POOL}{second}{siit}"), &in_force);
    assert_eq!(keys(refused), ["siit"]);
    let ipv4_alone = SIDES.replace("address6 = \"2001:db8:0:1::1/64\"\n", "");
    let without = read(&format!("{ipv4_alone}{POOL}")).settings;
    let refused = reread_with(&format!("{ipv4_alone}{POOL}{first}"), &without);
    assert_eq!(keys(refused), ["nptv6"]);
    std::fs::remove_file(&file).expect("the file was written");
}

#[test]
fn prefixes_that_embed_no_address() {
    refused(
        &format!("{POOL}[nat64]\nprefixes = [\"2001:db8::/33\", \"64:ff9b::/96\"]\n"),
        &[("10 nat64.prefixes[0]: ", "2001:db8::/33 has 33 bits; a prefix that embeds")],
    );
    refused(
        "[siit]\nprefixes = [\"2001:db8:0:0:ab00::/96\"]\n",
        &[("8 siit.prefixes[0]: ", "bits 64 to 71 of 2001:db8:0:0:ab00::/96 are 0xab")],
    );
    refused(
        "[siit]\nprefixes = []\n",
        &[("8 siit.prefixes: ", "has no prefix; write one such as")],
    );
    refused("[siit]\n", &[("7 siit: ", "translates nothing; write prefixes =")]);
    refused(
        "[siit]\nprefixes = [\"2001:db8::1/96\"]\n",
        &[("8 siit.prefixes[0]: ", "2001:db8::1 has bits beyond the /96; write \"2001:db8::/96\"")],
    );
    refused(
        &format!(
            "{POOL}[nat64]\nprefixes = [\"64:ff9b::/96\", \"2001:db8:100::/48\"]\n\
             [siit]\nprefixes = [\"2001:db8:100::/40\"]\n"
        ),
        &[(
            "12 siit.prefixes[0]: 2001:db8:100::/40 overlaps nat64.prefixes[1] in line 10",
            "(2001:db8:100::/48); each address needs one translation",
        )],
    );
}

#[test]
fn subscribers_that_cannot_be() {
    for (line, expected) in [
        ("subscriber_length = 47", "9 nat64.subscriber_length: 47 is out of bounds"),
        ("subscribers = []", "9 nat64.subscribers: names nobody"),
        ("subscribers = [\"ff02::/16\"]", "9 nat64.subscribers[0]: ff02::/16 is in ff00::/8"),
        ("subscribers = [\"10.0.0.0/8\"]", "9 nat64.subscribers[0]: \"10.0.0.0/8\" is no IPv6"),
        ("non_global = \"drop\"", "9 nat64.non_global: \"drop\" is unknown"),
        (
            "subscribers = [\"64:ff9b::c000:200/120\"]",
            "9 nat64.subscribers[0]: 64:ff9b::c000:200/120 is in 64:ff9b::/96 of prefixes",
        ),
        (
            "prefixes = [\"2001:db8:0:1::/96\"]",
            "3 inside.address6: 2001:db8:0:1::1 is in 2001:db8:0:1::/96 of nat64.prefixes",
        ),
    ] {
        let (head, pool) = (format!("[nat64]\n#\n{line}\n"), POOL);
        refused(&format!("{head}{pool}"), &[(expected, "")]);
    }
    let text = "[nat64]\nsubscribers = [\"::/0\", \"2001:db8::/32\"]\n";
    let warnings = read(&format!("{SIDES}{POOL}{text}")).warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].message.contains("2001:db8::/32 has no effect: ::/0 contains it"));
}

#[test]
fn maps_that_are_not_one_to_one() {
    let map =
        |ipv6: &str, ipv4: &str| format!("[[siit.map]]\nipv6 = \"{ipv6}\"\nipv4 = \"{ipv4}\"\n");
    refused(
        &map("2001:db8:3::/121", "1.0.0.0/24"),
        &[(
            "8 siit.map[0].ipv6: 1.0.0.0/24 leaves 8 bits for hosts and 2001:db8:3::/121 only 7",
            "so 2 IPv4 addresses would share an IPv6 address (RFC 7757 section 3.2); \
             write an IPv6 prefix of 120 bits or fewer",
        )],
    );
    refused(
        &(map("2001:db8:3::/120", "1.0.0.0/24") + &map("2001:db8:3::/120", "1.0.1.0/24")),
        &[("11 siit.map[1].ipv6: 2001:db8:3::/120 has a map in line 8 already", "one to one")],
    );
    refused(
        &(map("2001:db8:3::/120", "1.0.0.0/24") + &map("2001:db8:4::/120", "1.0.0.0/24")),
        &[("12 siit.map[1].ipv4: 1.0.0.0/24 has a map in line 9 already", "one to one")],
    );
    refused("[[siit.map]]\nipv6 = \"2001:db8::1\"\n", &[("7 siit.map[0].ipv4: ", "is missing")]);
    refused(
        &format!("{}{POOL}", map("2001:db8:3::/120", "203.0.113.0/24")),
        &[(
            "9 siit.map[0].ipv4: 203.0.113.0/24 overlaps pool[0].addresses[0] in line 11",
            "(203.0.113.1); take the addresses out of one of them",
        )],
    );
    refused(
        &format!("{}{POOL}[nat64]\n", map("64:ff9b::/120", "1.0.0.0/24")),
        &[("8 siit.map[0].ipv6: 64:ff9b::/120 overlaps nat64 in line 12 (64:ff9b::/96)", "")],
    );
    // The longest prefix wins, so one map may be within another.
    let nested = map("2001:db8:3::/120", "1.0.0.0/24") + &map("2001:db8:4::7", "1.0.0.7");
    assert_eq!(read(&format!("{SIDES}{nested}")).settings.ipv6.siit.unwrap().maps.len(), 2);
}

#[test]
fn sources_and_words_of_siit() {
    for (line, expected) in [
        ("icmp_source = [\"x\"]", "9 siit.icmp_source[0]: \"x\" is no address"),
        ("icmp_source = [\"224.0.0.1\"]", "9 siit.icmp_source[0]: 224.0.0.1 is in 224.0.0.0/4"),
        ("icmp_source = [\"fe80::1\"]", "9 siit.icmp_source[0]: fe80::1 is link-local"),
        ("hairpin = \"on\"", "9 siit.hairpin: \"on\" is unknown"),
    ] {
        let text = format!("[siit]\nprefixes = [\"2001:db8:100::/40\"]\n{line}\n");
        refused(&text, &[(expected, "")]);
    }
}

#[test]
fn a_clat_needs_two_prefixes() {
    refused(
        "[clat]\n",
        &[("7 clat.prefix: ", "is missing; write prefix ="), ("7 clat.source: ", "is missing")],
    );
    refused(
        "[clat]\nprefix = \"2001:db8:aaaa::/64\"\nsource = \"2001:db8:aaaa::/96\"\n",
        &[(
            "9 clat.source: 2001:db8:aaaa::/96 overlaps clat.prefix (2001:db8:aaaa::/64)",
            "write a prefix of your own",
        )],
    );
}

#[test]
fn prefixes_of_nptv6_that_overlap_or_are_too_long() {
    let pair = |internal: &str, external: &str| {
        format!("[[nptv6]]\ninternal = \"{internal}\"\nexternal = \"{external}\"\n")
    };
    refused(
        &pair("fd00:1::/48", "fd00:1:0:1::/64"),
        &[(
            "9 nptv6[0].external: internal fd00:1::/48 and external fd00:1:0:1::/64 have \
             fd00:1:0:1::/64 in common",
            "",
        )],
    );
    refused(
        &pair("fd00:1::/120", "2001:db8:1::/48"),
        &[("9 nptv6[0].external: fd00:1::/120 leaves 8 bits", "a word of 16 bits")],
    );
    refused(
        &(pair("fd00:1::/48", "2001:db8:1::/48") + &pair("fd00:1:0:5::/64", "2001:db8:1::/56")),
        &[
            ("11 nptv6[1].internal: fd00:1:0:5::/64 overlaps nptv6[0].internal in line 8", ""),
            ("12 nptv6[1].external: 2001:db8:1::/56 overlaps nptv6[0].external in line 9", ""),
        ],
    );
    refused("[[nptv6]]\ninternal = \"fd00:1::/48\"\n", &[("7 nptv6[0].external: ", "is missing")]);
}

#[test]
fn values_of_ipv6() {
    for (line, expected) in [
        ("lowest_mtu = 1279", "10 ipv6.lowest_mtu: 1279 is out of bounds; it must be from 1280"),
        ("udp_checksum_zero = \"no\"", "10 ipv6.udp_checksum_zero: \"no\" is unknown"),
        ("traffic_class = \"keep\"", "10 ipv6.traffic_class: \"keep\" is unknown"),
        ("tos = 256", "10 ipv6.tos: 256 is out of bounds; it must be from 0 to 255"),
        ("tos = \"zero\"", "10 ipv6.tos: \"zero\" is unknown"),
        ("filter = \"inbound\"", "10 ipv6.filter: \"inbound\" is unknown"),
        ("forwarding = 1", "10 ipv6.forwarding: is an integer"),
        ("lowest_mtu = 1280", "10 ipv6.lowest_mtu: has no effect, because no table translates"),
        (
            "filter = \"outbound-only\"\nforwarding = false",
            "10 ipv6.filter: has no effect, because forwarding is false",
        ),
    ] {
        // Keys about conversion need a table that converts.
        let converts = if expected.contains("no table translates") { "" } else { "[nat64]\n" };
        let text = format!("{POOL}[ipv6]\n{line}\n{converts}");
        refused(&text, &[(expected, "")]);
    }
}

#[test]
fn addresses_of_sides() {
    let side = |keys: &str| {
        let text = format!("[inside]\ndevice = \"a\"\n{keys}\n[outside]\ndevice = \"b\"\n{POOL}");
        let problems = read_text(&text, "t").expect_err(&text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        format!("{} {}: {}", problems[0].line.unwrap(), problems[0].key, problems[0].message)
    };
    for (keys, expected) in [
        ("address6 = \"2001:db8::1\"", "3 inside.address6: \"2001:db8::1\" is no IPv6 interface"),
        ("address6 = \"2001:db8::1/129\"", "3 inside.address6: \"2001:db8::1/129\" is no IPv6"),
        ("address6 = \"fe80::1/64\"", "3 inside.address6: fe80::1 is link-local"),
        ("address6 = \"ff02::1/64\"", "3 inside.address6: ff02::1 is in ff00::/8 (multicast)"),
        ("address6 = \"2001:db8::/64\"", "3 inside.address6: 2001:db8:: is the address of all"),
        ("address6 = \"192.0.2.1/24\"", "3 inside.address6: \"192.0.2.1/24\" is no IPv6"),
        ("gateway6 = \"::1\"", "3 inside.gateway6: ::1 is in ::1/128 (loopback)"),
        (
            "address6 = \"2001:db8::1/64\"\ngateway6 = \"2001:db8:1::1\"",
            "4 inside.gateway6: 2001:db8:1::1 is not in 2001:db8::/64",
        ),
        (
            "address6 = \"2001:db8::1/64\"\ngateway6 = \"2001:db8::1\"",
            "4 inside.gateway6: is inside.address6 itself",
        ),
        (
            "address6 = \"2001:db8::1/64\"\nmtu = 1279",
            "3 inside.address6: inside.mtu is 1279, and a link of IPv6 has 1280 or more",
        ),
    ] {
        let found = side(keys);
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    let both = SIDES.replace("address = ", "address6 = \"2001:db8:0:1::2/64\"\naddress = ");
    let problems = read_text(&format!("{both}{POOL}"), "t").expect_err("one network");
    assert!(problems[0].to_string().starts_with("t:6:12: outside.address6: is in one network"));
}

#[test]
fn every_back_end_carries_ipv6_with_any_number_of_workers() {
    let found = |more: &str| {
        let text = format!("{SIDES}{POOL}{more}").replace("[nat64]", "[nat64]\n");
        match read_text(&text, "t") {
            Ok(_) => String::new(),
            Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
        }
    };
    assert_eq!(found("[nat64]"), "");
    assert_eq!(found("[nat64]\n[workers]\ncount = 2\n"), "");
    for log in ["\"spool\"\nfolder = \"/tmp/spool\"", "\"file\"\npath = \"/tmp/events\""] {
        assert_eq!(found(&format!("[nat64]\n[[log]]\nkind = {log}\n")), "");
    }
    for backend in ["tun", "af-xdp"] {
        let sides = SIDES.replace("address = ", &format!("backend = \"{backend}\"\naddress = "));
        assert!(read_text(&format!("{sides}{POOL}"), "t").is_ok(), "{backend}");
    }
}

#[test]
fn a_reload_names_what_needs_a_restart() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ipv6.toml");
    let again = |before: &str, after: &str| -> Vec<String> {
        let in_force = read(before).settings;
        std::fs::write(&path, after).expect("the test may write its directory");
        match reread(&path, &in_force) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.into_iter().map(|problem| problem.key).collect(),
        }
    };
    let stateful = format!("{SIDES}{POOL}[nat64]\n");
    let ipv4_alone = format!("{SIDES}{POOL}").replace("address6 = \"2001:db8:0:1::1/64\"\n", "");
    assert_eq!(again(&stateful, &stateful), [""; 0]);
    assert_eq!(again(&ipv4_alone, &stateful), ["inside.address6", "nat64"]);
    assert_eq!(again(&stateful, &ipv4_alone), ["inside.address6", "nat64"]);
    let length = stateful.replace("[nat64]", "[nat64]\nsubscriber_length = 56");
    assert_eq!(again(&stateful, &length), ["nat64"]);
    let realm = format!("{stateful}[[realm]]\nname = \"b\"\nvlan = 7\naddress = \"10.9.0.1/16\"\n");
    assert_eq!(again(&stateful, &realm), ["realm"]);
}

#[test]
fn check_works_out_an_address_of_each_table() {
    let text = format!(
        "{SIDES}{POOL}[nat64]\nprefixes = [\"64:ff9b::/96\", \"2001:db8:222:344::/64\"]\n\
         [siit]\nprefixes = [\"2001:db8:100::/40\"]\nicmp_source = [\"203.0.113.8\"]\n\
         [[siit.map]]\nipv6 = \"2001:db8:3::/120\"\nipv4 = \"1.0.0.0/24\"\n\
         [clat]\nprefix = \"2001:db8:1234::/96\"\nsource = \"2001:db8:aaaa::/96\"\n\
         [[nptv6]]\ninternal = \"fd01:203:405::/48\"\nexternal = \"2001:db8:1::/48\"\n"
    );
    let meaning = Meaning::of(read(&text));
    let said = meaning.to_string();
    for line in [
        "  inside: 2001:db8:0:1::1/64, MTU 1500",
        "  packets that no table translates: routed",
        "  nat64: all hosts; a /64 is one subscriber",
        "    64:ff9b::/96: 8.8.8.8 becomes 64:ff9b::808:808, and back 8.8.8.8",
        "    2001:db8:222:344::/64: 192.0.2.33 becomes 2001:db8:222:344:c0:2:2100:0, \
         and back 192.0.2.33",
        "  siit: 1 map, hairpin intrinsic",
        "    errors from addresses without a map: from 203.0.113.8",
        "    2001:db8:100::/40: 192.0.2.33 becomes 2001:db8:1c0:2:21::, and back 192.0.2.33",
        "    2001:db8:3::/120 and 1.0.0.0/24: 1.0.0.255 becomes 2001:db8:3::ff, \
         and back 1.0.0.255",
        "    the Internet in 2001:db8:1234::/96: 192.0.2.33 becomes 2001:db8:1234::c000:221, \
         and back 192.0.2.33",
        "    hosts in 2001:db8:aaaa::/96: 10.0.0.1 becomes 2001:db8:aaaa::a00:1, and back 10.0.0.1",
        "  nptv6: fd01:203:405::/48 and 2001:db8:1::/48",
        "    fd01:203:405::1 becomes 2001:db8:1:d54f::1, and back fd01:203:405::1",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\nin\n{said}");
    }
    let json = serde_json::to_value(&meaning).expect("it is JSON");
    let ipv6 = &json["ipv6"];
    assert_eq!(ipv6["nat64"]["prefixes"][0]["sample"]["to"], "64:ff9b::808:808");
    assert_eq!(ipv6["siit"]["maps"][0]["sample"]["back"], "1.0.0.255");
    assert_eq!(ipv6["nptv6"][0]["sample"]["from"], "fd01:203:405::1");
    let alone = read_text(
        &format!("{}{POOL}", "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n"),
        "t",
    );
    let alone = Meaning::of(alone.expect("a good file"));
    assert!(!alone.to_string().contains("IPv6") && alone.ipv6.is_none());
}

#[test]
fn routes_and_neighbors_of_ipv6_are_read() {
    let text = format!(
        "{SIDES}{POOL}[[route]]\nprefix = \"2001:db8:8::/48\"\nvia = \"fe80::8\"\n\
         [[route]]\nprefix = \"::/0\"\nvia = \"2001:db8:0:1::9\"\nside = \"inside\"\n\
         [[route]]\nprefix = \"198.51.100.0/24\"\nvia = \"192.0.2.9\"\n\
         [[neighbor]]\naddress = \"2001:db8:0:1::9\"\nmac = \"2:0:0:0:0:9\"\nside = \"inside\"\n\
         [[neighbor]]\naddress = \"192.0.2.9\"\nmac = \"2:0:0:0:0:8\"\n"
    );
    let settings = read(&text).settings;
    assert_eq!((settings.routes.len(), settings.neighbors.len()), (1, 1));
    let ip = |text: &str| text.parse().expect("an address");
    let route = |to, via, side| Route6 { prefix: prefix(to), via: ip(via), side };
    let expected = [
        route("2001:db8:8::/48", "fe80::8", Side::Outside),
        route("::/0", "2001:db8:0:1::9", Side::Inside),
    ];
    assert_eq!(settings.router6.routes, expected);
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let neighbor = StaticNeighbor6 { side: Side::Inside, address: ip("2001:db8:0:1::9"), mac };
    assert_eq!(settings.router6.neighbors, [neighbor]);
    assert_eq!(settings.router6.advertise, None);
    let said = Meaning::of(read(&text)).to_string();
    for line in [
        "  route: 2001:db8:8::/48 via fe80::8, outside",
        "  neighbor: 2001:db8:0:1::9 has 02:00:00:00:00:09, inside",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\nin\n{said}");
    }
}

#[test]
fn routes_and_neighbors_of_ipv6_that_cannot_be() {
    let route = |prefix: &str, rest: &str| {
        format!("{POOL}[[route]]\nprefix = \"{prefix}\"\n{rest}\nside = \"inside\"\n")
    };
    for (text, expected) in [
        (route("2001:db8::/32", "via = \"10.0.0.1\""), "11 route[0].via: \"10.0.0.1\" is no IPv6"),
        (route("10.0.0.0/8", "via = \"fe80::1\""), "11 route[0].via: \"fe80::1\" is no IPv4"),
        (route("2001:db8::/32", ""), "9 route[0].via: is missing"),
        (route("fe80::/16", "via = \"fe80::1\""), "10 route[0].prefix: fe80::/16 has addresses"),
        (
            route("2001:db8::/32", "via = \"2001:db8:0:2::1\""),
            "11 route[0].via: 2001:db8:0:2::1 is not in 2001:db8:0:1::/64, the network of inside",
        ),
        (
            route("2001:db8::/32", "via = \"2001:db8:0:1::1\""),
            "11 route[0].via: is inside.address6 itself",
        ),
        (
            route("2001:db8:0:1::/64", "via = \"fe80::1\""),
            "10 route[0].prefix: 2001:db8:0:1::/64 is the network of inside.address6",
        ),
        (
            route("2001:db8::/32", "via = \"fe80::1\"")
                + "[[route]]\nprefix = \"2001:db8::/32\"\nvia = \"fe80::2\"\n",
            "14 route[1].prefix: 2001:db8::/32 has a route in line 10 already",
        ),
        (
            format!("{POOL}[[route]]\nprefix = \"2001:db8::/32\"\nvia = \"2001:db8:9::1\"\n"),
            "11 route[0].via: 2001:db8:9::1 is not link-local, and outside.address6 is missing",
        ),
        (
            format!("{POOL}[[neighbor]]\naddress = \"2001:db8:9::1\"\nmac = \"2:0:0:0:0:1\"\n"),
            "10 neighbor[0].address: 2001:db8:9::1 is not link-local, and outside.address6",
        ),
        (
            format!("{POOL}[[neighbor]]\naddress = \"fe80::1\"\nmac = \"x\"\n"),
            "11 neighbor[0].mac: \"x\" is no hardware address",
        ),
        (
            format!("{POOL}[[neighbor]]\naddress = \"fe80::1\"\nmac = \"2:0:0:0:0:1\"\n")
                .repeat(2)
                .replacen(POOL, "", 1),
            "13 neighbor[1].address: fe80::1 is a neighbor in line 8 already",
        ),
    ] {
        refused(&text, &[(expected, "")]);
    }
    let realm = "[[realm]]\nname = \"a\"\nvlan = 5\naddress = \"10.0.0.1/8\"\n";
    let own = "[[route]]\nprefix = \"2001:db8::/32\"\nvia = \"fe80::1\"\nrealm = \"a\"\n";
    refused(
        &format!("{POOL}{realm}{own}"),
        &[("16 route[0].realm: IPv6 of realms is not built in yet", "take the key out")],
    );
    let default = SIDES.replace("[outside]", "gateway6 = \"fe80::9\"\n[outside]");
    let text = format!("{default}{}", route("::/0", "via = \"fe80::1\""));
    let problems = read_text(&text, "t").expect_err(&text);
    assert!(problems[0].message.starts_with("stands beside inside.gateway6"), "{problems:?}");
}

#[test]
fn advertisements_are_read() {
    let all = "[ipv6.advertise]\ninterval = \"30s\"\nlifetime = \"0s\"\n\
               preferred_lifetime = \"1h\"\nvalid_lifetime = \"2h\"\nautonomous = false\n\
               managed = true\nother = true\npref64 = true\n\
               dns = [\"2001:db8::53\", \"fd00::53\"]\n[nat64]\n";
    let advertise = |text: &str| {
        let settings = read(&format!("{SIDES}{POOL}{text}")).settings;
        settings.router6.advertise.expect("it is there")
    };
    let seconds = Duration::from_secs;
    let expected = AdvertiseSettings {
        interval: seconds(30),
        lifetime: seconds(0),
        preferred_lifetime: seconds(3600),
        valid_lifetime: seconds(7200),
        autonomous: false,
        managed: true,
        other: true,
        pref64: Some(pref64("64:ff9b::/96")),
        dns: vec!["2001:db8::53".parse().unwrap(), "fd00::53".parse().unwrap()],
    };
    assert_eq!(advertise(all), expected);
    let named = "[ipv6.advertise]\n[nat64]\nprefixes = [\"2001:db8:64::/96\", \"64:ff9b::/96\"]\n";
    let expected =
        AdvertiseSettings { pref64: Some(pref64("2001:db8:64::/96")), ..Default::default() };
    assert_eq!(advertise(named), expected);
    let without = "[ipv6.advertise]\npref64 = false\ninterval = \"20s\"\n[nat64]\n";
    let expected = AdvertiseSettings {
        interval: seconds(20),
        lifetime: seconds(60),
        ..AdvertiseSettings::default()
    };
    assert_eq!(advertise(without), expected);
    let meaning = Meaning::of(read(&format!("{SIDES}{POOL}{all}")));
    let said = meaning.to_string();
    for line in [
        "  router advertisements inside: at least every 30s, no default router",
        "    prefix: for hosts on the link, preferred for 1h, valid for 2h",
        "    addresses by DHCPv6",
        "    NAT64 prefix: 64:ff9b::/96",
        "    servers of names: 2001:db8::53, fd00::53",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\nin\n{said}");
    }
    let json = serde_json::to_value(&meaning).expect("it is JSON");
    let advertise = &json["ipv6"]["advertise"];
    assert_eq!((&advertise["interval_seconds"], &advertise["managed"]), (&30.into(), &true.into()));
}

//= test rfc4861#section-6.2.1-interval
//= test rfc4861#section-6.2.1-lifetime
//= test rfc4861#section-6.2.1-preferred
#[test]
fn advertisements_that_contradict_something() {
    for (keys, expected) in [
        (
            "interval = \"3s\"",
            "10 ipv6.advertise.interval: 3s is out of bounds; it must be from 4s",
        ),
        ("interval = \"31m\"", "10 ipv6.advertise.interval: 31m is out of bounds"),
        ("interval = \"4500ms\"", "10 ipv6.advertise.interval: has a fraction of a second"),
        ("lifetime = \"9001s\"", "10 ipv6.advertise.lifetime: 2h30m1s is out of bounds"),
        ("lifetime = \"9m\"", "10 ipv6.advertise.lifetime: is shorter than interval (10m)"),
        (
            "preferred_lifetime = \"31d\"",
            "10 ipv6.advertise.preferred_lifetime: preferred_lifetime (31d) exceeds",
        ),
        ("valid_lifetime = \"1h\"", "10 ipv6.advertise.valid_lifetime: preferred_lifetime (7d)"),
        ("pref64 = true", "10 ipv6.advertise.pref64: has no effect, because there is no [nat64]"),
        ("dns = []", "10 ipv6.advertise.dns: names no server"),
        ("dns = [\"192.0.2.1\"]", "10 ipv6.advertise.dns[0]: \"192.0.2.1\" is no IPv6 address"),
        ("managed = 1", "10 ipv6.advertise.managed: is an integer"),
    ] {
        refused(&format!("{POOL}[ipv6.advertise]\n{keys}\n"), &[(expected, "")]);
    }
    let servers = vec!["\"2001:db8::53\""; 128].join(", ");
    refused(
        &format!("{POOL}[ipv6.advertise]\ndns = [{servers}]\n"),
        &[("10 ipv6.advertise.dns: names 128 servers", "at most 127")],
    );
    let bare = SIDES.replace("address6 = \"2001:db8:0:1::1/64\"", "address = \"10.0.0.1/8\"");
    let problems =
        read_text(&format!("{bare}{POOL}[ipv6.advertise]\n"), "t").expect_err("no prefix");
    assert!(problems[0].message.starts_with("needs inside.address6"), "{problems:?}");
    let longer = SIDES.replace("1::1/64", "1::1/80");
    let warnings = read(&format!("{longer}{POOL}[ipv6.advertise]\n")).warnings;
    let said = "hosts form addresses from prefixes of 64 bits only, not 2001:db8:0:1::/80";
    assert!(warnings.iter().any(|one| one.message.starts_with(said)), "{warnings:?}");
}
