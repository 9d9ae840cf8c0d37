//! How the machine starts again.

use super::{clock, console, ports, processors};
use std::arch::asm;

/// How long it takes from the last word, nanoseconds: what the serial port does not send in the
/// first half is lost, what is on the screen stays to be read.
const PAUSE: u64 = 1_600_000_000;

/// Starts the machine again, after what was printed has had time to be read.
pub(crate) fn restart() -> ! {
    super::watchdog::pause();
    // Whoever was printing does not go on.
    processors::stop_others();
    console::seize();
    let begin = clock::now().1;
    while !console::pump() && clock::now().1 - begin < PAUSE / 2 && begin != 0 {}
    clock::pause(PAUSE.saturating_sub(clock::now().1 - begin));
    now()
}

/// Starts the machine again at once: by the chipset, by the keyboard's controller, by an exception
/// that nobody can handle.
fn now() -> ! {
    const RESET_CONTROL: u16 = 0xcf9;
    const KEYBOARD: u16 = 0x64;
    ports::out8(RESET_CONTROL, 2);
    ports::out8(RESET_CONTROL, 6);
    clock::pause(PAUSE / 20);
    ports::out8(KEYBOARD, 0xfe);
    clock::pause(PAUSE / 20);
    let no_table = [0_u16; 5];
    loop {
        // SAFETY: that there is no table of handlers any more is what is wanted.
        unsafe { asm!("lidt [{}]", "int3", in(reg) &raw const no_table) };
    }
}
