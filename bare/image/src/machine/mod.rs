//! The bare processor and the common devices of PCs. All privileged instructions and all trusted
//! addresses are here.

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

/// Executes an invalid instruction.
pub(crate) fn fail() -> ! {
    // SAFETY: no code follows.
    unsafe { asm!("ud2", options(noreturn)) }
}

/// Loops for ever.
pub(crate) fn stand_still() -> ! {
    loop {
        hint::spin_loop();
    }
}
