//! Spools that are written and searched, with mappings, blocks, sessions, gaps, restarts and
//! damage.

use super::*;
use crate::drive::Sink;
use crate::json::Names;
use crate::record::{Gap, Host, Record};
use crate::sinks::spool::SpoolSink;
use crate::spool::segments::{Segment, list as listing};
use natgate_engine::{BlockId, Change, Event, MappingId, MappingKind, SessionId};
use natgate_gateway::SpoolSettings;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

pub(super) const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const UDP: Option<u8> = Some(17);

fn list(folder: &Path) -> io::Result<Vec<Segment>> {
    Ok(listing(folder)?.segments)
}

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000_000)
}

pub(super) struct World {
    pub(super) folder: TempDir,
    sink: SpoolSink,
    names: Names,
}

pub(super) fn settings(folder: &Path) -> SpoolSettings {
    let (max_size, max_age) = (1 << 20, Duration::from_secs(1 << 30));
    SpoolSettings { folder: folder.to_owned(), max_size, max_age }
}

impl World {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = SpoolSink::open(&settings(folder.path()), true).unwrap();
        sink.connect(at(1)).unwrap();
        Self { folder, sink, names: Names::default() }
    }

    pub(super) fn tell(&mut self, time: u64, change: Change) {
        self.record(Record::Event(Event { time: at(time), change }), time);
    }

    pub(super) fn tell_of(&mut self, host: HostName, time: u64, change: Change) {
        let event = Event { time: at(time), change };
        let records = [Record::Host(Host::new(event.time, &host)), Record::Event(event)];
        let (written, result) = self.sink.write(&records, &self.names, at(time));
        result.unwrap();
        assert_eq!(written, 2);
        self.sink.flush(at(time)).unwrap();
    }

    pub(super) fn record(&mut self, record: Record, time: u64) {
        let (written, result) = self.sink.write(&[record], &self.names, at(time));
        result.unwrap();
        assert_eq!(written, 1);
        self.sink.flush(at(time)).unwrap();
    }

    fn who(&self, port: u16, protocol: Option<u8>, time: u64) -> Result<Vec<Holder>, SearchError> {
        Ok(self.answer(port, protocol, time)?.holders)
    }

    fn answer(&self, port: u16, protocol: Option<u8>, time: u64) -> Result<Holders, SearchError> {
        holders(self.folder.path(), (POOL, port), protocol, at(time), &|| true)
    }

    /// The single holder, if there is exactly one.
    fn whose(&self, port: u16, protocol: Option<u8>, time: u64) -> Option<Ipv4Addr> {
        let found = self.who(port, protocol, time).ok()?;
        assert_eq!(found.len(), 1, "{found:?}");
        Some(found[0].subscriber.parse().expect("an address"))
    }

    pub(super) fn restart(&mut self, time: u64, continued: bool) {
        let sink = SpoolSink::open(&settings(self.folder.path()), true).unwrap();
        self.sink = if continued { sink.continued().unwrap() } else { sink };
        self.sink.connect(at(time)).unwrap();
    }
}

pub(super) fn subscriber(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

pub(super) fn mapping(number: u8, port: u16) -> MappingId {
    MappingId {
        protocol: 17,
        realm: 0,
        internal: Endpoint { address: subscriber(number), port: 4000 },
        external: Endpoint { address: POOL, port },
        kind: MappingKind::Dynamic,
    }
}

#[test]
fn whose_an_endpoint_was_depends_on_when() {
    let mut world = World::new();
    world.tell(10, Change::MappingCreated(mapping(1, 5000)));
    world.tell(20, Change::MappingRemoved(mapping(1, 5000)));
    world.tell(30, Change::MappingCreated(mapping(2, 5000)));
    for (time, whose) in
        [(9, None), (10, Some(1)), (19, Some(1)), (20, None), (29, None), (31, Some(2))]
    {
        assert_eq!(world.whose(5000, UDP, time), whose.map(subscriber), "at {time}");
    }
    assert_eq!(world.whose(5000, None, 15), Some(subscriber(1)));
    assert_eq!(world.whose(5000, Some(6), 15), None, "another protocol");
    assert_eq!(world.whose(5001, UDP, 15), None, "another port");
    let found = &world.who(5000, UDP, 15).unwrap()[0];
    assert_eq!((found.since, found.until), (Some(10.0), Some(20.0)));
    assert_eq!(found.internal.as_deref(), Some("10.0.0.1:4000"));
    let error = world.who(5000, UDP, 25).unwrap_err().to_string();
    assert!(error.ends_with("; 10.0.0.1 had it until 20.000"), "{error}");
    assert!(matches!(world.who(5000, UDP, 0), Err(SearchError::TooEarly(_))));
}

/// A gateway takes the holdings of another at 20: their begins are in the other's spool.
#[test]
fn the_end_of_a_continued_mapping_names_its_holder_since_the_take_over() {
    let mut world = World::new();
    world.tell(10, Change::MappingCreated(mapping(1, 5000)));
    world.tell(15, Change::MappingRemoved(mapping(1, 5000)));
    world.tell(30, Change::MappingRemoved(mapping(2, 5000)));
    world.tell(40, Change::MappingCreated(mapping(3, 5001)));
    world.tell(50, Change::MappingRemoved(mapping(3, 5001)));
    world.tell(60, Change::MappingRemoved(mapping(4, 5000)));
    let within = |port, time: u64, inherited: Option<u64>, lost: Option<u64>| {
        let tenure =
            Tenure { inherited: inherited.map(at), lost: lost.map(at), ..Tenure::default() };
        let folder = world.folder.path();
        let found = holders_of(folder, (POOL, port), UDP, at(time), tenure, &|| true);
        found.ok().map(|found| found.holders[0].subscriber.clone())
    };
    let since = |port, time, inherited| within(port, time, inherited, None);
    let name = |number| Some(subscriber(number).to_string());
    assert_eq!(since(5000, 25, None), None, "nothing was continued");
    assert_eq!(since(5000, 25, Some(20)), name(2));
    assert_eq!(since(5000, 12, Some(20)), name(1));
    assert_eq!(since(5000, 17, Some(20)), None, "the take-over was later");
    assert_eq!(since(5000, 35, Some(20)), None, "the continued mapping has ended");
    assert_eq!(since(5001, 25, Some(20)), None, "the next mapping begins");
    assert_eq!(since(5001, 45, Some(20)), name(3));
    assert_eq!(within(5000, 25, Some(20), Some(30)), name(2));
    assert_eq!(within(5000, 25, Some(20), Some(28)), None, "another owner may have made it");
    assert_eq!(within(5001, 45, Some(20), Some(46)), name(3), "its begin is known");
}

/// Another gateway owns the address from 20 to 50. It ends the mapping at 25, and makes it again at
/// 40. The first gateway continues and ends the second one.
#[test]
fn an_end_after_another_owner_is_none_of_the_mapping_before() {
    let mut world = World::new();
    // The begin of a mapping may be missing.
    world.record(Record::Gap(Gap { lost: 7, from: at(2), to: at(3) }), 3);
    world.tell(12, Change::MappingCreated(mapping(1, 5000)));
    let block =
        BlockId { realm: 0, subscriber: subscriber(3), external: POOL, ports: (2048, 2559) };
    world.tell(13, Change::BlockAssigned(block));
    world.tell(60, Change::MappingRemoved(mapping(1, 5000)));
    world.tell(61, Change::BlockReleased(block));
    world.tell(70, Change::MappingRemoved(mapping(2, 5001)));
    let until = |port, time, away: Option<u64>, lost: Option<u64>| {
        let tenure = Tenure { away: away.map(at), lost: lost.map(at), ..Tenure::default() };
        let folder = world.folder.path();
        let found = holders_of(folder, (POOL, port), UDP, at(time), tenure, &|| true);
        found.ok().map(|found| found.holders[0].until)
    };
    assert_eq!(until(5000, 30, Some(20), None), Some(None));
    assert_eq!(until(5000, 15, None, Some(20)), Some(None));
    assert_eq!(until(5000, 55, None, None), Some(Some(60.0)), "the owner ended it");
    assert_eq!(until(5000, 30, Some(11), None), Some(Some(60.0)), "it is younger");
    assert_eq!(until(2050, 30, Some(20), None), Some(Some(61.0)), "both log blocks");
    assert_eq!(until(5001, 30, None, None), Some(Some(70.0)));
    assert_eq!(until(5001, 30, Some(20), None), None, "the other gateway may have made it later");
}

#[test]
fn a_block_is_all_its_ports_and_protocols() {
    let mut world = World::new();
    let block =
        BlockId { realm: 1, subscriber: subscriber(3), external: POOL, ports: (2048, 2559) };
    world.names.realms = vec!["default".into(), "red".into()];
    world.tell(10, Change::BlockAssigned(block));
    world.tell(50, Change::BlockReleased(block));
    for port in [2048, 2300, 2559] {
        assert_eq!(world.whose(port, None, 11), Some(subscriber(3)));
        assert_eq!(world.whose(port, Some(6), 49), Some(subscriber(3)));
        assert_eq!(world.whose(port, None, 50), None);
    }
    assert_eq!((world.whose(2047, None, 11), world.whose(2560, None, 11)), (None, None));
    let found = &world.who(2050, None, 11).unwrap()[0];
    assert_eq!((found.realm.as_deref(), &found.ports[..]), (Some("red"), "2048-2559"));
}

#[test]
fn all_sessions_of_the_time_are_named() {
    let mut world = World::new();
    let session = |last: u32| {
        let remote = Endpoint::new(0xc000_0200 + last, 53);
        SessionId { mapping: mapping(1, 5000), remote, remote_inside: remote }
    };
    world.tell(10, Change::SessionCreated(session(1)));
    world.tell(11, Change::SessionCreated(session(2)));
    world.tell(20, Change::SessionRemoved(session(1)));
    let remotes = |time| {
        let found = world.who(5000, UDP, time).unwrap();
        let mut remotes: Vec<_> = found.into_iter().filter_map(|one| one.remote).collect();
        remotes.sort();
        remotes
    };
    assert_eq!(remotes(10), ["192.0.2.1:53"]);
    assert_eq!(remotes(15), ["192.0.2.1:53", "192.0.2.2:53"]);
    assert_eq!(remotes(25), ["192.0.2.2:53"]);
}

#[test]
fn what_was_there_before_the_log_is_known_by_its_end() {
    let mut world = World::new();
    world.tell(2, Change::MappingCreated(mapping(8, 2)));
    world.restart(5, true);
    fs::remove_file(&list(world.folder.path()).unwrap()[0].path).unwrap();
    world.tell(10, Change::MappingCreated(mapping(9, 1)));
    world.tell(20, Change::MappingRemoved(mapping(1, 5000)));
    let found = &world.who(5000, UDP, 15).unwrap()[0];
    assert_eq!(found.subscriber, subscriber(1).to_string());
    assert_eq!((found.since, found.until), (None, Some(20.0)));
    assert_eq!(world.whose(5000, UDP, 21), None);
}

#[test]
fn a_restart_ends_what_there_was_unless_mappings_go_on() {
    for continued in [false, true] {
        let mut world = World::new();
        world.tell(10, Change::MappingCreated(mapping(1, 5000)));
        world.restart(20, continued);
        world.tell(30, Change::MappingCreated(mapping(2, 6000)));
        assert_eq!(world.whose(5000, UDP, 19), Some(subscriber(1)));
        assert_eq!(world.whose(5000, UDP, 31), continued.then_some(subscriber(1)));
    }
}

#[test]
fn an_answer_over_a_gap_says_so() {
    let mut world = World::new();
    world.tell(10, Change::MappingCreated(mapping(1, 5000)));
    world.record(Record::Gap(Gap { lost: 7, from: at(11), to: at(12) }), 12);
    world.tell(20, Change::MappingCreated(mapping(2, 6000)));
    assert_eq!(world.who(5000, UDP, 10).unwrap()[0].missing, 0);
    assert_eq!(world.who(5000, UDP, 30).unwrap()[0].missing, 7);
    let error = world.who(7000, UDP, 30).unwrap_err().to_string();
    assert!(error.ends_with("; 7 events are missing there"), "{error}");
}

#[test]
fn what_a_crash_cuts_off_is_the_last_frame() {
    let mut world = World::new();
    for number in 1..=4 {
        world.tell(
            10 * u64::from(number),
            Change::MappingCreated(mapping(number, 5000 + u16::from(number))),
        );
    }
    let path = list(world.folder.path()).unwrap()[0].path.clone();
    let whole = fs::read(&path).unwrap();
    let mut lens = vec![whole.len()];
    for cut in 1..=20 {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        lens.push(whole.len() - cut);
        for number in 1..=3 {
            assert_eq!(world.whose(5000 + u16::from(number), UDP, 99), Some(subscriber(number)));
        }
        assert_eq!(world.whose(5004, UDP, 99), None);
    }
    // A new run writes another file, and all the rest can be read.
    world.restart(100, true);
    world.tell(110, Change::MappingCreated(mapping(7, 7000)));
    assert_eq!(world.whose(7000, UDP, 111), Some(subscriber(7)));
    assert_eq!(world.whose(5003, UDP, 111), Some(subscriber(3)));
    fs::write(&path, "something else altogether").unwrap();
    let error = world.who(5003, UDP, 50).unwrap_err().to_string();
    assert!(error.contains("it is no file of a spool"), "{error}");
}

#[test]
fn what_is_too_old_or_too_much_is_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    let max_age = Duration::from_secs(3600);
    let small = SpoolSettings { max_size: 300 << 10, max_age, ..settings(folder.path()) };
    let mut sink = SpoolSink::open(&small, false).unwrap();
    sink.connect(at(1)).unwrap();
    let names = Names::default();
    let mut port = 0_u64;
    let mut fill = |sink: &mut SpoolSink, time: u64| {
        let records: Vec<_> = (0..4096_u64)
            .map(|_| {
                port = port
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let id = MappingId {
                    internal: Endpoint::new((port >> 32) as u32, 1),
                    ..mapping(1, (port >> 40) as u16)
                };
                Record::Event(Event { time: at(time), change: Change::MappingCreated(id) })
            })
            .collect();
        assert_eq!(sink.write(&records, &names, at(time)).0, records.len());
        sink.flush(at(time)).unwrap();
    };
    let size = || list(folder.path()).unwrap().iter().map(|one| one.size).sum::<u64>();
    for time in 10..60 {
        fill(&mut sink, time);
        assert!(size() <= small.max_size, "{} bytes", size());
    }
    assert!(size() > small.max_size / 2, "it is used");
    let oldest = list(folder.path()).unwrap()[0].from;
    assert!(oldest > at(10));
    fill(&mut sink, 4000);
    fill(&mut sink, 8000);
    assert!(list(folder.path()).unwrap()[0].from >= at(4000), "what is old is gone");
}

#[test]
fn a_spool_is_for_its_owner_and_the_group_alone() {
    use std::os::unix::fs::MetadataExt;
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("log/spool");
    let mut sink = SpoolSink::open(&settings(&folder), false).unwrap();
    sink.connect(at(1)).unwrap();
    let created = Change::MappingCreated(mapping(1, 5000));
    let record = Record::Event(Event { time: at(2), change: created });
    sink.write(&[record], &Names::default(), at(2)).1.unwrap();
    sink.flush(at(2)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for made in [&folder, &parent.path().join("log")] {
        assert_eq!(mode(made) & 0o027, 0, "{:o}", mode(made));
    }
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "a segment and a note");
    for file in files {
        assert_eq!(mode(&file) & 0o137, 0, "{}: {:o}", file.display(), mode(&file));
    }
}

#[test]
fn a_disk_that_is_full_is_an_error_and_the_log_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &[&str]| {
        let status = std::process::Command::new(program).args(args).status().unwrap();
        assert!(status.success(), "{program} {args:?} (as root?)");
    };
    let path = folder.path().to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", path]);
    struct Mounted(String);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg(&self.0).status();
        }
    }
    let _mounted = Mounted(path.to_owned());
    let mut sink = SpoolSink::open(&settings(folder.path()), false).unwrap();
    sink.connect(at(1)).unwrap();
    let names = Names::default();
    let record = |time, number| {
        Record::Event(Event {
            time: at(time),
            change: Change::MappingCreated(mapping(number, 5000)),
        })
    };
    sink.write(&[record(2, 1)], &names, at(2)).1.unwrap();
    sink.flush(at(2)).unwrap();
    fs::write(folder.path().join("else"), vec![1; 1 << 20]).unwrap_err();
    // The last page of the file has room for some frames.
    let full = (3..100).find_map(|time| {
        sink.write(&[record(time, time as u8)], &names, at(time)).1.unwrap();
        sink.flush(at(time)).err().map(|error| (time, error))
    });
    let (last, error) = full.expect("the disk is full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    fs::remove_file(folder.path().join("else")).unwrap();
    sink.connect(at(last + 1)).unwrap();
    drop(sink);
    for time in [2, last - 1, last] {
        let found = holders(folder.path(), (POOL, 5000), UDP, at(time), &|| true).unwrap().holders;
        let number = if time == 2 { 1 } else { time as u8 };
        assert_eq!(found[0].subscriber, subscriber(number).to_string());
    }
}

#[test]
fn a_start_is_before_what_happened_before_the_log_was_connected() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = SpoolSink::open(&settings(folder.path()), true).unwrap();
    // The workers assign static ports before the log is connected.
    sink.connect(at(12)).unwrap();
    let change = Change::MappingCreated(mapping(1, 5000));
    let record = Record::Event(Event { time: at(10), change });
    sink.write(&[record], &Names::default(), at(12)).1.unwrap();
    sink.passed(at(15));
    sink.flush(at(15)).unwrap();
    for time in [10, 12, 14, 20] {
        let found = holders(folder.path(), (POOL, 5000), UDP, at(time), &|| true).unwrap();
        assert_eq!(found.holders[0].subscriber, subscriber(1).to_string(), "{time}");
        assert_eq!(found.coverage.covered[0].from, 10.0);
    }
}

/// A pseudorandom sequence that a seed determines.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Writes a history with restarts and take-overs, and compares the search with a list in memory.
fn compare_history(seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new();
    let mut owners: [Option<u8>; 3] = [None; 3];
    let (mut time, mut history) = (10, Vec::new());
    for _ in 0..60 {
        time += 2 + random.below(4);
        if random.below(12) == 0 {
            let is_continued = random.below(2) == 0;
            if random.below(2) == 0 {
                world.sink.close(at(time)).unwrap();
            }
            world.restart(time, is_continued);
            world.sink.passed(at(time));
            world.sink.flush(at(time)).unwrap();
            if !is_continued {
                owners = [None; 3];
            }
        } else {
            let index = random.below(3) as usize;
            let port = 5000 + index as u16;
            let (next, change) = match owners[index] {
                Some(owner) => (None, Change::MappingRemoved(mapping(owner, port))),
                None => {
                    let owner = 1 + random.below(9) as u8;
                    (Some(owner), Change::MappingCreated(mapping(owner, port)))
                }
            };
            owners[index] = next;
            world.tell(time, change);
        }
        history.push((time, owners));
    }
    for (time, owners) in history {
        for (index, owner) in owners.iter().enumerate() {
            for time in [time, time + 1] {
                let port = 5000 + index as u16;
                let whose = world.whose(port, UDP, time);
                assert_eq!(whose, owner.map(subscriber), "seed {seed}, port {port}, at {time}");
            }
        }
    }
}

#[test]
fn the_search_agrees_with_a_list_of_random_histories() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64 | 1;
    println!("seed {seed}");
    (0..20).for_each(|number| compare_history(seed.wrapping_add(2 * number) | 1));
}

#[test]
fn a_clock_that_is_set_back_hides_nothing() {
    let mut world = World::new();
    world.tell(10, Change::MappingCreated(mapping(1, 5000)));
    world.tell(100, Change::MappingRemoved(mapping(1, 5000)));
    world.restart(50, false);
    world.tell(50, Change::MappingCreated(mapping(2, 5000)));
    world.tell(60, Change::MappingCreated(mapping(3, 5001)));
    let found = world.answer(5000, UDP, 55).unwrap();
    let whose: Vec<_> = found.holders.iter().map(|holder| &holder.subscriber[..]).collect();
    assert_eq!(whose, [1, 2].map(|number| subscriber(number).to_string()));
    assert_eq!(found.coverage.covered.len(), 2);
}

/// A host of NAT64 in the network of a number.
pub(super) fn host(number: u16, is_known: bool) -> HostName {
    let address = |last| Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, last);
    HostName { address: is_known.then(|| address(5)), prefix: address(0), len: 64 }
}

#[test]
fn hosts_of_nat64_are_named_and_a_number_passes_on() {
    let mut world = World::new();
    // The same number of the engine has three hosts, one after the other.
    for number in 1..=3_u16 {
        let time = u64::from(number) * 100;
        world.tell_of(host(number, true), time, Change::MappingCreated(mapping(1, 5000)));
        world.tell_of(host(number, false), time + 50, Change::MappingRemoved(mapping(1, 5000)));
    }
    let (subscriber, external, ports) = (subscriber(1), POOL, (2048, 2559));
    let block = BlockId { realm: 0, subscriber, external, ports };
    world.tell_of(host(9, false), 400, Change::BlockAssigned(block));
    for number in 1..=3_u16 {
        let time = u64::from(number) * 100;
        let found = &world.who(5000, UDP, time + 20).unwrap()[0];
        assert_eq!(found.subscriber, format!("2001:db8:{number}::/64"));
        let internal = format!("[2001:db8:{number}::5]:{}", mapping(1, 5000).internal.port);
        assert_eq!(found.internal.as_deref(), Some(&internal[..]));
        assert_eq!((found.since, found.until), (Some(time as f64), Some(time as f64 + 50.0)));
        assert_eq!(world.who(5000, UDP, time + 70).unwrap_or_default().len(), 0);
    }
    let found = &world.who(2100, None, 500).unwrap()[0];
    assert_eq!((&found.subscriber[..], &found.internal), ("2001:db8:9::/64", &None));
}

#[test]
fn a_host_behind_a_tunnel_is_written_as_in_the_lists() {
    let mut world = World::new();
    let address = Some(Ipv4Addr::new(192, 168, 1, 2).to_ipv6_mapped());
    let name = HostName { address, ..host(1, true) };
    world.tell_of(name, 100, Change::MappingCreated(mapping(1, 5000)));
    let found = &world.who(5000, UDP, 120).unwrap()[0];
    let internal = format!("192.168.1.2:{}", mapping(1, 5000).internal.port);
    let shown = (&found.subscriber[..], found.internal.as_deref());
    assert_eq!(shown, ("2001:db8:1::/64", Some(&internal[..])));
}
