//! A device with a watcher of its frames: each frame received, and each frame sent.

use super::halves::{Half, split};
use super::wall_clock;
use crate::{BATCH, Batch, Change, Device, Frame, LinkInfo, Lost, Receive, Statistics, Transmit};
use arrayvec::ArrayVec;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The frame was received.
    In,
    /// The frame was sent.
    Out,
}

/// A watcher of one or several devices.
pub trait Watcher: fmt::Debug + Send {
    /// Reports a frame of device `port`; `time` is nanoseconds since 1970.
    fn frame(&mut self, port: u32, way: Way, time: u64, frame: &[u8]);
}

/// A device that is watched.
#[derive(Debug)]
pub struct Watched {
    receive: WatchedReceive,
    transmit: WatchedTransmit,
    // The field is last, so that the pointers to its halves are dropped before it.
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
    /// Copies of a batch, one frame behind the other: a device may empty the frames that it gets.
    copies: Vec<u8>,
    port: u32,
    watcher: Shared,
}

impl Watched {
    /// Adds a watcher to a device, which the watcher knows by the number `port`.
    pub fn new(inner: Box<dyn Device>, port: u32, watcher: Shared) -> Self {
        let receive = WatchedReceive { inner: Half::none(), port, watcher: Arc::clone(&watcher) };
        let copies = Vec::with_capacity(BATCH * (inner.link().mtu as usize + 18));
        let transmit = WatchedTransmit { inner: Half::none(), copies, port, watcher };
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

    fn poll_interval(&self) -> Option<Duration> {
        self.inner.poll_interval()
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
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let Some(inner) = (unsafe { self.inner.get() }) else { return Lost::all(frames.len()) };
        self.copies.clear();
        frames.iter().for_each(|frame| self.copies.extend_from_slice(frame.bytes()));
        let lens: ArrayVec<usize, BATCH> = frames.iter().map(|frame| frame.len()).collect();
        let lost = inner.transmit(frames);
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let time = wall_clock();
        let mut rest = &self.copies[..];
        for (index, len) in lens.into_iter().enumerate() {
            let (frame, following) = rest.split_at(len);
            rest = following;
            if !lost.contains(index) {
                watcher.frame(self.port, Way::Out, time, frame);
            }
        }
        lost
    }
}
