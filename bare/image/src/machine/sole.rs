//! A value with one user at a time. No user keeps it for long.

use super::processors;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value that one processor at a time may use.
pub(crate) struct Sole<T> {
    /// Processor that uses it, counted from 1; 0 if none does.
    user: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only one processor at a time has access to the value.
unsafe impl<T> Sync for Sole<T> {}

impl<T> Sole<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { user: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Uses the value; waits until no other processor uses it.
    ///
    /// # Panics
    /// If this processor already uses it.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        let own = processors::number() + 1;
        while let Err(user) =
            self.user.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed)
        {
            assert!(user != own, "used twice at once");
            std::hint::spin_loop();
        }
        // SAFETY: the exchange above excludes all other users.
        let result = action(unsafe { &mut *self.value.get() });
        self.user.store(0, Ordering::Release);
        result
    }

    /// Releases the value although an interrupted processor uses it. For last words, after which no
    /// processor continues.
    pub(crate) fn seize(&self) {
        self.user.store(0, Ordering::Release);
    }
}
