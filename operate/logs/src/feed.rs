//! A worker's end of the logs: a bounded ring for its events, and the time until which it is
//! complete.
//!
//! The worker never waits here and allocates nothing. Events without room are counted, and go into
//! the ring as a gap when there is room.

use crate::record::{Gap, Host, Record};
use natgate_engine::{Event, Timestamp};
use natgate_gateway::AlgExpectation;
use natgate_gateway::fleet::SliceChange;
use natgate_gateway::ipv6::HostName;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

/// Records that a worker's ring holds.
pub(crate) const RING: usize = 65_536;

/// Number of events after which the thread that takes them is woken; otherwise it looks by itself.
const WAKE_EVERY: u32 = 4096;

/// Input of one worker's events.
#[derive(Debug)]
pub struct Feed {
    ring: Producer<Record>,
    shared: Arc<Shared>,
    /// Events that found no room since the last one that did.
    gap: Option<Gap>,
    /// True if any log or listener wants events.
    wanted: Arc<AtomicBool>,
    since_wake: u32,
    taker: Option<Thread>,
}

/// Shared state of the two ends besides the ring.
#[derive(Debug, Default)]
struct Shared {
    /// Time until which all events are in the ring.
    until: AtomicU64,
}

/// Output of one worker's events.
#[derive(Debug)]
pub(crate) struct Outlet {
    ring: Consumer<Record>,
    shared: Arc<Shared>,
}

/// Creates both ends; `taker` is woken when there is much to take.
pub(crate) fn feed(room: usize, wanted: Arc<AtomicBool>, taker: Option<Thread>) -> (Feed, Outlet) {
    let (producer, consumer) = RingBuffer::new(room);
    let shared = Arc::new(Shared::default());
    let outlet = Outlet { ring: consumer, shared: Arc::clone(&shared) };
    (Feed { ring: producer, shared, gap: None, wanted, since_wake: 0, taker }, outlet)
}

impl Feed {
    /// Adds an event, no earlier than the last.
    #[inline]
    pub fn event(&mut self, event: &Event) {
        self.put(Record::Event(*event));
    }

    /// Adds an expectation of an application-level gateway, no earlier than the last event. `host`
    /// is its internal host, if it is one of NAT64.
    pub fn expectation(&mut self, expectation: &AlgExpectation, host: Option<&HostName>) {
        let record = Record::Expectation(*expectation);
        match host {
            Some(host) => self.put_of(record, host),
            None => self.put(record),
        }
    }

    /// Adds a change of a slice's owner, no earlier than the last event.
    pub fn slice(&mut self, change: &SliceChange) {
        self.put(Record::Slice(*change));
    }

    #[inline]
    fn put(&mut self, record: Record) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        if self.gap.is_some() {
            return self.after_a_gap(record);
        }
        if self.ring.push(record).is_err() {
            self.gap = Some(record.missing());
        }
        self.since_wake += 1;
        if self.since_wake >= WAKE_EVERY {
            self.wake();
        }
    }

    /// Adds an event about a host of NAT64.
    pub fn event_of(&mut self, event: &Event, name: &HostName) {
        self.put_of(Record::Event(*event), name);
    }

    fn put_of(&mut self, record: Record, name: &HostName) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        // Room for a gap, the host and the event.
        if self.ring.slots() < 3 {
            match &mut self.gap {
                Some(gap) => gap.add(record.missing()),
                none => *none = Some(record.missing()),
            }
            return;
        }
        self.tell_gap();
        // There is room for both.
        let _ = self.ring.push(Record::Host(Host::new(record.time(), name)));
        self.put(record);
    }

    /// Adds a gap after the last event.
    #[cold]
    pub fn lost(&mut self, missing: Gap) {
        if !self.wanted.load(Ordering::Relaxed) {
            return;
        }
        match &mut self.gap {
            Some(gap) => gap.add(missing),
            none => *none = Some(missing),
        }
        self.tell_gap();
    }

    #[cold]
    fn after_a_gap(&mut self, record: Record) {
        if self.ring.slots() >= 2 && self.tell_gap() {
            return self.put(record);
        }
        match &mut self.gap {
            Some(gap) => gap.add(record.missing()),
            none => *none = Some(record.missing()),
        }
    }

    /// Puts the gap into the ring. Returns `false` if there is none, or no room.
    fn tell_gap(&mut self) -> bool {
        let Some(gap) = self.gap else { return false };
        let told = self.ring.push(Record::Gap(gap)).is_ok();
        if told {
            self.gap = None;
        }
        told
    }

    /// Notes that all events until a time have been added.
    pub fn passed(&mut self, until: Timestamp) {
        self.tell_gap();
        // The events are visible in the ring before the time is.
        self.shared.until.store(until.0, Ordering::Release);
    }

    #[cold]
    fn wake(&mut self) {
        self.since_wake = 0;
        if let Some(taker) = &self.taker {
            taker.unpark();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.passed(Timestamp(u64::MAX));
        self.wake();
    }
}

impl Outlet {
    /// Takes at most `most` records; returns the time until which they are complete.
    pub(crate) fn take(&mut self, most: usize, into: &mut impl Extend<Record>) -> Timestamp {
        let until = self.shared.until.load(Ordering::Acquire);
        let there = self.ring.slots();
        let count = there.min(most);
        if let Ok(chunk) = self.ring.read_chunk(count) {
            into.extend(chunk);
        }
        // Records left in the ring may be earlier than the worker's noted time.
        Timestamp(if count < there { 0 } else { until })
    }

    /// True if no further records come.
    pub(crate) fn is_done(&self) -> bool {
        // The order matters: an abandoned ring gets no further records.
        self.ring.is_abandoned() && self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::{created, times};

    fn event(time: u64) -> Event {
        match created(time) {
            Record::Event(event) => event,
            _ => unreachable!("it is an event"),
        }
    }

    #[test]
    fn a_full_ring_makes_one_gap_and_nobody_waits() {
        let (mut feed, mut outlet) = feed(4, Arc::new(AtomicBool::new(true)), None);
        (1..=9).for_each(|time| feed.event(&event(time)));
        feed.passed(Timestamp(9));
        let mut taken = Vec::new();
        assert_eq!(outlet.take(2, &mut taken), Timestamp(0), "there is more");
        assert_eq!(outlet.take(9, &mut taken), Timestamp(9));
        assert_eq!(times(&taken), [1, 2, 3, 4]);
        feed.event(&event(10));
        taken.clear();
        outlet.take(9, &mut taken);
        let gap = Gap { lost: 5, from: Timestamp(5), to: Timestamp(9) };
        assert_eq!(taken, [Record::Gap(gap), created(10)]);
        assert!(!outlet.is_done());
        (11..=20).for_each(|time| feed.event(&event(time)));
        taken.clear();
        outlet.take(9, &mut taken);
        drop(feed);
        // The last gap is added when the worker ends.
        assert_eq!(outlet.take(9, &mut taken), Timestamp(u64::MAX));
        let gap = Gap { lost: 6, from: Timestamp(15), to: Timestamp(20) };
        assert_eq!(taken.last(), Some(&Record::Gap(gap)));
        assert!(outlet.is_done());
    }

    #[test]
    fn what_the_translator_lost_is_a_gap_in_its_place() {
        let (mut feed, mut outlet) = feed(4, Arc::new(AtomicBool::new(true)), None);
        let gap = |lost, from, to| Gap { lost, from: Timestamp(from), to: Timestamp(to) };
        feed.event(&event(1));
        feed.lost(gap(3, 2, 4));
        feed.event(&event(5));
        feed.event(&event(6));
        // The ring is full: losses in the translator and in the ring become one gap.
        feed.lost(gap(2, 6, 7));
        feed.event(&event(8));
        let mut taken = Vec::new();
        outlet.take(9, &mut taken);
        let expected = [created(1), Record::Gap(gap(3, 2, 4)), created(5), created(6)];
        assert_eq!(taken, expected);
        feed.passed(Timestamp(9));
        taken.clear();
        outlet.take(9, &mut taken);
        assert_eq!(taken, [Record::Gap(gap(3, 6, 8))]);
    }

    #[test]
    fn what_nobody_wants_goes_nowhere() {
        let wanted = Arc::new(AtomicBool::new(false));
        let (mut feed, mut outlet) = feed(4, Arc::clone(&wanted), None);
        (1..=9).for_each(|time| feed.event(&event(time)));
        wanted.store(true, Ordering::Relaxed);
        feed.event(&event(10));
        let mut taken = Vec::new();
        outlet.take(9, &mut taken);
        assert_eq!(taken, [created(10)]);
        wanted.store(false, Ordering::Relaxed);
        feed.lost(Gap::of(&event(11)));
        feed.passed(Timestamp(12));
        assert_eq!(outlet.take(9, &mut taken), Timestamp(12));
        assert_eq!(taken.len(), 1);
    }
}
