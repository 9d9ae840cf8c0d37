//! The machine's clock for logs.
//!
//! The translator's clock never steps, so the times of its events may differ from the machine's
//! clock after that has been set. Logs have the times of the machine's clock. So this module keeps
//! its lead over the translator's clock, and the times at which the lead changed. The thread that
//! distributes events adds the lead to their times, and inserts a [`ClockSet`] where the lead
//! changes.

use crate::damping::Summary;
use crate::record::{ClockSet, Gap, Host, Record};
use natgate_engine::{Event, Timestamp};
use natgate_gateway::AlgExpectation;
use natgate_gateway::fleet::SliceChange;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most steps that wait to be distributed. Further ones replace the last.
const MOST_WAITING: usize = 64;

/// Lead of the machine's clock over the translator's.
#[derive(Debug, Default)]
pub struct WallClock {
    /// Present lead, nanoseconds.
    ahead: AtomicI64,
    /// Steps that have not been distributed.
    steps: Mutex<VecDeque<Step>>,
}

/// A step of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Time at which it was noticed, by the translator's clock.
    at: Timestamp,
    /// Lead of the machine's clock from then on, nanoseconds.
    ahead: i64,
}

impl WallClock {
    /// Creates a clock with a lead, nanoseconds.
    pub fn new(ahead: i64) -> Self {
        Self { ahead: AtomicI64::new(ahead), steps: Mutex::default() }
    }

    /// Sets the lead, nanoseconds, from a time by the translator's clock on. Times do not go back
    /// from call to call.
    pub fn set(&self, at: Timestamp, ahead: i64) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = steps.len() >= MOST_WAITING;
        match steps.back_mut() {
            Some(last) if is_full => last.ahead = ahead,
            _ => steps.push_back(Step { at, ahead }),
        }
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Present lead of the machine's clock, nanoseconds.
    pub fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Time of the machine's clock at a time of the translator's.
    pub fn at(&self, own: Timestamp) -> Timestamp {
        moved(own, self.ahead())
    }

    /// Next step, if it is not after a time.
    fn next(&self, until: Timestamp) -> Option<Step> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = steps.front().is_some_and(|step| step.at <= until);
        if is_due { steps.pop_front() } else { None }
    }
}

fn moved(time: Timestamp, by: i64) -> Timestamp {
    Timestamp(time.0.saturating_add_signed(by))
}

/// Converts the times of records to the machine's clock, in the order of distribution.
#[derive(Debug)]
pub(crate) struct Timing {
    ahead: i64,
}

impl Timing {
    pub(crate) fn new(clock: &WallClock) -> Self {
        Self { ahead: clock.ahead() }
    }

    /// Moves records into `into` with their times by the machine's clock. All records until a time
    /// are given, or more may follow (`None`). Returns that time by the machine's clock.
    pub(crate) fn apply(
        &mut self,
        clock: &WallClock,
        records: &mut Vec<Record>,
        until: Option<Timestamp>,
        into: &mut Vec<Record>,
    ) -> Option<Timestamp> {
        for record in records.drain(..) {
            self.step(clock, record.time(), into);
            into.push(self.timed(record));
        }
        let until = until?;
        self.step(clock, until, into);
        Some(moved(until, self.ahead))
    }

    fn step(&mut self, clock: &WallClock, until: Timestamp, into: &mut Vec<Record>) {
        while let Some(Step { at, ahead }) = clock.next(until) {
            let (from, to) = (moved(at, self.ahead), moved(at, ahead));
            self.ahead = ahead;
            into.push(Record::ClockSet(ClockSet { from, to }));
        }
    }

    fn timed(&self, record: Record) -> Record {
        let by = self.ahead;
        match record {
            Record::Event(event) => Record::Event(Event { time: moved(event.time, by), ..event }),
            Record::Host(host) => Record::Host(Host { time: moved(host.time, by), ..host }),
            Record::Gap(gap) => {
                Record::Gap(Gap { from: moved(gap.from, by), to: moved(gap.to, by), ..gap })
            }
            // Only this function makes such records.
            Record::ClockSet(_) => record,
            Record::Summary(summary) => {
                Record::Summary(Summary { time: moved(summary.time, by), ..summary })
            }
            Record::Slice(change) => {
                Record::Slice(SliceChange { time: moved(change.time, by), ..change })
            }
            Record::Expectation(made) => {
                Record::Expectation(AlgExpectation { time: moved(made.time, by), ..made })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::{created, times};

    #[test]
    fn records_have_the_times_of_the_clock_of_their_moment() {
        let clock = WallClock::new(1000);
        let mut timing = Timing::new(&clock);
        let mut taken = Vec::new();
        let mut apply = |records: &[u64], until: Option<u64>| {
            let mut records = records.iter().copied().map(created).collect();
            taken.clear();
            let until = timing.apply(&clock, &mut records, until.map(Timestamp), &mut taken);
            (times(&taken), until.map(|until| until.0), taken.clone())
        };
        assert_eq!(apply(&[1, 2], Some(5)).0, [1001, 1002]);
        clock.set(Timestamp(10), -4);
        assert_eq!(clock.at(Timestamp(12)), Timestamp(8));
        // Events before the step have times of the former clock.
        let (taken, until, records) = apply(&[9, 10, 11], None);
        assert_eq!((taken, until), (vec![1009, 6, 6, 7], None));
        let set = ClockSet { from: Timestamp(1010), to: Timestamp(6) };
        assert_eq!(records[1], Record::ClockSet(set));
        // A step is written without any event, as soon as all before it is.
        clock.set(Timestamp(20), 0);
        assert_eq!(apply(&[], Some(19)).1, Some(15));
        let (taken, until, _) = apply(&[], Some(21));
        assert_eq!((taken, until), (vec![20], Some(21)));
        clock.set(Timestamp(30), i64::MIN);
        assert_eq!(apply(&[31], Some(32)).0, [0, 0]);
    }

    #[test]
    fn a_clock_that_is_set_all_the_time_takes_no_more_memory() {
        let clock = WallClock::default();
        (0..1000).for_each(|at| clock.set(Timestamp(at), at as i64));
        let mut taken = Vec::new();
        let last = Some(Timestamp(2000));
        let until =
            Timing::new(&WallClock::default()).apply(&clock, &mut Vec::new(), last, &mut taken);
        assert_eq!((until, taken.len()), (Some(Timestamp(2999)), MOST_WAITING));
    }
}
