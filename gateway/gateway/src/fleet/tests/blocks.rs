//! Blocks of ports in a pair whose nodes have several workers: a block goes to the worker of its
//! subscriber.

use super::histories::run_history;
use super::workers::{COUNTS, Counts, Flows};
use super::*;

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

/// Random histories. An operator removes copies now and then, so a port may rest in the block of
/// another subscriber.
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
    let number: u64 = number.map_or(32, |number| number.parse().expect("a number"));
    for seed in 1..=number {
        let workers = ALL[seed as usize % ALL.len()];
        let allotment = [Allotment::Words, Allotment::Blocks][seed as usize / ALL.len() % 2];
        let history = || run_history(Pair::of(allotment, workers), (seed, seed / 16 % 4));
        assert!(std::panic::catch_unwind(history).is_ok(), "seed {seed}");
    }
}
