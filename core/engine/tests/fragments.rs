//! Fragmented datagrams through the whole translator.

mod common;

use common::*;
use natgate_engine::{DropReason, Side, Verdict};
use natgate_wire::Ipv4;

/// Fragments of a datagram with `size` payload bytes each.
fn fragments(datagram: &[u8], identification: u16, size: usize) -> Vec<Vec<u8>> {
    let payload = &datagram[20..];
    let mut parts = Vec::new();
    for (n, part) in payload.chunks(size).enumerate() {
        let mut bytes = datagram[..20].to_vec();
        bytes.extend_from_slice(part);
        let more = (n + 1) * size < payload.len();
        let total_len = bytes.len() as u16;
        let mut packet = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
        packet.set_total_len(total_len);
        packet.set_identification(identification);
        packet.set_fragment_field(u16::from(more) << 13 | (n * size / 8) as u16);
        packet.fill_checksum();
        parts.push(bytes);
    }
    parts
}

fn reassemble(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut sorted = parts.to_vec();
    sorted.sort_by_key(|part| Ipv4::new_checked(&part[..]).unwrap().fragment_offset());
    let mut bytes = sorted[0][..20].to_vec();
    sorted.iter().for_each(|part| bytes.extend_from_slice(&part[20..]));
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
    packet.set_total_len(total_len);
    packet.set_fragment_field(0);
    packet.fill_checksum();
    bytes
}

fn long_udp(source: &str, destination: &str) -> Vec<u8> {
    udp_with(source, destination, &[7; 3000])
}

#[test]
fn fragments_in_any_order_get_the_firsts_rewrite() {
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let mut lab = Lab::new(&config());
        let parts = fragments(&long_udp("10.0.0.5:4000", REMOTE), 99, 1400);
        let mut out = Vec::new();
        for n in order {
            match lab.pass(Side::Inside, &parts[n]) {
                (Verdict::Held, _) => assert!(out.is_empty()),
                (verdict, bytes) => {
                    assert_eq!(verdict, Verdict::Forward(Side::Outside));
                    out.push(bytes);
                }
            }
            out.extend(lab.sent.drain(..).map(|(_, side, bytes)| {
                assert_eq!(side, Side::Outside);
                bytes
            }));
        }
        assert_eq!(out.len(), 3);
        let identifications: std::collections::BTreeSet<u16> =
            out.iter().map(|part| Ipv4::new_checked(&part[..]).unwrap().identification()).collect();
        assert_eq!(identifications.len(), 1);
        let (source, destination) = ends(&reassemble(&out));
        assert!(source.starts_with("203.0.113.1:") && destination == REMOTE);
        let reply = fragments(&long_udp(REMOTE, &source), 7, 1400);
        let back: Vec<_> = reply.iter().map(|part| lab.inward(part)).collect();
        assert_eq!(ends(&reassemble(&back)).1, "10.0.0.5:4000");
        let counters = lab.engine.counters();
        assert_eq!((counters.packets[0][0], counters.packets[1][0]), (3, 3));
    }
}

#[test]
fn fragments_without_a_first_are_given_up_in_time() {
    let mut lab = Lab::new(&config());
    let parts = fragments(&long_udp(REMOTE, "203.0.113.1:5000"), 99, 1400);
    assert_eq!(lab.pass(Side::Outside, &parts[1]).0, Verdict::Held);
    lab.wait_s(2.2);
    assert_eq!(lab.engine.counters().drops[DropReason::FragmentUnmatched as usize], 1);
    assert_eq!(lab.refused(Side::Outside, &parts[0]), DropReason::NoMapping);
    assert_eq!(lab.refused(Side::Outside, &parts[2]), DropReason::FragmentUnmatched);
}

#[test]
fn hairpinned_fragments_keep_their_way() {
    let mut lab = Lab::new(&config());
    let b = lab.external_of(&udp("10.0.0.6:5000", REMOTE));
    let parts = fragments(&long_udp("10.0.0.5:4000", &b), 99, 1400);
    let out: Vec<_> = parts
        .iter()
        .map(|part| {
            let (verdict, bytes) = lab.pass(Side::Inside, part);
            assert_eq!(verdict, Verdict::Forward(Side::Inside));
            bytes
        })
        .collect();
    assert_eq!(ends(&reassemble(&out)).1, "10.0.0.6:5000");
}
