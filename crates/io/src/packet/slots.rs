//! The memory of a receive ring: slots that belong to the kernel or to us, as their status words
//! say.
//!
//! Slots are filled in order. The kernel does not touch a slot whose status is "ours", nor do we
//! touch another.
#![allow(unsafe_code)]

use super::finish::{VIRTIO_LEN, VirtioHeader};
use super::{Config, socket};
use crate::Error;
use std::mem;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot before its frame: the kernel's header and address, alignment, the headroom, the
/// virtio header. The kernel says where exactly; this is no less.
const BEFORE_FRAME: usize = 192;

const HEADER_LEN: usize = mem::size_of::<libc::tpacket2_hdr>();

#[derive(Debug)]
pub(super) struct Slots {
    memory: NonNull<u8>,
    slot_len: usize,
    count: usize,
}

// SAFETY: the ring's memory belongs to this value alone, whatever thread that is in; neither it nor the
// system asks which.
unsafe impl Send for Slots {}

/// A slot that is ours: what the kernel says about the frame, and the memory that it lies in.
#[derive(Debug)]
pub(super) struct Slot<'d> {
    header: libc::tpacket2_hdr,
    /// What follows the header in the slot.
    pub(super) buffer: &'d mut [u8],
}

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
        Ok(Self { memory, slot_len, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn is_ours(&self, slot: usize) -> bool {
        self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    pub(super) fn give_back(&self, slot: usize) {
        self.status(slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned as the slot is; only the kernel and
        // this type touch it, and no slice that is lent covers it.
        unsafe { AtomicU32::from_ptr(self.begin(slot).cast()) }
    }

    fn begin(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.count);
        // SAFETY: the mapping has `count` slots of `slot_len` bytes.
        unsafe { self.memory.as_ptr().add(slot * self.slot_len) }
    }

    /// A slot's contents.
    ///
    /// # Safety
    /// The slot is ours, and its memory was not lent since it was given to the kernel last. What is
    /// returned must be gone before the slot is given back, and before the ring is.
    pub(super) unsafe fn lend<'d>(&self, slot: usize) -> Slot<'d> {
        let begin = self.begin(slot);
        // SAFETY: a slot begins with this header of integers, which the kernel has filled in.
        let header = unsafe { begin.cast::<libc::tpacket2_hdr>().read() };
        // SAFETY: what follows the header in the slot is ours by the caller's promise, and nobody
        // else has a reference to it.
        let buffer = unsafe {
            std::slice::from_raw_parts_mut(begin.add(HEADER_LEN), self.slot_len - HEADER_LEN)
        };
        Slot { header, buffer }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, of this length; nothing of it is lent any more, because
        // frames borrow the ring.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.slot_len * self.count) };
    }
}

impl Slot<'_> {
    /// Where in the buffer the frame begins and ends.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        let start = usize::from(self.header.tp_mac).checked_sub(HEADER_LEN)?;
        let end = start.checked_add(self.header.tp_snaplen as usize)?;
        (end <= self.buffer.len()).then_some((start, end))
    }

    /// What the kernel left undone in the frame that begins at `start`.
    pub(super) fn virtio(&self, start: usize) -> Option<VirtioHeader> {
        self.buffer.get(..start)?.last_chunk::<VIRTIO_LEN>().map(VirtioHeader::read)
    }

    /// Whether the frame's end is missing.
    pub(super) fn truncated(&self) -> bool {
        self.header.tp_len > self.header.tp_snaplen
    }

    /// Whether the whole frame is in the socket's queue, too.
    pub(super) fn copied(&self) -> bool {
        self.has(libc::TP_STATUS_COPY)
    }

    /// Protocol and control of the VLAN tag that the kernel took off, unless it is of VLAN 0.
    pub(super) fn vlan_tag(&self) -> Option<(u16, u16)> {
        const VLAN_NUMBER: u16 = 0x0fff;
        let control = self.header.tp_vlan_tci;
        let tagged = self.has(libc::TP_STATUS_VLAN_VALID) && control & VLAN_NUMBER != 0;
        let protocol = match self.has(libc::TP_STATUS_VLAN_TPID_VALID) {
            true => self.header.tp_vlan_tpid,
            false => natgate_wire::link::ethertype::VLAN,
        };
        tagged.then_some((protocol, control))
    }

    fn has(&self, status: u32) -> bool {
        self.header.tp_status & status != 0
    }
}
