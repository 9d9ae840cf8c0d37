//! Virtual network cards: virtio-net over PCI, version 1 (OASIS virtio 1.2).
//!
//! Each direction has one queue, without offloads. The driver announces frames of a batch together.
//! It does not trust the device's writes to the rings: it checks numbers and lengths, and counts
//! and drops everything except single complete frames. A device interrupts only if a frame comes
//! during sleep.

mod queue;
#[cfg(test)]
mod tests;
mod transport;

use crate::alarm::Alarm;
use crate::registers::Registers;
use crate::sharing::{Carrier, Shared, Sharing};
use natgate_io::{BATCH, Batch, Change, Device, Frame, HEADROOM, LinkInfo, Lost};
use natgate_io::{Receive, Statistics, Transmit};
use queue::Queue;
use std::os::fd::BorrowedFd;
use std::time::Duration;
pub use transport::{Place, Places, places};
use transport::{RECEIVE, TRANSMIT, Transport};

/// PCI number of the vendor, and numbers of the network cards. The first number means that the
/// device supports only version 1.
pub const VENDOR: u16 = 0x1af4;
/// See [`VENDOR`]. The second number belongs to devices that also support the interface before
/// version 1.
pub const DEVICES: [u16; 2] = [0x1041, 0x1000];

/// Bytes of the header before each frame. It is for offloads, which are not used.
const HEADER: usize = 12;

/// Longest frame, bytes.
const LONGEST: usize = 1536;

/// Offset of the header in a buffer, so that the frame has headroom.
const START: usize = HEADROOM;

/// Bytes of a buffer.
const BUFFER: usize = (START + HEADER + LONGEST).next_multiple_of(64);

/// Shortest frame: two addresses and a type.
const SHORTEST: usize = 14;

/// Largest payload of a frame, bytes.
const MTU: u32 = 1500;

/// Reason why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device lacks the registers of version 1.
    #[error("the device has no registers of virtio version 1; let its host make it a modern one")]
    NotModern,
    /// The device does not complete its reset.
    #[error("the device does not come back from a reset")]
    Reset,
    /// The device lacks a feature.
    #[error("the device lacks {0}; let its host give it that")]
    Lacks(&'static str),
    /// The device refuses the negotiated features.
    #[error("the device refuses what it has offered itself")]
    Refuses,
}

/// A network card.
#[derive(Debug)]
pub struct Virtio<R> {
    transport: Transport<R>,
    link: LinkInfo,
    incoming: Incoming<R>,
    outgoing: Shared<Outgoing<R>>,
    carrier: Carrier,
    link_losses: u64,
}

impl<R: Registers + 'static> Virtio<R> {
    /// Starts a device. `name` is its name in the configuration. `alarm` controls its interrupts,
    /// if its messages are set up.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(places: Places<R>, name: &str, alarm: Option<Alarm>) -> Result<Self, Error> {
        let mut transport = Transport::start(places)?;
        let alarm = alarm.filter(|_| transport.arrange_interrupts(RECEIVE));
        let receive = Queue::new(transport.queue(RECEIVE)?, BUFFER);
        let transmit = Queue::new(transport.queue(TRANSMIT)?, BUFFER);
        let bells =
            [transport.connect(RECEIVE, &receive)?, transport.connect(TRANSMIT, &transmit)?];
        transport.begin();
        let [receive_bell, transmit_bell] = bells;
        let mut incoming =
            Incoming { queue: receive, bell: receive_bell, alarm, lent: Vec::new(), received: 0 };
        incoming.lent.extend(0..incoming.queue.len());
        incoming.take_back();
        let outgoing = Outgoing { queue: transmit, bell: transmit_bell, sent: 0, full: 0 };
        let (outgoing, carrier) = (Shared::new(outgoing), Carrier::default());
        let (mac, up) = (transport.mac(), transport.is_up());
        let link = LinkInfo { name: name.to_owned(), index: 1, mac, mtu: MTU, up };
        Ok(Self { transport, link, incoming, outgoing, carrier, link_losses: 0 })
    }

    /// Part of the card for further workers.
    pub fn sharing(&self) -> Sharing {
        Sharing::new(&self.link, &self.carrier, &self.outgoing)
    }

    /// Returns true if a frame ends a sleep.
    pub fn interrupts(&self) -> bool {
        self.incoming.alarm.is_some()
    }
}

/// Register with which the driver announces new buffers of a queue.
#[derive(Debug)]
struct Bell<R> {
    registers: R,
    at: u32,
    queue: u16,
}

impl<R: Registers> Bell<R> {
    fn ring(&mut self) {
        self.registers.write16(self.at, self.queue);
    }
}

/// Receiving half of the device.
#[derive(Debug)]
struct Incoming<R> {
    queue: Queue,
    bell: Bell<R>,
    alarm: Option<Alarm>,
    /// Lent buffers, and buffers with invalid frames.
    lent: Vec<usize>,
    received: u64,
}

impl<R: Registers> Incoming<R> {
    /// Returns lent buffers to the device.
    fn take_back(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        for number in self.lent.drain(..) {
            self.queue.give(number, START, HEADER + LONGEST, true);
        }
        self.queue.publish();
        if self.queue.wants_bell() {
            self.bell.ring();
        }
    }
}

impl<R: Registers> Receive for Incoming<R> {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        self.take_back();
        if let Some(alarm) = &self.alarm {
            self.queue.interrupt(alarm.is_set());
        }
        let mut whole = [(0, 0); BATCH];
        let mut count = 0;
        while count < batch.remaining_capacity()
            && self.lent.len() < self.queue.len()
            && let Some((number, written)) = self.queue.take()
        {
            self.lent.push(number);
            if (HEADER + SHORTEST..=HEADER + LONGEST).contains(&written) {
                whole[count] = (number, written);
                count += 1;
            } else {
                self.queue.odd += 1;
            }
        }
        self.received += count as u64;
        let lent = self.queue.buffers.lend(&whole[..count]);
        batch
            .extend(lent.map(|(bytes, written)| Frame::of(bytes, START + HEADER, START + written)));
    }
}

/// Sending half of the device. A frame is copied into a buffer, which belongs to the device until
/// the frame is sent.
#[derive(Debug)]
struct Outgoing<R> {
    queue: Queue,
    bell: Bell<R>,
    sent: u64,
    full: u64,
}

impl<R: Registers> Outgoing<R> {
    /// Puts a frame into the queue; returns false if the frame has an invalid length or the queue
    /// is full.
    fn put(&mut self, frame: &[u8]) -> bool {
        if !(SHORTEST..=LONGEST).contains(&frame.len()) {
            return false;
        }
        let Some(number) = self.queue.free.pop() else { return false };
        let bytes = self.queue.buffers.bytes_mut(number);
        bytes[START..START + HEADER].fill(0);
        bytes[START + HEADER..][..frame.len()].copy_from_slice(frame);
        self.queue.give(number, START, HEADER + frame.len(), false);
        true
    }
}

impl<R: Registers> Transmit for Outgoing<R> {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        assert!(frames.len() <= BATCH);
        while let Some((number, _)) = self.queue.take() {
            self.queue.free.push(number);
        }
        let mut lost = Lost::NONE;
        for (number, frame) in frames.iter().enumerate() {
            if !self.put(frame.bytes()) {
                lost.mark(number);
            }
        }
        let refused = u64::from(lost.count());
        self.full += refused;
        self.sent += frames.len() as u64 - refused;
        if refused < frames.len() as u64 {
            self.queue.publish();
            if self.queue.wants_bell() {
                self.bell.ring();
            }
        }
        lost
    }
}

impl<R: Registers + 'static> Device for Virtio<R> {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.incoming, &mut self.outgoing)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        let Outgoing { sent: transmitted, full: transmit_full, .. } = *self.outgoing.lock();
        Statistics {
            received: self.incoming.received,
            receive_oversize: self.incoming.queue.odd,
            transmitted,
            transmit_full,
            link_losses: self.link_losses,
            ..Statistics::default()
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        let up = self.transport.is_up();
        self.carrier.set(up);
        self.link.set_up(up, &mut self.link_losses)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}
