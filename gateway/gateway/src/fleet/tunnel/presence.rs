//! Words of presence, and what all workers of a node share about the tunnel.
//!
//! The owner of a slice says 50 times a second that it is there. The other node's leading worker
//! hears it and notes until when the owner counts as there; each worker looks at the notes once a
//! turn.

use super::message::{Presence, SLICES};
use crate::fleet::PartnerLink;
use natgate_engine::Timestamp;
use natgate_pair::{Boot, Epoch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval of words.
const INTERVAL: Duration = Duration::from_millis(20);

/// Interval of looks at what is to be said.
const LOOKS: Duration = Duration::from_millis(1);

/// Time for which an owner counts as there after a word.
const LASTS: Duration = Duration::from_millis(100);

/// Packets of the tunnel at a node since its start. Packets from inside, from outside, and packets
/// that turn round are counted apart, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelCounters {
    /// Packets that this node has passed on.
    pub passed: [u64; 3],
    /// Packets that it has not passed on, because there was no room or no connection: its copies
    /// translated them, or they are lost.
    pub full: u64,
    /// Packets that are too long for the tunnel: its copies translated them.
    pub long: u64,
    /// Packets that it has taken.
    pub taken: [u64; 3],
    /// Packets that it has refused: of a slice that it neither owns in that epoch, nor has just
    /// given away.
    pub foreign: u64,
    /// Packets that it has refused: of a realm, or a family, that it does not have.
    pub unknown: u64,
    /// Packets some of whose pieces did not come in time.
    pub partial: u64,
    /// Datagrams that no sender writes.
    pub damaged: u64,
}

/// A bit beside the epoch of a slice: the owner is there, and assigns no port of it. Nodes of
/// earlier versions take it for another epoch, so their copies translate then.
pub(crate) const CLOSED: Epoch = 1 << 63;

/// The owner of a slice, as it was heard last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(super) epoch: Epoch,
    /// End of the time for which it counts as there; 0: it is not there.
    pub(super) until: Timestamp,
    /// True if it assigns no port: the slice drains, and this node has what there was before.
    pub(super) is_closed: bool,
}

/// What the workers of a node share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    heard: Mutex<Vec<Heard>>,
    /// Grows with each change.
    version: AtomicU64,
    counters: Mutex<TunnelCounters>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Copies what was heard, if it is another version.
    /// Returns true if so.
    pub(super) fn heard(&self, version: &mut u64, into: &mut Vec<Heard>) -> bool {
        let is_other = self.version.load(Ordering::Acquire) != *version;
        if is_other {
            let heard = lock(&self.heard);
            *version = self.version.load(Ordering::Acquire);
            into.clone_from(&heard);
        }
        is_other
    }

    /// Notes a word about slices from `first` on.
    pub(super) fn hear(&self, now: Timestamp, first: u16, epochs: &[Epoch], slices: usize) {
        let mut heard = lock(&self.heard);
        heard.resize(slices, Heard::default());
        for (heard, epoch) in heard.iter_mut().skip(first.into()).zip(epochs) {
            let until = if *epoch > 0 { now.plus(LASTS) } else { Timestamp(0) };
            let (epoch, is_closed) = (epoch & !CLOSED, epoch & CLOSED != 0);
            *heard = Heard { epoch, until, is_closed };
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// True if the owner of a slice counts as there.
    pub(crate) fn is_there(&self, slice: usize, epoch: Epoch, now: Timestamp) -> bool {
        let heard = lock(&self.heard).get(slice).copied();
        heard.is_some_and(|heard| heard.epoch == epoch && now < heard.until)
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut TunnelCounters)) {
        count(&mut lock(&self.counters));
    }

    /// Counts a packet of a realm, or a family, that this node does not have.
    pub(crate) fn refuse(&self) {
        self.count(|counters| counters.unknown += 1);
    }

    pub(crate) fn counters(&self) -> TunnelCounters {
        *lock(&self.counters)
    }
}

/// The words of a node.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// Time of the next look at what is to be said.
    look: Timestamp,
    /// Epochs that the last word had.
    said: Vec<Epoch>,
    number: u64,
    next: Timestamp,
}

impl Present {
    /// True if it is time to look at what is to be said.
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        let is_due = now >= self.look;
        if is_due {
            self.look = now.plus(LOOKS);
        }
        is_due
    }

    /// Says in which slices this node is there, with their epochs, 0 for the others, and the bit
    /// [`CLOSED`]: at once after a change, and again and again.
    pub(crate) fn say(
        &mut self,
        now: Timestamp,
        (from, to): (Boot, Boot),
        epochs: &[Epoch],
        link: &mut dyn PartnerLink,
    ) {
        // A node that is nowhere there has nothing to say after the word that says so.
        let is_silent = |epochs: &[Epoch]| epochs.iter().all(|epoch| *epoch == 0);
        let is_new = self.said != epochs && !(self.said.is_empty() && is_silent(epochs));
        if !is_new && (now < self.next || is_silent(epochs)) {
            return;
        }
        epochs.clone_into(&mut self.said);
        self.next = now.plus(INTERVAL);
        self.number += 1;
        for (place, epochs) in epochs.chunks(SLICES).enumerate() {
            let (number, first) = (self.number, (place * SLICES) as u16);
            let word = Presence { from, to, number, first, epochs: epochs.to_vec() };
            // A lost word is repeated.
            let _ = link.pass(&word.write());
        }
    }
}
