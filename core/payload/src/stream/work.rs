//! The memory that a direction borrows while it holds bytes or has edits that are not acknowledged.
//!
//! The pool has a fixed size and is made at the start.

use super::edits::Edits;
use super::held::Held;
use alloc::vec::Vec;

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
}

impl Pool {
    /// A pool of `count` works.
    pub(crate) fn new(count: u16) -> Self {
        let works = (0..count).map(|_| Work { held: Held::new(), edits: Edits::new() }).collect();
        Self { works, free: (0..count).collect() }
    }

    /// Number of free works.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Borrows a work, with its window at `base`. `None`: none is free.
    pub(crate) fn borrow(&mut self, base: u32) -> Option<u16> {
        let at = self.free.pop()?;
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
