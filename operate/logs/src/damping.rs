//! Damping of events about limits, so that one host does not fill a log.
//!
//! While a subscriber, a class or a pool is at a limit, the translator reports that once a second.
//! Events about one subject form an episode, which ends after [`QUIET`] without an event. The first
//! event of an episode is written at once. A later one is written after a pause, which doubles each
//! time. The end of an episode is a [`Summary`] of its events.
//!
//! Each event is written, or a summary counts it, or both. Summaries are in order of time. At most
//! [`MOST_EPISODES`] episodes of subscribers are kept; one more stands for all other subscribers.
//! There are as many classes and pools as the configuration has.

use crate::record::Record;
use natgate_engine::{Change, Event, Resource, Timestamp};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

/// An episode ends after this time without an event.
const QUIET: Duration = Duration::from_secs(300);

/// An episode ends after this time in any case, so that the log of each day mentions it.
const LONGEST: Duration = Duration::from_secs(86_400);

/// First pause between two events of an episode that are written.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// Longest pause between two events of an episode that are written.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Most episodes of subscribers that are kept.
const MOST_EPISODES: usize = 16_384;

/// The subject of an event about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    Quota {
        realm: u16,
        subscriber: Ipv4Addr,
        protocol: u8,
    },
    ClassQuota {
        class: u32,
        protocol: u8,
    },
    Threshold {
        realm: u16,
        subscriber: Ipv4Addr,
        resource: Resource,
        percent: u8,
    },
    ClassThreshold {
        class: u32,
        resource: Resource,
        percent: u8,
    },
    PoolThreshold {
        pool: u32,
        resource: Resource,
        percent: u8,
    },
    Exhausted {
        pool: u32,
        protocol: u8,
    },
    /// Quotas of subscribers for which there is no room.
    OtherQuotas,
    /// Thresholds of subscribers for which there is no room.
    OtherThresholds,
}

impl Subject {
    /// The subject of an event, if the event is about a limit.
    fn of(change: &Change) -> Option<Self> {
        Some(match *change {
            Change::QuotaReached { realm, subscriber, protocol } => {
                Self::Quota { realm, subscriber, protocol: quota_of(protocol) }
            }
            Change::ClassQuotaReached { class, protocol } => {
                Self::ClassQuota { class: class as u32, protocol: quota_of(protocol) }
            }
            Change::ThresholdReached { realm, subscriber, resource, percent } => {
                Self::Threshold { realm, subscriber, resource, percent }
            }
            Change::ClassThresholdReached { class, resource, percent } => {
                Self::ClassThreshold { class: class as u32, resource, percent }
            }
            Change::PoolThresholdReached { pool, resource, percent } => {
                Self::PoolThreshold { pool: pool as u32, resource, percent }
            }
            Change::PoolExhausted { pool, protocol } => {
                Self::Exhausted { pool: pool as u32, protocol: quota_of(protocol) }
            }
            Change::MappingCreated(_)
            | Change::MappingRemoved(_)
            | Change::SessionCreated(_)
            | Change::SessionRemoved(_)
            | Change::BlockAssigned(_)
            | Change::BlockReleased(_) => return None,
        })
    }

    /// An event of this subject, for its name and fields; `None` if it stands for several
    /// subscribers.
    pub(crate) fn change(&self) -> Option<Change> {
        Some(match *self {
            Self::Quota { realm, subscriber, protocol } => {
                Change::QuotaReached { realm, subscriber, protocol }
            }
            Self::ClassQuota { class, protocol } => {
                Change::ClassQuotaReached { class: class as usize, protocol }
            }
            Self::Threshold { realm, subscriber, resource, percent } => {
                Change::ThresholdReached { realm, subscriber, resource, percent }
            }
            Self::ClassThreshold { class, resource, percent } => {
                Change::ClassThresholdReached { class: class as usize, resource, percent }
            }
            Self::PoolThreshold { pool, resource, percent } => {
                Change::PoolThresholdReached { pool: pool as usize, resource, percent }
            }
            Self::Exhausted { pool, protocol } => {
                Change::PoolExhausted { pool: pool as usize, protocol }
            }
            Self::OtherQuotas | Self::OtherThresholds => return None,
        })
    }

    /// Subject that replaces this one if there is no room; `None` if there always is.
    fn other(&self) -> Option<Self> {
        match self {
            Self::Quota { .. } => Some(Self::OtherQuotas),
            Self::Threshold { .. } => Some(Self::OtherThresholds),
            _ => None,
        }
    }
}

/// Protocol whose quota a protocol counts against: a host must not have an episode for each of 256
/// numbers.
fn quota_of(protocol: u8) -> u8 {
    if matches!(protocol, TCP | UDP | DCCP) { protocol } else { ICMP }
}

/// End of an episode: the number of its events, and the times of the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    pub(crate) subject: Subject,
    /// Time at which the episode was found to have ended.
    pub(crate) time: Timestamp,
    /// Events of the episode.
    pub(crate) count: u32,
    /// Time of the first event, milliseconds before `time`.
    pub(crate) first_ago: u32,
    /// Time of the last event, milliseconds before `time`.
    pub(crate) last_ago: u32,
}

impl Summary {
    fn of(subject: Subject, episode: &Episode, time: Timestamp) -> Self {
        let before = |at: Timestamp| {
            let millis = time.since(at).as_millis();
            u32::try_from(millis).unwrap_or(u32::MAX)
        };
        let (first_ago, last_ago) = (before(episode.first), before(episode.last));
        Self { subject, time, count: episode.count, first_ago, last_ago }
    }

    /// Time of the first event, to the millisecond.
    pub(crate) fn from(&self) -> Timestamp {
        self.before(self.first_ago)
    }

    /// Time of the last event, to the millisecond.
    pub(crate) fn to(&self) -> Timestamp {
        self.before(self.last_ago)
    }

    fn before(&self, millis: u32) -> Timestamp {
        Timestamp(self.time.0.saturating_sub(u64::from(millis) * 1_000_000))
    }
}

/// Events of one subject since the first.
#[derive(Clone, Copy, Debug)]
struct Episode {
    first: Timestamp,
    last: Timestamp,
    /// Time from which the next event is written.
    next: Timestamp,
    /// Pause after that event.
    pause: Duration,
    count: u32,
    written: u32,
}

impl Episode {
    fn new(time: Timestamp) -> Self {
        let next = time.plus(FIRST_PAUSE);
        Self { first: time, last: time, next, pause: FIRST_PAUSE * 2, count: 1, written: 1 }
    }

    /// Counts an event; returns true if it is to be written.
    fn add(&mut self, time: Timestamp) -> bool {
        self.last = time;
        self.count = self.count.saturating_add(1);
        let is_due = time >= self.next;
        if is_due {
            self.next = time.plus(self.pause);
            self.pause = LONGEST_PAUSE.min(self.pause * 2);
            self.written += 1;
        }
        is_due
    }

    /// Time at which the episode ends without further events.
    fn end(&self) -> Timestamp {
        self.last.plus(QUIET)
    }

    /// True if the episode has events that were not written.
    fn is_damped(&self) -> bool {
        self.count > self.written
    }
}

/// Damping of the records of one gateway: all its episodes.
#[derive(Debug)]
pub struct Damping {
    most: usize,
    episodes: HashMap<Subject, Episode>,
    /// One entry for each episode: a time at which it may have ended.
    ends: BinaryHeap<Reverse<(Timestamp, Subject)>>,
    /// Latest time of a record.
    now: Timestamp,
    /// Host that the next event is about.
    host: Option<Record>,
}

impl Default for Damping {
    fn default() -> Self {
        Self::new(MOST_EPISODES)
    }
}

impl Damping {
    fn new(most: usize) -> Self {
        let (episodes, ends) = (HashMap::new(), BinaryHeap::new());
        Self { most, episodes, ends, now: Timestamp(0), host: None }
    }

    /// Moves records into `into`, with the summaries that are due. All records until a time are
    /// given, or more may follow (`None`). Events that are only counted go into `counted` instead.
    pub fn apply(
        &mut self,
        records: &mut Vec<Record>,
        until: Option<Timestamp>,
        into: &mut Vec<Record>,
        counted: &mut Vec<Record>,
    ) {
        for record in records.drain(..) {
            if let Record::Host(_) = record {
                self.host = Some(record);
                continue;
            }
            self.now = self.now.max(record.time());
            self.end_until(self.now, into);
            let is_written = match &record {
                Record::Event(event) => self.add(event, into),
                Record::Host(_)
                | Record::Gap(_)
                | Record::ClockSet(_)
                | Record::Summary(_)
                | Record::Expectation(_)
                | Record::Slice(_) => true,
            };
            let place = if is_written { &mut *into } else { &mut *counted };
            place.extend(self.host.take());
            place.push(record);
        }
        if let Some(until) = until {
            self.now = self.now.max(until);
            self.end_until(self.now, into);
        }
    }

    /// Counts an event if it is about a limit; returns true if it is to be written.
    fn add(&mut self, event: &Event, into: &mut Vec<Record>) -> bool {
        let Some(mut subject) = Subject::of(&event.change) else { return true };
        if let Some(other) = subject.other()
            && self.episodes.len() >= self.most
            && !self.episodes.contains_key(&subject)
        {
            subject = other;
        }
        let Some(episode) = self.episodes.get_mut(&subject) else {
            let episode = Episode::new(event.time);
            self.ends.push(Reverse((episode.end(), subject)));
            self.episodes.insert(subject, episode);
            return true;
        };
        if event.time.since(episode.first) < LONGEST {
            return episode.add(event.time);
        }
        if episode.is_damped() {
            into.push(Record::Summary(Summary::of(subject, episode, event.time)));
        }
        *episode = Episode::new(event.time);
        true
    }

    /// Ends episodes that have been quiet for long enough at a time.
    fn end_until(&mut self, time: Timestamp, into: &mut Vec<Record>) {
        while let Some(&Reverse((due, subject))) = self.ends.peek()
            && due <= time
        {
            self.ends.pop();
            let Some(episode) = self.episodes.get(&subject) else { continue };
            if episode.end() > due {
                self.ends.push(Reverse((episode.end(), subject)));
                continue;
            }
            if episode.is_damped() {
                into.push(Record::Summary(Summary::of(subject, episode, due)));
            }
            self.episodes.remove(&subject);
        }
    }

    /// Ends all episodes, because no further records come.
    pub(crate) fn end(&mut self, into: &mut Vec<Record>) {
        let mut left: Vec<_> = self.episodes.drain().filter(|(_, it)| it.is_damped()).collect();
        left.sort_unstable_by_key(|(subject, _)| *subject);
        let summaries =
            left.iter().map(|(subject, episode)| Summary::of(*subject, episode, self.now));
        into.extend(summaries.map(Record::Summary));
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests;
