//! The trait that every back end implements.
//!
//! A device never fails once it is open: frames that cannot be sent are reported as lost, a link
//! that goes down receives nothing until it is up again, and [`Device::maintain`] looks for a
//! device that was taken away and came back.

use crate::{Batch, Error, Frame};
use natgate_wire::arp::Mac;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A link that sends and receives Ethernet frames. It may be opened in one thread and used in
/// another.
pub trait Device: Send + std::fmt::Debug {
    /// The two halves.
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit);

    /// What the link is, as of the latest [`Device::maintain`].
    fn link(&self) -> &LinkInfo;

    /// What has passed since the device was opened.
    fn statistics(&mut self) -> Statistics;

    /// Looks after the link; to be called about once a second, and whenever waiting for
    /// [`Device::readiness`] reports an error. Returns what has changed.
    fn maintain(&mut self) -> Option<Change>;

    /// Readable when frames wait to be received; `None` when there is nothing to wait for, because
    /// the device is gone.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// How long a sleep may last at most while the device is there, because it wakes nobody: it has
    /// to be asked. `None`: [`Device::readiness`] wakes.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }
}

/// The half that receives.
pub trait Receive: std::fmt::Debug {
    /// Takes back the memory of the frames it handed out before, and adds to `batch` the frames
    /// that have come in, oldest first, as many as fit. Does not wait.
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>);
}

/// The half that sends.
pub trait Transmit: std::fmt::Debug {
    /// Sends frames in order, at most [`crate::BATCH`]. Does not wait: what the link cannot take
    /// now is lost. A frame whose memory was taken over (see [`crate::Lease`]) is empty afterwards.
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost;
}

/// Which frames of a batch were not sent: bit `i` stands for frame `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost(u64);

const _: () = assert!(crate::BATCH <= u64::BITS as usize);

impl Lost {
    /// None.
    pub const NONE: Self = Self(0);

    /// All of so many.
    ///
    /// # Panics
    /// When no batch has so many.
    pub fn all(count: usize) -> Self {
        let mut lost = Self::NONE;
        (0..count).for_each(|index| lost.mark(index));
        lost
    }

    /// Marks a frame.
    ///
    /// # Panics
    /// When no batch has such a frame.
    pub fn mark(&mut self, index: usize) {
        assert!(index < crate::BATCH);
        self.0 |= 1 << index;
    }

    /// Whether a frame is marked.
    pub fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// How many are marked.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// What a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Its name.
    pub name: String,
    /// The system's number for it.
    pub index: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// Largest payload of a frame, bytes.
    pub mtu: u32,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
}

impl LinkInfo {
    /// Notes whether it is up, and counts it among `losses` if it was and no longer is; returns
    /// what that changes.
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

    /// As [`Self::set_up`], of a link that may be otherwise in other ways, too.
    pub fn renew(&mut self, now: Self, losses: &mut u64) -> Option<Change> {
        let change = self.set_up(now.up, losses);
        let altered = (*self != now).then_some(Change::Altered);
        *self = now;
        change.or(altered)
    }
}

/// What [`Device::maintain`] found changed.
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
    /// Its hardware address or MTU changed.
    Altered,
    /// The system does not say what the device is, so its last known state holds. Told once, until
    /// the system answers again.
    Unknown(Error),
}

/// Frames counted since the device was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Handed out by `receive`.
    pub received: u64,
    /// Sent.
    pub transmitted: u64,
    /// Lost on the way in, because they came faster than they were taken.
    pub receive_overrun: u64,
    /// Of those, frames for which there was no empty buffer, where that is known: those that took
    /// frames hold them. Else the queue of filled ones was full.
    pub receive_no_buffer: u64,
    /// Not handed out because they were longer than the link's MTU, or stood for several (by
    /// receive offload here or segmentation offload at the sender) in a way that is not known.
    pub receive_oversize: u64,
    /// Not handed out because the sender left a checksum unfinished that cannot be finished here.
    pub receive_unfinished: u64,
    /// Not sent because a queue was full.
    pub transmit_full: u64,
    /// Not sent because the link was down, gone or refused the frame.
    pub transmit_refused: u64,
    /// Times that the link went down or away.
    pub link_losses: u64,
}

impl Statistics {
    /// Those of one link, of the devices that share it: frames add up, and that the link was lost
    /// is seen by all of them.
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
