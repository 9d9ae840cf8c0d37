//! Realms in a capture: VLAN tags of the inside's frames distinguish them.

use super::bench::*;
use natgate_io::pcap::LinkType;
use std::net::Ipv4Addr;

const REALMS: &str = r#"
[[realm]]
name = "homes"
vlan = 100
address = "10.0.0.1/8"
hairpin_to = ["offices"]
[[realm]]
name = "offices"
vlan = 200
address = "10.0.0.1/8"
[[static]]
realm = "offices"
internal = "10.0.0.80:53"
external = "203.0.113.1:53"
"#;

const ADDRESSES: [u8; 12] = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2];
const WEB: (Ipv4Addr, u16) = (EXTERNAL, 53);

/// A frame with a tag, or without.
fn framed(vlan: Option<u8>, packet: &[u8]) -> Vec<u8> {
    let tag = vlan.map_or(Vec::new(), |vlan| vec![0x81, 0, 0, vlan]);
    [&ADDRESSES[..], &tag, &[8, 0], packet].concat()
}

/// VLAN of a frame, and the endpoints of its packet; the addresses pass unchanged.
type TaggedEndpoints = (Option<u8>, ((Ipv4Addr, u16), (Ipv4Addr, u16)));

fn tagged_endpoints(frame: &[u8]) -> TaggedEndpoints {
    let rest = frame.strip_prefix(&ADDRESSES).expect("the addresses stay");
    match rest {
        [0x81, 0, 0, vlan, 8, 0, packet @ ..] => (Some(*vlan), endpoints(packet)),
        [8, 0, packet @ ..] => (None, endpoints(packet)),
        _ => panic!("{rest:02x?}"),
    }
}

fn directory(name: &str) -> Directory {
    let directory = Directory::new(name);
    directory.write("natgate.toml", format!("{CONFIG}{REALMS}").as_bytes());
    directory
}

#[test]
fn one_address_in_three_realms() {
    let directory = directory("realms");
    let links = [LinkType::ETHERNET; 2];
    let request = udp(SUBSCRIBER, SERVER, b"question");
    let vlans = [None, Some(100), Some(200)];
    let requests: Vec<Packet> =
        vlans.iter().map(|vlan| packet(0, 0, framed(*vlan, &request))).collect();
    let sent = directory.packets(&capture(&links, &requests));
    let externals: Vec<(Ipv4Addr, u16)> = sent
        .iter()
        .map(|packet| {
            let (vlan, (source, destination)) = tagged_endpoints(&packet.frame);
            assert_eq!((packet.interface, vlan, destination), (1, None, SERVER));
            source
        })
        .collect();
    assert!(externals[0] != externals[1] && externals[1] != externals[2]);
    let realms = ["default", "homes", "offices"];
    for (event, (realm, external)) in
        directory.events("events").iter().zip(realms.iter().zip(&externals))
    {
        let (address, port) = external;
        assert_eq!(event["realm"], *realm);
        assert_eq!(event["external"], format!("{address}:{port}"));
    }
    let answers = externals
        .iter()
        .map(|external| packet(1, 1, framed(None, &udp(SERVER, *external, b"answer"))));
    let all: Vec<Packet> = requests.into_iter().chain(answers).collect();
    let back = directory.packets(&capture(&links, &all)).split_off(3);
    for (packet, vlan) in back.iter().zip(vlans) {
        assert_eq!(packet.interface, 0);
        assert_eq!(tagged_endpoints(&packet.frame), (vlan, (SERVER, SUBSCRIBER)));
    }
}

#[test]
fn hairpin_gets_the_tag_of_the_realm_that_it_goes_to() {
    let directory = directory("realms-hairpin");
    let links = [LinkType::ETHERNET; 2];
    let to_web = udp(SUBSCRIBER, WEB, b"question");
    let internal = (Ipv4Addr::new(10, 0, 0, 80), 53);
    let from_homes = packet(0, 0, framed(Some(100), &to_web));
    let found = directory.packets(&capture(&links, std::slice::from_ref(&from_homes)));
    let (vlan, (source, destination)) = tagged_endpoints(&found[0].frame);
    assert_eq!((found[0].interface, vlan, destination), (0, Some(200), internal));
    let answer = packet(0, 1, framed(Some(200), &udp(internal, source, b"answer")));
    let found = directory.packets(&capture(&links, &[from_homes, answer]));
    assert_eq!(tagged_endpoints(&found[1].frame), (Some(100), (WEB, SUBSCRIBER)));
    // The untagged network is not permitted.
    let found = directory.packets(&capture(&links, &[packet(0, 0, framed(None, &to_web))]));
    assert_eq!(found.len(), 0);
    assert_eq!(directory.json("stats")["drops"]["other_realm"], 1);
}

#[test]
fn an_unknown_vlan_is_dropped_and_counted() {
    let directory = directory("realms-unknown");
    let request = udp(SUBSCRIBER, SERVER, b"question");
    let frame = packet(0, 0, framed(Some(7), &request));
    let found = directory.packets(&capture(&[LinkType::ETHERNET; 2], &[frame]));
    assert_eq!(found.len(), 0);
    let stats = directory.json("stats");
    assert_eq!(stats["drops"]["unknown_realm"], 1);
    assert_eq!(stats["packets"]["outbound"]["dropped"], 1);
}

#[test]
fn without_ethernet_there_is_one_realm() {
    let directory = directory("realms-raw");
    let found = directory.packets(&raw(&[packet(0, 0, udp(SUBSCRIBER, SERVER, b"question"))]));
    assert_eq!(found.len(), 1);
    assert_eq!(directory.events("events")[0]["realm"], "default");
}
