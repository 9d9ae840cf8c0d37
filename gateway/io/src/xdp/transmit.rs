//! The sending half: frames in the shared area are handed over without a copy, others are copied
//! into the area.
//!
//! Frames in the transmit ring are on their way; the completion ring returns free chunks. A driver
//! that copies sends only during a call. So the kernel is called until it has taken every frame,
//! and reports single frames for which the device had no room.

use super::area::{Area, Chunks, Holder};
use super::ring::{Consumer, Producer};
use super::socket;
use crate::{BATCH, Frame, Lost};
use arrayvec::ArrayVec;
use natgate_wire::link::ETHERNET_LEN;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Calls for a batch that the kernel does not take; the rest goes with the next batch.
const PATIENCE: usize = 4;

/// Frames counted on the way out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    /// Part of the sent frames that was handed over without a copy.
    pub(super) handed_over: u64,
    pub(super) full: u64,
    pub(super) refused: u64,
}

/// The sending rings of a device that is there.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) area: Arc<Area>,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) holder: Holder,
    pub(super) ring: Producer<libc::xdp_desc>,
    pub(super) completed: Consumer<u64>,
    /// Frames whose chunks have not come back.
    pub(super) under_way: u32,
    /// Entries of either ring.
    pub(super) size: u32,
    /// Longest frame of the link, bytes.
    pub(super) longest: usize,
    pub(super) zero_copy: bool,
}

impl Sender {
    pub(super) fn transmit(&mut self, frames: &[Frame<'_>], counts: &mut Counts) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut lost = Lost::NONE;
        // Frames that are in the ring, in order.
        let mut placed = ArrayVec::<usize, BATCH>::new();
        let area = Arc::clone(&self.area);
        let mut chunks = area.chunks();
        self.take_completed(&mut chunks);
        let mut room = self.ring.room().min(self.size - self.under_way);
        for (index, frame) in frames.iter().enumerate() {
            if !(ETHERNET_LEN..=self.longest).contains(&frame.len()) {
                counts.refused += 1;
                lost.mark(index);
                continue;
            }
            let place = if room == 0 { None } else { self.place(&area, &mut chunks, frame) };
            let Some((offset, handed_over)) = place else {
                counts.full += 1;
                lost.mark(index);
                continue;
            };
            self.ring.put(libc::xdp_desc { addr: offset, len: frame.len() as u32, options: 0 });
            room -= 1;
            self.under_way += 1;
            counts.handed_over += u64::from(handed_over);
            placed.push(index);
        }
        drop(chunks);
        counts.sent += placed.len() as u64;
        if !placed.is_empty() {
            self.ring.publish();
            self.flush(&placed, &mut lost, counts);
        }
        lost
    }

    /// Offset of the frame in the area, and true if the frame was not copied there.
    fn place(&self, area: &Area, chunks: &mut Chunks, frame: &Frame<'_>) -> Option<(u64, bool)> {
        let bytes = frame.bytes();
        if let Some(offset) = area.offset_of(bytes)
            && chunks.share(chunks.at(offset), self.holder)
        {
            return Some((offset, true));
        }
        let chunk = chunks.take(self.holder)?;
        // SAFETY: the chunk was free and now belongs to the sender, so no other reference to it
        // exists; this reference ends before the kernel learns of the chunk.
        #[allow(unsafe_code)]
        let memory = unsafe { area.lend(chunk) };
        memory[..bytes.len()].copy_from_slice(bytes);
        Some((chunks.begin(chunk), false))
    }

    /// Frees the chunks of what has been sent.
    fn take_completed(&mut self, chunks: &mut Chunks) {
        let count = self.completed.waiting();
        for _ in 0..count {
            let offset = self.completed.take();
            chunks.release(chunks.at(offset), self.holder);
        }
        if count > 0 {
            self.completed.release();
            self.under_way -= count;
        }
    }

    /// Makes the kernel send the entries of the ring, after a time in which it could not.
    pub(super) fn push(&mut self, counts: &mut Counts) {
        let area = Arc::clone(&self.area);
        self.take_completed(&mut area.chunks());
        if self.ring.next() != self.ring.taken() {
            let mut lost = Lost::NONE;
            self.flush(&[], &mut lost, counts);
        }
    }

    /// Makes the kernel send the entries of the ring; the latest entries are the frames `placed`.
    fn flush(&mut self, placed: &[usize], lost: &mut Lost, counts: &mut Counts) {
        if !self.ring.needs_wakeup() {
            return;
        }
        let begin = self.ring.next().wrapping_sub(placed.len() as u32);
        // Position of the entry that the kernel reads next. The kernel's published position may lag
        // behind.
        let mut position = self.ring.taken();
        let mut patience = PATIENCE;
        for _ in 0..self.size {
            let Err(error) = socket::send(&self.socket) else { break };
            let taken = self.ring.taken();
            let moved = taken.wrapping_sub(position) as i32 > 0;
            if moved {
                position = taken;
            }
            match error.raw_os_error() {
                Some(libc::EBUSY) if !self.zero_copy => {
                    // The last entry that the kernel took found the device's queue full.
                    if !moved {
                        position = position.wrapping_add(1);
                    }
                    let entry = position.wrapping_sub(1).wrapping_sub(begin) as usize;
                    placed.get(entry).into_iter().for_each(|index| lost.mark(*index));
                    counts.full += 1;
                    counts.sent -= 1;
                    if position == self.ring.next() {
                        break;
                    }
                }
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) if !self.zero_copy => {
                    patience = if moved { PATIENCE } else { patience - 1 };
                    if patience == 0 {
                        break;
                    }
                }
                // The link is down or gone, which `maintain` sees; or the driver is busy sending.
                _ => break,
            }
        }
    }

    /// Gives back the chunks of the kernel.
    pub(super) fn close(self) {
        let Self { area, holder, socket, ring, completed, .. } = self;
        drop((socket, ring, completed));
        area.chunks().release_all(holder);
    }
}
