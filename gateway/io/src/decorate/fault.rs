//! A device that harms frames: it loses, duplicates and reorders frames and flips single bits, in
//! both directions, by ratios and reproducibly from a seed.
//!
//! Frames are copied into memory of the decorator. Lost frames are not reported as lost, just as no
//! cable reports them.

use super::halves::{Half, split};
use crate::{BATCH, Batch, Change, Device, Frame, HEADROOM, LinkInfo, Lost};
use crate::{Receive, Statistics, Transmit};
use arrayvec::ArrayVec;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::time::Duration;

/// Shares of harmed frames by kind of harm, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Frames that are lost.
    pub loss: f64,
    /// Frames that arrive twice.
    pub duplicate: f64,
    /// Frames that the next one overtakes.
    pub reorder: f64,
    /// Frames with one bit flipped.
    pub corrupt: f64,
    /// Seed of the random choice of frames.
    pub seed: u64,
}

/// Reason why faults could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no fault; write loss, duplicate, reorder or corrupt with a share from 0 to 1, or \
    seed with a number, such as loss=0.01,reorder=0.005,seed=7"
)]
pub struct FaultsError(String);

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let mut faults = Self::default();
        for part in text.split(',') {
            let wrong = || FaultsError(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            let share = || {
                let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.ok_or_else(wrong)
            };
            match key {
                "loss" => faults.loss = share()?,
                "duplicate" => faults.duplicate = share()?,
                "reorder" => faults.reorder = share()?,
                "corrupt" => faults.corrupt = share()?,
                "seed" => faults.seed = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        Ok(faults)
    }
}

/// Number of harmed frames so far, both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Lost frames.
    pub lost: u64,
    /// Frames that arrived twice.
    pub duplicated: u64,
    /// Frames that were overtaken.
    pub reordered: u64,
    /// Frames with one bit flipped.
    pub corrupted: u64,
}

/// A device that harms frames.
#[derive(Debug)]
pub struct Faulty {
    receive: FaultyReceive,
    transmit: FaultyTransmit,
    // The field is last, so that the pointers to its halves are dropped before it.
    inner: Box<dyn Device>,
}

#[derive(Debug)]
struct FaultyReceive {
    inner: Half<dyn Receive>,
    line: Line,
    lent: ArrayVec<Vec<u8>, BATCH>,
}

#[derive(Debug)]
struct FaultyTransmit {
    inner: Half<dyn Transmit>,
    line: Line,
}

/// One direction, with the frames that are on their way.
#[derive(Debug)]
struct Line {
    faults: Faults,
    random: ChaCha8Rng,
    /// Memory for frames: headroom and the frame.
    free: Vec<Vec<u8>>,
    /// Frames that have arrived, oldest first.
    ready: VecDeque<Vec<u8>>,
    /// A frame that waits to be overtaken.
    held: Option<Vec<u8>>,
    counts: FaultCounts,
}

impl Faulty {
    /// Harms the frames of a device.
    pub fn new(inner: Box<dyn Device>, faults: Faults) -> Self {
        let longest = HEADROOM + inner.link().mtu as usize + 18;
        // Each direction has random numbers of its own.
        let [receive, transmit] = [0, 1].map(|way| Line::new(faults, way, longest));
        let receive = FaultyReceive { inner: Half::none(), line: receive, lent: ArrayVec::new() };
        Self { receive, transmit: FaultyTransmit { inner: Half::none(), line: transmit }, inner }
    }

    /// Frames harmed so far.
    pub fn counts(&self) -> FaultCounts {
        let (one, other) = (self.receive.line.counts, self.transmit.line.counts);
        FaultCounts {
            lost: one.lost + other.lost,
            duplicated: one.duplicated + other.duplicated,
            reordered: one.reordered + other.reordered,
            corrupted: one.corrupted + other.corrupted,
        }
    }
}

impl Line {
    fn new(faults: Faults, way: u64, longest: usize) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(faults.seed);
        random.set_stream(way);
        // Room for a batch, doubled, a frame that waits, and the frames that are lent out.
        let most = 3 * BATCH + 1;
        Self {
            faults,
            random,
            free: (0..most).map(|_| Vec::with_capacity(longest)).collect(),
            ready: VecDeque::with_capacity(most),
            held: None,
            counts: FaultCounts::default(),
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        f64::from(self.random.next_u32()) < share * (f64::from(u32::MAX) + 1.0)
    }

    /// Takes a frame in, and harms it if its random numbers say so.
    fn put(&mut self, frame: &[u8]) {
        // Every frame uses the same number of random numbers, so one share does not change the
        // others' choice.
        let Faults { loss, duplicate, reorder, corrupt, .. } = self.faults;
        let [lost, twice, late, damaged] =
            [loss, duplicate, reorder, corrupt].map(|share| self.happens(share));
        let bit = self.random.next_u32() as usize;
        if lost {
            self.counts.lost += 1;
            return;
        }
        let Some(mut memory) = self.copy(frame) else { return };
        if damaged && !frame.is_empty() {
            let bit = bit % (frame.len() * 8);
            memory[HEADROOM + bit / 8] ^= 1 << (bit % 8);
            self.counts.corrupted += 1;
        }
        let again = if twice { self.copy(&memory[HEADROOM..]) } else { None };
        self.counts.duplicated += u64::from(again.is_some());
        if late && self.held.is_none() {
            self.counts.reordered += 1;
            self.held = Some(memory);
        } else {
            self.ready.push_back(memory);
            self.release();
        }
        self.ready.extend(again);
    }

    /// Releases the frame that was held back.
    fn release(&mut self) {
        self.ready.extend(self.held.take());
    }

    fn copy(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let mut memory = self.free.pop()?;
        memory.clear();
        memory.resize(HEADROOM, 0);
        memory.extend_from_slice(frame);
        Some(memory)
    }
}

impl Device for Faulty {
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
        // A frame that waits to be overtaken is released when no other frame comes.
        self.transmit.line.release();
        self.split().1.transmit(&mut []);
        self.inner.maintain()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.inner.poll_interval()
    }
}

impl Receive for FaultyReceive {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        self.line.free.extend(self.lent.drain(..));
        // While frames are left from the last call, no more are received.
        if self.line.ready.len() < BATCH {
            let mut incoming = Batch::new();
            // SAFETY: this half is lent only by `split`, which has just renewed the pointer, and
            // the whole device stays borrowed for as long as this half is.
            #[allow(unsafe_code)]
            if let Some(inner) = unsafe { self.inner.get() } {
                inner.receive(&mut incoming);
            }
            incoming.iter().for_each(|frame| self.line.put(frame.bytes()));
            if incoming.is_empty() {
                self.line.release();
            }
        }
        while self.lent.len() < batch.remaining_capacity()
            && let Some(frame) = self.line.ready.pop_front()
        {
            self.lent.push(frame);
        }
        batch.extend(self.lent.iter_mut().map(|memory| {
            let end = memory.len();
            Frame::of(memory, HEADROOM, end)
        }));
    }
}

impl Transmit for FaultyTransmit {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let Some(inner) = (unsafe { self.inner.get() }) else { return Lost::all(frames.len()) };
        frames.iter().for_each(|frame| self.line.put(frame.bytes()));
        while !self.line.ready.is_empty() {
            let mut sent: ArrayVec<Vec<u8>, BATCH> =
                self.line.ready.drain(..self.line.ready.len().min(BATCH)).collect();
            let mut batch: Batch<'_> = sent
                .iter_mut()
                .map(|memory| {
                    let end = memory.len();
                    Frame::of(memory, HEADROOM, end)
                })
                .collect();
            // The caller's frames are no longer known here; the device counts the losses.
            inner.transmit(&mut batch);
            drop(batch);
            self.line.free.extend(sent);
        }
        Lost::NONE
    }
}
