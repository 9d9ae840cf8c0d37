//! Transport of packets between workers: for each pair of workers and direction a bounded ring with
//! one producer and one consumer. A packet is copied once, into a buffer that the receiver returns
//! by a second ring, so nothing is allocated while packets flow. A sleeping worker is woken by its
//! [`Wake`] if something has come for it.
//!
//! Processors wait for each other when one reads memory that another has just written. So a ring is
//! written once a turn, with all packets of the turn; the buffer that was returned last is used
//! first, so that few buffers move between caches; and the receiver prefetches all packets before
//! it reads the first.

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

/// Most packets that wait between two workers, and the room for all pairs together. With many
/// workers each pair has less, but at least `LEAST_DEPTH`.
const DEPTH: usize = 1024;
const LEAST_DEPTH: usize = 32;
const ROOM: usize = 16 * DEPTH;

/// Most packets that gather before the receiver sees them.
const TOGETHER: usize = natgate_io::BATCH;

/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// Places behind the last buffer of a list, so that the list's end has no line (nor the adjacent
/// one, which is prefetched with it) with a list of the other end of the ring.
const APART: usize = 2 * CACHE_LINE / size_of::<Box<[u8]>>();

/// Content of a handed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An IP packet as it came in by a link, and its frame's source, by which the owner of the
    /// sender tells hosts from forgers.
    Packet(Link, Mac),
    /// An IP packet that came in by a link of the other node of a pair.
    Passed(Link),
    /// A hairpin IP packet from a realm, with the sender's endpoint translated.
    Turned(u16),
    /// A hairpin ICMP error of the router's own, with the sender's endpoint translated.
    Error(u16),
    /// A request from a realm for a mapping of a host there.
    Request {
        /// Number of the realm.
        realm: u16,
        /// Address of the host.
        host: u32,
        /// Class that the request was admitted to.
        class: RequestClass,
    },
    /// An Ethernet frame with ARP, without a tag; every worker learns from it.
    Arp(Link),
    /// An IPv6 packet for the gateway itself, and its frame's source; every worker learns from it.
    Told(Link, Mac),
}

impl Kind {
    /// Link that the content counts as coming in by. A hairpin packet comes back from outside.
    pub(crate) fn link(self) -> Link {
        match self {
            Self::Packet(link, _) | Self::Passed(link) | Self::Arp(link) | Self::Told(link, _) => {
                link
            }
            Self::Request { realm, .. } => Link::inside(realm),
            Self::Turned(_) | Self::Error(_) => Link::OUTSIDE,
        }
    }
}

/// State of the search for a packet's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerLookup {
    /// The receiver owns the packet.
    Settled,
    /// The receiver finds the owner, from the first fragment.
    Guide,
    /// Number of workers that do not know the packet. Its protocol has no ports.
    Portless(u8),
    /// This worker owns the packet, a first fragment of a protocol without ports. The receiver has
    /// later fragments follow it.
    Found(u8),
    /// Workers, one bit each, that may still know the packet's internal host. If none does, the
    /// owner of the host's bucket owns the packet.
    Former(u64),
}

/// A packet on its way to another worker.
#[derive(Debug)]
pub(crate) struct HandedPacket {
    pub(crate) kind: Kind,
    pub(crate) asked: OwnerLookup,
    pub(crate) buffer: Box<[u8]>,
    /// Offsets of the packet's first byte and of its end in the buffer.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Ring to one worker. It shares no cache line with data of that worker.
#[derive(Debug)]
#[repr(align(128))]
struct Outgoing {
    parcels: Producer<HandedPacket>,
    /// Packets that the receiver does not see yet.
    waiting: Vec<HandedPacket>,
    empty: Consumer<Box<[u8]>>,
    /// Unused buffers. The last one is used first.
    spare: Vec<Box<[u8]>>,
    /// Number of all buffers.
    depth: usize,
    waker: Arc<Waker>,
    /// True if something was sent since the last flush.
    is_due: bool,
}

/// Ring from one worker. It shares no cache line with data of that worker.
#[derive(Debug)]
#[repr(align(128))]
struct Incoming {
    parcels: Consumer<HandedPacket>,
    empty: Producer<Box<[u8]>>,
    /// Buffers that the sender does not see yet.
    returned: Vec<Box<[u8]>>,
}

/// Ends a worker's sleep.
pub trait Wake: Send + Sync + Debug {
    /// Ends the current sleep, or else the next one as soon as it begins. Does not wait.
    fn wake(&self);
}

/// Wakes a worker that waits for a byte at the other end of a stream.
#[derive(Debug)]
struct ByByte(UnixStream);

impl Wake for ByByte {
    fn wake(&self) {
        // A full pipe wakes the worker, too.
        let _ = (&self.0).write_all(&[0]);
    }
}

impl From<UnixStream> for Box<dyn Wake> {
    fn from(stream: UnixStream) -> Self {
        // A full pipe holds bytes that wake the worker.
        let _ = stream.set_nonblocking(true);
        Box::new(ByByte(stream))
    }
}

/// Wakes a worker. It is alone in its cache line, because other workers read it at each hand-over.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Waker {
    asleep: AtomicBool,
    /// True if there is something for the worker outside the rings.
    noted: AtomicBool,
    end: Box<dyn Wake>,
}

impl Waker {
    pub(super) fn new(end: impl Into<Box<dyn Wake>>) -> Arc<Self> {
        let end = end.into();
        Arc::new(Self { asleep: AtomicBool::new(false), noted: AtomicBool::new(false), end })
    }

    /// Notifies the worker of something outside the rings.
    pub(super) fn note(&self) {
        self.noted.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true if a notification came since the last call.
    pub(super) fn take_note(&self) -> bool {
        self.noted.load(Ordering::Relaxed) && self.noted.swap(false, Ordering::Acquire)
    }

    /// Wakes the worker if it sleeps.
    pub(super) fn wake(&self) {
        // A receiver that looks once more before it sleeps must see what was sent.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.end.wake();
        }
    }
}

/// Rings of a worker from and to the others.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Rings by worker; `None` for the worker itself.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    own: Arc<Waker>,
    /// Worker to look at first in the next call.
    next: usize,
}

/// Creates the exchanges of all workers; a packet has at most `longest` bytes.
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

/// Most packets that wait between two of `workers` workers.
fn depth(workers: usize) -> usize {
    (ROOM / (workers * workers)).clamp(LEAST_DEPTH, DEPTH)
}

/// Bytes of memory that the exchanges take.
pub(super) fn memory(workers: usize, longest: usize) -> usize {
    let ways = workers * (workers - 1);
    let each = room_for(longest) + size_of::<HandedPacket>() + 2 * size_of::<Box<[u8]>>();
    ways * depth(workers) * each
}

/// Bytes of a packet's buffer.
fn room_for(longest: usize) -> usize {
    HEADROOM + CACHE_LINE + longest
}

/// Rings between a worker and one that joins.
#[derive(Debug)]
pub(super) struct Ways {
    outgoing: Outgoing,
    incoming: Incoming,
}

/// Creates the exchange of a worker that joins, and for each present worker its rings from and to
/// the newcomer.
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

/// Creates a ring to the worker of `to`.
fn way(to: &Arc<Waker>, depth: usize, longest: usize) -> (Outgoing, Incoming) {
    let (parcels, received) = RingBuffer::new(depth);
    let (empty, taken) = RingBuffer::new(depth);
    let buffer = |_| vec![0; room_for(longest)].into_boxed_slice();
    let mut spare = Vec::with_capacity(depth + APART);
    spare.extend((0..depth).map(buffer));
    let outgoing = Outgoing {
        parcels,
        waiting: Vec::with_capacity(TOGETHER),
        empty: taken,
        spare,
        depth,
        waker: Arc::clone(to),
        is_due: false,
    };
    let returned = Vec::with_capacity(TOGETHER + APART);
    (outgoing, Incoming { parcels: received, empty, returned })
}

/// Makes elements visible to the other end of a ring. There is always room: a ring is as long as
/// there are elements.
fn publish<T>(ring: &mut Producer<T>, things: &mut Vec<T>) {
    if !things.is_empty()
        && let Ok(room) = ring.write_chunk_uninit(things.len())
    {
        room.fill_from_iter(things.drain(..));
    }
}

impl Outgoing {
    /// Copies bytes into a buffer. Returns `false` if there is no buffer, or the bytes are too
    /// many.
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

    /// Makes sent packets visible to the receiver, and takes the buffers that were returned.
    fn flush(&mut self) {
        if std::mem::take(&mut self.is_due) {
            publish(&mut self.parcels, &mut self.waiting);
            self.waker.wake();
        }
        if self.spare.len() < self.depth
            && let Ok(back) = self.empty.read_chunk(self.empty.slots())
        {
            for buffer in back {
                prefetch_to_write(&buffer, start_in(&buffer));
                self.spare.push(buffer);
            }
        }
    }
}

/// Offset of the packet in a buffer: the beginning of a cache line, so that the headers are in one
/// line.
fn start_in(buffer: &[u8]) -> usize {
    HEADROOM + (buffer.as_ptr().addr() + HEADROOM).wrapping_neg() % CACHE_LINE
}

impl Exchange {
    /// Adds the rings of a newcomer.
    pub(super) fn welcome(&mut self, Ways { outgoing, incoming }: Ways) {
        self.outgoing.push(Some(outgoing));
        self.incoming.push(Some(incoming));
    }

    /// Hands bytes to a worker. Returns `false` if the receiver's ring is full, or the bytes are
    /// too many.
    pub(super) fn give(&mut self, to: usize, kind: Kind, asked: OwnerLookup, bytes: &[u8]) -> bool {
        self.outgoing[to].as_mut().is_some_and(|way| way.put(kind, asked, bytes))
    }

    /// Hands the same bytes to all other workers that have room.
    pub(super) fn tell_all(&mut self, kind: Kind, bytes: &[u8]) {
        for to in 0..self.outgoing.len() {
            self.give(to, kind, OwnerLookup::Settled, bytes);
        }
    }

    /// Makes sent packets and returned buffers visible to the others, and wakes the receivers.
    pub(super) fn flush(&mut self) {
        self.outgoing.iter_mut().flatten().for_each(Outgoing::flush);
        for Incoming { empty, returned, .. } in self.incoming.iter_mut().flatten() {
            publish(empty, returned);
        }
    }

    /// Takes at most `most` packets from the other workers, from each in turn.
    pub(super) fn take(&mut self, mut parcel: impl FnMut(usize, HandedPacket), most: usize) {
        let workers = self.incoming.len();
        let mut room = most;
        for step in 0..workers {
            let from = (self.next + step) % workers;
            let Some(way) = &mut self.incoming[from] else { continue };
            let waiting = way.parcels.slots().min(room);
            if waiting == 0 {
                continue;
            }
            let Ok(some) = way.parcels.read_chunk(waiting) else { continue };
            room -= some.len();
            for one in some {
                prefetch_to_write(&one.buffer, one.start);
                parcel(from, one);
            }
        }
        self.next = (self.next + 1) % workers;
    }

    /// Returns a packet's buffer to its sender.
    pub(super) fn give_back(&mut self, from: usize, buffer: Box<[u8]>) {
        if let Some(way) = &mut self.incoming[from] {
            way.returned.push(buffer);
        }
    }

    /// True if a packet has come.
    fn has_parcels(&self) -> bool {
        self.incoming.iter().flatten().any(|way| !way.parcels.is_empty())
    }

    /// Announces that the worker is about to sleep. Returns `false` if it must not: something has
    /// come.
    pub(super) fn falls_asleep(&self) -> bool {
        self.own.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !self.has_parcels() && !self.own.noted.load(Ordering::Relaxed);
        if !may {
            self.wakes_up();
        }
        may
    }

    /// Announces that the worker is awake.
    pub(super) fn wakes_up(&self) {
        self.own.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const KIND: Kind = Kind::Packet(Link::OUTSIDE, Mac([2, 0, 0, 0, 0, 1]));

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
