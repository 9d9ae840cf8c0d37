//! Calls of PPTP with several workers: whichever worker a packet comes to, it reaches its call.

use crate::team::{Team, halves, subscriber, with_pool};
use crate::world::*;
use natgate_gateway::{AlgKind, Settings};
use natgate_wire::protocol::{GRE, TCP};
use natgate_wire::{Ipv4, checksum};
use std::collections::HashSet;
use std::net::Ipv4Addr;

pub(crate) const SYN: u8 = 2;
pub(crate) const ACK: u8 = 16;
const PPTP: u16 = 1723;

fn with_pptp(addresses: u8) -> Settings {
    let mut settings = with_pool(addresses, (1024, 65535));
    settings.alg.set(AlgKind::Pptp, vec![PPTP]);
    settings.alg.reserve(&mut settings.engine.limits);
    settings
}

type End = (Ipv4Addr, u16);

pub(crate) fn tcp(from: End, to: End, numbers: [u32; 2], flags: u8, data: &[u8]) -> Vec<u8> {
    let mut tcp = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    tcp.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(data);
    let (near, far) = (from.0.to_bits(), to.0.to_bits());
    let pseudo = checksum::pseudo_header(near, far, TCP, tcp.len() as u16);
    let sum = !checksum::fold(checksum::sum(&tcp, pseudo));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(TCP, from.0, to.0, &tcp)
}

fn message(kind: u16, len: u16, words: &[u16]) -> Vec<u8> {
    let mut bytes = [len, 1, 0x1a2b, 0x3c4d, kind, 0].map(u16::to_be_bytes).concat();
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(len.into(), 0);
    bytes
}

fn gre(from: Ipv4Addr, to: Ipv4Addr, call: u16) -> Vec<u8> {
    let payload = [0x3001, 0x880b, 0, call, 0, 1].map(u16::to_be_bytes).concat();
    ip(GRE, from, to, &payload)
}

fn call_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[26], packet[27]])
}

/// The only packet of a protocol.
fn one(packets: Vec<Vec<u8>>) -> Vec<u8> {
    let [packet] = &packets[..] else { panic!("{packets:?}") };
    packet.clone()
}

/// A client places a call with number 1; the server has number `peer`. Returns the external address
/// and the external number.
fn call(team: &mut Team, host: Ipv4Addr, peer: u16) -> (Ipv4Addr, u16) {
    let (client, server) = ((host, 4000), (REMOTE, PPTP));
    let syn = one(team.send_inside(&tcp(client, server, [1, 0], SYN, &[])).outside);
    let external = Ipv4Addr::from_bits(view(&syn).source());
    let external = (external, u16::from_be_bytes([syn[20], syn[21]]));
    one(team.send_outside(&tcp(server, external, [9, 2], SYN | ACK, &[])).inside);
    let request = message(7, 168, &[1, 1]);
    let sent = tcp(client, server, [2, 10], ACK, &request);
    let heard = one(team.send_inside(&sent).outside);
    let outer = u16::from_be_bytes([heard[52], heard[53]]);
    let reply = message(8, 32, &[peer, outer, 0x100]);
    let heard = one(team.send_outside(&tcp(server, external, [10, 170], ACK, &reply)).inside);
    assert_eq!(heard[40..], message(8, 32, &[peer, 1, 0x100]));
    (external.0, outer)
}

#[test]
fn packets_of_calls_reach_the_worker_of_their_subscriber() {
    for (workers, addresses) in [(2, 2), (2, 1), (3, 1), (5, 1)] {
        let mut team = Team::new(&with_pptp(addresses), workers);
        let mut externals = HashSet::new();
        for number in 0..24 {
            let (host, peer) = (subscriber(number), 500 + number as u16);
            let (external, outer) = call(&mut team, host, peer);
            assert!(externals.insert((external, outer)), "two calls have one number");
            for _ in 0..workers {
                let out = one(team.send_inside(&gre(host, REMOTE, peer)).outside);
                assert_eq!(view(&out).source(), external.to_bits());
                assert_eq!(call_of(&out), peer);
                let packet = gre(REMOTE, external, outer);
                let back = one(team.send_outside(&packet).inside);
                assert_eq!((view(&back).destination(), call_of(&back)), (host.to_bits(), 1));
            }
        }
        let mappings = team.mappings();
        assert!(mappings.iter().all(|of_one| !of_one.is_empty()), "all have something to do");
    }
}

/// A packet of 112 bytes behind its IPv4 header.
fn longer(mut packet: Vec<u8>) -> Vec<u8> {
    let (from, to) = (view(&packet).source(), view(&packet).destination());
    packet.resize(132, 7);
    ip(GRE, Ipv4Addr::from_bits(from), Ipv4Addr::from_bits(to), &packet[20..])
}

/// Both fragments of packets from the server reach the host, whichever comes first, and to
/// whichever worker.
fn fragments_reach(team: &mut Team, host: Ipv4Addr, packet: &[u8], id: u16) {
    for round in 0..6 {
        let mut parts = halves(packet, id + round);
        if round % 2 == 1 {
            parts.reverse();
        }
        let heard = parts.map(|part| team.send_outside(&part).inside).concat();
        assert_eq!(heard.len(), 2, "{host}, round {round}");
        assert!(heard.iter().all(|part| view(part).destination() == host.to_bits()));
    }
}

#[test]
fn fragments_of_calls_and_of_plain_gre_follow_the_first_one() {
    for workers in [2, 3, 5] {
        let mut team = Team::new(&with_pptp(1), workers);
        for number in 0..12 {
            let (host, peer) = (subscriber(number), 500 + number as u16);
            let (external, outer) = call(&mut team, host, peer);
            let packet = longer(gre(REMOTE, external, outer));
            fragments_reach(&mut team, host, &packet, number as u16 * 100);
            let plain = Ipv4Addr::new(192, 0, 2, 100 + number as u8);
            let out = one(team.send_inside(&ip(GRE, host, plain, &[0; 20])).outside);
            let external = Ipv4Addr::from_bits(view(&out).source());
            fragments_reach(&mut team, host, &ip(GRE, plain, external, &[0; 112]), 5);
        }
        team.nothing_is_under_way();
    }
}

#[test]
fn a_mapping_of_another_worker_does_not_take_the_packets_of_a_call() {
    let mut team = Team::new(&with_pptp(1), 3);
    // Plain GRE of a subscriber of each worker, to servers of its own and then to the same one.
    for number in 0..12 {
        team.send_inside(&gre(subscriber(100 + number), REMOTE, 9));
    }
    for number in 0..12 {
        let host = subscriber(number);
        let (external, outer) = call(&mut team, host, 500 + number as u16);
        for _ in 0..3 {
            let back = one(team.send_outside(&gre(REMOTE, external, outer)).inside);
            assert_eq!((view(&back).destination(), call_of(&back)), (host.to_bits(), 1));
        }
    }
    // A number without a call is of the mapping by address, as without PPTP.
    let unknown = (1..=u16::MAX).find(|outer| outer % 64 == 40).unwrap();
    let back = one(team.send_outside(&gre(REMOTE, EXTERNAL, unknown)).inside);
    assert_eq!(call_of(&back), unknown);
}

#[test]
fn errors_about_packets_of_calls_reach_their_worker() {
    let mut team = Team::new(&with_pptp(1), 3);
    for number in 0..6 {
        let (host, peer) = (subscriber(number), 500 + number as u16);
        let (external, _) = call(&mut team, host, peer);
        let sent = one(team.send_inside(&gre(host, REMOTE, peer)).outside);
        for _ in 0..3 {
            let mut error = vec![3, 4, 0, 0, 0, 0, 5, 0];
            error.extend(&sent);
            let sum = checksum::checksum(&error);
            error[2..4].copy_from_slice(&sum.to_be_bytes());
            let told = ip(natgate_wire::protocol::ICMP, REMOTE, external, &error);
            let told = one(team.send_outside(&told).inside);
            assert_eq!(view(&told).destination(), host.to_bits());
            assert_eq!(checksum::checksum(view(&told).payload()), 0);
            let quoted = Ipv4::new_header_checked(&told[28..]).unwrap();
            assert_eq!(quoted.source(), host.to_bits());
        }
    }
}
