//! The NAT around a structure, as in the paper. It looks up outbound packets in the structure. A
//! new session takes the next external endpoint. The NAT finds the session of an inbound packet by
//! index in an array.
//!
//! It has no timeouts, filtering, checks or allocation policy; the paper omits them, too. It reads
//! the clock once for 32 packets.

use super::record::{External, Key};
use super::{BATCH, Structure, header};
use crate::frame::{self, Frame};
use natgate_hugepages::prefetch;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A translator of packets.
pub(super) trait Translator {
    /// Translates packets from inside; all must pass.
    fn outbound(&mut self, frames: &mut [Frame]);

    /// Translates packets from outside; all must pass.
    fn inbound(&mut self, frames: &mut [Frame]);
}

/// Key of each external endpoint, by the endpoint's number. One thread writes each entry.
pub(super) type Returns = Arc<[AtomicU64]>;

/// A NAT with a structure.
pub(super) struct Nat<S> {
    structure: S,
    returns: Returns,
    /// Numbers of unused external endpoints.
    numbers: Range<u32>,
    /// True if the memory of a batch is fetched together.
    batched: bool,
}

impl<S: Structure> Nat<S> {
    /// Creates a NAT of its own for `sessions` sessions.
    pub(super) fn new(sessions: usize, batched: bool) -> Self {
        let numbers = 0..sessions as u32;
        Self::sharing(S::with_capacity(sessions), returns(sessions), numbers, batched)
    }

    /// Creates a NAT that takes these numbers for its sessions. Other NATs may use the same tables.
    pub(super) fn sharing(
        structure: S,
        returns: Returns,
        numbers: Range<u32>,
        batched: bool,
    ) -> Self {
        Self { structure, returns, numbers, batched }
    }

    #[inline(always)]
    fn send(&mut self, frame: &mut Frame, key: Key, now: u32) {
        let Self { structure, returns, numbers, .. } = self;
        let external = structure.translate(key, now, || {
            let number = numbers.next().expect("no more sessions than were announced");
            returns[number as usize].store(key.bits(), Ordering::Relaxed);
            External::at(number)
        });
        header::set_source(frame, (external.address, external.port));
    }

    fn prefetch(&self, keys: &[Key]) {
        for stage in 0..S::STAGES {
            for &key in keys {
                self.structure.prefetch(key, stage);
            }
        }
    }
}

impl<S: Structure> Translator for Nat<S> {
    fn outbound(&mut self, frames: &mut [Frame]) {
        for frames in frames.chunks_mut(BATCH) {
            let now = seconds();
            if self.batched {
                let mut keys = [Key::NONE; BATCH];
                for (key, frame) in keys.iter_mut().zip(&*frames) {
                    *key = header::key(frame);
                }
                self.prefetch(&keys[..frames.len()]);
                for (&key, frame) in keys.iter().zip(frames) {
                    self.send(frame, key, now);
                }
            } else {
                for frame in frames {
                    self.send(frame, header::key(frame), now);
                }
            }
        }
    }

    fn inbound(&mut self, frames: &mut [Frame]) {
        for frames in frames.chunks_mut(BATCH) {
            if self.batched {
                for frame in &*frames {
                    prefetch(&self.returns, number(frame));
                }
            }
            for frame in frames {
                let key = self.returns[number(frame)].load(Ordering::Relaxed);
                header::set_destination(frame, Key::from_bits(key).endpoint());
            }
        }
    }
}

/// Number of the external endpoint that a packet goes to.
#[inline(always)]
fn number(frame: &Frame) -> usize {
    let (address, port) = frame::destination(frame);
    External::number(address, port) as usize
}

pub(super) fn returns(sessions: usize) -> Returns {
    (0..sessions).map(|_| AtomicU64::new(0)).collect()
}

fn seconds() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as u32)
}

/// A translator without a table: it only rewrites the headers.
pub(super) struct Headers;

/// Difference between the exchanged addresses; a second exchange restores the first address.
const EXCHANGE: u32 = 0xc0a8_0000 ^ 0x6440_0000;

impl Translator for Headers {
    fn outbound(&mut self, frames: &mut [Frame]) {
        for frame in frames {
            let (address, port) = frame::source(frame);
            header::set_source(frame, (address ^ EXCHANGE, port));
        }
    }

    fn inbound(&mut self, frames: &mut [Frame]) {
        for frame in frames {
            let (address, port) = frame::destination(frame);
            header::set_destination(frame, (address ^ EXCHANGE, port));
        }
    }
}
