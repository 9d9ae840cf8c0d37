//! DNS of hosts behind B4s of DS-Lite: two homes with the same inner addresses and static mappings.

use super::algs_in_tunnels::*;
use super::world::*;
use natgate_engine::{Begun, Side, StaticMapping};
use natgate_gateway::ipv6::StaticHost;
use natgate_gateway::{AlgKind, Settings};
use std::net::Ipv4Addr;

/// A host of each home that asks, and one with a static mapping.
const WEB: &str = "10.0.0.80";
const BOTH: [&str; 2] = [B4, OTHER_B4];
/// The external addresses of the mapped hosts.
const WEBS: [&str; 2] = ["203.0.113.80", "203.0.113.81"];

/// The address of a mapped host behind each B4 is external, as a whole; so is port 53 of a third
/// home's host, with one external endpoint.
fn settings() -> Settings {
    let mut settings = settings_of(AlgKind::Dns);
    let hosts: Vec<StaticHost> = BOTH
        .iter()
        .zip([0, 256])
        .map(|(b4, number)| StaticHost {
            address: b4.parse().unwrap(),
            inner: Some(WEB.parse().unwrap()),
            number: Ipv4Addr::from_bits(0x0100_0000 + number),
        })
        .collect();
    let whole = |(host, external): (&StaticHost, &str)| StaticMapping {
        realm: 1,
        protocol: None,
        internal: (host.number, None),
        external: (external.parse().unwrap(), None),
        begun: Begun::Anywhere,
    };
    settings.engine.statics = hosts.iter().zip(WEBS).map(whole).collect();
    if let Some(dslite) = &mut settings.ipv6.dslite {
        dslite.static_hosts = hosts;
    }
    settings
}

/// A message with one question for A, and an answer if there is an address.
fn message(address: Option<&str>) -> Vec<u8> {
    let (flags, count) = if address.is_some() { (0x8180, 1) } else { (0x100, 0) };
    let mut bytes = [9, flags, 1, count, 0, 0].map(u16::to_be_bytes).concat();
    bytes.extend(b"\x03www\x07example\0\0\x01\0\x01");
    if let Some(address) = address {
        bytes.extend(b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04");
        bytes.extend(v4(address).to_be_bytes());
    }
    bytes
}

fn tunneled(b4: &str, inner: &str, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    raw6(v6(b4), v6(AFTR), 4, &ip4(inner, SERVER, UDP, &udp(ports.0, ports.1, data)))
}

/// A host asks a server outside. The answer names an address; what the host hears.
fn hears(settings: &Settings, b4: &str, named: &str) -> Vec<u8> {
    let question = tunneled(b4, INNER, (4000, 53), &message(None));
    let sent = one(settings, Side::Inside, &question);
    let left = single(&sent, Side::Outside);
    assert_eq!(left[28..], message(None));
    let to = ends4(left).0;
    let answer = ip4(SERVER, &to, UDP, &udp(53, port(left, 0), &message(Some(named))));
    let packets = [(Side::Inside, 1.0, question), (Side::Outside, 1.1, answer)];
    let sent = run(settings, &packets).sent.pop().unwrap();
    let came = single(&sent, Side::Inside);
    assert_eq!((ends6(came), ends4(&came[40..])), (ends(AFTR, b4), ends(SERVER, INNER)));
    check(&came[40..]);
    came[68..].to_vec()
}

/// The address of a host behind the same B4 becomes its inner one. Those of others stay.
#[test]
fn an_answer_has_inner_addresses_of_the_same_home_alone() {
    let settings = settings();
    for (b4, own, other) in [(B4, WEBS[0], WEBS[1]), (OTHER_B4, WEBS[1], WEBS[0])] {
        assert_eq!(hears(&settings, b4, own), message(Some(WEB)));
        for stays in [other, "192.0.2.9", WEB] {
            assert_eq!(hears(&settings, b4, stays), message(Some(stays)), "{b4}");
        }
    }
}

/// A server behind a B4 answers to the outside with external addresses of hosts beside it.
#[test]
fn a_server_answers_with_external_addresses_of_its_home() {
    let settings = settings();
    for (b4, own) in BOTH.into_iter().zip(WEBS) {
        let question = ip4(SERVER, own, UDP, &udp(5000, 53, &message(None)));
        let asked = one(&settings, Side::Outside, &question);
        let asked = single(&asked, Side::Inside);
        assert_eq!((ends6(asked), ends4(&asked[40..])), (ends(AFTR, b4), ends(SERVER, WEB)));
        for (named, told) in [(WEB, own), (INNER, INNER), ("192.0.2.9", "192.0.2.9")] {
            let answer = tunneled(b4, WEB, (53, 5000), &message(Some(named)));
            let packets = [(Side::Outside, 1.0, question.clone()), (Side::Inside, 1.1, answer)];
            let sent = run(&settings, &packets).sent.pop().unwrap();
            let left = single(&sent, Side::Outside);
            assert_eq!(ends4(left), ends(own, SERVER));
            assert_eq!(left[28..], message(Some(told)), "{b4} {named}");
        }
    }
}
