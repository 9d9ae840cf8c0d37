//! Counters with one writer: any thread may read them, only their owner's thread writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds `more` to a counter. Only one thread may write it, so no atomic addition is needed.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
