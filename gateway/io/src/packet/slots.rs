//! A receive ring of slots, one frame each (TPACKET_V2): a slot belongs to the kernel or to this
//! process, as its status word says.
//!
//! Slots are filled in order. The kernel does not touch a slot of this process, and this process
//! touches no other slot.
#![allow(unsafe_code)]

use super::slot::Slot;
use super::{Config, socket};
use crate::{BATCH, Error};
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot before its frame: the kernel's header and address, alignment, the headroom, the
/// virtio header. The kernel gives the exact offset; it is no larger.
const BEFORE_FRAME: usize = 192;

const HEADER_LEN: usize = mem::size_of::<libc::tpacket2_hdr>();

#[derive(Debug)]
pub(super) struct Slots {
    memory: NonNull<u8>,
    slot_len: usize,
    count: usize,
    /// Slot that the kernel fills next, as far as known.
    head: usize,
    /// Slots before `head` that are lent out.
    lent: usize,
}

// SAFETY: the ring's memory belongs to this value alone, in any thread; neither the memory nor the
// system depends on the thread.
unsafe impl Send for Slots {}

impl Slots {
    /// Makes the ring of a socket, for frames of up to `longest` bytes, and maps it.
    pub(super) fn map(
        socket: &OwnedFd,
        device: &str,
        longest: usize,
        config: &Config,
    ) -> Result<Self, Error> {
        let slot_len = (BEFORE_FRAME + longest).next_power_of_two().max(2048);
        let count = config.ring_slots(slot_len);
        // Slots are powers of two, so they fill their blocks and follow each other without gaps.
        let block_len = slot_len.max(64 << 10);
        let len = slot_len * count;
        let request = libc::tpacket_req {
            tp_block_size: block_len as libc::c_uint,
            tp_block_nr: (len / block_len) as libc::c_uint,
            tp_frame_size: slot_len as libc::c_uint,
            tp_frame_nr: count as libc::c_uint,
        };
        let what = "making the receive ring";
        socket::set(socket, device, libc::PACKET_RX_RING, request, what)?;
        let memory = socket::map(socket, len, "mapping the receive ring", device)?;
        Ok(Self { memory, slot_len, count, head: 0, lent: 0 })
    }

    /// Gives back the slots that were lent.
    pub(super) fn give_back(&mut self) {
        for back in (1..=mem::take(&mut self.lent)).rev() {
            let slot = (self.head + self.count - back) % self.count;
            self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    /// Returns the next slot, at most one batch of slots in all.
    ///
    /// # Safety
    /// Slots returned before the latest [`Self::give_back`] no longer exist. The returned slot must
    /// be dropped before the next call of it, and before the ring.
    pub(super) unsafe fn next<'d>(&mut self) -> Option<Slot<'d>> {
        let ours = self.status(self.head).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        if self.lent == BATCH || !ours {
            return None;
        }
        // SAFETY: the slot belongs to this process, and was not lent since it was given to the
        // kernel: there are more slots than a batch has frames. The caller promises the rest.
        let slot = unsafe { self.lend(self.head) };
        self.head = (self.head + 1) % self.count;
        // A slot without a usable frame is given back with the others, so that the order stays.
        self.lent += 1;
        Some(slot)
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned as the slot is; only the kernel and
        // this type touch it, and no lent slice covers it.
        unsafe { AtomicU32::from_ptr(self.begin(slot).cast()) }
    }

    fn begin(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.count);
        // SAFETY: the mapping has `count` slots of `slot_len` bytes.
        unsafe { self.memory.as_ptr().add(slot * self.slot_len) }
    }

    /// Lends the contents of a slot.
    ///
    /// # Safety
    /// The slot belongs to this process, and its memory was not lent since the slot was last given
    /// to the kernel. The returned value must be dropped before the slot is given back, and before
    /// the ring.
    unsafe fn lend<'d>(&self, slot: usize) -> Slot<'d> {
        let begin = self.begin(slot);
        // SAFETY: a slot begins with this header of integers, which the kernel has filled in.
        let header = unsafe { begin.cast::<libc::tpacket2_hdr>().read() };
        // SAFETY: the bytes behind the header belong to this process by the caller's promise, and
        // no other reference to them exists.
        let buffer = unsafe {
            std::slice::from_raw_parts_mut(begin.add(HEADER_LEN), self.slot_len - HEADER_LEN)
        };
        Slot {
            status: header.tp_status,
            len: header.tp_len,
            there: header.tp_snaplen,
            // The offset of a frame that begins before the buffer is out of range.
            start: usize::from(header.tp_mac).checked_sub(HEADER_LEN).unwrap_or(usize::MAX),
            vlan_control: header.tp_vlan_tci,
            vlan_protocol: header.tp_vlan_tpid,
            buffer,
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, of this length; no slot of it is lent any more, because
        // frames borrow the ring.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.slot_len * self.count) };
    }
}
