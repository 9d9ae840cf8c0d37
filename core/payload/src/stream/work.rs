//! The memory that a direction borrows while it holds bytes or has edits that are not acknowledged.
//!
//! The pool has a limit. A part of it is made at the start, and the rest when many directions need
//! memory at once. Some works may have further room for edits at a time.

use super::edits::{Amount, Edits};
use super::held::{Held, WINDOW};
use alloc::vec::Vec;

/// Most works that are made at the start.
const PREPARED: u16 = 256;

/// Most works with further room for edits at a time: 4.5 MiB.
const MOST_LARGE: u16 = 128;

/// Held bytes and edits of one direction.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) held: Held,
    pub(crate) edits: Edits,
}

/// All works, and those that are free.
#[derive(Debug)]
pub(crate) struct Pool {
    works: Vec<Work>,
    free: Vec<u16>,
    most: u16,
    /// Number of works with further room for edits.
    large: u16,
}

impl Pool {
    /// A pool of `most` works.
    pub(crate) fn new(most: u16) -> Self {
        let mut pool = Self { works: Vec::new(), free: Vec::new(), most, large: 0 };
        pool.works.reserve(most.into());
        pool.free.reserve(most.into());
        for _ in 0..most.min(PREPARED) {
            let made = pool.make();
            pool.free.extend(made);
        }
        pool
    }

    /// Bytes of memory of a pool of `most` works that are all used.
    pub(crate) fn memory(most: u16) -> u64 {
        let bytes = |amount: Amount| amount.bytes + amount.edits * Edits::EACH;
        let work = size_of::<Work>() + WINDOW + bytes(Amount::SMALL);
        let further = bytes(Amount::LARGE) - bytes(Amount::SMALL);
        (usize::from(most) * work + usize::from(MOST_LARGE.min(most)) * further) as u64
    }

    /// Makes one more work. `None`: there are as many as may be.
    fn make(&mut self) -> Option<u16> {
        let at = self.works.len() as u16;
        if at >= self.most {
            return None;
        }
        self.works.push(Work { held: Held::new(), edits: Edits::new(Amount::SMALL) });
        Some(at)
    }

    /// Number of free works.
    pub(crate) fn free(&self) -> usize {
        self.free.len() + usize::from(self.most) - self.works.len()
    }

    /// Borrows a work, with its window at `base`. `None`: none is free.
    pub(crate) fn borrow(&mut self, base: u32) -> Option<u16> {
        let at = self.free.pop().or_else(|| self.make())?;
        let work = &mut self.works[usize::from(at)];
        work.held.reset(base);
        work.edits.clear();
        Some(at)
    }

    /// Gives a borrowed work back.
    pub(crate) fn give_back(&mut self, at: u16) {
        debug_assert!(!self.free.contains(&at), "work {at} is given back twice");
        self.get_mut(at).edits.clear();
        self.reduce(at);
        self.free.push(at);
    }

    /// Edits that a work has room for besides its own; `None`: a work that is borrowed next.
    pub(crate) fn room(&self, at: Option<u16>) -> Amount {
        let small = (Amount::SMALL, Amount { edits: 0, bytes: 0 });
        let (limit, used) = at.map_or(small, |at| {
            let edits = &self.get(at).edits;
            (edits.limit(), edits.amount())
        });
        let limit = if self.large < MOST_LARGE { Amount::LARGE } else { limit };
        Amount { edits: limit.edits - used.edits, bytes: limit.bytes - used.bytes }
    }

    /// True if a work has further room for edits.
    pub(crate) fn is_large(&self, at: u16) -> bool {
        self.get(at).edits.limit() != Amount::SMALL
    }

    /// Gives a work further room for edits. False: too many have it.
    pub(crate) fn enlarge(&mut self, at: u16) -> bool {
        if !self.is_large(at) {
            if self.large >= MOST_LARGE {
                return false;
            }
            self.large += 1;
            self.get_mut(at).edits.set_limit(Amount::LARGE);
        }
        true
    }

    /// Takes further room from a work without edits.
    pub(crate) fn reduce(&mut self, at: u16) {
        if self.is_large(at) {
            self.large -= 1;
            self.get_mut(at).edits.set_limit(Amount::SMALL);
        }
    }

    pub(crate) fn get(&self, at: u16) -> &Work {
        &self.works[usize::from(at)]
    }

    pub(crate) fn get_mut(&mut self, at: u16) -> &mut Work {
        &mut self.works[usize::from(at)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_room_has_a_limit_and_comes_back() {
        let mut pool = Pool::new(MOST_LARGE + 2);
        let works: Vec<u16> = (0..=MOST_LARGE).map_while(|_| pool.borrow(7)).collect();
        let (last, others) = works.split_last().expect("works");
        assert_eq!(pool.room(Some(*last)), Amount::LARGE);
        assert!(others.iter().all(|at| pool.enlarge(*at)) && !pool.enlarge(*last));
        assert_eq!(pool.room(Some(*last)), Amount::SMALL);
        assert_eq!((pool.room(None), pool.room(Some(others[0]))), (Amount::SMALL, Amount::LARGE));
        pool.get_mut(others[0]).edits.push(1, 1, b"text");
        let left = Amount { edits: Amount::LARGE.edits - 1, bytes: Amount::LARGE.bytes - 4 };
        assert_eq!(pool.room(Some(others[0])), left);
        pool.give_back(others[0]);
        assert!(!pool.is_large(others[0]) && pool.enlarge(*last));
    }
}
