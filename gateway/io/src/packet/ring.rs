//! The receiving half: a ring in memory that is shared with the kernel, of slots or of blocks.
//!
//! `receive` lends filled entries out as frames; the next `receive` gives them back. A merged frame
//! is cut into memory of this process. If such a frame does not fit its slot, the kernel has put
//! all of it into the socket's queue beside the ring.

use super::blocks::Blocks;
use super::config::{Config, Mode};
use super::finish::{VIRTIO_LEN, insert_vlan_tag};
use super::segment::{self, Merged};
use super::slot::Slot;
use super::slots::Slots;
use super::socket;
use crate::{BATCH, Batch, Error, Frame, HEADROOM, LinkInfo};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes that merged frames may take beside the ring.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;

/// Frames counted on the way in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) oversize: u64,
    pub(super) unfinished: u64,
}

#[derive(Debug)]
pub(super) struct Ring {
    socket: OwnedFd,
    store: Store,
    /// Longest frame of the link, bytes.
    longest: usize,
    merged: Merged,
    /// Memory for segments of merged frames, one batch.
    segments: Vec<u8>,
}

/// The shared memory.
#[derive(Debug)]
enum Store {
    Slots(Slots),
    Blocks(Blocks),
}

impl Ring {
    pub(super) fn open(link: &LinkInfo, config: &Config) -> Result<Self, Error> {
        let ring = Self::unbound(link, config)?;
        // The socket is bound last: frames come in from now on.
        socket::bind(&ring.socket, &link.name, link.index, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    /// Opens a bound ring whose socket refuses all frames for now.
    pub(super) fn open_shut(link: &LinkInfo, config: &Config) -> Result<Self, Error> {
        let ring = Self::unbound(link, config)?;
        socket::shut(&ring.socket, &link.name)?;
        socket::bind(&ring.socket, &link.name, link.index, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    fn unbound(link: &LinkInfo, config: &Config) -> Result<Self, Error> {
        let name = link.name.as_str();
        let socket = socket::open(name)?;
        let (version, what) = match config.mode {
            Mode::Latency => (libc::tpacket_versions::TPACKET_V2, "choosing TPACKET_V2"),
            Mode::Rate => (libc::tpacket_versions::TPACKET_V3, "choosing TPACKET_V3"),
        };
        socket::set(&socket, name, libc::PACKET_VERSION, version as libc::c_int, what)?;
        let one: libc::c_int = 1;
        socket::set(&socket, name, libc::PACKET_VNET_HDR, one, "asking for virtio headers")?;
        let reserve = HEADROOM as libc::c_uint;
        socket::set(&socket, name, libc::PACKET_RESERVE, reserve, "reserving headroom")?;
        let ignore = "ignoring outgoing frames (Linux 4.20 or later)";
        socket::set(&socket, name, libc::PACKET_IGNORE_OUTGOING, one, ignore)?;
        socket::set(&socket, name, libc::PACKET_COPY_THRESH, one, "asking for long frames")?;
        socket::set_receive_buffer(&socket, RECEIVE_BUFFER);
        let longest = link.mtu as usize + ETHERNET_LEN + VLAN_LEN;
        let store = match config.mode {
            Mode::Latency => Store::Slots(Slots::map(&socket, name, longest, config)?),
            Mode::Rate => Store::Blocks(Blocks::map(&socket, name, config)?),
        };
        let segments = vec![0; BATCH * (HEADROOM + longest)];
        let merged = Merged::default();
        Ok(Self { socket, store, longest, merged, segments })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if the device of the socket still exists.
    pub(super) fn attached(&self) -> bool {
        socket::bound_index(&self.socket).is_some()
    }

    /// Takes the pending error; returns true if there was one: the device was down, if only for a
    /// moment.
    pub(super) fn take_error(&self) -> bool {
        socket::take_error(&self.socket) != 0
    }

    /// Number of frames that found no free slot since the last call.
    pub(super) fn take_overruns(&self) -> u64 {
        socket::take_drops(&self.socket)
    }

    pub(super) fn receive<'d>(&'d mut self, batch: &mut Batch<'d>, counts: &mut Counts) {
        let Self { socket, store, longest, merged, segments } = self;
        match store {
            Store::Slots(slots) => slots.give_back(),
            Store::Blocks(blocks) => blocks.give_back(),
        }
        let before = batch.len();
        let mut room = segments.chunks_exact_mut(HEADROOM + *longest);
        while !batch.is_full() {
            if merged.is_busy() {
                batch.extend(next_segment(merged, &mut room));
                continue;
            }
            // SAFETY: frames lent before were given back above, when no reference to them could
            // exist; `self` stays borrowed for as long as the frame lives.
            #[allow(unsafe_code)]
            let slot = unsafe {
                match store {
                    Store::Slots(slots) => slots.next(),
                    Store::Blocks(blocks) => blocks.next(),
                }
            };
            let Some(slot) = slot else { break };
            batch.extend(take(slot, socket, *longest, merged, counts));
        }
        counts.received += (batch.len() - before) as u64;
    }
}

/// Next segment of a merged frame, in memory of its own.
fn next_segment<'d>(
    merged: &mut Merged,
    room: &mut impl Iterator<Item = &'d mut [u8]>,
) -> Option<Frame<'d>> {
    // There is memory for as many segments as a batch holds.
    let memory = room.next()?;
    let len = merged.write_next(&mut memory[HEADROOM..])?;
    Some(Frame::of(memory, HEADROOM, HEADROOM + len))
}

/// Takes the frame of a slot and finishes it. Returns `None` if the frame is merged and was left to
/// `merged`, or was refused and counted.
fn take<'d>(
    slot: Slot<'d>,
    socket: &OwnedFd,
    longest: usize,
    merged: &mut Merged,
    counts: &mut Counts,
) -> Option<Frame<'d>> {
    let (start, end) = slot.range()?;
    let virtio = slot.virtio(start)?;
    if slot.copied() || slot.truncated() || virtio.merged() {
        let usable = take_whole(&slot, start, end, socket, &mut merged.frame)
            && virtio.merged()
            && slot.vlan_tag().is_none()
            && merged.begin(virtio, longest);
        counts.oversize += u64::from(!usable);
        return None;
    }
    let tag = slot.vlan_tag().filter(|_| end - start >= ETHERNET_LEN);
    let buffer = slot.buffer;
    if !virtio.finish_checksum(&mut buffer[start..end]) {
        counts.unfinished += 1;
        return None;
    }
    let Some((protocol, control)) = tag else { return Some(Frame::of(buffer, start, end)) };
    let start = start - VLAN_LEN;
    insert_vlan_tag(&mut buffer[start..end], protocol, control);
    Some(Frame::of(buffer, start, end))
}

/// Copies a frame that may be longer than its slot; returns true if all of it was there.
fn take_whole(
    slot: &Slot<'_>,
    start: usize,
    end: usize,
    socket: &OwnedFd,
    whole: &mut Vec<u8>,
) -> bool {
    whole.clear();
    if slot.copied() {
        whole.resize(VIRTIO_LEN + segment::LONGEST, 0);
        let len = socket::receive(socket, whole).unwrap_or(0);
        whole.truncate(len);
        whole.drain(..VIRTIO_LEN.min(len));
    } else {
        whole.extend_from_slice(&slot.buffer[start..end]);
    }
    slot.copied() || !slot.truncated()
}
