//! Interrupts by wires, for cards that cannot send messages, through the two classic interrupt
//! controllers of PCs with eight inputs each.
//!
//! The firmware reports the input of a card's wire. The driver tries the input before it relies on
//! it. A wire stays up until the driver reads the cause, so the handler closes all inputs, and the
//! next sleep opens them again.

use super::ports::out8;
use super::watchdog;
use std::sync::atomic::{AtomicU16, Ordering};

/// Vector of the first input.
pub(super) const FIRST: u8 = 48;

/// Number of inputs.
pub(super) const COUNT: u8 = 16;

/// Ports of the controllers for commands and for closed inputs.
const COMMANDS: [u16; 2] = [0x20, 0xa0];
const CLOSED: [u16; 2] = [0x21, 0xa1];

/// Input of the first controller that is connected to the second.
const SECOND: u8 = 2;

/// Inputs in use, one bit each.
static USED: AtomicU16 = AtomicU16::new(0);

/// Sets the controllers up with all inputs closed.
pub(super) fn start() {
    const BEGIN: u8 = 0x11;
    const BY_PROCESSOR: u8 = 1;
    for (number, (command, closed)) in (0..).zip(COMMANDS.into_iter().zip(CLOSED)) {
        out8(command, BEGIN);
        out8(closed, FIRST + 8 * number);
        // The first controller gets a bit for the place of the second. The second gets its own
        // number.
        out8(closed, if number == 0 { 1 << SECOND } else { SECOND });
        out8(closed, BY_PROCESSOR);
        out8(closed, u8::MAX);
    }
}

/// Uses an input if an interrupt arrives when `ring` raises the card's wire; returns true if it
/// does.
pub(super) fn try_out(input: u8, ring: impl FnOnce()) -> bool {
    if input >= COUNT || input == SECOND {
        return false;
    }
    let before = watchdog::alarms();
    let others = USED.fetch_or(1 << input, Ordering::Relaxed);
    open();
    ring();
    let arrives = watchdog::wait_until(|| watchdog::alarms() != before);
    if !arrives {
        USED.store(others, Ordering::Relaxed);
        close();
    }
    arrives
}

/// Opens the inputs in use; call it before a sleep.
pub(crate) fn open() {
    let used = USED.load(Ordering::Relaxed);
    if used == 0 {
        return;
    }
    let [low, high] = (!used).to_le_bytes();
    let low = if high == u8::MAX { low } else { low & !(1 << SECOND) };
    out8(CLOSED[0], low);
    out8(CLOSED[1], high);
}

fn close() {
    CLOSED.into_iter().for_each(|closed| out8(closed, u8::MAX));
}
