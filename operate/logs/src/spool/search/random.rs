//! Random histories of a spool, written and searched, against a plain list in memory: sessions,
//! mappings and blocks that begin and end, lost events, gateways that start, crash, end and take
//! over, clocks that are set, new realms, segments that end and are deleted, torn ends, and other
//! configurations by reloads and restarts.

use super::tests::{POOL, mapping, settings, subscriber};
use super::*;
use crate::drive::Sink;
use crate::in_force::{InForce, OwnersInForce};
use crate::json::Names;
use crate::record::{ClockSet, Gap, Record};
use crate::sinks::spool::SpoolSink;
use crate::spool::outline::{InForceThen, Reason, Span};
use crate::spool::segments::list;
use natgate_engine::{BlockId, Change, Event, MappingId, SessionId};
use natgate_gateway::SpoolSettings;
use proptest::prelude::*;
use std::fs::{self, File};
use std::time::Duration;
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;

/// Begin of each history.
const BEGIN: u64 = 1_000_000 * SECOND;

/// Ports; a block covers the last ones.
const PORTS: [u16; 4] = [5000, 5001, 5002, 5003];
const BLOCK: (u16, u16) = (5002, 5009);

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A mapping (0), session (1) or block (2) of a subscriber at a port begins or ends.
    Change { kind: u8, number: u8, port: usize, begins: bool },
    /// Events are lost.
    Lost,
    /// Seconds pass; everything until then is written.
    Passes(u64),
    /// The clock is set forward or back, seconds.
    ClockSet(i64),
    /// A gateway ends, or crashes and perhaps leaves half a frame. Another starts seconds later by
    /// a clock that may have been set meanwhile, with another configuration.
    Restart { clean: bool, torn: bool, later: i64, in_force: u8 },
    /// Another configuration comes into force by a reload.
    Reload(u8),
    /// A gateway starts and fails before it translates anything.
    FailedStart,
    /// Another process continues with the mappings, and with another configuration.
    TakeOver { clean: bool, in_force: u8 },
    /// The log is not written for seconds.
    Pause(u64),
    /// One more realm is added.
    Realm,
    /// The oldest segment is deleted.
    ThrownAway,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0..3_u8, 1..4_u8, 0..PORTS.len(), any::<bool>())
        .prop_map(|(kind, number, port, begins)| Step::Change { kind, number, port, begins });
    let restart = (any::<bool>(), any::<bool>(), -40..40_i64, 0..4_u8)
        .prop_map(|(clean, torn, later, in_force)| Step::Restart { clean, torn, later, in_force });
    let take_over =
        (any::<bool>(), 0..4_u8).prop_map(|(clean, in_force)| Step::TakeOver { clean, in_force });
    prop_oneof![
        20 => change,
        1 => Just(Step::Lost),
        6 => (0..9_u64).prop_map(Step::Passes),
        1 => Just(Step::Passes(70)),
        2 => (-50..50_i64).prop_map(Step::ClockSet),
        2 => restart,
        1 => Just(Step::FailedStart),
        1 => take_over,
        3 => (0..4_u8).prop_map(Step::Reload),
        1 => (1..30_u64).prop_map(Step::Pause),
        1 => Just(Step::Realm),
        1 => Just(Step::ThrownAway),
    ]
}

/// An entry of the list in memory.
#[derive(Clone, Debug)]
enum Item {
    Begins(Owned),
    Ends(Owned),
    Lost,
    /// A configuration came into force until a time.
    InForce(u64, u8),
}

/// A holding of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owned {
    kind: u8,
    number: u8,
    port: u16,
}

impl Owned {
    fn is_of(self, port: u16, protocol: Option<u8>) -> bool {
        match self.kind {
            2 => (BLOCK.0..=BLOCK.1).contains(&port),
            _ => self.port == port && protocol.is_none_or(|protocol| protocol == 17),
        }
    }
}

/// An expected holder, from the list.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    subscriber: Ipv4Addr,
    ports: String,
    is_session: bool,
    since: Option<f64>,
    until: Option<f64>,
}

impl Expected {
    fn of(owned: Owned, since: Option<u64>, until: Option<u64>) -> Self {
        Self {
            subscriber: subscriber(owned.number),
            ports: match owned.kind {
                2 => format!("{}-{}", BLOCK.0, BLOCK.1),
                _ => owned.port.to_string(),
            },
            is_session: owned.kind == 1,
            since: since.map(|time| seconds(Timestamp(time))),
            until: until.map(|time| seconds(Timestamp(time))),
        }
    }
}

/// State of an endpoint at a place, from the list.
#[derive(Clone, Copy, Debug)]
struct State {
    owned: Owned,
    since: u64,
    is_open: bool,
    order: usize,
}

/// A stretch in which nothing is missing, and the clock was not set.
#[derive(Clone, Debug)]
struct Stretch {
    from: u64,
    until: u64,
    follows: Follows,
    /// Configuration at the begin; `None` if it is not known.
    in_force: Option<u8>,
    items: Vec<(u64, Item)>,
}

struct History {
    folder: TempDir,
    sink: SpoolSink,
    names: Names,
    now: u64,
    stretches: Vec<Stretch>,
    /// Relation of the next stretch, if the next entry begins one.
    next: Option<Follows>,
    /// Time at which the sink was connected.
    connected: u64,
    was_closed: bool,
    /// Configuration in force.
    in_force: u8,
}

/// Record of a configuration, which came into force between two times. Number 0 has no record.
fn record(number: u8, from: u64, until: u64) -> InForce {
    let packed = match number {
        0 => Vec::new(),
        number => owners(number).pack().unwrap(),
    };
    InForce { packed, from: Timestamp(from), until: Timestamp(until) }
}

fn owners(number: u8) -> OwnersInForce {
    OwnersInForce { realms: vec![number.to_string()], ..OwnersInForce::default() }
}

fn small(folder: &Path) -> SpoolSettings {
    SpoolSettings { max_age: Duration::from_secs(64 * 60), ..settings(folder) }
}

impl History {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = SpoolSink::open(&small(folder.path()), true).unwrap();
        sink.connect(Timestamp(BEGIN)).unwrap();
        sink.put_in_force(&record(1, BEGIN, BEGIN), Timestamp(BEGIN)).unwrap();
        let (names, next) = (Names::default(), Some(Follows::Start));
        Self {
            folder,
            sink,
            names,
            now: BEGIN,
            stretches: Vec::new(),
            next,
            connected: BEGIN,
            was_closed: false,
            in_force: 1,
        }
    }

    /// The present stretch, or a new one.
    fn stretch(&mut self) -> &mut Stretch {
        if let Some(follows) = self.next.take() {
            let before = self.stretches.last().map(|before| before.until);
            let follows = match follows {
                Follows::Directly if Some(self.now) < before => Follows::ClockSet,
                follows => follows,
            };
            let from = match (follows, before) {
                (Follows::Directly, Some(before)) => before,
                (Follows::Start, _) => self.connected.min(self.now),
                _ => self.now,
            };
            let (until, in_force, items) = (from.max(self.now), Some(self.in_force), Vec::new());
            self.stretches.push(Stretch { from, until, follows, in_force, items });
            self.was_closed = false;
        }
        self.stretches.last_mut().unwrap()
    }

    fn put(&mut self, record: Record, item: Option<Item>) {
        let now = self.now;
        let stretch = self.stretch();
        stretch.until = stretch.until.max(now);
        stretch.items.extend(item.map(|item| (now, item)));
        assert_eq!(self.sink.write(&[record], &self.names, Timestamp(now)).0, 1);
        self.sink.flush(Timestamp(now)).unwrap();
    }

    fn pass(&mut self) {
        let now = self.now;
        let stretch = self.stretch();
        stretch.until = stretch.until.max(now);
        self.sink.passed(Timestamp(now));
        self.sink.flush(Timestamp(now)).unwrap();
    }

    /// Replaces the sink by one that has written nothing yet.
    fn replace(&mut self, continues: bool) {
        let sink = SpoolSink::open(&small(self.folder.path()), true).unwrap();
        self.sink = if continues { sink.continued().unwrap() } else { sink };
        self.connect();
    }

    fn connect(&mut self) {
        self.connected = self.now;
        let now = Timestamp(self.now);
        self.sink.connect(now).unwrap();
        self.sink.put_in_force(&record(self.in_force, self.now, self.now), now).unwrap();
    }

    /// Another configuration comes into force within a part of a second.
    fn reload(&mut self, number: u8) {
        let (from, until) = (self.now, self.now + SECOND / 8);
        let is_first = self.next.is_some();
        let stretch = self.stretch();
        if is_first && stretch.follows == Follows::Start {
            // The start alone is written.
            stretch.until = stretch.from;
        }
        if self.in_force != number {
            self.stretch().items.push((from, Item::InForce(until, number)));
        }
        self.now = until;
        self.in_force = number;
        self.sink.put_in_force(&record(number, from, until), Timestamp(until)).unwrap();
        self.sink.flush(Timestamp(until)).unwrap();
    }

    fn close(&mut self) {
        self.stretch();
        self.sink.close(Timestamp(self.now)).unwrap();
        self.was_closed = true;
    }

    /// Cuts the last frame off, as a crash may; then the time that it reached is unknown.
    fn tear(&mut self) {
        let segments = list(self.folder.path()).unwrap().segments;
        let Some(last) = segments.last().filter(|_| self.next.is_none()) else { return };
        let Some(stretch) = self.stretches.last_mut() else { return };
        // The stretch must keep an entry, so that it is visible at all.
        if stretch.items.len() < 2 {
            return;
        }
        let frames = Reader::open(&last.path).unwrap().frames(&|| true).unwrap().frames;
        let (Some(frame), true) = (frames.last(), frames.len() > 1) else { return };
        let file = File::options().write(true).open(&last.path).unwrap();
        file.set_len(frame.end() - 3).unwrap();
        stretch.items.pop();
        stretch.until = frames[frames.len() - 2].head.last.0;
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Change { kind, number, port, begins } => {
                let port = if kind == 2 { BLOCK.0 } else { PORTS[port] };
                let owned = Owned { kind, number, port };
                let change = change(owned, begins);
                let item = if begins { Item::Begins(owned) } else { Item::Ends(owned) };
                let event = Event { time: Timestamp(self.now), change };
                self.put(Record::Event(event), Some(item));
            }
            Step::Lost => {
                let now = Timestamp(self.now);
                let gap = Gap { lost: 3, from: now, to: now };
                self.put(Record::Gap(gap), Some(Item::Lost));
            }
            Step::Passes(seconds) => {
                self.now += seconds * SECOND;
                self.pass();
                // All until now has been written, so later entries have later times.
                self.now += 1;
            }
            Step::ClockSet(by) => {
                let (from, to) = (self.now, self.now.saturating_add_signed(by * SECOND as i64));
                self.now = to;
                let set = ClockSet { from: Timestamp(from), to: Timestamp(to) };
                let record = Record::ClockSet(set);
                assert_eq!(self.sink.write(&[record], &self.names, Timestamp(to)).0, 1);
                self.sink.flush(Timestamp(to)).unwrap();
                if self.next.is_some() {
                    self.connected = to;
                } else {
                    let before = self.stretches.last_mut().unwrap();
                    before.until = before.until.max(from);
                    self.next = Some(Follows::ClockSet);
                    self.stretch();
                }
            }
            Step::Reload(number) => self.reload(number),
            Step::Restart { clean, torn, later, in_force } => {
                match (clean, torn) {
                    (true, _) => self.close(),
                    (false, true) => self.tear(),
                    (false, false) => {}
                }
                self.now = self.now.saturating_add_signed(later * SECOND as i64);
                (self.next, self.in_force) = (Some(Follows::Start), in_force);
                self.replace(false);
            }
            Step::FailedStart => {
                let mut failed = SpoolSink::open(&small(self.folder.path()), true).unwrap();
                failed.connect(Timestamp(self.now)).unwrap();
                failed.put_in_force(&record(3, self.now, self.now), Timestamp(self.now)).unwrap();
                failed.flush(Timestamp(self.now)).unwrap();
            }
            Step::TakeOver { clean, in_force } => {
                // A run that has written nothing yet is not visible.
                let resumes = self.was_closed && self.next.is_some();
                let sink = SpoolSink::open(&small(self.folder.path()), true).unwrap();
                let sink = sink.continued().unwrap();
                if clean {
                    self.close();
                }
                self.now += SECOND / 2;
                let follows = match clean && !resumes {
                    true => Follows::Directly,
                    false => Follows::After(Reason::NotWritten),
                };
                self.sink = sink;
                (self.next, self.in_force) = (Some(follows), in_force);
                self.connect();
            }
            Step::Pause(seconds) => {
                self.close();
                self.now += seconds * SECOND;
                self.next = Some(Follows::After(Reason::NotWritten));
                self.replace(true);
            }
            Step::Realm => {
                let name = match self.names.realms.len() {
                    0 => DEFAULT_REALM.to_owned(),
                    number => format!("realm{number}"),
                };
                self.names.realms.push(name);
            }
            Step::ThrownAway => self.throw_away(),
        }
    }

    /// Deletes the oldest segment, unless it is being written.
    fn throw_away(&mut self) {
        let segments = list(self.folder.path()).unwrap().segments;
        let [oldest, _, ..] = &segments[..] else { return };
        let frames = Reader::open(&oldest.path).unwrap().frames(&|| true).unwrap().frames;
        let reader = Reader::open(&oldest.path).unwrap();
        let entries = frames.iter().flat_map(|frame| reader.entries(frame).unwrap().unwrap());
        let mut gone = 0;
        for entry in entries {
            gone += usize::from(matches!(
                entry,
                Entry::Begins(..) | Entry::Ends(..) | Entry::Gap(_) | Entry::InForce(_)
            ));
        }
        fs::remove_file(&oldest.path).unwrap();
        // A segment is a stretch or a part of one.
        let next = Reader::open(&segments[1].path).unwrap();
        let Some(first) = next.frame(next.begin()).unwrap() else { return };
        let head = &first.head;
        let entry = next.entries(&first).unwrap().unwrap()[0];
        let goes_on =
            head.number.is_some_and(|number| number > 0) && !matches!(entry, Entry::ClockSet(_));
        let stretch = &mut self.stretches[0];
        if goes_on {
            for (_, item) in stretch.items.drain(..gone) {
                if let Item::InForce(_, number) = item {
                    stretch.in_force = Some(number);
                }
            }
            if matches!(entry, Entry::InForce(_)) {
                stretch.in_force = None;
            }
            stretch.from = head.first.0;
            stretch.follows = Follows::After(Reason::Missing);
        } else {
            assert_eq!(stretch.items.len(), gone, "{stretch:?}");
            self.stretches.remove(0);
            if let Some(first) = self.stretches.first_mut()
                && first.follows != Follows::Start
            {
                first.follows = Follows::After(Reason::Missing);
                first.from = head.first.0;
            }
        }
    }
}

fn change(Owned { kind, number, port }: Owned, begins: bool) -> Change {
    let mapping = MappingId { realm: 0, ..mapping(number, port) };
    let remote = Endpoint::new(0xc000_0200 + u32::from(number), 53);
    let session = SessionId { mapping, remote, remote_inside: remote };
    let block = BlockId { realm: 0, subscriber: subscriber(number), external: POOL, ports: BLOCK };
    match (kind, begins) {
        (0, true) => Change::MappingCreated(mapping),
        (0, false) => Change::MappingRemoved(mapping),
        (1, true) => Change::SessionCreated(session),
        (1, false) => Change::SessionRemoved(session),
        (_, true) => Change::BlockAssigned(block),
        (_, false) => Change::BlockReleased(block),
    }
}

impl History {
    /// Places of a time: a stretch each, and true if they are covered.
    fn places(&self, at: u64) -> (Vec<usize>, bool) {
        let all = &self.stretches;
        let meets = |index: usize| {
            all.get(index + 1).is_some_and(|next| next.from == at && all[index].until == at)
        };
        let has =
            |index: &usize| (all[*index].from..=all[*index].until).contains(&at) && !meets(*index);
        let places: Vec<usize> = (0..all.len()).filter(has).collect();
        if !places.is_empty() {
            return (places, true);
        }
        let between = |index: &usize| {
            all[*index].until < at && all.get(index + 1).is_some_and(|next| at < next.from)
        };
        let places: Vec<usize> = (0..all.len()).filter(between).collect();
        match all.last() {
            Some(last) if places.is_empty() && last.until < at => (vec![all.len() - 1], false),
            _ => (places, false),
        }
    }

    /// Items of the list after a place, each with its stretch.
    fn after(&self, place: usize, at: u64) -> impl Iterator<Item = (usize, u64, &Item)> {
        let stretches = self.stretches.iter().enumerate().skip(place);
        let items = stretches.flat_map(|(index, stretch)| {
            stretch.items.iter().map(move |(time, item)| (index, *time, item))
        });
        items.filter(move |(index, time, _)| *index > place || *time > at)
    }

    fn states(&self, place: usize, at: u64) -> (Vec<State>, bool) {
        let (mut states, mut doubt): (Vec<State>, bool) = (Vec::new(), true);
        for (index, stretch) in self.stretches[..=place].iter().enumerate() {
            match stretch.follows {
                Follows::Start => (states, doubt) = (Vec::new(), false),
                Follows::After(_) => doubt = true,
                Follows::Directly | Follows::ClockSet => {}
            }
            for (time, item) in stretch.items.iter().filter(|item| index < place || item.0 <= at) {
                let (owned, begins) = match item {
                    Item::Begins(owned) => (*owned, true),
                    Item::Ends(owned) => (*owned, false),
                    Item::Lost => {
                        doubt = true;
                        continue;
                    }
                    Item::InForce(..) => continue,
                };
                let since = states.iter().find(|state| state.owned == owned);
                let since = if begins { *time } else { since.map_or(0, |state| state.since) };
                let order = states.iter().map(|state| state.order + 1).max().unwrap_or(0);
                states.retain(|state| state.owned != owned);
                states.push(State { owned, since, is_open: begins, order });
            }
        }
        (states, doubt)
    }

    fn expected_at(&self, place: usize, at: u64, port: u16, protocol: Option<u8>) -> Vec<Expected> {
        let (mut states, doubt) = self.states(place, at);
        states.retain(|state| state.is_open && state.owned.is_of(port, protocol));
        states.sort_by_key(|state| usize::MAX - state.order);
        let is_alone = |state: &State| match state.owned.kind {
            0 => protocol.is_some(),
            1 => false,
            _ => true,
        };
        let count = states.iter().position(is_alone).map_or(states.len(), |last| last + 1);
        let mut start = self.stretches.iter().enumerate().skip(place + 1);
        let start = start.find(|(_, stretch)| stretch.follows == Follows::Start);
        let until = |owned: Owned| {
            let ends = |(index, _, item): &(usize, u64, &Item)| {
                start.is_none_or(|(start, _)| *index < start)
                    && matches!(item, Item::Ends(other) if *other == owned)
            };
            let end = self.after(place, at).find(ends).map(|(_, time, _)| time);
            end.or(start.map(|(_, stretch)| stretch.from))
        };
        let expected =
            |state: &State| Expected::of(state.owned, Some(state.since), until(state.owned));
        if count > 0 || !doubt {
            return states[..count].iter().map(expected).collect();
        }
        let cut = self.stretches.iter().enumerate().skip(place + 1);
        let cut =
            cut.filter(|(_, next)| matches!(next.follows, Follows::Start | Follows::After(_)));
        let cut = cut.map(|(index, _)| index).next().unwrap_or(usize::MAX);
        let next = self.after(place, at).find(|(_, _, item)| match item {
            Item::Begins(owned) | Item::Ends(owned) => owned.is_of(port, protocol),
            Item::Lost | Item::InForce(..) => false,
        });
        match next {
            Some((index, time, Item::Ends(owned))) if index < cut => {
                vec![Expected::of(*owned, None, Some(time))]
            }
            _ => Vec::new(),
        }
    }

    /// Configurations in force at the places.
    fn expected_in_force(&self, places: &[usize], at: u64) -> InForceThen {
        let mut known = Vec::new();
        for place in places {
            let stretch = &self.stretches[*place];
            let mut numbers = vec![stretch.in_force];
            for (from, item) in &stretch.items {
                let Item::InForce(until, number) = item else { continue };
                if *until <= at {
                    numbers.clear();
                }
                if *from <= at {
                    numbers.push(Some(*number));
                }
            }
            for number in numbers {
                match number {
                    None | Some(0) => return InForceThen::Unrecorded,
                    Some(number) if known.contains(&owners(number)) => {}
                    Some(number) => known.push(owners(number)),
                }
            }
        }
        InForceThen::Known(known)
    }

    /// Spans of the places' stretches.
    fn covered(&self, places: &[usize]) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for place in places {
            let directly = |stretch: &&Stretch| stretch.follows == Follows::Directly;
            let back = self.stretches[1..=*place].iter().rev().take_while(directly).count();
            let on = self.stretches[place + 1..].iter().take_while(directly).count();
            let time = |time| seconds(Timestamp(time));
            let span = Span {
                from: time(self.stretches[place - back].from),
                until: time(self.stretches[place + on].until),
            };
            if !spans.contains(&span) {
                spans.push(span);
            }
        }
        spans
    }

    fn check(&self, at: u64, port: u16, protocol: Option<u8>) {
        let (places, is_covered) = self.places(at);
        let mut expected: Vec<Expected> = Vec::new();
        for place in &places {
            for one in self.expected_at(*place, at, port, protocol) {
                if !expected.contains(&one) {
                    expected.push(one);
                }
            }
        }
        let (folder, time) = (self.folder.path(), Timestamp(at));
        let answer = holders(folder, (POOL, port), protocol, time, &|| true);
        let about = || format!("{port} {protocol:?} at {at}: {answer:?}; {:#?}", self.stretches);
        let coverage = match &answer {
            Ok(answer) => &answer.coverage,
            Err(SearchError::TooEarly(coverage)) => {
                assert!(places.is_empty(), "{}", about());
                coverage
            }
            Err(SearchError::Nobody { coverage, .. }) => {
                assert!(is_covered, "{}", about());
                coverage
            }
            Err(SearchError::Uncovered { coverage, .. }) => {
                assert!(!is_covered && !places.is_empty(), "{}", about());
                coverage
            }
            Err(error) => panic!("{error}"),
        };
        if is_covered {
            assert_eq!(coverage.covered, self.covered(&places), "{}", about());
            assert_eq!(coverage.in_force, self.expected_in_force(&places, at), "{}", about());
        } else {
            let time = seconds(time);
            let has = |span: &Span| span.from <= time && time <= span.until;
            assert!(!coverage.covered.iter().any(has), "{}", about());
            assert_eq!(coverage.in_force, InForceThen::Uncovered, "{}", about());
        }
        let found: Vec<Expected> = match &answer {
            Ok(answer) => answer.holders.iter().map(shown).collect(),
            Err(_) => Vec::new(),
        };
        assert_eq!(found, expected, "{}", about());
    }
}

fn shown(holder: &Holder) -> Expected {
    Expected {
        subscriber: holder.subscriber.parse().expect("an address"),
        ports: holder.ports.clone(),
        is_session: holder.remote.is_some(),
        since: holder.since,
        until: holder.until,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_search_says_what_a_list_does(steps in prop::collection::vec(step(), 1..60)) {
        let mut history = History::new();
        steps.iter().for_each(|step| history.step(step));
        let mut times: Vec<u64> = vec![BEGIN - 100 * SECOND, history.now + SECOND];
        for stretch in &history.stretches {
            let items = stretch.items.iter().map(|item| item.0);
            for time in items.chain([stretch.from, stretch.until]) {
                times.extend([time - SECOND / 4, time, time + SECOND / 4]);
            }
        }
        times.sort_unstable();
        times.dedup();
        for (number, at) in times.into_iter().enumerate() {
            let port = [5000, 5002, 5003, 5004, 5010][number % 5];
            let protocol = [None, Some(17), Some(6)][number / 5 % 3];
            history.check(at, port, protocol);
        }
    }
}
