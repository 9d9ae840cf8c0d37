//! Tests of explicit mappings: the tables of RFC 7757, refusals, and a slow twin.

use super::*;
use alloc::string::ToString;
use alloc::{format, vec};
use proptest::prelude::*;

fn entry(ipv4: &str, len4: u8, ipv6: &str, len6: u8) -> EamEntry {
    EamEntry {
        ipv6: Prefix6 { address: ipv6.parse().expect("an address"), len: len6 },
        ipv4: Prefix::new(ipv4.parse().expect("an address"), len4),
    }
}

/// The table of RFC 7757, figure 1.
fn figure_1() -> Vec<EamEntry> {
    vec![
        entry("192.0.2.1", 32, "2001:db8:aaaa::", 128),
        entry("192.0.2.2", 32, "2001:db8:bbbb::b", 128),
        entry("192.0.2.16", 28, "2001:db8:cccc::", 124),
        entry("192.0.2.128", 26, "2001:db8:dddd::", 64),
        entry("192.0.2.192", 29, "2001:db8:eeee:8::", 62),
        entry("192.0.2.224", 31, "64:ff9b::", 127),
    ]
}

//= test rfc7757#section-3.3
#[test]
fn the_table_of_rfc_7757_translates_both_ways() {
    let table = Eam::new(&figure_1()).expect("a table");
    let pairs = [
        ("192.0.2.1", "2001:db8:aaaa::"),
        ("192.0.2.2", "2001:db8:bbbb::b"),
        ("192.0.2.16", "2001:db8:cccc::"),
        ("192.0.2.24", "2001:db8:cccc::8"),
        ("192.0.2.31", "2001:db8:cccc::f"),
        ("192.0.2.128", "2001:db8:dddd::"),
        ("192.0.2.152", "2001:db8:dddd:0:6000::"),
        ("192.0.2.183", "2001:db8:dddd:0:dc00::"),
        ("192.0.2.191", "2001:db8:dddd:0:fc00::"),
        ("192.0.2.193", "2001:db8:eeee:8:8000::"),
        ("192.0.2.199", "2001:db8:eeee:b:8000::"),
        ("192.0.2.225", "64:ff9b::1"),
    ];
    for (ipv4, ipv6) in pairs {
        let (ipv4, ipv6) = (ipv4.parse().expect("one"), ipv6.parse().expect("one"));
        assert_eq!((table.to_ipv6(ipv4), table.to_ipv4(ipv6)), (Some(ipv6), Some(ipv4)));
    }
    for ipv4 in ["192.0.2.0", "192.0.2.3", "192.0.2.32", "192.0.2.200", "192.0.2.226", "9.9.9.9"] {
        assert_eq!(table.to_ipv6(ipv4.parse().expect("one")), None, "{ipv4}");
    }
    // Bits beyond the IPv4 suffix are discarded.
    let ipv6 = "2001:db8:eeee:8:9abc:def::1".parse().expect("one");
    assert_eq!(table.to_ipv4(ipv6), Some(Ipv4Addr::new(192, 0, 2, 193)));
}

//= test rfc7757#section-3.3
#[test]
fn the_longest_prefix_wins_in_both_families() {
    let entries = [
        entry("0.0.0.0", 0, "2001:db8:ff00::", 40),
        entry("198.51.100.64", 32, "2001:db8::abcd", 128),
    ];
    let table = Eam::new(&entries).expect("a table");
    let to_ipv6 = |text: &str| table.to_ipv6(text.parse().expect("one")).expect("it is mapped");
    assert_eq!(to_ipv6("198.51.100.64").to_string(), "2001:db8::abcd");
    assert_eq!(to_ipv6("198.51.100.63").to_string(), "2001:db8:ffc6:3364:3f00::");
    assert_eq!(to_ipv6("198.51.100.65").to_string(), "2001:db8:ffc6:3364:4100::");
    assert_eq!(to_ipv6("255.255.255.255").to_string(), "2001:db8:ffff:ffff:ff00::");
    let ipv6 = "2001:db8:ffc6:3364:4000::".parse().expect("one");
    assert_eq!(table.to_ipv4(ipv6), Some(Ipv4Addr::new(198, 51, 100, 64)));
}

//= test rfc7757#section-3.2-suffix
#[test]
fn entries_that_are_not_one_to_one_are_refused_with_the_arithmetic() {
    let narrow = entry("1.0.0.0", 24, "2001:db8::", 124);
    let error = Eam::new(&[figure_1()[0], narrow]).expect_err("too narrow");
    assert_eq!(error, EamError::Narrow(1, narrow));
    let text = "1.0.0.0/24 leaves 8 bits for hosts and 2001:db8::/124 only 4, so 16 IPv4 addresses \
                would share an IPv6 address (RFC 7757 section 3.2)";
    assert_eq!(error.to_string(), text);
    let twice = [figure_1()[0], entry("9.0.0.1", 32, "2001:db8:aaaa::", 128)];
    assert!(matches!(Eam::new(&twice), Err(EamError::SameIpv6(0, 1, _))));
    let twice = [figure_1()[1], figure_1()[0], entry("192.0.2.2", 32, "2001:db8::9", 128)];
    assert!(matches!(Eam::new(&twice), Err(EamError::SameIpv4(0, 2, _))));
    assert!(Eam::new(&[]).expect("an empty table").is_empty());
}

/// The entry with the longest prefix, by looking at all.
fn slow(entries: &[EamEntry], has: impl Fn(&EamEntry) -> Option<u8>) -> Option<EamEntry> {
    let found = entries.iter().filter_map(|entry| Some((has(entry)?, *entry)));
    found.max_by_key(|(len, _)| *len).map(|(_, entry)| entry)
}

fn entries() -> impl Strategy<Value = Vec<EamEntry>> {
    // Few bits differ, so that prefixes lie within each other.
    let one = (0_u32..64, 0_u8..=32, 0_u128..64, 0_u8..=128).prop_map(|(v4, len4, v6, len6)| {
        let ipv4 = Prefix::new(Ipv4Addr::from_bits(v4 << 26 | v4), len4);
        let len6 = len6.min(96 + len4);
        EamEntry { ipv6: Prefix6 { address: Ipv6Addr::from_bits(v6 << 122 | v6), len: len6 }, ipv4 }
    });
    prop::collection::vec(one, 0..12)
}

proptest! {
    #[test]
    fn the_table_finds_what_looking_at_all_entries_finds(
        entries in entries(), v4 in any::<u32>(), v6 in any::<u128>(),
    ) {
        let Ok(table) = Eam::new(&entries) else { return Ok(()) };
        let ends4 = entries.iter().flat_map(|one| [one.ipv4.first(), one.ipv4.last()]);
        let near4 = ends4.flat_map(|end| [end.wrapping_sub(1), end, end.wrapping_add(1)]);
        for address in near4.chain([v4]) {
            let has = |one: &EamEntry| {
                (one.ipv4.first()..=one.ipv4.last()).contains(&address).then_some(one.ipv4.len())
            };
            let expected = slow(&entries, has).map(|one| {
                let suffix = format!("{address:032b}").split_off(one.ipv4.len().into());
                let prefix = format!("{:0128b}", one.ipv6.first().to_bits());
                let bits = format!("{}{suffix}", &prefix[..usize::from(one.ipv6.len)]);
                let bits = u128::from_str_radix(&format!("{bits:0<128}"), 2).expect("bits");
                Ipv6Addr::from_bits(bits)
            });
            prop_assert_eq!(table.to_ipv6(Ipv4Addr::from_bits(address)), expected);
        }
        let ends6 = entries.iter().flat_map(|one| [one.ipv6.first(), one.ipv6.last()]);
        let near6 = ends6.map(Ipv6Addr::to_bits);
        let near6 = near6.flat_map(|end| [end.wrapping_sub(1), end, end.wrapping_add(1)]);
        for address in near6.chain([v6]).map(Ipv6Addr::from_bits) {
            let has = |one: &EamEntry| one.ipv6.contains(address).then_some(one.ipv6.len);
            let expected = slow(&entries, has).map(|one| {
                let suffix = format!("{:0128b}", address.to_bits()).split_off(one.ipv6.len.into());
                let prefix = format!("{:032b}", one.ipv4.first());
                let bits = format!("{}{suffix}", &prefix[..usize::from(one.ipv4.len())]);
                Ipv4Addr::from_bits(u32::from_str_radix(&bits[..32], 2).expect("bits"))
            });
            prop_assert_eq!(table.to_ipv4(address), expected);
        }
    }
}
