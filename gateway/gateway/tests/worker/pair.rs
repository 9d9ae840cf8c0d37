//! Two gateways of a pair with all their parts, in virtual time. Packets come to either node, and
//! the owner of their slice translates them as long as it is there.

mod controls;
mod families;
mod histories;
mod nodes;

use crate::pptp::tcp;
use crate::world::*;
use natgate_engine::{
    AddressRange, Allocation, DeterministicConfig, DropReason, Match, PoolConfig, Prefix, Rule,
    RuleAction, Side, StaticMapping,
};
use natgate_gateway::Route;
use natgate_gateway::fleet::FleetRequest;
use natgate_wire::protocol::{ICMP, UDP};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Ipv4, checksum};
use nodes::*;
use std::net::Ipv4Addr;

fn one(out: &Out) -> Option<&(usize, bool, Vec<u8>)> {
    assert!(out.len() <= 1, "more than one packet: {out:?}");
    out.first()
}

fn ends(packet: &[u8], port: usize) -> u16 {
    let payload = view(packet).payload().get(port..port + 2).map(<[u8; 2]>::try_from);
    payload.and_then(Result::ok).map_or(0, u16::from_be_bytes)
}

fn source(packet: &[u8]) -> End {
    (Ipv4Addr::from_bits(view(packet).source()), ends(packet, 0))
}

fn destination(packet: &[u8]) -> End {
    (Ipv4Addr::from_bits(view(packet).destination()), ends(packet, 2))
}

/// The `number`th host.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 1, number)
}

fn question(from: End) -> Vec<u8> {
    udp(from, (REMOTE, 53), b"question")
}

fn reply(to: End) -> Vec<u8> {
    udp((REMOTE, 53), to, b"reply")
}

#[test]
fn packets_that_come_to_either_node_leave_by_the_owner() {
    for counts in COUNTS {
        let mut pair = Pair::new(counts);
        let mut flows = Vec::new();
        for number in 1..9 {
            let end = (host(number), 4000);
            let node = usize::from(number % 2);
            flows.push((node, end, pair.flow(node, end)));
        }
        pair.run(3000);
        for (owner, end, external) in flows {
            let other = 1 - owner;
            assert_eq!(pair.outbound(other, &question(end)), Some((owner, external)), "{counts:?}");
            assert_eq!(pair.inbound(other, &reply(external)), Some((owner, end)), "{counts:?}");
            // A session with another remote endpoint begins at the other node.
            let further = udp(end, (REMOTE, 54), b"x");
            assert_eq!(pair.outbound(other, &further), Some((owner, external)));
            let answer = udp((REMOTE, 54), external, b"x");
            assert_eq!(pair.inbound(owner, &answer), Some((owner, end)));
            // A further mapping of the subscriber has the same address.
            let new = pair.outbound(other, &question((end.0, 5000))).expect("it leaves");
            assert_eq!((new.0, new.1.0), (owner, external.0), "{counts:?}");
        }
        for node in [A, B] {
            let counters = pair.counters(node);
            assert_eq!(counters.passed, [12, 4, 0], "{counts:?}");
            assert_eq!((counters.taken, counters.foreign), ([12, 4, 0], 0), "{counts:?}");
            let status = pair.status(node);
            assert_eq!((status.slices[node].passes, status.slices[1 - node].passes), (false, true));
        }
    }
}

#[test]
fn a_flow_lives_whose_packets_from_inside_come_to_the_other_node_only() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    for _ in 0..20 {
        pair.run(100_000);
        assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
        assert_eq!(pair.inbound(B, &reply(external)), Some((A, end)));
    }
    assert_eq!((pair.mappings(A), pair.mappings(B)), (1, 1));
    pair.run(310_000);
    assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "the owner's timers end it");
}

/// Each packet of a connection comes to another node than the one before.
#[test]
fn the_owner_sees_a_connection_as_a_whole() {
    for (counts, begins) in [([1, 1], A), ([2, 2], A), ([1, 2], B)] {
        let mut pair = Pair::new(counts);
        let (end, server) = ((host(1), 4000), (REMOTE, 80));
        // The subscriber is known to be of `a`.
        pair.flow(A, (host(1), 3999));
        pair.run(3000);
        let (near, far) = (begins, 1 - begins);
        let segment = |numbers, flags| tcp(end, server, numbers, flags, b"");
        let syn = pair.begin(near, &segment([1, 0], SYN));
        assert_eq!((syn.0, syn.1.0), (A, OF_A), "a SYN makes its mapping at the owner");
        let back = |numbers, flags| tcp(server, syn.1, numbers, flags, b"");
        assert_eq!(pair.inbound(far, &back([9, 2], SYN | ACK)), Some((A, end)));
        assert_eq!(pair.outbound(near, &segment([2, 10], ACK)), Some(syn));
        pair.run(3000);
        assert_eq!(pair.outbound(far, &segment([2, 10], ACK | FIN)), Some(syn));
        assert_eq!(pair.inbound(near, &back([10, 3], ACK | FIN)), Some((A, end)));
        assert_eq!(pair.outbound(near, &segment([3, 11], ACK)), Some(syn));
        let both = (pair.mappings(A), pair.mappings(B));
        assert_eq!(both, (2, 2), "the connection, and the first flow");
        // A closed connection ends after minutes, one that lives after hours.
        pair.run(320_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "{counts:?}");
        // So does one that was reset at the other node.
        pair.flow(A, (host(2), 3999));
        pair.run(3000);
        let end = (host(2), 4000);
        let segment = |numbers, flags| tcp(end, server, numbers, flags, b"");
        let syn = pair.begin(A, &segment([1, 0], SYN));
        let back = |numbers, flags| tcp(server, syn.1, numbers, flags, b"");
        assert_eq!(pair.inbound(B, &back([9, 2], SYN | ACK)), Some((A, end)));
        assert_eq!(pair.outbound(A, &segment([2, 10], ACK)), Some(syn));
        assert_eq!(pair.inbound(B, &back([10, 2], RST | ACK)), Some((A, end)));
        pair.run(320_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "{counts:?}");
    }
}

#[test]
fn copies_translate_as_soon_as_the_owner_is_not_heard() {
    let mut pair = Pair::new([1, 2]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.end(A, false);
    pair.run(50);
    assert_eq!(pair.outbound(B, &question(end)), None, "it is lost with the owner");
    pair.run(100);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)), "the copy works");
    assert_eq!(pair.inbound(B, &reply(external)), Some((B, end)));
    let new = pair.outbound(B, &question((host(1), 4001))).expect("it leaves");
    assert_eq!((new.0, new.1.0), (B, OF_B), "in its own slice");
    // The node that comes back is not the owner any more.
    pair.start(A);
    pair.run(4000);
    assert_eq!(pair.outbound(A, &question(end)), Some((B, external)));
    assert_eq!(pair.inbound(A, &reply(external)), Some((B, end)));
}

#[test]
fn the_word_of_a_guardian_ends_the_tunnel_at_once() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.end(A, true);
    pair.run(4);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
}

#[test]
fn a_broken_link_and_an_older_partner_leave_the_copies_at_work() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.cable().is_cut = true;
    pair.run(200);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
    pair.cable().is_cut = false;
    pair.run(200);
    assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
    pair.cable().is_old = true;
    pair.run(200);
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
}

/// A node that cannot deliver packets takes none of the other one.
#[test]
fn a_failed_device_or_router_of_the_owner_leaves_the_copies_at_work() {
    /// The router outside, and an address behind it.
    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
    const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
    let mut settings = pair_settings();
    settings.outside.gateway = Some(ROUTER);
    let mut pair = Pair::with(settings, [2, 1], ["a", "b"]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    for side in [0, 1] {
        pair.nodes[A].as_ref().expect("it runs").wires[side].set_up(false);
        pair.run(1500);
        assert_eq!(pair.outbound(B, &question(end)), Some((B, external)));
        assert_eq!(pair.inbound(B, &reply(external)), Some((B, end)));
        pair.nodes[A].as_ref().expect("it runs").wires[side].set_up(true);
        pair.run(7000);
        pair.out.clear();
        assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
    }
    // A host outside that does not answer is no fault of the node, and a router is.
    for (silent, to, by) in [(Ipv4Addr::new(192, 0, 2, 99), None, A), (ROUTER, Some(FAR), B)] {
        pair.silent = Some(silent);
        assert_eq!(pair.outbound(A, &udp(end, (to.unwrap_or(silent), 53), b"lost")), None);
        pair.run(4000);
        // The host has been told.
        pair.out.clear();
        assert_eq!(pair.outbound(B, &question(end)), Some((by, external)), "{silent}");
    }
    pair.run(7000);
    pair.out.clear();
    assert_eq!(pair.outbound(B, &question(end)), Some((B, external)), "it is silent yet");
    pair.silent = None;
    pair.run(7000);
    pair.out.clear();
    assert_eq!(pair.outbound(B, &question(end)), Some((A, external)));
}

/// A host inside sends packets by a route whose router has gone.
#[test]
fn one_silent_router_of_several_does_not_end_the_tunnel() {
    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
    const GONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 253);
    for (counts, is_used) in [([1, 1], true), ([2, 1], true), ([1, 1], false)] {
        let mut settings = pair_settings();
        settings.outside.gateway = Some(ROUTER);
        let prefix = Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24);
        settings.routes.push(Route { prefix, via: GONE, side: Side::Outside });
        let mut pair = Pair::with(settings, counts, ["a", "b"]);
        let flows: Vec<(End, End)> =
            (1..5).map(|number| (host(number), 4000)).map(|end| (end, pair.flow(A, end))).collect();
        // One worker knows the router that answers, or asks for it when it finds the other silent.
        let (end, external) = flows[0];
        let far = udp(end, (Ipv4Addr::new(198, 18, 0, 1), 53), b"far");
        if is_used {
            assert_eq!(pair.outbound(A, &far), Some((A, external)));
        }
        pair.run(3000);
        pair.silent = Some(GONE);
        for (end, _) in &flows {
            let lost = udp(*end, (Ipv4Addr::new(198, 51, 100, 1), 53), b"lost");
            assert_eq!(pair.outbound(A, &lost), None);
        }
        for _ in 0..40 {
            pair.run(100);
            let passes = pair.status(B).slices[0].passes;
            assert!(passes || !is_used, "{counts:?}: A is there");
        }
        for (end, external) in flows {
            assert_eq!(pair.outbound(B, &question(end)), Some((A, external)), "{counts:?}");
        }
    }
}

#[test]
fn packets_of_an_earlier_epoch_are_refused_and_counted() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.cable().is_slow = true;
    assert_eq!(pair.outbound(B, &question(end)), None);
    let late: Vec<_> = pair.cable().packets[A].drain(..).collect();
    pair.cable().is_slow = false;
    pair.ask(A, FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(2000);
    assert_eq!(pair.status(B).slices[0].role, "owner");
    pair.out.clear();
    pair.cable().packets[A].extend(late.iter().cloned());
    pair.run(30);
    let out = std::mem::take(&mut pair.out);
    let (by, _, packet) =
        one(&out).expect("it was on its way in the move: the copies translate it");
    assert_eq!((*by, source(packet), pair.counters(A).foreign), (A, external, 0));
    // The former owner passes on to the new one. The epoch of its packets is the new one.
    assert_eq!(pair.outbound(A, &question(end)), Some((B, external)));
    pair.cable().packets[B].extend(late.iter().cloned());
    pair.run(30);
    assert_eq!(pair.counters(B).foreign, 1, "the slice is its own, in another epoch");
    pair.ask(B, FleetRequest::Drain("b".into())).expect("it drains");
    pair.run(2000);
    assert_eq!(pair.status(A).slices[0].role, "owner");
    pair.cable().packets[A].extend(late);
    pair.run(30);
    assert_eq!(pair.counters(A).foreign, 1);
    assert!(pair.out.is_empty(), "{:?}", pair.out);
}

#[test]
fn a_planned_move_loses_no_packet() {
    for node in [A, B] {
        let mut pair = Pair::new([1, 1]);
        let end = (host(1), 4000);
        let external = pair.flow(A, end);
        pair.run(3000);
        pair.ask(A, FleetRequest::Drain("a".into())).expect("it drains");
        for turn in 0..400 {
            pair.nodes[node].as_ref().expect("it runs").wires[0].send(&to_inside(&question(end)));
            pair.run(4);
            if turn == 200 {
                assert_eq!(pair.status(B).slices[0].role, "owner");
            }
        }
        pair.run(100);
        let out = std::mem::take(&mut pair.out);
        assert!(out.iter().all(|(_, _, packet)| source(packet) == external));
        assert_eq!(out.len(), 400, "{:?}", pair.counters(A));
        assert_eq!(pair.counters(A).foreign, 0);
        let last = out.last().expect("there are some");
        assert_eq!(last.0, B);
    }
}

#[test]
fn hosts_of_both_nodes_reach_each_other() {
    for counts in COUNTS {
        let mut pair = Pair::new(counts);
        let (one, two) = ((host(1), 4000), (host(2), 4000));
        let (external_one, external_two) = (pair.flow(A, one), pair.flow(B, two));
        pair.run(3000);
        for node in [A, B] {
            let ways = [
                (one, external_two, external_one, two, B),
                (two, external_one, external_two, one, A),
            ];
            for (from, to, seen, receiver, by) in ways {
                let out = pair.send(node, true, &udp(from, to, b"hairpin"));
                let (came_by, is_inside, packet) = super::pair::one(&out).expect("it comes");
                assert_eq!((*came_by, *is_inside), (by, true), "{counts:?}");
                assert_eq!((source(packet), destination(packet)), (seen, receiver));
                assert!(udp_valid(packet));
                assert_eq!(view(packet).ttl(), 63, "that is one hop");
            }
        }
        // Hosts of one node.
        let three = (host(3), 4000);
        let external_three = pair.flow(A, three);
        pair.run(3000);
        for node in [A, B] {
            let out = pair.send(node, true, &udp(three, external_one, b"hairpin"));
            let (by, _, packet) = super::pair::one(&out).expect("it comes");
            assert_eq!((*by, source(packet), destination(packet)), (A, external_three, one));
        }
    }
}

fn fragment(packet: &[u8], from: usize, to: usize) -> Vec<u8> {
    let header = view(packet);
    let payload = header.payload();
    let part = &payload[from..to.min(payload.len())];
    let (near, far) = (Ipv4Addr::from_bits(header.source()), header.destination());
    let mut bytes = ip(header.protocol(), near, Ipv4Addr::from_bits(far), part);
    let mut piece = Ipv4::new_checked(&mut bytes[..]).expect("a packet");
    piece.set_identification(77);
    let more = if to < payload.len() { 0x2000 } else { 0 };
    piece.set_fragment_field(more | (from / 8) as u16);
    piece.fill_checksum();
    bytes
}

#[test]
fn fragments_of_a_datagram_go_the_same_way() {
    for counts in [[1, 1], [2, 2]] {
        let mut pair = Pair::new(counts);
        let end = (host(1), 4000);
        let external = pair.flow(A, end);
        pair.run(3000);
        let outbound = udp(end, (REMOTE, 53), &[5; 1400]);
        let inbound = udp((REMOTE, 53), external, &[6; 1400]);
        for (is_inside, whole) in [(true, outbound), (false, inbound)] {
            for order in [[0, 1], [1, 0]] {
                let mut out = Out::new();
                for place in order {
                    let piece = fragment(&whole, 800 * place, 800 * (place + 1));
                    out.extend(pair.send(B, is_inside, &piece));
                }
                assert_eq!(out.len(), 2, "{counts:?}: {out:?}");
                assert!(out.iter().all(|(by, ..)| *by == A));
                let ports = out.iter().filter(|(.., packet)| {
                    source(packet) == external || destination(packet) == end
                });
                assert_eq!(ports.count(), 1, "the first one has the ports");
                // Otherwise the same identification would be of one datagram.
                pair.run(70_000);
                assert_eq!(pair.outbound(A, &question(end)), Some((A, external)));
            }
        }
    }
}

/// A rule looks at ports, which not all fragments have: its pool may be of the other node or not.
#[test]
fn fragments_stay_if_a_rule_by_port_may_choose_a_pool_of_this_node() {
    for (owners, owner) in [(["a", "b"], B), (["a", "a"], A)] {
        let mut settings = pair_settings();
        let pool = |address| {
            let addresses = vec![AddressRange { first: address, last: address }];
            PoolConfig { addresses, ..settings.engine.pools[0].clone() }
        };
        let web = PoolConfig { name: "web".into(), ..pool(OF_B) };
        settings.engine.pools = vec![pool(OF_A), web];
        let all = Prefix::new(Ipv4Addr::UNSPECIFIED, 0);
        settings.engine.rules = vec![Rule::new(Match::Destination(all, 80), RuleAction::Snat(1))];
        let mut pair = Pair::with(settings, [1, 1], owners);
        let end = (host(1), 4000);
        pair.flow(A, end);
        pair.run(3000);
        // Another endpoint than that of the flow, which has its mapping.
        let whole = udp((end.0, 5000), (REMOTE, 80), &[5; 1400]);
        let mut out = Out::new();
        for place in [0, 1] {
            out.extend(pair.send(B, true, &fragment(&whole, 800 * place, 800 * (place + 1))));
        }
        assert_eq!(out.len(), 2, "{owners:?}: {out:?}");
        assert!(out.iter().all(|(by, _, packet)| (*by, source(packet).0) == (owner, OF_B)));
    }
}

#[test]
fn the_end_of_a_mapping_of_a_static_address_is_told_to_the_partner() {
    let mut settings = pair_settings();
    settings.engine.statics = vec![StaticMapping {
        external: (OF_A, None),
        internal: (host(1), None),
        protocol: None,
        ..StaticMapping::default()
    }];
    for counts in [[1, 1], [2, 2]] {
        let mut pair = Pair::with(settings.clone(), counts, ["a", "b"]);
        let end = (host(1), 4000);
        assert_eq!(pair.begin(A, &question(end)), (A, (OF_A, 4000)));
        pair.run(3000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (1, 1), "{counts:?}");
        pair.run(310_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "{counts:?}");
    }
}

fn unreachable_port(from: Ipv4Addr, to: Ipv4Addr, about: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend(&about[..28]);
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(ICMP, from, to, &message)
}

#[test]
fn errors_reach_the_hosts_of_the_owner() {
    for counts in [[1, 1], [2, 2]] {
        let mut pair = Pair::new(counts);
        let end = (host(1), 4000);
        let external = pair.flow(A, end);
        pair.run(3000);
        let sent = udp(external, (REMOTE, 53), b"question");
        let out = pair.send(B, false, &unreachable_port(REMOTE, OF_A, &sent));
        let (by, is_inside, packet) = one(&out).expect("it comes");
        assert_eq!((*by, *is_inside, view(packet).destination()), (A, true, end.0.to_bits()));
        let got = udp((REMOTE, 53), end, b"reply");
        let out = pair.send(B, true, &unreachable_port(end.0, REMOTE, &got));
        let (by, is_inside, packet) = one(&out).expect("it comes");
        assert_eq!((*by, *is_inside, view(packet).source()), (A, false, OF_A.to_bits()));
        // The owner tells that the time of a packet has passed.
        let mut dying = question(end);
        let mut header = Ipv4::new_checked(&mut dying[..]).expect("a packet");
        header.set_ttl(1);
        header.fill_checksum();
        let out = pair.send(B, true, &dying);
        let (by, is_inside, packet) = one(&out).expect("it comes");
        assert_eq!((*by, *is_inside, view(packet).protocol()), (A, true, ICMP));
        // An echo, which has an identifier in place of ports.
        let ping = echo_request(end.0, REMOTE);
        let out = pair.send(B, true, &ping);
        let (by, _, packet) = one(&out).expect("it leaves");
        assert_eq!((*by, view(packet).source()), (A, OF_A.to_bits()));
    }
}

#[test]
fn a_node_without_ports_of_its_own_passes_new_subscribers_on() {
    for counts in COUNTS {
        let mut pair = Pair::with(pair_settings(), counts, ["a", "a"]);
        for number in 1..6 {
            let end = (host(number), 4000);
            let (by, external) = pair.begin(B, &question(end));
            assert_eq!(by, A, "{counts:?}");
            assert_eq!(pair.inbound(B, &reply(external)), Some((A, end)));
        }
        assert_eq!(pair.mappings(A), 5);
    }
}

#[test]
fn packets_that_are_longer_than_a_datagram_go_in_pieces() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    for len in [1000, 1050, 1100, 1472] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        let out = pair.send(B, true, &udp(end, (REMOTE, 53), &payload));
        let (by, _, packet) = one(&out).expect("it leaves");
        assert_eq!((*by, source(packet), packet.len()), (A, external, len + 28));
        assert!(udp_valid(packet) && packet.ends_with(&payload));
    }
    assert_eq!(pair.counters(B).passed, [4, 0, 0]);
}

/// A forged packet of the link, or one of a node that does not agree, goes no further.
#[test]
fn what_came_by_the_tunnel_is_not_passed_on_again() {
    let mut pair = Pair::new([1, 1]);
    let (one, two) = ((host(1), 4000), (host(2), 4000));
    let (external_one, _) = (pair.flow(A, one), pair.flow(B, two));
    pair.run(3000);
    pair.cable().is_slow = true;
    assert_eq!(pair.outbound(B, &question(one)), None);
    // The packet in the datagram becomes one of a host of `b`, with the slice of `a`.
    let is_packet = |datagram: &Vec<u8>| datagram.first() == Some(&1);
    let mut forged = pair.cable().packets[A].iter().find(|one| is_packet(one)).cloned().unwrap();
    let at = forged.len() - question(one).len();
    forged[at..].copy_from_slice(&question(two));
    let mut reply = forged[..at].to_vec();
    reply[at - 2] = 1;
    reply.extend(self::reply((OF_B, 2000)));
    pair.cable().packets[A].retain(|datagram| !is_packet(datagram));
    pair.cable().is_slow = false;
    let before = pair.counters(A);
    pair.cable().packets[A].extend([forged, reply]);
    pair.run(30);
    let after = pair.counters(A);
    assert_eq!((before.passed, before.foreign), (after.passed, after.foreign));
    assert_eq!(after.taken, [before.taken[0] + 1, before.taken[1] + 1, 0]);
    // The copy translates the one, and there is no mapping for the other.
    let out = std::mem::take(&mut pair.out);
    let (by, _, packet) = super::pair::one(&out).expect("one leaves");
    assert_eq!((*by, source(packet).0), (A, OF_B));
    assert_eq!(pair.outbound(B, &question(one)), Some((A, external_one)));
}

#[test]
fn a_full_tunnel_leaves_packets_to_the_copies() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    let external = pair.flow(A, end);
    pair.run(3000);
    pair.cable().is_slow = true;
    for _ in 0..WAITING / 32 + 4 {
        for _ in 0..32 {
            let frame = to_inside(&question(end));
            pair.nodes[B].as_ref().expect("it runs").wires[0].send(&frame);
        }
        pair.turn();
    }
    pair.cable().is_slow = false;
    pair.run(200);
    let out = std::mem::take(&mut pair.out);
    assert!(out.iter().all(|(.., packet)| source(packet) == external));
    let of = |node| out.iter().filter(|(by, ..)| *by == node).count() as u64;
    let counters = pair.counters(B);
    assert!(counters.full > 0 && of(B) > 0, "{counters:?}");
    assert_eq!(counters.passed[0], of(A));
    // Packets of the turn in which the link has no room are lost, and some that wait for the
    // hardware address of B's router.
    assert!(of(A) + of(B) + counters.full <= (WAITING + 4 * 32) as u64);
    assert_eq!(pair.drops(B, DropReason::NoMapping), 0);
}

#[test]
fn packets_for_a_gateway_itself_are_not_passed_on() {
    let mut pair = Pair::new([1, 1]);
    let end = (host(1), 4000);
    pair.flow(A, end);
    pair.run(3000);
    for (is_inside, packet) in
        [(true, echo_request(end.0, OWN_INSIDE)), (false, echo_request(REMOTE, OWN_OUTSIDE))]
    {
        let out = pair.send(B, is_inside, &packet);
        let (by, came_inside, _) = one(&out).expect("the gateway answers");
        assert_eq!((*by, *came_inside), (B, is_inside));
    }
    assert_eq!(pair.counters(B).passed, [0; 3]);
    assert_eq!(view(&question(end)).protocol(), UDP);
}

/// A subscriber's address tells its ports, so no node has to know the subscriber.
#[test]
fn computed_ports_are_found_by_either_node() {
    let mut settings = pair_settings();
    settings.engine.pools[0].allocation = Some(Allocation::Deterministic(DeterministicConfig {
        realm: 0,
        subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 1, 0), 24)],
        ports_per_subscriber: Some(400),
        dynamic_ports: 0,
    }));
    let mut pair = Pair::with(settings, [1, 1], ["a", "b"]);
    let mut owners = [0; 2];
    for number in (1..250).step_by(20) {
        let end = (host(number), 4000);
        for node in [A, B] {
            let (by, external) = pair.outbound(node, &question(end)).expect("it leaves");
            assert_eq!(external.0, [OF_A, OF_B][by], "{end:?}");
            owners[by] += 1;
        }
    }
    assert!(owners.iter().all(|count| *count > 0), "{owners:?}");
    assert_eq!(pair.mappings(A) + pair.mappings(B), 13, "one for each, and no copies yet");
}
