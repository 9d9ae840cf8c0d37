//! Hosts behind B4s that request mappings in their tunnels, in simulated time.

use crate::pptp::{ACK, SYN, tcp};
use crate::tunnels::{B4S, INNER, entered, ipv6, only, tunnel_settings, tunneled};
use crate::world::*;
use natgate_engine::{Direction, DropReason, Outcome, Prefix};
use natgate_gateway::ipv6::Prefix6;
use natgate_gateway::{PCP_PORT, PcpSettings, Settings, write_datagram};
use natgate_wire::Udp;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The gateway's address in every tunnel.
const AFTR: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
/// Another host behind a B4.
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 3);
/// The B4 itself, in its tunnel.
const B4_ITSELF: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

fn settings_with_pcp() -> Settings {
    let mut settings = tunnel_settings();
    settings.pcp = PcpSettings { enabled: true, announce: false, ..PcpSettings::default() };
    settings.engine.limits.explicit_mappings = 1000;
    settings
}

fn world() -> World {
    World::with_addresses(&settings_with_pcp())
}

fn send(world: &mut World, (b4, host): (&str, Ipv4Addr), request: &[u8]) {
    let mut packet = vec![0; 28 + request.len()];
    write_datagram(((host, 40_000), (AFTR, PCP_PORT)), 64, request, &mut packet);
    assert!(world.inside.send(&tunneled(b4, &packet)));
    world.turn();
}

/// Sends a request; returns the answer.
fn ask(world: &mut World, (b4, host): (&str, Ipv4Addr), request: &[u8]) -> Vec<u8> {
    send(world, (b4, host), request);
    let (to, inner) = only(world);
    let header = view(&inner);
    assert_eq!(to, b4);
    assert_eq!((header.source(), header.destination()), (AFTR.to_bits(), host.to_bits()));
    assert!(udp_valid(&inner));
    let udp = Udp::new_checked(header.payload()).expect("a datagram");
    assert_eq!((udp.source_port(), udp.destination_port()), (PCP_PORT, 40_000));
    inner[28..].to_vec()
}

fn request(host: Ipv4Addr, opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut bytes = vec![2, opcode, 0, 0];
    bytes.extend(lifetime.to_be_bytes());
    bytes.extend(host.to_ipv6_mapped().octets());
    bytes
}

fn map(host: Ipv4Addr, port: u16, external: (Ipv4Addr, u16), lifetime: u32) -> Vec<u8> {
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

fn third_party(host: Ipv4Addr) -> Vec<u8> {
    [&[1, 0, 0, 16][..], &host.to_ipv6_mapped().octets()].concat()
}

/// External port and lifetime in an answer that says success.
fn granted(answer: &[u8]) -> (u16, u32) {
    assert_eq!((answer[0], answer[1] & 0x80, answer[3]), (2, 0x80, 0), "{answer:02x?}");
    assert_eq!(answer[44..60], EXTERNAL.to_ipv6_mapped().octets());
    let port = u16::from_be_bytes([answer[42], answer[43]]);
    (port, u32::from_be_bytes([answer[4], answer[5], answer[6], answer[7]]))
}

/// Has a remote host send to an external port. Returns the B4 and the inner endpoint that get it.
fn knock(world: &mut World, from: (Ipv4Addr, u16), port: u16) -> Option<(String, Ipv4Addr, u16)> {
    world.outside.send(&to_outside(&udp(from, (EXTERNAL, port), b"knock")));
    world.turn();
    let packets = entered(world);
    let [packet] = &packets[..] else { return None };
    let to = std::net::Ipv6Addr::from_bits(u128::from_be_bytes(packet[24..40].try_into().unwrap()));
    let inner = view(&packet[40..]);
    let udp = Udp::new_checked(inner.payload()).expect("a datagram");
    let host = Ipv4Addr::from_bits(inner.destination());
    Some((to.to_string(), host, udp.destination_port()))
}

fn to(b4: &str, host: Ipv4Addr, port: u16) -> Option<(String, Ipv4Addr, u16)> {
    Some((b4.to_string(), host, port))
}

/// Number of hosts that have numbers.
fn hosts(world: &mut World) -> usize {
    let now = world.now;
    let status = world.worker.status(now);
    status.ipv6.unwrap().translator.hosts(natgate_ipv6::HostKind::Dslite).unwrap().counts().0
}

/// Has a host behind a B4 send to a remote host, which answers: the B4 is no forged one.
fn have_answered(world: &mut World, b4: &str) {
    world.inside.send(&tunneled(b4, &udp((OTHER, 4999), (REMOTE, 53), b"out")));
    let out = world.next_outside();
    let port = Udp::new_checked(view(&out).payload()).expect("a datagram").source_port();
    assert_eq!(knock(world, (REMOTE, 53), port), to(b4, OTHER, 4999));
}

#[test]
fn equal_inner_hosts_of_two_b4s_have_their_own_mappings() {
    let mut world = world();
    B4S.iter().for_each(|b4| have_answered(&mut world, b4));
    let request = map(INNER, 7000, any(), 3600);
    let ports = B4S.map(|b4| granted(&ask(&mut world, (b4, INNER), &request)).0);
    assert_ne!(ports[0], ports[1]);
    for (b4, port) in B4S.into_iter().zip(ports) {
        assert_eq!(knock(&mut world, (REMOTE, 99), port), to(b4, INNER, 7000));
        // A renewal gets the same endpoint, and the host's own packets use it.
        assert_eq!(granted(&ask(&mut world, (b4, INNER), &request)), (port, 3600));
        world.inside.send(&tunneled(b4, &udp((INNER, 7000), (REMOTE, 53), b"out")));
        let out = world.next_outside();
        assert_eq!(Udp::new_checked(view(&out).payload()).unwrap().source_port(), port);
    }
    assert_eq!(world.packets(Direction::Local, Outcome::Dropped), 0);
    let mut other = map(INNER, 7000, any(), 0);
    other[24] ^= 1;
    assert_eq!(ask(&mut world, (B4S[0], INNER), &other)[3], 2, "another nonce");
    // What one B4 deletes is its own.
    let ended = ask(&mut world, (B4S[0], INNER), &map(INNER, 7000, any(), 0));
    assert_eq!(ended[3], 0);
    assert_eq!(knock(&mut world, (REMOTE, 77), ports[1]), to(B4S[1], INNER, 7000));
}

#[test]
fn a_mapping_keeps_its_host_until_it_ends() {
    let mut world = world();
    have_answered(&mut world, B4S[0]);
    let (port, _) = granted(&ask(&mut world, (B4S[0], INNER), &map(INNER, 7000, any(), 600)));
    for _ in 0..500 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!((hosts(&mut world), knock(&mut world, (REMOTE, 9), port).is_some()), (1, true));
    for _ in 0..900 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!((hosts(&mut world), knock(&mut world, (REMOTE, 9), port)), (0, None));
}

#[test]
fn requests_that_lead_to_nothing_leave_no_host() {
    let mut world = world();
    let elsewhere = map(INNER, 7000, (Ipv4Addr::new(203, 0, 113, 77), 7000), 600);
    let answer = ask(&mut world, (B4S[0], INNER), &[elsewhere, vec![2, 0, 0, 0]].concat());
    assert_eq!(answer[3], 11, "CANNOT_PROVIDE_EXTERNAL");
    let answer = ask(&mut world, (B4S[0], INNER), &map(INNER, 7000, any(), 0));
    assert_eq!((answer[3], &answer[4..8]), (0, &[0; 4][..]), "what is not there is deleted");
    // ANNOUNCE is about no host.
    assert_eq!(ask(&mut world, (B4S[0], INNER), &request(INNER, 0, 0))[3], 0);
    // A version that is not known.
    let mut version = request(INNER, 1, 0);
    version[0] = 9;
    assert_eq!(ask(&mut world, (B4S[0], INNER), &version)[3], 1, "UNSUPP_VERSION");
    world.turn();
    assert_eq!(hosts(&mut world), 0);
}

#[test]
fn forged_requests_are_refused_and_counted() {
    let mut world = world();
    let request = map(INNER, 7000, any(), 600);
    send(&mut world, ("2001:db8:b5::1", INNER), &request);
    assert!(entered(&mut world).is_empty());
    assert_eq!(world.drops(DropReason::SoftwireSource), 1);
    // An inner source that is not permitted.
    let public = Ipv4Addr::new(198, 51, 100, 9);
    send(&mut world, (B4S[0], public), &map(public, 7000, any(), 600));
    assert!(entered(&mut world).is_empty());
    assert_eq!(world.drops(DropReason::NotSubscriber), 1);
    // The gateway's own address, and the others of its network that no B4 has.
    for last in [0, 1, 7] {
        let no_host = Ipv4Addr::new(192, 0, 0, last);
        send(&mut world, (B4S[0], no_host), &map(no_host, 7000, any(), 600));
        assert!(entered(&mut world).is_empty());
    }
    assert_eq!(world.drops(DropReason::NotSubscriber), 4);
    // A host that names another one.
    let mismatch = map(OTHER, 7000, any(), 600);
    assert_eq!(ask(&mut world, (B4S[0], INNER), &mismatch)[3], 12, "ADDRESS_MISMATCH");
    assert_eq!((hosts(&mut world), world.observer.events.len()), (0, 0));
}

/// A request with a forged B4 needs no answer, and can be repeated. So the lifetime is short until
/// a remote host has answered the B4, and places in the tables are free again soon.
#[test]
fn forged_b4s_keep_their_places_for_a_short_time() {
    let mut settings = settings_with_pcp();
    settings.engine.limits.subscribers = Some(50);
    settings.pcp.requests_per_second = (1000, 1000);
    let mut world = World::with_addresses(&settings);
    for _ in 0..2 {
        for number in 1..=100 {
            let forged = (&*format!("2001:db8:b4:1::{number:x}"), INNER);
            let answer = ask(&mut world, forged, &map(INNER, 7000, any(), 86_400));
            match number <= 50 {
                true => assert_eq!(granted(&answer).1, 120, "{number}"),
                false => assert_eq!(answer[3], 8, "NO_RESOURCES"),
            }
        }
        world.pass(Duration::from_secs(30));
    }
    assert_eq!(hosts(&mut world), 50);
    for _ in 0..240 {
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(hosts(&mut world), 0);
    granted(&ask(&mut world, (B4S[0], INNER), &map(INNER, 7000, any(), 86_400)));
}

#[test]
fn a_b4_gets_a_long_lifetime_when_it_has_been_answered() {
    let lifetime = |settings: &Settings, is_answered: bool| {
        let mut world = World::with_addresses(settings);
        if is_answered {
            have_answered(&mut world, B4S[0]);
        }
        let request = map(INNER, 7000, any(), 7200);
        let lifetimes = [(), ()].map(|()| {
            let answer = ask(&mut world, (B4S[0], INNER), &request);
            world.pass(Duration::from_secs(1));
            granted(&answer).1
        });
        assert_eq!(lifetimes[0], lifetimes[1]);
        let short = granted(&ask(&mut world, (B4S[1], INNER), &map(INNER, 7000, any(), 60))).1;
        (lifetimes[0], short)
    };
    let mut settings = settings_with_pcp();
    assert_eq!(lifetime(&settings, false), (120, 120));
    assert_eq!(lifetime(&settings, true), (7200, 120));
    settings.pcp.lifetime.0 = Duration::from_secs(600);
    assert_eq!(lifetime(&settings, false), (600, 600));
    settings.pcp.lifetime.0 = Duration::from_secs(30);
    assert_eq!(lifetime(&settings, false), (120, 60));
    // The access network checks all sources, so nobody has to be answered.
    settings.engine.limits.unanswered_give_way = false;
    assert_eq!(lifetime(&settings, false), (7200, 60));
}

/// A server behind a B4 that nobody has answered before is answered by the first connection.
#[test]
fn a_server_gets_a_long_lifetime_after_its_first_connection() {
    let mut world = world();
    let mut request = map(INNER, 80, any(), 36_000);
    request[36] = 6;
    let (port, lifetime) = granted(&ask(&mut world, (B4S[0], INNER), &request));
    assert_eq!(lifetime, 120);
    let (client, server) = ((REMOTE, 5000), (INNER, 80));
    world.outside.send(&to_outside(&tcp(client, (EXTERNAL, port), [1, 0], SYN, &[])));
    assert_eq!(entered(&mut world).len(), 1);
    // The opening session holds the mapping for its own time.
    assert_eq!(granted(&ask(&mut world, (B4S[0], INNER), &request)), (port, 240));
    world.inside.send(&tunneled(B4S[0], &tcp(server, client, [9, 2], SYN | ACK, &[])));
    world.next_outside();
    world.outside.send(&to_outside(&tcp(client, (EXTERNAL, port), [2, 10], ACK, &[])));
    assert_eq!(entered(&mut world).len(), 1);
    assert_eq!(granted(&ask(&mut world, (B4S[0], INNER), &request)), (port, 36_000));
}

/// A mapping is given up from another B4 of the prefix, which gets no packets by that.
#[test]
fn a_deletion_moves_no_tunnel() {
    let of_one = ["2001:db8:b4:100::1", "2001:db8:b4:1ff::2"];
    let mut settings = settings_with_pcp();
    let dslite = settings.ipv6.dslite.as_mut().expect("DS-Lite");
    dslite.subscriber_length = 56;
    dslite.b4_change_interval = Duration::from_secs(1800);
    let mut world = World::with_addresses(&settings);
    let request = |port, lifetime| map(INNER, port, any(), lifetime);
    let port = granted(&ask(&mut world, (of_one[0], INNER), &request(7000, 600))).0;
    let other = granted(&ask(&mut world, (of_one[0], INNER), &request(7001, 600))).0;
    let third = granted(&ask(&mut world, (of_one[0], INNER), &request(7002, 600))).0;
    let ended = ask(&mut world, (of_one[1], INNER), &request(7000, 0));
    assert_eq!((ended[3], &ended[4..8]), (0, &[0; 4][..]));
    assert_eq!(knock(&mut world, (REMOTE, 99), port), None);
    assert_eq!(knock(&mut world, (REMOTE, 99), other), to(of_one[0], INNER, 7001));
    // All mappings of a protocol, by NAT-PMP: those that PCP made stay.
    let all = [&[0, 1, 0, 0][..], &[0; 8]].concat();
    assert_eq!(ask(&mut world, (of_one[1], INNER), &all)[..4], [0, 129, 0, 0]);
    assert_eq!(knock(&mut world, (REMOTE, 99), third), to(of_one[0], INNER, 7002));
    // A mapping moves it, and the former B4 has to wait with what it gives up.
    granted(&ask(&mut world, (of_one[1], INNER), &request(7003, 600)));
    assert_eq!(knock(&mut world, (REMOTE, 99), other), to(of_one[1], INNER, 7001));
    assert_eq!(ask(&mut world, (of_one[0], INNER), &request(7001, 0))[3], 2, "NOT_AUTHORIZED");
    assert_eq!(knock(&mut world, (REMOTE, 99), other), to(of_one[1], INNER, 7001));
    assert_eq!(hosts(&mut world), 1);
}

#[test]
fn quotas_are_those_of_the_b4() {
    let mut settings = settings_with_pcp();
    settings.engine.limits.explicit_per_subscriber = 2;
    let mut world = World::with_addresses(&settings);
    for (number, host) in [INNER, OTHER].into_iter().enumerate() {
        let request = map(host, 7000 + number as u16, any(), 600);
        granted(&ask(&mut world, (B4S[0], host), &request));
    }
    let further = Ipv4Addr::new(192, 168, 1, 9);
    let answer = ask(&mut world, (B4S[0], further), &map(further, 7000, any(), 600));
    assert_eq!(answer[3], 10, "USER_EX_QUOTA");
    granted(&ask(&mut world, (B4S[1], INNER), &map(INNER, 7000, any(), 600)));
    assert_eq!(hosts(&mut world), 3);
}

#[test]
fn the_rate_of_requests_is_that_of_the_b4() {
    let mut settings = settings_with_pcp();
    settings.pcp.requests_per_second = (4, 1000);
    let mut world = World::with_addresses(&settings);
    let answers = |world: &mut World, b4: &str| -> usize {
        let mut count = 0;
        for last in 2..12 {
            let host = Ipv4Addr::new(192, 168, 1, last);
            send(world, (b4, host), &request(host, 0, 0));
            count += entered(world).len();
        }
        count
    };
    assert_eq!(answers(&mut world, B4S[0]), 4);
    assert_eq!(world.drops(DropReason::RequestLimit), 6);
    assert_eq!(answers(&mut world, B4S[1]), 4);
}

//= test rfc6887#section-13.1-permitted
#[test]
fn trusted_hosts_speak_for_others_behind_their_b4_alone() {
    let ask_for_other = |settings: &Settings, from: Ipv4Addr| {
        let mut world = World::with_addresses(settings);
        let request = [map(from, 7000, any(), 600), third_party(OTHER)].concat();
        let answer = ask(&mut world, (B4S[0], from), &request);
        (world, answer)
    };
    let mut settings = settings_with_pcp();
    assert_eq!(ask_for_other(&settings, INNER).1[3], 5, "UNSUPP_OPTION");
    // A trusted host of IPv4 with the same address is another one.
    settings.pcp.third_party = vec![Prefix::new(INNER, 32), Prefix::new(B4_ITSELF, 32)];
    assert_eq!(ask_for_other(&settings, INNER).1[3], 5, "UNSUPP_OPTION");
    let (mut world, answer) = ask_for_other(&settings, B4_ITSELF);
    assert_eq!(knock(&mut world, (REMOTE, 99), granted(&answer).0), to(B4S[0], OTHER, 7000));
    settings.pcp.third_party.clear();
    settings.pcp.third_party_ipv6 = vec![Prefix6 { address: ipv6(B4S[0]), len: 128 }];
    let (mut world, answer) = ask_for_other(&settings, INNER);
    assert_eq!(knock(&mut world, (REMOTE, 99), granted(&answer).0), to(B4S[0], OTHER, 7000));
    let request = [map(INNER, 7000, any(), 600), third_party(OTHER)].concat();
    assert_eq!(ask(&mut world, (B4S[1], INNER), &request)[3], 5, "UNSUPP_OPTION");
    // Others than inner hosts.
    let broadcast = Ipv4Addr::new(192, 0, 0, 7);
    for stranger in [AFTR, broadcast, REMOTE, EXTERNAL, Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST]
    {
        let request = [map(INNER, 7001, any(), 600), third_party(stranger)].concat();
        let code = ask(&mut world, (B4S[0], INNER), &request)[3];
        assert!([2, 3, 6].contains(&code), "{stranger}: {code}");
    }
}

#[test]
fn filters_sessions_and_port_sets_are_as_for_hosts_of_ipv4() {
    let mut settings = settings_with_pcp();
    settings.engine.filtering = natgate_engine::Behavior::AddressAndPortDependent;
    let mut world = World::with_addresses(&settings);
    let from = (B4S[0], INNER);
    have_answered(&mut world, B4S[0]);
    let filter = [&[3, 0, 0, 20, 0, 128, 0, 0][..], &REMOTE.to_ipv6_mapped().octets()].concat();
    let request = [map(INNER, 7000, any(), 600), filter].concat();
    let (port, _) = granted(&ask(&mut world, from, &request));
    let stranger = Ipv4Addr::new(192, 0, 2, 10);
    assert_eq!(knock(&mut world, (stranger, 99), port), None);
    assert_eq!(knock(&mut world, (REMOTE, 99), port), to(B4S[0], INNER, 7000));
    let mut peer = map(INNER, 7001, any(), 600);
    peer[1] = 2;
    peer.extend([0, 53, 0, 0]);
    peer.extend(REMOTE.to_ipv6_mapped().octets());
    let (port, lifetime) = granted(&ask(&mut world, from, &peer));
    assert_eq!(lifetime, 600);
    assert_eq!(knock(&mut world, (REMOTE, 54), port), None);
    assert_eq!(knock(&mut world, (REMOTE, 53), port), to(B4S[0], INNER, 7001));
    // Four ports at once.
    let set = [130, 0, 0, 5, 0, 4, 0x1f, 0x40, 0];
    let set = [&set[..], &[0; 3]].concat();
    let answer = ask(&mut world, from, &[map(INNER, 8000, any(), 600), set].concat());
    let (port, _) = granted(&answer);
    assert_eq!(answer[60..66], [130, 0, 0, 5, 0, 4]);
    for more in 0..4 {
        let got = knock(&mut world, (REMOTE, 99), port + more);
        assert_eq!(got, to(B4S[0], INNER, 8000 + more));
    }
}

#[test]
fn hosts_behind_b4s_may_ask_by_nat_pmp() {
    let mut world = world();
    let from = (B4S[0], INNER);
    have_answered(&mut world, B4S[0]);
    let answer = ask(&mut world, from, &[0, 0]);
    assert_eq!((&answer[..4], &answer[8..12]), (&[0, 128, 0, 0][..], &EXTERNAL.octets()[..]));
    let request = [&[0, 1, 0, 0][..], &7000_u16.to_be_bytes(), &[0; 2], &[0, 0, 2, 88]].concat();
    let answer = ask(&mut world, from, &request);
    assert_eq!((&answer[..4], &answer[12..]), (&[0, 129, 0, 0][..], &[0, 0, 2, 88][..]));
    let port = u16::from_be_bytes([answer[10], answer[11]]);
    assert_eq!(knock(&mut world, (REMOTE, 99), port), to(B4S[0], INNER, 7000));
}

#[test]
fn without_pcp_nothing_is_answered() {
    let mut world = World::with_addresses(&tunnel_settings());
    send(&mut world, (B4S[0], INNER), &map(INNER, 7000, any(), 600));
    assert!(entered(&mut world).is_empty());
    assert_eq!(world.drops(DropReason::LocalUnsupported), 1);
    assert_eq!(hosts(&mut world), 0);
}
