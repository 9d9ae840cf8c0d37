//! Interrupts by wires, for cards that cannot send messages: through the two controllers that every
//! PC has, of eight inputs each.
//!
//! The firmware has said which input a card's wire leads to; whether that is so is tried before
//! anybody relies on it. A wire stays up until its card is asked why, so whoever is interrupted
//! closes all inputs, and they are opened again with the next sleep.

use super::ports::out8;
use super::watchdog;
use std::sync::atomic::{AtomicU16, Ordering};

/// The vector of the first input.
pub(super) const FIRST: u8 = 48;

/// Inputs.
pub(super) const COUNT: u8 = 16;

/// Where the controllers are told something, and where their inputs are closed.
const COMMANDS: [u16; 2] = [0x20, 0xa0];
const CLOSED: [u16; 2] = [0x21, 0xa1];

/// The input of the first controller that is the second controller.
const SECOND: u8 = 2;

/// Inputs that are in use, by bits.
static USED: AtomicU16 = AtomicU16::new(0);

/// Sets the controllers up, all inputs closed.
pub(super) fn start() {
    const BEGIN: u8 = 0x11;
    const BY_PROCESSOR: u8 = 1;
    for (number, (command, closed)) in (0..).zip(COMMANDS.into_iter().zip(CLOSED)) {
        out8(command, BEGIN);
        out8(closed, FIRST + 8 * number);
        // The first is told by a bit where the second is, the second by a number where it is
        // itself.
        out8(closed, if number == 0 { 1 << SECOND } else { SECOND });
        out8(closed, BY_PROCESSOR);
        out8(closed, u8::MAX);
    }
}

/// Uses an input if its interrupts arrive when `ring` has a card raise its wire; whether they do.
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

/// Opens the inputs that are in use; to be called before a sleep.
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
