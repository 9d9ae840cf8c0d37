//! The watchdog, on the processor's own timer. If the timer ticks for too long without a sign of
//! progress, the watchdog prints the registers and restarts the machine. A tick also ends a sleep.
//! Each processor has a watchdog of its own.
//!
//! A sign of progress is only a write to memory. A write to a register of the timer costs an
//! emulated machine as much as some packets.

use super::controller::{self, read, register, write};
use super::{clock, processors, traps, wires};
use std::arch::{asm, x86_64::__cpuid};
use std::sync::atomic::{AtomicU32, Ordering};

/// Longest time without progress, seconds.
pub(crate) const SECONDS: u32 = 5;

/// Ticks a second.
const TICKS: u32 = 100;

/// Ticks without progress after which the machine has failed.
pub(super) const MOST: i32 = (SECONDS * TICKS) as i32;

/// Counts of the timers from one tick to the next; 0 if they do not tick.
static COUNTS: AtomicU32 = AtomicU32::new(0);

/// Divider of the timers' rate: 128.
const BY_128: u32 = 0b1010;

/// Starts the watchdog on the first processor.
pub(crate) fn start() {
    const HAS_CONTROLLER: u32 = 1 << 9;
    const MASKED: u32 = 1 << 16;
    /// The interrupts of the older controllers pass through.
    const OLDER: u32 = 0x700;
    /// Time of the measurement of the timer, nanoseconds.
    const LOOK: u64 = 10_000_000;
    if __cpuid(1).edx & HAS_CONTROLLER == 0 || clock::frequency() == 0 {
        return;
    }
    wires::start();
    controller::start();
    write(register::WIRES, OLDER);
    write(register::DIVIDER, BY_128);
    write(register::TIMER, MASKED);
    let begin = clock::now().1;
    write(register::INITIAL, u32::MAX);
    clock::pause(LOOK);
    let counted = u64::from(u32::MAX - read(register::CURRENT)) * 1_000_000_000 / u64::from(TICKS);
    // On a busy host the measurement may have taken much longer.
    let counts = counted / (clock::now().1 - begin).max(LOOK);
    COUNTS.store(u32::try_from(counts).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    tick();
    allow_interrupts();
}

/// Starts the ticks of this processor's timer, if the first processor's timer ticks.
pub(super) fn tick() {
    const AGAIN_AND_AGAIN: u32 = 1 << 17;
    let counts = COUNTS.load(Ordering::Relaxed);
    if counts > 0 {
        write(register::DIVIDER, BY_128);
        write(register::TIMER, AGAIN_AND_AGAIN | u32::from(traps::TICK));
        write(register::INITIAL, counts);
    }
}

/// Signals the progress of this processor.
pub(crate) fn feed() {
    processors::here().still.store(0, Ordering::Relaxed);
}

/// Pauses the watchdog until the next sign of progress, for slow work.
pub(crate) fn pause() {
    // Ticks for most of a year.
    processors::here().still.store(i32::MIN, Ordering::Relaxed);
}

/// Returns true if the timer ticks, so that a sleep ends.
pub(crate) fn is_ticking() -> bool {
    COUNTS.load(Ordering::Relaxed) > 0
}

/// Address and message of a card's interrupts; `None` if interrupts are impossible.
pub(crate) fn alarm() -> Option<(u64, u32)> {
    const MESSAGES: u64 = 0xfee0_0000;
    // A message has room for an id of 8 bits.
    let processor = u8::try_from(controller::id()).ok()?;
    is_ticking().then_some((MESSAGES | u64::from(processor) << 12, traps::ALARM.into()))
}

/// Number of interrupts of this processor, by cards and by other processors.
pub(crate) fn alarms() -> u64 {
    processors::here().alarms.load(Ordering::Relaxed)
}

/// Waits for a condition, at most ten milliseconds; returns its value.
pub(super) fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    const LONGEST: u64 = 10_000_000;
    let begin = clock::now().1;
    while !is_so() {
        if clock::now().1 - begin > LONGEST {
            return false;
        }
    }
    true
}

/// Holds interrupts back.
pub(crate) fn hold_interrupts() {
    // SAFETY: held-back interrupts come later. The compiler must assume accesses to memory, so that
    // later checks stay behind this instruction.
    unsafe { asm!("cli", options(nostack)) }
}

/// Lets interrupts come.
pub(crate) fn allow_interrupts() {
    // SAFETY: all interrupts have handlers.
    unsafe { asm!("sti", options(nostack)) }
}

/// Lets interrupts come, and sleeps until one comes. A held-back interrupt ends the sleep at once.
pub(crate) fn sleep() {
    // SAFETY: as above. No interrupt comes between the two instructions, so none is missed.
    unsafe { asm!("sti", "hlt", options(nostack)) }
}
