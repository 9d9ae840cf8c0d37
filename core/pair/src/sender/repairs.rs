//! Comparison of a copy with what was sent, and its repair.

use super::{LOOKS, Sender};
use crate::digest::{BUCKETS, Digests};
use crate::keys::KeySet;
use crate::packet;
use alloc::vec::Vec;

impl Sender {
    /// Digests of everything sent so far, as a message.
    pub fn digests(&self) -> Vec<u8> {
        // Most keys may be among them: the search ends with the last bucket.
        let (mut is_unsettled, mut left, mut from) = ([false; BUCKETS], BUCKETS, 0);
        while left > 0
            && let Some(key) = self.lost.next(from)
        {
            left -= usize::from(!core::mem::replace(&mut is_unsettled[Digests::bucket(key)], true));
            from = key + 1;
        }
        let buckets = 0..BUCKETS as u16;
        let unsettled: Vec<u16> = buckets.filter(|at| is_unsettled[usize::from(*at)]).collect();
        packet::write_digests(self.id, (self.next - 1, self.floor), &self.digests, &unsettled)
    }

    /// True if the partner has no mapping of a key, nothing of the key waits, and nothing is on its
    /// way but an end.
    pub fn is_new(&self, key: u32) -> bool {
        self.mark(key) == 0 && !self.lost.contains(key) && !self.changed.contains(key)
    }

    /// Sends all keys of some buckets again, ends included, because the copy differs.
    pub fn repair(&mut self, buckets: &[u16]) {
        self.repairs.extend(buckets.iter().filter(|bucket| usize::from(**bucket) < BUCKETS));
        if !self.repairs.is_empty() {
            self.checkpoint = None;
        }
    }

    /// Marks the keys of some buckets to be sent again, at least one bucket, at most [`LOOKS`] keys
    /// more.
    pub(super) fn repair_some(&mut self, extent: u32, now: u64) {
        let extent = extent.max(self.marks.len() as u32).min(KeySet::MOST);
        let mut left = LOOKS;
        while left > 0
            && let Some(bucket) = self.repairs.pop_first()
        {
            for key in (u32::from(bucket)..extent).step_by(BUCKETS) {
                self.lost.insert(key);
                self.change(key, now);
                self.counters.repaired += 1;
                left = left.saturating_sub(1);
            }
            left = left.saturating_sub(1);
        }
    }
}
