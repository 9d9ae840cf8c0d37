//! Softwires in a capture: equal inner addresses behind two tunnels of DS-Lite, the examples of RFC
//! 7597 and RFC 7599, and a table of bindings.

use super::bench::*;
use natgate_io::pcap::LinkType;
use natgate_wire::{Ipv4, Ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

const SIDES: &str = r#"
[inside]
device = "eth1"
address6 = "2001:db8:1::1/64"
[outside]
device = "eth0"
address = "198.51.100.254/24"
"#;

const MAP: &str = r#"
[[map]]
mode = "encapsulation"
ipv6 = "2001:db8::/40"
ipv4 = "192.0.2.0/24"
ea_length = 16
br = "2001:db8:ffff::1"
"#;

const CE: &str = "2001:db8:12:3400:0:c000:212:34";

fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 28 + len];
    bytes[20..22].copy_from_slice(&source.1.to_be_bytes());
    bytes[22..24].copy_from_slice(&destination.1.to_be_bytes());
    bytes[24..26].copy_from_slice(&(8 + len as u16).to_be_bytes());
    bytes[26..28].copy_from_slice(&[1, 2]);
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(28 + len as u16);
    header.set_ttl(64);
    header.set_protocol(17);
    header.set_source(u32::from_be_bytes(source.0));
    header.set_destination(u32::from_be_bytes(destination.0));
    header.fill_checksum();
    bytes
}

fn tunneled(source: &str, destination: &str, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes.extend(inner);
    let address = |text: &str| text.parse().map(Ipv6Addr::to_bits).unwrap();
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(inner.len() as u16);
    header.set_next_header(4);
    header.set_hop_limit(64);
    header.set_source(address(source));
    header.set_destination(address(destination));
    bytes
}

fn ends(bytes: &[u8]) -> (String, String) {
    let header = Ipv6::new_checked(bytes).unwrap();
    let show = |bits| Ipv6Addr::from_bits(bits).to_string();
    (show(header.source()), show(header.destination()))
}

#[test]
fn map_e_carries_the_examples_of_its_rfc() {
    let directory = Directory::new("softwires-map-e");
    directory.write("natgate.toml", format!("{SIDES}{MAP}").as_bytes());
    let (remote, own) = (([1, 2, 3, 4], 80), ([192, 0, 2, 18], 1232));
    let forged = udp(([192, 0, 2, 18], 1236), remote, 10);
    let sent = directory.packets(&capture(
        &[LinkType::RAW; 2],
        &[
            packet(1, 0, udp(remote, own, 10)),
            packet(0, 1, tunneled(CE, "2001:db8:ffff::1", &udp(own, remote, 10))),
            packet(0, 2, tunneled(CE, "2001:db8:ffff::1", &forged)),
        ],
    ));
    let [inbound, outbound] = &sent[..] else { panic!("{} packets left", sent.len()) };
    assert_eq!(inbound.interface, 0);
    assert_eq!(ends(&inbound.frame), ("2001:db8:ffff::1".into(), CE.into()));
    assert_eq!(outbound.interface, 1);
    let header = Ipv4::new_checked(&outbound.frame[..]).unwrap();
    assert_eq!(Ipv4Addr::from_bits(header.source()), Ipv4Addr::new(192, 0, 2, 18));
    assert_eq!((header.ttl(), header.checksum_valid()), (63, true));
    let stats = directory.json("stats");
    assert_eq!(stats["drops"]["softwire_source"], 1);
    assert_eq!(stats["packets"]["outbound"]["forwarded"], 1);
}

#[test]
fn map_t_carries_the_example_of_its_rfc() {
    let directory = Directory::new("softwires-map-t");
    let map = MAP
        .replace("encapsulation", "translation")
        .replace("br = \"2001:db8:ffff::1\"", "dmr = \"2001:db8:ffff::/64\"");
    directory.write("natgate.toml", format!("{SIDES}{map}").as_bytes());
    let inbound = udp(([10, 2, 3, 4], 80), ([192, 0, 2, 18], 1232), 10);
    let sent = directory.packets(&capture(&[LinkType::RAW; 2], &[packet(1, 0, inbound)]));
    let [one] = &sent[..] else { panic!("{} packets left", sent.len()) };
    assert_eq!(ends(&one.frame), ("2001:db8:ffff:0:a:203:400:0".into(), CE.into()));
}

#[test]
fn a_file_of_bindings_is_beside_the_configuration() {
    let directory = Directory::new("softwires-lw4o6");
    let lw4o6 = "[lw4o6]\naddress = \"2001:db8:ffff::2\"\nbindings = \"bindings.csv\"\n";
    directory.write("natgate.toml", format!("{SIDES}{lw4o6}").as_bytes());
    let bindings = "203.0.113.7,0,6,1,2001:db8:b4::1\n203.0.113.7,0,6,2,2001:db8:b4::2\n";
    directory.write("bindings.csv", bindings.as_bytes());
    let (remote, second) = (([1, 2, 3, 4], 80), ([203, 0, 113, 7], 2048));
    // A packet that is longer than the tunnel and may be cut is cut outside.
    let sent = directory.packets(&capture(
        &[LinkType::RAW; 2],
        &[
            packet(1, 0, udp(remote, second, 1460)),
            packet(1, 1, udp(remote, ([203, 0, 113, 7], 9), 1)),
        ],
    ));
    let [first, later, error] = &sent[..] else { panic!("{} packets left", sent.len()) };
    assert_eq!(ends(&first.frame), ("2001:db8:ffff::2".into(), "2001:db8:b4::2".into()));
    assert_eq!((first.frame[6], later.frame[6]), (44, 44));
    assert_eq!((error.interface, error.frame[20], error.frame[21]), (1, 3, 1));
    assert_eq!(directory.json("stats")["drops"]["no_binding"], 1);
    // What was cut comes back in fragments, and leaves whole.
    let back = udp(second, remote, 1460);
    let whole = tunneled("2001:db8:b4::2", "2001:db8:ffff::2", &back);
    let cut = natgate_gateway::ipv6::convert::Cut { limit: 1280, identification: 7 };
    let mut fragments = cut.fragments(&whole);
    let (mut packets, mut buffer) = (Vec::new(), [0; 1280]);
    while let Some(len) = fragments.write_next(&mut buffer) {
        packets.push(packet(0, packets.len() as u64, buffer[..len].to_vec()));
    }
    let sent = directory.packets(&capture(&[LinkType::RAW; 2], &packets));
    let [one] = &sent[..] else { panic!("{} packets left", sent.len()) };
    assert_eq!((one.interface, &one.frame[20..]), (1, &back[20..]));
    assert_eq!(directory.json("stats")["packets"]["outbound"]["forwarded"], 2);
}

#[test]
fn dslite_keeps_subscribers_with_equal_addresses_apart() {
    let directory = Directory::new("softwires-dslite");
    let dslite = "[dslite]\naddress = \"2001:db8:1::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let pool = "[[pool]]\naddresses = [\"203.0.113.1\"]\n";
    directory.write("natgate.toml", format!("{SIDES}{pool}{dslite}").as_bytes());
    let (remote, host) = (([1, 2, 3, 4], 53), ([192, 168, 1, 2], 5000));
    let (aftr, b4s) = ("2001:db8:1::1", ["2001:db8:b4::1", "2001:db8:b4::2"]);
    let mut asked: Vec<_> = (0..)
        .zip(b4s)
        .map(|(after, b4)| packet(0, after, tunneled(b4, aftr, &udp(host, remote, 1440))))
        .collect();
    asked.push(packet(0, 2, tunneled("2001:db8:b5::1", aftr, &udp(host, remote, 1))));
    let sent = directory.packets(&capture(&[LinkType::RAW; 2], &asked));
    assert_eq!(sent.len(), 2);
    let external = |frame: &[u8]| u16::from_be_bytes([frame[20], frame[21]]);
    assert_ne!(external(&sent[0].frame), external(&sent[1].frame));
    assert_eq!(directory.json("stats")["drops"]["softwire_source"], 1);
    let events = directory.events("events");
    let created: Vec<_> =
        events.iter().filter(|event| event["event"] == "mapping_created").collect();
    for (event, b4) in created.iter().zip(b4s) {
        assert_eq!(
            (&event["subscriber"], &event["internal"]),
            (&b4.into(), &"192.168.1.2:5000".into())
        );
    }
    assert_eq!(created.len(), 2);
    // Answers come after the packets that asked for them, with the same ports as before.
    for (after, sent) in (3..).zip(&sent) {
        let to = ([203, 0, 113, 1], external(&sent.frame));
        asked.push(packet(1, after, udp(remote, to, 1440)));
    }
    let sent = directory.packets(&capture(&[LinkType::RAW; 2], &asked));
    assert_eq!(sent.len(), 2 + 4, "each answer leaves in two fragments");
    for (pair, b4) in sent[2..].chunks(2).zip(b4s) {
        for fragment in pair {
            assert_eq!(ends(&fragment.frame), (aftr.into(), b4.into()));
            assert_eq!((fragment.interface, fragment.frame[6]), (0, 44));
        }
        let whole = [&pair[0].frame[48..], &pair[1].frame[48..]].concat();
        let header = Ipv4::new_checked(&whole[..]).unwrap();
        assert_eq!(Ipv4Addr::from_bits(header.destination()), Ipv4Addr::from(host.0));
        assert_eq!(whole[22..24], host.1.to_be_bytes());
    }
}
