//! Records that are too long for a datagram: their time, and their place.

use super::{Blocked, Sender};

/// Time of a packet with a long record, nanoseconds: it goes in a stream, which other packets
/// overtake. And the time of each of its bytes, and of those that are on their way before it.
pub(super) const LONG: u64 = 300_000_000;
const LONG_BYTE: u64 = 2_000;

/// Longest time of such a packet. The link gives a stream up before.
const LONGEST: u64 = 32_000_000_000;

/// Most doublings of a long record's time.
const MOST_PATIENCE: u32 = 7;

impl Sender {
    /// A long record goes: its length, and the time at which it counts as lost.
    pub(super) fn begin_long(&mut self, len: usize, now: u64) -> (usize, u64) {
        self.long_packets += 1;
        self.long_bytes += len;
        let time = LONG.saturating_add(LONG_BYTE.saturating_mul(self.long_bytes as u64));
        let time = time.saturating_mul(1 << self.patience).min(LONGEST);
        (len, now.saturating_add(time))
    }

    /// Long records on their way may be lost, because the link has another connection: they count
    /// as lost as soon as short ones.
    pub fn note_new_connection(&mut self) {
        (0..self.flying.len()).for_each(|at| self.shorten(at));
    }

    /// Long records whose time has come count as lost.
    pub(super) fn lose_all_long(&mut self, now: u64) {
        if self.long_packets > 0 {
            (0..self.flying.len()).for_each(|at| self.lose_long(at, now));
        }
    }

    /// A long record at a place counts as lost if its time has come.
    pub(super) fn lose_long(&mut self, at: usize, now: u64) {
        if self.flying[at].long.is_some_and(|(_, until)| now >= until) {
            self.patience = (self.patience + 1).min(MOST_PATIENCE);
            self.lose(at);
        }
    }

    /// The packet at a place has the time of a short one.
    pub(super) fn shorten(&mut self, at: usize) {
        if let Some((len, _)) = self.flying[at].long.take() {
            self.long_packets -= 1;
            self.losses.look_at = 0;
            self.long_bytes -= len;
            self.long.retain(|_, blocked| *blocked != Blocked::ByAny);
        }
    }

    /// A packet with a key has ended. If its record was long, the next one may go.
    pub(super) fn end_long(&mut self, key: u32, number: u64) {
        if self.long.get(&key) == Some(&Blocked::By(number)) {
            self.long.remove(&key);
        }
    }
}
