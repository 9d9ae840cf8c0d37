//! Logs that are added and removed while events come: a log that stays loses no event, and each
//! event is in the former logs or in the new ones.

use crate::common::{World, events, log_file as file, mapping, wait_for};
use natgate_engine::Change;
use natgate_gateway::{LogSettings, LogTo, LogWhat, SpoolSettings};
use natgate_logs::{Feed, Logs};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn tell(feed: &mut Feed, number: u8) {
    let one = [Change::MappingCreated(mapping(number))].into_iter();
    events(one).iter().for_each(|event| feed.event(event));
    feed.passed(natgate_engine::Timestamp(u64::MAX - 1));
}

/// Subscribers in a file's events, in order.
fn told(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let subscriber = |line: &str| {
        let (_, rest) = line.split_once("\"subscriber\":\"10.0.0.")?;
        rest.split('"').next()?.parse().ok()
    };
    text.lines().filter_map(subscriber).collect()
}

fn exchange(logs: &Logs, settings: &[LogSettings]) {
    logs.changer().prepare(settings).unwrap_or_else(|error| panic!("{error}")).apply();
}

fn written(logs: &Logs) -> u64 {
    logs.metrics()().iter().map(|one| one.written).sum()
}

#[test]
fn each_event_is_in_those_before_or_those_after_and_who_stays_has_all() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    let world = World::start(&[file(&a), file(&b)]);
    let mut feed = world.logs.joining().feed();
    tell(&mut feed, 1);
    wait_for("the first", || written(&world.logs) == 2);
    exchange(&world.logs, &[file(&c), file(&b)]);
    // A removed log is written to its end, and closed.
    assert_eq!((told(&a), told(&c)), (vec![1], vec![]));
    let names: Vec<_> = world.logs.metrics()().into_iter().map(|one| one.name).collect();
    assert_eq!(names, [&c, &b].map(|path| format!("file {}", path.display())));
    tell(&mut feed, 2);
    wait_for("the second", || told(&c).len() == 1);
    // An exchange to no log, and to some again.
    exchange(&world.logs, &[]);
    assert_eq!((told(&b), told(&c)), (vec![1, 2], vec![2]));
    tell(&mut feed, 3);
    exchange(&world.logs, &[file(&a)]);
    tell(&mut feed, 4);
    drop(feed);
    assert!(world.finish().is_empty());
    assert_eq!(told(&a), [1, 4]);
    assert_eq!((told(&b), told(&c)), (vec![1, 2], vec![2]));
}

#[test]
fn what_is_only_kept_otherwise_is_written_on_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let with_queue = |queue| LogSettings { queue, ..file(&path) };
    let world = World::start(&[with_queue(100)]);
    let mut feed = world.logs.joining().feed();
    for number in 1..20 {
        tell(&mut feed, number);
        exchange(&world.logs, &[with_queue(100 + usize::from(number))]);
    }
    drop(feed);
    assert!(world.finish().is_empty());
    assert_eq!(told(&path), (1..20).collect::<Vec<u8>>());
}

#[test]
fn a_bad_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (good, other) = (folder.path().join("good"), folder.path().join("other"));
    let world = World::start(&[file(&good)]);
    let mut feed = world.logs.joining().feed();
    let bad = [file(&other), file(&folder.path().join("no/such/folder"))];
    let error = world.logs.changer().prepare(&bad).err().expect("it cannot be opened");
    assert!(error.to_string().contains("no/such/folder cannot be opened"), "{error}");
    // A prepared exchange that is not applied changes nothing either.
    drop(world.logs.changer().prepare(&[file(&other)]));
    tell(&mut feed, 5);
    drop(feed);
    assert!(world.finish().is_empty());
    assert_eq!((told(&good), told(&other)), (vec![5], vec![]));
}

#[test]
fn a_spool_that_is_kept_otherwise_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let spool = |max_size| LogSettings {
        what: LogWhat::Mappings,
        remotes: false,
        queue: 100,
        to: LogTo::Spool(SpoolSettings {
            folder: folder.path().join("spool"),
            max_size,
            max_age: Duration::from_secs(1 << 30),
        }),
    };
    let world = World::start(&[spool(1 << 20)]);
    let mut feed = world.logs.joining().feed();
    tell(&mut feed, 7);
    wait_for("the first", || written(&world.logs) == 1);
    exchange(&world.logs, &[spool(2 << 20)]);
    tell(&mut feed, 8);
    wait_for("the second", || written(&world.logs) == 1);
    drop(feed);
    assert!(world.finish().is_empty());
    // A start by the second log would end the mapping that the first log has.
    let (folder, time) = (folder.path().join("spool"), natgate_engine::Timestamp(u64::MAX / 2));
    let external = (mapping(7).external.address, mapping(7).external.port);
    let found = natgate_logs::holders(&folder, external, None, time, &|| true);
    let found = found.expect("the mapping is there still").holders;
    assert_eq!(found[0].subscriber, mapping(7).internal.address.to_string());
    assert_eq!(found[0].until, None);
}
