//! Whether cards are to interrupt the processor: only while it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the program and the drivers of its cards know of that; clones are the same.
///
/// Who is going to sleep sets it, holds interrupts back, and has every driver look for frames once
/// more: a driver that looks while it is set has its card interrupt first. So a frame has either
/// been found or its interrupt waits, and ends the sleep as soon as it has begun.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<AtomicBool>);

impl Alarm {
    /// Says whether interrupts are wanted.
    pub fn set(&self, is_wanted: bool) {
        self.0.store(is_wanted, Ordering::Relaxed);
    }

    /// Whether they are.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
