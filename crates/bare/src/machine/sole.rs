//! What there is one of: there is one thread, on one processor.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one at a time may use.
pub(crate) struct Sole<T> {
    is_used: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: who is let at the value is alone with it.
unsafe impl<T> Sync for Sole<T> {}

impl<T> Sole<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { is_used: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Uses the value.
    ///
    /// # Panics
    /// When it is being used.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        assert!(!self.is_used.swap(true, Ordering::Acquire), "used twice at once");
        // SAFETY: nobody else is here, as was just made sure.
        let result = action(unsafe { &mut *self.value.get() });
        self.is_used.store(false, Ordering::Release);
        result
    }

    /// Uses the value even if somebody was interrupted who used it: for last words, after which
    /// nobody goes on.
    pub(crate) fn seize(&self) {
        self.is_used.store(false, Ordering::Release);
    }
}
