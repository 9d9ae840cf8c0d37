//! Random histories: packets of many flows come to either node, while nodes end, come back, and
//! slices move.

use super::*;
use natgate_engine::Timestamp;
use std::collections::HashMap;
use std::time::Duration;

/// Turns of a history.
const STEPS: u32 = 300;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// The endpoints that a remote host has seen, and whose they are: the latest one of each flow.
#[derive(Default)]
struct Judge {
    of_flows: HashMap<End, End>,
    users: HashMap<End, (End, Timestamp)>,
}

impl Judge {
    fn note(&mut self, flow: End, external: End, now: Timestamp) {
        let before = self.users.insert(external, (flow, now));
        let is_other = before
            .is_some_and(|(user, last)| user != flow && now.since(last) < Duration::from_secs(100));
        assert!(!is_other, "{external:?} was that of {before:?} and is that of {flow:?}");
        self.of_flows.insert(flow, external);
    }
}

#[test]
fn an_endpoint_is_one_flows_whichever_node_packets_come_to() {
    let number = std::env::var("NATGATE_TUNNEL_HISTORIES").ok();
    let number: u64 = number.map_or(8, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let result = std::panic::catch_unwind(|| history(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

fn history(seed: u64) {
    let mut random = Random(seed);
    let mut pair = Pair::new(COUNTS[seed as usize % COUNTS.len()]);
    let mut judge = Judge::default();
    for _ in 0..STEPS {
        let node = random.below(2) as usize;
        let node = if pair.nodes[node].is_some() { node } else { 1 - node };
        let flow = (host(random.below(10) as u8 + 1), 4000 + random.below(3) as u16);
        match random.below(60) {
            0 if pair.nodes.iter().all(Option::is_some) => {
                let has_guardian = random.below(2) == 0;
                pair.end(node, has_guardian);
            }
            1..4 => {
                if let Some(ended) = pair.nodes.iter().position(Option::is_none) {
                    pair.start(ended);
                    pair.run(500);
                }
            }
            4 => {
                let is_cut = pair.cable().is_cut;
                pair.cable().is_cut = !is_cut;
            }
            5 => drop(pair.ask(node, FleetRequest::Drain(["a", "b"][node].into()))),
            6 => drop(pair.ask(node, FleetRequest::Move(1 - node, ["b", "a"][node].into()))),
            7 => pair.run(150_000),
            8..12 => pair.run(2500),
            12..40 => {
                let remote = (REMOTE, 53 + random.below(3) as u16);
                let out = pair.send(node, true, &udp(flow, remote, b"question"));
                // An error to the host, if there is no port.
                if let Some((_, _, packet)) = one(&out).filter(|(_, is_inside, _)| !is_inside) {
                    assert!(udp_valid(packet));
                    judge.note(flow, source(packet), pair.now);
                }
            }
            _ => {
                let Some(external) = judge.of_flows.get(&flow).copied() else { continue };
                let out = pair.send(node, false, &reply(external));
                if let Some((_, is_inside, packet)) = one(&out) {
                    assert!(*is_inside && udp_valid(packet));
                    assert_eq!(destination(packet), judge.users[&external].0, "{external:?}");
                }
            }
        }
    }
}

/// Without a fault, no packet is lost, each flow has one endpoint, and it ends when the host is
/// silent.
#[test]
fn without_a_fault_no_packet_is_lost_at_either_node() {
    for seed in 1..=4 {
        let mut random = Random(seed);
        let mut pair = Pair::new(COUNTS[seed as usize % COUNTS.len()]);
        let mut externals = HashMap::new();
        for number in 1..=10 {
            let end = (host(number), 4000);
            externals.insert(end, pair.flow(random.below(2) as usize, end));
        }
        pair.run(3000);
        for _ in 0..300 {
            let flow = (host(random.below(10) as u8 + 1), 4000);
            let (node, external) = (random.below(2) as usize, externals[&flow]);
            let owner = usize::from(external.0 == OF_B);
            match random.below(5) {
                // No flow is silent for its timeout.
                0 => pair.run(4000),
                1 => {
                    let to = externals[&(host(random.below(10) as u8 + 1), 4000)];
                    let out = pair.send(node, true, &udp(flow, to, b"hairpin"));
                    let (_, is_inside, packet) = one(&out).expect("it comes");
                    assert!(*is_inside, "seed {seed}");
                    assert_eq!((source(packet), externals[&destination(packet)]), (external, to));
                }
                2 => assert_eq!(pair.inbound(node, &reply(external)), Some((owner, flow))),
                _ => {
                    let remote = (REMOTE, 53 + random.below(3) as u16);
                    let packet = udp(flow, remote, b"question");
                    assert_eq!(
                        pair.outbound(node, &packet),
                        Some((owner, external)),
                        "seed {seed}"
                    );
                }
            }
        }
        for node in [A, B] {
            let counters = pair.counters(node);
            assert_eq!((counters.full, counters.foreign, counters.damaged), (0, 0, 0));
        }
        pair.run(310_000);
        assert_eq!((pair.mappings(A), pair.mappings(B)), (0, 0), "seed {seed}");
    }
}
