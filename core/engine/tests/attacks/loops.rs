//! Packets that return to their start: LAND in all its forms, gateways that are each other's
//! default, and answers that are larger or more than their causes. Nothing may multiply.

use crate::common::*;
use crate::world::*;
use natgate_engine::{
    Config, DropReason, Engine, Packet, Prefix, Rule, RuleAction, Side, SideConfig, Timestamp,
    Verdict,
};
use natgate_wire::Ipv4;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Addresses with different meanings for the gateway.
const ADDRESSES: [&str; 6] =
    ["10.0.0.5", "10.0.0.1", "192.0.2.254", "203.0.113.1", "198.51.100.7", "9.9.9.9"];

/// A packet to its own sender, with the same port or another, of any protocol, from either side.
#[test]
fn a_packet_to_its_own_source_goes_nowhere() {
    let (mut lab, _) = established(&config());
    let before = picture(&lab);
    let mut refused = 0;
    for from in [Side::Inside, Side::Outside] {
        for address in ADDRESSES {
            for port in [80, 139, 4000] {
                let (one, other) = (format!("{address}:80"), format!("{address}:{port}"));
                for packet in [
                    tcp(&one, &other, "S", 1, 0),
                    tcp(&one, &other, "R", 1, 0),
                    udp(&one, &other),
                    ping(address, address, 80),
                    error(address, address, 3, 3, &udp(&one, &other)),
                    part(&udp_with(&one, &other, &[7; 100]), 7, 0, 48),
                    part(&udp_with(&one, &other, &[7; 100]), 7, 48, 108),
                ] {
                    assert_eq!(lab.refused(from, &packet), DropReason::Land);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 252);
    lab.wait_s(7.0);
    assert_eq!(picture(&lab), before);
    assert!(lab.sent.is_empty() && lab.events.is_empty());
}

/// A subscriber reaches itself by its external endpoint, as RFC 4787 REQ-9 requires. The received
/// packet has the external endpoint as its source, so no host takes it for a packet from itself.
/// One packet comes out for one that goes in, and there is one mapping with one session, however
/// often packets pass.
#[test]
fn a_packet_to_its_own_external_endpoint_comes_back_once() {
    let mut lab = Lab::new(&config());
    let udp_external = lab.external_of(&udp(VICTIM, REMOTE));
    let tcp_external = lab.external_of(&tcp(VICTIM, REMOTE, "S", 1, 0));
    for n in 0..1000 {
        for (packet, external) in [
            (udp(VICTIM, &udp_external), &udp_external),
            (tcp(VICTIM, &tcp_external, "S", n, 0), &tcp_external),
        ] {
            let (verdict, bytes) = lab.pass(Side::Inside, &packet);
            assert_eq!(verdict, Verdict::Forward(Side::Inside));
            assert_eq!(ends(&bytes), (external.clone(), VICTIM.into()));
            assert_eq!(bytes[8], 63, "and its time is running out");
        }
    }
    assert_eq!((lab.engine.mappings().count(), lab.engine.sessions().count()), (2, 4));
    lab.wait_s(7.0);
    assert!(lab.sent.is_empty());
}

/// A gateway of the ring: a packet that leaves it by one side enters the other gateway by the other
/// side.
fn gateway(own: u8, rules: Vec<Rule>) -> Engine {
    let side = |address| SideConfig { address: Some(address), ..SideConfig::default() };
    let external = format!("100.64.{own}.1");
    let config = Config {
        inside: side(Ipv4Addr::new(192, 168, own, 1)),
        outside: side(Ipv4Addr::new(192, 168, own, 2)),
        pools: vec![pool(&external, &external, (1024, 65_535))],
        rules,
        ..config()
    };
    Engine::new(&config, [own; 32], Timestamp(0)).unwrap()
}

/// Number of packets forwarded, mappings made and errors made, until nothing moves any more.
#[derive(Debug, Default, PartialEq)]
struct Toll {
    forwarded: usize,
    errors: usize,
    mappings: usize,
}

/// Lets a packet into the ring of two gateways at the inside of the first.
fn circulate(gateways: &mut [Engine; 2], packet: Vec<u8>) -> Toll {
    let mut toll = Toll::default();
    let mut buffer = vec![0; 65_535];
    let mut under_way = VecDeque::from([(0, Side::Inside, packet)]);
    while let Some((at, from, mut bytes)) = under_way.pop_front() {
        assert!(toll.forwarded < 10_000, "it does not end");
        let engine = &mut gateways[at];
        let mut packets = [Packet::new(&mut bytes, 0)];
        let mut verdicts = [Verdict::Held];
        engine.process(Timestamp(0), from, &mut packets, &mut verdicts);
        if let Verdict::Forward(side) | Verdict::Reply(side) = verdicts[0] {
            toll.forwarded += 1;
            under_way.push_back((1 - at, side.other(), packets[0].bytes().to_vec()));
        }
        while let Some((_, side, len)) = engine.poll_transmit(&mut buffer) {
            toll.errors += 1;
            under_way.push_back((1 - at, side.other(), buffer[..len].to_vec()));
        }
        while engine.poll_event().is_some() {}
    }
    toll.mappings = gateways.iter().map(|engine| engine.mappings().count()).sum();
    toll
}

/// Two gateways, each the other's way out, each translating the other's packets. The TTL ends a
/// packet, and the one error about it.
#[test]
fn in_a_ring_of_translators_a_packet_dies_of_its_ttl() {
    for ttl in [1, 2, 3, 64, 255] {
        for packet in [
            udp(VICTIM, REMOTE),
            tcp(VICTIM, REMOTE, "S", 1, 0),
            ping("10.0.0.5", "198.51.100.7", 7),
        ] {
            let mut ring = [gateway(1, vec![]), gateway(2, vec![])];
            let mut packet = packet;
            set_ttl(&mut packet, ttl);
            let toll = circulate(&mut ring, packet);
            println!("TTL {ttl}: {toll:?}");
            let steps = usize::from(ttl) - 1;
            assert_eq!(toll.mappings, steps, "a mapping a step");
            assert_eq!(toll.errors, 1);
            // The error goes no further than to its own maker, which knows its own address.
            assert!(toll.forwarded <= steps + 1);
        }
    }
}

/// The ring with rules that let the packet bypass both translators: there is no state at all.
#[test]
fn in_a_ring_of_routers_a_packet_dies_of_its_ttl() {
    let bypass = || {
        vec![Rule::new(
            natgate_engine::Match::Destination(Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24), 0),
            RuleAction::Bypass,
        )]
    };
    let mut ring = [gateway(1, bypass()), gateway(2, bypass())];
    let toll = circulate(&mut ring, udp(VICTIM, REMOTE));
    println!("{toll:?}");
    assert_eq!((toll.mappings, toll.errors), (0, 1));
    assert!(toll.forwarded <= 63 + 1);
}

/// Nothing circulates from outside to outside: a packet to an address that is not external is
/// dropped.
#[test]
fn gateways_that_face_each_other_pass_nothing_on() {
    let mut lab = Lab::new(&config());
    let sent = lab.out(&udp(VICTIM, REMOTE));
    let other = &mut Lab::new(&Config {
        pools: vec![pool("203.0.113.2", "203.0.113.2", (1024, 65_535))],
        ..config()
    });
    assert_eq!(other.refused(Side::Outside, &sent), DropReason::NotForUs);
    assert!(other.sent.is_empty());
}

/// Packets that the gateway sends because of a flood, and packets of the flood.
struct Bill {
    packets_in: u64,
    bytes_in: u64,
    packets_out: u64,
    bytes_out: u64,
}

/// Ten seconds of a packet that provokes an error, 5,000 a second, and the delayed answers.
fn provoke(lab: &mut Lab, from: Side, mut packet: impl FnMut(u32) -> Vec<u8>) -> Bill {
    let mut bill = Bill { packets_in: 0, bytes_in: 0, packets_out: 0, bytes_out: 0 };
    for n in 0..50_000 {
        let bytes = packet(n);
        bill.packets_in += 1;
        bill.bytes_in += bytes.len() as u64;
        lab.pass(from, &bytes);
        lab.wait(std::time::Duration::from_micros(200));
        for (_, _, sent) in lab.sent.drain(..) {
            bill.packets_out += 1;
            bill.bytes_out += sent.len() as u64;
            let about = Ipv4::new_header_checked(&sent[28..]).unwrap();
            assert_eq!(
                Ipv4::new_checked(&sent[..]).unwrap().destination(),
                about.source(),
                "to none but the one that seems to have sent it"
            );
            assert!(sent.len() <= 576 && sent.len() <= usize::from(about.total_len()) + 28);
        }
    }
    lab.wait_s(7.0);
    bill.packets_out += lab.sent.len() as u64;
    bill.bytes_out += lab.sent.drain(..).map(|(_, _, sent)| sent.len() as u64).sum::<u64>();
    bill
}

/// The gateway's errors do not amplify: at most one for a packet, at most 28 bytes longer than it,
/// 576 at most, and at most 500 a second in a flood.
#[test]
fn errors_do_not_amplify() {
    let expiring = |mut packet: Vec<u8>| {
        set_ttl(&mut packet, 1);
        packet
    };
    let refuse_large = |mut packet: Vec<u8>| {
        packet[6] = 0x40;
        fill_header_checksum(&mut packet);
        packet
    };
    let inner = |n: u32| format!("10.0.{}.{}:{}", 1 + n % 200, n / 200 % 200, 1024 + n % 60_000);
    let outer = |n: u32| format!("100.{}.{}.{}:6666", 70 + (n >> 16), n >> 8 & 0xff, n & 0xff);
    type Make<'a> = Box<dyn FnMut(u32) -> Vec<u8> + 'a>;
    let mut narrow = config();
    narrow.outside.mtu = Some(600);
    let mut empty = config();
    empty.limits.udp_ports = 0;
    let external = "203.0.113.1:1024";
    let cases: Vec<(&str, Config, Side, Make<'_>)> = vec![
        ("TTL, 28 bytes", config(), Side::Inside, {
            Box::new(move |n| expiring(udp_with(&inner(n), REMOTE, b"")))
        }),
        ("TTL, 1500 bytes", config(), Side::Inside, {
            Box::new(move |n| expiring(udp_with(&inner(n), REMOTE, &[7; 1472])))
        }),
        ("too big", narrow, Side::Inside, {
            Box::new(move |n| refuse_large(udp_with(&inner(n), REMOTE, &[7; 1472])))
        }),
        ("quota", empty, Side::Inside, Box::new(move |n| udp(&inner(n), REMOTE))),
        ("unsolicited SYN", config(), Side::Outside, {
            Box::new(move |n| tcp(&outer(n), external, "S", n, 0))
        }),
        ("no mapping", config(), Side::Outside, Box::new(move |n| udp(&outer(n), external))),
        ("rubbish", config(), Side::Outside, {
            Box::new(move |n| tcp(&outer(n), external, "A", n, 0))
        }),
    ];
    for (name, config, from, make) in cases {
        let mut lab = Lab::new(&config);
        let bill = provoke(&mut lab, from, make);
        println!(
            "{name}: {} packets in, {} out, bytes out/in {:.3}",
            bill.packets_in,
            bill.packets_out,
            bill.bytes_out as f64 / bill.bytes_in as f64
        );
        // The rate, and a reserve of the same size for requesters without errors: a second's worth
        // of each at once, and 500 a second until the delayed answers are sent.
        assert!(bill.packets_out <= 2 * (500 + 500 * 17), "{name}");
        assert!(bill.bytes_out <= bill.bytes_in / 2, "{name}");
    }
}

/// An attacker that provokes errors uses up its own rate. The rates of others stay.
#[test]
fn a_flood_for_errors_leaves_others_theirs() {
    let mut lab = Lab::new(&config());
    let expiring = |source: &str| {
        let mut packet = udp(source, REMOTE);
        set_ttl(&mut packet, 1);
        packet
    };
    let (flood, probe) = (expiring("10.0.0.66:6666"), expiring(VICTIM));
    let (mut to_flooder, mut to_victim, mut probes) = (0, 0, 0);
    for n in 0..50_000 {
        lab.pass(Side::Inside, &flood);
        if n % 500 == 0 {
            lab.pass(Side::Inside, &probe);
            probes += 1;
        }
        lab.wait(std::time::Duration::from_micros(200));
        for (_, _, sent) in lab.sent.drain(..) {
            let to_the_victim = sent[16..20] == [10, 0, 0, 5];
            to_victim += u32::from(to_the_victim);
            to_flooder += u32::from(!to_the_victim);
        }
    }
    println!("{to_flooder} of 50,000 to the flooder, {to_victim} of {probes} to the victim");
    assert_eq!(to_victim, probes);
    assert!(to_flooder <= 125 * 11, "a quarter of the ration");
}

/// A ping is answered by as many bytes, and never to an address that cannot have sent it.
#[test]
fn pings_do_not_amplify() {
    let mut lab = Lab::new(&config());
    for len in [0, 1, 56, 1472] {
        let request = icmp("198.51.100.66", "192.0.2.254", 8, 0, &vec![7; 4 + len]);
        let (verdict, reply) = lab.pass(Side::Outside, &request);
        assert_eq!((verdict, reply.len()), (Verdict::Reply(Side::Outside), request.len()));
    }
    for source in ["255.255.255.255", "224.0.0.1", "127.0.0.1", "0.0.0.0"] {
        let reason = lab.refused(Side::Outside, &ping(source, "192.0.2.254", 7));
        assert_eq!(reason, DropReason::MartianSource);
    }
}
