//! Captures: the reader's side of copied packets. Taps copy them in the workers.

pub use crate::limits::MOST_CAPTURES as MOST;
pub use crate::tap::{Filter, SNAPLEN, Way};

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
    /// When it came.
    pub time: Timestamp,
    /// The side that it came in by, or leaves by.
    pub side: Side,
    /// Whether it came or leaves, and as what.
    pub way: Way,
    /// What the translator said of it.
    pub verdict: Verdict,
    /// Its length, bytes.
    pub len: usize,
    /// Packets that are missing before it.
    pub missing: u64,
    /// Its bytes, as far as they were copied.
    pub bytes: &'c [u8],
}

/// A capture under way; it ends when this goes.
#[derive(Debug)]
pub struct Capture {
    commander: Commander,
    number: u64,
    filter: Filter,
    /// By worker, with the packets that are known to be missing.
    rings: Vec<(Consumer<u8>, u64)>,
    /// Answers of workers that have joined since.
    joining: Vec<Receiver<Option<Box<Tap>>>>,
    /// What was taken out and not told yet, by time: where it lies in `bytes`.
    records: Vec<(Head, u64, usize)>,
    bytes: Vec<u8>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Capture {
    /// Has every worker copy the packets that match from now on.
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

    /// What one more worker copies packets by.
    fn tap(&mut self) -> Box<Tap> {
        let (ring, consumer) = RingBuffer::new(RING);
        self.rings.push((consumer, 0));
        let (number, filter, scratch) = (self.number, self.filter, vec![0; BATCH * SNAPLEN]);
        Box::new(Tap { number, filter, ring, missed: 0, scratch })
    }

    /// Has workers that have joined since copy packets, too. Nobody waits for them: a worker that
    /// is busy with a reload comes to it afterwards.
    fn follow_workers(&mut self) {
        let (commander, known) = (self.commander.clone(), self.rings.len());
        let answers = commander.go_on_capturing(known, || self.tap());
        self.joining.extend(answers);
        // What one has no room for goes here, and not in the worker.
        self.joining.retain(|answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
    }

    /// Whether the gateway has gone.
    pub fn is_over(&self) -> bool {
        self.rings.iter().all(|(ring, _)| ring.is_abandoned())
    }

    /// Tells what has come since, in order of time.
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
