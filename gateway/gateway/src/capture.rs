//! Captures: the reader's side of copied packets. Taps copy them in the workers.

pub use crate::limits::MOST_CAPTURES as MOST;
pub use crate::tap::{Filter, SNAPLEN, Way, prefix};

use crate::command::{CommandError, Commander};
use crate::tap::{Head, Tap, take, verdict_of};
use natgate_engine::{Side, Timestamp, Verdict};
use natgate_io::BATCH;
use rtrb::{Consumer, RingBuffer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

/// Bytes of each worker's ring.
const RING: usize = 4 << 20;

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Record<'c> {
    /// Time at which the packet came.
    pub time: Timestamp,
    /// Side that the packet came in by, or leaves by.
    pub side: Side,
    /// Stage at which the packet was captured.
    pub way: Way,
    /// Verdict of the translator.
    pub verdict: Verdict,
    /// Length of the packet, bytes.
    pub len: usize,
    /// Packets that are missing before this one.
    pub missing: u64,
    /// Bytes of the packet that were copied.
    pub bytes: &'c [u8],
}

/// A capture in progress. Dropping it ends the capture.
#[derive(Debug)]
pub struct Capture {
    commander: Commander,
    number: u64,
    filter: Filter,
    /// Rings by worker, each with the number of packets known to be missing.
    rings: Vec<(Consumer<u8>, u64)>,
    /// Answers of workers that have joined since the start.
    joining: Vec<Receiver<Option<Box<Tap>>>>,
    /// Packets that were taken out and not reported yet, by time: header, missing packets before,
    /// and offset in `bytes`.
    records: Vec<(Head, u64, usize)>,
    bytes: Vec<u8>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Capture {
    /// Starts a capture: every worker copies the packets that match from now on.
    ///
    /// # Errors
    /// [`CommandError::Captures`], [`CommandError::Stopping`].
    pub fn begin(commander: &Commander, filter: Filter) -> Result<Self, CommandError> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut capture = Self {
            commander: commander.clone(),
            number,
            filter,
            rings: Vec::new(),
            joining: Vec::new(),
            records: Vec::new(),
            bytes: Vec::new(),
        };
        commander.begin_capture(|| capture.tap())?;
        Ok(capture)
    }

    /// Creates the tap of one more worker.
    fn tap(&mut self) -> Box<Tap> {
        let (ring, consumer) = RingBuffer::new(RING);
        self.rings.push((consumer, 0));
        let (number, filter, scratch) = (self.number, self.filter, vec![0; BATCH * SNAPLEN]);
        Box::new(Tap { number, filter, ring, missed: 0, scratch })
    }

    /// Starts the capture on workers that have joined since. The call does not wait: a worker that
    /// is busy with a reload starts the capture afterwards.
    fn follow_workers(&mut self) {
        let (commander, known) = (self.commander.clone(), self.rings.len());
        let answers = commander.go_on_capturing(known, || self.tap());
        self.joining.extend(answers);
        // A tap that a worker has no room for is dropped here, and not in the worker.
        self.joining.retain(|answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
    }

    /// True if the gateway has ended.
    pub fn is_over(&self) -> bool {
        self.rings.iter().all(|(ring, _)| ring.is_abandoned())
    }

    /// Reports the packets that have come since the last call, in order of time.
    pub fn read(&mut self, mut tell: impl FnMut(Record<'_>)) {
        self.follow_workers();
        let Self { rings, records, bytes, .. } = self;
        records.clear();
        bytes.clear();
        for (ring, missed) in rings {
            while let Some(head) = take(ring, bytes) {
                let missing = head.missed - std::mem::replace(missed, head.missed);
                records.push((head, missing, bytes.len() - head.copied as usize));
            }
        }
        records.sort_by_key(|(head, ..)| head.time);
        for (head, missing, start) in &*records {
            tell(Record {
                time: Timestamp(head.time),
                side: if head.side == 0 { Side::Inside } else { Side::Outside },
                way: Way::ALL[usize::from(head.way) % Way::ALL.len()],
                verdict: verdict_of(head.verdict, head.reason),
                len: head.len as usize,
                missing: *missing,
                bytes: &bytes[*start..start + head.copied as usize],
            });
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.commander.end_capture(self.number);
    }
}
