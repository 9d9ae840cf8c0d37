//! The watchdog: the processor's own timer, which ticks. When it has ticked for too long without
//! anybody saying that things go on, the machine has stood still, which is told with the registers,
//! and it starts again. A tick also ends a sleep. Each processor has its own, and says for itself.
//!
//! Who says that things go on writes to memory alone: a register of the timer's costs an emulated
//! machine as much as some packets.

use super::controller::{self, read, register, write};
use super::{clock, processors, traps, wires};
use std::arch::{asm, x86_64::__cpuid};
use std::sync::atomic::{AtomicU32, Ordering};

/// How long the machine may stand still, seconds.
pub(crate) const SECONDS: u32 = 5;

/// Ticks a second.
const TICKS: u32 = 100;

/// Ticks after which it has stood still.
pub(super) const MOST: i32 = (SECONDS * TICKS) as i32;

/// What the timers count from one tick to the next; 0: they do not tick.
static COUNTS: AtomicU32 = AtomicU32::new(0);

/// How fast the timers count: one in so many of what they could.
const BY_128: u32 = 0b1010;

/// Starts it, on the first processor.
pub(crate) fn start() {
    const HAS_CONTROLLER: u32 = 1 << 9;
    const MASKED: u32 = 1 << 16;
    /// The older controllers' interrupts come through.
    const OLDER: u32 = 0x700;
    /// How long the timer is watched, nanoseconds.
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
    // On a busy host it may have been much longer.
    let counts = counted / (clock::now().1 - begin).max(LOOK);
    COUNTS.store(u32::try_from(counts).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    tick();
    allow_interrupts();
}

/// Has this processor's timer tick from now on, if the first's does.
pub(super) fn tick() {
    const AGAIN_AND_AGAIN: u32 = 1 << 17;
    let counts = COUNTS.load(Ordering::Relaxed);
    if counts > 0 {
        write(register::DIVIDER, BY_128);
        write(register::TIMER, AGAIN_AND_AGAIN | u32::from(traps::TICK));
        write(register::INITIAL, counts);
    }
}

/// Says that this processor does not stand still.
pub(crate) fn feed() {
    processors::here().still.store(0, Ordering::Relaxed);
}

/// Has it wait until it is fed again: something takes long that is no standing still.
pub(crate) fn pause() {
    // Ticks for most of a year.
    processors::here().still.store(i32::MIN, Ordering::Relaxed);
}

/// Whether it ticks, so that who sleeps wakes up.
pub(crate) fn is_ticking() -> bool {
    COUNTS.load(Ordering::Relaxed) > 0
}

/// Where a card sends its interrupts: address and message; `None`: nowhere.
pub(crate) fn alarm() -> Option<(u64, u32)> {
    const MESSAGES: u64 = 0xfee0_0000;
    // What a message has room for.
    let processor = u8::try_from(controller::id()).ok()?;
    is_ticking().then_some((MESSAGES | u64::from(processor) << 12, traps::ALARM.into()))
}

/// How many interrupts there were here by cards, or by other processors that had something for this
/// one.
pub(crate) fn alarms() -> u64 {
    processors::here().alarms.load(Ordering::Relaxed)
}

/// Waits until something is so, ten milliseconds at most; whether it is.
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
    // SAFETY: what waits comes later. That memory may be touched is what the compiler is to
    // believe, so that what is looked at afterwards is looked at afterwards.
    unsafe { asm!("cli", options(nostack)) }
}

/// Lets interrupts come.
pub(crate) fn allow_interrupts() {
    // SAFETY: all that can come have handlers.
    unsafe { asm!("sti", options(nostack)) }
}

/// Lets interrupts come, and sleeps until one does; one that was held back is one.
pub(crate) fn sleep() {
    // SAFETY: as above. None comes between the two, so none is missed.
    unsafe { asm!("sti", "hlt", options(nostack)) }
}
