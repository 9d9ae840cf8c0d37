//! Merge of all workers' events in order of time.
//!
//! An event is released when every worker has added all its events until then. A sleeping worker
//! confirms that about once a second. If too many events wait for one worker, they are released in
//! the order of their times as far as it is known.

use crate::feed::Outlet;
use crate::record::Record;
use natgate_engine::Timestamp;
use std::collections::VecDeque;

/// Most records that wait for other workers.
pub(crate) const MOST_WAITING: usize = 1 << 18;

/// Feeds of the workers.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    outlet: Outlet,
    waiting: VecDeque<Record>,
    until: Timestamp,
}

impl Merge {
    /// Adds the feed of a worker.
    pub(crate) fn add(&mut self, outlet: Outlet) {
        self.lanes.push(Lane { outlet, waiting: VecDeque::new(), until: Timestamp(0) });
    }

    /// Moves at most `most` records that can be released into `into`, in order of time. Returns the
    /// time until which no earlier record will come, if that is known.
    pub(crate) fn take(&mut self, most: usize, into: &mut Vec<Record>) -> Option<Timestamp> {
        self.take_within(MOST_WAITING, most, into);
        let until = |lane: &Lane| match lane.waiting.front() {
            Some(first) => Timestamp(first.time().0.saturating_sub(1)).min(lane.until),
            None => lane.until,
        };
        let until = self.lanes.iter().map(until).min()?;
        // A worker that has ended gives no time, nor does one that has not begun.
        (until != Timestamp(0) && until != Timestamp(u64::MAX)).then_some(until)
    }

    fn take_within(&mut self, room: usize, most: usize, into: &mut Vec<Record>) {
        let each = room / self.lanes.len().max(1);
        for lane in &mut self.lanes {
            let free = each.saturating_sub(lane.waiting.len());
            lane.until = lane.outlet.take(free, &mut lane.waiting);
        }
        // If a worker's lane is full, no other worker is waited for.
        let full = self.lanes.iter().any(|lane| lane.waiting.len() >= each);
        while into.len() < most {
            let missing = self.lanes.iter().filter(|lane| lane.waiting.is_empty());
            let limit = missing.map(|lane| lane.until).min().unwrap_or(Timestamp(u64::MAX));
            let heads = self.lanes.iter().enumerate();
            let heads = heads.filter_map(|(at, lane)| Some((lane.waiting.front()?.time(), at)));
            let Some((time, at)) = heads.min() else { return };
            if time > limit && !full {
                return;
            }
            into.extend(self.lanes[at].waiting.pop_front());
        }
    }

    /// True if no further records come.
    pub(crate) fn is_done(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting.is_empty() && lane.outlet.is_done())
    }

    /// Forgets workers that have ended.
    pub(crate) fn tidy(&mut self) {
        self.lanes.retain(|lane| !lane.waiting.is_empty() || !lane.outlet.is_done());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::{created, times};
    use crate::feed::{Feed, feed};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn two() -> (Merge, [Feed; 2]) {
        let mut merge = Merge::default();
        let wanted = Arc::new(AtomicBool::new(true));
        let feeds = [(); 2].map(|()| {
            let (feed, outlet) = feed(16, Arc::clone(&wanted), None);
            merge.add(outlet);
            feed
        });
        (merge, feeds)
    }

    fn tell(feed: &mut Feed, events: &[u64], until: u64) {
        for &time in events {
            if let Record::Event(event) = created(time) {
                feed.event(&event);
            }
        }
        feed.passed(Timestamp(until));
    }

    #[test]
    fn an_event_waits_until_no_earlier_one_can_come() {
        let (mut merge, [mut first, mut second]) = two();
        let mut taken = Vec::new();
        tell(&mut first, &[3, 5, 9], 10);
        merge.take(99, &mut taken);
        assert!(taken.is_empty());
        tell(&mut second, &[], 4);
        merge.take(99, &mut taken);
        assert_eq!(times(&taken), [3]);
        tell(&mut second, &[7, 12], 12);
        merge.take(99, &mut taken);
        assert_eq!(times(&taken), [3, 5, 7, 9]);
        tell(&mut first, &[], 12);
        merge.take(99, &mut taken);
        assert_eq!(times(&taken), [3, 5, 7, 9, 12]);
        drop((first, second));
        merge.take(99, &mut taken);
        assert!(merge.is_done());
        merge.tidy();
        assert!(merge.lanes.is_empty());
    }

    #[test]
    fn who_says_nothing_does_not_hold_up_the_others_for_ever() {
        let (mut merge, [mut first, _second]) = two();
        tell(&mut first, &[3, 5, 9], 10);
        let mut taken = Vec::new();
        merge.take_within(8, 99, &mut taken);
        assert!(taken.is_empty(), "they wait");
        tell(&mut first, &[11, 12, 13], 14);
        merge.take_within(8, 2, &mut taken);
        assert_eq!(times(&taken), [3, 5], "there is no room for more");
        merge.take_within(8, 99, &mut taken);
        assert!(times(&taken).is_sorted());
    }

    #[test]
    fn a_worker_that_has_ended_holds_up_nobody() {
        let (mut merge, [mut first, second]) = two();
        tell(&mut first, &[3, 5], 5);
        drop(second);
        let mut taken = Vec::new();
        merge.take(99, &mut taken);
        assert_eq!(times(&taken), [3, 5]);
    }
}
