//! The sending half by a ring that is shared with the kernel (TX_RING): frames are copied into
//! slots and sent by one call without arguments for each.
//!
//! The kernel reads slots in order, and sends the marked ones until it meets one without the mark.
//! A slot is free again when its frame has left: on hardware after the transmission, on a virtual
//! cable when the other end releases the buffer. Usually the kernel leaves a frame's bytes in the
//! slot, except for the headers. Here a virtio header before each frame calls the whole frame a
//! header, so the kernel copies all of it. That is faster, for frames of every length, and no later
//! reader of the frame depends on the slot.
#![allow(unsafe_code)]

use super::finish::VIRTIO_LEN;
use super::transmit::{Counts, Trouble, diagnose};
use super::{Config, socket};
use crate::{BATCH, Error, Frame, LinkInfo, Lost};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Slots of the ring: some batches, and slots that slow hardware returns late.
const SLOTS: usize = 1024;

/// Offset of a slot's contents: behind the kernel's header (TPACKET_V2).
const CONTENTS: usize = std::mem::size_of::<libc::tpacket2_hdr>();
const LENGTH_AT: usize = std::mem::offset_of!(libc::tpacket2_hdr, tp_len);

/// Calls for a frame that the device does not take.
const PATIENCE: usize = 2;

/// A socket that sends by a ring.
#[derive(Debug)]
pub(super) struct Outgoing {
    socket: OwnedFd,
    memory: NonNull<u8>,
    slot_len: usize,
    /// Slot that the kernel reads next.
    next: usize,
    /// Longest packet, without its Ethernet header.
    mtu: usize,
}

// SAFETY: the ring's memory belongs to this value alone, in any thread; neither the memory nor the
// system depends on the thread.
unsafe impl Send for Outgoing {}

impl Outgoing {
    pub(super) fn open(link: &LinkInfo, config: &Config) -> Result<Self, Error> {
        let name = link.name.as_str();
        let socket = socket::open(name)?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket::set(&socket, name, libc::PACKET_VERSION, version, "choosing TPACKET_V2")?;
        let one: libc::c_int = 1;
        socket::set(&socket, name, libc::PACKET_VNET_HDR, one, "asking for virtio headers")?;
        // The kernel skips frames that it refuses all the same.
        socket::set(&socket, name, libc::PACKET_LOSS, one, "setting up the transmit ring")?;
        socket::set_send_buffer(&socket, config.send_buffer_bytes());
        let mtu = link.mtu as usize;
        let longest = CONTENTS + VIRTIO_LEN + ETHERNET_LEN + VLAN_LEN + mtu;
        let slot_len = longest.next_power_of_two().max(2048);
        let block_len = slot_len.max(64 << 10);
        let len = slot_len * SLOTS;
        let request = libc::tpacket_req {
            tp_block_size: block_len as libc::c_uint,
            tp_block_nr: (len / block_len) as libc::c_uint,
            tp_frame_size: slot_len as libc::c_uint,
            tp_frame_nr: SLOTS as libc::c_uint,
        };
        socket::set(&socket, name, libc::PACKET_TX_RING, request, "making the transmit ring")?;
        let memory = socket::map(&socket, len, "mapping the transmit ring", name)?;
        socket::bind(&socket, name, link.index, 0)?;
        Ok(Self { socket, memory, slot_len, next: 0, mtu })
    }

    pub(super) fn transmit(&mut self, frames: &[Frame<'_>], counts: &mut Counts) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut lost = Lost::NONE;
        // Index of the frame in each filled slot.
        let mut placed = arrayvec::ArrayVec::<usize, BATCH>::new();
        for (index, frame) in frames.iter().enumerate() {
            let slot = (self.next + placed.len()) % SLOTS;
            let counter = if !self.fits(frame.bytes()) {
                &mut counts.refused
            } else if self.is_free(slot) {
                self.fill(slot, frame.bytes());
                placed.push(index);
                continue;
            } else {
                &mut counts.full
            };
            *counter += 1;
            lost.mark(index);
        }
        self.flush(&placed, &mut lost, counts);
        lost
    }

    /// Makes the kernel send the slots from `next` on, which hold these frames.
    fn flush(&mut self, placed: &[usize], lost: &mut Lost, counts: &mut Counts) {
        let (mut done, mut patience) = (0, PATIENCE);
        while done < placed.len() {
            let result = self.send();
            let before = done;
            while done < placed.len() && !self.is_waiting(self.next) {
                self.next = (self.next + 1) % SLOTS;
                done += 1;
            }
            counts.sent += (done - before) as u64;
            if done > before {
                patience = PATIENCE;
            }
            let rest = &placed[done..];
            let counter = match result.err().map(|error| diagnose(&error)) {
                _ if rest.is_empty() => return,
                Some(Trouble::Again) => continue,
                Some(Trouble::AllRefused | Trouble::Refused) => &mut counts.refused,
                // The rest is tried again; if that fails, there is no room.
                None | Some(Trouble::Full | Trouble::AllFull) => {
                    patience -= 1;
                    if patience > 0 {
                        continue;
                    }
                    &mut counts.full
                }
            };
            *counter += rest.len() as u64;
            rest.iter().for_each(|index| lost.mark(*index));
            // The kernel has not read these slots, and will read here first.
            for place in 0..rest.len() {
                let slot = (self.next + place) % SLOTS;
                self.status(slot).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
            }
            return;
        }
    }

    /// True if the link takes frames of this length.
    fn fits(&self, frame: &[u8]) -> bool {
        let tagged =
            frame.get(ETHERNET_LEN - 2..ETHERNET_LEN) == Some(&ethertype::VLAN.to_be_bytes()[..]);
        let header = ETHERNET_LEN + if tagged { VLAN_LEN } else { 0 };
        frame.len() >= ETHERNET_LEN && frame.len() <= header + self.mtu
    }

    fn send(&self) -> io::Result<()> {
        let (none, no_address) = (std::ptr::null(), std::ptr::null());
        // SAFETY: nothing is read from the null pointers, since the lengths are zero.
        let sent = unsafe {
            libc::sendto(self.socket.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, no_address, 0)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn is_free(&self, slot: usize) -> bool {
        self.status(slot).load(Ordering::Acquire) == libc::TP_STATUS_AVAILABLE
    }

    fn is_waiting(&self, slot: usize) -> bool {
        self.status(slot).load(Ordering::Acquire) & libc::TP_STATUS_SEND_REQUEST != 0
    }

    /// Puts a frame into a free slot, which it must fit, for the kernel to send.
    fn fill(&mut self, slot: usize, frame: &[u8]) {
        assert!(CONTENTS + VIRTIO_LEN + frame.len() <= self.slot_len);
        let begin = self.begin(slot);
        let mut header = [0; VIRTIO_LEN];
        // The whole frame is header.
        header[2..4].copy_from_slice(&(frame.len() as u16).to_ne_bytes());
        // SAFETY: the slot is free, so it belongs to this process, and is as long as was just
        // asserted; the length's field is aligned as the slot is.
        unsafe {
            begin.add(LENGTH_AT).cast::<u32>().write((VIRTIO_LEN + frame.len()) as u32);
            begin.add(CONTENTS).copy_from_nonoverlapping(header.as_ptr(), VIRTIO_LEN);
            begin.add(CONTENTS + VIRTIO_LEN).copy_from_nonoverlapping(frame.as_ptr(), frame.len());
        }
        self.status(slot).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned as the slot is; only the kernel and
        // this type touch it.
        unsafe { AtomicU32::from_ptr(self.begin(slot).cast()) }
    }

    fn begin(&self, slot: usize) -> *mut u8 {
        assert!(slot < SLOTS);
        // SAFETY: the mapping has `SLOTS` slots of `slot_len` bytes.
        unsafe { self.memory.as_ptr().add(slot * self.slot_len) }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // SAFETY: `open` made this mapping, of this length; nothing of it is lent.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.slot_len * SLOTS) };
    }
}
