//! The bare processor and what every PC has. All instructions and addresses that have to be
//! believed are here.

pub(crate) mod boot;
pub(crate) mod cards;
pub(crate) mod clock;
pub(crate) mod console;
mod controller;
mod display;
pub(crate) mod last_words;
pub(crate) mod ports;
pub(crate) mod processors;
pub(crate) mod restart;
pub(crate) mod sole;
pub(crate) mod system;
pub(crate) mod traps;
pub(crate) mod watchdog;
pub(crate) mod wires;

use std::arch::asm;
use std::hint;

/// Has the processor meet an instruction that there is not.
pub(crate) fn fail() -> ! {
    // SAFETY: nothing comes after it.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// Stands still.
pub(crate) fn stand_still() -> ! {
    loop {
        hint::spin_loop();
    }
}
