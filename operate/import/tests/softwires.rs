//! Conversions of relays of softwires: Snabb's lwAFTR, and VPP's MAP, lw4o6 and DS-Lite.

mod common;

use common::{differs, has, imported, lacks, lost};
use natgate_import::{Format, Hints, ImportError, Imported, import};

/// The number of the first line that has some words.
fn line(text: &str, what: &str) -> usize {
    text.lines().position(|line| line.contains(what)).expect(what) + 1
}

/// The lines of the file of bindings.
fn bindings(imported: &Imported) -> Vec<&str> {
    let text = imported.bindings.as_deref().expect("there are some");
    text.lines().skip(1).collect()
}

#[test]
fn an_lwaftr_of_snabb() {
    let text = include_str!("files/lwaftr.conf");
    let all = imported(text, Format::Snabb);
    has(
        &all,
        "[inside] device = \"edit-inside\" address6 = \"2001:db8:1::2/64\" icmp_errors = false \
         mtu = 1500",
    );
    has(
        &all,
        "[outside] device = \"edit-outside\" address = \"192.0.2.2/24\" gateway = \"192.0.2.1\" \
         mtu = 1460",
    );
    has(
        &all,
        "[lw4o6] address = \"2001:db8:ffff::2\" bindings = \"bindings.csv\" hairpinning = false \
         inbound_icmp = false",
    );
    has(&all, "[limits] fragments_per_datagram = 40 icmp_errors_per_second = 1000");
    let expected = [
        "203.0.113.7,4,6,1,2001:db8:b4::1",
        "203.0.113.7,4,6,2,2001:db8:b4::2",
        "203.0.113.8,0,0,0,2001:db8:b4::3,2001:db8:ffff::9",
    ];
    assert_eq!(bindings(&all), expected);
    assert!(all.config.contains("# It was 82:00.0: write the kernel's name"), "{}", all.config);
    differs(&all, line(text, "ip 192.0.2.2"), "/24 is written");
    differs(&all, line(text, "vlan-tag 64"), "name the VLAN's device as inside.device");
    lacks(&all, line(text, "mac 02:00:00:00:00:03"), "write gateway or gateway6");
    lacks(&all, line(text, "queue { id 1; }"), "write [workers]");
    lacks(&all, line(text, "flow-label 7"), "natgate's packets have 0");
    lost(&all, line(text, "ingress-filter"), "other packets pass now");
    let of = |b4: &str| line(text, b4) - 2;
    lost(&all, of("2001:db8:b4::4"), "to a second customer");
    lost(&all, of("2001:db8:b4::5"), "divides the ports of 203.0.113.7 in another way");
    assert!(!all.config.contains("[[pool]]"), "{}", all.config);
}

#[test]
fn lists_of_older_versions_beside_the_softwires() {
    let text = include_str!("files/lwaftr-lists.conf");
    let all = imported(text, Format::Snabb);
    let expected = [
        "203.0.113.0,0,6,63,2001:db8:b4::1",
        "203.0.113.1,0,6,63,2001:db8:b4::6",
        "203.0.113.8,6,4,15,2001:db8:b4::3,2001:db8:ffff::3",
    ];
    assert_eq!(bindings(&all), expected);
    has(&all, "[lw4o6] address = \"2001:db8:ffff::2\" bindings = \"bindings.csv\"");
    has(
        &all,
        "[inside] device = \"edit-inside\" address6 = \"2001:db8:1::2/64\" gateway6 = \
         \"2001:db8:1::1\"",
    );
    has(
        &all,
        "[outside] device = \"edit-outside\" address = \"192.0.2.2/24\" gateway = \"192.0.2.1\" \
         mtu = 1500",
    );
    differs(&all, line(text, "ip 192.0.2.2"), "/24 is written");
    differs(&all, line(text, "ip 2001:db8:1::2"), "/64 is written");
    lacks(&all, line(text, "mac 02:00:00:00:00:01"), "the device's own");
    lost(&all, line(text, "addr 203.0.113.9"), "16 bits");
    lost(&all, line(text, "psid 64"), "PSID 64 does not fit into 6 bits");
    lost(&all, line(text, "br 3"), "no place in the list br-address");
    lost(&all, line(text, "203.0.113.10"), "no psid-map has its address");
    differs(&all, line(text, "vlan-tag 42"), "outside.device");
    lacks(&all, line(text, "allow-incoming-icmp false"), "natgate answers pings");
}

/// Only an early revision of Snabb's first schema counts relays from 0.
#[test]
fn a_list_of_relays_that_counts_from_0() {
    let later = include_str!("files/lwaftr-lists.conf");
    let text = later.replace("br 1;", "br 0;").replace("br 2;", "br 1;").replace("br 3;", "br 2;");
    let (all, expected) = (imported(&text, Format::Snabb), imported(later, Format::Snabb));
    assert_eq!(bindings(&all), bindings(&expected));
    differs(&all, line(&text, "br 0"), "counts from 0");
    lost(&all, line(&text, "br 2"), "no place in the list br-address");
    let about = |imported: &Imported| {
        imported.remarks.iter().filter(|remark| remark.message.contains("counts from 0")).count()
    };
    assert_eq!((about(&all), about(&expected)), (1, 0));
}

#[test]
fn one_binding_is_counted_as_one() {
    let text = "softwire-config { binding-table { softwire { ipv4 203.0.113.1; psid 0; b4-ipv6 \
                2001:db8:b4::1; br-address 2001:db8::2; port-set { psid-length 0; } } } }";
    let all = imported(text, Format::Snabb);
    assert!(all.config.contains("# Its file has 1 binding.\n"), "{}", all.config);
}

/// Without IPv6 inside, natgate refuses tables of tunnels.
#[test]
fn an_inside_that_lacks_ipv6_is_named_at_the_top() {
    let lacks_ipv6 = |text: &str, format| {
        let all = imported(text, format);
        let top = all.config.split_once("\n[").expect("a table").0.to_owned();
        top.contains("# Add address6 to [inside]")
    };
    let softwire = "binding-table { softwire { ipv4 203.0.113.1; psid 0; b4-ipv6 2001:db8:b4::1; \
                    br-address 2001:db8::2; port-set { psid-length 0; } } }";
    let inside = "internal-interface { ip 2001:db8:1::2; }";
    let aftr = "dslite add pool address 203.0.113.1\n\
                dslite set aftr-tunnel-endpoint-address 2001:db8::2\n";
    let domain = "map add domain ip4-pfx 203.0.113.0/24 ip6-pfx 2001:db8::/40 ip6-src \
                  2001:db8:ffff::1 ea-bits-len 16 psid-offset 6 psid-len 8\n";
    let device = "set interface ip address eth1 2001:db8:1::1/64\n";
    for (text, format, more) in [
        (format!("softwire-config {{ {softwire} }}"), Format::Snabb, inside),
        (aftr.to_owned(), Format::Vpp, ""),
        (domain.to_owned(), Format::Vpp, "map interface eth1\n"),
    ] {
        assert!(lacks_ipv6(&text, format), "{text}");
        let whole = match format {
            Format::Snabb => text.replace(softwire, &format!("{inside} {softwire}")),
            _ => format!("{device}{text}{more}"),
        };
        assert!(!lacks_ipv6(&whole, format), "{whole}");
    }
    assert!(!lacks_ipv6("nat44 add address 203.0.113.1\n", Format::Vpp));
}

#[test]
fn the_name_of_the_file_of_bindings_is_the_callers() {
    let text = include_str!("files/lwaftr-lists.conf");
    let hints = Hints { bindings: Some("cust\"omers.csv".into()), ..Hints::default() };
    let all = import(text, None, &hints).expect("it is read");
    assert!(all.config.contains("bindings = \"cust\\\"omers.csv\""), "{}", all.config);
    let nat = imported("nat44 add address 203.0.113.1\n", Format::Vpp);
    assert_eq!(nat.bindings, None);
}

#[test]
fn text_that_is_no_configuration_of_snabb_is_refused() {
    let refused = |text: &str| import(text, Some(Format::Snabb), &Hints::default()).unwrap_err();
    assert!(matches!(
        refused("softwire-config { a b c; }"),
        ImportError::Malformed { line: 1, .. }
    ));
    assert!(matches!(refused("softwire-config { }"), ImportError::Nothing(_)));
}

#[test]
fn domains_of_vpp() {
    let text = include_str!("files/map.vpp");
    let all = imported(text, Format::Vpp);
    has(
        &all,
        "[inside] device = \"edit-inside\" address6 = \"2001:db8:1::1/64\" gateway6 = \
         \"2001:db8:1::2\"",
    );
    has(
        &all,
        "[[map]] mode = \"encapsulation\" ipv6 = \"2001:db8:8000::/40\" ipv4 = \
         \"198.51.100.0/24\" ea_length = 16 psid_offset = 6 br = \"2001:db8:ffff::3\" mtu = 1500",
    );
    has(
        &all,
        "[[map]] mode = \"translation\" ipv6 = \"2001:db8:9000::/40\" ipv4 = \
         \"203.0.113.0/24\" ea_length = 14 psid_offset = 4 dmr = \"2001:db8:64::/96\"",
    );
    has(
        &all,
        "[lw4o6] address = \"2001:db8:ffff::4\" bindings = \"bindings.csv\" icmp_errors = false",
    );
    let expected = [
        "203.0.112.7,6,6,1,2001:db8:b4::1",
        "203.0.112.7,6,6,2,2001:db8:b4::2",
        "203.0.112.8,0,0,0,2001:db8:b4::3",
    ];
    assert_eq!(bindings(&all), expected);
    // The end is that of a domain with EA bits.
    has(
        &all,
        "[[map]] mode = \"encapsulation\" ipv6 = \"2001:db8:b4::5\" ipv4 = \"203.0.112.9\" \
         ea_length = 0 psid_offset = 6 psid_length = 6 psid = 5 br = \"2001:db8:ffff::3\"",
    );
    has(&all, "[nat] tcp_mss = 1360");
    lost(&all, line(text, "203.0.112.10"), "4 are a PSID");
    lost(&all, line(text, "index 9"), "is not in the file");
    differs(&all, line(text, "fragment inner"), "cuts inner packets");
    differs(&all, line(text, "traffic-class 0x20"), "copies that of the packet");
    differs(&all, line(text, "security-check off"), "natgate checks");
    lacks(&all, line(text, "pre-resolve"), "[[route]]");
    assert!(!all.config.contains("[[pool]]"), "{}", all.config);
}

#[test]
fn an_aftr_of_vpp() {
    let text = include_str!("files/aftr.vpp");
    let all = imported(text, Format::Vpp);
    has(&all, "[inside] device = \"eth1\" address6 = \"2001:db8:1::1/64\"");
    has(&all, "[outside] device = \"eth0\" address = \"192.0.2.1/24\" gateway = \"192.0.2.254\"");
    has(&all, "[[pool]] name = \"default\" addresses = [\"203.0.113.0/28\", \"203.0.113.64\"]");
    has(&all, "[dslite] address = \"2001:db8:ffff::1\" b4 = [\"2000::/3\", \"fc00::/7\"]");
    differs(&all, line(text, "set aftr"), "write the prefixes of your customers");
    lost(&all, line(text, "set b4"), "natgate is the other one");
}

#[test]
fn domains_that_cannot_be_are_lost() {
    let domain = |ipv4: &str, ipv6: &str, src: &str, bits: [u8; 3]| {
        let [ea, offset, len] = bits;
        format!(
            "map add domain ip4-pfx {ipv4} ip6-pfx {ipv6} ip6-src {src} ea-bits-len {ea} \
             psid-offset {offset} psid-len {len}\n"
        )
    };
    let (ipv4, ipv6, br) = ("203.0.113.0/24", "2001:db8:8000::/40", "2001:db8::3");
    let good = domain(ipv4, ipv6, br, [16, 6, 8]);
    assert_eq!(imported(&good, Format::Vpp).remarks, []);
    for (text, at, why) in [
        (domain("224.0.0.0/24", ipv6, br, [16, 6, 8]), 1, "IPv4 addresses that no host can have"),
        (domain(ipv4, "ff02::/40", br, [16, 6, 8]), 1, "IPv6 addresses that no host can have"),
        (domain(ipv4, ipv6, "2001:db8::/72", [16, 6, 8]), 1, "has no end for natgate"),
        (domain(ipv4, "2001:db8::/120", br, [16, 6, 8]), 1, "more EA bits"),
        (domain(ipv4, ipv6, br, [20, 6, 12]), 1, "more bits of PSID"),
        (domain(ipv4, ipv6, br, [60, 6, 12]), 1, "more bits than MAP"),
        (good.repeat(2), 2, "has the IPv6 prefix of line 1"),
        (
            good.clone() + &domain(ipv4, "2001:db8:9000::/40", br, [16, 6, 8]),
            2,
            "IPv4 prefix of line 1",
        ),
        (
            domain(ipv4, ipv6, "2001:db8:64::/96", [16, 6, 8])
                + &domain("192.0.2.0/24", "2001:db8:9000::/40", "2001:db8:64::/64", [16, 6, 8]),
            2,
            "2001:db8:64::/64 overlaps 2001:db8:64::/96",
        ),
        ("nat44 add address 203.0.113.1\n".to_owned() + &good, 2, "a pool or a static mapping"),
        (
            good.clone() + "dslite set aftr-tunnel-endpoint-address 2001:db8::3\n",
            2,
            "an end of other",
        ),
        (good.clone() + "map del domain index 0\n", 2, "takes something away"),
        (good.clone() + "map add rule index 0 psid 1 ip6-dst 2001:db8::9\n", 1, "has rules"),
    ] {
        lost(&imported(&text, Format::Vpp), at, why);
    }
}
