//! ICMP: types, and embedded packets of errors (sections 3.7, 4.3 and 6).

use crate::common::*;
use crate::world::*;
use natgate_engine::{DropReason, Side};
use natgate_wire::{Icmp, protocol};

#[test]
fn icmp_types_that_are_not_translated_are_dropped() {
    let mut world = World::new();
    let known = [0, 3, 4, 8, 11, 12, 13, 14];
    for kind in (0..=255).filter(|kind| !known.contains(kind)) {
        world.refuse_both(&format!("type {kind}"), DropReason::IcmpUnsupported, |world, side| {
            sealed_icmp(with(&world.good_ping(side), 20, kind))
        });
    }
    // A redirect looks like an error about a live session, but no host may be told of it.
    world.refuse_both("redirect", DropReason::IcmpUnsupported, |world, side| {
        world.error(side, 5, |_| {})
    });
    world.finish();
}

#[test]
fn replies_need_a_mapping() {
    let mut world = World::new();
    for kind in [0, 14] {
        let reply = icmp("10.0.0.6", "198.51.100.7", kind, 0, &[0, 9, 0, 1]);
        world.refuse("reply from inside", Side::Inside, &reply, DropReason::NoMapping);
    }
    for kind in [0, 8, 13, 14] {
        let [high, low] = (world.ping ^ 1).to_be_bytes();
        let query = icmp("198.51.100.7", "203.0.113.1", kind, 0, &[high, low, 0, 1]);
        world.refuse("from outside", Side::Outside, &query, DropReason::NoMapping);
    }
    world.finish();
}

#[test]
fn cut_icmp_errors_are_dropped() {
    let mut world = World::new();
    for side in SIDES {
        for kind in [3, 4, 11, 12] {
            let whole = world.error(side, kind, |_| {});
            // Outer header 20, ICMP header 8, embedded header 20, embedded transport 8.
            for len in 20..56 {
                let reason = match len {
                    20..28 => DropReason::BadLength,
                    _ => DropReason::IcmpBadEmbedded,
                };
                let name = format!("type {kind} cut to {len}");
                let cut = sealed_icmp(shortened(&whole, len));
                world.refuse(&name, side, &cut, reason);
            }
            let least = sealed_icmp(shortened(&whole, 56));
            let after = world.forward("eight bytes of transport", side, &least);
            assert_eq!(after.len(), 56);
            ends(&after);
        }
    }
    world.finish();
}

#[test]
fn icmp_errors_that_embed_rubbish_are_dropped() {
    let mut world = World::new();
    let bad = DropReason::IcmpBadEmbedded;
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, DropReason, Change); 14] = [
        ("IPv6", bad, |about| about[0] = 0x65),
        ("four words", bad, |about| about[0] = 0x44),
        ("a header longer than what is there", bad, |about| about[0] = 0x4f),
        ("a total length below the header's", bad, |about| *about = with(about, 3, 19)),
        ("a later fragment", bad, |about| *about = with(about, 7, 1)),
        ("wrong header checksum", DropReason::IcmpBadChecksum, |about| about[10] ^= 1),
        ("wrong TTL", DropReason::IcmpBadChecksum, |about| about[8] ^= 1),
        ("an ICMP error", bad, |about| *about = as_icmp(about, 3)),
        ("a redirect", bad, |about| *about = as_icmp(about, 5)),
        ("an unknown ICMP type", bad, |about| *about = as_icmp(about, 42)),
        ("another port", DropReason::IcmpNoSession, |about| about[21] ^= 1),
        ("another remote port", DropReason::IcmpNoSession, |about| about[23] ^= 1),
        ("another protocol", DropReason::IcmpNoSession, |about| *about = with(about, 9, 47)),
        ("its own direction", DropReason::IcmpNoSession, |about| reverse(about)),
    ];
    for (name, reason, change) in cases {
        for kind in [3, 4, 11, 12] {
            world.refuse_both(name, reason, |world, side| world.error(side, kind, change));
        }
    }
    for at in [12, 16] {
        let name = format!("another address at {at}");
        world.refuse_both(&name, DropReason::IcmpNoSession, |world, side| {
            world.error(side, 3, |about| *about = with(about, at, 77))
        });
    }
    world.finish();
}

/// Turns an embedded packet into an ICMP message of some type.
fn as_icmp(about: &[u8], kind: u8) -> Vec<u8> {
    with(&with(about, 9, protocol::ICMP), 20, kind)
}

/// Exchanges the endpoints of an embedded packet.
fn reverse(about: &mut [u8]) {
    let (addresses, ports) = (about[12..20].to_vec(), about[20..24].to_vec());
    about[12..20].copy_from_slice(&[&addresses[4..], &addresses[..4]].concat());
    about[20..24].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
}

#[test]
fn a_wrong_icmp_checksum_of_an_error_is_seen_whatever_bit_is_wrong() {
    let mut world = World::new();
    let len = world.error(Side::Inside, 3, |_| {}).len();
    // The bits of the type would make another message of it.
    for at in 21..len {
        for bit in 0..8 {
            let name = format!("bit {bit} of byte {at}");
            world.refuse_both(&name, DropReason::IcmpBadChecksum, |world, side| {
                let mut bytes = world.error(side, 3, |_| {});
                bytes[at] ^= 1 << bit;
                bytes
            });
        }
    }
    world.finish();
}

/// Queries are not errors: the receiver checks their checksum.
#[test]
fn a_wrong_checksum_of_a_query_passes_and_stays_wrong() {
    let mut world = World::new();
    for side in SIDES {
        let good = world.good_ping(side);
        let bad = with(&good, 22, good[22] ^ 0x40);
        let after = world.forward("wrong checksum", side, &bad);
        assert!(!Icmp::new_checked(&after[20..]).unwrap().checksum_valid());
    }
    world.finish();
}
