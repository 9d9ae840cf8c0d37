//! The bytes of a direction for another process or node.

use super::super::sequence::{distance, is_before};
use super::super::work::Pool;
use super::{Direction, LARGEST, NO_WORK};
use crate::saved::Saved;
use alloc::vec::Vec;

impl Direction {
    /// Appends the bytes of a flow that is saved.
    pub(crate) fn save(&self, pool: &Pool, to: &mut Vec<u8>) {
        [self.next, self.acked, self.confirmed, self.older, self.stamp].save(to);
        [self.window, self.mss].save(to);
        [self.is_started, self.is_ended, self.work != NO_WORK].save(to);
        if self.work != NO_WORK {
            pool.is_large(self.work).save(to);
            let work = pool.get(self.work);
            work.held.save(to);
            work.edits.save(to);
        }
    }

    /// Appends what the next bytes of the direction need: the sum of all changes, bytes that only
    /// the framework has, and for a flow that is read the next byte and held bytes from there on.
    /// For another one, if edits are not acknowledged: numbers are compared with theirs.
    pub(crate) fn essence(&self, pool: &Pool, is_read: bool, to: &mut Vec<u8>) {
        let sum = self.sum(pool);
        let is_kept = is_before(self.acked, self.confirmed);
        [sum, if is_kept { self.confirmed } else { 0 }].save(to);
        [self.is_started, self.is_ended, is_kept].save(to);
        self.mss.save(to);
        is_read.then_some(self.next).save(to);
        let has_edits = self.work != NO_WORK && !pool.get(self.work).edits.is_empty();
        (!is_read && has_edits).save(to);
        if is_read && self.work != NO_WORK {
            pool.get(self.work).held.save_from(self.next, to);
        }
    }

    /// Reads what [`Direction::save`] wrote. `None`: the bytes mean nothing, or no work is free.
    pub(crate) fn restore(pool: &mut Pool, from: &mut &[u8]) -> Option<Self> {
        let [next, acked, confirmed, older, stamp] = Saved::restore(from)?;
        let [window, mss] = Saved::restore(from)?;
        let [is_started, is_ended, has_work] = Saved::restore(from)?;
        let mut direction = Self {
            next,
            acked,
            confirmed,
            older,
            work: NO_WORK,
            window,
            mss,
            is_started,
            is_ended,
            stamp,
        };
        let restored = if has_work { direction.restore_work(pool, from) } else { Some(()) };
        if restored.is_none() || !direction.is_sound(pool) {
            direction.close(pool);
            return None;
        }
        Some(direction)
    }

    fn restore_work(&mut self, pool: &mut Pool, from: &mut &[u8]) -> Option<()> {
        let is_large = bool::restore(from)?;
        self.work = pool.borrow(self.next)?;
        (!is_large || pool.enlarge(self.work)).then_some(())?;
        let work = pool.get_mut(self.work);
        work.held.restore(from)?;
        work.edits.restore(from)
    }

    /// True if the numbers are those of a connection.
    fn is_sound(&self, pool: &Pool) -> bool {
        let place = |number: u32| distance(number, self.acked);
        let (next, confirmed) = (place(self.next), place(self.confirmed));
        let is_possible = (0..LARGEST).contains(&next)
            && (0..=place(self.received(pool))).contains(&confirmed)
            && self.mss >= 64;
        if self.work == NO_WORK {
            return is_possible
                && (self.is_started || *self == Self { mss: self.mss, ..Self::new() });
        }
        let work = pool.get(self.work);
        let (base, end) = (place(work.held.base()), place(work.held.end()));
        // What the framework alone has is there from the first byte on.
        let is_kept = confirmed == 0 || base <= 0 && confirmed <= end;
        self.is_started
            && is_possible
            && (-LARGEST / 2..=next).contains(&base)
            && is_kept
            && work.edits.are_between(self.acked, self.next)
    }

    /// True if held bytes reach the next byte, but for the number of a FIN: then the bytes that
    /// come next can be read.
    pub(crate) fn can_go_on(&self, pool: &Pool) -> bool {
        let reached = if self.has_held(pool) { pool.get(self.work).held.end() } else { self.next };
        distance(self.next, reached) <= i32::from(self.is_ended)
    }
}
