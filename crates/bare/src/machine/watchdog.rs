//! The watchdog: the processor's own timer, which has to be set again and again. When it runs out
//! the machine has stood still, which is told with the registers, and starts again. It is the only
//! interrupt.

use super::{clock, ports, traps};
use std::arch::{asm, x86_64::__cpuid};
use std::sync::atomic::{AtomicU32, Ordering};

/// How long the machine may stand still, seconds.
pub(crate) const SECONDS: u32 = 5;

/// Ticks of the timer in that time; 0: it is not running.
static TICKS: AtomicU32 = AtomicU32::new(0);

/// The processor's interrupt controller, by the offsets of its registers.
const SPURIOUS: u32 = 0xf0;
const TIMER: u32 = 0x320;
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
    const BY_128: u32 = 0b1010;
    /// How long the timer is watched, nanoseconds.
    const LOOK: u64 = 10_000_000;
    if __cpuid(1).edx & HAS_CONTROLLER == 0 || clock::frequency() == 0 {
        return;
    }
    // The older controllers' interrupts stay off.
    ports::out8(0x21, 0xff);
    ports::out8(0xa1, 0xff);
    let base = ports::read_msr(BASE);
    // SAFETY: it stays where it is; its only interrupts are those that are set up here.
    unsafe { ports::write_msr(BASE, base | ENABLED) };
    write(SPURIOUS, 1 << 8 | u32::from(traps::SPURIOUS));
    write(DIVIDER, BY_128);
    write(TIMER, MASKED);
    let begin = clock::now().1;
    write(INITIAL, u32::MAX);
    clock::pause(LOOK);
    let ticks = u64::from(u32::MAX - read(CURRENT)) * 1_000_000_000 * u64::from(SECONDS);
    // On a busy host it may have been much longer.
    let ticks = ticks / (clock::now().1 - begin).max(LOOK);
    TICKS.store(u32::try_from(ticks).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    write(TIMER, traps::WATCHDOG.into());
    feed();
    // SAFETY: both interrupts that can come have handlers.
    unsafe { asm!("sti") };
}

/// Says that the machine does not stand still.
pub(crate) fn feed() {
    let ticks = TICKS.load(Ordering::Relaxed);
    if ticks != 0 {
        write(INITIAL, ticks);
    }
}

/// Has it wait until it is fed again: something takes long that is no standing still.
pub(crate) fn pause() {
    if TICKS.load(Ordering::Relaxed) != 0 {
        write(INITIAL, 0);
    }
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
