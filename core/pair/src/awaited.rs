//! Keys for whose records a caller waits: it lets nothing out of the node before the partner has
//! what led to it.
//!
//! A ticket waits for the first record of its key that is written after the ticket was given, or
//! for a later one. Such keys are sent before all others.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The tickets of one stream.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    /// Key, number of the first packet that counts, ticket.
    waiting: BTreeSet<(u32, u64, u64)>,
    /// Keys that wait for a packet.
    urgent: BTreeSet<u32>,
    /// Where the search for them goes on.
    cursor: u32,
    arrived: Vec<u64>,
}

impl Awaited {
    /// A ticket waits for a record of a key in the packet with number `from`, or in a later one.
    /// Returns false if it does so already.
    pub(crate) fn add(&mut self, key: u32, from: u64, ticket: u64) -> bool {
        self.urgent.insert(key);
        self.waiting.insert((key, from, ticket))
    }

    /// True if no ticket waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A ticket waits for nothing.
    pub(crate) fn add_arrived(&mut self, ticket: u64) {
        self.arrived.push(ticket);
    }

    /// The next key to send, in turn, of those that `may_go`.
    pub(crate) fn next_urgent(&self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        if self.urgent.is_empty() {
            return None;
        }
        let all = self.urgent.range(self.cursor..).chain(self.urgent.range(..self.cursor));
        all.copied().find(|key| may_go(*key))
    }

    /// True if a key waits for a packet.
    pub(crate) fn is_urgent(&self, key: u32) -> bool {
        self.urgent.contains(&key)
    }

    /// A packet has the record of a key. Returns true if the key was urgent.
    pub(crate) fn note_sent(&mut self, key: u32) -> bool {
        let was_urgent = self.urgent.remove(&key);
        if was_urgent {
            self.cursor = key.saturating_add(1);
        }
        was_urgent
    }

    /// The record of a key was lost.
    pub(crate) fn note_lost(&mut self, key: u32) {
        if self.waiting.range((key, 0, 0)..=(key, u64::MAX, u64::MAX)).next().is_some() {
            self.urgent.insert(key);
        }
    }

    /// All readers have the packet with this number, which has a record of a key.
    pub(crate) fn settle(&mut self, key: u32, number: u64) {
        while let Some(first) = self.waiting.range((key, 0, 0)..=(key, number, u64::MAX)).next() {
            let first = *first;
            self.waiting.remove(&first);
            self.arrived.push(first.2);
        }
    }

    /// Tickets that have arrived since the last call.
    pub(crate) fn arrived(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.arrived.drain(..)
    }

    /// All tickets: there is nobody to wait for.
    pub(crate) fn give_up(&mut self) -> Vec<u64> {
        self.urgent.clear();
        let waiting = core::mem::take(&mut self.waiting);
        let waiting = waiting.into_iter().map(|(_, _, ticket)| ticket);
        core::mem::take(&mut self.arrived).into_iter().chain(waiting).collect()
    }
}
