//! Starts of a gateway of a pair: what they cut, and what was continued.

use super::*;
use crate::record::{Gap, Record};
use crate::spool::search::tests::{POOL, World, at, host, mapping, subscriber};
use crate::spool::search::{Holders, Tenure, holders_of};
use natgate_engine::Change::{MappingCreated, MappingRemoved};

const PAIR: Tenure =
    Tenure { is_of_pair: true, inherited: None, away: None, inherits: None, lost: None };

/// Searches for UDP, or for all protocols.
fn search(
    world: &World,
    port: u16,
    protocol: Option<u8>,
    time: u64,
    tenure: Tenure,
) -> (Vec<Holder>, Traces) {
    let folder = world.folder.path();
    match holders_of(folder, (POOL, port), protocol, at(time), tenure, &|| true) {
        Ok(Holders { holders, traces, .. }) => (holders, traces),
        Err(error) => (Vec::new(), error.into_traces()),
    }
}

fn of_pair(world: &World, time: u64) -> (Vec<Holder>, Traces) {
    search(world, 5000, Some(17), time, PAIR)
}

/// Subscriber, begin, end and cut of the only holder.
fn only(holders: &[Holder]) -> (&str, Option<f64>, Option<f64>, Option<f64>) {
    assert_eq!(holders.len(), 1, "{holders:?}");
    let Holder { subscriber, since, until, cut, .. } = &holders[0];
    (subscriber, *since, *until, *cut)
}

/// A gateway that has a mapping since 10, and starts again at 20.
fn stopped() -> World {
    let mut world = World::new();
    world.tell(10, MappingCreated(mapping(1, 5000)));
    world.tell(15, MappingCreated(mapping(9, 6000)));
    world.restart(20, false);
    world.tell(22, MappingCreated(mapping(9, 6001)));
    world
}

#[test]
fn a_start_of_a_single_gateway_ends_what_there_was() {
    let mut world = stopped();
    world.tell(50, MappingRemoved(mapping(1, 5000)));
    let alone = |time| search(&world, 5000, Some(17), time, Tenure::default());
    assert_eq!(only(&alone(12).0), ("10.0.0.1", Some(10.0), Some(20.0), None));
    assert_eq!(alone(30), (Vec::new(), Traces::default()));
}

#[test]
fn a_start_of_a_pair_cuts_what_there_was() {
    let world = stopped();
    let cut = ("10.0.0.1", Some(10.0), None, Some(15.0));
    // Before the start the holding is an answer without an end.
    let (holders, traces) = of_pair(&world, 12);
    assert_eq!((only(&holders), traces), (cut, Traces::default()));
    // Neither after the start nor while the gateway stood still.
    for time in [17, 21, 30] {
        let (holders, traces) = of_pair(&world, time);
        assert!(holders.is_empty(), "at {time}: {holders:?}");
        assert_eq!((only(&traces.cut), traces.ended.len()), (cut, 0), "at {time}");
    }
    let error = holders_of(world.folder.path(), (POOL, 5000), None, at(17), PAIR, &|| true);
    let error = error.expect_err("no holder").to_string();
    assert_eq!(error, "the log does not cover that time");
}

#[test]
fn a_cut_holding_that_ends_in_the_next_run_was_continued() {
    let mut world = stopped();
    world.tell(50, MappingRemoved(mapping(1, 5000)));
    let continued = ("10.0.0.1", Some(10.0), Some(50.0), Some(15.0));
    assert_eq!(only(&of_pair(&world, 12).0), continued);
    for time in [17, 21, 30, 49] {
        assert_eq!(only(&of_pair(&world, time).1.cut), continued, "at {time}");
    }
    // It has ended then.
    let (holders, traces) = of_pair(&world, 51);
    assert!(holders.is_empty() && traces.cut.is_empty(), "{traces:?}");
    assert_eq!(only(&traces.ended), ("10.0.0.1", None, Some(50.0), None));
}

#[test]
fn an_end_is_none_of_a_cut_holding_if_a_begin_or_missing_entries_are_before() {
    let lost = Gap { lost: 7, from: at(32), to: at(33) };
    let begin = |number| {
        Record::Event(natgate_engine::Event {
            time: at(33),
            change: MappingCreated(mapping(number, 5000)),
        })
    };
    for before in [Record::Gap(lost), begin(1), begin(2)] {
        let mut world = stopped();
        world.record(before, 33);
        world.tell(50, MappingRemoved(mapping(1, 5000)));
        let (_, traces) = of_pair(&world, 30);
        assert_eq!(only(&traces.cut), ("10.0.0.1", Some(10.0), None, Some(15.0)));
    }
    // Nor is that of another holder.
    let mut world = stopped();
    world.tell(50, MappingRemoved(mapping(2, 5000)));
    assert_eq!(only(&of_pair(&world, 30).1.cut).2, None);
}

#[test]
fn a_later_holder_ends_a_cut_holding() {
    let mut world = stopped();
    world.tell(30, MappingCreated(mapping(2, 5000)));
    world.tell(40, MappingRemoved(mapping(2, 5000)));
    let (holders, traces) = of_pair(&world, 35);
    assert_eq!(only(&holders), ("10.0.0.2", Some(30.0), Some(40.0), None));
    assert_eq!(traces, Traces::default());
    let (holders, traces) = of_pair(&world, 45);
    assert!(holders.is_empty() && traces.cut.is_empty(), "{traces:?}");
    assert_eq!(only(&traces.ended), ("10.0.0.2", Some(30.0), Some(40.0), None));
    // Another protocol does not.
    let mut tcp = mapping(3, 5000);
    tcp.protocol = 6;
    let mut world = stopped();
    world.tell(30, MappingCreated(tcp));
    let (holders, traces) = search(&world, 5000, None, 35, PAIR);
    assert_eq!((only(&holders).0, only(&traces.cut).0), ("10.0.0.3", "10.0.0.1"));
}

#[test]
fn the_last_run_with_the_endpoint_counts() {
    let mut world = stopped();
    world.restart(40, false);
    world.tell(45, MappingCreated(mapping(9, 6002)));
    let (holders, traces) = of_pair(&world, 46);
    assert_eq!((holders.len(), only(&traces.cut)), (0, ("10.0.0.1", Some(10.0), None, Some(15.0))));
    let mut world = stopped();
    world.tell(23, MappingCreated(mapping(2, 5000)));
    world.tell(24, MappingRemoved(mapping(2, 5000)));
    world.restart(40, false);
    world.tell(45, MappingCreated(mapping(9, 6002)));
    let (holders, traces) = of_pair(&world, 46);
    assert!(holders.is_empty() && traces.cut.is_empty(), "{traces:?}");
    assert_eq!(only(&traces.ended), ("10.0.0.2", Some(23.0), Some(24.0), None));
}

/// The other gateway's begin is not in the log. This one takes the holding at 20 and ends it.
#[test]
fn ends_of_holdings_that_the_gateway_continues_later_are_told() {
    let mut world = World::new();
    world.tell(30, MappingRemoved(mapping(1, 5000)));
    world.tell(31, MappingCreated(mapping(2, 5001)));
    world.tell(32, MappingRemoved(mapping(2, 5001)));
    let ended = |port, inherits: Option<u64>, lost: Option<u64>| {
        let tenure = Tenure { inherits: inherits.map(at), lost: lost.map(at), ..PAIR };
        let (holders, traces) = search(&world, port, Some(17), 10, tenure);
        assert!(holders.is_empty() && traces.cut.is_empty());
        traces.ended
    };
    assert_eq!(only(&ended(5000, Some(20), None)), ("10.0.0.1", None, Some(30.0), None));
    assert_eq!(ended(5000, Some(20), Some(40)).len(), 1);
    for (port, inherits, lost) in [
        (5000, None, None),
        (5000, Some(31), None),
        (5000, Some(20), Some(25)),
        (5001, Some(20), None),
    ] {
        assert_eq!(ended(port, inherits, lost), [], "{port}, {inherits:?}, {lost:?}");
    }
}

/// Numbers of hosts are others after a start, so names count.
#[test]
fn a_cut_holding_of_a_host_of_nat64_is_found_by_its_name() {
    for (second, is_same) in [(7, true), (8, false)] {
        let mut world = World::new();
        world.tell_of(host(7, true), 10, MappingCreated(mapping(1, 5000)));
        world.restart(20, false);
        world.tell_of(host(second, false), 50, MappingRemoved(mapping(2, 5000)));
        let (_, traces) = of_pair(&world, 30);
        assert_eq!(only(&traces.cut).2, is_same.then_some(50.0));
        assert_ne!(only(&traces.cut).0, subscriber(1).to_string());
    }
}
