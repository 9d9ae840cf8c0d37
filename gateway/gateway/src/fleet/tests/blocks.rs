//! Blocks of ports in a pair whose nodes have several workers: a block goes to the worker of its
//! subscriber.

use super::histories::run_history;
use super::strays::taken_ports;
use super::workers::{COUNTS, Counts, Flows, Worker};
use super::*;
use crate::fleet::shared_ports::SearchPlace;
use protocol::{TCP, UDP};

/// The block of a port.
fn block((address, port): External) -> External {
    (address, port / WORD)
}

/// Three flows of each of some hosts by node a. A worker without blocks borrows some.
fn taken(pair: &mut Pair) -> Flows {
    let mut flows = BTreeMap::new();
    for _ in 0..4 {
        for flow in (2..10).flat_map(|host| [(host, 1), (host, 2), (host, 3)]) {
            flows.extend(pair.a().send(flow).map(|external| (flow, external)));
        }
        pair.run(1.0);
    }
    assert!(flows.len() > 12, "{:?}: {} flows", pair.workers, flows.len());
    flows.into_iter().collect()
}

/// The worker that gives out a port, and the worker of its host.
fn givers(process: &Process, host: u8, (address, port): External) -> (Option<usize>, usize) {
    let partition = process.member.as_ref().expect("several workers").partition();
    let of = process.worker_of((0, Ipv4Addr::new(10, 0, 0, host)));
    (partition.giver_of(address, port), of)
}

#[test]
fn subscribers_keep_their_blocks_after_a_crash_and_back() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Words, workers);
        let flows = taken(&mut pair);
        pair.run(3.0);
        assert!(pair.status_is_whole(), "{workers:?}: {:?}", pair.b().status());
        let blocks: BTreeMap<u8, External> =
            flows.iter().map(|((host, _), external)| (*host, block(*external))).collect();
        assert!(flows.iter().all(|((host, _), one)| block(*one) == blocks[host]));
        pair.end_a_with_guardian();
        pair.run(125.0);
        assert!(pair.b().status().slices[0].assigns, "{workers:?}");
        for (flow, external) in &flows {
            assert_eq!(pair.b().send(*flow), Some(*external), "{workers:?}");
            if workers.of("b") > 1 {
                let (giver, of) = givers(pair.b(), flow.0, *external);
                assert_eq!(giver, Some(of), "{workers:?}: {external:?}");
            }
        }
        for (host, of) in &blocks {
            let new = pair.b().send((*host, 50)).map(block);
            assert_eq!(new, Some(*of), "{workers:?}: another port of the block");
        }
        // Others get blocks of their own.
        for host in 20..40 {
            let new = pair.b().send((host, 1)).map(block);
            assert!(new.is_none_or(|new| !blocks.values().any(|of| *of == new)), "{workers:?}");
        }
        pair.check();
        pair.restart_a();
        pair.run(5.0);
        pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
        pair.run(2.0);
        assert_eq!(pair.a().status().slices[0].role, "owner", "{workers:?}");
        for (flow, external) in &flows {
            assert_eq!(pair.a().send(*flow), Some(*external), "{workers:?}");
        }
        for (host, of) in &blocks {
            let new = pair.a().send((*host, 60)).map(block);
            assert_eq!(new, Some(*of), "{workers:?}: another port of the block");
        }
        pair.check();
    }
}

/// A port of a block that is held moves with the block.
#[test]
fn held_ports_of_a_block_are_held_by_the_worker_that_gets_it() {
    for workers in COUNTS {
        let mut pair = Pair::of(Allotment::Words, workers);
        let flows = taken(&mut pair);
        pair.run(295.0);
        // One flow of each host goes on, and the others end.
        let (alive, ended): (Vec<_>, Vec<_>) = flows.iter().partition(|((_, port), _)| *port == 1);
        assert!(!alive.is_empty() && !ended.is_empty());
        for (flow, external) in &alive {
            assert_eq!(pair.a().send(*flow), Some(*external));
        }
        pair.run(15.0);
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        pair.run(2.0);
        assert!(pair.b().status().slices.iter().all(|slice| slice.assigns), "{workers:?}");
        for ((host, _), external) in &alive {
            for port in 100..120 {
                let Some(new) = pair.b().send((*host, port)) else { continue };
                assert_eq!(block(new), block(*external), "{workers:?}");
                assert!(ended.iter().all(|(_, held)| *held != new), "{workers:?}: {new:?} is held");
            }
        }
        pair.check();
    }
}

/// Holds a port in the first word of some blocks of the first slice, at the workers that give them
/// out.
fn hold_some(process: &mut Process, seed: u64) {
    let size = process.allotment.block_size().expect("it has blocks");
    let (first, last) = process.allotment.wide_ports();
    let blocks = (first..=last).step_by(size.into());
    for port in blocks.filter(|port| (u64::from(port / size) + seed).is_multiple_of(3)) {
        let word = usize::from(port / WORD);
        let mut bits = [0; 1024];
        let bit = u64::from(port % WORD) + seed % u64::from(size.min(WORD));
        bits[word] = 1 << bit;
        for engine in process.engines().filter(|engine| engine.owns(A1, word)) {
            assert!(engine.hold_ports(A1, UDP, &bits));
        }
    }
}

/// Random histories. An operator removes copies now and then, so a port may rest in the block of
/// another subscriber. Some ports are held at the beginning. At the end each block has one worker.
#[test]
fn no_block_is_two_subscribers_in_any_history() {
    const ALL: [Counts; 8] = [
        Counts(1, 1),
        Counts(1, 2),
        Counts(2, 3),
        Counts(3, 1),
        Counts(4, 4),
        Counts(2, 2),
        Counts(3, 2),
        Counts(1, 4),
    ];
    let number = std::env::var("NATGATE_FLEET_HISTORIES").ok();
    let number: u64 = number.map_or(100, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let workers = ALL[seed as usize % ALL.len()];
        let all = [Allotment::Words, Allotment::Large, Allotment::Blocks];
        let allotment = all[seed as usize / ALL.len() % all.len()];
        let history = || {
            let mut pair = Pair::of(allotment, workers);
            hold_some(pair.a(), seed);
            run_history(pair, (seed, seed / 16 % 4));
        };
        assert!(std::panic::catch_unwind(history).is_ok(), "seed {seed}");
    }
}

/// A pair whose node b, with a number of workers, has taken the first slice. Its first worker has
/// got all words of the slice from the others. Returns the partition of b and the first ports of
/// blocks.
fn taken_over(workers: usize) -> (Pair, Arc<Partition>, Vec<u16>) {
    let mut pair = Pair::of(Allotment::Words, Counts(1, workers));
    pair.run(2.0);
    pair.end_a_with_guardian();
    pair.run(130.0);
    let process = pair.b();
    assert!(process.status().slices[0].assigns);
    let partition = Arc::clone(process.member.as_ref().expect("several workers").partition());
    let ports: Vec<u16> = (2048..2816).step_by(WORD.into()).collect();
    for (port, word) in ports.iter().map(|port| (*port, usize::from(port / WORD))) {
        let giver = partition.giver_of(A1, port).expect("the address is external");
        if giver > 0 {
            let held = process.engine_at(giver).cede_block(A1, word..word + 1);
            assert_eq!(held, Some(Vec::new()), "no word is on its way");
            partition.give_block(A1, word..word + 1, 0);
            process.engine.own_block(A1, word..word + 1, &[]);
        }
    }
    process.check_words();
    (pair, partition, ports)
}

/// While a slice is another node's, its workers are short of its ports, and they take it one after
/// the other.
#[test]
fn workers_that_have_taken_a_slice_trade_no_ports_without_end() {
    for allotment in [Allotment::Words, Allotment::Large, Allotment::Many] {
        for count in [2, 3, 4] {
            let mut pair = Pair::of(allotment, Counts(1, count));
            pair.run(2.0);
            pair.end_a_with_guardian();
            pair.run(130.0);
            assert!(pair.b().status().slices[0].assigns);
            let partition = Arc::clone(pair.b().member.as_ref().expect("a team").partition());
            let givers = || -> Vec<Option<usize>> {
                let ports = (2048..6144).step_by(WORD.into());
                ports.map(|port| partition.giver_of(A1, port)).collect()
            };
            let before = givers();
            for _ in 0..50 {
                pair.run(0.1);
                pair.check_words();
                assert_eq!(givers(), before, "{allotment:?}, {count} workers");
            }
        }
    }
}

/// Guards all strays of the first slice at the first worker of a node.
fn guard_all(process: &mut Process) {
    let Process { engine, fleet, .. } = process;
    fleet.ports.begin_turn();
    let next = fleet.ports.guard_some(engine, &[range(1)], SearchPlace::default());
    assert_eq!(next, None);
}

/// The worker that gets the block may have guarded its strays already, so no stray of a third one
/// comes along.
#[test]
fn a_block_goes_to_another_worker_if_all_its_strays_are_there() {
    let (mut pair, partition, ports) = taken_over(3);
    let [mixed, first, second, ..] = ports[..] else { panic!("{ports:?}") };
    let strays = [(1, UDP, mixed), (2, UDP, mixed + 1), (1, UDP, first), (1, TCP, first + 1)];
    for (worker, own, port) in strays.into_iter().chain([(2, TCP, second)]) {
        partition.note_copy(worker, own, A1, port);
    }
    guard_all(pair.b());
    let givers = [mixed, first, second].map(|port| partition.giver_of(A1, port));
    assert_eq!(givers, [Some(0), Some(1), Some(2)]);
    assert_eq!(pair.b().fleet.ports.guards(), 2);
    assert_eq!(partition.stray(UDP, A1, mixed), Some(1));
    assert_eq!(partition.stray(UDP, A1, first), None, "its worker gives it out");
}

/// A stray of a third worker ends just before the block goes. Its port is held by the worker that
/// gets the block.
#[test]
fn the_port_of_a_stray_that_has_just_ended_is_held_in_a_block_that_goes() {
    let (mut pair, partition, ports) = taken_over(3);
    let (port, ended) = (ports[0], ports[0] + 1);
    partition.note_copy(1, UDP, A1, port);
    partition.note_copy(2, UDP, A1, ended);
    let external = Endpoint { address: A1, port: ended };
    let known = PairPort { protocol: UDP, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 };
    let process = pair.b();
    let board = Arc::clone(&process.fleet.board);
    board.give_back(0, written(known), || partition.note_end(2, UDP, A1, ended));
    guard_all(process);
    assert_eq!(partition.giver_of(A1, port), Some(1));
    let Worker { engine, fleet, .. } = &mut process.others[0];
    fleet.ports.take_blocks(engine);
    assert!(taken_ports(engine).contains(&ended));
}

/// The worker has the words by the partition, and a reload gives them to its engine.
#[test]
fn a_reload_does_not_come_between_a_block_and_its_held_ports() {
    let (mut pair, partition, ports) = taken_over(2);
    let process = pair.b();
    let (port, word) = (ports[0], usize::from(ports[0] / WORD));
    let mut bits = [0; 1024];
    bits[word] = 0b110;
    assert!(process.engine.hold_ports(A1, UDP, &bits));
    let held = process.engine.cede_block(A1, word..word + 1).expect("no mapping is in it");
    assert_eq!(held, [(UDP, port + 1), (UDP, port + 2)]);
    let enter = || partition.give_block(A1, word..word + 1, 1);
    process.fleet.board.give_block(1, (A1, word..word + 1, held), enter);
    let config = process.engine.config().clone();
    process.reload_team(&config);
    for worker in 0..2 {
        let taken = taken_ports(process.engine_at(worker));
        assert!([1, 2].iter().all(|more| taken.contains(&(port + more))), "{worker}: {taken:?}");
    }
}
