//! Rings that a socket shares with the kernel: one end puts entries in, the other takes them out,
//! and each end's position is a word that the other reads.
#![allow(unsafe_code)]

use crate::Error;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ring's memory.
#[derive(Debug)]
pub(super) struct Shared<T> {
    base: NonNull<u8>,
    len: usize,
    offsets: libc::xdp_ring_offset,
    /// Entries, a power of two.
    size: u32,
    entries: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value; words that the kernel changes are read as atomics.
unsafe impl<T> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Maps the ring at an offset of a socket.
    pub(super) fn map(
        socket: &OwnedFd,
        offsets: libc::xdp_ring_offset,
        size: u32,
        place: i64,
        device: &str,
    ) -> Result<Self, Error> {
        let len = offsets.desc as usize + size as usize * mem::size_of::<T>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let (null, socket) = (std::ptr::null_mut(), socket.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choosing touches nothing that exists.
        let base = unsafe { libc::mmap(null, len, protection, flags, socket, place) };
        let mapped = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        let base = mapped.ok_or_else(|| Error::last("mapping a ring", device))?;
        Ok(Self { base, len, offsets, size, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel gives the offsets of its aligned words in the mapping.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset as usize).cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, position: u32) -> *mut T {
        let index = (position & (self.size - 1)) as usize;
        // SAFETY: the mapping has `size` entries from this offset on.
        unsafe { self.base.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(index) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, of this length; nothing of it is lent.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The end that puts entries in.
#[derive(Debug)]
pub(super) struct Producer<T> {
    memory: Shared<T>,
    /// Position of the next entry; ahead of the kernel's view until `publish`.
    next: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn of(memory: Shared<T>) -> Self {
        Self { memory, next: 0 }
    }

    /// Number of entries that have room.
    pub(super) fn room(&self) -> u32 {
        self.memory.size - self.next.wrapping_sub(self.taken())
    }

    /// Puts an entry in; there must be room for it.
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: the entry's place is in the ring, and the kernel does not look at it until it is
        // published.
        unsafe { self.memory.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Makes the entries visible to the kernel.
    pub(super) fn publish(&self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    /// Position of the next entry.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Position up to which the kernel has taken entries.
    pub(super) fn taken(&self) -> u32 {
        self.memory.consumer().load(Ordering::Acquire)
    }

    /// True if the kernel must be called to look at the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.memory.needs_wakeup()
    }
}

/// The end that takes entries out.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    memory: Shared<T>,
    /// Position of the next entry to take; ahead of the kernel's view until `release`.
    next: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn of(memory: Shared<T>) -> Self {
        Self { memory, next: 0 }
    }

    /// Number of entries that wait.
    pub(super) fn waiting(&self) -> u32 {
        let put = self.memory.producer().load(Ordering::Acquire);
        put.wrapping_sub(self.next).min(self.memory.size)
    }

    /// Takes one of the waiting entries.
    pub(super) fn take(&mut self) -> T {
        // SAFETY: the entry is in the ring, and the kernel has published it and leaves it alone
        // until it is released.
        let entry = unsafe { self.memory.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Releases the places of taken entries to the kernel.
    pub(super) fn release(&self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::FromRawFd;

    const OFFSETS: libc::xdp_ring_offset =
        libc::xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };

    /// Both ends of one ring of four entries, in a file that lies in memory.
    fn ends() -> (Producer<u64>, Consumer<u64>) {
        // SAFETY: the name is a string; the descriptor is new and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"ring".as_ptr(), 0)) };
        // SAFETY: no pointers are passed.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 4096) }, 0);
        let map = || Shared::map(&file, OFFSETS, 4, 0, "none").expect("memory");
        (Producer::of(map()), Consumer::of(map()))
    }

    #[test]
    fn entries_come_out_in_order_over_the_end_of_the_ring_and_of_the_numbers() {
        let (mut producer, mut consumer) = ends();
        // The positions begin a few entries before they overflow.
        for word in [producer.memory.producer(), producer.memory.consumer()] {
            word.store(u32::MAX - 5, Ordering::Relaxed);
        }
        (producer.next, consumer.next) = (u32::MAX - 5, u32::MAX - 5);
        for round in 0..10_u64 {
            assert_eq!((producer.room(), consumer.waiting()), (4, 0));
            for entry in 0..3 {
                producer.put(round * 3 + entry);
            }
            assert_eq!((producer.room(), consumer.waiting()), (1, 0), "nothing is published");
            producer.publish();
            assert_eq!(consumer.waiting(), 3);
            for entry in 0..3 {
                assert_eq!(consumer.take(), round * 3 + entry);
            }
            assert_eq!((producer.room(), consumer.waiting()), (1, 0), "nothing is released");
            consumer.release();
        }
    }

    #[test]
    fn the_kernel_says_when_it_has_to_be_called() {
        let (producer, _) = ends();
        assert!(!producer.needs_wakeup());
        producer.memory.word(128).store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }
}
