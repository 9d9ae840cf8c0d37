//! Ports of copied mappings that another worker gives out: when they are guarded, and for how long.

use super::workers::{Counts, Flows, Worker, flows, new_flows, static_mapping};
use super::*;
use std::collections::BTreeSet;

const UDP: u8 = protocol::UDP;

/// The strays among some flows, at node b: its first worker gives out the ports.
fn strays(pair: &mut Pair, flows: &[((u8, u16), External)]) -> Flows {
    let partition = Arc::clone(pair.b().member.as_ref().expect("a team").partition());
    let is_stray = |(address, port): External| partition.stray(UDP, address, port) == Some(1);
    let strays = flows.iter().copied().filter(|(_, external)| is_stray(*external)).collect();
    let giver = |(address, port): External| partition.giver_of(address, port);
    assert!(flows.iter().all(|(_, external)| giver(*external) == Some(0)));
    strays
}

/// A pair whose node b has taken slice 0 after the end of node a, one hold-down ago or less: the
/// strays among its flows.
fn taken(hold_down: f64) -> (Pair, Flows) {
    let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
    let flows = flows(&mut pair, 2..80);
    pair.run(3.0);
    let strays = strays(&mut pair, &flows);
    assert!(strays.len() > 10, "{strays:?}");
    pair.end_a_with_guardian();
    pair.run(hold_down);
    let slice = &pair.b().status().slices[0];
    assert_eq!((slice.role, slice.assigns), ("owner", hold_down > 120.0));
    (pair, strays)
}

/// New flows of node b, some of them by its ports of the first slice.
fn some_new(pair: &mut Pair, port: u16) -> BTreeSet<External> {
    let new = new_flows(pair, port);
    assert!(new.iter().any(|one| one.0 == A1), "{new:?}");
    new
}

#[test]
fn a_guard_lasts_until_the_partner_has_forgotten_the_stray() {
    let (mut pair, strays) = taken(122.0);
    pair.restart_a();
    pair.run(5.0);
    assert!(pair.status_is_whole(), "{:?}", pair.b().status());
    pair.wire().is_cut = true;
    // The mappings end, but the partner does not hear of that, and may forward their packets.
    pair.run(600.0);
    let (_, external) = strays[0];
    assert!(pair.a().answer(external, None).is_some(), "the partner has the copy");
    let new = some_new(&mut pair, 1);
    for (_, external) in &strays {
        assert!(!new.contains(external), "{external:?} has gone to another");
    }
    pair.check();
    pair.wire().is_cut = false;
    pair.run(3.0);
    let held = some_new(&mut pair, 5);
    assert!(strays.iter().all(|(_, external)| !held.contains(external)), "they are held");
    pair.run(122.0);
    let free = some_new(&mut pair, 3);
    assert!(strays.iter().any(|(_, external)| free.contains(external)), "no guard stays");
    pair.check();
}

#[test]
fn a_stray_that_ends_during_the_hold_down_of_the_slice_has_its_own() {
    let (mut pair, strays) = taken(100.0);
    strays.iter().for_each(|((host, _), _)| pair.b().clear(*host));
    pair.run(30.0);
    assert!(pair.b().status().slices[0].assigns);
    let new = some_new(&mut pair, 1);
    for (_, external) in &strays {
        assert!(!new.contains(external), "{external:?} was in use 31 s ago");
    }
    pair.run(95.0);
    let free = some_new(&mut pair, 3);
    assert!(strays.iter().any(|(_, external)| free.contains(external)), "no guard stays");
    pair.b().hosts();
}

#[test]
fn a_copy_that_ends_leaves_its_port_held_at_the_worker_that_gives_it_out() {
    let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
    let flows = flows(&mut pair, 2..80);
    pair.run(3.0);
    let strays = strays(&mut pair, &flows);
    strays.iter().for_each(|((host, _), _)| pair.a().clear(*host));
    pair.run(1.0);
    let taken = taken_ports(pair.b().engine_at(0));
    assert!(strays.iter().all(|(_, (_, port))| taken.contains(port)), "{taken:?}");
}

/// Reloads give the ports of strays to static mappings, some of hosts of the worker with the stray,
/// some of hosts of the one that gives the port out. Later reloads take them away, before or after
/// the partner has heard of the ends of the copies.
#[test]
fn static_mappings_take_the_ports_of_strays_and_leave_them_free() {
    for is_short in [false, true] {
        let (mut pair, strays) = taken(122.0);
        pair.restart_a();
        pair.run(5.0);
        let ports: Vec<u16> = strays.iter().map(|(_, (_, port))| *port).collect();
        let hosts: Vec<(u8, u16)> = (100..).zip(ports.iter().copied()).collect();
        let guards = pair.b().fleet.ports.guards();
        assert!(guards >= ports.len());
        pair.wire().is_cut = true;
        set_statics(&mut pair, hosts.iter().copied().map(static_mapping).collect());
        pair.run(1.0);
        let mut workers = BTreeSet::new();
        for (host, port) in &hosts {
            let bytes = packet(None, SERVER, (A1.to_bits(), *port));
            let worker = pair.b().worker_of((0, Ipv4Addr::new(10, 0, 0, *host)));
            assert_eq!(pair.b().worker_of_packet((Side::Outside, 0), &bytes), worker, "{port}");
            workers.insert(worker);
        }
        assert_eq!(workers.len(), 2);
        if is_short {
            set_statics(&mut pair, Vec::new());
            pair.run(1.0);
        }
        assert_eq!(still_strays(&mut pair, &ports), ports.len(), "they rest");
        let new = some_new(&mut pair, 1);
        assert!(ports.iter().all(|port| !new.contains(&(A1, *port))), "{new:?}");
        pair.wire().is_cut = false;
        pair.run(3.0);
        assert_eq!(still_strays(&mut pair, &ports), 0);
        assert_eq!(pair.b().fleet.ports.guards(), guards - ports.len());
        set_statics(&mut pair, Vec::new());
        pair.run(125.0);
        let free = some_new(&mut pair, 3);
        assert!(ports.iter().any(|port| free.contains(&(A1, *port))), "{free:?}");
        pair.check();
    }
}

/// The same at the partner, whose copies the static mappings displace: they come and go before the
/// partner hears of the ends of the mappings, or after that. The ports rest until the partner has
/// the slice. Then none stays a stray, and the partner gives them out.
#[test]
fn static_mappings_come_and_go_at_the_ports_of_a_partners_strays() {
    for is_cut in [false, true] {
        let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
        let flows = flows(&mut pair, 2..80);
        pair.run(3.0);
        let strays = strays(&mut pair, &flows);
        assert!(strays.len() > 10, "{strays:?}");
        let ports: Vec<u16> = strays.iter().map(|(_, (_, port))| *port).collect();
        let statics = (100..).zip(ports.iter().copied()).map(static_mapping);
        pair.wire().is_cut = is_cut;
        set_statics(&mut pair, statics.collect());
        pair.run(1.0);
        set_statics(&mut pair, Vec::new());
        pair.run(1.0);
        pair.wire().is_cut = false;
        pair.run(3.0);
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        pair.run(2.0);
        assert!(pair.b().status().slices[0].assigns, "cut: {is_cut}");
        assert_eq!(still_strays(&mut pair, &ports), 0, "cut: {is_cut}");
        assert_eq!(pair.b().fleet.ports.guards(), 0);
        pair.run(125.0);
        let free = some_new(&mut pair, 3);
        assert!(ports.iter().any(|port| free.contains(&(A1, *port))), "{free:?}");
        pair.check();
    }
}

/// Reloads the static mappings of both nodes, first those of node b.
fn set_statics(pair: &mut Pair, statics: Vec<natgate_engine::StaticMapping>) {
    for to_a in [false, true] {
        let process = pair.either(to_a);
        let config = process.engine.config().clone();
        process.reload_all(&Config { statics: statics.clone(), ..config });
    }
}

/// Number of ports of the first address that are strays of node b's second worker.
fn still_strays(pair: &mut Pair, ports: &[u16]) -> usize {
    let partition = Arc::clone(pair.b().member.as_ref().expect("a team").partition());
    ports.iter().filter(|port| partition.stray(UDP, A1, **port) == Some(1)).count()
}

/// A pair whose node b had copies that have ended by themselves at the worker that gives out their
/// ports, which therefore rest there. Then the owner has given the ports to hosts of another
/// worker. Returns those hosts, and the ports.
fn with_rests_of_earlier_copies() -> (Pair, Vec<(u8, External)>) {
    let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
    let flows = flows(&mut pair, 2..80);
    pair.run(3.0);
    let is_home =
        |pair: &mut Pair, host: u8| pair.b().worker_of((0, Ipv4Addr::new(10, 0, 0, host))) == 0;
    let homes: Vec<((u8, u16), External)> =
        flows.iter().copied().filter(|(flow, _)| is_home(&mut pair, flow.0)).collect();
    pair.wire().is_cut = true;
    for (flow, _) in &homes {
        pair.b().clear(flow.0);
        pair.a().clear(flow.0);
    }
    pair.run(1.0);
    pair.wire().is_cut = false;
    pair.run(125.0);
    let hosts: Vec<u8> = (100..=250).filter(|host| !is_home(&mut pair, *host)).collect();
    let sent = |host| pair.a().send((host, 1)).map(|external| (host, external));
    let new: Vec<(u8, External)> = hosts.into_iter().filter_map(sent).collect();
    pair.run(3.0);
    let is_again =
        |(_, external): &(u8, External)| homes.iter().any(|(_, other)| other == external);
    let again: Vec<(u8, External)> = new.into_iter().filter(is_again).collect();
    assert!(again.len() > 5, "{again:?}");
    (pair, again)
}

/// Numbers of the ports that rest at the worker that gives them out.
fn resting(pair: &mut Pair, ports: &[(u8, External)]) -> usize {
    let rests = |(_, (address, port)): &&(u8, External)| {
        let external = Endpoint { address: *address, port: *port };
        let remote = Ipv4Addr::UNSPECIFIED;
        pair.b().engine.rests_at(PairPort { protocol: UDP, external, remote, number: 0 })
    };
    ports.iter().filter(rests).count()
}

#[test]
fn the_end_of_a_stray_does_not_end_the_rest_of_an_earlier_copy() {
    let (mut pair, again) = with_rests_of_earlier_copies();
    assert_eq!(resting(&mut pair, &again), again.len());
    again.iter().for_each(|(host, _)| pair.a().clear(*host));
    pair.run(2.0);
    assert_eq!(resting(&mut pair, &again), again.len(), "the owner has not spoken of that copy");
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(2.0);
    assert!(pair.b().status().slices[0].assigns);
    assert_eq!(resting(&mut pair, &again), 0);
    let held = some_new(&mut pair, 3);
    assert!(again.iter().all(|(_, external)| !held.contains(external)), "they are held");
    pair.run(125.0);
    let free = some_new(&mut pair, 5);
    assert!(again.iter().any(|(_, external)| free.contains(external)), "no rest stays");
    pair.check();
}

/// The guard outlasts the rest.
#[test]
fn the_rest_of_an_earlier_copy_does_not_end_a_guard() {
    let (mut pair, again) = with_rests_of_earlier_copies();
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(2.0);
    assert!(pair.b().status().slices[0].assigns);
    // The rest is over, and so would be the hold-down.
    pair.run(125.0);
    let others = some_new(&mut pair, 3);
    for (_, external) in &again {
        assert!(!others.contains(external), "{external:?} is a stray");
    }
    pair.b().hosts();
    pair.check();
}

/// Ports of the first address that an engine has taken for datagrams.
pub(super) fn taken_ports(engine: &Engine) -> BTreeSet<u16> {
    let mut taken = [0; 1024];
    assert_eq!(engine.taken_ports(0, UDP, &mut taken), Some(A1));
    let is_taken = |port: &u16| taken[usize::from(*port) / 64] >> (port % 64) & 1 != 0;
    (0..=u16::MAX).filter(is_taken).collect()
}

/// Held ports that a planned move takes along are held by one worker each.
#[test]
fn a_worker_holds_the_ports_that_it_gives_out_itself() {
    for workers in [Counts(1, 2), Counts(2, 3), Counts(3, 2)] {
        let mut pair = Pair::of(Allotment::Many, workers);
        let flows = flows(&mut pair, 2..60);
        pair.run(295.0);
        for (flow, _) in flows.iter().filter(|(flow, _)| flow.0 >= 30) {
            pair.a().send(*flow).expect("sent");
        }
        pair.run(10.0);
        pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
        pair.run(1.0);
        assert!(pair.b().status().slices[0].assigns, "{workers:?}");
        let partition = Arc::clone(pair.b().member.as_ref().expect("a team").partition());
        let home = |((host, _), external): &((u8, u16), External)| {
            (*external, pair.b().worker_of((0, Ipv4Addr::new(10, 0, 0, *host))))
        };
        let homes: Vec<(External, usize)> = flows.iter().map(home).collect();
        let mut all = BTreeSet::new();
        for worker in 0..workers.1 {
            for port in taken_ports(pair.b().engine_at(worker)) {
                // A copy that has ended at its worker is held there as well.
                let was_here = homes.contains(&((A1, port), worker));
                let gives_out = partition.giver_of(A1, port) == Some(worker);
                assert!(was_here || gives_out, "{workers:?}: worker {worker} holds {port}");
                all.insert(port);
            }
        }
        for (_, (address, port)) in flows {
            assert!(address != A1 || all.contains(&port), "{workers:?}: {port} is free");
        }
    }
}

#[test]
fn a_hundred_thousand_strays_are_guarded_in_shares_before_a_port_is_assigned() {
    const STRAYS: usize = 100_000;
    const A_TURN: usize = 1024 + 64;
    let mut pair = Pair::of(Allotment::Random, Counts(1, 2));
    pair.run(2.0);
    let partition = Arc::clone(pair.b().member.as_ref().expect("a team").partition());
    let of = |own| (0..50_000_u16).map(move |port| (own, port));
    let all = || of(UDP).chain(of(protocol::TCP));
    all().for_each(|(own, port)| partition.note_copy(1, own, A1, port));
    pair.end_a_with_guardian();
    pair.run(119.0);
    let guards = |pair: &mut Pair| pair.b().fleet.ports.guards();
    assert_eq!(guards(&mut pair), 0);
    let (mut last, mut turns) = (0, 0);
    while !pair.b().engine.assigns(A1) {
        pair.now += SECOND / 100;
        let (process, now) = (pair.b.as_mut().expect("it runs"), pair.now);
        process.turn(now);
        let Worker { engine, fleet, member, .. } = &mut process.others[0];
        let (now, partition) = (Timestamp(now), Arc::clone(member.partition()));
        let node = (&mut *engine, &mut None);
        fleet.turn(now, node, &mut CopiedHosts::new(None, now), Some(&partition));
        let count = process.fleet.ports.guards();
        assert!(count - last <= A_TURN, "{count} after {last}");
        if count > last && count < STRAYS {
            assert!(process.fleet.next_deadline().0 <= now.0 + 1_000_000, "the search goes on");
            assert!(!process.engine.assigns(A1));
        }
        (last, turns) = (count, turns + 1);
        assert!(turns < 1000, "{count} are guarded");
    }
    assert_eq!(last, STRAYS);
    // No port of the pool is free, so no flow gets one.
    for host in 100..200 {
        assert!(pair.b().send((host, 1)).is_none_or(|new| new.0 == B2));
    }
    let board = Arc::clone(&pair.b().fleet.board);
    for (own, port) in all() {
        let external = Endpoint { address: A1, port };
        let port = PairPort { protocol: own, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 };
        let clear = || partition.note_end(1, own, A1, external.port);
        board.give_back(0, written(port), clear);
    }
    for _ in 0..1000 {
        pair.run(0.01);
        let count = guards(&mut pair);
        assert!(last - count <= 8 * A_TURN, "{count} after {last}");
        last = count;
    }
    assert_eq!((last, pair.b().engine.resting()), (0, 0));
    pair.run(122.0);
    // The other hosts have mappings of the other address, and keep it.
    assert!((200..=250).any(|host| pair.b().send((host, 2)).is_some_and(|new| new.0 == A1)));
}
