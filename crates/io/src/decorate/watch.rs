//! A device whose frames somebody watches: each that is received, each that was sent.

use super::halves::{Half, split};
use super::wall_clock;
use crate::{Batch, Change, Device, Frame, LinkInfo, Lost, Receive, Statistics, Transmit};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Who watches, perhaps several devices.
pub trait Watcher: fmt::Debug + Send {
    /// A frame passes a device, at this time, nanoseconds since 1970.
    fn frame(&mut self, port: u32, way: Way, time: u64, frame: &[u8]);
}

/// A device that is watched.
#[derive(Debug)]
pub struct Watched {
    receive: WatchedReceive,
    transmit: WatchedTransmit,
    // Last, so that the pointers to its halves go before it.
    inner: Box<dyn Device>,
}

type Shared = Arc<Mutex<dyn Watcher>>;

#[derive(Debug)]
struct WatchedReceive {
    inner: Half<dyn Receive>,
    port: u32,
    watcher: Shared,
}

#[derive(Debug)]
struct WatchedTransmit {
    inner: Half<dyn Transmit>,
    port: u32,
    watcher: Shared,
}

impl Watched {
    /// Has somebody watch a device, to whom it is known by this number.
    pub fn new(inner: Box<dyn Device>, port: u32, watcher: Shared) -> Self {
        let receive = WatchedReceive { inner: Half::none(), port, watcher: Arc::clone(&watcher) };
        let transmit = WatchedTransmit { inner: Half::none(), port, watcher };
        Self { receive, transmit, inner }
    }
}

impl Device for Watched {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (self.receive.inner, self.transmit.inner) = split(&mut *self.inner);
        (&mut self.receive, &mut self.transmit)
    }

    fn link(&self) -> &LinkInfo {
        self.inner.link()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn maintain(&mut self) -> Option<Change> {
        self.inner.maintain()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }
}

impl Receive for WatchedReceive {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        // SAFETY: this half is lent only by `split`, which has just renewed the pointer, and the
        // whole device stays borrowed for as long as this half and its frames are.
        #[allow(unsafe_code)]
        let Some(inner) = (unsafe { self.inner.get() }) else { return };
        let before = batch.len();
        inner.receive(batch);
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let time = wall_clock();
        for frame in &batch[before..] {
            watcher.frame(self.port, Way::In, time, frame.bytes());
        }
    }
}

impl Transmit for WatchedTransmit {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> Lost {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let Some(inner) = (unsafe { self.inner.get() }) else { return Lost::all(frames.len()) };
        let lost = inner.transmit(frames);
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let time = wall_clock();
        for (index, frame) in frames.iter().enumerate() {
            if !lost.contains(index) {
                watcher.frame(self.port, Way::Out, time, frame.bytes());
            }
        }
        lost
    }
}
