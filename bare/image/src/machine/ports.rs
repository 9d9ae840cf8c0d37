//! Instructions that only the bare processor permits: ports, model-specific registers, the counter.

use std::arch::asm;

/// Reads 8 bits from a port.
pub(crate) fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: reading a port changes no memory.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// Writes 8 bits to a port.
pub(crate) fn out8(port: u16, value: u8) {
    // SAFETY: no value that this program writes to ports makes a card write to memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

/// Reads 32 bits from a port.
pub(crate) fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: as for 8 bits.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nomem, nostack)) };
    value
}

/// Writes 32 bits to a port.
pub(crate) fn out32(port: u16, value: u32) {
    // SAFETY: only configuration space is written by 32 bits. Only drivers let a card write to
    // memory, and they have their own memory for it.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack)) };
}

/// Reads a model-specific register. The processor must have it.
pub(crate) fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: a read changes nothing, and a missing register causes an exception with a handler.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The program must expect the effect of the value on the processor.
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: the caller promises it.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack));
    }
}

/// Reads the processor's cycle counter.
pub(crate) fn counter() -> u64 {
    // SAFETY: every processor of 64 bits has the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Unpredictable number from the processor; `None` if the processor has no source.
pub(crate) fn random() -> Option<u64> {
    const HAS_RANDOM: u32 = 1 << 30;
    if std::arch::x86_64::__cpuid(1).ecx & HAS_RANDOM == 0 {
        return None;
    }
    (0..100).find_map(|_| {
        let (value, valid): (u64, u8);
        // SAFETY: the processor has the instruction, as checked above.
        unsafe {
            asm!(
                "rdrand {}",
                "setc {}",
                out(reg) value,
                out(reg_byte) valid,
                options(nomem, nostack)
            );
        }
        (valid == 1).then_some(value)
    })
}
