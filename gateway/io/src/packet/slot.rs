//! A received frame as the kernel describes it, and its memory.

use super::finish::{VIRTIO_LEN, VirtioHeader};

/// A received frame, in either kind of ring, that belongs to this process for now.
#[derive(Debug)]
pub(super) struct Slot<'d> {
    pub(super) status: u32,
    /// Length of the frame, and bytes that are there.
    pub(super) len: u32,
    pub(super) there: u32,
    /// Offset of the frame in the buffer.
    pub(super) start: usize,
    pub(super) vlan_control: u16,
    pub(super) vlan_protocol: u16,
    /// Memory of the frame, with the free bytes before it and perhaps after it.
    pub(super) buffer: &'d mut [u8],
}

impl Slot<'_> {
    /// Offsets of the frame's first byte and of its end in the buffer.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        let end = self.start.checked_add(self.there as usize)?;
        (end <= self.buffer.len()).then_some((self.start, end))
    }

    /// Virtio header before the frame at `start`: work that the kernel has left.
    pub(super) fn virtio(&self, start: usize) -> Option<VirtioHeader> {
        self.buffer.get(..start)?.last_chunk::<VIRTIO_LEN>().map(VirtioHeader::read)
    }

    /// True if the frame's end is missing.
    pub(super) fn truncated(&self) -> bool {
        self.len > self.there
    }

    /// True if the whole frame is in the socket's queue, too.
    pub(super) fn copied(&self) -> bool {
        self.has(libc::TP_STATUS_COPY)
    }

    /// Protocol and control of the VLAN tag that the kernel removed, unless it is of VLAN 0.
    pub(super) fn vlan_tag(&self) -> Option<(u16, u16)> {
        const VLAN_NUMBER: u16 = 0x0fff;
        let tagged = self.has(libc::TP_STATUS_VLAN_VALID) && self.vlan_control & VLAN_NUMBER != 0;
        let protocol = match self.has(libc::TP_STATUS_VLAN_TPID_VALID) {
            true => self.vlan_protocol,
            false => natgate_wire::link::ethertype::VLAN,
        };
        tagged.then_some((protocol, self.vlan_control))
    }

    fn has(&self, status: u32) -> bool {
        self.status & status != 0
    }
}
