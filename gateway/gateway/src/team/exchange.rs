//! How packets come from one worker to another: a bounded ring for each pair of them and direction,
//! with one producer and one consumer. What is handed over is copied once, into a buffer that the
//! receiver gives back by a second ring, so nothing is allocated while packets flow. A worker that
//! sleeps is woken when something has come for it, by whatever its sleep is ended by.
//!
//! Processors wait for each other when one reads what another has just written. So a ring is
//! written once a turn, with all that has come together; the buffer that has come back last is used
//! first, so that few go to and fro; and whoever takes parcels has all of their packets fetched
//! before it looks at the first.

use crate::link::Link;
use crate::pcp::RequestClass;
use natgate_hugepages::prefetch_to_write;
use natgate_io::HEADROOM;
use natgate_wire::arp::Mac;
use rtrb::{Consumer, Producer, RingBuffer};
use std::fmt::Debug;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Packets that wait between two workers, at most, and for how many there is room in all; of many
/// workers each pair has less, but some.
const DEPTH: usize = 1024;
const LEAST_DEPTH: usize = 32;
const ROOM: usize = 16 * DEPTH;

/// What comes together at most, before the receiver is let see it.
const TOGETHER: usize = natgate_io::BATCH;

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// What a parcel's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An IP packet as it came in by a link.
    Packet(Link),
    /// An IP packet to the gateway itself, as it came in by a link, and the frame's source.
    Local(Link, Mac),
    /// An IP packet from a realm that turns round, with its sender's end translated.
    Turned(u16),
    /// The same of an ICMP error of the router's own, which has not come in.
    Error(u16),
    /// A request from a realm for a mapping of a host there.
    Request {
        /// The realm's number.
        realm: u16,
        /// The host's address.
        host: u32,
        /// The class that the request was admitted to.
        class: RequestClass,
    },
    /// An Ethernet frame with ARP, without a tag, for everybody to learn from.
    Arp(Link),
}

impl Kind {
    /// The link that it counts as coming in by: what turns round comes back from outside.
    pub(super) fn link(self) -> Link {
        match self {
            Self::Packet(link) | Self::Local(link, _) | Self::Arp(link) => link,
            Self::Request { realm, .. } => Link::inside(realm),
            Self::Turned(_) | Self::Error(_) => Link::OUTSIDE,
        }
    }
}

/// Who has been asked whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerLookup {
    /// It is the receiver's.
    Settled,
    /// The receiver is to find out, from the first fragment.
    Guide,
    /// So many workers do not know it; it is of a protocol without ports.
    Portless(u8),
    /// These workers, a bit each, may still know its host inside; if none does, it is its bucket's
    /// owner's.
    Former(u64),
}

/// Bytes on their way to another worker.
#[derive(Debug)]
pub(crate) struct HandedPacket {
    pub(crate) kind: Kind,
    pub(crate) asked: OwnerLookup,
    pub(crate) buffer: Box<[u8]>,
    /// Where the bytes begin and end.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The way to one worker.
#[derive(Debug)]
struct Outgoing {
    parcels: Producer<HandedPacket>,
    /// What the receiver does not see yet.
    waiting: Vec<HandedPacket>,
    empty: Consumer<Box<[u8]>>,
    /// Buffers that nobody uses, the last one first.
    spare: Vec<Box<[u8]>>,
    waker: Arc<Waker>,
    /// Whether something was sent since the receiver was last looked after.
    is_due: bool,
}

/// The way from one worker.
#[derive(Debug)]
struct Incoming {
    parcels: Consumer<HandedPacket>,
    empty: Producer<Box<[u8]>>,
    /// Buffers that the sender does not see yet.
    returned: Vec<Box<[u8]>>,
}

/// What ends a worker's sleep.
pub trait Wake: Send + Sync + Debug {
    /// Ends it, or else the next as soon as it begins. Does not wait.
    fn wake(&self);
}

/// A byte for who waits for one at the other end.
#[derive(Debug)]
struct ByByte(UnixStream);

impl Wake for ByByte {
    fn wake(&self) {
        // A full pipe wakes, too.
        let _ = (&self.0).write_all(&[0]);
    }
}

impl From<UnixStream> for Box<dyn Wake> {
    fn from(stream: UnixStream) -> Self {
        // A pipe that is full has bytes that wake.
        let _ = stream.set_nonblocking(true);
        Box::new(ByByte(stream))
    }
}

/// Wakes a worker. Alone in its cache line, since others look at it whenever they hand over.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Waker {
    asleep: AtomicBool,
    /// Whether there is something for it that is not in a ring.
    noted: AtomicBool,
    end: Box<dyn Wake>,
}

impl Waker {
    pub(super) fn new(end: impl Into<Box<dyn Wake>>) -> Arc<Self> {
        let end = end.into();
        Arc::new(Self { asleep: AtomicBool::new(false), noted: AtomicBool::new(false), end })
    }

    /// Tells the worker that there is something for it beside packets.
    pub(super) fn note(&self) {
        self.noted.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether it was told so since it asked.
    pub(super) fn take_note(&self) -> bool {
        self.noted.load(Ordering::Relaxed) && self.noted.swap(false, Ordering::Acquire)
    }

    /// Wakes the worker if it sleeps.
    pub(super) fn wake(&self) {
        // What was sent must be seen by a receiver that looks once more before it sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.end.wake();
        }
    }
}

/// A worker's ways from and to the others.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// By worker; none to itself.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    own: Arc<Waker>,
    /// Where to look next.
    next: usize,
}

/// The exchanges of workers that are woken so; a parcel holds so many bytes.
pub(super) fn exchanges(wakers: &[Arc<Waker>], longest: usize) -> Vec<Exchange> {
    let workers = wakers.len();
    let depth = depth(workers);
    let exchange = |own: &Arc<Waker>| Exchange {
        outgoing: (0..workers).map(|_| None).collect(),
        incoming: (0..workers).map(|_| None).collect(),
        own: Arc::clone(own),
        next: 0,
    };
    let mut all: Vec<Exchange> = wakers.iter().map(exchange).collect();
    for from in 0..workers {
        for to in (0..workers).filter(|&to| to != from) {
            let (outgoing, incoming) = way(&wakers[to], depth, longest);
            all[from].outgoing[to] = Some(outgoing);
            all[to].incoming[from] = Some(incoming);
        }
    }
    all
}

/// Packets that wait between two of so many workers, at most.
fn depth(workers: usize) -> usize {
    (ROOM / (workers * workers)).clamp(LEAST_DEPTH, DEPTH)
}

/// Bytes that the exchanges of so many workers take whose parcels hold so many.
pub(super) fn memory(workers: usize, longest: usize) -> usize {
    let ways = workers * (workers - 1);
    let each = room_for(longest) + size_of::<HandedPacket>() + 2 * size_of::<Box<[u8]>>();
    ways * depth(workers) * each
}

/// Bytes of a parcel's buffer.
fn room_for(longest: usize) -> usize {
    HEADROOM + CACHE_LINE + longest
}

/// The ways between a worker and one that joins it.
#[derive(Debug)]
pub(super) struct Ways {
    outgoing: Outgoing,
    incoming: Incoming,
}

/// The exchange of a worker that joins those that are woken so, and for each of them the ways
/// between it and the newcomer.
pub(super) fn join(
    wakers: &[Arc<Waker>],
    own: &Arc<Waker>,
    longest: usize,
) -> (Exchange, Vec<Ways>) {
    let depth = depth(wakers.len() + 1);
    let mut exchange =
        Exchange { outgoing: Vec::new(), incoming: Vec::new(), own: Arc::clone(own), next: 0 };
    let mut others = Vec::new();
    for waker in wakers {
        let (outgoing, received) = way(waker, depth, longest);
        let (to_newcomer, incoming) = way(own, depth, longest);
        exchange.outgoing.push(Some(outgoing));
        exchange.incoming.push(Some(incoming));
        others.push(Ways { outgoing: to_newcomer, incoming: received });
    }
    exchange.outgoing.push(None);
    exchange.incoming.push(None);
    (exchange, others)
}

/// A way to the worker that is woken so.
fn way(to: &Arc<Waker>, depth: usize, longest: usize) -> (Outgoing, Incoming) {
    let (parcels, received) = RingBuffer::new(depth);
    let (empty, taken) = RingBuffer::new(depth);
    let buffer = |_| vec![0; room_for(longest)].into_boxed_slice();
    let outgoing = Outgoing {
        parcels,
        waiting: Vec::with_capacity(TOGETHER),
        empty: taken,
        spare: (0..depth).map(buffer).collect(),
        waker: Arc::clone(to),
        is_due: false,
    };
    let returned = Vec::with_capacity(TOGETHER);
    (outgoing, Incoming { parcels: received, empty, returned })
}

/// Lets the other end of a ring see things, for which there is room: there are as many as it is
/// long.
fn publish<T>(ring: &mut Producer<T>, things: &mut Vec<T>) {
    if let Ok(room) = ring.write_chunk_uninit(things.len()) {
        room.fill_from_iter(things.drain(..));
    }
}

impl Outgoing {
    /// Copies bytes into a parcel; `false`: there is no buffer, or they are too many.
    fn put(&mut self, kind: Kind, asked: OwnerLookup, bytes: &[u8]) -> bool {
        let fits = |buffer: &mut Box<[u8]>| start_in(buffer) + bytes.len() <= buffer.len();
        let Some(mut buffer) = self.spare.pop_if(fits) else { return false };
        let start = start_in(&buffer);
        let end = start + bytes.len();
        buffer[start..end].copy_from_slice(bytes);
        self.waiting.push(HandedPacket { kind, asked, buffer, start, end });
        self.is_due = true;
        if self.waiting.len() == TOGETHER {
            publish(&mut self.parcels, &mut self.waiting);
        }
        true
    }

    /// Lets the receiver see what was sent, and takes the buffers that have come back.
    fn flush(&mut self) {
        if std::mem::take(&mut self.is_due) {
            publish(&mut self.parcels, &mut self.waiting);
            self.waker.wake();
        }
        if self.spare.len() < self.spare.capacity()
            && let Ok(back) = self.empty.read_chunk(self.empty.slots())
        {
            for buffer in back {
                prefetch_to_write(&buffer, start_in(&buffer));
                self.spare.push(buffer);
            }
        }
    }
}

/// Where bytes begin in a buffer: at a cache line's beginning, so that a packet's headers are in
/// one.
fn start_in(buffer: &[u8]) -> usize {
    HEADROOM + (buffer.as_ptr().addr() + HEADROOM).wrapping_neg() % CACHE_LINE
}

impl Exchange {
    /// Takes a newcomer in.
    pub(super) fn welcome(&mut self, Ways { outgoing, incoming }: Ways) {
        self.outgoing.push(Some(outgoing));
        self.incoming.push(Some(incoming));
    }

    /// Hands bytes over; `false`: the receiver has too much to do already, or they are too many.
    pub(super) fn give(&mut self, to: usize, kind: Kind, asked: OwnerLookup, bytes: &[u8]) -> bool {
        self.outgoing[to].as_mut().is_some_and(|way| way.put(kind, asked, bytes))
    }

    /// Hands the same bytes to all others that have room.
    pub(super) fn tell_all(&mut self, kind: Kind, bytes: &[u8]) {
        for to in 0..self.outgoing.len() {
            self.give(to, kind, OwnerLookup::Settled, bytes);
        }
    }

    /// Has others see what was sent to them and given back, and wakes those whom something was
    /// sent.
    pub(super) fn flush(&mut self) {
        self.outgoing.iter_mut().flatten().for_each(Outgoing::flush);
        for Incoming { empty, returned, .. } in self.incoming.iter_mut().flatten() {
            publish(empty, returned);
        }
    }

    /// Takes what has come from others, as much as there is room for, from each in turn.
    pub(super) fn take(&mut self, mut parcel: impl FnMut(usize, HandedPacket), most: usize) {
        let workers = self.incoming.len();
        let mut room = most;
        for step in 0..workers {
            let from = (self.next + step) % workers;
            let Some(way) = &mut self.incoming[from] else { continue };
            let Ok(some) = way.parcels.read_chunk(way.parcels.slots().min(room)) else { continue };
            room -= some.len();
            for one in some {
                prefetch_to_write(&one.buffer, one.start);
                parcel(from, one);
            }
        }
        self.next = (self.next + 1) % workers;
    }

    /// Gives a parcel's buffer back to whom it came from.
    pub(super) fn give_back(&mut self, from: usize, buffer: Box<[u8]>) {
        if let Some(way) = &mut self.incoming[from] {
            way.returned.push(buffer);
        }
    }

    /// Whether something has come.
    fn has_parcels(&self) -> bool {
        self.incoming.iter().flatten().any(|way| !way.parcels.is_empty())
    }

    /// Says that the worker is going to sleep; `false`: it is not to, something has come.
    pub(super) fn falls_asleep(&self) -> bool {
        self.own.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !self.has_parcels() && !self.own.noted.load(Ordering::Relaxed);
        if !may {
            self.wakes_up();
        }
        may
    }

    /// Says that the worker is awake.
    pub(super) fn wakes_up(&self) {
        self.own.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const KIND: Kind = Kind::Packet(Link::OUTSIDE);

    fn two() -> ([Exchange; 2], Vec<UnixStream>) {
        let (ends, wakers): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (end, other) = UnixStream::pair().expect("a pair of sockets");
                end.set_nonblocking(true).expect("it can be set");
                (end, Waker::new(other))
            })
            .unzip();
        let all = exchanges(&wakers, 100);
        (all.try_into().expect("two exchanges"), ends)
    }

    fn taken(exchange: &mut Exchange) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut back = Vec::new();
        let take = |from, parcel: HandedPacket| {
            all.push(parcel.buffer[parcel.start..parcel.end].to_vec());
            back.push((from, parcel.buffer));
        };
        exchange.take(take, 64);
        back.into_iter().for_each(|(from, buffer)| exchange.give_back(from, buffer));
        exchange.flush();
        all
    }

    #[test]
    fn parcels_come_in_order_and_their_buffers_come_back() {
        let ([mut a, mut b], _ends) = two();
        for round in 0..3 * DEPTH {
            assert!(a.give(1, KIND, OwnerLookup::Settled, &[round as u8; 7]));
            assert_eq!(taken(&mut b), Vec::<Vec<u8>>::new(), "it is not seen yet");
            a.flush();
            assert_eq!(taken(&mut b), [vec![round as u8; 7]]);
        }
        assert_eq!(taken(&mut a), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_full_ring_takes_no_more_and_what_is_too_long_is_refused() {
        let ([mut a, mut b], _ends) = two();
        assert!(!a.give(1, KIND, OwnerLookup::Settled, &[0; 200]));
        let given = (0..2 * DEPTH).filter(|_| a.give(1, KIND, OwnerLookup::Settled, &[1])).count();
        assert_eq!(given, DEPTH);
        assert!(!a.give(0, KIND, OwnerLookup::Settled, &[1]), "there is no way to itself");
        let all: usize = (0..DEPTH / 64).map(|_| taken(&mut b).len()).sum();
        assert_eq!(all, DEPTH, "what comes together is seen");
        a.flush();
        assert!(a.give(1, KIND, OwnerLookup::Settled, &[1]));
    }

    #[test]
    fn who_sleeps_is_woken_once() {
        let ([mut a, b], mut ends) = two();
        assert!(b.falls_asleep());
        for _ in 0..2 {
            assert!(a.give(1, KIND, OwnerLookup::Settled, &[1]));
            a.flush();
        }
        let mut bytes = [0; 8];
        assert_eq!(ends[1].read(&mut bytes).ok(), Some(1));
        assert!(ends[1].read(&mut bytes).is_err(), "nothing more was written");
        assert!(!b.falls_asleep(), "something has come");
    }
}
