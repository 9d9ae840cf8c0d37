//! Packets of both families in a capture, by the configuration's tables.

use super::bench::*;
use natgate_io::pcap::LinkType;
use natgate_wire::checksum::{checksum, fold, pseudo_header_v6, sum};
use natgate_wire::{Ipv4, Ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

const SIDES: &str = r#"
[inside]
device = "eth1"
address6 = "2001:db8::1/64"
[outside]
device = "eth0"
address = "192.0.2.254/24"
"#;

fn udp6(source: &str, destination: &str, data: &[u8]) -> Vec<u8> {
    let [source, destination] =
        [source, destination].map(|text| text.parse::<Ipv6Addr>().unwrap().to_bits());
    let len = 8 + data.len();
    let mut bytes = vec![0; 40];
    bytes.extend([0x0f, 0xa0, 0, 53, 0, len as u8, 0, 0]);
    bytes.extend(data);
    let start = pseudo_header_v6(source, destination, 17, len as u32);
    let value = !fold(sum(&bytes[40..], start));
    bytes[46..48].copy_from_slice(&value.to_be_bytes());
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(len as u16);
    header.set_next_header(17);
    header.set_hop_limit(64);
    header.set_source(source);
    header.set_destination(destination);
    bytes
}

#[test]
fn a_subscriber_of_nat64_has_the_name_of_its_prefix() {
    let question = udp6("2001:db8:1::5", "64:ff9b::198.51.100.7", b"question");
    let capture = capture(&[LinkType::RAW; 2], &[packet(0, 0, question)]);
    for (length, name) in [(64, "2001:db8:1::/64"), (56, "2001:db8:1::/56"), (128, "2001:db8:1::5")]
    {
        let directory = Directory::new("families-names");
        let table = format!("[nat64]\nsubscriber_length = {length}\n");
        let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
        directory.write("natgate.toml", format!("{SIDES}{pool}{table}").as_bytes());
        assert_eq!(directory.packets(&capture).len(), 1);
        let event = &directory.events("events")[0];
        assert_eq!(event["subscriber"], name);
        assert_eq!(event["internal"], "[2001:db8:1::5]:4000");
        assert!(event["external"].as_str().unwrap().starts_with("203.0.113.1:"));
        assert_eq!(event.get("realm"), None);
        let stats = directory.json("stats");
        assert_eq!(stats["packets"]["outbound"]["forwarded"], 1);
        assert_eq!(stats["bytes"]["outbound"]["forwarded"], 56);
    }
}

#[test]
fn an_expectation_names_the_host_of_nat64() {
    let request = udp6("2001:db8:1::5", "64:ff9b::198.51.100.7", b"\0\x01boot.img\0octet\0");
    let directory = Directory::new("families-expectation");
    let tables = "[[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\n\
                  [alg]\ntftp = { ports = [53] }\n";
    directory.write("natgate.toml", format!("{SIDES}{tables}").as_bytes());
    let capture = capture(&[LinkType::RAW; 2], &[packet(0, 0, request)]);
    assert_eq!(directory.packets(&capture).len(), 1);
    let events = directory.events("events");
    let made = events.iter().find(|event| event["event"] == "alg_expectation").unwrap();
    assert_eq!((&made["kind"], &made["remote"]), (&"tftp".into(), &"198.51.100.7".into()));
    assert_eq!(made["subscriber"], "2001:db8:1::/64");
    assert_eq!(made["mapping"]["internal"], "[2001:db8:1::5]:4000");
    assert_eq!(directory.json("stats")["alg_expectations"]["tftp"], 1);
}

#[test]
fn a_stateless_translator_needs_no_pool() {
    let directory = Directory::new("families-siit");
    let tables = r#"
[siit]
prefixes = ["2001:db8:100::/40"]
[[siit.map]]
ipv6 = "2001:db8:3::/120"
ipv4 = "1.0.0.0/24"
"#;
    directory.write("natgate.toml", format!("{SIDES}{tables}").as_bytes());
    let answer = udp6("2001:db8:3::5", "2001:db8:1c6:3364:7::", b"answer");
    let sent = directory.packets(&capture(&[LinkType::RAW; 2], &[packet(0, 0, answer)]));
    let [out] = &sent[..] else { panic!("{} packets left", sent.len()) };
    let header = Ipv4::new_checked(&out.frame[..]).unwrap();
    assert_eq!(out.interface, 1);
    assert_eq!(Ipv4Addr::from_bits(header.source()), Ipv4Addr::new(1, 0, 0, 5));
    assert_eq!(Ipv4Addr::from_bits(header.destination()), Ipv4Addr::new(198, 51, 100, 7));
    assert_eq!((header.ttl(), checksum(&out.frame[..20])), (63, 0));
}

#[test]
fn a_gateway_without_a_word_about_ipv6_takes_none() {
    let directory = Directory::new("families-none");
    let routed = udp6("2001:db8:1::5", "2001:db8:9::9", b"hello");
    let capture = capture(&[LinkType::RAW; 2], &[packet(0, 0, routed)]);
    assert_eq!(directory.packets(&capture).len(), 0);
    directory.write("natgate.toml", format!("{CONFIG}\n[ipv6]\n").as_bytes());
    assert_eq!(directory.packets(&capture).len(), 1);
}

#[test]
fn a_static_mapping_of_an_ipv6_host_is_there_from_the_start() {
    let directory = Directory::new("families-static");
    let tables = "[[static]]\ninternal = \"[2001:db8:1::5]:4000\"\n\
                  external = \"203.0.113.1:53\"\nprotocol = \"udp\"\n\
                  [nat64]\n[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    directory.write("natgate.toml", format!("{SIDES}{tables}").as_bytes());
    let (remote, external) = (Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(203, 0, 113, 1));
    let question = udp((remote, 53), (external, 53), b"question");
    let answer = udp6("2001:db8:1::5", "64:ff9b::198.51.100.7", b"answer");
    // The host has been silent for days before the first packet.
    let days = 3 * 86_400;
    let sent = directory.packets(&capture(
        &[LinkType::RAW; 2],
        &[packet(1, days, question), packet(0, days + 1, answer)],
    ));
    let [came, left] = &sent[..] else { panic!("{} packets left", sent.len()) };
    let header = Ipv6::new_checked(&came.frame[..]).unwrap();
    assert_eq!(Ipv6Addr::from_bits(header.destination()).to_string(), "2001:db8:1::5");
    let header = Ipv4::new_checked(&left.frame[..]).unwrap();
    assert_eq!(Ipv4Addr::from_bits(header.source()), external);
    assert_eq!(left.frame[20..22], [0, 53]);
}
