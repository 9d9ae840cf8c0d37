//! The receiving half: frames are lent from where the kernel has put them.
//!
//! A queue has a fill ring, by which the kernel gets empty chunks, and a receive ring, by which the
//! kernel gives them back with frames. `receive` lends frames out; the next `receive` takes the
//! chunks back, unless they were given to a sender.

use super::area::{Area, Chunks, Holder};
use super::ring::{Consumer, Producer};
use super::socket;
use crate::{BATCH, Batch, Frame, HEADROOM};
use arrayvec::ArrayVec;
use natgate_wire::link::ETHERNET_LEN;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames counted on the way in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) oversize: u64,
}

/// One queue's receiving rings.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) holder: Holder,
    pub(super) fill: Producer<u64>,
    pub(super) filled: Consumer<libc::xdp_desc>,
    /// Chunks in the two rings.
    pub(super) held: u32,
    /// Number of chunks that should be there.
    pub(super) target: u32,
}

/// The queues of a device that is there.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) area: Arc<Area>,
    pub(super) queues: Vec<Queue>,
    /// Longest frame of the link, bytes.
    pub(super) longest: usize,
    lent: ArrayVec<u32, BATCH>,
    /// Queue to read first.
    first: usize,
}

impl Receiver {
    pub(super) fn new(area: Arc<Area>, queues: Vec<Queue>, longest: usize) -> Self {
        let mut receiver = Self { area, queues, longest, lent: ArrayVec::new(), first: 0 };
        let mut chunks = receiver.area.chunks();
        receiver.queues.iter_mut().for_each(|queue| queue.refill(&mut chunks));
        drop(chunks);
        receiver
    }

    pub(super) fn receive<'d>(&'d mut self, batch: &mut Batch<'d>, counts: &mut Counts) {
        let Self { area, queues, longest, lent, first } = self;
        let mut chunks = area.chunks();
        for chunk in lent.drain(..) {
            chunks.take_back(chunk);
        }
        let before = batch.len();
        for turn in 0..queues.len() {
            let queue = (*first + turn) % queues.len();
            queues[queue].receive(area, &mut chunks, *longest, lent, batch, counts);
        }
        // The next call begins with the next queue, so that no queue waits for ever.
        *first = (*first + 1) % queues.len().max(1);
        counts.received += (batch.len() - before) as u64;
    }

    /// Gives back the lent chunks and those of the kernel. Call it before the sockets are closed
    /// for good.
    pub(super) fn close(mut self) {
        let queues = std::mem::take(&mut self.queues);
        let holders: Vec<_> = queues.iter().map(|queue| queue.holder).collect();
        drop(queues);
        let mut chunks = self.area.chunks();
        for chunk in self.lent.drain(..) {
            chunks.take_back(chunk);
        }
        holders.into_iter().for_each(|holder| chunks.release_all(holder));
    }
}

impl Queue {
    fn receive<'d>(
        &mut self,
        area: &Area,
        chunks: &mut Chunks,
        longest: usize,
        lent: &mut ArrayVec<u32, BATCH>,
        batch: &mut Batch<'d>,
        counts: &mut Counts,
    ) {
        let room = batch.remaining_capacity().min(lent.remaining_capacity());
        let count = self.filled.waiting().min(room as u32);
        for _ in 0..count {
            let descriptor = self.filled.take();
            let (chunk, len) = (chunks.at(descriptor.addr), descriptor.len as usize);
            let start = (descriptor.addr - chunks.begin(chunk)) as usize;
            if !chunks.lend(chunk, self.holder) {
                continue;
            }
            self.held -= 1;
            lent.push(chunk);
            let fits = HEADROOM <= start && start + len <= area.chunk_len();
            if len > longest || len < ETHERNET_LEN || !fits {
                counts.oversize += 1;
                continue;
            }
            // SAFETY: the chunk is lent and the kernel does not have it; the device stays borrowed
            // for as long as the frame lives.
            #[allow(unsafe_code)]
            let memory = unsafe { area.lend(chunk) };
            batch.push(Frame::of(memory, start, start + len));
        }
        if count > 0 {
            self.filled.release();
        }
        self.refill(chunks);
    }

    /// Gives the kernel the empty chunks that it lacks.
    pub(super) fn refill(&mut self, chunks: &mut Chunks) {
        let lack = self.target.saturating_sub(self.held).min(self.fill.room());
        for _ in 0..lack {
            let Some(chunk) = chunks.take(self.holder) else { break };
            self.fill.put(chunks.begin(chunk));
            self.held += 1;
        }
        if lack > 0 {
            self.fill.publish();
        }
        if self.fill.needs_wakeup() {
            socket::wake_receiver(&self.socket);
        }
    }
}
