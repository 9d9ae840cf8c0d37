//! The machine's clock, as logs have it.
//!
//! The translator's clock never steps, so its events have times that may differ from the machine's
//! clock once that has been set. Logs are read by the machine's clock. So it is said here how far
//! that one is ahead, and since when; the thread that deals events out adds it to their times, and
//! puts a [`ClockSet`] where it becomes another.

use crate::damping::Summary;
use crate::record::{ClockSet, Gap, Record};
use natgate_engine::{Event, Timestamp};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Steps that wait to be dealt out at most. Further ones replace the last.
const MOST_WAITING: usize = 64;

/// How far the machine's clock is ahead of the translator's.
#[derive(Debug, Default)]
pub struct WallClock {
    /// Nanoseconds, now.
    ahead: AtomicI64,
    /// Steps that have not been dealt out.
    steps: Mutex<VecDeque<Step>>,
}

/// A step of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// When it was noticed, by the translator's clock.
    at: Timestamp,
    /// How far the machine's clock is ahead from then on, nanoseconds.
    ahead: i64,
}

impl WallClock {
    /// A clock that is so many nanoseconds ahead of the translator's.
    pub fn new(ahead: i64) -> Self {
        Self { ahead: AtomicI64::new(ahead), steps: Mutex::default() }
    }

    /// The machine's clock is so many nanoseconds ahead from then on, by the translator's clock.
    /// Times do not go back from call to call.
    pub fn set(&self, at: Timestamp, ahead: i64) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = steps.len() >= MOST_WAITING;
        match steps.back_mut() {
            Some(last) if is_full => last.ahead = ahead,
            _ => steps.push_back(Step { at, ahead }),
        }
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Nanoseconds that the machine's clock is ahead now.
    pub fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// What the machine's clock says when the translator's says that.
    pub fn at(&self, own: Timestamp) -> Timestamp {
        moved(own, self.ahead())
    }

    /// The next step, if it was until then.
    fn next(&self, until: Timestamp) -> Option<Step> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = steps.front().is_some_and(|step| step.at <= until);
        if is_due { steps.pop_front() } else { None }
    }
}

fn moved(time: Timestamp, by: i64) -> Timestamp {
    Timestamp(time.0.saturating_add_signed(by))
}

/// Gives records the times of the machine's clock, in the order in which they are dealt out.
#[derive(Debug)]
pub(crate) struct Timing {
    ahead: i64,
}

impl Timing {
    pub(crate) fn new(clock: &WallClock) -> Self {
        Self { ahead: clock.ahead() }
    }

    /// Moves records, all that there are until a time (`None`: more may follow), into `into` with
    /// their times by the machine's clock; returns that time.
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
            Record::Gap(gap) => {
                Record::Gap(Gap { from: moved(gap.from, by), to: moved(gap.to, by), ..gap })
            }
            // Nobody but this makes such records.
            Record::ClockSet(_) => record,
            Record::Summary(summary) => {
                Record::Summary(Summary { time: moved(summary.time, by), ..summary })
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
        // What happened before the step is told by the clock of before.
        let (taken, until, records) = apply(&[9, 10, 11], None);
        assert_eq!((taken, until), (vec![1009, 6, 6, 7], None));
        let set = ClockSet { from: Timestamp(1010), to: Timestamp(6) };
        assert_eq!(records[1], Record::ClockSet(set));
        // A step is told though nothing happens, as soon as all before it has been.
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
