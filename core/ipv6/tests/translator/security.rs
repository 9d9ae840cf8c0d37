//! Simple security (RFC 6092) requirement by requirement.

use super::*;

/// Next headers, and protocols.
const ROUTING: u8 = 43;
const SCTP: u8 = 132;
const DCCP: u8 = 33;
const UDP_LITE: u8 = 136;

/// A DCCP packet of a type.
fn dccp(source: u16, destination: u16, kind: u8) -> Vec<u8> {
    let mut packet = vec![0; 16];
    packet[..2].copy_from_slice(&source.to_be_bytes());
    packet[2..4].copy_from_slice(&destination.to_be_bytes());
    packet[8] = kind << 1;
    packet
}

/// A packet of the host to the remote, and of the remote to the host.
fn out(protocol: u8, payload: &[u8]) -> Vec<u8> {
    six((ipv6(HOST), ipv6(REMOTE)), protocol, payload)
}

fn back(protocol: u8, payload: &[u8]) -> Vec<u8> {
    six((ipv6(REMOTE), ipv6(HOST)), protocol, payload)
}

impl World {
    fn sends(&mut self, protocol: u8, payload: &[u8]) {
        assert!(self.take(Side::Inside, &out(protocol, payload)).0.is_ok());
    }

    fn receives(&mut self, protocol: u8, payload: &[u8]) -> bool {
        match self.take(Side::Outside, &back(protocol, payload)).0 {
            Ok(_) => true,
            Err(reason) => {
                assert_eq!(reason, DropReason::Filtered);
                false
            }
        }
    }
}

//= test rfc6092#REC-1
//= test rfc6092#REC-2
//= test rfc6092#REC-3
//= test rfc6092#REC-6
#[test]
fn addresses_that_must_not_pass_are_refused() {
    use DropReason::{MartianDestination, MartianSource};
    for (source, destination, reason) in [
        ("ff0e::1", REMOTE, MartianSource),
        (HOST, "ff02::1", MartianDestination),
        (HOST, "ff05::2", MartianDestination),
        (HOST, "ff08::2", MartianDestination),
        ("::ffff:10.0.0.1", REMOTE, MartianSource),
        (HOST, "::10.0.0.1", MartianDestination),
        ("fec0::1", REMOTE, MartianSource),
        (HOST, "2001:10::1", MartianDestination),
    ] {
        let packet = six((ipv6(source), ipv6(destination)), 17, &udp(1000, 2000));
        assert_eq!(filtered().take(Side::Inside, &packet).0, Err(reason), "{source} {destination}");
    }
    let mut settings = Settings { filter: Filter::OutboundOnly, ..Settings::default() };
    settings.inside.address = Some((Ipv6Addr::from(ipv6("2001:db8:f::ff")), 64));
    let mut world = World::new(settings);
    let forged = six((ipv6("2001:db8:f::7"), ipv6(HOST)), 17, &udp(1000, 2000));
    assert_eq!(world.take(Side::Outside, &forged).0, Err(DropReason::SpoofedSource));
}

//= test rfc6092#REC-4
//= test rfc6092#REC-27
#[test]
fn a_routing_header_passes_unless_it_is_of_type_0() {
    for (kind, passes) in [(0, false), (2, true)] {
        let mut world = filtered();
        world.sends(17, &udp(5000, 53));
        let header = [&[17, 2, kind, 1, 0, 0, 0, 0][..], &[9; 16]].concat();
        let packet = back(ROUTING, &[&header[..], &udp(53, 5000)].concat());
        assert_eq!(world.take(Side::Outside, &packet).0.is_ok(), passes, "type {kind}");
    }
}

//= test rfc6092#REC-11
//= test rfc6092#REC-17
//= test rfc6092#REC-20
//= test rfc6092#REC-29
//= test rfc6092#REC-33
//= test rfc6092#REC-43
//= test rfc6092#REC-47
#[test]
fn anybody_reaches_an_endpoint_that_has_sent_and_no_other_protocol_does() {
    // GRE, IPv6 and IPv4 in tunnels, and Shim6 have no ports.
    let flows = [
        (6, tcp(5000, 80, 2), tcp(81, 5000, ACK)),
        (17, udp(5000, 80), udp(81, 5000)),
        (UDP_LITE, udp(5000, 80), udp(81, 5000)),
        (SCTP, sctp(5000, 80, 1), sctp(81, 5000, 2)),
        (DCCP, dccp(5000, 80, 0), dccp(81, 5000, 1)),
        (47, vec![0; 8], vec![0; 8]),
        (41, vec![0; 40], vec![0; 40]),
        (4, vec![0; 20], vec![0; 20]),
        (140, vec![59, 0, 0, 0, 0, 0, 0, 0], vec![59, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (protocol, first, answer) in &flows {
        let mut world = filtered();
        assert!(!world.receives(*protocol, answer));
        world.sends(*protocol, first);
        let other = six((ipv6("2001:db8:77::1"), ipv6(HOST)), *protocol, answer);
        assert!(world.take(Side::Outside, &other).0.is_ok(), "protocol {protocol}");
        for (others, _, answer) in flows.iter().filter(|flow| flow.0 != *protocol) {
            assert!(!world.receives(*others, answer), "{others} by a record of {protocol}");
        }
    }
}

//= test rfc6092#REC-21
//= test rfc6092#REC-22
//= test rfc6092#REC-24
//= test rfc6092#REC-26
//= test rfc6092#REC-28
#[test]
fn protocols_with_their_own_security_always_pass() {
    let mut world = filtered();
    for protocol in [50, 51, 135, 139] {
        assert!(world.receives(protocol, &[59, 0, 0, 0, 0, 0, 0, 0]), "protocol {protocol}");
    }
    assert!(world.receives(17, &udp(500, 500)) && !world.receives(17, &udp(500, 501)));
}

//= test rfc6092#REC-12
//= test rfc6092#REC-14
//= test rfc6092#REC-16
//= test rfc6092#REC-35
//= test rfc6092#REC-40
//= test rfc6092#REC-44
#[test]
fn records_live_as_long_as_their_protocol_asks() {
    let first = [
        (17, udp(5000, 80), udp(80, 5000), 300),
        (47, vec![0; 8], vec![0; 8], 300),
        (6, tcp(5000, 80, 2), tcp(80, 5000, 2), 240),
        (SCTP, sctp(5000, 80, 1), sctp(80, 5000, 1), 240),
        (DCCP, dccp(5000, 80, 0), dccp(80, 5000, 0), 480),
    ];
    for (protocol, out, answer, life) in &first {
        let mut world = filtered();
        world.sends(*protocol, out);
        world.later(100);
        world.sends(*protocol, out);
        world.later(life - 1);
        assert!(world.receives(*protocol, answer), "protocol {protocol}");
        world.later(*life);
        assert!(!world.receives(*protocol, answer), "protocol {protocol}");
    }
    // An endpoint of SCTP may have other associations.
    let connections = [
        (6, tcp(5000, 80, 2), tcp(80, 5000, 18), tcp(80, 5000, 1), 240),
        (SCTP, sctp(5000, 80, 1), sctp(80, 5000, 2), sctp(80, 5000, 6), 7440),
        (DCCP, dccp(5000, 80, 0), dccp(80, 5000, 1), dccp(80, 5000, 7), 480),
    ];
    for (protocol, out, answer, end, life) in &connections {
        let mut world = filtered();
        world.sends(*protocol, out);
        assert!(world.receives(*protocol, answer));
        world.later(7439);
        assert!(world.receives(*protocol, answer), "protocol {protocol}");
        assert!(world.receives(*protocol, end));
        world.later(*life);
        assert!(!world.receives(*protocol, answer), "protocol {protocol}");
    }
}

//= test rfc6092#REC-10
//= test rfc6092#REC-18
//= test rfc6092#REC-19
//= test rfc6092#REC-23
//= test rfc6092#REC-30
//= test rfc6092#REC-36
//= test rfc6092#REC-37
//= test rfc6092#REC-41
//= test rfc6092#REC-42
//= test rfc6092#REC-45
//= test rfc6092#REC-46
#[test]
fn an_error_about_a_flow_passes_and_ends_nothing() {
    let flows = [
        (17, udp(5000, 80), udp(80, 5000)),
        (6, tcp(5000, 80, 2), tcp(80, 5000, ACK)),
        (SCTP, sctp(5000, 80, 1), sctp(80, 5000, 2)),
        (DCCP, dccp(5000, 80, 0), dccp(80, 5000, 1)),
        (50, vec![1; 16], vec![1; 16]),
        (135, vec![59, 0, 0, 0, 0, 0, 0, 0], vec![59, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let ends = (ipv6("2001:db8:77::1"), ipv6(HOST));
    for (protocol, first, answer) in &flows {
        let mut world = filtered();
        for (kind, code) in [(1, 0), (1, 4), (2, 0), (3, 0), (4, 1)] {
            let error = error6(ends, [kind, code, 0, 0, 0, 0, 5, 0], &out(*protocol, first), &[]);
            let refused = Err(DropReason::Filtered);
            assert_eq!(filtered().take(Side::Outside, &error).0, refused, "protocol {protocol}");
            world.sends(*protocol, first);
            assert!(world.take(Side::Outside, &error).0.is_ok(), "protocol {protocol}");
            assert!(world.receives(*protocol, answer), "protocol {protocol}");
        }
    }
}

/// The packets of a world's own that are due after some seconds, without other packets.
fn due_after(world: &mut World, seconds: u64) -> Vec<Vec<u8>> {
    world.later(seconds);
    world.translator.sweep(&world.engine, world.now);
    let (mut own, mut buffer) = (Vec::new(), [0; 1500]);
    while let Some((side, len)) = world.translator.poll_transmit(&mut buffer) {
        assert_eq!(side, Side::Outside);
        own.push(buffer[..len].to_vec());
    }
    own
}

/// An SCTP packet with one chunk of this type.
fn sctp(source: u16, destination: u16, chunk: u8) -> Vec<u8> {
    let mut packet = vec![0; 20];
    packet[..2].copy_from_slice(&source.to_be_bytes());
    packet[2..4].copy_from_slice(&destination.to_be_bytes());
    packet[12] = chunk;
    packet
}

//= test rfc6092#REC-34
//= test rfc6092#REC-39
#[test]
fn a_refused_request_is_answered_after_six_seconds() {
    let back = (ipv6(REMOTE), ipv6(HOST));
    for (protocol, request) in [(6, tcp(80, 5000, 2)), (132, sctp(80, 5000, 1))] {
        let mut world = filtered();
        let request = six(back, protocol, &request);
        let refused = (Err(DropReason::Filtered), vec![]);
        assert_eq!(world.take(Side::Outside, &request), refused);
        assert_eq!(due_after(&mut world, 5), Vec::<Vec<u8>>::new());
        let own = due_after(&mut world, 1);
        assert_eq!((own.len(), &own[0][40..42]), (1, &[1, 1][..]), "protocol {protocol}");
        assert_eq!(own[0][24..40], request[8..24]);
        assert_eq!(own[0][48..], request);
        assert!(due_after(&mut world, 60).is_empty());
    }
}

//= test rfc6092#REC-31
//= test rfc6092#REC-38
//= test rfc6092#REC-34
//= test rfc6092#REC-39
#[test]
fn a_request_is_not_answered_if_the_inside_asks_too() {
    let (out, back) = ((ipv6(HOST), ipv6(REMOTE)), (ipv6(REMOTE), ipv6(HOST)));
    let requests: [(u8, [Vec<u8>; 2]); 2] =
        [(6, [tcp(80, 5000, 2), tcp(5000, 80, 2)]), (132, [sctp(80, 5000, 1), sctp(5000, 80, 1)])];
    for (protocol, [refused, own]) in requests {
        let mut world = filtered();
        let refused = six(back, protocol, &refused);
        assert_eq!(world.take(Side::Outside, &refused).0, Err(DropReason::Filtered));
        world.later(5);
        assert!(world.take(Side::Inside, &six(out, protocol, &own)).0.is_ok());
        assert!(due_after(&mut world, 60).is_empty(), "protocol {protocol}");
        assert!(world.take(Side::Outside, &refused).0.is_ok());
    }
}

#[test]
fn other_refused_packets_are_not_answered_and_requests_are_bounded() {
    let mut world = filtered();
    let back = (ipv6(REMOTE), ipv6(HOST));
    let others = [(6, tcp(80, 5000, 18)), (6, tcp(80, 5000, 3)), (17, udp(80, 5000))];
    for (protocol, payload) in others.into_iter().chain([(132, sctp(80, 5000, 2))]) {
        let refused = world.take(Side::Outside, &six(back, protocol, &payload));
        assert_eq!(refused, (Err(DropReason::Filtered), vec![]));
    }
    assert!(due_after(&mut world, 60).is_empty());
    // One network has a share of the places.
    for port in 0..2000 {
        let request = six(back, 6, &tcp(port, 5000, 2));
        assert_eq!(world.take(Side::Outside, &request).0, Err(DropReason::Filtered));
    }
    assert_eq!(world.translator.counters().errors_suppressed, 2000 - 64);
    for network in 0..100_u128 {
        let ends = (ipv6("2001:db8:77::1") + (network << 64), back.1);
        let request = six(ends, 6, &tcp(80, 5000, 2));
        assert_eq!(world.take(Side::Outside, &request).0, Err(DropReason::Filtered));
    }
    assert_eq!(world.translator.counters().errors_suppressed, 2000 - 64);
    // Few errors wait to be sent, and the requests wait for these.
    let answers: usize = (0..5).map(|_| due_after(&mut world, 2).len()).sum();
    assert_eq!(answers, 64 + 100);
    assert_eq!(world.translator.counters().errors_suppressed, 2000 - 64);
    // Without answers nothing waits.
    let request = six(back, 6, &tcp(80, 5000, 2));
    assert!(world.take(Side::Outside, &request).0.is_err());
    world.translator.renew(&Config { answer_unsolicited_syn: false, ..Config::default() });
    assert!(due_after(&mut world, 60).is_empty());
}

/// The table has as much room as the limits give sessions. No endpoint has to make room for
/// another, although nobody has answered it.
#[test]
fn the_filter_has_room_for_as_many_endpoints_as_sessions() {
    let mut world = filtered();
    let room = world.engine.config().session_room();
    let hosts = 80_000_u128;
    assert!(room > hosts as u64, "{room}");
    let ends = |number: u128| (ipv6(HOST) + 1 + number, ipv6(REMOTE));
    for number in 0..hosts {
        let mut buffer = six(ends(number), 17, &udp(1000, 2000));
        let mut packet = Packet::new(&mut buffer, 0);
        let World { translator, engine, now, .. } = &mut world;
        let fate = translator.take(engine, *now, Side::Inside, &mut packet);
        assert!(matches!(fate, Fate::Send(_)), "{number}");
    }
    for number in (0..hosts).step_by(1000) {
        let (host, remote) = ends(number);
        let answer = six((remote, host), 17, &udp(2000, 1000));
        assert!(world.take(Side::Outside, &answer).0.is_ok(), "{number}");
    }
}
