//! Packets that are longer than the MTU of their outgoing side: they leave in fragments that a
//! receiver can tell from those of other subscribers.

use crate::world::*;
use natgate_engine::{Direction, DropReason, Outcome};
use natgate_gateway::Settings;
use natgate_wire::link::ETHERNET_LEN;
use natgate_wire::{Ipv4, Udp};
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::time::Duration;

const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 6);

/// MTU of the narrow side, bytes.
const MTU: u16 = 700;

/// Identification that every sender here uses.
const SENDERS: u16 = 0x0101;

/// Settings whose outside carries less than the inside.
fn narrow() -> Settings {
    let mut settings = settings();
    settings.outside.mtu = MTU;
    settings.engine.outside.mtu = Some(MTU);
    settings
}

fn with_fields(mut packet: Vec<u8>, identification: u16, fragment: u16) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut packet[..]).expect("a packet");
    header.set_identification(identification);
    header.set_fragment_field(fragment);
    header.fill_checksum();
    packet
}

/// A datagram that needs three fragments.
fn long(from: Ipv4Addr) -> Vec<u8> {
    with_fields(udp((from, 4000), (REMOTE, 53), &[0x5a; 1400]), SENDERS, 0)
}

fn acquainted(settings: &Settings) -> World {
    let mut world = World::with(settings);
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first")));
    let packet = world.next_outside();
    let port = Udp::new_checked(view(&packet).payload()).expect("UDP").source_port();
    world.outside.send(&to_outside(&udp((REMOTE, 53), (EXTERNAL, port), b"reply")));
    world.next_inside();
    world
}

fn packets(world: &mut World) -> Vec<Vec<u8>> {
    world.turn();
    let frames = std::iter::from_fn(|| world.outside.take());
    frames.map(|frame| frame[ETHERNET_LEN..].to_vec()).collect()
}

/// Joins fragments that came in order; returns their identification and the datagram's payload.
fn reassemble(fragments: &[Vec<u8>]) -> (u16, Vec<u8>) {
    let identification = view(&fragments[0]).identification();
    let mut payload = Vec::new();
    for (number, fragment) in fragments.iter().enumerate() {
        let packet = view(fragment);
        assert!(fragment.len() <= MTU.into() && packet.checksum_valid());
        assert_eq!(packet.source(), EXTERNAL.to_bits());
        assert_eq!(packet.identification(), identification);
        assert_eq!(packet.fragment_offset(), payload.len());
        assert_eq!(packet.more_fragments(), number + 1 < fragments.len());
        payload.extend(packet.payload());
    }
    (identification, payload)
}

//= test rfc5508#section-7.1.1-fragment
//= test rfc6864#section-5.3.1
//= test rfc6864#section-4.3-unique
//= test rfc1812#section-4.2.2.7
//= test rfc1812#section-4.2.2.7-few
//= test rfc1812#section-4.2.2.7-order
#[test]
fn datagrams_that_are_cut_get_identifications_of_the_external_addresss_own() {
    let mut world = acquainted(&narrow());
    let mut seen = HashSet::new();
    for round in 0..200 {
        let from = if round % 2 == 0 { SUBSCRIBER } else { OTHER };
        world.inside.send(&to_inside(&long(from)));
        let fragments = packets(&mut world);
        assert_eq!(fragments.len(), 3);
        let (identification, payload) = reassemble(&fragments);
        assert!(seen.insert(identification), "{identification} came twice");
        assert!(payload[8..] == [0x5a; 1400]);
    }
    assert_eq!(world.packets(Direction::Outbound, Outcome::Forwarded), 201);
    // Datagrams that fit keep the sender's identification.
    let short = udp((SUBSCRIBER, 4000), (REMOTE, 53), &[0x5a; 600]);
    world.inside.send(&to_inside(&with_fields(short, SENDERS, 0)));
    let sent = packets(&mut world);
    assert_eq!((sent.len(), view(&sent[0]).identification()), (1, SENDERS));
}

//= test rfc6864#section-5.2
#[test]
fn who_has_used_up_his_identifications_is_dropped_and_counted() {
    let mut world = acquainted(&narrow());
    let mut passed = 0_u32;
    while world.drops(DropReason::FragmentLimit) == 0 {
        world.inside.send(&to_inside(&long(SUBSCRIBER)));
        passed += u32::from(!packets(&mut world).is_empty());
        assert!(passed <= 65_536, "an identification came twice");
    }
    // A quarter of all identifications: other subscribers get theirs.
    assert_eq!(passed, 65_536 / 4);
    assert_eq!(world.packets(Direction::Outbound, Outcome::Dropped), 1);
    world.inside.send(&to_inside(&long(OTHER)));
    assert_eq!(packets(&mut world).len(), 3);
    world.pass(Duration::from_secs(30));
    packets(&mut world);
    world.inside.send(&to_inside(&long(SUBSCRIBER)));
    assert_eq!(packets(&mut world).len(), 3);
}

#[test]
fn fragments_are_cut_further_and_keep_their_datagram() {
    let mut world = acquainted(&narrow());
    let whole = with_fields(udp((SUBSCRIBER, 4000), (REMOTE, 53), &[0x5a; 2792]), SENDERS, 0);
    let half = |from: usize, to: usize, more: u16| {
        let mut bytes = [&whole[..20], &whole[20 + from..20 + to]].concat();
        let len = bytes.len() as u16;
        Ipv4::new_header_checked(&mut bytes[..]).expect("a header").set_total_len(len);
        with_fields(bytes, SENDERS, more | (from / 8) as u16)
    };
    world.inside.send(&to_inside(&half(0, 1400, 0x2000)));
    world.inside.send(&to_inside(&half(1400, 2800, 0)));
    let fragments = packets(&mut world);
    assert_eq!(fragments.len(), 6);
    let (identification, payload) = reassemble(&fragments);
    assert_ne!(identification, SENDERS);
    assert!(payload.len() == 2800 && payload[8..] == [0x5a; 2792]);
}

#[test]
fn what_comes_from_outside_keeps_its_senders_identification() {
    let mut settings = settings();
    settings.inside.mtu = MTU;
    settings.engine.inside.mtu = Some(MTU);
    let mut world = World::with(&settings);
    world.inside.send(&to_inside(&udp((SUBSCRIBER, 4000), (REMOTE, 53), b"first")));
    let packet = world.next_outside();
    let port = Udp::new_checked(view(&packet).payload()).expect("UDP").source_port();
    let answer = udp((REMOTE, 53), (EXTERNAL, port), &[0x5a; 1400]);
    world.outside.send(&to_outside(&with_fields(answer, SENDERS, 0)));
    for offset in [0, 680, 1360] {
        let fragment = world.next_inside();
        let packet = view(&fragment);
        assert_eq!((packet.identification(), packet.fragment_offset()), (SENDERS, offset));
        assert!(fragment.len() <= MTU.into());
    }
}

//= test rfc6864#section-4.3-df
//= test rfc6864#section-4.3-clear
#[test]
fn what_must_not_be_cut_is_answered_by_the_translator() {
    let mut world = acquainted(&narrow());
    world.inside.send(&to_inside(&with_fields(long(SUBSCRIBER), SENDERS, 0x4000)));
    assert_eq!(view(&world.next_inside()).payload()[..2], [3, 4]);
    assert_eq!(world.drops(DropReason::TooBig), 1);
    assert_eq!(packets(&mut world), [] as [Vec<u8>; 0]);
}
