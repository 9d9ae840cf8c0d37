//! The request for interrupts by cards. Cards interrupt only while the processor sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request shared by the program and the drivers of its cards; clones share one state.
///
/// Before a sleep the program sets the alarm, holds interrupts back, and has every driver look for
/// frames once more. A driver that looks while the alarm is set first makes its card interrupt. So
/// a frame has either been found, or its interrupt is pending and ends the sleep at once.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<AtomicBool>);

impl Alarm {
    /// Requests interrupts, or withdraws the request.
    pub fn set(&self, is_wanted: bool) {
        self.0.store(is_wanted, Ordering::Relaxed);
    }

    /// Returns true if interrupts are requested.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
