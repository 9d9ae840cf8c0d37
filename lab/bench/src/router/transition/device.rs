//! Devices in memory. A device receives the frames that were put before the turn, and keeps the
//! heads of the frames that it sends.
//!
//! A frame costs a copy of its head each way. The rest of a frame is zero, and is not touched.

use super::packet::{HEAD, Head};
use crate::lane::Lane;
use natgate_io::{BATCH, Batch, Device, Frame, HEADROOM, Lost, Receive, Transmit};
use natgate_wire::arp::Mac;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes between two buffers are a multiple of this, as with network cards.
const GRAIN: usize = 2048;

#[derive(Debug, Default)]
struct Shared {
    waiting: Vec<Head>,
    sent: Vec<Head>,
}

/// The other end of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Port(Arc<Mutex<Shared>>);

impl Port {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a frame that the next turn receives. A turn receives at most [`BATCH`] frames.
    pub(super) fn put(&self, head: Head) {
        self.lock().waiting.push(head);
    }

    /// Takes the frames that were sent, into an empty vector.
    pub(super) fn take(&self, sent: &mut Vec<Head>) {
        std::mem::swap(&mut self.lock().sent, sent);
    }
}

/// Creates a device, and its other end.
pub(super) fn device(name: &str, mac: Mac, mtu: u16) -> (impl Device + use<>, Port) {
    let port = Port::default();
    let source = Source { port: port.clone(), buffers: Vec::new(), stride: GRAIN };
    (Lane::new(name, mac, mtu, (source, Sink(port.clone()))), port)
}

#[derive(Debug)]
struct Source {
    port: Port,
    buffers: Vec<u8>,
    /// Bytes of a buffer.
    stride: usize,
}

impl Receive for Source {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        let mut shared = self.port.lock();
        let longest = shared.waiting.iter().map(|head| usize::from(head.len)).max();
        let Some(longest) = longest else { return };
        let stride = (HEADROOM + longest.max(HEAD)).next_multiple_of(GRAIN);
        if stride != self.stride || self.buffers.is_empty() {
            self.stride = stride;
            self.buffers = vec![0; BATCH * stride];
        }
        let buffers = self.buffers.chunks_exact_mut(self.stride);
        for (head, buffer) in shared.waiting.drain(..).zip(buffers) {
            buffer[HEADROOM..][..HEAD].copy_from_slice(head.bytes());
            batch.push(Frame::of(buffer, HEADROOM, HEADROOM + usize::from(head.len)));
        }
    }
}

#[derive(Debug)]
struct Sink(Port);

impl Transmit for Sink {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        let mut shared = self.0.lock();
        shared.sent.extend(frames.iter().map(|frame| Head::of(frame.bytes())));
        Lost::NONE
    }
}
