//! Memory that a card reads and writes while the program runs.
//!
//! An [`Area`] has descriptors: numbers, each read or written as a whole. [`Buffers`] have frames.
//! Each buffer belongs either to the card or to the program, and only the program's buffers give
//! access to their bytes. Addresses are equal for cards and for the program, because the image maps
//! memory at its own addresses.

#![expect(unsafe_code, reason = "what a card writes, the compiler does not know of")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Alignment of descriptors and buffers, bytes.
const ALIGNMENT: usize = 4096;

/// Cleared, contiguous memory.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the area alone, and to a card, which is no thread.
unsafe impl Send for Area {}

impl Area {
    /// Creates an area of `len` bytes.
    ///
    /// # Panics
    /// If `len` is 0, or larger than any machine's memory.
    pub fn new(len: usize) -> Self {
        assert!(len > 0);
        let layout = Layout::from_size_align(len, ALIGNMENT).expect("it is not that large");
        // SAFETY: the layout has a size.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, layout }
    }

    /// Address of an offset.
    pub fn address(&self, at: usize) -> u64 {
        self.base.addr().get() as u64 + at as u64
    }

    /// Reads a number. Later reads see values that were written before the number was.
    pub fn read<N: Number>(&self, at: usize) -> N {
        // SAFETY: the place lies in the area, and every bit pattern is a number.
        let value = unsafe { self.place::<N>(at).read_volatile() };
        fence(Ordering::Acquire);
        value
    }

    /// Writes a number after all earlier writes.
    pub fn write<N: Number>(&mut self, at: usize, value: N) {
        fence(Ordering::Release);
        // SAFETY: the place lies in the area.
        unsafe { self.place::<N>(at).write_volatile(value) }
    }

    fn place<N: Number>(&self, at: usize) -> *mut N {
        let size = size_of::<N>();
        assert!(at.is_multiple_of(size) && at + size <= self.layout.size());
        // SAFETY: the place lies in the area.
        unsafe { self.base.as_ptr().add(at).cast() }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// A type of numbers in descriptors.
pub trait Number: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl sealed::Sealed for $number {}
        impl Number for $number {}
    )*};
}

numbers! { u8 u16 u32 u64 }

/// Buffers of one size.
#[derive(Debug)]
pub struct Buffers {
    area: Area,
    size: usize,
    /// For each buffer, true if it belongs to the card.
    at_card: Vec<bool>,
    /// Number of loans, and the number of each buffer's latest loan.
    times: u64,
    last: Vec<u64>,
}

impl Buffers {
    /// Creates `count` buffers of `size` bytes, all of them the program's.
    pub fn new(count: usize, size: usize) -> Self {
        let (at_card, last) = (vec![false; count], vec![0; count]);
        Self { area: Area::new(count * size), size, at_card, times: 0, last }
    }

    /// Address of a buffer.
    pub fn address(&self, number: usize) -> u64 {
        self.area.address(number * self.size)
    }

    /// Gives a buffer to the card; returns its address.
    pub fn give(&mut self, number: usize) -> u64 {
        self.at_card[number] = true;
        self.address(number)
    }

    /// Takes a buffer back from the card; returns false if the card does not have it.
    pub fn take(&mut self, number: usize) -> bool {
        self.at_card.get_mut(number).is_some_and(std::mem::take)
    }

    /// Lends buffers in any order, each with the value beside its number. It omits repeated numbers
    /// and buffers of the card.
    pub fn lend<T: Copy>(&mut self, which: &[(usize, T)]) -> impl Iterator<Item = (&mut [u8], T)> {
        self.times += 1;
        let Self { area, size, at_card, times, last } = self;
        let (base, size, now) = (area.base, *size, *times);
        which.iter().filter_map(move |(number, with)| {
            if at_card.get(*number).is_none_or(|at_card| *at_card)
                || std::mem::replace(&mut last[*number], now) == now
            {
                return None;
            }
            // SAFETY: the buffer lies in the area, no other slice of it exists at the same time,
            // and the card does not have it.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(base.as_ptr().add(number * size), size) };
            Some((bytes, *with))
        })
    }

    /// Bytes of one buffer; empty while the card has it.
    pub fn bytes_mut(&mut self, number: usize) -> &mut [u8] {
        self.lend(&[(number, ())]).next().map_or(&mut [], |(bytes, ())| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_where_they_were_written() {
        let mut area = Area::new(64);
        assert!(area.address(0).is_multiple_of(ALIGNMENT as u64));
        area.write(8, 0x0102_0304_u32);
        area.write(12, 5_u16);
        assert_eq!((area.read::<u64>(8), area.read::<u8>(63)), (0x0005_0102_0304, 0));
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn nothing_is_read_beyond_the_end() {
        Area::new(64).read::<u32>(64);
    }

    #[test]
    fn a_buffer_is_lent_once_and_not_while_the_card_has_it() {
        let mut buffers = Buffers::new(4, 16);
        assert_eq!(buffers.address(2) - buffers.address(1), 16);
        assert_eq!(buffers.give(2), buffers.address(2));
        assert!(buffers.bytes_mut(2).is_empty());
        buffers.bytes_mut(3)[0] = 9;
        let lent: Vec<_> = buffers
            .lend(&[(3, 'a'), (2, 'b'), (3, 'c'), (0, 'd'), (4, 'e')])
            .map(|(bytes, name)| (bytes.len(), bytes[0], name))
            .collect();
        assert_eq!(lent, [(16, 9, 'a'), (16, 0, 'd')]);
        assert!(buffers.take(2) && !buffers.take(2) && !buffers.take(4));
    }
}
