//! A queue of buffers between the driver and a device: the split virtqueue (virtio 1.2 section
//! 2.7).
//!
//! Each buffer has the descriptor of its own number, so no descriptors are searched for or chained.

use crate::dma::{Area, Buffers};

/// Bytes of a descriptor and of an entry of the used ring.
const DESCRIPTOR: usize = 16;
const USED: usize = 8;

/// Of a descriptor: the device writes to the buffer.
const WRITABLE: u16 = 2;
/// Of the available ring: no interrupts, please. Of the used one: the device looks by itself.
const NO_NOTICE: u16 = 1;

/// A queue and its buffers.
#[derive(Debug)]
pub(super) struct Queue {
    size: usize,
    /// Descriptors, the available ring, the used ring.
    area: Area,
    pub(super) buffers: Buffers,
    /// Buffers that nobody uses.
    pub(super) free: Vec<usize>,
    /// How many have been made available, and how many used ones have been taken, both modulo 2^16.
    available: u16,
    taken: u16,
    /// Whether the device interrupts when it has used a buffer.
    interrupts: bool,
    /// Entries of the used ring, or frames, that make no sense.
    pub(super) odd: u64,
}

impl Queue {
    /// A queue of a size, a power of two, and as many buffers of so many bytes.
    pub(super) fn new(size: u16, buffer: usize) -> Self {
        let size = usize::from(size);
        let mut queue = Self {
            size,
            area: Area::new(used(size) + 4 + USED * size + 2),
            buffers: Buffers::new(size, buffer),
            free: (0..size).rev().collect(),
            available: 0,
            taken: 0,
            interrupts: false,
            odd: 0,
        };
        queue.area.write(available(size), NO_NOTICE);
        queue
    }

    pub(super) fn len(&self) -> usize {
        self.size
    }

    /// Where descriptors, available ring and used ring are.
    pub(super) fn addresses(&self) -> [u64; 3] {
        [0, available(self.size), used(self.size)].map(|at| self.area.address(at))
    }

    /// Gives a part of a buffer to the device, to write to or to read; it sees that after
    /// [`Queue::publish`].
    pub(super) fn give(&mut self, number: usize, start: usize, len: usize, to_write: bool) {
        let address = self.buffers.give(number) + start as u64;
        let at = number * DESCRIPTOR;
        self.area.write(at, address);
        self.area.write(at + 8, len as u32);
        self.area.write(at + 12, if to_write { WRITABLE } else { 0 });
        let place = usize::from(self.available) % self.size;
        self.area.write(available(self.size) + 4 + 2 * place, number as u16);
        self.available = self.available.wrapping_add(1);
    }

    /// Lets the device see what was given to it.
    pub(super) fn publish(&mut self) {
        self.area.write(available(self.size) + 2, self.available);
        // What the device says of notices counts only after it can see this.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Whether the device has to be told that there is something new.
    pub(super) fn wants_bell(&self) -> bool {
        self.area.read::<u16>(used(self.size)) & NO_NOTICE == 0
    }

    /// Has the device interrupt when it uses a buffer, or not any more. What it has used so far can
    /// be taken after this.
    pub(super) fn interrupt(&mut self, is_wanted: bool) {
        if std::mem::replace(&mut self.interrupts, is_wanted) == is_wanted {
            return;
        }
        self.area.write(available(self.size), if is_wanted { 0 } else { NO_NOTICE });
        // Either the device sees this, or what it has used can be seen here.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Takes back a buffer that the device has used: its number, and how many bytes it says that it
    /// has written. Numbers of buffers that the device does not have are skipped.
    pub(super) fn take(&mut self) -> Option<(usize, usize)> {
        // A device that says that it is further than it can be is asked no more often than that.
        for _ in 0..self.size {
            if self.area.read::<u16>(used(self.size) + 2) == self.taken {
                return None;
            }
            let at = used(self.size) + 4 + USED * (usize::from(self.taken) % self.size);
            let (number, written) = (self.area.read::<u32>(at), self.area.read::<u32>(at + 4));
            self.taken = self.taken.wrapping_add(1);
            if self.buffers.take(number as usize) {
                return Some((number as usize, written as usize));
            }
            self.odd += 1;
        }
        None
    }
}

/// Where the available ring begins in the area: flags, index, entries of 16 bits.
fn available(size: usize) -> usize {
    size * DESCRIPTOR
}

/// Where the used ring begins: the same, entries of 64 bits.
fn used(size: usize) -> usize {
    (available(size) + 4 + 2 * size + 2).next_multiple_of(64)
}
