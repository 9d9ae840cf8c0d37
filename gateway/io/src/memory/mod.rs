//! A back end without a network: two devices with queues between them, for tests and simulations.
//!
//! [`pair`] makes a [`MemoryDevice`], which a gateway uses, and a [`Wire`], the test's end of the
//! cable. Both queues are bounded, so that full queues can be tested too. [`group`] makes several
//! devices at one end, for several workers.

use crate::{BATCH, Batch, Change, Device, Frame, HEADROOM, LinkInfo, Lost};
use crate::{Receive, Statistics, Transmit};
use natgate_wire::arp::Mac;
use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// MTU of new links, bytes.
const MTU: u32 = 1500;

/// Most frames that wait in a queue.
pub const QUEUE: usize = 1024;

#[derive(Debug)]
struct Queues {
    /// One queue for each device.
    to_device: Vec<VecDeque<Vec<u8>>>,
    from_device: VecDeque<Vec<u8>>,
    up: bool,
    mtu: u32,
}

/// Locks the queues. They are consistent even after a panic, so poisoning is ignored.
fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that a gateway uses.
#[derive(Debug)]
pub struct MemoryDevice {
    link: LinkInfo,
    receiver: Receiver,
    transmitter: Transmitter,
    link_losses: u64,
}

/// The test's end of a [`MemoryDevice`], or of several.
#[derive(Clone)]
pub struct Wire {
    queues: Arc<Mutex<Queues>>,
    choose: Arc<Choose>,
}

/// Choice of the device that a frame comes to; an invalid index means the first device.
type Choose = dyn Fn(&[u8]) -> usize + Send + Sync;

impl Debug for Wire {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wire").field(&self.queues).finish()
    }
}

/// Creates a device of this name and hardware address, and the other end of its cable. The link is
/// up.
pub fn pair(name: &str, mac: Mac) -> (MemoryDevice, Wire) {
    let (mut devices, wire) = group(name, mac, 1, |_| 0);
    (devices.remove(0), wire)
}

/// Creates `count` devices at one end of a cable, as several workers have, and its other end.
/// `choose` returns the index of the device that a frame comes to.
pub fn group(
    name: &str,
    mac: Mac,
    count: usize,
    choose: impl Fn(&[u8]) -> usize + Send + Sync + 'static,
) -> (Vec<MemoryDevice>, Wire) {
    let queues = Queues {
        to_device: vec![VecDeque::new(); count],
        from_device: VecDeque::new(),
        up: true,
        mtu: MTU,
    };
    let queues = Arc::new(Mutex::new(queues));
    let device = |number| MemoryDevice {
        link: LinkInfo { name: name.to_owned(), index: 1, mac, mtu: MTU, up: true },
        receiver: Receiver { queues: queues.clone(), number, lent: Vec::new(), received: 0 },
        transmitter: Transmitter { queues: queues.clone(), sent: 0, full: 0, refused: 0 },
        link_losses: 0,
    };
    ((0..count).map(device).collect(), Wire { queues, choose: Arc::new(choose) })
}

impl Wire {
    /// Puts a frame on the cable; returns true if there was room.
    pub fn send(&self, frame: &[u8]) -> bool {
        let chosen = (self.choose)(frame);
        let mut queues = lock(&self.queues);
        let chosen = if chosen < queues.to_device.len() { chosen } else { 0 };
        let Some(queue) = queues.to_device.get_mut(chosen) else { return false };
        let room = queue.len() < QUEUE;
        if room {
            queue.push_back(frame.to_vec());
        }
        room
    }

    /// Takes the oldest frame that the device has sent.
    pub fn take(&self) -> Option<Vec<u8>> {
        lock(&self.queues).from_device.pop_front()
    }

    /// Plugs the cable in or pulls it.
    pub fn set_up(&self, up: bool) {
        lock(&self.queues).up = up;
    }

    /// Sets the MTU of the link, bytes.
    pub fn set_mtu(&self, mtu: u32) {
        lock(&self.queues).mtu = mtu;
    }
}

impl Device for MemoryDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.receiver, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        Statistics {
            received: self.receiver.received,
            transmitted: self.transmitter.sent,
            transmit_full: self.transmitter.full,
            transmit_refused: self.transmitter.refused,
            link_losses: self.link_losses,
            ..Statistics::default()
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        let queues = lock(&self.receiver.queues);
        let now = LinkInfo { up: queues.up, mtu: queues.mtu, ..self.link.clone() };
        drop(queues);
        self.link.renew(now, &mut self.link_losses)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[derive(Debug)]
struct Receiver {
    queues: Arc<Mutex<Queues>>,
    /// Index of the receiver's queue.
    number: usize,
    lent: Vec<Vec<u8>>,
    received: u64,
}

impl Receive for Receiver {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        self.lent.clear();
        let mut queues = lock(&self.queues);
        if !queues.up {
            return;
        }
        while self.lent.len() < batch.remaining_capacity()
            && let Some(frame) = queues.to_device[self.number].pop_front()
        {
            let mut buffer = vec![0; HEADROOM];
            buffer.extend(frame);
            self.lent.push(buffer);
        }
        self.received += self.lent.len() as u64;
        batch.extend(self.lent.iter_mut().map(|buffer| {
            let end = buffer.len();
            Frame::of(buffer, HEADROOM, end)
        }));
    }
}

#[derive(Debug)]
struct Transmitter {
    queues: Arc<Mutex<Queues>>,
    sent: u64,
    full: u64,
    refused: u64,
}

impl Transmit for Transmitter {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut queues = lock(&self.queues);
        let mut lost = Lost::NONE;
        for (index, frame) in frames.iter().enumerate() {
            if !queues.up {
                self.refused += 1;
                lost.mark(index);
            } else if queues.from_device.len() == QUEUE {
                self.full += 1;
                lost.mark(index);
            } else {
                self.sent += 1;
                queues.from_device.push_back(frame.bytes().to_vec());
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests;
