//! The memory that a direction borrows while it holds bytes or has edits that are not acknowledged.
//!
//! The pool has a limit. A part of it is made at the start, and the rest when many directions need
//! memory at once.

use super::edits::Edits;
use super::held::Held;
use alloc::vec::Vec;

/// Most works that are made at the start.
const PREPARED: u16 = 256;

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
}

impl Pool {
    /// A pool of `most` works.
    pub(crate) fn new(most: u16) -> Self {
        let mut pool = Self { works: Vec::with_capacity(most.into()), free: Vec::new(), most };
        pool.free.reserve(most.into());
        for _ in 0..most.min(PREPARED) {
            let made = pool.make();
            pool.free.extend(made);
        }
        pool
    }

    /// Makes one more work. `None`: there are as many as may be.
    fn make(&mut self) -> Option<u16> {
        let at = self.works.len() as u16;
        if at >= self.most {
            return None;
        }
        self.works.push(Work { held: Held::new(), edits: Edits::new() });
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
        self.free.push(at);
    }

    pub(crate) fn get(&self, at: u16) -> &Work {
        &self.works[usize::from(at)]
    }

    pub(crate) fn get_mut(&mut self, at: u16) -> &mut Work {
        &mut self.works[usize::from(at)]
    }
}
