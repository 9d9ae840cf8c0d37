//! `[lw4o6]` and `[[map]]`: what they are read as, what is refused and where, and what check says.

use natgate_control::config::{Configuration, Problem, read, read_text, reread};
use natgate_control::meaning::Meaning;
use natgate_ipv6::softwire::MapMode;
use natgate_ipv6::{HostKind, Translator};
use std::fs;
use std::path::PathBuf;

const SIDES: &str = r#"[inside]
device = "eth1"
address6 = "2001:db8:0:1::1/64"
[outside]
device = "eth0"
address = "198.51.100.1/24"
"#;

const LW4O6: &str = "[lw4o6]\naddress = \"2001:db8:ffff::2\"\nbindings = \"bindings.csv\"\n";

const BINDINGS: &str = "ipv4,psid_offset,psid_length,psid,b4,br\n\
    203.0.113.7,0,6,1,2001:db8:b4::1\n\
    203.0.113.7,0,6,2,2001:db8:b4::2,2001:db8:ffff::9\n";

const MAP: &str = r#"[[map]]
mode = "encapsulation"
ipv6 = "2001:db8::/40"
ipv4 = "192.0.2.0/24"
ea_length = 16
br = "2001:db8:ffff::1"
"#;

/// A folder with a configuration and a file of bindings.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, text: &str, bindings: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("natgate-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let folder = Self(folder);
        folder.write("bindings.csv", bindings);
        folder.write("natgate.toml", &format!("{SIDES}{text}"));
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a file");
    }

    fn config(&self) -> PathBuf {
        self.0.join("natgate.toml")
    }

    fn read(&self) -> Result<Configuration, Vec<Problem>> {
        read(&self.config())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn refused(text: &str, expected: &[(&str, &str)]) {
    let text = format!("{SIDES}{text}");
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

#[test]
fn every_key_is_read_and_no_pool_is_needed() {
    let more = "hairpinning = false\nicmp_errors = false\ninbound_icmp = false\nmtu = 1400\n\
        mtu_discovery = false\n";
    let second = r#"[[map]]
mode = "translation"
ipv6 = "2001:db8:100::/48"
ipv4 = "10.1.2.3"
ea_length = 0
psid_offset = 4
psid_length = 6
psid = 9
dmr = "64:ff9b::/96"
mtu = 1300
"#;
    let folder = Folder::new("every", &format!("{LW4O6}{more}{MAP}{second}"), BINDINGS);
    let configuration = folder.read().expect("a good file");
    let settings = configuration.settings;
    let shared = settings.bindings.expect("bindings");
    assert_eq!(shared.path(), folder.0.join("bindings.csv"));
    assert_eq!(shared.table().len(), 2);
    let lw4o6 = settings.ipv6.lw4o6.expect("lw4o6");
    assert_eq!((lw4o6.address.to_string(), lw4o6.bindings.len()), ("2001:db8:ffff::2".into(), 2));
    assert_eq!((lw4o6.hairpinning, lw4o6.icmp_errors, lw4o6.inbound_icmp), (false, false, false));
    assert_eq!((lw4o6.softwire.mtu, lw4o6.softwire.path_mtu), (Some(1400), false));
    let second = lw4o6.bindings.binding([203, 0, 113, 7].into(), 2048).expect("a binding");
    assert_eq!(second.br.to_string(), "2001:db8:ffff::9");
    let [one, two] = &settings.ipv6.map[..] else { panic!("two rules") };
    assert_eq!(one.rule.psid_of(1232), Some(0x34));
    assert_eq!((one.softwire.mtu, one.softwire.path_mtu), (None, false));
    assert_eq!((two.softwire.mtu, two.softwire.path_mtu), (Some(1300), false));
    assert_eq!((two.rule.own_psid(), two.rule.sets().offset()), (Some(9), 4));
    let MapMode::Translation(dmr) = two.rule.parameters().mode else { panic!("translation") };
    assert_eq!(dmr.to_string(), "64:ff9b::/96");
}

//= test rfc7597#section-5.2-length
#[test]
fn rules_that_do_not_fit_are_refused_with_the_arithmetic() {
    let map = |change: (&str, &str)| MAP.replace(change.0, change.1);
    refused(
        &map(("ea_length = 16", "ea_length = 20")),
        &[("11 map[0].ea_length: ", "20 - (32 - 24) = 12 for the PSID; offset 6 and PSID length")],
    );
    refused(
        &map(("2001:db8::/40", "2001:db8::/120")),
        &[("11 map[0].ea_length: ", "120 bits of 2001:db8::/120 and 16 EA bits are 136")],
    );
    refused(
        &map(("ea_length = 16", "ea_length = 49")),
        &[("11 map[0].ea_length: ", "49 is out of bounds; it must be from 0 to 48")],
    );
    refused(
        &map(("ea_length = 16", "ea_length = 16\npsid_offset = 16")),
        &[("12 map[0].psid_offset: ", "from 0 to 15")],
    );
    refused(
        &map(("ea_length = 16", "ea_length = 8\npsid_length = 8\npsid = 256")),
        &[("13 map[0].psid: ", "PSID 256 is beyond 255, the largest of 8 bits")],
    );
    refused(
        &map(("ea_length = 16", "ea_length = 9\npsid_length = 8\npsid = 5")),
        &[("13 map[0].psid: ", "24 bits of the IPv4 prefix and 9 EA bits are 33, not 32")],
    );
    refused(
        &map(("ea_length = 16", "ea_length = 8\npsid = 5")),
        &[("12 map[0].psid: ", "psid_length")],
    );
    refused(
        &map(("br =", "dmr =")),
        &[("7 map[0].br: ", "is missing"), ("12 map[0].dmr: ", "is for translation")],
    );
    refused(
        "[lw4o6]\n",
        &[("7 lw4o6.address: ", "is missing"), ("7 lw4o6.bindings: ", "is missing")],
    );
    refused(
        &LW4O6.replace("2001:db8:ffff::2", "fe80::1"),
        &[("8 lw4o6.address: ", "is link-local")],
    );
}

#[test]
fn a_prefix_in_two_domains_is_refused() {
    let second = MAP.replace("2001:db8::/40", "2001:db8:100::/40");
    refused(
        &format!("{MAP}{second}"),
        &[("16 map[1].ipv4: ", "192.0.2.0/24 is in map[0].ipv4 in line 10 already")],
    );
    let second = MAP.replace("192.0.2.0/24", "192.0.3.0/24");
    refused(
        &format!("{MAP}{second}"),
        &[("15 map[1].ipv6: ", "2001:db8::/40 is in map[0].ipv6 in line 9 already")],
    );
    // The longest prefix wins, so a prefix may lie within another.
    let within = second.replace("2001:db8::/40", "2001:db8:ab::/48").replace("3.0/24", "2.7");
    let within = within.replace("ea_length = 16", "ea_length = 0");
    let text = format!("{SIDES}{MAP}{within}");
    read_text(&text, "t").unwrap_or_else(|problems| panic!("{problems:#?}"));
    let pool = "[[pool]]\naddresses = [\"192.0.2.9\"]\n";
    refused(
        &format!("{MAP}{pool}"),
        &[("10 map[0].ipv4: ", "overlaps pool[0].addresses[0] in line 14 (192.0.2.9)")],
    );
    let fixed = "[[static]]\ninternal = \"10.0.0.80:80\"\nexternal = \"192.0.2.18:1232\"\n";
    refused(
        &format!("{MAP}{pool}{fixed}").replace("192.0.2.9", "203.0.113.1"),
        &[("17 static[0].external: ", "192.0.2.18 is in map[0].ipv4 in line 10")],
    );
    let translation = MAP
        .replace("encapsulation", "translation")
        .replace("br = \"2001:db8:ffff::1\"", "dmr = \"64:ff9b::/96\"");
    refused(
        &format!(
            "[[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\nprefixes = [\"64:ff9b::/96\"]\n\
             {translation}"
        ),
        &[("16 map[0].dmr: ", "64:ff9b::/96 overlaps nat64.prefixes[0] in line 10")],
    );
    refused(
        &format!("{translation}mtu_discovery = true\n"),
        &[("13 map[0].mtu_discovery: ", "is for encapsulation")],
    );
}

#[test]
fn bindings_with_a_fault_change_nothing() {
    let bad = format!("{BINDINGS}203.0.113.7,0,6,64,2001:db8:b4::3\n203.0.113.7,0,6\n");
    let folder = Folder::new("fault", LW4O6, &bad);
    let problems = folder.read().expect_err("two lines are wrong");
    let file = folder.0.join("bindings.csv").display().to_string();
    let found: Vec<_> = problems.iter().map(|one| (&*one.file, one.line, one.column)).collect();
    assert_eq!(found, [(&*file, Some(4), Some(17)), (&*file, Some(5), Some(16))]);
    assert!(problems[0].message.contains("64 needs 7 bits, and psid_length is 6"));
    folder.write("bindings.csv", &format!("{BINDINGS}203.0.113.7,0,6,1,2001:db8:b4::3\n"));
    let problems = folder.read().expect_err("two bindings collide");
    assert_eq!((problems.len(), problems[0].line, problems[0].column), (1, Some(4), Some(1)));
    let message = &problems[0].message;
    assert!(message.contains("bound to 2001:db8:b4::1 in line 2, column 1, already"), "{message}");
    fs::remove_file(folder.0.join("bindings.csv")).expect("a file");
    let problems = folder.read().expect_err("there is no file");
    let at = (problems.len(), &*problems[0].key, problems[0].line);
    assert_eq!(at, (1, "lw4o6.bindings", Some(9)));
    let said = format!("{file} cannot be read: No such file");
    assert!(problems[0].message.starts_with(&said), "{problems:?}");
}

#[test]
fn tables_that_claim_one_packet_are_refused() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.0/28\"]\n";
    let folder = Folder::new("rivals", &format!("{LW4O6}{pool}"), BINDINGS);
    let problems = folder.read().expect_err("an address of the pool");
    assert_eq!((problems.len(), problems[0].line), (1, Some(9)));
    let message = &problems[0].message;
    assert!(message.contains("203.0.113.7 of ") && message.contains("is in pool[0].addresses[0]"));
    let map = MAP.replace("2001:db8:ffff::1", "2001:db8:ffff::9");
    let folder = Folder::new("ends", &format!("{LW4O6}{map}"), BINDINGS);
    let problems = folder.read().expect_err("one end");
    assert!(problems[0].message.starts_with("2001:db8:ffff::9 is an end of tunnels of [lw4o6]"));
    let map = MAP.replace("192.0.2.0/24", "203.0.113.0/24");
    let folder = Folder::new("addresses", &format!("{LW4O6}{map}"), BINDINGS);
    let problems = folder.read().expect_err("one address");
    assert!(problems[0].message.contains("is in map[0].ipv4 in line 13"), "{problems:?}");
}

/// Nobody would find them: the gateway answers no ARP for customers.
#[test]
fn addresses_in_the_network_of_the_outside_are_refused() {
    let network = "198.51.100.0/24, the network of outside.address; the gateway answers no ARP";
    for ipv4 in ["198.51.100.0/24", "198.51.100.128/25", "198.51.0.0/16"] {
        let map = MAP.replace("192.0.2.0/24", ipv4);
        refused(&map, &[("10 map[0].ipv4: ", &format!("{ipv4} overlaps {network}"))]);
    }
    for (ipv4, name) in [("198.51.100.77", "host"), ("198.51.100.1", "own")] {
        let bindings = format!("{BINDINGS}{ipv4},0,6,1,2001:db8:b4::3\n");
        let folder = Folder::new(name, LW4O6, &bindings);
        let problems = folder.read().expect_err("an address that no router sends here");
        assert_eq!((problems.len(), problems[0].line), (1, Some(9)), "{problems:?}");
        assert_eq!(problems[0].key, "lw4o6.bindings");
        let file = folder.0.join("bindings.csv").display().to_string();
        let expected = format!("{ipv4} of {file} is in {network}");
        assert!(problems[0].message.starts_with(&expected), "{problems:?}");
    }
}

/// Customers send by IPv6: without it inside, the tables would have no effect.
#[test]
fn tables_of_tunnels_need_ipv6_inside() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let dslite = "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let sides = SIDES.replace("address6 = \"2001:db8:0:1::1/64\"\n", "");
    let route = |side: &str| {
        let prefix = "[[route]]\nprefix = \"2001:db8:b4::/48\"\nvia = \"fe80::9\"\n";
        format!("{prefix}side = \"{side}\"\n")
    };
    let with_pool = format!("{pool}{dslite}");
    for (text, key, line) in [(&*with_pool, "dslite", 8), (LW4O6, "lw4o6", 6), (MAP, "map[0]", 6)] {
        for more in [String::new(), route("outside")] {
            let problems = read_text(&format!("{sides}{text}{more}"), "t").expect_err(key);
            let [one] = &problems[..] else { panic!("{key}: {problems:?}") };
            assert_eq!((one.key.as_str(), one.line), (key, Some(line)), "{one:?}");
            let said = "its customers send by IPv6, and the inside has none; write inside.address6";
            assert!(one.message.starts_with(said), "{one:?}");
        }
        let routed = read_text(&format!("{sides}{text}{}", route("inside")), "t");
        assert!(routed.is_ok(), "{key}: {routed:?}");
    }
}

#[test]
fn unwise_ends_and_no_customers_are_warned_of() {
    let warned = |text: &str, bindings: &str| {
        let folder = Folder::new("unwise", text, bindings);
        let warnings = folder.read().expect("a good file").warnings;
        let at = |one: &Problem| {
            let message = one.message.replace(&*folder.0.to_string_lossy(), "");
            format!("{} {}: {message}", one.line.expect("a line"), one.key)
        };
        warnings.iter().map(at).collect::<Vec<_>>()
    };
    assert_eq!(warned(LW4O6, BINDINGS), [""; 0]);
    assert_eq!(
        warned(LW4O6, "# nobody yet\n"),
        ["9 lw4o6.bindings: /bindings.csv has no binding, so [lw4o6] serves nobody; add the \
             customers"]
    );
    assert_eq!(warned(MAP, ""), [""; 0]);
    assert_eq!(
        warned(&MAP.replace("2001:db8:ffff::1", "2001:db8:7::1"), ""),
        ["12 map[0].br: 2001:db8:7::1 overlaps map[0].ipv6 (2001:db8::/40), so a customer may \
             have its addresses; write one of its own"]
    );
    let translation = MAP.replace("encapsulation", "translation");
    let dmr = translation.replace("br = \"2001:db8:ffff::1\"", "dmr = \"2001:db8:9::/64\"");
    assert_eq!(
        warned(&dmr, ""),
        ["12 map[0].dmr: 2001:db8:9::/64 overlaps map[0].ipv6 (2001:db8::/40), so a customer \
             may have its addresses; write one of its own"]
    );
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let dslite = "[dslite]\naddress = \"2001:db8:b4::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    assert_eq!(
        warned(&format!("{pool}{dslite}"), ""),
        ["11 dslite.b4[0]: 2001:db8:b4::/48 contains dslite.address (2001:db8:b4::1), which is \
             no B4; write prefixes of B4s alone"]
    );
}

#[test]
fn bindings_may_change_at_a_reload_and_other_keys_may_not() {
    let folder = Folder::new("reload", LW4O6, BINDINGS);
    let in_force = folder.read().expect("a good file").settings;
    folder.write("bindings.csv", "203.0.113.9,0,0,0,2001:db8:b4::7\n");
    let new = reread(&folder.config(), &in_force).expect("new bindings");
    assert_eq!(new.settings.ipv6.lw4o6.expect("lw4o6").bindings.len(), 1);
    folder.write("natgate.toml", &format!("{SIDES}{LW4O6}hairpinning = false\n{MAP}"));
    let problems = reread(&folder.config(), &in_force).expect_err("keys of a restart");
    let keys: Vec<&str> = problems.iter().map(|one| &*one.key).collect();
    assert_eq!(keys, ["lw4o6", "map"]);
}

#[test]
fn check_works_out_a_customer_both_ways() {
    let folder = Folder::new("check", &format!("{LW4O6}{MAP}"), BINDINGS);
    let meaning = Meaning::of(folder.read().expect("a good file"));
    let json = serde_json::to_value(&meaning).expect("JSON");
    let lw4o6 = &json["ipv6"]["lw4o6"];
    assert_eq!((&lw4o6["bindings"], &lw4o6["brs"][0]), (&2.into(), &"2001:db8:ffff::9".into()));
    assert_eq!(lw4o6["sample"]["ports"][0], "1024-2047");
    assert_eq!(lw4o6["sample"]["back"]["psid"], 1);
    let domain = &json["ipv6"]["map"][0];
    assert_eq!((&domain["customers"], &domain["ports_each"]), (&65_536.into(), &252.into()));
    let sample = &domain["sample"];
    assert_eq!(sample["ipv4"], "192.0.2.255");
    assert_eq!(sample["ipv6"], "2001:db8:ff:ff00:0:c000:2ff:ff");
    assert_eq!(sample["prefix"], "2001:db8:ff:ff00::/56");
    assert_eq!(
        (&sample["back"]["ipv4"], &sample["back"]["psid"]),
        (&"192.0.2.255".into(), &255.into())
    );
    let text = meaning.to_string();
    for part in [
        "lw4o6: 2 bindings at 2001:db8:ffff::2",
        "for example 203.0.113.7, PSID 1 (0x1), ports 1024-2047",
        "map: encapsulation, 192.0.2.0/24 in 2001:db8::/40, to 2001:db8:ffff::1",
        "65,536 customers with 252 ports each",
        "for example 192.0.2.255, PSID 255 (0xff), ports 2044-2047, 3068-3071, 4092-4095 and 60",
        "in 2001:db8:ff:ff00::/56 with address 2001:db8:ff:ff00:0:c000:2ff:ff",
        "and back: 192.0.2.255, PSID 255",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn dslite_is_read_and_check_names_a_subscriber() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let dslite = "[dslite]\naddress = \"2001:db8:0:1::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let text = format!("{SIDES}{pool}{dslite}mtu = 1400\nmtu_discovery = false\n");
    let configuration = read_text(&text, "t").expect("a good text");
    let settings = configuration.settings.ipv6.dslite.clone().expect("DS-Lite");
    assert_eq!(settings.address.to_string(), "2001:db8:0:1::1");
    assert_eq!((settings.b4.len(), settings.b4[0].len), (1, 48));
    assert_eq!((settings.softwire.mtu, settings.softwire.path_mtu), (Some(1400), false));
    let around = read_text(&text.replace("/48", "/40"), "t").expect("bits beyond the prefix");
    let b4 = &around.settings.ipv6.dslite.expect("DS-Lite").b4;
    assert_eq!(b4[0].to_string(), "2001:db8::/40");
    let meaning = Meaning::of(configuration);
    let json = serde_json::to_value(&meaning).expect("JSON");
    let sample = &json["ipv6"]["dslite"]["sample"];
    assert_eq!(sample["subscriber"], "2001:db8:b4::1");
    assert_eq!(sample["tunnel"][1], "2001:db8:0:1::1");
    let text = meaning.to_string();
    let line = "192.0.0.2 behind 2001:db8:b4::1 is a host of subscriber 2001:db8:b4::1";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_subscriber_of_dslite_may_be_a_prefix() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let dslite = "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let read = |more: &str| read_text(&format!("{SIDES}{pool}{dslite}{more}"), "t");
    let of = |more: &str| {
        let settings = read(more).expect("a good text").settings.ipv6;
        let len = settings.subscriber_length(HostKind::Dslite);
        let dslite = settings.dslite.expect("DS-Lite");
        assert_eq!(len, Some(dslite.subscriber_length));
        (dslite.subscriber_length, dslite.b4_change_interval.as_secs())
    };
    assert_eq!(of(""), (128, 1800));
    assert_eq!(of("subscriber_length = 56\nb4_change_interval = \"5m\"\n"), (56, 300));
    let text = Meaning::of(read("subscriber_length = 56\n").expect("a good text")).to_string();
    let line = "192.0.0.2 behind 2001:db8:b4::1 is a host of subscriber 2001:db8:b4::/56";
    assert!(text.contains(line), "{text}");
    refused(
        &format!("{pool}{dslite}subscriber_length = 40\nb4_change_interval = \"31d\"\n"),
        &[
            ("12 dslite.subscriber_length: ", "40 is out of bounds"),
            ("13 dslite.b4_change_interval: ", "31d is out of bounds"),
        ],
    );
}

/// Customers whose B4s share a subscriber would take the tunnel from one another.
#[test]
fn b4s_of_one_subscriber_are_warned_of() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let warnings = |b4: &str, len: u8| {
        let dslite = format!("[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [{b4}]\n");
        let text = format!("{SIDES}{pool}{dslite}subscriber_length = {len}\n");
        read_text(&text, "t").expect("a good text").warnings
    };
    let (wide, one) = ("\"2001:db8:b4::/48\"", "\"2001:db8:b4:100::1\"");
    let none = [
        (wide, 48),
        (wide, 56),
        ("\"2001:db8:b4::/64\"", 128),
        // The only B4 of its subscriber.
        (one, 56),
        ("\"2001:db8:b4:100::1\", \"2001:db8:b4:200::1\", \"2001:db8:b4:200::1\"", 56),
    ];
    for (b4, len) in none {
        assert_eq!(warnings(b4, len), [], "{b4} {len}");
    }
    let shared = [
        ("\"2001:db8:b4::/64\"", "dslite.b4[0]", "2001:db8:b4::/64 is in 2001:db8:b4::/56"),
        (
            "\"2001:db8:b4:200::/56\", \"2001:db8:b4:1f0::/60\"",
            "dslite.b4[1]",
            "2001:db8:b4:1f0::/60 is in 2001:db8:b4:100::/56",
        ),
        (
            "\"2001:db8:b4:100::1\", \"2001:db8:b4:200::1\", \"2001:db8:b4:1ff::2\"",
            "dslite.b4[2]",
            "2001:db8:b4:1ff::2/128 is in 2001:db8:b4:100::/56",
        ),
    ];
    for (b4, key, part) in shared {
        let found = warnings(b4, 56);
        let [found] = &found[..] else { panic!("{b4}: {found:?}") };
        assert_eq!((found.line, found.key.as_str()), (Some(11), key), "{b4}");
        assert!(found.message.starts_with(part), "{}", found.message);
        assert!(found.message.contains("write subscriber_length of their length"), "{found:?}");
    }
}

#[test]
fn dslite_without_an_end_is_refused_with_its_line() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let b4 = "b4 = [\"2001:db8:b4::/48\"]\n";
    refused(&format!("{pool}[dslite]\n{b4}"), &[("9 dslite.address: ", "is missing")]);
    refused(
        &format!("{pool}[dslite]\n"),
        &[("9 dslite.address: ", "is missing"), ("9 dslite.b4: ", "is missing")],
    );
    refused(
        &format!("{pool}[dslite]\naddress = \"fe80::1\"\n{b4}"),
        &[("10 dslite.address: ", "is link-local")],
    );
}

#[test]
fn dslite_has_an_end_of_its_own() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let dslite = "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    refused(
        &format!("{pool}{dslite}{MAP}"),
        &[("10 dslite.address: ", "2001:db8:ffff::1 is an end of tunnels of [[map]] too")],
    );
}

#[test]
fn nat64_beside_dslite_has_a_realm_and_prefixes_of_its_own() {
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    let dslite = "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let both = format!("{pool}{dslite}[nat64]\n");
    let settings = read_text(&format!("{SIDES}{both}"), "t").expect("a good text").settings;
    let mut config = settings.engine;
    let translator = Translator::new(&settings.ipv6, &mut config, [0; 32]);
    let realms = translator.expect("good settings").expect("settings of IPv6").realms();
    assert_eq!(realms.all().collect::<Vec<_>>(), [(1, HostKind::Nat64), (2, HostKind::Dslite)]);
    let names: Vec<_> = config.realms.iter().map(|realm| &realm.name[..]).collect();
    assert_eq!(names, ["nat64", "dslite"]);
    // Subscribers of both may be prefixes of other lengths, also with several workers.
    assert!(read_text(&format!("{SIDES}{both}[workers]\ncount = 2\n"), "t").is_ok());
    let around = "prefixes = [\"2001:db8:b4:9::/96\", \"2001:db8:ffff::/96\"]\n";
    refused(
        &format!("{both}{around}"),
        &[
            (
                "10 dslite.address: ",
                "2001:db8:ffff::1 is in 2001:db8:ffff::/96 of nat64.prefixes: addresses there \
                 stand for IPv4 ones; write another",
            ),
            (
                "11 dslite.b4[0]: ",
                "2001:db8:b4::/48 overlaps 2001:db8:b4:9::/96 of nat64.prefixes: addresses there \
                 stand for IPv4 ones; write another",
            ),
        ],
    );
    let named = "[[realm]]\nname = \"nat64\"\ndevice = \"red\"\naddress = \"10.0.0.1/8\"\n";
    refused(
        &format!("{both}{named}"),
        &[("14 realm[0].name: ", "\"nat64\" is what the realm of the hosts of [nat64] is called")],
    );
}
