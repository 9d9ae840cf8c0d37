//! The processor's own interrupt controller (local APIC): in memory or, where the firmware has had
//! it so, by registers of the processor's. Each processor reaches its own.

use super::{ports, traps};

/// Its registers, by their offsets.
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

/// What another processor is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signal {
    /// To wait for the next.
    Reset,
    /// To begin at the page of this number, below 1 MiB.
    Begin(u8),
    /// An interrupt.
    Alarm,
    /// One that cannot be held back.
    End,
}

/// Switches it on.
pub(super) fn start() {
    let base = ports::read_msr(BASE);
    // SAFETY: it stays where it is; its only interrupts are those that are set up.
    unsafe { ports::write_msr(BASE, base | ENABLED) };
    write(register::SPURIOUS, 1 << 8 | u32::from(traps::SPURIOUS));
}

/// What this processor is called.
pub(super) fn id() -> u32 {
    let id = read(register::ID);
    if is_by_registers() { id } else { id >> 24 }
}

/// Whether a processor that is called so can be sent anything.
pub(super) fn can_reach(id: u32) -> bool {
    // The last number stands for everybody.
    id < if is_by_registers() { u32::MAX } else { 0xff }
}

/// Sends a signal to the processor that is called so.
pub(super) fn send(id: u32, signal: Signal) {
    /// Of a signal that is given as such and not by its absence.
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
    /// It takes less than a microsecond.
    const PATIENCE: u32 = 100_000;
    if is_by_registers() {
        // SAFETY: interrupts have handlers, and who is told to begin finds instructions there.
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

/// Where a register is: in memory, or a register of the processor's.
fn place(at: u32) -> Result<*mut u32, u32> {
    let base = ports::read_msr(BASE);
    if base & BY_REGISTERS != 0 {
        Err(0x800 + at / 16)
    } else {
        Ok(((base & !0xfff) + u64::from(at)) as *mut u32)
    }
}

pub(super) fn write(at: u32, value: u32) {
    // SAFETY: these are the controller's registers, which nobody else uses.
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
