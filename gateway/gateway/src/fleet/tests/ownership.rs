//! Owners of slices: starts, ends of a node with and without evidence, planned moves.

use super::*;

#[test]
fn each_node_owns_its_slice_at_once_after_the_first_start() {
    let mut pair = Pair::start();
    assert_eq!(pair.a().send((5, 1)).expect("sent").0, A1);
    assert_eq!(pair.b().send((6, 1)).expect("sent").0, B2);
    pair.run(4.0);
    for process in [&pair.a, &pair.b].into_iter().flatten() {
        let status = process.status();
        assert!(status.slices.iter().all(|slice| slice.fault().is_none()), "{status:?}");
        assert_eq!(process.engine.mappings().count(), 2, "each has the other's copy");
    }
}

#[test]
fn a_partner_goes_on_after_a_crash_and_takes_the_slice_on_evidence() {
    let mut pair = Pair::start();
    let flow = pair.a().send((5, 1)).expect("sent");
    pair.run(3.0);
    pair.a = None;
    pair.run(1.0);
    assert_eq!(pair.b().send((5, 1)), Some(flow), "the copy serves at once");
    assert_eq!(pair.b().send((5, 2)).expect("sent").0, B2, "new ports are its own");
    assert_eq!(pair.b().status().slices[0].role, "partner", "silence is no evidence");
    pair.restart_a();
    pair.run(1.0);
    let status = pair.b().status();
    assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", false));
    pair.run(121.0);
    assert!(pair.b().status().slices[0].assigns, "after the hold-down");
    // The former owner has copied everything, and gets its slice back.
    assert_eq!(pair.a().send((5, 1)), Some(flow));
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
    pair.run(1.0);
    let status = pair.a().status();
    assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", true));
    assert_eq!(pair.a().send((5, 1)), Some(flow));
    assert_eq!(pair.a().send((7, 1)).expect("sent").0, A1);
}

#[test]
fn a_partner_takes_the_slice_when_the_guardian_says_that_the_owner_has_ended() {
    let mut pair = Pair::start();
    let flow = pair.a().send((5, 1)).expect("sent");
    pair.run(3.0);
    pair.b().fleet.new_owners().for_each(drop);
    let before = Timestamp(pair.now);
    pair.end_a_with_guardian();
    pair.run(1.0);
    let changes: Vec<SliceChange> = pair.b().fleet.new_owners().collect();
    let [change] = changes[..] else { panic!("{changes:?}") };
    assert_eq!((change.slice, change.owner, change.continued), (0, Node::B, Some(1)));
    assert!(change.time >= before, "{change:?}");
    assert_eq!(change.epoch, pair.b().status().slices[0].epoch);
    let status = pair.b().status();
    assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", false));
    assert!(status.has_partner_ended);
    pair.run(121.0);
    assert!(pair.b().status().slices[0].assigns, "after the hold-down, without a restart");
    assert_eq!(pair.b().send((5, 1)), Some(flow));
    pair.restart_a();
    pair.run(3.0);
    let status = pair.a().status();
    assert_eq!(status.slices[0].role, "partner");
    assert!(!pair.b().status().has_partner_ended && status.slices[0].is_complete, "{status:?}");
}

#[test]
fn a_partner_continues_blocks_of_ports_and_their_events() {
    let mut pair = Pair::with(Allotment::Blocks);
    let block_of = |flow: (Ipv4Addr, u16)| (flow.0, flow.1 / BLOCK);
    let flow = pair.a().send((5, 1)).expect("sent");
    let mut events = Vec::new();
    for _ in 0..300 {
        pair.now += SECOND / 100;
        let now = Timestamp(pair.now);
        pair.a().fleet_turn(now, &mut Vec::new());
        pair.b().fleet_turn(now, &mut events);
    }
    assert!(
        matches!(events[..], [Change::BlockAssigned(id)] if id.external == flow.0),
        "{events:?}"
    );
    pair.end_a_with_guardian();
    pair.run(123.0);
    let second = pair.b().send((5, 2)).expect("sent");
    assert_eq!(block_of(second), block_of(flow), "the subscriber's block goes on");
    for host in 6..12 {
        let other = pair.b().send((host, 1)).expect("sent");
        assert_ne!(block_of(other), block_of(flow));
    }
}

#[test]
fn ports_of_a_subscriber_follow_from_its_address_after_a_take_over() {
    let mut pair = Pair::with(Allotment::Arithmetic);
    // More than the four ports of the host: one is for all.
    let flows: Vec<External> = (1..6).map(|port| pair.a().send((5, port)).expect("sent")).collect();
    let own = |flow: &&External| computed(**flow) == Some(5);
    assert_eq!(flows.iter().filter(own).count(), 4);
    pair.run(3.0);
    pair.end_a_with_guardian();
    pair.run(0.5);
    let (address, port) = pair.b().send((6, 1)).expect("sent");
    assert!(address == B2 && port >= 2032, "a port for all, until the hold-down is over");
    pair.run(123.0);
    for (port, flow) in (1..).zip(&flows) {
        assert_eq!(pair.b().send((5, port)).as_ref(), Some(flow));
    }
    assert_eq!(pair.b().send((7, 1)).and_then(computed), Some(7));
    assert_eq!(pair.b().send((9, 1)).and_then(computed), Some(9));
    pair.restart_a();
    pair.run(3.0);
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
    pair.run(1.0);
    assert_eq!(pair.a().send((4, 1)).and_then(computed), Some(4));
    assert_eq!(pair.a().send((5, 5)), Some(flows[4]));
}

#[test]
fn a_late_word_about_an_earlier_process_changes_nothing() {
    let mut pair = Pair::start();
    let first = pair.a().status().boot;
    pair.a = None;
    pair.restart_a();
    pair.run(1.0);
    let before = pair.b().status().slices[0].epoch;
    pair.wire().ends[1] = Some(first);
    pair.run(1.0);
    let status = pair.b().status();
    assert_eq!(status.slices[0].epoch, before);
    assert!(!status.has_partner_ended);
}

#[test]
fn a_drain_takes_held_ports_along_and_loses_no_flow() {
    let mut pair = Pair::start();
    let mut flows = Vec::new();
    for host in 2..40 {
        flows.push(pair.a().send((host, 9)).expect("sent"));
    }
    pair.run(299.0);
    // Some flows end, and their ports are held when the slice moves.
    for host in 2..20 {
        assert_eq!(pair.a().send((host, 9)), Some(flows[usize::from(host) - 2]));
    }
    pair.run(10.0);
    let held: Vec<_> = flows.split_off(18);
    let young = (50, 3);
    let young_flow = pair.a().send(young).expect("sent");
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(1.0);
    let status = pair.b().status();
    assert!(status.slices.iter().all(|slice| slice.assigns), "{status:?}");
    assert_eq!(pair.b().send(young), Some(young_flow), "however young");
    for host in 60..160 {
        if let Some(new) = pair.b().send((host, 1)) {
            assert!(!held.contains(&new) && !flows.contains(&new), "{new:?} is in use or held");
        }
    }
    for (host, flow) in (2..20).zip(&flows) {
        assert_eq!(pair.b().send((host, 9)).as_ref(), Some(flow));
        assert_eq!(pair.a().send((host, 9)).as_ref(), Some(flow), "either node may serve");
    }
}

#[test]
fn a_port_rests_while_the_link_is_cut() {
    let mut pair = Pair::start();
    for host in 2..66 {
        pair.a().send((host, 9)).expect("sent");
    }
    pair.run(4.0);
    pair.wire().is_cut = true;
    pair.run(900.0);
    assert_eq!(pair.a().engine.resting(), 64);
    assert_eq!(pair.a().send((70, 1)), None, "the partner may still forward");
    pair.wire().is_cut = false;
    pair.run(130.0);
    assert_eq!(pair.a().engine.resting(), 0);
    assert_eq!(pair.b().engine.mappings().count(), 0);
    assert!(pair.a().send((70, 1)).is_some());
}

#[test]
fn forget_is_the_operators_word_and_needs_a_silent_partner() {
    let mut pair = Pair::start();
    let refused = pair.ask("b", FleetRequest::Forget("a".into()));
    assert!(refused.is_err_and(|why| why.contains("is connected")));
    assert!(pair.ask("b", FleetRequest::Forget("c".into())).is_err());
    assert!(pair.ask("b", FleetRequest::Move(7, "a".into())).is_err());
    assert!(pair.ask("b", FleetRequest::Move(0, "a".into())).is_err(), "b is not the owner");
    assert!(pair.ask("b", FleetRequest::Drain("a".into())).is_err());
    pair.a = None;
    pair.wire().is_cut = true;
    let status = pair.ask("b", FleetRequest::Forget("a".into())).expect("it forgets");
    assert_eq!((status.slices[0].role, status.slices[0].assigns), ("owner", false));
    pair.run(121.0);
    assert!(pair.b().status().slices[0].assigns);
}

#[test]
fn a_lost_counter_of_starts_is_made_up_for_by_the_partner() {
    let mut pair = Pair::start();
    pair.a = None;
    pair.restart_a();
    pair.run(1.0);
    pair.a = None;
    std::fs::remove_file(pair.folder.path().join("a")).expect("it was there");
    pair.restart_a();
    pair.run(1.0);
    let (boot, slices) = (pair.a().status().boot, pair.a().status().slices);
    assert_eq!(boot >> 32, 3);
    assert!(slices.iter().all(|slice| slice.owner.as_deref() == Some("b")), "{slices:?}");
}

#[test]
fn a_node_that_stood_still_ends_no_flow_that_its_partner_has_carried() {
    let mut pair = Pair::start();
    let flow = pair.a().send((5, 1)).expect("sent");
    pair.run(3.0);
    let still = pair.a.take();
    for _ in 0..4 {
        pair.run(200.0);
        assert_eq!(pair.b().send((5, 1)), Some(flow));
    }
    pair.a = still;
    pair.run(1.0);
    assert_eq!(pair.a().send((5, 1)), Some(flow));
    assert_eq!(pair.b().send((5, 1)), Some(flow));
    pair.run(400.0);
    assert_eq!(pair.b().engine.mappings().count(), 0, "timers run");
}

/// A monotonic clock stands still while its machine is suspended. The copies of afterwards have
/// begun in the node's future.
#[test]
fn a_node_whose_clock_stood_still_copies_what_it_has_taken_over() {
    let mut pair = Pair::start();
    pair.run(3.0);
    let still = pair.b.take();
    pair.run(600.0);
    pair.ahead -= 600 * SECOND.cast_signed();
    pair.b = still;
    pair.run(1.0);
    let flow = pair.a().send((5, 1)).expect("sent");
    pair.run(4.0);
    pair.end_a_with_guardian();
    pair.run(1.0);
    assert_eq!(pair.b().send((5, 1)), Some(flow), "it is copied");
    pair.restart_a();
    pair.run(1.0);
    let new = pair.b().send((6, 1)).expect("sent");
    pair.run(3.0);
    assert_eq!(pair.a().send((5, 1)), Some(flow), "the copy is copied");
    assert_eq!(pair.a().send((6, 1)), Some(new), "and so is what came later");
    // The hold-down.
    pair.run(121.0);
    pair.ask("b", FleetRequest::Move(0, "a".into())).expect("it moves");
    pair.run(2.0);
    assert_eq!(pair.a().status().slices[0].role, "owner");
    assert_eq!(pair.a().send((5, 1)), Some(flow));
}

#[test]
fn a_connection_that_opens_during_a_move_keeps_its_port_to_itself() {
    let mut pair = Pair::start();
    let external = pair.a().send_segment((5, 1), SYN).expect("sent");
    pair.ask("a", FleetRequest::Drain("a".into())).expect("it drains");
    pair.run(0.1);
    // Routes still lead to the former owner.
    let host = (String::new(), (Ipv4Addr::new(10, 0, 0, 5), 1));
    assert_eq!(pair.a().answer(external, Some(SYN | ACK)), Some(host));
    pair.run(400.0);
    for host in 6..90 {
        pair.b().send_segment((host, 1), SYN);
        pair.run(0.05);
        pair.check();
    }
}

/// After a move the partner has all mappings, however young. A further session ends none.
#[test]
fn the_copy_of_a_young_mapping_does_not_end_after_a_move() {
    let mut pair = Pair::start();
    pair.run(3.0);
    let external = pair.a().send((5, 1)).expect("sent");
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it moves");
    pair.run(1.0);
    assert_eq!(pair.b().status().slices[0].role, "owner");
    assert!(pair.status_is_whole());
    let own = Ipv4Addr::new(10, 0, 0, 5).to_bits();
    let segment = packet(None, (own, 1), (REMOTE + 1, 53));
    let (source, ..) = pair.b().pass((Side::Inside, 0), segment).expect("sent");
    assert_eq!(source, external);
    for _ in 0..200 {
        pair.run(0.02);
        assert!(pair.a().hosts().contains_key(&(protocol::UDP, external)));
    }
}

#[test]
fn a_copy_that_an_operator_removes_comes_again() {
    let mut pair = Pair::start();
    let flow = pair.a().send((5, 1)).expect("sent");
    pair.run(3.0);
    pair.b().clear(5);
    assert_eq!(pair.b().engine.mappings().count(), 0);
    pair.run(1.0);
    assert_eq!(pair.b().send((5, 1)), Some(flow));
}

#[test]
fn nodes_with_other_slices_share_nothing() {
    let mut pair = Pair::start();
    pair.run(1.0);
    let mut other = pair.b.take().expect("it runs");
    let lead = other.fleet.lead.as_mut().expect("it leads");
    lead.settings.slices.swap(0, 1);
    let boot = lead.ownership.boot() + (1 << 32);
    lead.ownership = lead.settings.ownership(boot);
    pair.b = Some(other);
    pair.run(2.0);
    let status = pair.a().status();
    assert!(status.refused_views > 0, "{status:?}");
    assert!(pair.b().status().slices.iter().all(|slice| slice.owner.is_none()));
}

/// The fault of the first slice, as a node says it.
fn fault_of(process: &Process) -> Option<String> {
    process.status().slices[0].fault()
}

#[test]
fn a_copy_that_is_not_complete_because_of_a_move_is_told_as_the_move() {
    const MOVE: &str = "it moves to node b; its copy is not complete yet";
    let mut pair = Pair::start();
    pair.a().send((5, 1)).expect("sent");
    pair.run(3.0);
    // The first move of a node that has run for longer than a move may take is young, too.
    pair.run(70.0);
    pair.ask("a", FleetRequest::Move(0, "b".into())).expect("it moves");
    let slice = &pair.a().status().slices[0];
    assert_eq!((slice.moves_to.as_deref(), slice.is_move_overdue), (Some("b"), false));
    let mut told = [0; 2];
    for _ in 0..300 {
        pair.run(0.01);
        for (count, process) in told.iter_mut().zip([&pair.a, &pair.b]) {
            let fault = fault_of(process.as_ref().expect("it runs"));
            assert!(fault.as_deref().is_none_or(|fault| fault == MOVE), "{fault:?}");
            let is_told = process.as_ref().is_some_and(|one| one.status().slices[0].only_moves());
            assert_eq!(is_told, fault.is_some());
            *count += u32::from(fault.is_some());
        }
    }
    assert!(told.iter().all(|count| *count > 0), "{told:?}");
    for process in [&pair.a, &pair.b].into_iter().flatten() {
        let slice = process.status().slices[0].clone();
        assert_eq!((slice.owner.as_deref(), slice.moves_to), (Some("b"), None));
        assert_eq!(fault_of(process), None);
    }
    // A copy that is made for another reason in the same epoch is no move.
    pair.restart_a();
    for _ in 0..100 {
        pair.run(0.01);
        for process in [&pair.a, &pair.b].into_iter().flatten() {
            assert!(fault_of(process).is_none_or(|fault| !fault.contains("moves")));
        }
    }
}
