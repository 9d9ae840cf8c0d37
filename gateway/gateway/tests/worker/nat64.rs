//! Hosts of IPv6 that request mappings of NAT64, in simulated time.

use crate::world::*;
use natgate_engine::{DropReason, Prefix, Side};
use natgate_gateway::ipv6::{
    Nat64Settings, NonGlobal, Pref64, Prefix6, Settings as Ipv6Settings, Side6,
};
use natgate_gateway::{
    AlgKind, PCP_PORT, PcpSettings, Settings, StaticNeighbor6, write_datagram_ipv6,
};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::TCP;
use natgate_wire::{Ipv6, Udp, checksum};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const OWN: &str = "2001:db8:1::1";
const HOSTS: [&str; 3] = ["2001:db8:1::5", "2001:db8:1::6", "2001:db8:2::7"];
/// The remote host, by each of two prefixes.
const REMOTES: [&str; 2] = ["64:ff9b::c000:209", "2001:db8:64::c000:209"];

fn ipv6(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

fn prefix(text: &str, len: u8) -> Prefix6 {
    Prefix6 { address: ipv6(text), len }
}

pub(crate) fn settings_with_pcp() -> Settings {
    let mut settings = settings();
    settings.pcp = PcpSettings { enabled: true, announce: false, ..PcpSettings::default() };
    settings.engine.limits.explicit_mappings = 1000;
    settings.ipv6 = ipv6_settings();
    let neighbors = ["2001:db8:1::5", "2001:db8:1::6", "2001:db8:1::ffff", "fe80::5"];
    let neighbor = |address| StaticNeighbor6 { side: Side::Inside, address, mac: HOST };
    settings.router6.neighbors.extend(neighbors.map(|text| neighbor(ipv6(text))));
    settings
}

/// Settings with NAT64.
pub(crate) fn ipv6_settings() -> Ipv6Settings {
    Ipv6Settings {
        configured: true,
        inside: Side6 {
            address: Some((ipv6(OWN), 64)),
            gateway: Some(ipv6("2001:db8:1::ffff")),
            ..Side6::default()
        },
        nat64: Some(Nat64Settings {
            prefixes: [prefix("64:ff9b::", 96), prefix("2001:db8:64::", 96)]
                .map(|prefix| Pref64::new(prefix).unwrap())
                .to_vec(),
            subscribers: vec![prefix("2001:db8::", 32)],
            subscriber_length: 64,
            non_global: NonGlobal::Refuse,
            static_hosts: Vec::new(),
        }),
        ..Ipv6Settings::default()
    }
}

fn world() -> World {
    World::with_addresses(&settings_with_pcp())
}

pub(crate) fn frame(packet: &[u8]) -> Vec<u8> {
    let mut header = [0; ETHERNET_LEN];
    arp::write_ethernet(&mut header, INSIDE, HOST, ethertype::IPV6);
    [&header, packet].concat()
}

pub(crate) fn datagram(from: (&str, u16), to: (&str, u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 48 + payload.len()];
    write_datagram_ipv6(((ipv6(from.0), from.1), (ipv6(to.0), to.1)), 64, payload, &mut packet);
    packet
}

/// IPv6 packets that have left inside, except for those of Neighbor Discovery.
fn left_inside(world: &mut World) -> Vec<Vec<u8>> {
    world.turn();
    let frames = std::iter::from_fn(|| world.inside.take());
    let ours = frames.filter(|frame| frame[12..14] == ethertype::IPV6.to_be_bytes());
    ours.map(|frame| frame[ETHERNET_LEN..].to_vec()).filter(|packet| packet[6] == 17).collect()
}

/// Sends a request from a host to an address of the gateway; returns the answers.
fn asks_at(world: &mut World, host: &str, own: &str, request: &[u8]) -> Vec<Vec<u8>> {
    world.inside.send(&frame(&datagram((host, 40_000), (own, PCP_PORT), request)));
    world.turn();
    let answers = left_inside(world);
    let check = |packet: Vec<u8>| {
        let header = Ipv6::new_checked(&packet[..]).unwrap();
        assert_eq!(header.source(), ipv6(own).to_bits());
        assert_eq!(header.destination(), ipv6(host).to_bits());
        let udp = Udp::new_checked(header.payload()).unwrap();
        assert_eq!((udp.source_port(), udp.destination_port()), (PCP_PORT, 40_000));
        packet[48..].to_vec()
    };
    answers.into_iter().map(check).collect()
}

fn ask(world: &mut World, host: &str, request: &[u8]) -> Vec<u8> {
    let mut answers = asks_at(world, host, OWN, request);
    assert_eq!(answers.len(), 1, "one answer to {request:02x?}");
    answers.remove(0)
}

fn request(host: &str, opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, opcode, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(ipv6(host).octets());
    bytes
}

fn map(host: &str, port: u16, external: (Ipv4Addr, u16), lifetime: u32) -> Vec<u8> {
    let mut bytes = request(host, 1, lifetime);
    bytes.extend([9; 12]);
    bytes.extend([17, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend(external.1.to_be_bytes());
    bytes.extend(external.0.to_ipv6_mapped().octets());
    bytes
}

fn any() -> (Ipv4Addr, u16) {
    (Ipv4Addr::UNSPECIFIED, 0)
}

fn peer(host: &str, port: u16, remote: (&str, u16), lifetime: u32) -> Vec<u8> {
    let mut bytes = map(host, port, any(), lifetime);
    bytes[1] = 2;
    bytes.extend(remote.1.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(ipv6(remote.0).octets());
    bytes
}

fn filter(remote: &str, len: u8) -> Vec<u8> {
    [&[3, 0, 0, 20, 0, len, 0, 0][..], &ipv6(remote).octets()].concat()
}

/// External port and lifetime in an answer that says success.
fn granted(answer: &[u8]) -> (u16, u32) {
    assert_eq!((answer[0], answer[1] & 0x80, answer[3]), (2, 0x80, 0), "{answer:02x?}");
    assert_eq!(answer[44..60], EXTERNAL.to_ipv6_mapped().octets());
    let port = u16::from_be_bytes([answer[42], answer[43]]);
    (port, u32::from_be_bytes([answer[4], answer[5], answer[6], answer[7]]))
}

/// Has a remote host send to an external port. Returns the IPv6 packets that come in.
fn knock(world: &mut World, from: (Ipv4Addr, u16), port: u16) -> Vec<Vec<u8>> {
    world.outside.send(&to_outside(&udp(from, (EXTERNAL, port), b"knock")));
    left_inside(world)
}

/// Source of the only packet, which is for an endpoint.
fn came_from(packets: &[Vec<u8>], to: (&str, u16)) -> String {
    let [packet] = packets else { panic!("{} packets", packets.len()) };
    let header = Ipv6::new_checked(&packet[..]).unwrap();
    let udp = Udp::new_checked(header.payload()).unwrap();
    assert_eq!((header.destination(), udp.destination_port()), (ipv6(to.0).to_bits(), to.1));
    Ipv6Addr::from_bits(header.source()).to_string()
}

/// Number of hosts that have numbers.
fn hosts(world: &mut World) -> usize {
    let now = world.now;
    let status = world.worker.status(now);
    status.ipv6.unwrap().translator.hosts(natgate_ipv6::HostKind::Nat64).unwrap().counts().0
}

#[test]
fn a_mapping_lets_ipv4_hosts_in() {
    let mut world = world();
    let answer = ask(&mut world, HOSTS[0], &map(HOSTS[0], 7000, any(), 3600));
    let (port, lifetime) = granted(&answer);
    assert_eq!((lifetime, &answer[40..42]), (3600, &7000_u16.to_be_bytes()[..]));
    let came = knock(&mut world, (REMOTE, 99), port);
    assert_eq!(came_from(&came, (HOSTS[0], 7000)), REMOTES[0]);
    // The host's own packets use the mapping, too.
    world.inside.send(&frame(&datagram((HOSTS[0], 7000), (REMOTES[0], 53), b"out")));
    let out = world.next_outside();
    assert_eq!(Udp::new_checked(view(&out).payload()).unwrap().source_port(), port);
    // A renewal gets the same endpoint, and a deletion ends it.
    let again = ask(&mut world, HOSTS[0], &map(HOSTS[0], 7000, any(), 3600));
    assert_eq!(granted(&again), (port, 3600));
    let mut other = map(HOSTS[0], 7000, any(), 3600);
    other[24] ^= 1;
    assert_eq!(ask(&mut world, HOSTS[0], &other)[3], 2, "another nonce");
}

#[test]
fn a_host_with_a_mapping_keeps_its_place_without_packets() {
    let mut world = world();
    let (port, _) = granted(&ask(&mut world, HOSTS[0], &map(HOSTS[0], 7000, any(), 3600)));
    for _ in 0..1800 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(hosts(&mut world), 1);
    assert_eq!(knock(&mut world, (REMOTE, 99), port).len(), 1);
    let gone = ask(&mut world, HOSTS[0], &map(HOSTS[0], 7000, any(), 0));
    assert_eq!((gone[3], &gone[4..8]), (0, &[0, 0, 1, 44][..]), "the session goes on");
    for _ in 0..600 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(hosts(&mut world), 0);
    assert!(knock(&mut world, (REMOTE, 99), port).is_empty());
}

#[test]
fn requests_that_lead_to_nothing_leave_no_host() {
    let mut world = world();
    let elsewhere = map(HOSTS[0], 7000, (Ipv4Addr::new(203, 0, 113, 77), 7000), 600);
    let answer = ask(&mut world, HOSTS[0], &[elsewhere, vec![2, 0, 0, 0]].concat());
    assert_eq!(answer[3], 11, "CANNOT_PROVIDE_EXTERNAL");
    let answer = ask(&mut world, HOSTS[0], &map(HOSTS[0], 7000, any(), 0));
    assert_eq!((answer[3], &answer[4..8]), (0, &[0; 4][..]), "what is not there is deleted");
    let answer = ask(&mut world, HOSTS[0], &peer(HOSTS[0], 7000, (REMOTES[0], 53), 0));
    assert_eq!(answer[3], 2, "there is no session");
    let other = peer(HOSTS[0], 7000, ("2001:db8:9::9", 53), 600);
    assert_eq!(ask(&mut world, HOSTS[0], &other)[3], 3, "a remote that NAT64 does not reach");
    let private = peer(HOSTS[0], 7000, ("64:ff9b::10.0.0.9", 53), 600);
    assert_eq!(ask(&mut world, HOSTS[0], &private)[3], 3, "not a global address");
    world.turn();
    assert_eq!(hosts(&mut world), 0);
}

#[test]
fn a_refused_request_takes_no_number_from_the_next_one() {
    let mut world = world();
    let elsewhere = map(HOSTS[0], 7000, (Ipv4Addr::new(203, 0, 113, 77), 7000), 600);
    let elsewhere = [elsewhere, vec![2, 0, 0, 0]].concat();
    // Both requests are served in one turn.
    for request in [elsewhere, map(HOSTS[0], 7000, any(), 3600)] {
        world.inside.send(&frame(&datagram((HOSTS[0], 40_000), (OWN, PCP_PORT), &request)));
    }
    world.turn();
    let answers = left_inside(&mut world);
    let [refused, granted_one] = &answers[..] else { panic!("{} answers", answers.len()) };
    assert_eq!(refused[48 + 3], 11, "CANNOT_PROVIDE_EXTERNAL");
    let (port, _) = granted(&granted_one[48..]);
    for _ in 0..5 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(hosts(&mut world), 1);
    let came = knock(&mut world, (REMOTE, 99), port);
    assert_eq!(came_from(&came, (HOSTS[0], 7000)), REMOTES[0]);
}

#[test]
fn only_subscribers_get_mappings() {
    let mut settings = settings_with_pcp();
    settings.ipv6.nat64.as_mut().unwrap().subscribers = vec![prefix("2001:db8:1::", 48)];
    let mut world = World::with_addresses(&settings);
    let answer = ask(&mut world, HOSTS[2], &map(HOSTS[2], 7000, any(), 600));
    assert_eq!(answer[3], 2, "NOT_AUTHORIZED");
    assert_eq!(ask(&mut world, HOSTS[2], &map(HOSTS[2], 7000, any(), 0))[3], 2);
    let mut mismatch = map(HOSTS[0], 7000, any(), 600);
    mismatch[23] ^= 1;
    assert_eq!(ask(&mut world, HOSTS[0], &mismatch)[3], 12, "ADDRESS_MISMATCH");
    assert_eq!(hosts(&mut world), 0);
}

#[test]
fn quotas_are_those_of_the_prefix() {
    let mut settings = settings_with_pcp();
    settings.engine.limits.explicit_per_subscriber = 2;
    let mut world = World::with_addresses(&settings);
    for (number, host) in [HOSTS[0], HOSTS[1]].into_iter().enumerate() {
        granted(&ask(&mut world, host, &map(host, 7000 + number as u16, any(), 600)));
    }
    let answer = ask(&mut world, HOSTS[1], &map(HOSTS[1], 7005, any(), 600));
    assert_eq!(answer[3], 10, "USER_EX_QUOTA");
    granted(&ask(&mut world, HOSTS[2], &map(HOSTS[2], 7000, any(), 600)));
}

#[test]
fn a_host_whose_number_is_an_external_address_gets_mappings() {
    let mut settings = settings_with_pcp();
    let first = Ipv4Addr::new(1, 0, 0, 0);
    settings.engine.pools[0].addresses = vec![natgate_engine::AddressRange { first, last: first }];
    let mut world = World::with_addresses(&settings);
    let answer = ask(&mut world, HOSTS[0], &map(HOSTS[0], 7000, any(), 600));
    assert_eq!((answer[3], &answer[44..60]), (0, &first.to_ipv6_mapped().octets()[..]));
}

#[test]
fn filters_name_remote_hosts_in_either_family() {
    let (other, port) = (Ipv4Addr::new(192, 0, 2, 10), 7000);
    for (remote, len) in [(REMOTES[0], 128), (REMOTES[1], 128), ("::ffff:192.0.2.9", 128)] {
        let mut world = world();
        let request = [map(HOSTS[0], port, any(), 600), filter(remote, len)].concat();
        let (external, _) = granted(&ask(&mut world, HOSTS[0], &request));
        assert!(knock(&mut world, (other, 99), external).is_empty(), "{remote}");
        assert_eq!(knock(&mut world, (REMOTE, 99), external).len(), 1, "{remote}");
    }
    let mut world = world();
    let request = [map(HOSTS[0], port, any(), 600), filter(REMOTES[0], 120)].concat();
    let (external, _) = granted(&ask(&mut world, HOSTS[0], &request));
    assert_eq!(knock(&mut world, (other, 99), external).len(), 1);
    let request = [map(HOSTS[0], 7001, any(), 600), filter("2001:db8:9::9", 128)].concat();
    assert_eq!(ask(&mut world, HOSTS[0], &request)[3], 6, "MALFORMED_OPTION");
}

#[test]
fn a_session_towards_a_remote_host_has_its_prefix() {
    let mut settings = settings_with_pcp();
    settings.engine.filtering = natgate_engine::Behavior::AddressAndPortDependent;
    for remote in REMOTES {
        let mut world = World::with_addresses(&settings);
        let request = peer(HOSTS[0], 7000, (remote, 53), 600);
        let answer = ask(&mut world, HOSTS[0], &request);
        let (port, lifetime) = granted(&answer);
        assert_eq!((lifetime, &answer[64..80]), (600, &ipv6(remote).octets()[..]));
        assert!(knock(&mut world, (REMOTE, 54), port).is_empty());
        let came = knock(&mut world, (REMOTE, 53), port);
        assert_eq!(came_from(&came, (HOSTS[0], 7000)), remote);
    }
}

//= test rfc6887#section-13.1-permitted
#[test]
fn trusted_hosts_speak_for_others() {
    let mut settings = settings_with_pcp();
    settings.pcp.third_party = vec![Prefix::new(SUBSCRIBER, 32)];
    settings.pcp.third_party_ipv6 = vec![Prefix6 { address: ipv6(HOSTS[0]), len: 128 }];
    let mut world = World::with_addresses(&settings);
    let third = |host: &str| [&[1, 0, 0, 16][..], &ipv6(host).octets()].concat();
    let request = [map(HOSTS[0], 7000, any(), 600), third(HOSTS[2])].concat();
    let (port, _) = granted(&ask(&mut world, HOSTS[0], &request));
    let came = knock(&mut world, (REMOTE, 99), port);
    assert_eq!(came_from(&came, (HOSTS[2], 7000)), REMOTES[0]);
    let request = [map(HOSTS[1], 7001, any(), 600), third(HOSTS[2])].concat();
    assert_eq!(ask(&mut world, HOSTS[1], &request)[3], 5, "UNSUPP_OPTION");
    for stranger in [OWN, "fe80::9", "ff02::1", "64:ff9b::192.0.2.1", "::1"] {
        let request = [map(HOSTS[0], 7001, any(), 600), third(stranger)].concat();
        assert_eq!(ask(&mut world, HOSTS[0], &request)[3], 2, "{stranger}");
    }
}

//= test rfc7225#section-4.2-announce
//= test rfc6887#section-14.1.3-inform
//= test rfc6887#section-14.1.3-source
#[test]
fn all_hosts_are_told_of_a_start_and_of_the_prefixes() {
    let mut settings = settings_with_pcp();
    settings.pcp.announce = true;
    let mut world = World::with(&settings);
    let mut sources = Vec::new();
    for _ in 0..100 {
        world.pass(Duration::from_millis(100));
        for packet in left_inside(&mut world) {
            let header = Ipv6::new_checked(&packet[..]).unwrap();
            assert_eq!(header.destination(), ipv6("ff02::1").to_bits());
            assert_eq!((header.hop_limit(), packet[40..44].to_vec()), (1, vec![20, 231, 20, 230]));
            let told = &packet[48..];
            assert_eq!((told[..4].to_vec(), told.len()), (vec![2, 0x80, 0, 0], 24 + 40));
            assert_eq!(told[24..30], [129, 0, 0, 14, 0, 12]);
            sources.push(Ipv6Addr::from_bits(header.source()));
        }
    }
    assert!(sources.contains(&ipv6(OWN)), "{sources:?}");
    assert!(sources.iter().any(Ipv6Addr::is_unicast_link_local), "{sources:?}");
}

#[test]
fn the_default_router_is_asked_by_its_link_local_address() {
    let mut world = world();
    let now = world.now;
    let status = world.worker.status(now).ipv6.unwrap();
    let own = status.sides[0].addresses.iter().find(|one| one.0.is_unicast_link_local()).unwrap();
    let own = own.0.to_string();
    let answers = asks_at(&mut world, HOSTS[0], &own, &map(HOSTS[0], 7000, any(), 600));
    granted(&answers[0]);
    let announce = request("fe80::5", 0, 0);
    assert_eq!(asks_at(&mut world, "fe80::5", &own, &announce)[0][..4], [2, 0x80, 0, 0]);
    // A link-local address reaches no IPv4 host.
    let answers = asks_at(&mut world, "fe80::5", &own, &map("fe80::5", 7000, any(), 600));
    assert_eq!(answers[0][3], 2, "NOT_AUTHORIZED");
    assert!(asks_at(&mut world, "ff02::5", &own, &announce).is_empty());
}

#[test]
fn other_packets_to_the_gateway_get_no_answer() {
    let mut world = world();
    let whole = datagram((HOSTS[0], 4000), (OWN, PCP_PORT), &map(HOSTS[0], 7000, any(), 600));
    let mut wrong = whole.clone();
    wrong[46] ^= 1;
    let no_checksum = {
        let mut packet = whole.clone();
        packet[46..48].fill(0);
        packet
    };
    let other_port = datagram((HOSTS[0], 4000), (OWN, 5352), b"hello");
    let short = whole[..whole.len() - 4].to_vec();
    for packet in [wrong, no_checksum, other_port] {
        world.inside.send(&frame(&packet));
        assert!(left_inside(&mut world).is_empty());
    }
    assert_eq!(world.drops(DropReason::LocalUnsupported), 3);
    world.inside.send(&frame(&short));
    world.outside.send(&{
        let mut header = [0; ETHERNET_LEN];
        arp::write_ethernet(&mut header, OUTSIDE, SERVER, ethertype::IPV6);
        [&header[..], &whole].concat()
    });
    assert!(left_inside(&mut world).is_empty());
    assert_eq!(hosts(&mut world), 0);
}

/// A segment of TCP between two endpoints of IPv6: numbers, flags and data.
fn segment(
    from: (&str, u16),
    to: (&str, u16),
    numbers: (u32, u32),
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let mut tcp = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    tcp.extend([numbers.0.to_be_bytes(), numbers.1.to_be_bytes()].concat());
    tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(data);
    let ends = (ipv6(from.0).to_bits(), ipv6(to.0).to_bits());
    let start = checksum::pseudo_header_v6(ends.0, ends.1, TCP, tcp.len() as u32);
    let sum = !checksum::fold(checksum::sum(&tcp, start));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0; 40];
    let mut header = Ipv6::init(&mut packet[..]);
    header.set_payload_len(tcp.len() as u16);
    header.set_next_header(TCP);
    header.set_hop_limit(64);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    [packet, tcp].concat()
}

/// Data of a segment of IPv4 or IPv6.
fn data(packet: &[u8]) -> &[u8] {
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    &packet[header + usize::from(packet[header + 12] >> 4) * 4..]
}

#[test]
fn commands_of_ftp_are_translated_also_in_parts() {
    let mut settings = settings_with_pcp();
    settings.alg.set(AlgKind::Ftp, vec![21]);
    let mut world = World::with_addresses(&settings);
    let (host, server) = ((HOSTS[0], 4000), (REMOTES[0], 21));
    let to_host = |world: &mut World| -> Vec<Vec<u8>> {
        world.turn();
        let frames = std::iter::from_fn(|| world.inside.take());
        let packets = frames.map(|frame| frame[ETHERNET_LEN..].to_vec());
        packets.filter(|packet| packet[0] >> 4 == 6 && packet[6] == TCP).collect()
    };
    let says = |world: &mut World, sequence: u32, acknowledgment: u32, text: &[u8]| {
        let numbers = (sequence, acknowledgment);
        world.inside.send(&frame(&segment(host, server, numbers, 0x18, text)));
    };
    world.inside.send(&frame(&segment(host, server, (1000, 0), 2, b"")));
    let out = world.next_outside();
    let port = u16::from_be_bytes([out[20], out[21]]);
    let answer = |numbers: (u32, u32), flags: u8, text: &[u8]| {
        let mut tcp = [21_u16.to_be_bytes(), port.to_be_bytes()].concat();
        tcp.extend([numbers.0.to_be_bytes(), numbers.1.to_be_bytes()].concat());
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(text);
        let (from, to) = (REMOTE.to_bits(), EXTERNAL.to_bits());
        let start = checksum::pseudo_header(from, to, TCP, tcp.len() as u16);
        let sum = !checksum::fold(checksum::sum(&tcp, start));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        to_outside(&ip(TCP, REMOTE, EXTERNAL, &tcp))
    };
    world.outside.send(&answer((5000, 1001), 0x12, b""));
    assert_eq!(to_host(&mut world).len(), 1);
    says(&mut world, 1001, 5001, b"");
    world.outside.send(&answer((5001, 1001), 0x18, b"220 ready\r\n"));
    assert_eq!(data(&to_host(&mut world)[0]), b"220 ready\r\n");
    while world.outside.take().is_some() {}
    // A part of a command is held and acknowledged, by IPv6.
    says(&mut world, 1001, 5012, b"EP");
    let held = to_host(&mut world);
    assert_eq!(held.len(), 1, "{held:02x?}");
    assert_eq!((data(&held[0]), &held[0][48..52]), (&b""[..], &1003_u32.to_be_bytes()[..]));
    let acknowledgment = world.next_outside();
    assert_eq!(data(&acknowledgment), b"", "no part of the command leaves");
    says(&mut world, 1003, 5012, b"SV\r\n");
    assert_eq!(data(&world.next_outside()), b"PASV\r\n");
    world.outside.send(&answer((5012, 1007), 0x18, b"227 go (192,0,2,9,4,2)\r\n"));
    let told = to_host(&mut world);
    assert_eq!(data(&told[0]), b"229 Entering Extended Passive Mode (|||1026|)\r\n");
    // Active: the expectation names the host.
    says(&mut world, 1007, 5012 + 47, b"EPRT |2|2001:db8:1::5|5282|\r\n");
    let said = String::from_utf8_lossy(data(&world.next_outside())).into_owned();
    assert!(said.starts_with("PORT 203,0,113,1,"), "{said}");
    let (made, name) = world.observer.expectations[0];
    assert_eq!((made.internal.port, made.protocol), (5282, TCP));
    assert_eq!(name.and_then(|name| name.address), Some(ipv6(HOSTS[0])));
}

/// A flood of forged requests for five seconds, in other prefixes than the client's, whose quota is
/// its own. The client, which the gateway knows by Neighbor Discovery, asks 20 times meanwhile.
#[test]
fn requests_by_ipv6_are_answered_beside_a_flood_from_forged_addresses() {
    let forger = Mac([2, 6, 6, 6, 6, 6]);
    let mut settings = settings_with_pcp();
    settings.engine.limits.explicit_mappings = 50_000;
    let mut world = World::with_addresses(&settings);
    let (mut random, mut granted) = (7_u64, std::collections::HashSet::new());
    for ms in 0..5500_u64 {
        for _ in 0..if ms < 5000 { 10 } else { 0 } {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            let subnet = 2 + (random >> 48 & 0x7fff);
            let host = format!("2001:db8:{subnet:x}::{:x}", 0x1000 + (random >> 20 & 0xfff));
            let request = map(&host, 7001, any(), 600);
            let packet = datagram((&host, 40_000), (OWN, PCP_PORT), &request);
            let mut header = [0; ETHERNET_LEN];
            arp::write_ethernet(&mut header, INSIDE, forger, ethertype::IPV6);
            world.inside.send(&[&header, &packet[..]].concat());
        }
        if ms < 5000 && ms % 250 == 125 {
            let request = map(HOSTS[0], 8000 + (ms / 250) as u16, any(), 600);
            let packet = datagram((HOSTS[0], 40_000), (OWN, PCP_PORT), &request);
            world.inside.send(&frame(&packet));
        }
        world.pass(Duration::from_millis(1));
        for packet in left_inside(&mut world) {
            let header = Ipv6::new_checked(&packet[..]).unwrap();
            if header.destination() == ipv6(HOSTS[0]).to_bits() && packet[48 + 3] == 0 {
                granted.insert([packet[48 + 40], packet[48 + 41]]);
            }
        }
    }
    assert!(granted.len() >= 19, "{} of 20", granted.len());
}
