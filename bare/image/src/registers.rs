//! A card's registers, in memory.

use std::fmt::Debug;

/// Registers by their offsets, bytes, which the width of each divides. Clones are the same
/// registers.
pub trait Registers: Clone + Send + Debug {
    /// Reads one of 8 bits.
    fn read8(&self, at: u32) -> u8;
    /// Reads one of 16 bits.
    fn read16(&self, at: u32) -> u16;
    /// Reads one of 32 bits.
    fn read32(&self, at: u32) -> u32;
    /// Writes one of 8 bits.
    fn write8(&mut self, at: u32, value: u8);
    /// Writes one of 16 bits.
    fn write16(&mut self, at: u32, value: u16);
    /// Writes one of 32 bits. What was written to memory before can be seen by the card then.
    fn write32(&mut self, at: u32, value: u32);
}

/// Registers that are mapped.
#[derive(Clone, Debug)]
pub struct Mapped {
    base: usize,
    len: u32,
}

impl Mapped {
    /// The registers at an address, so many bytes.
    ///
    /// # Safety
    /// They are a card's there, mapped, and nobody else uses them.
    #[expect(unsafe_code, reason = "what is at the address is believed")]
    pub unsafe fn new(base: usize, len: u32) -> Self {
        assert!(base.is_multiple_of(4));
        Self { base, len }
    }

    /// Where a register is.
    fn place<T>(&self, at: u32) -> *mut T {
        let size = size_of::<T>() as u32;
        assert!(at.is_multiple_of(size) && self.len >= size && at <= self.len - size);
        (self.base + at as usize) as *mut T
    }

    #[expect(unsafe_code, reason = "registers are memory")]
    fn read<T>(&self, at: u32) -> T {
        // SAFETY: who made this promised that registers are there; the place is one of them.
        unsafe { self.place::<T>(at).read_volatile() }
    }

    #[expect(unsafe_code, reason = "registers are memory")]
    fn write<T>(&mut self, at: u32, value: T) {
        // What was written to memory has been written before; the processor keeps that order.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: as in `read`.
        unsafe { self.place::<T>(at).write_volatile(value) }
    }
}

impl Registers for Mapped {
    fn read8(&self, at: u32) -> u8 {
        self.read(at)
    }

    fn read16(&self, at: u32) -> u16 {
        self.read(at)
    }

    fn read32(&self, at: u32) -> u32 {
        self.read(at)
    }

    fn write8(&mut self, at: u32, value: u8) {
        self.write(at, value);
    }

    fn write16(&mut self, at: u32, value: u16) {
        self.write(at, value);
    }

    fn write32(&mut self, at: u32, value: u32) {
        self.write(at, value);
    }
}
