//! A receive ring of blocks (TPACKET_V3): the kernel packs frames into a block one behind the
//! other. It hands the block over when it is full, or a millisecond after its first frame.
//!
//! A block belongs to the kernel or to this process, as its status word says. Its frames are lent
//! out in order, and the block is given back when all of them have come back.
#![allow(unsafe_code)]

use super::slot::Slot;
use super::{Config, socket};
use crate::Error;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a block: the longest merged frame fits, so that none needs the socket's queue.
const BLOCK_LEN: usize = 128 << 10;

/// Time after which an incomplete block is handed over, milliseconds: the least possible.
const RETIRE: libc::c_uint = 1;

const HEADER_LEN: usize = mem::size_of::<libc::tpacket3_hdr>();

/// Offsets in a block's description.
const STATUS: usize = mem::offset_of!(libc::tpacket_block_desc, hdr);
const PACKETS: usize = STATUS + mem::offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST: usize = STATUS + mem::offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

#[derive(Debug)]
pub(super) struct Blocks {
    memory: NonNull<u8>,
    count: usize,
    /// Index of the block to read.
    current: usize,
    /// Frames of the block that have not been lent yet, and offset of the next frame's description.
    left: u32,
    next: usize,
    /// Number of blocks before the current one whose frames are all lent.
    finished: usize,
}

// SAFETY: the ring's memory belongs to this value alone, in any thread; neither the memory nor the
// system depends on the thread.
unsafe impl Send for Blocks {}

impl Blocks {
    /// Creates the ring of a socket and maps it.
    pub(super) fn map(socket: &OwnedFd, device: &str, config: &Config) -> Result<Self, Error> {
        let count = config.ring_blocks(BLOCK_LEN);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_LEN as libc::c_uint,
            tp_block_nr: count as libc::c_uint,
            // Frames have no fixed places; the kernel requires that the product is right.
            tp_frame_size: 2048,
            tp_frame_nr: (count * (BLOCK_LEN / 2048)) as libc::c_uint,
            tp_retire_blk_tov: RETIRE,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket::set(socket, device, libc::PACKET_RX_RING, request, "making the receive ring")?;
        let memory = socket::map(socket, BLOCK_LEN * count, "mapping the receive ring", device)?;
        Ok(Self { memory, count, current: 0, left: 0, next: 0, finished: 0 })
    }

    /// Gives back the blocks whose frames were lent and have come back.
    pub(super) fn give_back(&mut self) {
        for back in 1..=mem::take(&mut self.finished) {
            let block = (self.current + self.count - back) % self.count;
            self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    /// Returns the next frame.
    ///
    /// # Safety
    /// Frames returned before the latest [`Self::give_back`] no longer exist. The returned frame
    /// must be dropped before the next call of it, and before the ring.
    pub(super) unsafe fn next<'d>(&mut self) -> Option<Slot<'d>> {
        while self.left == 0 {
            let ours = self.finished < self.count
                && self.status(self.current).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
            if !ours {
                return None;
            }
            (self.left, self.next) = (self.word(PACKETS), self.word(FIRST) as usize);
            if self.left == 0 {
                self.finish();
            }
        }
        let begin = self.next;
        if !begin.is_multiple_of(mem::align_of::<libc::tpacket3_hdr>())
            || begin + HEADER_LEN > BLOCK_LEN
        {
            // No kernel writes such an offset; the block is skipped.
            self.finish();
            return None;
        }
        // SAFETY: the offset is in the block and aligned; the block belongs to this process and was
        // filled in, and a description consists of integers.
        let header =
            unsafe { self.begin(self.current).add(begin).cast::<libc::tpacket3_hdr>().read() };
        let start = usize::from(header.tp_mac).checked_sub(HEADER_LEN).unwrap_or(usize::MAX);
        let room = BLOCK_LEN - begin - HEADER_LEN;
        let end = start.checked_add(header.tp_snaplen as usize).filter(|end| *end <= room);
        // SAFETY: this is the frame and the free bytes before it; by the caller's promise no other
        // reference to them exists; the next description begins behind the frame.
        let buffer = unsafe {
            let begin = self.begin(self.current).add(begin + HEADER_LEN);
            std::slice::from_raw_parts_mut(begin, end.unwrap_or(0))
        };
        self.next += header.tp_next_offset as usize;
        self.left -= 1;
        if self.left == 0 {
            self.finish();
        }
        Some(Slot {
            status: header.tp_status,
            len: header.tp_len,
            there: header.tp_snaplen,
            start,
            vlan_control: header.hv1.tp_vlan_tci as u16,
            vlan_protocol: header.hv1.tp_vlan_tpid,
            buffer,
        })
    }

    /// Proceeds to the next block.
    fn finish(&mut self) {
        self.left = 0;
        self.current = (self.current + 1) % self.count;
        self.finished += 1;
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: the word is in the block's description, aligned; only the kernel and this type
        // touch it.
        unsafe { AtomicU32::from_ptr(self.begin(block).add(STATUS).cast()) }
    }

    /// A word of the current block's description; the block belongs to this process.
    fn word(&self, at: usize) -> u32 {
        // SAFETY: the word is in the description, aligned.
        unsafe { self.begin(self.current).add(at).cast::<u32>().read() }
    }

    fn begin(&self, block: usize) -> *mut u8 {
        assert!(block < self.count);
        // SAFETY: the mapping has `count` blocks of this length.
        unsafe { self.memory.as_ptr().add(block * BLOCK_LEN) }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, of this length; no frame of it is lent any more, because
        // frames borrow the ring.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK_LEN * self.count) };
    }
}
