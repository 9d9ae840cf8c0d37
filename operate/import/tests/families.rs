//! Conversions of translators between the families: Jool's files and commands, and tayga's file.

mod common;

use common::{differs, has, imported, lacks, lost, remark};
use natgate_import::{Format, Grade, Hints, ImportError, import};

/// The number of the first line that has some words.
fn line(text: &str, what: &str) -> usize {
    text.lines().position(|line| line.contains(what)).expect(what) + 1
}

#[test]
fn a_nat64_of_jool() {
    let text = include_str!("files/nat64.json");
    let all = imported(text, Format::Jool);
    has(&all, "[nat64] prefixes = [\"64:ff9b::/96\"]");
    has(&all, "[[pool]] name = \"pool-2\" addresses = [\"203.0.113.1\"] ports = \"61001-65535\"");
    has(&all, "[nat] filtering = \"address-dependent\"");
    has(
        &all,
        "[timeouts] icmp = \"60s\" tcp_closing = \"240s\" tcp_established = \"7440s\" \
         tcp_opening = \"240s\" udp = \"300s\"",
    );
    lost(&all, line(text, "2001:db8::9"), "hosts outside no longer reach it first");
    lacks(&all, line(text, "logging-bib"), "write [[log]]");
    differs(&all, line(text, "203.0.113.8/30"), "marked packets");
    assert!(!all.config.contains("[siit]") && !all.config.contains("udp_checksum_zero"));
}

#[test]
fn a_siit_of_jool() {
    let text = include_str!("files/siit.json");
    let all = imported(text, Format::Jool);
    has(&all, "[ipv6] tos = 184 traffic_class = \"zero\"");
    has(
        &all,
        "[siit] prefixes = [\"2001:db8:46::/96\"] icmp_source = [\"2001:db8:ffff::1\", \
         \"2001:db8:ffff::2\", \"2001:db8:ffff::3\"] hairpin = \"simple\"",
    );
    has(&all, "[[siit.map]] ipv6 = \"2001:db8:4::/120\" ipv4 = \"192.0.2.0/24\"");
    has(&all, "[[siit.map]] ipv6 = \"2001:db8:5::9\" ipv4 = \"198.51.100.9\"");
    differs(&all, line(text, "framework"), "rules of iptables");
    differs(&all, line(text, "manually-enabled"), "natgate translates");
    lacks(&all, line(text, "mtu-plateaus"), "is settled in natgate");
    lost(&all, line(text, "198.51.100.0/29"), "keeps these addresses from being translated");
    assert!(!all.config.contains("[[pool]]"), "{}", all.config);
}

#[test]
fn a_prefix_of_jool_alone_is_that_of_nat64_unless_another_key_is_siits() {
    let file = |more: &str| {
        format!("{{ \"instance\": \"a\",\n\"global\": {{ \"pool6\": \"64:ff9b::/96\"{more} }} }}\n")
    };
    let alone = imported(&file(""), Format::Jool);
    has(&alone, "[nat64] prefixes = [\"64:ff9b::/96\"]");
    differs(&alone, 2, "is taken for NAT64's");
    // Jool's ports if it is told none.
    has(&alone, "[[pool]] name = \"default\" addresses = [\"192.0.2.1\"] ports = \"61001-65535\"");
    let hints = Hints { external: Some("203.0.113.9".into()), ..Hints::default() };
    let hinted = import(&file(""), None, &hints).expect("it is read");
    has(
        &hinted,
        "[[pool]] name = \"default\" addresses = [\"203.0.113.9\"] ports = \"61001-65535\"",
    );
    let siit = imported(&file(", \"eam-hairpin-mode\": \"none\""), Format::Jool);
    has(&siit, "[siit] prefixes = [\"64:ff9b::/96\"] hairpin = \"off\"");
    // SIIT drops UDP without checksum unless it is told otherwise; NAT64 never does.
    has(&siit, "[ipv6] udp_checksum_zero = \"drop\"");
    assert_eq!(siit.remarks, []);
    let nat64 = imported(&file(", \"udp-timeout\": \"1:00\""), Format::Jool);
    has(&nat64, "[timeouts] udp = \"60s\"");
    assert!(nat64.remarks.iter().all(|one| !one.message.contains("is taken for")));
    // A file of Jool 3.
    let old = "{ \"pool6\": { \"prefix\": \"2001:db8:64::/64\" }, \"pool4\": [] }";
    has(&imported(old, Format::Jool), "[nat64] prefixes = [\"2001:db8:64::/64\"]");
}

#[test]
fn prefixes_and_maps_that_cannot_be_are_lost() {
    let map = |ipv4: &str, ipv6: &str| format!("jool_siit eamt add {ipv4} {ipv6}\n");
    let prefix = |text: &str| format!("jool_siit global update pool6 {text}\n");
    for (text, at, why) in [
        (prefix("2001:db8::/33"), 1, "32, 40, 48, 56, 64 or 96 bits"),
        (prefix("2001:db8:0:0:100::/96"), 1, "bits 64 to 71 are zero"),
        (prefix("64:ff9b::/96") + &prefix("64:ff9b::/64"), 2, "overlaps 64:ff9b::/96"),
        (map("192.0.2.0/24", "2001:db8::/121"), 1, "leaves 8 bits of IPv4 and only 7 of IPv6"),
        (map("192.0.2.0", "nowhere"), 1, "maps no IPv4 prefix"),
        (map("192.0.2.0-192.0.2.2", "2001:db8::/64"), 1, "maps no IPv4 prefix"),
        (
            map("192.0.2.1", "2001:db8::1") + &map("192.0.2.2", "2001:db8::1"),
            2,
            "shares a prefix with the map of line 1",
        ),
        (
            "jool instance add --pool6 64:ff9b::/96\n".to_owned() + &map("192.0.2.1", "64:ff9b::1"),
            2,
            "is in 64:ff9b::/96 of NAT64",
        ),
    ] {
        lost(&imported(&text, Format::Jool), at, why);
    }
    // An entry that stands there twice is converted once.
    let twice = map("192.0.2.1", "2001:db8::1").repeat(2) + &prefix("64:ff9b::/96").repeat(2);
    let all = imported(&twice, Format::Jool);
    assert_eq!((all.remarks.len(), all.config.matches("[[siit.map]]").count()), (0, 1));
}

#[test]
fn commands_of_jool() {
    let text = include_str!("files/jool.sh");
    let all = imported(text, Format::Jool);
    has(&all, "[ipv6] lowest_mtu = 1400");
    has(&all, "[nat64] prefixes = [\"64:ff9b::/96\"]");
    has(
        &all,
        "[siit] prefixes = [\"2001:db8:46::/96\"] icmp_source = [\"192.0.2.8\", \"192.0.2.9\"]",
    );
    has(&all, "[[siit.map]] ipv6 = \"2001:db8:4::/124\" ipv4 = \"198.51.100.0/28\"");
    has(&all, "[[siit.map]] ipv6 = \"2001:db8:5::7\" ipv4 = \"198.51.100.77\"");
    has(&all, "[timeouts] udp = \"300s\"");
    let pools = all.config.matches("[[pool]]").count();
    assert!(pools == 2 && all.config.contains("ports = \"40001-65535\""), "{}", all.config);
    let at = |what: &str| line(text, what);
    lacks(&all, at("instance remove"), "takes something away");
    differs(&all, at("--icmp"), "40001-65535 stays");
    differs(&all, at("--mark 7"), "marked packets");
    lost(&all, at("--udp $POOL"), "has a variable");
    lost(&all, at("bib add"), "a fixed external one");
    lost(&all, at("drop-icmpv6-info"), "drops pings");
    differs(&all, at("--iptables"), "rules of iptables");
    lost(&all, at("2001:db8:5::8"), "shares a prefix with the map of line 20");
    lost(&all, at("2001:db8:6::"), "leaves 16 bits of IPv4 and only 8 of IPv6");
    lost(&all, at("eamt remove"), "takes entries away");
    lost(&all, at("denylist4"), "keeps these addresses");
    lost(&all, at("file handle"), "convert that file");
    assert_eq!(remark(&all, at("--mark 7")).grade, Grade::Differs);
    assert!(all.remarks.iter().all(|one| one.line != at("display")), "it changes nothing");
    let none = import("echo jool\n", Some(Format::Jool), &Hints::default());
    assert!(matches!(none, Err(ImportError::Nothing(why)) if why.contains("jool pool4 add")));
}

#[test]
fn commands_are_known_however_they_are_written() {
    let prefix = "[nat64] prefixes = [\"64:ff9b::/96\"]";
    for command in [
        "jool instance add x --pool6 64:ff9b::/96",
        "  sudo -n /usr/bin/jool instance add \"x\" --iptables -6 64:ff9b::/96",
        "ip netns exec blue jool -i x instance add --pool6=64:ff9b::/96 # why",
        "true && jool instance add --pool6 \\\n  '64:ff9b::/96'",
        "modprobe jool pool6=64:ff9b::/96 disabled",
        "jool pool6 add 64:ff9b::/96",
    ] {
        has(&imported(command, Format::Jool), prefix);
    }
    lost(&imported("jool pool4 --add 192.0.2.1\n", Format::Jool), 1, "is no command");
}

#[test]
fn a_tayga_with_a_dynamic_pool() {
    let text = include_str!("files/pool.tayga");
    let all = imported(text, Format::Tayga);
    let at = |what: &str| line(text, what);
    has(&all, "[ipv6] lowest_mtu = 1492");
    has(&all, "[nat64] prefixes = [\"2001:db8:1:ffff::/96\"] non_global = \"translate\"");
    has(&all, "[[pool]] name = \"default\" addresses = [\"192.168.255.2-192.168.255.255\"]");
    differs(&all, at("dynamic-pool"), "hosts share the addresses");
    differs(&all, at("tun-device"), "natgate stands between two");
    lacks(&all, at("ipv4-addr"), "[outside] address");
    lacks(&all, at("data-dir"), "no counterpart");
    lacks(&all, at("log drop"), "write [[log]]");
    assert!(all.remarks.iter().all(|one| one.grade != Grade::Lost));
}

#[test]
fn a_tayga_with_maps() {
    let text = include_str!("files/maps.tayga");
    let all = imported(text, Format::Tayga);
    let at = |what: &str| line(text, what);
    has(&all, "[ipv6] udp_checksum_zero = \"drop\"");
    has(
        &all,
        "[siit] prefixes = [\"64:ff9b::/96\"] icmp_source = [\"192.0.2.254\", \
         \"2001:db8:1::2\"]",
    );
    has(&all, "[[siit.map]] ipv6 = \"2001:db8:2::/120\" ipv4 = \"198.51.100.0/24\"");
    has(&all, "[[siit.map]] ipv6 = \"2001:db8:3::1\" ipv4 = \"192.0.2.1\"");
    differs(&all, at("ipv4-addr"), "answers no ping");
    lost(&all, at("map 192.0.2.2"), "shares a prefix with the map of line 6");
    lost(&all, at("map 192.0.2.3"), "has not the values");
    lost(&all, at("dynamic-pool"), "an address each");
    lost(&all, at("map-file"), "append that file");
    lacks(&all, at("strict-frag-hdr"), "no counterpart");
    lacks(&all, at("tun-ip"), "tayga's own device");
    assert!(!all.config.contains("[[pool]]"), "{}", all.config);
    let maps = imported("map 192.0.2.1 2001:db8::1\nudp-cksum-mode fwd\n", Format::Tayga);
    has(&maps, "[ipv6] udp_checksum_zero = \"forward\"");
    has(&maps, "[siit]");
    let nothing = import("tun-device nat64\n", None, &Hints::default());
    assert!(matches!(nothing, Err(ImportError::Nothing(why)) if why.contains("prefix 64:ff9b")));
}
