//! Workers of one node that are behind: one stands still while the others go on, one reads slowly,
//! and a reload reaches one after the other.

use super::workers::{Counts, Worker, flows, new_flows};
use super::*;
use std::collections::BTreeSet;

/// The flows of `flows` whose hosts are at a worker of node b.
fn at_worker(
    pair: &mut Pair,
    flows: &[((u8, u16), External)],
    worker: usize,
) -> BTreeMap<(u8, u16), External> {
    let is_there = |pair: &mut Pair, host: u8| {
        let place = pair.b().place(host).expect("its realm is there");
        pair.b().worker_of(place) == worker
    };
    flows.iter().copied().filter(|(flow, _)| is_there(pair, flow.0)).collect()
}

/// One of several workers stands still while its node is the partner of a slice. The copies of the
/// others have ports that it gives out.
#[test]
fn a_worker_that_missed_the_partners_part_guards_strays_all_the_same() {
    let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
    pair.ask("b", FleetRequest::Move(1, "a".into())).expect("it drains");
    while pair.b().status().slices[1].role == "owner" {
        pair.run(0.01);
    }
    // It has given the slice away, and hears of nothing more.
    pair.b().still = vec![1];
    pair.run(2.0);
    assert_eq!(pair.b().status().slices[1].role, "partner");
    assert!(pair.a().status().slices[1].assigns);
    let all = flows(&mut pair, 2..90);
    let flows = at_worker(&mut pair, &all, 0);
    let strays: Vec<External> = flows.values().copied().filter(|one| one.0 == B2).collect();
    pair.run(3.0);
    let partition = Arc::clone(pair.b().member.as_ref().expect("a team").partition());
    let is_stray = |(address, port): &External| {
        partition.giver_of(*address, *port) == Some(1)
            && partition.stray(protocol::UDP, *address, *port) == Some(0)
    };
    assert!(strays.len() > 5 && strays.iter().all(is_stray), "{strays:?}");
    pair.end_a_with_guardian();
    pair.run(125.0);
    let slice = &pair.b().status().slices[1];
    assert_eq!((slice.role, slice.assigns), ("owner", false), "a worker lacks the streams");
    pair.b().still.clear();
    pair.run(1.0);
    assert!(pair.b().status().slices[1].assigns);
    let new = new_flows(&mut pair, 1);
    assert!(new.iter().any(|one| one.0 == B2), "{new:?}");
    assert!(strays.iter().all(|stray| !new.contains(stray)), "a stray has gone to another");
    pair.b().hosts();
}

/// Records wait for a worker that stands still. Another one gives out their ports.
#[test]
fn no_worker_assigns_ports_before_all_have_made_their_copies() {
    let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
    pair.b().still = vec![1];
    let all = flows(&mut pair, 2..90);
    let flows = at_worker(&mut pair, &all, 1);
    assert!(flows.len() > 10, "{flows:?}");
    pair.run(3.0);
    pair.end_a_with_guardian();
    pair.run(125.0);
    let slice = &pair.b().status().slices[0];
    assert_eq!((slice.role, slice.rests, slice.assigns), ("owner", None, false));
    let early = new_flows(&mut pair, 1);
    assert!(early.iter().all(|one| one.0 == B2), "{early:?}");
    pair.b().still.clear();
    pair.run(1.0);
    assert!(pair.b().status().slices[0].assigns);
    let new = new_flows(&mut pair, 3);
    assert!(new.iter().any(|one| one.0 == A1), "{new:?}");
    for (flow, external) in &flows {
        assert!(!new.contains(external) && !early.contains(external), "{external:?}");
        assert_eq!(pair.b().send(*flow), Some(*external), "the copy was made");
    }
    pair.b().hosts();
}

/// A worker reads slowly. A port rests until it has confirmed the end of the port's mapping, too.
#[test]
fn a_slow_worker_delays_the_copy_and_frees_no_port_early() {
    for workers in [Counts(1, 2), Counts(2, 3)] {
        let mut pair = Pair::of(Allotment::Many, workers);
        let flows = flows(&mut pair, 2..60);
        for _ in 0..20 {
            pair.b().still = vec![1];
            pair.run(0.3);
            pair.b().still.clear();
            pair.run(0.02);
            pair.check();
        }
        pair.run(2.0);
        assert!(pair.status_is_whole(), "{workers:?}");
        pair.b().still = vec![1];
        (2..60).for_each(|host| pair.a().clear(host));
        pair.run(130.0);
        let resting: usize = pair.a().engines().map(|engine| engine.resting()).sum();
        assert_eq!(resting, flows.len(), "{workers:?}: a worker has not confirmed");
        let ended: BTreeSet<External> = flows.iter().map(|(_, external)| *external).collect();
        for host in 100..=250 {
            let new = pair.a().send((host, 1));
            assert!(new.is_none_or(|new| !ended.contains(&new)), "{workers:?}: {new:?}");
        }
        pair.b().still.clear();
        pair.run(5.0);
        assert_eq!(pair.a().engines().map(|engine| engine.resting()).sum::<usize>(), 0);
        pair.check();
        assert!(pair.status_is_whole(), "{workers:?}");
    }
}

/// Each record goes to all workers of the partner.
#[test]
fn a_worker_that_stands_still_does_not_bring_the_others_the_same_records_all_the_time() {
    let mut pair = Pair::of(Allotment::Many, Counts(1, 2));
    pair.run(1.0);
    pair.b().still = vec![1];
    let flows = flows(&mut pair, 2..60);
    pair.run(3.0);
    let records = |pair: &mut Pair| pair.a().status().slices[0].sent.expect("it sends").records;
    let before = records(&mut pair);
    pair.run(5.0);
    let sent = records(&mut pair) - before;
    let of_flows = flows.len() as u64;
    assert!(sent > 0 && sent <= 2 * of_flows, "{sent} records of {of_flows} flows");
    pair.b().still.clear();
    pair.run(4.0);
    assert!(pair.status_is_whole(), "{:?}", pair.b().status());
    pair.check();
}

#[test]
fn messages_that_wait_make_the_next_turn_due_at_once() {
    let mut pair = Pair::of(Allotment::Random, Counts(2, 2));
    pair.run(1.0);
    let now = Timestamp(pair.now + SECOND);
    let Worker { engine, fleet, member, .. } = &mut pair.b().others[0];
    let partition = Arc::clone(member.partition());
    while fleet.board.message(1).is_some() {}
    let message: Arc<[u8]> = vec![9; 4].into();
    (0..3 * TAKEN_A_TURN).for_each(|_| fleet.board.deliver(1, &message));
    for left in [2, 1, 0] {
        let node = (&mut *engine, &mut None);
        fleet.turn(now, node, &mut CopiedHosts::new(None, now), Some(&partition));
        assert_eq!(fleet.board.waiting(1), left * TAKEN_A_TURN);
        let is_due = fleet.next_deadline() <= now;
        assert_eq!(is_due, left > 0, "work is left, or the worker sleeps");
    }
}

/// Both nodes wait for each other's messages while a copy is made, and look for them often. They do
/// not when the copy is complete, nor when nothing comes.
#[test]
fn turns_are_close_together_only_while_messages_of_a_copy_come() {
    let mut pair = Pair::with(Allotment::Many);
    flows(&mut pair, 2..60);
    pair.run(3.0);
    pair.end_a_with_guardian();
    pair.run(1.0);
    pair.restart_a();
    let wait = |process: &Process| {
        let fleet = &process.fleet;
        fleet.next_deadline().since(fleet.last_turn)
    };
    let mut copying = [false; 2];
    while !pair.b().status().slices[0].is_complete {
        pair.run(0.01);
        for (process, is_copying) in [&pair.a, &pair.b].into_iter().flatten().zip(&mut copying) {
            *is_copying |= wait(process) == COPYING;
        }
    }
    assert_eq!(copying, [true; 2]);
    let rests =
        |pair: &Pair| [&pair.a, &pair.b].into_iter().flatten().all(|one| wait(one) > COPYING);
    pair.run(2.0);
    for _ in 0..200 {
        pair.run(0.01);
        assert!(rests(&pair), "the copy is complete");
    }
    pair.wire().is_cut = true;
    (60..90).for_each(|host| _ = pair.b().send((host, 9)).expect("it has ports"));
    for _ in 0..500 {
        pair.run(0.01);
        assert!(rests(&pair), "nothing comes");
    }
}

/// A reload with a realm reaches the workers of the partner one after the other. Until the last one
/// has the realm, its mappings have no copy, and the slice does not move.
#[test]
fn a_reload_in_steps_loses_no_copy() {
    let mut pair = Pair::of(Allotment::Realms, Counts(1, 3));
    let config = pair.b().engine.config().clone();
    pair.b().reload_team(&Config { realms: realms::set(5), ..config });
    // Hosts of "red" are at all workers of b, whatever number the realm gets.
    let red: Vec<u8> = (0..25).map(|number| 3 * number + 4).collect();
    let sent = |pair: &mut Pair, host| Some(((host, 1), pair.a().send((host, 1))?));
    let flows: Vec<((u8, u16), External)> =
        red.iter().filter_map(|host| sent(&mut pair, *host)).collect();
    assert_eq!(flows.len(), red.len());
    pair.run(4.0);
    let refused = |pair: &mut Pair| {
        let slices = pair.a().status().slices;
        slices.iter().map(|slice| slice.refusal.without_realm).sum::<u32>()
    };
    assert_eq!(refused(&mut pair), red.len() as u32, "each is told once");
    let config = pair.b().engine.config().clone();
    pair.b().begin_reload(&Config { realms: realms::set(2), ..config });
    for worker in 0..3 {
        assert!(pair.b().reload_next());
        if worker < 2 {
            pair.run(3.0);
            assert!(!pair.a().status().slices[0].is_complete, "worker {worker} has the realm");
            pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
            pair.run(2.0);
            assert_eq!(pair.b().status().slices[0].role, "partner");
            pair.ask("a", FleetRequest::Move(0, "a".into())).expect("it stays");
        }
    }
    pair.run(3.0);
    assert_eq!(refused(&mut pair), 0);
    let places: BTreeSet<usize> = red
        .iter()
        .map(|host| {
            let place = pair.b().place(*host).expect("the realm is there");
            pair.b().worker_of(place)
        })
        .collect();
    assert_eq!(places.len(), 3, "all workers have some");
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it drains");
    pair.run(2.0);
    assert!(pair.b().status().slices[0].assigns);
    for (flow, external) in flows {
        assert_eq!(pair.b().send(flow), Some(external), "the copy is there");
    }
    pair.check();
}
