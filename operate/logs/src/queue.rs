//! Queue of a sink: records that it has not taken yet, within a capacity.
//!
//! When the queue is full, further records are counted and not kept. The oldest records stay,
//! because the missing ones are then one gap, in its place. As soon as there is room again, the gap
//! goes in before the next record.

use crate::record::{Gap, Host, Record, host_before};
use natgate_engine::Timestamp;
use natgate_gateway::LogWhat;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Steps of the clock that a full queue takes beyond its capacity.
const MOST_STEPS: usize = 1024;

/// Records between the thread that distributes them and one sink's thread.
#[derive(Debug)]
pub struct Queue {
    capacity: usize,
    what: LogWhat,
    /// True if the queue also gets events that logs only count.
    undamped: bool,
    state: Mutex<State>,
    something: Condvar,
    /// Events that were lost here since the start.
    lost: AtomicU64,
    gaps: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Record>,
    /// Missing records after the last one.
    gap: Option<Gap>,
    /// Time until which all records have been offered.
    until: Option<Timestamp>,
    closed: bool,
    /// True if the waiting thread is to look although no record has come.
    is_woken: bool,
}

impl Queue {
    /// Creates a queue of `capacity` records, with events of this kind.
    pub fn new(capacity: usize, what: LogWhat) -> Self {
        Self {
            capacity: capacity.max(2),
            what,
            undamped: false,
            state: Mutex::default(),
            something: Condvar::new(),
            lost: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
        }
    }

    /// Creates a queue that gets every event about a limit, though logs only count some.
    pub(crate) fn undamped(capacity: usize, what: LogWhat) -> Self {
        Self { undamped: true, ..Self::new(capacity, what) }
    }

    pub(crate) fn is_undamped(&self) -> bool {
        self.undamped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers records in order of time: those that the sink wants go in, or into its gap.
    pub fn offer(&self, records: &[Record]) {
        let mut state = self.state();
        let mut came = false;
        for (place, record) in records.iter().enumerate() {
            match record {
                Record::Event(event) if !crate::wants(self.what, &event.change) => continue,
                // It goes in with its event.
                Record::Host(_) => continue,
                _ => {}
            }
            came |= self.put(&mut state, record, host_before(records, place));
        }
        drop(state);
        if came {
            self.something.notify_one();
        }
    }

    /// Notes that all records until a time have been offered.
    pub fn passed(&self, until: Timestamp) {
        self.state().until = Some(until);
    }

    /// Time until which all records have been offered and taken. `None` if some wait, or no time
    /// was noted.
    pub fn passed_until(&self) -> Option<Timestamp> {
        let state = self.state();
        state.until.filter(|_| state.records.is_empty() && state.gap.is_none())
    }

    /// Adds a record; returns true if there was room.
    fn put(&self, state: &mut State, record: &Record, host: Option<&Host>) -> bool {
        // A record after a gap follows the gap, so there must be room for both, and for the host
        // that the record is about.
        let needed = 1 + usize::from(state.gap.is_some()) + usize::from(host.is_some());
        // Without a step of the clock the times after it would have no meaning.
        let room = match record {
            Record::ClockSet(_) => self.capacity + MOST_STEPS,
            _ => self.capacity,
        };
        if state.records.len() + needed > room {
            let missing = record.missing();
            self.lost.fetch_add(missing.lost, Ordering::Relaxed);
            match &mut state.gap {
                Some(gap) => gap.add(missing),
                None => {
                    self.gaps.fetch_add(1, Ordering::Relaxed);
                    state.gap = Some(missing);
                }
            }
            return false;
        }
        state.records.extend(state.gap.take().map(Record::Gap));
        if let Record::Gap(gap) = record {
            self.lost.fetch_add(gap.lost, Ordering::Relaxed);
            self.gaps.fetch_add(1, Ordering::Relaxed);
        }
        state.records.extend(host.copied().map(Record::Host));
        state.records.push_back(*record);
        true
    }

    /// Takes the oldest records until `into` has `most`; a gap behind the last one, too.
    pub fn take(&self, most: usize, into: &mut Vec<Record>) {
        let mut state = self.state();
        let count = state.records.len().min(most.saturating_sub(into.len()));
        into.extend(state.records.drain(..count));
        // A host's name and its event stay together.
        if let Some(Record::Host(_)) = into.last() {
            into.extend(state.records.pop_front());
        }
        if into.len() < most && state.records.is_empty() {
            into.extend(state.gap.take().map(Record::Gap));
        }
    }

    /// Waits until there is a record, at most `most`. Returns `false` if no further records come.
    pub fn wait(&self, most: Duration) -> bool {
        let state = self.state();
        let nothing = |state: &mut State| {
            state.records.is_empty() && state.gap.is_none() && !state.closed && !state.is_woken
        };
        let waited = self.something.wait_timeout_while(state, most, nothing);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_woken = false;
        !state.closed
    }

    /// Ends a wait for records.
    pub(crate) fn wake(&self) {
        self.state().is_woken = true;
        self.something.notify_all();
    }

    /// Sleeps although there are records, unless the queue is closed. Returns `false` if it is.
    pub(crate) fn pause(&self, most: Duration) -> bool {
        let waited = self.something.wait_timeout_while(self.state(), most, |state| !state.closed);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    /// Closes the queue: no further records come.
    pub fn close(&self) {
        self.state().closed = true;
        self.something.notify_all();
    }

    /// Number of waiting records, of lost events, and of gaps.
    pub fn figures(&self) -> (u64, u64, u64) {
        let waiting = self.state().records.len() as u64;
        (waiting, self.lost.load(Ordering::Relaxed), self.gaps.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::{created, times};
    use crate::record::ClockSet;
    use natgate_gateway::ipv6::HostName;
    use std::net::Ipv6Addr;

    #[test]
    fn what_does_not_fit_becomes_one_gap_in_its_place() {
        let queue = Queue::new(4, LogWhat::Mappings);
        let records: Vec<_> = (1..=10).map(created).collect();
        queue.offer(&records);
        let mut taken = Vec::new();
        queue.take(2, &mut taken);
        assert_eq!(times(&taken), [1, 2]);
        assert_eq!(queue.figures(), (2, 6, 1));
        // Two places are free: one for the gap, one for the next record.
        queue.offer(&[created(11), created(12)]);
        taken.clear();
        queue.take(100, &mut taken);
        let gap = Gap { lost: 6, from: Timestamp(5), to: Timestamp(10) };
        assert_eq!(taken[..4], [created(3), created(4), Record::Gap(gap), created(11)]);
        // The last gap is returned even if no record follows it.
        let gap = Gap { lost: 1, from: Timestamp(12), to: Timestamp(12) };
        assert_eq!(taken[4..], [Record::Gap(gap)]);
        assert_eq!(queue.figures(), (0, 7, 2));
    }

    #[test]
    fn a_gap_that_came_counts() {
        let queue = Queue::new(2, LogWhat::Mappings);
        let gap = Record::Gap(Gap { lost: 5, from: Timestamp(1), to: Timestamp(3) });
        queue.offer(&[created(1), gap, gap, created(4)]);
        let mut taken = Vec::new();
        queue.take(9, &mut taken);
        let all = Gap { lost: 6, from: Timestamp(1), to: Timestamp(4) };
        assert_eq!(taken, [created(1), gap, Record::Gap(all)]);
        assert_eq!(queue.figures(), (0, 11, 2));
    }

    #[test]
    fn a_step_of_the_clock_finds_room_after_the_gap() {
        let queue = Queue::new(2, LogWhat::Mappings);
        queue.passed(Timestamp(0));
        queue.offer(&[created(1), created(2), created(3)]);
        let set = Record::ClockSet(ClockSet { from: Timestamp(4), to: Timestamp(9) });
        queue.offer(&[set, created(10)]);
        queue.passed(Timestamp(10));
        assert_eq!(queue.passed_until(), None, "it has not been taken");
        let mut taken = Vec::new();
        queue.take(9, &mut taken);
        let gap = |at| Record::Gap(Gap { lost: 1, from: Timestamp(at), to: Timestamp(at) });
        assert_eq!(taken, [created(1), created(2), gap(3), set, gap(10)]);
        assert_eq!(queue.passed_until(), Some(Timestamp(10)));
    }

    #[test]
    fn who_waits_is_told_the_end() {
        let queue = Queue::new(2, LogWhat::Mappings);
        queue.wake();
        assert!(queue.wait(Duration::from_secs(3600)));
        assert!(queue.wait(Duration::ZERO));
        queue.offer(&[created(1)]);
        assert!(queue.wait(Duration::from_secs(3600)));
        queue.close();
        assert!(!queue.wait(Duration::from_secs(3600)));
        assert!(!queue.pause(Duration::from_secs(3600)));
    }

    #[test]
    fn a_host_stays_with_its_event() {
        let name = HostName { address: None, prefix: Ipv6Addr::LOCALHOST, len: 64 };
        let named = |time| [Record::Host(Host::new(Timestamp(time), &name)), created(time)];
        let queue = Queue::new(4, LogWhat::Mappings);
        queue.offer(&named(1));
        queue.offer(&named(2));
        let mut taken = Vec::new();
        // A piece is longer rather than that it parts the two.
        queue.take(1, &mut taken);
        assert_eq!(taken, named(1));
        // One record of room is too little for both.
        queue.offer(&[created(3)]);
        queue.offer(&named(4));
        taken.clear();
        queue.take(9, &mut taken);
        let gap = Gap { lost: 1, from: Timestamp(4), to: Timestamp(4) };
        assert_eq!(taken, [&named(2)[..], &[created(3), Record::Gap(gap)]].concat());
        // A log of blocks wants neither.
        let blocks = Queue::new(4, LogWhat::Blocks);
        blocks.offer(&named(5));
        taken.clear();
        blocks.take(9, &mut taken);
        assert_eq!(taken, []);
    }
}
