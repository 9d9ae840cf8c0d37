//! Memory of frames, shared with the kernel, and the owners of its pieces.
//!
//! The area is cut into chunks, one frame each. A chunk is free, or the kernel has it (to fill it
//! or to send it), or it is lent out as a frame, or both of the latter: one device sends a frame
//! that came in by another without a copy, while the translator still holds it. The chunk is free
//! again when both the kernel and the borrower have given it back. Devices that share an area
//! belong to one thread; the lock makes this safe without that assumption.
#![allow(unsafe_code)]

use crate::{Error, HEADROOM};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that the kernel leaves free before a received frame.
pub(super) const KERNEL_HEADROOM: usize = 256;

/// The largest chunk that the kernel takes: a page.
const LARGEST: usize = 4096;

const _: () = assert!(KERNEL_HEADROOM >= HEADROOM);

/// The largest MTU whose frames fit a chunk, bytes.
pub(super) const LARGEST_MTU: u32 = (LARGEST - KERNEL_HEADROOM - ETHERNET_LEN - VLAN_LEN) as u32;

/// Number of the queue that holds a chunk in the kernel; never zero.
pub(super) type Holder = u32;

/// Memory for frames.
#[derive(Debug)]
pub(super) struct Area {
    memory: NonNull<u8>,
    chunk_len: usize,
    count: usize,
    chunks: Mutex<Chunks>,
}

// SAFETY: the memory belongs to the area, and pieces of it are handed out only as `Chunks` permits;
// a lock protects `Chunks`.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

/// Owners of the chunks.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Free chunks, most recently used last: their memory is most likely cached.
    free: Vec<u32>,
    states: Box<[State]>,
    chunk_len: u64,
    holders: Holder,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Queue whose rings hold the chunk; 0 if none does.
    holder: Holder,
    /// True if the chunk is lent out as a frame.
    lent: bool,
}

impl Area {
    /// Allocates memory for this many frames of links with at most this MTU; errors name `device`.
    pub(super) fn new(count: usize, mtu: u32, device: &str) -> Result<Self, Error> {
        let chunk_len = chunk_len(mtu);
        let len = count * chunk_len;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choosing touches nothing that exists.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        let memory = NonNull::new(memory.cast()).filter(|_| memory != libc::MAP_FAILED);
        let memory: NonNull<u8> =
            memory.ok_or_else(|| Error::last("taking memory for frames", device))?;
        // SAFETY: the mapping was just made and has this length. Small pages work as well, so the
        // result does not matter.
        unsafe { libc::madvise(memory.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(Self { memory, chunk_len, count, chunks: Mutex::new(Chunks::new(count, chunk_len)) })
    }

    /// Address of the area.
    pub(super) fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// Length of the area, bytes.
    pub(super) fn len(&self) -> usize {
        self.count * self.chunk_len
    }

    pub(super) fn chunk_len(&self) -> usize {
        self.chunk_len
    }

    /// True if frames of links with this MTU fit the chunks.
    pub(super) fn fits(&self, mtu: u32) -> bool {
        mtu <= LARGEST_MTU && chunk_len(mtu) <= self.chunk_len
    }

    pub(super) fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offset of these bytes in the area; `None` if they lie elsewhere.
    pub(super) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.memory.as_ptr() as usize)?;
        (offset < self.len() && bytes.len() <= self.len() - offset).then_some(offset as u64)
    }

    /// Lends the memory of a chunk.
    ///
    /// # Safety
    /// According to `Chunks` the chunk is lent and the kernel does not have it, or it was just
    /// taken for sending. No other reference to it exists. The returned slice must be dropped
    /// before the chunk changes its owner, and before the area is dropped.
    pub(super) unsafe fn lend<'d>(&self, chunk: u32) -> &'d mut [u8] {
        assert!((chunk as usize) < self.count);
        // SAFETY: the mapping has `count` chunks; the rest is the caller's promise.
        unsafe {
            let begin = self.memory.as_ptr().add(chunk as usize * self.chunk_len);
            std::slice::from_raw_parts_mut(begin, self.chunk_len)
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: `new` made this mapping, of this length; no chunk is lent any more, because
        // frames borrow devices and devices share the area. The kernel keeps the pages that it
        // still uses.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.len()) };
    }
}

/// Length of the chunks for frames of this MTU, bytes.
fn chunk_len(mtu: u32) -> usize {
    let longest = KERNEL_HEADROOM + ETHERNET_LEN + VLAN_LEN + mtu as usize;
    longest.next_power_of_two().clamp(2048, LARGEST)
}

impl Chunks {
    fn new(count: usize, chunk_len: usize) -> Self {
        Self {
            free: (0..count as u32).rev().collect(),
            states: vec![State::default(); count].into(),
            chunk_len: chunk_len as u64,
            holders: 0,
        }
    }

    /// Creates a new number for a queue.
    pub(super) fn new_holder(&mut self) -> Holder {
        self.holders += 1;
        self.holders
    }

    /// Chunk that contains an offset in the area.
    pub(super) fn at(&self, offset: u64) -> u32 {
        (offset / self.chunk_len) as u32
    }

    /// Offset of a chunk.
    pub(super) fn begin(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk_len
    }

    /// Takes a free chunk for a queue.
    pub(super) fn take(&mut self, holder: Holder) -> Option<u32> {
        let chunk = self.free.pop()?;
        self.states[chunk as usize].holder = holder;
        Some(chunk)
    }

    /// Lends out a chunk that a queue has received; `false` if the queue did not hold it.
    pub(super) fn lend(&mut self, chunk: u32, holder: Holder) -> bool {
        match self.states.get_mut(chunk as usize) {
            Some(state) if state.holder == holder && !state.lent => {
                *state = State { holder: 0, lent: true };
                true
            }
            _ => false,
        }
    }

    /// Takes back a lent chunk.
    pub(super) fn take_back(&mut self, chunk: u32) {
        let state = &mut self.states[chunk as usize];
        assert!(state.lent);
        state.lent = false;
        if state.holder == 0 {
            self.free.push(chunk);
        }
    }

    /// Gives a lent chunk to a queue that sends it, beside its borrower; `false` if a queue holds
    /// it already, or it is not lent.
    pub(super) fn share(&mut self, chunk: u32, holder: Holder) -> bool {
        match self.states.get_mut(chunk as usize) {
            Some(state) if state.lent && state.holder == 0 => {
                state.holder = holder;
                true
            }
            _ => false,
        }
    }

    /// Takes back a chunk that the kernel returns from a queue.
    pub(super) fn release(&mut self, chunk: u32, holder: Holder) {
        if let Some(state) = self.states.get_mut(chunk as usize)
            && state.holder == holder
        {
            state.holder = 0;
            if !state.lent {
                self.free.push(chunk);
            }
        }
    }

    /// Takes back all chunks of a queue that is closed.
    pub(super) fn release_all(&mut self, holder: Holder) {
        for chunk in 0..self.states.len() as u32 {
            self.release(chunk, holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks() -> Chunks {
        Chunks::new(4, 2048)
    }

    #[test]
    fn chunks_fit_frames_and_pages() {
        assert_eq!([68, 1500, 1774, 1775, 3822].map(chunk_len), [2048, 2048, 2048, 4096, 4096]);
        let area = Area::new(2, 1500, "none").expect("memory");
        assert!(area.fits(1500) && !area.fits(1775) && !area.fits(9000));
        assert!(Area::new(2, 3822, "none").expect("memory").fits(LARGEST_MTU));
    }

    #[test]
    fn a_frame_is_found_in_the_area_and_others_are_not() {
        let area = Area::new(2, 1500, "none").expect("memory");
        let chunk = area.chunks().take(1).expect("all are free");
        // SAFETY: the chunk was just taken, and no other reference to it exists.
        let memory = unsafe { area.lend(chunk) };
        let begin = area.chunks().begin(chunk);
        assert_eq!(area.offset_of(&memory[300..400]), Some(begin + 300));
        assert_eq!(area.chunks().at(begin + 300), chunk);
        assert_eq!(area.offset_of(&[0; 64]), None);
    }

    #[test]
    fn what_is_received_and_sent_is_free_when_both_sides_are_done() {
        for kernel_first in [false, true] {
            let mut chunks = chunks();
            let (a, b) = (chunks.new_holder(), chunks.new_holder());
            let chunk = chunks.take(a).expect("all are free");
            assert!(!chunks.lend(chunk, b) && chunks.lend(chunk, a) && !chunks.lend(chunk, a));
            assert!(chunks.share(chunk, b));
            // A frame that is sent twice has to be copied.
            assert!(!chunks.share(chunk, b) && !chunks.share(chunk, a));
            if kernel_first {
                chunks.release(chunk, b);
                assert_eq!(chunks.free.len(), 3);
                chunks.take_back(chunk);
            } else {
                chunks.take_back(chunk);
                assert_eq!(chunks.free.len(), 3);
                chunks.release(chunk, a);
                assert_eq!(chunks.free.len(), 3, "another queue gives nothing back");
                chunks.release(chunk, b);
            }
            assert_eq!(chunks.free.len(), 4);
            chunks.release(chunk, b);
            assert_eq!(chunks.free.len(), 4, "given back twice");
        }
    }

    #[test]
    fn a_closed_queue_loses_what_it_had_and_nothing_else() {
        let mut chunks = chunks();
        let (a, b) = (chunks.new_holder(), chunks.new_holder());
        let taken = [a, a, b].map(|holder| chunks.take(holder).expect("four are free"));
        assert!(chunks.lend(taken[0], a) && chunks.share(taken[0], b));
        chunks.release_all(b);
        assert_eq!(chunks.free.len(), 2);
        chunks.take_back(taken[0]);
        chunks.release_all(a);
        assert_eq!(chunks.free.len(), 4);
        assert!(chunks.take(a).is_some());
        for _ in 0..3 {
            assert!(chunks.take(b).is_some());
        }
        assert_eq!(chunks.take(b), None);
    }

    #[test]
    fn numbers_out_of_the_area_do_no_harm() {
        let mut chunks = chunks();
        let holder = chunks.new_holder();
        assert!(!chunks.lend(99, holder) && !chunks.share(99, holder));
        chunks.release(99, holder);
        assert_eq!(chunks.free.len(), 4);
    }
}
