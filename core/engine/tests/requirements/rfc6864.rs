//! RFC 6864: the IPv4 identification. A NAT that shares an address among many hosts must not repeat
//! an identification while fragments live. The identification of a packet that is never fragmented
//! has no meaning.

use crate::common::*;
use crate::exchange::*;
use natgate_engine::{DropReason, Side, Verdict};
use natgate_wire::{Ipv4, protocol};
use std::collections::BTreeSet;

const MORE_FRAGMENTS: u16 = 0x2000;

fn view(bytes: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_checked(bytes).unwrap()
}

/// The two fragments of a datagram.
fn halves(datagram: &[u8], identification: u16, flags: u16) -> [Vec<u8>; 2] {
    let middle = 20 + (datagram.len() - 20) / 16 * 8;
    let part = |range: std::ops::Range<usize>, field| {
        let mut bytes = [&datagram[..20], &datagram[range]].concat();
        let total_len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
        with_fragment_field(&bytes, identification, flags | field)
    };
    [part(20..middle, MORE_FRAGMENTS), part(middle..datagram.len(), (middle as u16 - 20) / 8)]
}

/// Sends a datagram out in two fragments. Returns the identification of both translated fragments.
fn left_with(lab: &mut Lab, datagram: &[u8], identification: u16) -> u16 {
    let [first, last] = halves(datagram, identification, 0).map(|part| lab.out(&part));
    assert_eq!(view(&first).identification(), view(&last).identification());
    view(&first).identification()
}

//= test rfc6864#section-4.1-fragmentation-only
#[test]
fn section_4_1_identifications_do_not_tell_copies() {
    for protocol in PROTOCOLS {
        // The host repeats a packet, and sends other packets with the same identification, with and
        // without permission to fragment.
        for flags in [0, DONT_FRAGMENT] {
            let mut lab = Lab::new(&config());
            let sent = with_fragment_field(&request(protocol), 7, flags);
            let left = lab.out(&sent);
            for _ in 0..3 {
                assert_eq!(lab.out(&sent), left);
            }
            let came = with_fragment_field(&answer(&left), 7, flags);
            for _ in 0..3 {
                lab.inward(&came);
            }
        }
    }
}

//= test rfc6864#section-4.1-ignore
#[test]
fn section_4_1_atomic_datagrams_are_no_part_of_a_fragmented_one() {
    let mut lab = Lab::new(&config());
    let [first, last] = halves(&udp_with("10.0.0.5:4000", REMOTE, &[1; 64]), 7, 0);
    assert_eq!(lab.pass(Side::Inside, &last).0, Verdict::Held);
    for n in 0..50 {
        let atomic = with_fragment_field(&udp("10.0.0.5:4000", REMOTE), 7, DONT_FRAGMENT);
        let left = lab.out(&with_service(&atomic, n));
        assert_eq!(ends(&left).1, REMOTE);
        assert!(lab.sent.is_empty());
    }
    lab.out(&first);
    assert_eq!(lab.sent.len(), 1, "the last fragment has waited for its own first only");
}

//= test rfc6864#section-4.1-any
#[test]
fn section_4_1_own_packets_are_atomic() {
    let mut lab = Lab::new(&config());
    lab.refused(Side::Inside, &with_ttl(&udp("10.0.0.5:4000", REMOTE), 1));
    lab.refused(Side::Outside, &tcp(REMOTE, "203.0.113.1:2000", "S", 1, 0));
    lab.wait_s(7.0);
    assert_eq!(lab.sent.len(), 2);
    for (_, _, own) in &lab.sent {
        let own = view(own);
        assert!(own.dont_fragment() && !own.more_fragments() && own.fragment_offset() == 0);
    }
}

//= test rfc6864#section-4.2
#[test]
fn section_4_2_a_copy_gets_an_identification_of_its_own() {
    let mut lab = Lab::new(&config());
    let datagram = udp_with("10.0.0.5:4000", REMOTE, &[1; 64]);
    let used: BTreeSet<u16> = (0..1000).map(|_| left_with(&mut lab, &datagram, 7)).collect();
    assert_eq!(used.len(), 1000);
}

//= test rfc6864#section-4.3-unique
//= test rfc6864#section-5.3.1
#[test]
fn section_4_3_subscribers_who_share_an_address_do_not_share_identifications() {
    let mut lab = Lab::new(&config());
    let mut used = BTreeSet::new();
    // All hosts count identifications from the same number.
    for identification in 0..100 {
        for host in 5..25 {
            let from = format!("10.0.0.{host}:4000");
            let datagram = udp_with(&from, REMOTE, &[1; 64]);
            assert!(used.insert(left_with(&mut lab, &datagram, identification)));
        }
        lab.wait_s(0.1);
    }
}

//= test rfc6864#section-5.2
#[test]
fn section_5_2_who_would_repeat_an_identification_waits() {
    let mut lab = Lab::new(&config());
    let mut used = BTreeSet::new();
    let datagram =
        |n: u32| udp_with(&format!("10.0.{}.{}:4000", n % 20, 5 + n / 20 % 20), REMOTE, &[1; 16]);
    let refused = (0..70_000).find(|&n| {
        let [first, last] = halves(&datagram(n), n as u16, 0);
        let (verdict, left) = lab.pass(Side::Inside, &first);
        if verdict == Verdict::Drop(DropReason::FragmentLimit) {
            return true;
        }
        assert_eq!(verdict, Verdict::Forward(Side::Outside));
        lab.out(&last);
        assert!(used.insert(view(&left).identification()), "used twice within half a minute");
        false
    });
    assert!(refused.is_some_and(|n| n >= 1000), "{refused:?}");
    lab.wait_s(30.0);
    left_with(&mut lab, &datagram(0), 0);
}

//= test rfc6864#section-4.3-df
#[test]
fn section_4_3_what_may_not_be_fragmented_is_not() {
    let mut narrow = config();
    narrow.outside.mtu = Some(600);
    narrow.inside.mtu = Some(600);
    let mut lab = Lab::new(&narrow);
    let external = lab.external_of(&udp("10.0.0.5:4000", REMOTE));
    let long = |from: &str, to: &str| {
        with_fragment_field(&udp_with(from, to, &[1; 800]), 7, DONT_FRAGMENT)
    };
    for (side, packet) in [
        (Side::Inside, long("10.0.0.5:4000", REMOTE)),
        (Side::Outside, long(REMOTE, &external)),
        (Side::Inside, long("10.0.0.6:4000", &external)),
    ] {
        assert_eq!(lab.refused(side, &packet), DropReason::TooBig);
        // A fragment with that flag is dropped too.
        let [first, _] = halves(&[&packet[..], &[0; 800]].concat(), 8, DONT_FRAGMENT);
        assert_eq!(lab.refused(side, &first), DropReason::TooBig);
    }
}

//= test rfc6864#section-4.3-clear
#[test]
fn section_4_3_the_flag_that_forbids_fragments_stays() {
    for protocol in PROTOCOLS {
        let shape = |packet: &[u8]| with_fragment_field(packet, 7, DONT_FRAGMENT);
        let mut exchange = Exchange::shaped(&config(), protocol, shape);
        assert!(view(&exchange.left).dont_fragment() && view(&exchange.received).dont_fragment());
        for place in Place::ALL {
            let error = shape(&exchange.error(place, (3, 1), &exchange.about(place)));
            assert!(view(&exchange.forward(place, &error)).dont_fragment());
        }
    }
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
    for (side, from, to) in [
        (Side::Inside, "10.0.0.5:4000", REMOTE),
        (Side::Outside, REMOTE, external.as_str()),
        (Side::Inside, "10.0.0.5:4000", external.as_str()),
    ] {
        for part in halves(&udp_with(from, to, &[1; 64]), 9, DONT_FRAGMENT) {
            let (verdict, left) = lab.pass(side, &part);
            assert!(matches!(verdict, Verdict::Forward(_)));
            assert!(view(&left).dont_fragment());
        }
    }
    let (verdict, reply) = lab.pass(
        Side::Inside,
        &with_fragment_field(&ping("10.0.0.5", "10.0.0.1", 7), 9, DONT_FRAGMENT),
    );
    assert_eq!(verdict, Verdict::Reply(Side::Inside));
    assert!(view(&reply).dont_fragment());
    assert_eq!(view(&reply).protocol(), protocol::ICMP);
}
