//! A queue of a port, as a device.
//!
//! Each received frame lies in a buffer of DPDK (an mbuf); the lease holds its address. A buffer
//! belongs to exactly one of: the pool, a driver, a lease. `receive` moves a buffer from the driver
//! to a lease, and from a lease that was not taken over to the pool. `transmit` takes a buffer over
//! from the lease of any port, and gives it to its own driver.
#![allow(unsafe_code)]

use crate::eal::{Buffers, Eal};
use crate::port::Port;
use crate::sys::{self, FrameDescriptor, Mbuf, NotSent, Refused};
use crate::{Error, POLL_INTERVAL};
use natgate_io::{
    BATCH, Batch, Change, Device, Frame, HEADROOM, Lease, LinkInfo, Lost, Receive, Statistics,
    Transmit,
};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

// Constants on which shim.c relies.
const _: () = assert!(BATCH == 64 && HEADROOM == 64);

/// Bytes of an Ethernet header and a VLAN tag, which do not count as part of a packet.
const ETHERNET: u32 = 14 + 4;

/// A queue of a DPDK port.
#[derive(Debug)]
pub struct DpdkDevice {
    link: LinkInfo,
    link_losses: u64,
    receiver: Receiver,
    transmitter: Transmitter,
    /// The field is last, so that the port is closed after its buffers have been released.
    queue: Queue,
}

/// Port and number of a queue.
#[derive(Clone, Debug)]
struct Queue {
    port: Arc<Port>,
    number: u16,
    buffers: Buffers,
}

impl Eal {
    /// Opens a port for packets of up to `mtu` bytes, with a device for each of `queues` queues.
    /// `device` is the name of a port, or a virtual device to be made: its name, which begins with
    /// the driver's name, and its arguments, as after DPDK's `--vdev`.
    ///
    /// # Errors
    /// [`Error`] if there is no such port, it lacks a capability, or is open already.
    pub fn open(self, device: &str, mtu: u16, queues: u16) -> Result<Vec<DpdkDevice>, Error> {
        let port = Arc::new(Port::open(device, mtu, queues, self.pool)?);
        let queues = 0..queues;
        queues.map(|queue| DpdkDevice::new(Arc::clone(&port), queue, self.pool)).collect()
    }
}

impl DpdkDevice {
    fn new(port: Arc<Port>, number: u16, buffers: Buffers) -> Result<Self, Error> {
        let link = port.link()?;
        let queue = Queue { port, number, buffers };
        let receiver = Receiver::new(queue.clone(), link.mtu + ETHERNET);
        let transmitter = Transmitter::new(queue.clone(), link.up);
        Ok(Self { link, link_losses: 0, receiver, transmitter, queue })
    }
}

impl Device for DpdkDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.receiver, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        let (receiver, transmitter) = (&self.receiver, &self.transmitter);
        let mut statistics = Statistics {
            received: receiver.received,
            transmitted: transmitter.sent,
            receive_overrun: receiver.refused.memory,
            receive_no_buffer: receiver.refused.memory,
            receive_oversize: receiver.refused.oversize,
            receive_unfinished: receiver.refused.unfinished,
            transmit_full: transmitter.full,
            transmit_refused: transmitter.refused,
            link_losses: self.link_losses,
        };
        // The first queue's device reports the counters that the port has for all queues.
        if self.queue.number == 0 {
            let port = self.queue.port.statistics();
            statistics.receive_overrun += port.missed + port.no_buffer;
            statistics.receive_no_buffer += port.no_buffer;
            // Some drivers count frames that they did not accept among those that they failed to
            // send.
            let failed = port.transmit_errors.saturating_sub(transmitter.full);
            statistics.transmit_refused += failed;
            statistics.transmitted = statistics.transmitted.saturating_sub(failed);
        }
        statistics
    }

    fn maintain(&mut self) -> Option<Change> {
        // A port that does not answer counts as one without a link.
        let now = self.queue.port.link().unwrap_or(LinkInfo { up: false, ..self.link.clone() });
        let change = self.link.renew(now, &mut self.link_losses);
        self.transmitter.up = self.link.up;
        change
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(POLL_INTERVAL)
    }
}

/// The receive half.
#[derive(Debug)]
struct Receiver {
    /// For each frame of a batch, its buffer.
    leases: Box<[Lease; BATCH]>,
    /// Number of leases in use.
    lent: usize,
    descriptors: Box<Descriptors>,
    /// Longest frame that is returned, bytes.
    longest: u32,
    received: u64,
    refused: Refused,
    queue: Queue,
}

#[derive(Debug)]
struct Descriptors([FrameDescriptor; BATCH]);

// SAFETY: the addresses in the descriptors have no meaning between two calls.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn new() -> Box<Self> {
        Box::new(Self([FrameDescriptor::EMPTY; BATCH]))
    }
}

impl Receiver {
    fn new(queue: Queue, longest: u32) -> Self {
        let leases = Box::new(std::array::from_fn(|_| Lease::new(queue.buffers.pool)));
        let descriptors = Descriptors::new();
        let refused = Refused::default();
        Self { leases, lent: 0, descriptors, longest, received: 0, refused, queue }
    }

    /// Returns lent buffers that were not taken over to the pool.
    fn release(&mut self) {
        let mut mbufs = [std::ptr::null_mut(); BATCH];
        let mut count = 0;
        for lease in &mut self.leases[..self.lent] {
            if let Some(buffer) = lease.end() {
                mbufs[count] = std::ptr::with_exposed_provenance_mut(buffer.get());
                count += 1;
            }
        }
        self.lent = 0;
        if count > 0 {
            // SAFETY: these mbufs belonged to the leases, and no reference to their frames exists
            // any more, because frames borrowed this receiver.
            unsafe { sys::natgate_dpdk_release(mbufs.as_mut_ptr(), count as u32) };
        }
    }

    /// Receives at most `most` frames.
    fn burst(&mut self, most: usize) -> usize {
        let (port, queue) = (self.queue.port.id, self.queue.number);
        let frames = self.descriptors.0.as_mut_ptr();
        let count = most.min(BATCH) as u16;
        // SAFETY: the port is open, and only this receiver receives by this queue; as many
        // descriptors as are asked for can be filled in.
        let count = unsafe {
            let pool = self.queue.buffers.memory.as_ptr();
            let refused = &mut self.refused;
            sys::natgate_dpdk_receive(port, queue, pool, self.longest, frames, count, refused)
        };
        count.into()
    }
}

impl Receive for Receiver {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        self.release();
        self.lent = self.burst(batch.remaining_capacity());
        self.received += self.lent as u64;
        let descriptors = &self.descriptors.0[..self.lent];
        for (lease, descriptor) in self.leases.iter_mut().zip(descriptors) {
            if let Some(buffer) = NonZeroUsize::new(descriptor.mbuf.expose_provenance()) {
                lease.lend(buffer);
            }
        }
        batch.extend(descriptors.iter().zip(self.leases.iter()).map(|(descriptor, lease)| {
            // SAFETY: the mbuf belongs to the lease now, so no other reference to its buffer exists
            // until the frame is gone: the frame ends with the borrow of this receiver, or by a
            // take-over.
            let buffer = unsafe {
                std::slice::from_raw_parts_mut(descriptor.bytes, descriptor.room as usize)
            };
            let (start, len) = (descriptor.start as usize, descriptor.len as usize);
            Frame::leased(buffer, start, start + len, lease)
        }));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
    }
}

/// The transmit half.
#[derive(Debug)]
struct Transmitter {
    descriptors: Box<Descriptors>,
    up: bool,
    sent: u64,
    full: u64,
    refused: u64,
    queue: Queue,
}

impl Transmitter {
    fn new(queue: Queue, up: bool) -> Self {
        Self { descriptors: Descriptors::new(), up, sent: 0, full: 0, refused: 0, queue }
    }

    /// Describes a frame for the shim; takes its buffer over if it belongs to this pool.
    fn describe(&self, frame: &mut Frame<'_>) -> FrameDescriptor {
        let len = frame.len() as u32;
        match frame.take_over(self.queue.buffers.pool) {
            Some(taken) => {
                let mbuf: *mut Mbuf = std::ptr::with_exposed_provenance_mut(taken.buffer.get());
                FrameDescriptor { mbuf, start: taken.start as u32, len, ..FrameDescriptor::EMPTY }
            }
            None => {
                let bytes = frame.bytes_mut().as_mut_ptr();
                FrameDescriptor { bytes, len, ..FrameDescriptor::EMPTY }
            }
        }
    }
}

impl Transmit for Transmitter {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut lost = Lost::NONE;
        if !self.up {
            self.refused += frames.len() as u64;
            (0..frames.len()).for_each(|index| lost.mark(index));
            return lost;
        }
        for (index, frame) in frames.iter_mut().enumerate() {
            self.descriptors.0[index] = self.describe(frame);
        }
        let mut not_sent = NotSent::default();
        let (port, queue, buffers) = (self.queue.port.id, self.queue.number, self.queue.buffers);
        // SAFETY: the port is open, and only this transmitter sends by this queue. Each descriptor
        // holds an mbuf that was taken over and so belongs to this call, or bytes that `frames`
        // holds during the call.
        unsafe {
            sys::natgate_dpdk_transmit(
                port,
                queue,
                buffers.memory.as_ptr(),
                buffers.room,
                self.descriptors.0.as_ptr(),
                frames.len() as u16,
                &mut not_sent,
            );
        }
        let (full, refused) = (not_sent.full.count_ones(), not_sent.refused.count_ones());
        self.full += u64::from(full);
        self.refused += u64::from(refused);
        self.sent += frames.len() as u64 - u64::from(full + refused);
        let all = not_sent.full | not_sent.refused;
        if all != 0 {
            (0..frames.len()).filter(|index| all >> index & 1 == 1).for_each(|i| lost.mark(i));
        }
        lost
    }
}
