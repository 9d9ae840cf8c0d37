//! A bound on bytes that many owners hold together. An owner gives its bytes back by its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes in use, and their most.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    used: Arc<AtomicUsize>,
    most: usize,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Self {
        Self { used: Arc::default(), most }
    }

    /// Takes some bytes. `None`: there are not so many.
    pub(crate) fn take(&self, bytes: usize) -> Option<Share> {
        let mut share = Share { budget: self.clone(), bytes: 0 };
        share.grow(bytes).then_some(share)
    }
}

/// Bytes that one owner holds.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    bytes: usize,
}

impl Share {
    /// Takes more bytes. False: there are not so many, and nothing has changed.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let Budget { used, most } = &self.budget;
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more).filter(|sum| sum <= most)
        });
        if taken.is_ok() {
            self.bytes += more;
        }
        taken.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_the_bound_holds() {
        let budget = Budget::new(10);
        let mut first = budget.take(6).expect("there is room");
        assert!(budget.take(5).is_none());
        assert!(first.grow(4) && !first.grow(1) && !first.grow(usize::MAX));
        assert!(budget.take(0).is_some() && budget.take(1).is_none());
        drop(first);
        assert!(budget.take(10).is_some());
    }
}
