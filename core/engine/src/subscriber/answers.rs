//! Subscribers that no remote endpoint has answered yet, and their entries in [`Unanswered`].
//!
//! [`Unanswered`]: super::unanswered::Unanswered

use super::{Subscriber, Subscribers};

impl Subscribers {
    /// True if no remote endpoint has answered a subscriber yet.
    #[inline(always)]
    pub(crate) fn is_unanswered(&self, at: u32) -> bool {
        self.records[at as usize].is_unanswered
    }

    /// Notes that a remote endpoint has answered a subscriber.
    pub(crate) fn answer(&mut self, at: u32) {
        let record = &mut self.records[at as usize];
        if core::mem::take(&mut record.is_unanswered) {
            let first = record.next;
            while let Some(further) = self.unanswered.other(first) {
                let record = self.unanswered.record(further);
                self.records[record as usize].is_unanswered = false;
                self.unanswered.leave(further);
            }
            self.unanswered.leave(first);
        }
    }

    /// The pools of which the subscriber of a record has or had mappings, if it is unanswered.
    pub(crate) fn unanswered_pools(&self, at: u32) -> impl Iterator<Item = usize> + '_ {
        let first = self.is_unanswered(at).then(|| self.records[at as usize].next);
        let entries = core::iter::successors(first, |&entry| self.unanswered.other(entry));
        entries.map(|entry| self.unanswered.pool(entry))
    }

    /// Notes that a host has a new record and is unanswered.
    pub(crate) fn enter_unanswered(&mut self, at: u32) {
        let record = &mut self.records[at as usize];
        record.is_unanswered = true;
        record.next = self.unanswered.enter(at, record.pool as usize, None);
    }

    /// The entry in `Unanswered` for the mappings of a pool that the subscriber of a record has,
    /// if no remote endpoint has answered the subscriber yet.
    pub(crate) fn unanswered_entry(&self, at: u32, pool: usize) -> Option<u32> {
        if !self.is_unanswered(at) {
            return None;
        }
        let record = &self.records[self.record_of(at, pool)? as usize];
        record.is_unanswered.then_some(record.next)
    }

    /// The same entry of an unanswered subscriber, which gets one if it has none for the pool yet.
    pub(crate) fn enter_pool(&mut self, at: u32, pool: usize) -> u32 {
        let Subscriber { host, pool: of_first, next: first, .. } = self.records[at as usize];
        if of_first as usize == pool {
            return first;
        }
        let further = self.find_record(host, pool as u32).expect("a further pool has a record");
        let record = &mut self.records[further as usize];
        if !core::mem::replace(&mut record.is_unanswered, true) {
            record.next = self.unanswered.enter(further, pool, Some(first));
        }
        record.next
    }
}
