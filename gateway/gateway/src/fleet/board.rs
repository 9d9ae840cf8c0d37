//! What the workers of one node tell each other about the pair.
//!
//! The leading worker decides, and gives orders for each slice. Every worker carries them out in
//! its own engine and reports. Nobody waits: a worker looks once a turn.

use super::refusal::Refusal;
use super::tunnel;
use crate::pcp::CommonEpoch;
use natgate_engine::Timestamp;
use natgate_pair::{Epoch, ReceivedCounters, Sent, Stream};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most messages of the partner that wait for a worker, and their bytes.
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 16 << 20;

/// A worker's part in a slice from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// A number that grows when the owner or the streams change; 0: no order yet.
    pub(super) turn: u64,
    /// The stream to send, and the one to receive.
    pub(super) destination: Option<Stream>,
    pub(super) source: Option<Stream>,
    /// Number of the partner's workers: each reads the one, and sends the other.
    pub(super) of_partner: u8,
    /// The epoch of the slice.
    pub(super) epoch: Epoch,
    /// True if this node owns the slice, and if its workers assign ports.
    pub(super) owns: bool,
    pub(super) assigns: bool,
    /// Number of the drain that goes on; 0: none does.
    pub(super) drain: u64,
    /// Number of the end of the drain: workers change no requested mapping any more, so that the
    /// slice can be given away; 0: they carry requests out.
    pub(super) ends: u64,
    /// True if the partner has given the slice to this node in this epoch.
    pub(super) is_given: bool,
    /// The last epoch that began because this node gave the slice to the partner, and the time of
    /// that.
    pub(super) gave: Option<(Epoch, Timestamp)>,
}

impl Order {
    /// True if this node was the owner in an epoch, and gave the slice to the partner at its end,
    /// when the present epoch began. The node still takes the partner's packets of that epoch, and
    /// its copies translate them.
    pub(super) fn gave_after(&self, epoch: Epoch) -> bool {
        self.gave
            .is_some_and(|(began, _)| began == self.epoch && epoch.checked_add(1) == Some(began))
    }
}

/// What a worker has done in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The turn whose streams it has.
    pub(super) turn: u64,
    /// Mappings whose copies it had when the turn began. `None`: it received no stream.
    pub(super) copies: Option<u32>,
    /// The drain in which the partner has confirmed everything of this worker; 0: none. And the
    /// end of a drain in which the partner has, and nothing changes by requests any more; 0: none.
    pub(super) drained: u64,
    pub(super) ended: u64,
    /// Mark of the loss of requested mappings that all workers of the partner have heard of; 0:
    /// none.
    pub(super) heard: u64,
    /// The drain that goes on, if the partner has all that this worker had before it, but for what
    /// it has no place for; 0: it has not.
    pub(super) told: u64,
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

/// Messages of the partner that wait for a worker.
#[derive(Debug, Default)]
struct Messages {
    queue: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

/// Words of a block that change their worker: address, words, and held ports with their protocols.
pub(super) type GivenBlock = (Ipv4Addr, Range<usize>, Vec<(u8, u16)>);

/// One worker's place on the board.
#[derive(Debug, Default)]
struct Place {
    messages: Mutex<Messages>,
    /// Ports that this worker gives out and whose mappings have ended at other workers.
    returned: Mutex<VecDeque<u128>>,
    /// Blocks that other workers have given to this one, because it has their subscribers.
    blocks: Mutex<Vec<GivenBlock>>,
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
    tunnel: Arc<tunnel::Shared>,
    ways: tunnel::Ways,
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
            tunnel: Arc::default(),
            ways: tunnel::Ways::new(workers),
        }
    }

    /// What the workers share about the tunnel.
    pub(super) fn tunnel(&self) -> &Arc<tunnel::Shared> {
        &self.tunnel
    }

    /// What the workers know about the ways to hosts.
    pub(super) fn ways(&self) -> &tunnel::Ways {
        &self.ways
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
        let bytes = messages.bytes + message.len();
        // A single message always has room.
        let has_room = messages.queue.len() < MOST_WAITING && bytes <= MOST_BYTES;
        if has_room || messages.queue.is_empty() {
            messages.queue.push_back(Arc::clone(message));
            messages.bytes = bytes;
        }
    }

    /// The next message of the partner for a worker.
    pub(super) fn message(&self, worker: usize) -> Option<Arc<[u8]>> {
        let mut messages = lock(&self.places[worker].messages);
        let message = messages.queue.pop_front()?;
        messages.bytes -= message.len();
        Some(message)
    }

    /// Number of messages that wait for a worker.
    pub(super) fn waiting(&self, worker: usize) -> usize {
        lock(&self.places[worker].messages).queue.len()
    }

    /// Tells the worker that gives out a port that the port's mapping has ended elsewhere. `clear`
    /// takes the port from the list of strays, and returns false if it was not there. A worker that
    /// finds the port in the list no more finds it among the returned ones.
    pub(super) fn give_back(&self, worker: usize, port: u128, clear: impl FnOnce() -> bool) {
        let Some(place) = self.places.get(worker) else { return };
        let mut returned = lock(&place.returned);
        if clear() {
            returned.push_back(port);
        }
    }

    /// Takes ports that were given back to a worker, `most` at most. Returns them, and true if none
    /// is left.
    pub(super) fn returned(&self, worker: usize, most: usize) -> (Vec<u128>, bool) {
        let mut returned = lock(&self.places[worker].returned);
        let count = returned.len().min(most);
        let ports = returned.drain(..count).collect();
        (ports, returned.is_empty())
    }

    /// Gives words of a block to a worker. `enter` enters that in the partition. A worker that
    /// finds its new words there finds the block here, with its held ports.
    pub(super) fn give_block(&self, worker: usize, block: GivenBlock, enter: impl FnOnce()) {
        let mut blocks = lock(&self.places[worker].blocks);
        blocks.push(block);
        enter();
    }

    /// Takes the blocks that a worker has been given.
    pub(super) fn blocks(&self, worker: usize) -> Vec<GivenBlock> {
        std::mem::take(&mut lock(&self.places[worker].blocks))
    }

    /// Blocks that a worker has been given and has not taken yet.
    #[cfg(test)]
    pub(super) fn waiting_blocks(&self, worker: usize) -> Vec<GivenBlock> {
        lock(&self.places[worker].blocks).clone()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_wait_have_bounds_and_leave_room_when_they_are_taken() {
        let board = Board::new(2, CommonEpoch::new(0));
        let bytes = |board: &Board| lock(&board.places[1].messages).bytes;
        let large: Arc<[u8]> = vec![7; 1 << 20].into();
        (0..100).for_each(|_| board.deliver(1, &large));
        assert_eq!((board.waiting(1), bytes(&board)), (16, MOST_BYTES));
        assert_eq!(board.waiting(0), 0);
        board.message(1).expect("one waits");
        board.deliver(1, &large);
        assert_eq!(board.waiting(1), 16);
        while board.message(1).is_some() {}
        assert_eq!(bytes(&board), 0);
        let larger: Arc<[u8]> = vec![7; MOST_BYTES + 1].into();
        (0..3).for_each(|_| board.deliver(1, &larger));
        assert_eq!(board.waiting(1), 1, "a message alone has room");
        board.message(1).expect("one waits");
        let small: Arc<[u8]> = vec![7].into();
        (0..2 * MOST_WAITING).for_each(|_| board.deliver(1, &small));
        assert_eq!((board.waiting(1), bytes(&board)), (MOST_WAITING, MOST_WAITING));
    }

    /// So no worker finds its words in the partition and their held ports not here.
    #[test]
    fn a_block_and_its_words_in_the_partition_come_in_one_step() {
        let board = Board::new(2, CommonEpoch::new(0));
        let block = || (Ipv4Addr::LOCALHOST, 3..5, vec![(17, 200)]);
        board.give_block(1, block(), || {
            let blocks = board.places[1].blocks.try_lock();
            assert!(blocks.is_err(), "the other worker waits");
        });
        assert_eq!(board.blocks(1), [block()]);
        assert_eq!((board.blocks(1), board.blocks(0)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_port_is_returned_once_and_in_shares() {
        let board = Board::new(2, CommonEpoch::new(0));
        (0..10).for_each(|port| board.give_back(1, port, || port != 3));
        board.give_back(9, 1, || unreachable!("there is no such worker"));
        assert_eq!(board.returned(1, 4), (vec![0, 1, 2, 4], false));
        assert_eq!(board.returned(1, 5), (vec![5, 6, 7, 8, 9], true));
        assert_eq!(board.returned(1, 5), (Vec::new(), true));
    }
}
