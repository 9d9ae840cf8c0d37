//! IPv6 packets that no table claims.

use super::world::*;
use natgate_engine::{Direction, DropReason, Outcome, Side};
use natgate_io::pcap::LinkType;
use natgate_wire::{Icmpv6, Ipv6};

const HOST: &str = "2001:db8:1::5";
const REMOTE: &str = "2001:db8:9::9";

fn packet() -> Vec<u8> {
    ip6(HOST, REMOTE, UDP, &udp(4000, 53, b"question"))
}

#[test]
fn a_packet_is_routed_with_one_hop_less() {
    let mut expected = packet();
    expected[7] = 63;
    let outcomes = run(
        &settings(),
        &[
            (Side::Inside, 1.0, [&packet()[..], b"padding"].concat()),
            (Side::Outside, 1.0, ip6(REMOTE, HOST, UDP, &udp(53, 4000, b"answer"))),
        ],
    );
    assert_eq!(outcomes.sent[0], [(Side::Outside, expected)]);
    assert_eq!(ends6(single(&outcomes.sent[1], Side::Inside)), ends(REMOTE, HOST));
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Forwarded), (1, 56));
    assert_eq!(outcomes.count(Direction::Inbound, Outcome::Forwarded), (1, 54));
}

#[test]
fn a_gateway_without_ipv6_takes_none() {
    let mut settings = settings();
    settings.ipv6 = natgate_gateway::ipv6::Settings::default();
    let outcomes = run(&settings, &[(Side::Inside, 1.0, packet())]);
    assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![DropReason::NotIpv4]));

    let mut settings = super::world::settings();
    settings.ipv6.forwarding = false;
    let outcomes = run(&settings, &[(Side::Inside, 1.0, packet())]);
    assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![DropReason::NoRoute]));
}

#[test]
fn a_hop_limit_that_runs_out_is_answered_with_the_packet_as_received() {
    for hops in [0, 1] {
        let mut expired = packet();
        expired[7] = hops;
        let sent = one(&settings(), Side::Inside, &expired);
        let answer = single(&sent, Side::Inside);
        assert_eq!(ends6(answer), ends(OWN_INSIDE, HOST));
        let message = Icmpv6::new_checked(&answer[40..]).unwrap();
        assert_eq!((message.kind(), message.code(), message.word()), (3, 0, 0));
        assert_eq!(message.body(), expired);
        assert!(answer[7] > 1);
    }
    let mut expired = ip6(REMOTE, HOST, UDP, &udp(53, 4000, b"answer"));
    expired[7] = 1;
    let sent = one(&settings(), Side::Outside, &expired);
    assert_eq!(ends6(single(&sent, Side::Outside)), ends(OWN_OUTSIDE, REMOTE));
}

//= test rfc7915#section-4.4-configure
//= test rfc7915#section-5.4-configure
#[test]
fn errors_are_limited_and_never_answer_errors() {
    let mut expired = packet();
    expired[7] = 1;
    let many: Vec<Came> = (0..2000).map(|_| (Side::Inside, 1.0, expired.clone())).collect();
    let outcomes = run(&settings(), &many);
    let answers = outcomes.sent.iter().flatten().count();
    assert!((1..=1000).contains(&answers), "{answers} answers");
    assert_eq!(outcomes.sent[0].len(), 1, "the first is always sent");
    assert_eq!(outcomes.count(Direction::Outbound, Outcome::Dropped).0, 2000);

    let mut about = ip6(HOST, REMOTE, ICMPV6, &error(1, 0, 0, &packet()));
    about[7] = 1;
    assert_eq!(one(&settings(), Side::Inside, &about), []);
}

#[test]
fn a_packet_that_is_too_big_learns_the_mtu() {
    let mut settings = settings();
    set_outside_mtu(&mut settings, 1400);
    let big = ip6(HOST, REMOTE, UDP, &udp(4000, 53, &[7; 1400]));
    let sent = one(&settings, Side::Inside, &big);
    let answer = single(&sent, Side::Inside);
    let message = Icmpv6::new_checked(&answer[40..]).unwrap();
    assert_eq!((message.kind(), message.code(), message.word()), (2, 0, 1400));
    assert_eq!(answer.len(), 1280);
}

#[test]
fn an_echo_request_to_an_own_address_is_answered() {
    let request = ip6(HOST, OWN_INSIDE, ICMPV6, &echo(128, 7, b"ping"));
    let outcomes = run(&settings(), &[(Side::Inside, 1.0, request.clone())]);
    let reply = single(&outcomes.sent[0], Side::Inside);
    assert_eq!(ends6(reply), ends(OWN_INSIDE, HOST));
    assert_eq!(&reply[40..42], [129, 0]);
    assert_eq!(&reply[44..], &request[44..]);
    assert_eq!(outcomes.count(Direction::Local, Outcome::Replied), (1, 52));

    let other = ip6(HOST, OWN_INSIDE, UDP, &udp(1, 2, b""));
    let outcomes = run(&settings(), &[(Side::Inside, 1.0, other)]);
    assert_eq!(outcomes.dropped(), [DropReason::LocalUnsupported]);
}

#[test]
fn addresses_that_no_router_forwards_are_dropped_without_an_answer() {
    for (source, destination, reason) in [
        ("::1", REMOTE, DropReason::MartianSource),
        ("::", REMOTE, DropReason::MartianSource),
        ("ff02::1", REMOTE, DropReason::MartianSource),
        ("fe80::1", REMOTE, DropReason::MartianSource),
        (HOST, "ff02::1", DropReason::MartianDestination),
        (HOST, "fe80::1", DropReason::MartianDestination),
        (HOST, "::1", DropReason::MartianDestination),
        (HOST, HOST, DropReason::Land),
        (OWN_INSIDE, REMOTE, DropReason::SpoofedSource),
    ] {
        let packet = ip6(source, destination, UDP, &udp(1, 2, b""));
        let outcomes = run(&settings(), &[(Side::Inside, 1.0, packet)]);
        assert_eq!((outcomes.sent[0].len(), outcomes.dropped()), (0, vec![reason]), "{source}");
    }
    let mut cut = packet();
    cut.truncate(50);
    let outcomes = run(&settings(), &[(Side::Inside, 1.0, cut)]);
    assert_eq!(outcomes.dropped(), [DropReason::BadLength]);
}

#[test]
fn ethernet_headers_pass_and_tell_the_family() {
    let header = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x86, 0xdd];
    let came = [(Side::Inside, 1.0, packet())];
    let outcomes = run_links(&settings(), LinkType::ETHERNET, &header, &came);
    let [(Side::Outside, frame)] = &outcomes.sent[0][..] else { panic!() };
    assert_eq!(frame[..14], header);

    let to_nat64 = ip6(HOST, "64:ff9b::198.51.100.7", UDP, &udp(4000, 53, b"question"));
    let came = [(Side::Inside, 1.0, to_nat64)];
    let nat64 = with_nat64(&["64:ff9b::/96"]);
    let outcomes = run_links(&nat64, LinkType::ETHERNET, &header, &came);
    let [(Side::Outside, frame)] = &outcomes.sent[0][..] else { panic!() };
    assert_eq!(frame[12..15], [8, 0, 0x45]);
}

#[test]
fn simple_security_lets_in_what_was_asked_for() {
    let mut settings = settings();
    settings.ipv6.filter = natgate_gateway::ipv6::Filter::OutboundOnly;
    let answer = || ip6(REMOTE, HOST, UDP, &udp(53, 4000, b"answer"));
    let from_third = || ip6("2001:db8:8::8", HOST, UDP, &udp(99, 4000, b"hello"));
    let to_other_port = || ip6(REMOTE, HOST, UDP, &udp(53, 4001, b"hello"));
    let ping = || ip6(REMOTE, HOST, ICMPV6, &echo(128, 1, b""));
    let refusal = || ip6("2001:db8:7::1", HOST, ICMPV6, &error(1, 4, 0, &packet()));
    let foreign = ip6(HOST, REMOTE, UDP, &udp(4001, 53, b"question"));
    let false_refusal = ip6("2001:db8:7::1", HOST, ICMPV6, &error(1, 4, 0, &foreign));
    let esp = raw6(v6(REMOTE), v6(HOST), 50, &[0; 20]);
    let ike = ip6(REMOTE, HOST, UDP, &udp(500, 500, b"ike"));
    let outcomes = run(
        &settings,
        &[
            (Side::Outside, 1.0, answer()),
            (Side::Inside, 2.0, packet()),
            (Side::Outside, 3.0, answer()),
            (Side::Outside, 3.0, from_third()),
            (Side::Outside, 3.0, to_other_port()),
            (Side::Outside, 3.0, ping()),
            (Side::Outside, 3.0, refusal()),
            (Side::Outside, 3.0, false_refusal),
            (Side::Outside, 3.0, esp),
            (Side::Outside, 3.0, ike),
            (Side::Outside, 303.5, answer()),
        ],
    );
    let passed: Vec<bool> = outcomes.sent.iter().map(|sent| !sent.is_empty()).collect();
    let expected = [false, true, true, true, false, false, true, false, true, true, false];
    assert_eq!(passed, expected);
    assert_eq!(outcomes.dropped(), [DropReason::Filtered]);
    let header = Ipv6::new_checked(&outcomes.sent[2][0].1[..]).unwrap();
    assert_eq!(header.hop_limit(), 63);
}
