//! How packets come from one worker to another: a bounded ring for each pair of them and direction,
//! with one producer and one consumer. What is handed over is copied once, into a buffer that the
//! receiver gives back by a second ring, so nothing is allocated while packets flow. A worker that
//! sleeps is woken when something has come for it, by whatever its sleep is ended by.

use crate::links::Link;
use natgate_io::HEADROOM;
use rtrb::{Consumer, Producer, RingBuffer};
use std::fmt::Debug;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Packets that wait between two workers, at most, and for how many there is room in all; of many workers
/// each pair has less, but some.
const DEPTH: usize = 1024;
const LEAST_DEPTH: usize = 32;
const ROOM: usize = 16 * DEPTH;

/// What a parcel's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An IP packet as it came in by a link.
    Packet(Link),
    /// An IP packet from a realm that turns round, with its sender's end translated.
    Turned(u16),
    /// The same of an ICMP error of the router's own, which has not come in.
    Error(u16),
    /// A request from a realm for a mapping of a host there, whose address this is.
    Request(u16, u32),
    /// An Ethernet frame with ARP, without a tag, for everybody to learn from.
    Arp(Link),
}

impl Kind {
    /// The link that it counts as coming in by: what turns round comes back from outside.
    pub(super) fn link(self) -> Link {
        match self {
            Self::Packet(link) | Self::Arp(link) => link,
            Self::Request(realm, _) => Link::inside(realm),
            Self::Turned(_) | Self::Error(_) => Link::OUTSIDE,
        }
    }
}

/// Who has been asked whose a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is the receiver's.
    Settled,
    /// The receiver is to find out, from the first fragment.
    Guide,
    /// So many workers do not know it; it is of a protocol without ports.
    Portless(u8),
    /// These workers, a bit each, may still know its host inside; if none does, it is its bucket's owner's.
    Former(u64),
}

/// Bytes on their way to another worker.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) kind: Kind,
    pub(crate) asked: Asked,
    pub(crate) buffer: Box<[u8]>,
    /// Where the bytes begin and end.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The way to one worker.
#[derive(Debug)]
struct Outgoing {
    parcels: Producer<Parcel>,
    empty: Consumer<Box<[u8]>>,
    waker: Arc<Waker>,
    /// Whether something was sent since the receiver was last looked after.
    is_due: bool,
}

/// The way from one worker.
#[derive(Debug)]
struct Incoming {
    parcels: Consumer<Parcel>,
    empty: Producer<Box<[u8]>>,
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
    let depth = (ROOM / (workers * workers)).clamp(LEAST_DEPTH, DEPTH);
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

/// The ways between a worker and one that joins it.
#[derive(Debug)]
pub(super) struct Ways {
    outgoing: Outgoing,
    incoming: Incoming,
}

/// The exchange of a worker that joins those that are woken so, and for each of them the ways between it
/// and the newcomer.
pub(super) fn join(
    wakers: &[Arc<Waker>],
    own: &Arc<Waker>,
    longest: usize,
) -> (Exchange, Vec<Ways>) {
    let depth = (ROOM / ((wakers.len() + 1) * (wakers.len() + 1))).clamp(LEAST_DEPTH, DEPTH);
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
    let (mut empty, taken) = RingBuffer::new(depth);
    for _ in 0..depth {
        let buffer = vec![0; HEADROOM + longest].into_boxed_slice();
        empty.push(buffer).expect("there is room for all");
    }
    let outgoing = Outgoing { parcels, empty: taken, waker: Arc::clone(to), is_due: false };
    (outgoing, Incoming { parcels: received, empty })
}

impl Exchange {
    /// Takes a newcomer in.
    pub(super) fn welcome(&mut self, Ways { outgoing, incoming }: Ways) {
        self.outgoing.push(Some(outgoing));
        self.incoming.push(Some(incoming));
    }

    /// Hands bytes over; `false`: the receiver has too much to do already, or they are too many.
    pub(super) fn give(&mut self, to: usize, kind: Kind, asked: Asked, bytes: &[u8]) -> bool {
        let Some(way) = &mut self.outgoing[to] else { return false };
        let Ok(mut buffer) = way.empty.pop() else { return false };
        let end = HEADROOM + bytes.len();
        let fits = end <= buffer.len();
        let end = if fits { end } else { HEADROOM };
        if fits {
            buffer[HEADROOM..end].copy_from_slice(bytes);
        }
        // A parcel of no bytes brings the buffer back.
        way.is_due = true;
        way.parcels.push(Parcel { kind, asked, buffer, start: HEADROOM, end }).is_ok() && fits
    }

    /// Hands the same bytes to all others that have room.
    pub(super) fn tell_all(&mut self, kind: Kind, bytes: &[u8]) {
        for to in 0..self.outgoing.len() {
            self.give(to, kind, Asked::Settled, bytes);
        }
    }

    /// Wakes those whom something was sent.
    pub(super) fn flush(&mut self) {
        for way in self.outgoing.iter_mut().flatten().filter(|way| way.is_due) {
            way.is_due = false;
            way.waker.wake();
        }
    }

    /// Takes what has come from others, as much as there is room for, from each in turn.
    pub(super) fn take(&mut self, mut parcel: impl FnMut(usize, Parcel), most: usize) {
        let workers = self.incoming.len();
        let mut room = most;
        for step in 0..workers {
            let from = (self.next + step) % workers;
            let Some(way) = &mut self.incoming[from] else { continue };
            while room > 0
                && let Ok(one) = way.parcels.pop()
            {
                parcel(from, one);
                room -= 1;
            }
        }
        self.next = (self.next + 1) % workers;
    }

    /// Gives a parcel's buffer back to whom it came from.
    pub(super) fn give_back(&mut self, from: usize, buffer: Box<[u8]>) {
        if let Some(way) = &mut self.incoming[from] {
            // There is room for as many as there are.
            let _ = way.empty.push(buffer);
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
        let take = |from, parcel: Parcel| {
            all.push(parcel.buffer[parcel.start..parcel.end].to_vec());
            back.push((from, parcel.buffer));
        };
        exchange.take(take, 64);
        back.into_iter().for_each(|(from, buffer)| exchange.give_back(from, buffer));
        all
    }

    #[test]
    fn parcels_come_in_order_and_their_buffers_come_back() {
        let ([mut a, mut b], _ends) = two();
        for round in 0..3 * DEPTH {
            assert!(a.give(1, KIND, Asked::Settled, &[round as u8; 7]));
            assert_eq!(taken(&mut b), [vec![round as u8; 7]]);
        }
        assert_eq!(taken(&mut a), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_full_ring_takes_no_more_and_what_is_too_long_is_refused() {
        let ([mut a, mut b], _ends) = two();
        assert!(!a.give(1, KIND, Asked::Settled, &[0; 101]));
        let given = (0..2 * DEPTH).filter(|_| a.give(1, KIND, Asked::Settled, &[1])).count();
        assert_eq!(given, DEPTH - 1);
        assert!(!a.give(0, KIND, Asked::Settled, &[1]), "there is no way to itself");
        taken(&mut b);
        assert!(a.give(1, KIND, Asked::Settled, &[1]));
    }

    #[test]
    fn who_sleeps_is_woken_once() {
        let ([mut a, b], mut ends) = two();
        assert!(b.falls_asleep());
        for _ in 0..2 {
            assert!(a.give(1, KIND, Asked::Settled, &[1]));
            a.flush();
        }
        let mut bytes = [0; 8];
        assert_eq!(ends[1].read(&mut bytes).ok(), Some(1));
        assert!(ends[1].read(&mut bytes).is_err(), "nothing more was written");
        assert!(!b.falls_asleep(), "something has come");
    }
}
