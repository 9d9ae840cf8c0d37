//! The processor's own interrupt controller (local APIC), in memory or, if the firmware has chosen
//! that mode, in registers of the processor. Each processor reaches only its own.

use super::{ports, traps};

/// Offsets of its registers.
pub(super) mod register {
    pub(in super::super) const TIMER: u32 = 0x320;
    pub(in super::super) const WIRES: u32 = 0x350;
    pub(in super::super) const INITIAL: u32 = 0x380;
    pub(in super::super) const CURRENT: u32 = 0x390;
    pub(in super::super) const DIVIDER: u32 = 0x3e0;
    pub(super) const ID: u32 = 0x20;
    pub(super) const SPURIOUS: u32 = 0xf0;
    pub(super) const COMMAND: u32 = 0x300;
    pub(super) const TARGET: u32 = 0x310;
}

const BASE: u32 = 0x1b;
const ENABLED: u64 = 1 << 11;
const BY_REGISTERS: u64 = 1 << 10;

/// A signal to another processor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signal {
    /// Reset: wait for the next signal.
    Reset,
    /// Begin at the page of this number, below 1 MiB.
    Begin(u8),
    /// An interrupt.
    Alarm,
    /// An interrupt that cannot be held back.
    End,
}

/// Switches the controller on.
pub(super) fn start() {
    let base = ports::read_msr(BASE);
    // SAFETY: the controller keeps its place, and its only interrupts are those that are set up.
    unsafe { ports::write_msr(BASE, base | ENABLED) };
    write(register::SPURIOUS, 1 << 8 | u32::from(traps::SPURIOUS));
}

/// Id of this processor.
pub(super) fn id() -> u32 {
    let id = read(register::ID);
    if is_by_registers() { id } else { id >> 24 }
}

/// Returns true if the processor with this id can receive signals.
pub(super) fn can_reach(id: u32) -> bool {
    // The highest id addresses all processors.
    id < if is_by_registers() { u32::MAX } else { 0xff }
}

/// Sends a signal to the processor with this id.
pub(super) fn send(id: u32, signal: Signal) {
    /// Level bit: the signal is asserted.
    const ASSERTED: u32 = 1 << 14;
    send_command(
        id,
        match signal {
            Signal::Reset => ASSERTED | 5 << 8,
            Signal::Begin(page) => ASSERTED | 6 << 8 | u32::from(page),
            Signal::Alarm => ASSERTED | u32::from(traps::ALARM),
            Signal::End => ASSERTED | 4 << 8,
        },
    );
}

fn send_command(id: u32, command: u32) {
    const BY_REGISTER: u32 = 0x830;
    const PENDING: u32 = 1 << 12;
    /// A signal takes less than a microsecond.
    const PATIENCE: u32 = 100_000;
    if is_by_registers() {
        // SAFETY: interrupts have handlers, and a processor that begins finds instructions.
        unsafe { ports::write_msr(BY_REGISTER, u64::from(id) << 32 | u64::from(command)) };
        return;
    }
    let _ = (0..PATIENCE).any(|_| read(register::COMMAND) & PENDING == 0);
    write(register::TARGET, id << 24);
    write(register::COMMAND, command);
}

fn is_by_registers() -> bool {
    ports::read_msr(BASE) & BY_REGISTERS != 0
}

/// Place of a register: an address, or a register of the processor.
fn place(at: u32) -> Result<*mut u32, u32> {
    let base = ports::read_msr(BASE);
    if base & BY_REGISTERS != 0 {
        Err(0x800 + at / 16)
    } else {
        Ok(((base & !0xfff) + u64::from(at)) as *mut u32)
    }
}

pub(super) fn write(at: u32, value: u32) {
    // SAFETY: these are the controller's registers, which have no other user.
    unsafe {
        match place(at) {
            Ok(register) => register.write_volatile(value),
            Err(register) => ports::write_msr(register, value.into()),
        }
    }
}

pub(super) fn read(at: u32) -> u32 {
    match place(at) {
        // SAFETY: as above.
        Ok(register) => unsafe { register.read_volatile() },
        Err(register) => ports::read_msr(register) as u32,
    }
}
