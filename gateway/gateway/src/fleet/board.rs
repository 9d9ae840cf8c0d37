//! What the workers of one node tell each other about the pair.
//!
//! The leading worker decides, and gives orders for each slice. Every worker carries them out in
//! its own engine and reports. Nobody waits: a worker looks once a turn.

use super::refusal::Refusal;
use crate::pcp::CommonEpoch;
use natgate_engine::Timestamp;
use natgate_pair::{ReceivedCounters, Sent, Stream};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most messages of the partner that wait for a worker.
const MOST_WAITING: usize = 4096;

/// A worker's part in a slice from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// A number that grows when the owner or the streams change; 0: no order yet.
    pub(super) turn: u64,
    /// The stream to send, and the one to receive.
    pub(super) destination: Option<Stream>,
    pub(super) source: Option<Stream>,
    /// True if this node owns the slice, and if its workers assign ports.
    pub(super) owns: bool,
    pub(super) assigns: bool,
    /// Number of the drain that goes on; 0: none does.
    pub(super) drain: u64,
    /// True if the partner has given the slice to this node in this turn.
    pub(super) is_given: bool,
}

/// What a worker has done in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The turn whose streams it has.
    pub(super) turn: u64,
    /// Mappings whose copies it had when the turn began. `None`: it received no stream.
    pub(super) copies: Option<u32>,
    /// The drain in which the partner has confirmed everything of this worker; 0: none.
    pub(super) drained: u64,
    /// Mark of the loss of requested mappings that all workers of the partner have heard of; 0:
    /// none.
    pub(super) heard: u64,
}

/// Figures of a worker about a slice, for people.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) is_complete: bool,
    pub(super) completed: Option<Timestamp>,
    pub(super) lag: u64,
    pub(super) sent: Option<Sent>,
    pub(super) received: Option<ReceivedCounters>,
    pub(super) refusal: Refusal,
    pub(super) records_without_realm: Option<u64>,
    pub(super) ended_to_move: u64,
}

impl Figures {
    /// Figures of two workers as those of one. The later worker counts for the age.
    pub(super) fn plus(self, other: &Self) -> Self {
        fn sum<T: Copy>(one: Option<T>, other: Option<T>, plus: impl Fn(T, T) -> T) -> Option<T> {
            one.zip(other).map(|(one, other)| plus(one, other)).or(one).or(other)
        }
        Self {
            is_complete: self.is_complete && other.is_complete,
            completed: self.completed.zip(other.completed).map(|(one, other)| one.min(other)),
            lag: self.lag.max(other.lag),
            sent: sum(self.sent, other.sent, Sent::plus),
            received: sum(self.received, other.received, ReceivedCounters::plus),
            refusal: self.refusal.plus(&other.refusal),
            records_without_realm: sum(
                self.records_without_realm,
                other.records_without_realm,
                |one, other| one + other,
            ),
            ended_to_move: self.ended_to_move + other.ended_to_move,
        }
    }
}

/// Figures of a worker: of each slice, and the ports that rest.
pub(super) type AllFigures = (Vec<Figures>, u64);

/// One worker's place on the board.
#[derive(Debug, Default)]
struct Place {
    /// Messages of the partner.
    messages: Mutex<VecDeque<Arc<[u8]>>>,
    /// Ports that this worker gives out and whose mappings have ended at other workers.
    returned: Mutex<Vec<u128>>,
    reports: Mutex<Vec<Report>>,
    figures: Mutex<AllFigures>,
    /// Number of turns.
    turns: AtomicU64,
}

/// The board of one node.
#[derive(Debug)]
pub(super) struct Board {
    orders: Mutex<Vec<Order>>,
    /// Grows with each change of the orders.
    version: AtomicU64,
    epoch: Mutex<CommonEpoch>,
    places: Vec<Place>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub(super) fn new(workers: usize, epoch: CommonEpoch) -> Self {
        Self {
            orders: Mutex::default(),
            version: AtomicU64::new(0),
            epoch: Mutex::new(epoch),
            places: (0..workers).map(|_| Place::default()).collect(),
        }
    }

    pub(super) fn workers(&self) -> usize {
        self.places.len()
    }

    /// The epoch of the pair's requested mappings.
    pub(super) fn epoch(&self) -> MutexGuard<'_, CommonEpoch> {
        lock(&self.epoch)
    }

    /// Gives orders, one for each slice. Messages that were delivered before come first.
    pub(super) fn order(&self, orders: &[Order]) {
        let mut known = lock(&self.orders);
        if *known != orders {
            orders.clone_into(&mut known);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Takes the present orders, if their version is another than `version`. Returns true if so.
    pub(super) fn orders(&self, version: &mut u64, orders: &mut Vec<Order>) -> bool {
        let is_new = self.version.load(Ordering::Acquire) != *version;
        if is_new {
            let known = lock(&self.orders);
            *version = self.version.load(Ordering::Acquire);
            known.clone_into(orders);
        }
        is_new
    }

    /// Delivers a message of the partner to a worker. Without room it is lost, as on the link.
    pub(super) fn deliver(&self, worker: usize, message: &Arc<[u8]>) {
        let Some(place) = self.places.get(worker) else { return };
        let mut messages = lock(&place.messages);
        if messages.len() < MOST_WAITING {
            messages.push_back(Arc::clone(message));
        }
    }

    /// The next message of the partner for a worker.
    pub(super) fn message(&self, worker: usize) -> Option<Arc<[u8]>> {
        lock(&self.places[worker].messages).pop_front()
    }

    /// Number of messages that wait for a worker.
    pub(super) fn waiting(&self, worker: usize) -> usize {
        lock(&self.places[worker].messages).len()
    }

    /// Tells the worker that gives out a port that the port's mapping has ended elsewhere.
    pub(super) fn give_back(&self, worker: usize, port: u128) {
        lock(&self.places[worker].returned).push(port);
    }

    /// Takes the ports that were given back to a worker.
    pub(super) fn returned(&self, worker: usize) -> Vec<u128> {
        std::mem::take(&mut *lock(&self.places[worker].returned))
    }

    pub(super) fn report(&self, worker: usize, reports: impl Iterator<Item = Report>) {
        let mut known = lock(&self.places[worker].reports);
        known.clear();
        known.extend(reports);
    }

    /// The reports of all workers about a slice. `None`: a worker has reported nothing yet.
    pub(super) fn reports(&self, slice: usize) -> Option<Vec<Report>> {
        self.places.iter().map(|place| lock(&place.reports).get(slice).copied()).collect()
    }

    pub(super) fn tell_figures(&self, worker: usize, figures: AllFigures) {
        *lock(&self.places[worker].figures) = figures;
    }

    /// The last figures of a worker.
    pub(super) fn figures(&self, worker: usize) -> AllFigures {
        lock(&self.places[worker].figures).clone()
    }

    pub(super) fn count_turn(&self, worker: usize) {
        self.places[worker].turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of turns of each worker.
    pub(super) fn turns(&self) -> impl Iterator<Item = u64> + '_ {
        self.places.iter().map(|place| place.turns.load(Ordering::Relaxed))
    }
}
