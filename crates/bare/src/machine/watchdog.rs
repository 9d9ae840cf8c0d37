//! The watchdog: the processor's own timer, which ticks. When it has ticked for too long without
//! anybody saying that things go on, the machine has stood still, which is told with the registers,
//! and it starts again. A tick also ends a sleep.
//!
//! Who says that things go on writes to memory alone: a register of the timer's costs an emulated
//! machine as much as some packets.

use super::{clock, ports, traps, wires};
use std::arch::{asm, x86_64::__cpuid};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// How long the machine may stand still, seconds.
pub(crate) const SECONDS: u32 = 5;

/// Ticks a second.
const TICKS: u32 = 100;

/// Ticks after which it has stood still.
pub(super) const MOST: i32 = (SECONDS * TICKS) as i32;

/// Ticks since somebody said that things go on.
pub(super) static STILL: AtomicI32 = AtomicI32::new(0);

/// Interrupts of cards.
pub(super) static ALARMS: AtomicU64 = AtomicU64::new(0);

/// Whether it ticks.
static TICKING: AtomicBool = AtomicBool::new(false);

/// The processor's interrupt controller, by the offsets of its registers.
const ID: u32 = 0x20;
const SPURIOUS: u32 = 0xf0;
const TIMER: u32 = 0x320;
const WIRES: u32 = 0x350;
const INITIAL: u32 = 0x380;
const CURRENT: u32 = 0x390;
const DIVIDER: u32 = 0x3e0;

const BASE: u32 = 0x1b;
const ENABLED: u64 = 1 << 11;
const BY_REGISTERS: u64 = 1 << 10;

/// Starts it.
pub(crate) fn start() {
    const HAS_CONTROLLER: u32 = 1 << 9;
    const MASKED: u32 = 1 << 16;
    const AGAIN_AND_AGAIN: u32 = 1 << 17;
    const BY_128: u32 = 0b1010;
    /// The older controllers' interrupts come through.
    const OLDER: u32 = 0x700;
    /// How long the timer is watched, nanoseconds.
    const LOOK: u64 = 10_000_000;
    if __cpuid(1).edx & HAS_CONTROLLER == 0 || clock::frequency() == 0 {
        return;
    }
    wires::start();
    let base = ports::read_msr(BASE);
    // SAFETY: it stays where it is; its only interrupts are those that are set up here.
    unsafe { ports::write_msr(BASE, base | ENABLED) };
    write(SPURIOUS, 1 << 8 | u32::from(traps::SPURIOUS));
    write(WIRES, OLDER);
    write(DIVIDER, BY_128);
    write(TIMER, MASKED);
    let begin = clock::now().1;
    write(INITIAL, u32::MAX);
    clock::pause(LOOK);
    let counted = u64::from(u32::MAX - read(CURRENT)) * 1_000_000_000 / u64::from(TICKS);
    // On a busy host it may have been much longer.
    let counts = counted / (clock::now().1 - begin).max(LOOK);
    write(TIMER, AGAIN_AND_AGAIN | u32::from(traps::TICK));
    write(INITIAL, u32::try_from(counts).unwrap_or(u32::MAX).max(1));
    TICKING.store(true, Ordering::Relaxed);
    allow_interrupts();
}

/// Says that the machine does not stand still.
pub(crate) fn feed() {
    STILL.store(0, Ordering::Relaxed);
}

/// Has it wait until it is fed again: something takes long that is no standing still.
pub(crate) fn pause() {
    // Ticks for most of a year.
    STILL.store(i32::MIN, Ordering::Relaxed);
}

/// Whether it ticks, so that who sleeps wakes up.
pub(crate) fn is_ticking() -> bool {
    TICKING.load(Ordering::Relaxed)
}

/// Where a card sends its interrupts: address and message; `None`: nowhere.
pub(crate) fn alarm() -> Option<(u64, u32)> {
    const MESSAGES: u64 = 0xfee0_0000;
    // What a message has room for. By registers the number has 32 bits, else the upper eight.
    let is_wide = ports::read_msr(BASE) & BY_REGISTERS != 0;
    let processor = u8::try_from(if is_wide { read(ID) } else { read(ID) >> 24 }).ok()?;
    is_ticking().then_some((MESSAGES | u64::from(processor) << 12, traps::ALARM.into()))
}

/// How many interrupts of cards there were.
pub(crate) fn alarms() -> u64 {
    ALARMS.load(Ordering::Relaxed)
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
    // SAFETY: what waits comes later. That memory may be touched is what the compiler is to believe,
    // so that what is looked at afterwards is looked at afterwards.
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

/// Where a register is: in memory, or a register of the processor's.
fn place(at: u32) -> Result<*mut u32, u32> {
    let base = ports::read_msr(BASE);
    if base & BY_REGISTERS != 0 {
        Err(0x800 + at / 16)
    } else {
        Ok(((base & !0xfff) + u64::from(at)) as *mut u32)
    }
}

fn write(at: u32, value: u32) {
    // SAFETY: these are the controller's registers, which nobody else uses.
    unsafe {
        match place(at) {
            Ok(register) => register.write_volatile(value),
            Err(register) => ports::write_msr(register, value.into()),
        }
    }
}

fn read(at: u32) -> u32 {
    match place(at) {
        // SAFETY: as above.
        Ok(register) => unsafe { register.read_volatile() },
        Err(register) => ports::read_msr(register) as u32,
    }
}
