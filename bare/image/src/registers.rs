//! Memory-mapped registers of a card.

use std::fmt::Debug;

/// Registers by their offsets in bytes, which must be multiples of their widths. Clones access the
/// same registers.
pub trait Registers: Clone + Send + Debug {
    /// Reads a register of 8 bits.
    fn read8(&self, at: u32) -> u8;
    /// Reads a register of 16 bits.
    fn read16(&self, at: u32) -> u16;
    /// Reads a register of 32 bits.
    fn read32(&self, at: u32) -> u32;
    /// Writes a register of 8 bits.
    fn write8(&mut self, at: u32, value: u8);
    /// Writes a register of 16 bits.
    fn write16(&mut self, at: u32, value: u16);
    /// Writes a register of 32 bits. The card then sees earlier writes to memory.
    fn write32(&mut self, at: u32, value: u32);
}

/// Mapped registers.
#[derive(Clone, Debug)]
pub struct Mapped {
    base: usize,
    len: u32,
}

impl Mapped {
    /// The registers at `base`, `len` bytes.
    ///
    /// # Safety
    /// A card's registers are mapped there, and have no other user.
    #[expect(unsafe_code, reason = "what is at the address is believed")]
    pub unsafe fn new(base: usize, len: u32) -> Self {
        assert!(base.is_multiple_of(4));
        Self { base, len }
    }

    /// Address of a register.
    fn place<T>(&self, at: u32) -> *mut T {
        let size = size_of::<T>() as u32;
        assert!(at.is_multiple_of(size) && self.len >= size && at <= self.len - size);
        (self.base + at as usize) as *mut T
    }

    #[expect(unsafe_code, reason = "registers are memory")]
    fn read<T>(&self, at: u32) -> T {
        // SAFETY: the creator of this value promised that registers are mapped; the place is one of
        // them.
        unsafe { self.place::<T>(at).read_volatile() }
    }

    #[expect(unsafe_code, reason = "registers are memory")]
    fn write<T>(&mut self, at: u32, value: T) {
        // Earlier writes to memory must come first; the processor keeps that order.
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
