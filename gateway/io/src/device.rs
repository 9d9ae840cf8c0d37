//! The trait that every back end implements.
//!
//! A device never fails once it is open: frames that cannot be sent are reported as lost, a link
//! that goes down receives nothing until it is up again, and [`Device::maintain`] looks for a
//! device that was taken away and came back.

use crate::{Error, Frame};
use arrayvec::ArrayVec;
use natgate_wire::arp::Mac;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Most frames of one call.
pub const BATCH: usize = 64;

/// Free bytes before every received frame.
pub const HEADROOM: usize = 64;

/// Frames of one call. A received frame has at least [`HEADROOM`] bytes before it.
pub type Batch<'d> = ArrayVec<Frame<'d>, BATCH>;

/// A link that sends and receives Ethernet frames. It may be opened in one thread and used in
/// another.
pub trait Device: Send + std::fmt::Debug {
    /// Receive and transmit halves.
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit);

    /// State of the link at the latest [`Device::maintain`].
    fn link(&self) -> &LinkInfo;

    /// Counters since the device was opened.
    fn statistics(&mut self) -> Statistics;

    /// Maintains the link; returns what has changed. Call it about once a second, and whenever
    /// waiting for [`Device::readiness`] reports an error.
    fn maintain(&mut self) -> Option<Change>;

    /// Descriptor that is readable when frames wait; `None` if the device is gone.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Longest sleep while the device exists, because the device cannot wake a sleeper and has to
    /// be polled. `None` if [`Device::readiness`] wakes.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }
}

/// The half that receives.
pub trait Receive: std::fmt::Debug {
    /// Takes back the memory of the frames returned before. Adds received frames to `batch`, oldest
    /// first, as many as fit. Does not wait.
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>);
}

/// The half that sends.
pub trait Transmit: std::fmt::Debug {
    /// Sends frames in order, at most [`BATCH`]. Does not wait: frames that the link cannot
    /// take now are lost. A frame whose memory was taken over (see [`crate::Lease`]) is empty
    /// afterwards.
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost;
}

/// Frames of a batch that were not sent: bit `i` stands for frame `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost(u64);

const _: () = assert!(BATCH <= u64::BITS as usize);

impl Lost {
    /// No frame.
    pub const NONE: Self = Self(0);

    /// The first `count` frames.
    ///
    /// # Panics
    /// If `count` is larger than a batch.
    pub fn all(count: usize) -> Self {
        let mut lost = Self::NONE;
        (0..count).for_each(|index| lost.mark(index));
        lost
    }

    /// Marks a frame.
    ///
    /// # Panics
    /// If `index` is not below the size of a batch.
    pub fn mark(&mut self, index: usize) {
        assert!(index < BATCH);
        self.0 |= 1 << index;
    }

    /// True if a frame is marked.
    pub fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// Number of marked frames.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// State of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Name.
    pub name: String,
    /// Index that the system has for the link.
    pub index: u32,
    /// Hardware address.
    pub mac: Mac,
    /// Largest payload of a frame, bytes.
    pub mtu: u32,
    /// True if the link is switched on and has a carrier.
    pub up: bool,
}

impl LinkInfo {
    /// Sets `up`, and increments `losses` if the link went down; returns the change.
    pub fn set_up(&mut self, up: bool, losses: &mut u64) -> Option<Change> {
        match (mem::replace(&mut self.up, up), up) {
            (true, false) => {
                *losses += 1;
                Some(Change::Down)
            }
            (false, true) => Some(Change::Up),
            _ => None,
        }
    }

    /// Sets the whole state, and increments `losses` if the link went down; returns the change.
    pub fn renew(&mut self, now: Self, losses: &mut u64) -> Option<Change> {
        let change = self.set_up(now.up, losses);
        let altered = (*self != now).then_some(Change::Altered);
        *self = now;
        change.or(altered)
    }
}

/// Change that [`Device::maintain`] found.
#[derive(Debug)]
pub enum Change {
    /// The link went up.
    Up,
    /// The link went down.
    Down,
    /// The device was taken away.
    Gone,
    /// The device is back, or another of its name came; with the error when it cannot be used.
    Back(Result<(), Error>),
    /// The hardware address or the MTU changed.
    Altered,
    /// The system does not tell the device's state, so the last known state holds. Reported once,
    /// until the system answers again.
    Unknown(Error),
}

/// Frames counted since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames returned by `receive`.
    pub received: u64,
    /// Frames sent.
    pub transmitted: u64,
    /// Frames lost on the way in, because they came faster than they were taken.
    pub receive_overrun: u64,
    /// Part of [`receive_overrun`](Self::receive_overrun) for which there was no empty buffer, if
    /// that is known: receivers of frames hold the buffers. The other part found the queue of
    /// filled buffers full.
    pub receive_no_buffer: u64,
    /// Frames discarded because they were longer than the link's MTU, or were merged segments (by
    /// receive offload here or segmentation offload at the sender) of an unknown kind.
    pub receive_oversize: u64,
    /// Frames discarded because their sender left a checksum unfinished that cannot be finished
    /// here.
    pub receive_unfinished: u64,
    /// Frames not sent because a queue was full.
    pub transmit_full: u64,
    /// Frames not sent because the link was down, gone or refused the frame.
    pub transmit_refused: u64,
    /// Number of times that the link went down or away.
    pub link_losses: u64,
}

impl Statistics {
    /// Sum of the statistics of devices that share a link. Frames add up; a loss of the link counts
    /// once, because every device sees it.
    pub fn of_group(each: impl IntoIterator<Item = Self>) -> Self {
        each.into_iter().fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            transmitted: sum.transmitted + one.transmitted,
            receive_overrun: sum.receive_overrun + one.receive_overrun,
            receive_no_buffer: sum.receive_no_buffer + one.receive_no_buffer,
            receive_oversize: sum.receive_oversize + one.receive_oversize,
            receive_unfinished: sum.receive_unfinished + one.receive_unfinished,
            transmit_full: sum.transmit_full + one.transmit_full,
            transmit_refused: sum.transmit_refused + one.transmit_refused,
            link_losses: sum.link_losses.max(one.link_losses),
        })
    }
}
