//! Permitted senders and receivers (sections 3 and 4).

use crate::common::*;
use crate::world::*;
use natgate_engine::{DropReason, Side};

#[test]
fn own_and_external_addresses_are_no_sources() {
    let mut world = World::new();
    for source in ["10.0.0.1", "192.0.2.254", "203.0.113.1", "203.0.113.9"] {
        world.refuse_both(source, DropReason::SpoofedSource, |world, side| {
            // The destination differs from the source, because equal addresses are another fault.
            let to = if source == "203.0.113.1" { "203.0.113.9" } else { "203.0.113.1" };
            with_addresses(&world.good(side), Some(address(source)), Some(address(to)))
        });
    }
    world.finish();
}

#[test]
fn packets_between_the_wrong_parties_are_dropped() {
    let mut world = World::new();
    let cases = [
        ("no subscriber", Side::Inside, "9.9.9.9:1", REMOTE, DropReason::NotSubscriber),
        ("its own network", Side::Inside, INNER, "10.0.0.6:1", DropReason::SameSide),
        (
            "the gateway, from inside",
            Side::Inside,
            INNER,
            "10.0.0.1:53",
            DropReason::LocalUnsupported,
        ),
        ("its far side", Side::Inside, INNER, "192.0.2.254:53", DropReason::LocalUnsupported),
        ("the gateway", Side::Outside, REMOTE, "192.0.2.254:53", DropReason::LocalUnsupported),
        ("a subscriber", Side::Outside, REMOTE, INNER, DropReason::NotForUs),
        ("its inner side", Side::Outside, REMOTE, "10.0.0.1:53", DropReason::NotForUs),
        ("another network", Side::Outside, REMOTE, "192.0.2.9:1", DropReason::NotForUs),
        ("an unused port", Side::Outside, REMOTE, "203.0.113.1:1023", DropReason::NoMapping),
        ("an unused static port", Side::Outside, REMOTE, "203.0.113.9:81", DropReason::NoMapping),
    ];
    for (name, side, from, to, reason) in cases {
        world.refuse(name, side, &udp(from, to), reason);
        world.refuse(name, side, &tcp(from, to, "SA", 1, 1), reason);
    }
    world.finish();
}

#[test]
fn the_gateway_answers_nothing_but_good_pings() {
    let mut world = World::new();
    for (side, from, to) in
        [(Side::Inside, "10.0.0.5", "10.0.0.1"), (Side::Outside, "192.0.2.9", "192.0.2.254")]
    {
        let request = ping(from, to, 7);
        // All fragments except the last have payloads of multiples of eight bytes.
        let padded = shortened(&[&request[..], &[0; 11]].concat(), 36);
        let cases = [
            ("wrong checksum", with(&request, 22, !request[22])),
            ("a fragment", with(&padded, 6, 0x20)),
            ("a reply", icmp(from, to, 0, 0, &[0; 4])),
            ("a timestamp request", icmp(from, to, 13, 0, &[0; 16])),
            ("an error", error(from, to, 3, 3, &world.good(side))),
        ];
        for (name, bytes) in cases {
            world.refuse(name, side, &bytes, DropReason::LocalUnsupported);
        }
    }
    world.finish();
}

#[test]
fn only_a_bare_syn_opens_a_connection() {
    let mut world = World::new();
    const LETTERS: [(u8, char); 5] = [(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (16, 'A')];
    for bits in 0..32_u8 {
        let flags: String =
            LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, letter)| letter).collect();
        if bits & 0b10111 == 0b00010 {
            continue;
        }
        let external = world.tcp.clone();
        let cases = [
            ("no mapping", Side::Inside, "10.0.0.6:1", REMOTE, DropReason::TcpNotSyn),
            ("no session", Side::Inside, INNER, "192.0.2.9:1", DropReason::TcpNotSyn),
            ("no session", Side::Outside, "192.0.2.9:1", &external, DropReason::TcpNotSyn),
            ("static", Side::Outside, REMOTE, "203.0.113.9:80", DropReason::TcpNotSyn),
            ("no mapping", Side::Outside, REMOTE, "203.0.113.1:1023", DropReason::NoMapping),
        ];
        for (name, side, from, to, reason) in cases {
            world.refuse(&format!("{flags} {name}"), side, &tcp(from, to, &flags, 9, 9), reason);
        }
    }
    world.finish();
}
