//! What there is one of, whoever uses it. Nobody does for long.

use super::processors;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value that one at a time may use.
pub(crate) struct Sole<T> {
    /// The processor that uses it, counted from 1; 0: none does.
    user: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: who is let at the value is alone with it.
unsafe impl<T> Sync for Sole<T> {}

impl<T> Sole<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { user: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Uses the value, once nobody else does.
    ///
    /// # Panics
    /// When this processor is using it.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        let own = processors::number() + 1;
        while let Err(user) =
            self.user.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed)
        {
            assert!(user != own, "used twice at once");
            std::hint::spin_loop();
        }
        // SAFETY: nobody else is here, as was just made sure.
        let result = action(unsafe { &mut *self.value.get() });
        self.user.store(0, Ordering::Release);
        result
    }

    /// Uses the value even if somebody was interrupted who used it: for last words, after which
    /// nobody goes on.
    pub(crate) fn seize(&self) {
        self.user.store(0, Ordering::Release);
    }
}
