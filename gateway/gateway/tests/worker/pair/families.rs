//! Hosts of NAT64 and DS-Lite, whose packets come to either node. Each node has numbers of its own
//! for them.

use super::*;
use crate::nat64::{datagram, frame, settings_with_pcp};
use crate::tunnels::{B4S, INNER, tunnel_settings, tunneled};
use natgate_gateway::Settings;
use natgate_wire::Ipv6;
use natgate_wire::link::ETHERNET_LEN;

const HOSTS: [&str; 2] = ["2001:db8:1::5", "2001:db8:1::6"];
/// The remote host, as those of NAT64 know it.
const REMOTE6: &str = "64:ff9b::c000:209";

fn of_pair(mut settings: Settings) -> Settings {
    settings.engine.pools = pair_settings().engine.pools;
    settings
}

fn packet_of(host: usize, is_tunneled: bool, port: u16) -> Vec<u8> {
    match is_tunneled {
        true => tunneled(B4S[host], &udp((INNER, 4000), (REMOTE, port), b"question")),
        false => frame(&datagram((HOSTS[host], 4000), (REMOTE6, port), b"question")),
    }
}

#[test]
fn packets_of_hosts_with_numbers_leave_by_the_owner() {
    for (is_tunneled, counts) in [false, true].into_iter().flat_map(|is| COUNTS.map(|it| (is, it)))
    {
        let settings = if is_tunneled { tunnel_settings() } else { settings_with_pcp() };
        let mut pair = Pair::with(of_pair(settings), counts, ["a", "b"]);
        let mut externals = Vec::new();
        for (host, node) in [(0, A), (1, B)] {
            let frame = packet_of(host, is_tunneled, 53);
            // A worker without ports borrows some first.
            let out =
                (0..4).map(|_| pair.send_frame(node, true, &frame)).find(|out| !out.is_empty());
            let out = out.expect("it leaves");
            let (by, is_inside, packet) = one(&out).expect("it leaves");
            assert_eq!((*by, *is_inside), (node, false), "{counts:?}");
            externals.push(source(packet));
        }
        pair.run(3000);
        for (host, owner) in [(0, A), (1, B)] {
            let other = 1 - owner;
            // A known session, and a further one.
            for port in [53, 54] {
                let out = pair.send_frame(other, true, &packet_of(host, is_tunneled, port));
                let (by, _, packet) = one(&out).expect("it leaves");
                assert_eq!((*by, source(packet)), (owner, externals[host]), "{counts:?}");
                assert!(udp_valid(packet));
            }
            let out = pair.send(other, false, &reply(externals[host]));
            let (by, is_inside, packet) = one(&out).expect("it comes");
            assert_eq!((*by, *is_inside), (owner, true), "{counts:?}");
            let header = Ipv6::new_checked(&packet[..]).expect("a packet of IPv6");
            let to = if is_tunneled { B4S[host] } else { HOSTS[host] };
            assert_eq!(header.destination(), to.parse::<std::net::Ipv6Addr>().unwrap().to_bits());
            assert!(packet.ends_with(b"reply"));
        }
        for node in [A, B] {
            let counters = pair.counters(node);
            assert_eq!((counters.passed, counters.unknown), ([2, 1, 0], 0), "{counts:?}");
        }
        // The owner's timers have seen all of it.
        pair.run(280_000);
        for (host, owner) in [(0, A), (1, B)] {
            let out = pair.send_frame(1 - owner, true, &packet_of(host, is_tunneled, 53));
            assert_eq!(one(&out).map(|(by, ..)| *by), Some(owner));
        }
        pair.run(100_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (2, 2));
    }
}

#[test]
fn a_node_without_ports_of_its_own_passes_new_hosts_on() {
    for is_tunneled in [false, true] {
        let settings = if is_tunneled { tunnel_settings() } else { settings_with_pcp() };
        let mut pair = Pair::with(of_pair(settings), [1, 2], ["b", "b"]);
        let frame = packet_of(0, is_tunneled, 53);
        let out = (0..4).map(|_| pair.send_frame(A, true, &frame)).find(|out| !out.is_empty());
        let out = out.expect("it leaves");
        let (by, is_inside, packet) = one(&out).expect("it leaves");
        assert_eq!((*by, *is_inside), (B, false));
        assert!([OF_A, OF_B].contains(&source(packet).0));
    }
}

#[test]
fn tunnel_packets_that_come_in_pieces_leave_by_the_owner() {
    for counts in COUNTS {
        let mut pair = Pair::with(of_pair(tunnel_settings()), counts, ["a", "b"]);
        let frame = packet_of(0, true, 53);
        let out = (0..4).map(|_| pair.send_frame(A, true, &frame)).find(|out| !out.is_empty());
        let out = out.expect("it leaves");
        let external = source(&one(&out).expect("it leaves").2);
        pair.run(3000);
        let inner = udp((INNER, 4000), (REMOTE, 53), &[8; 600]);
        let mut out = Out::new();
        for (from, to) in [(0, 304), (304, inner.len())] {
            let field = (from as u16 | u16::from(to < inner.len())).to_be_bytes();
            let header = [4, 0, field[0], field[1], 0, 0, 0, 9];
            let mut piece = tunneled(B4S[0], &[&header[..], &inner[from..to]].concat());
            piece[ETHERNET_LEN + 6] = 44;
            out.extend(pair.send_frame(B, true, &piece));
        }
        let (by, is_inside, packet) = one(&out).expect("it leaves");
        assert_eq!((*by, *is_inside, source(packet)), (A, false, external), "{counts:?}");
        assert!(udp_valid(packet) && packet.ends_with(&[8; 600]));
        assert_eq!(pair.counters(B).passed, [1, 0, 0], "{counts:?}");
    }
}
