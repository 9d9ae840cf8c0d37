//! A queue of buffers between the driver and a device: the split virtqueue (virtio 1.2 section
//! 2.7).
//!
//! Each buffer has the descriptor of its own number, so the driver neither searches nor chains
//! descriptors.

use crate::dma::{Area, Buffers};

/// Bytes of a descriptor, and of an entry of the used ring.
const DESCRIPTOR: usize = 16;
const USED: usize = 8;

/// Flag of a descriptor: the device writes to the buffer.
const WRITABLE: u16 = 2;
/// Flag of the available ring: the driver wants no interrupts. Flag of the used ring: the device
/// needs no announcement.
const NO_NOTICE: u16 = 1;

/// A queue and its buffers.
#[derive(Debug)]
pub(super) struct Queue {
    size: usize,
    /// Descriptors, the available ring, the used ring.
    area: Area,
    pub(super) buffers: Buffers,
    /// Free buffers.
    pub(super) free: Vec<usize>,
    /// Number of buffers made available, and number of used ones taken, both modulo 2^16.
    available: u16,
    taken: u16,
    /// True if the device interrupts after it has used a buffer.
    interrupts: bool,
    /// Invalid entries of the used ring, and invalid frames.
    pub(super) odd: u64,
}

impl Queue {
    /// Creates a queue with `size` buffers of `buffer` bytes; the size is a power of two.
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

    /// Addresses of descriptors, available ring and used ring.
    pub(super) fn addresses(&self) -> [u64; 3] {
        [0, available(self.size), used(self.size)].map(|at| self.area.address(at))
    }

    /// Gives a part of a buffer to the device, to write or to read. The device sees it after
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

    /// Makes given buffers visible to the device.
    pub(super) fn publish(&mut self) {
        self.area.write(available(self.size) + 2, self.available);
        // The device's flag is valid only after the device can see this write.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Returns true if new buffers must be announced to the device.
    pub(super) fn wants_bell(&self) -> bool {
        self.area.read::<u16>(used(self.size)) & NO_NOTICE == 0
    }

    /// Switches interrupts after used buffers on or off. Buffers that were used before can be taken
    /// after this call.
    pub(super) fn interrupt(&mut self, is_wanted: bool) {
        if std::mem::replace(&mut self.interrupts, is_wanted) == is_wanted {
            return;
        }
        self.area.write(available(self.size), if is_wanted { 0 } else { NO_NOTICE });
        // Either the device sees this write, or the program sees the used buffers.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Takes back a used buffer: its number, and the bytes that the device reports as written.
    /// Skips numbers of buffers that the device does not have.
    pub(super) fn take(&mut self) -> Option<(usize, usize)> {
        // The loop is limited, because the device may report an impossible index.
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

/// Offset of the available ring: flags, index, entries of 16 bits.
fn available(size: usize) -> usize {
    size * DESCRIPTOR
}

/// Offset of the used ring: flags, index, entries of 64 bits.
fn used(size: usize) -> usize {
    (available(size) + 4 + 2 * size + 2).next_multiple_of(64)
}
