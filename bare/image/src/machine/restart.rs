//! Restart of the machine.

use super::{clock, console, ports, processors};
use std::arch::asm;

/// Pause after the last output, nanoseconds. The serial port sends during the first half and then
/// loses the rest. The screen can be read during the whole pause.
const PAUSE: u64 = 1_600_000_000;

/// Restarts the machine after a pause for the output.
pub(crate) fn restart() -> ! {
    super::watchdog::pause();
    // A processor that is printing must not continue.
    processors::stop_others();
    console::seize();
    let begin = clock::now().1;
    while !console::pump() && clock::now().1 - begin < PAUSE / 2 && begin != 0 {}
    clock::pause(PAUSE.saturating_sub(clock::now().1 - begin));
    now()
}

/// Restarts the machine at once: by the chipset, by the keyboard controller, or by an exception
/// without a handler.
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
        // SAFETY: the missing table of handlers is intended.
        unsafe { asm!("lidt [{}]", "int3", in(reg) &raw const no_table) };
    }
}
