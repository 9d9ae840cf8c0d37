//! Tests of the damping of repeated events.

use super::*;
use crate::drive::tests::{created, times};
use crate::json::{Names, record};
use crate::record::Gap;
use proptest::prelude::*;
use serde_json::json;

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000 * SECOND + seconds * SECOND)
}

fn quota_of_host(host: u8, protocol: u8) -> Change {
    let subscriber = Ipv4Addr::new(10, 0, 0, host);
    Change::QuotaReached { realm: 0, subscriber, protocol }
}

fn event(time: Timestamp, change: Change) -> Record {
    Record::Event(Event { time, change })
}

/// Output for records that come one by one.
fn damped(most: usize, records: &[Record]) -> Vec<Record> {
    let (mut damping, mut out) = (Damping::new(most), Vec::new());
    for record in records {
        damping.apply(&mut vec![*record], Some(record.time()), &mut out, &mut Vec::new());
        assert!(damping.episodes.len() <= most + 2 && damping.ends.len() <= most + 2);
    }
    damping.end(&mut out);
    assert!(damping.episodes.is_empty() && damping.ends.is_empty());
    out
}

fn lines(records: &[Record]) -> Vec<serde_json::Value> {
    let names = Names { pools: vec!["default".to_owned()], ..Names::default() };
    let line = |place| serde_json::to_value(record(records, place, &names, false)).unwrap();
    (0..records.len()).map(line).collect()
}

#[test]
fn a_host_that_goes_on_trying_gets_few_lines_and_a_summary() {
    let host = quota_of_host(5, UDP);
    let day: Vec<Record> = (0..3600).map(|second| event(at(second), host)).collect();
    let mut damping = Damping::default();
    let mut out = Vec::new();
    damping.apply(&mut day.clone(), Some(at(3600)), &mut out, &mut Vec::new());
    let written: Vec<u64> = out.iter().map(|it| it.time().0 / SECOND - 1_700_000_000).collect();
    assert_eq!(written, [0, 60, 180, 420, 900, 1860]);
    out.clear();
    damping.apply(&mut Vec::new(), Some(at(3599 + 299)), &mut out, &mut Vec::new());
    assert_eq!(out, []);
    damping.apply(&mut Vec::new(), Some(at(3599 + 300)), &mut out, &mut Vec::new());
    assert_eq!(
        lines(&out),
        [json!({
            "time": 1_700_003_899.0, "event": "quota_reached", "protocol": "udp",
            "subscriber": "10.0.0.5", "count": 3600, "from": 1_700_000_000.0,
            "to": 1_700_003_599.0,
        })]
    );
    // The next event is written at once, and needs no summary.
    out.clear();
    damping.apply(&mut vec![event(at(9000), host)], Some(at(20_000)), &mut out, &mut Vec::new());
    assert_eq!(out, [event(at(9000), host)]);
}

#[test]
fn each_day_has_a_summary_though_nothing_ends() {
    let host = quota_of_host(5, TCP);
    let days: Vec<Record> = (0..200_000).map(|second| event(at(second), host)).collect();
    let out = damped(100, &days);
    let summaries: Vec<&Summary> = out
        .iter()
        .filter_map(|record| match record {
            Record::Summary(summary) => Some(summary),
            _ => None,
        })
        .collect();
    let told: Vec<_> = summaries.iter().map(|it| (it.count, it.from(), it.to())).collect();
    let expected = [
        (86_400, at(0), at(86_399)),
        (86_400, at(86_400), at(172_799)),
        (27_200, at(172_800), at(199_999)),
    ];
    assert_eq!(told, expected);
    assert!(out.len() < 100, "{} lines in 56 hours", out.len());
}

#[test]
fn a_host_cannot_have_an_episode_for_each_protocol_number() {
    let other = |number: u64| quota_of_host(5, number as u8);
    let all: Vec<Record> = (0..2560).map(|number| event(at(number), other(number))).collect();
    let out = damped(100, &all);
    assert!(out.len() < 40, "{}", out.len());
}

#[test]
fn hosts_without_room_are_summed_up_together() {
    let mut records = Vec::new();
    for second in 0..10 {
        for host in 1..=200 {
            records.push(event(at(second), quota_of_host(host, TCP)));
        }
    }
    let pool = Change::PoolExhausted { pool: 0, protocol: UDP };
    records.push(event(at(9), pool));
    records.push(event(at(10), pool));
    let out = damped(4, &records);
    // Four hosts, the first of all others, the pool, and the end of each episode.
    assert_eq!(out.len(), 12, "{out:#?}");
    let summaries = lines(&out[6..]);
    assert!(summaries.contains(&json!({
        "time": 1_700_000_010.0, "event": "quota_reached", "count": 1960,
        "from": 1_700_000_000.0, "to": 1_700_000_009.0,
    })));
    assert!(summaries.contains(&json!({
        "time": 1_700_000_010.0, "event": "pool_exhausted", "protocol": "udp", "pool": "default",
        "count": 2, "from": 1_700_000_009.0, "to": 1_700_000_010.0,
    })));
}

#[test]
fn everything_else_passes_in_its_place() {
    let host = quota_of_host(5, TCP);
    let gap = Record::Gap(Gap { lost: 3, from: at(700), to: at(701) });
    let records = [
        event(at(0), host),
        event(at(1), host),
        created(at(2).0),
        created(at(600).0),
        created(at(600).0),
        gap,
    ];
    let out = damped(100, &records);
    let summary = out[2];
    assert!(matches!(summary, Record::Summary(Summary { count: 2, .. })), "{summary:?}");
    assert_eq!(out, [records[0], records[2], summary, records[3], records[4], gap]);
    assert_eq!(summary.time(), at(301));
}

/// A step of a history: a change after this many milliseconds.
#[derive(Clone, Debug)]
struct Step {
    after: u64,
    change: Change,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let after = prop_oneof![
        8 => 0..2000_u64,
        3 => 50_000..400_000_u64,
        1 => 3_000_000..90_000_000_u64,
    ];
    let protocol = prop_oneof![Just(TCP), Just(UDP), Just(ICMP), any::<u8>()];
    let change = prop_oneof![
        6 => (1..8_u8, protocol.clone()).prop_map(|(host, it)| quota_of_host(host, it)),
        2 => (0..2_usize, protocol).prop_map(|(pool, protocol)| Change::PoolExhausted {
            pool,
            protocol
        }),
        2 => (1..8_u8, 1..3_u8).prop_map(|(host, percent)| Change::ThresholdReached {
            realm: 0,
            subscriber: Ipv4Addr::new(10, 0, 0, host),
            resource: Resource::Sessions,
            percent: percent * 40,
        }),
        1 => Just(Change::ClassQuotaReached { class: 1, protocol: TCP }),
    ];
    let step = (after, change).prop_map(|(after, change)| Step { after, change });
    prop::collection::vec(step, 1..300)
}

/// Damping by a plain list that keeps every event of every episode.
#[derive(Default)]
struct List {
    episodes: Vec<(Subject, Vec<Timestamp>)>,
    out: Vec<Record>,
}

/// Times of an episode's events that are written.
fn written(all: &[Timestamp]) -> Vec<Timestamp> {
    let (mut written, mut pause) = (vec![all[0]], 60);
    for time in &all[1..] {
        if time.since(*written.last().unwrap()).as_nanos() >= u128::from(pause * SECOND) {
            written.push(*time);
            pause = 3600.min(pause * 2);
        }
    }
    written
}

impl List {
    fn close(&mut self, place: usize, time: Timestamp) {
        let (subject, all) = self.episodes.remove(place);
        if written(&all).len() < all.len() {
            let millis = |at: Timestamp| (time.since(at).as_millis()) as u32;
            let (first_ago, last_ago) = (millis(all[0]), millis(all[all.len() - 1]));
            let count = all.len() as u32;
            self.out.push(Record::Summary(Summary { subject, time, count, first_ago, last_ago }));
        }
    }

    fn close_until(&mut self, now: Timestamp) {
        let end = |times: &[Timestamp]| times[times.len() - 1].plus(Duration::from_secs(300));
        while let Some((time, _, place)) = (0..self.episodes.len())
            .map(|place| (end(&self.episodes[place].1), self.episodes[place].0, place))
            .min()
            .filter(|(time, ..)| *time <= now)
        {
            self.close(place, time);
        }
    }

    fn add(&mut self, most: usize, time: Timestamp, change: Change) {
        self.close_until(time);
        let mut subject = Subject::of(&change).unwrap();
        let place = |list: &Self, wanted| list.episodes.iter().position(|(it, _)| *it == wanted);
        if place(self, subject).is_none()
            && self.episodes.len() >= most
            && let Some(other) = subject.other()
        {
            subject = other;
        }
        if let Some(place) = place(self, subject) {
            let all = &mut self.episodes[place].1;
            if time.since(all[0]).as_secs() < 86_400 {
                all.push(time);
                if written(all).last() == Some(&time)
                    && written(&all[..all.len() - 1]).len() < written(all).len()
                {
                    self.out.push(event(time, change));
                }
                return;
            }
            self.close(place, time);
        }
        self.episodes.push((subject, vec![time]));
        self.out.push(event(time, change));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// A failure prints its steps, and the seed goes into `proptest-regressions`.
    #[test]
    fn episodes_are_those_of_a_plain_list(
        steps in steps(),
        most in 1..12_usize,
        batch in 1..9_usize,
    ) {
        let (mut damping, mut out) = (Damping::new(most), Vec::new());
        let mut list = List::default();
        let (mut now, mut waiting, mut counted) = (at(0), Vec::new(), Vec::new());
        for (number, Step { after, change }) in steps.iter().enumerate() {
            now = now.plus(Duration::from_millis(*after));
            list.add(most, now, *change);
            waiting.push(event(now, *change));
            if number % batch == 0 {
                damping.apply(&mut waiting, Some(now), &mut out, &mut counted);
                list.close_until(now);
            }
        }
        damping.apply(&mut waiting, Some(now), &mut out, &mut counted);
        // Pools and classes have room of their own: two pools, four limits each, and a class.
        prop_assert!(damping.episodes.len() <= most + 2 + 2 * 4 + 1);
        prop_assert_eq!(&out, &list.out);
        prop_assert!(times(&out).is_sorted());
        let events = out.iter().filter(|record| matches!(record, Record::Event(_))).count();
        prop_assert_eq!(events + counted.len(), steps.len());
        let later = now.plus(Duration::from_secs(301));
        damping.apply(&mut waiting, Some(later), &mut out, &mut counted);
        list.close_until(later);
        prop_assert_eq!(&out, &list.out);
        prop_assert!(damping.episodes.is_empty() && damping.ends.is_empty());
    }
}
