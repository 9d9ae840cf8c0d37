//! Counters, meters, registers, random numbers, hashes.
//!
//! Arrays have all their elements from the start; untouched pages take no memory.

use crate::ir::Algorithm;
use crate::machine::{Meter, Rates, externs};
use natgate_hugepages::prefetch;
use std::fmt::Debug;
use std::ops::BitXor;

/// An array of counters.
#[derive(Debug)]
pub struct Counters {
    /// Packets and bytes.
    cells: Vec<[u64; 2]>,
    most: u64,
}

impl Counters {
    /// Creates `size` counters that count up to `most`, then overflow to zero.
    pub fn new(size: u32, most: u64) -> Self {
        Self { cells: vec![[0; 2]; size as usize], most }
    }

    /// Counts a packet; an index beyond the array is ignored.
    #[inline]
    pub fn count(&mut self, index: u128, bytes: u128) {
        if let Some([packets, total]) =
            usize::try_from(index).ok().and_then(|i| self.cells.get_mut(i))
        {
            *packets = packets.wrapping_add(1) & self.most;
            *total = total.wrapping_add(bytes as u64) & self.most;
        }
    }

    /// Starts fetching a counter.
    #[inline]
    pub fn fetch(&self, index: u128) {
        prefetch(&self.cells, index as usize);
    }

    /// Sets packets and bytes of a counter; returns false if the index is beyond the array.
    pub fn set(&mut self, index: u32, (packets, bytes): (u64, u64)) -> bool {
        let cell = self.cells.get_mut(index as usize);
        cell.map(|cell| *cell = [packets, bytes]).is_some()
    }

    /// Resets all counters. Pages untouched since the start stay untouched.
    pub fn clear(&mut self) {
        self.cells = vec![[0; 2]; self.cells.len()];
    }

    /// Packets and bytes.
    pub fn read(&self, index: u32) -> (u64, u64) {
        self.cells.get(index as usize).map_or((0, 0), |cell| (cell[0], cell[1]))
    }
}

/// An array of meters, up to the last one that has rates.
#[derive(Debug)]
pub struct Meters {
    cells: Vec<Option<Box<Meter>>>,
    size: u32,
    bytes: bool,
}

impl Meters {
    /// Creates `size` meters, of bytes or of packets.
    pub fn new(size: u32, bytes: bool) -> Self {
        Self { cells: Vec::new(), size, bytes }
    }

    /// Colour of a packet; a meter without rates leaves it as it is.
    #[inline]
    pub fn colour(&mut self, now: u64, index: u128, before: u128, length: u128) -> u128 {
        let size = if self.bytes { length } else { 1 };
        match usize::try_from(index).ok().and_then(|index| self.cells.get_mut(index)) {
            Some(Some(meter)) => meter.colour(now, before, size),
            _ => before,
        }
    }

    /// Rates at an index, if there are any.
    pub fn read(&self, index: u32) -> Option<Rates> {
        self.cells.get(index as usize)?.as_ref().map(|meter| meter.rates())
    }

    /// Sets or removes the meter at an index; returns false if the index is beyond the array.
    pub fn set(&mut self, index: u32, meter: Option<Meter>) -> bool {
        let place = index as usize;
        if index < self.size {
            self.cells.resize(self.cells.len().max(place + 1), None);
            self.cells[place] = meter.map(Box::new);
        }
        index < self.size
    }

    /// Removes all meters.
    pub fn clear(&mut self) {
        self.cells.clear();
    }
}

/// An array of registers, or of one field of them.
#[derive(Debug)]
pub struct Registers<T> {
    /// Values, each combined with the initial value by exclusive or.
    cells: Vec<T>,
    initial: T,
}

impl<T: BitXor<Output = T> + Copy + Default + Debug> Registers<T> {
    /// Creates `size` registers with this initial value.
    pub fn new(size: u32, initial: T) -> Self {
        Self { cells: vec![T::default(); size as usize], initial }
    }

    /// Value at an index; beyond the array, the initial value.
    #[inline]
    pub fn read(&self, index: u128) -> T {
        let cell = usize::try_from(index).ok().and_then(|index| self.cells.get(index));
        cell.map_or(self.initial, |cell| *cell ^ self.initial)
    }

    /// Initial value of all registers.
    #[inline]
    pub fn initial(&self) -> T {
        self.initial
    }

    /// Starts fetching a register.
    #[inline]
    pub fn fetch(&self, index: u128) {
        prefetch(&self.cells, index as usize);
    }

    /// Resets all registers to the initial value.
    pub fn clear(&mut self) {
        self.cells = vec![T::default(); self.cells.len()];
    }

    /// Writes a value; an index beyond the array is ignored.
    #[inline]
    pub fn write(&mut self, index: u128, value: T) {
        if let Some(cell) = usize::try_from(index).ok().and_then(|index| self.cells.get_mut(index))
        {
            *cell = value ^ self.initial;
        }
    }
}

/// A pseudorandom sequence.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Next number, from `least` to `most`.
    pub fn next(&mut self, least: u128, most: u128) -> u128 {
        externs::random(&mut self.0, least, most)
    }
}

/// Hash of values with these widths.
pub fn hash(algorithm: Algorithm, values: &[(u128, u32)]) -> u128 {
    externs::hash(algorithm, &externs::bytes(values.iter().copied()))
}
