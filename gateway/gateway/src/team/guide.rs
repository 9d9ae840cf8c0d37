//! The way of fragments without ports, if several workers share their destination address. They go
//! to the worker to which the first fragment of their datagram went. One worker for each address
//! knows that worker; fragments that come before the first fragment wait here.
//!
//! Everything is bounded: datagrams, fragments that wait, and the time that they wait.

use super::exchange::Kind;
use natgate_engine::Timestamp;
use natgate_wire::Ipv4;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Most known datagrams, and most fragments that wait, in all and of one datagram.
const MOST_DATAGRAMS: usize = 4096;
const MOST_WAITING: usize = 512;
const MOST_OF_ONE: usize = 32;

/// Key of a datagram: its addresses, protocol and identification.
type Key = (u32, u32, u8, u16);

/// A fragment that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
enum Datagram {
    /// The first fragment went to this worker.
    Known(usize),
    /// These fragments wait for the first one.
    Unknown(Vec<Waiting>),
}

/// Decision about a fragment.
#[derive(Debug)]
pub(super) enum Advice {
    /// The fragment goes to this worker, followed by the fragments that have waited.
    Go(usize, Vec<Waiting>),
    /// The fragment waits.
    Wait,
    /// There is no room for the fragment.
    Full,
}

/// One worker's knowledge of datagrams.
#[derive(Debug)]
pub(super) struct Guide {
    timeout: Duration,
    datagrams: HashMap<Key, Datagram>,
    /// Time at which each datagram is forgotten, oldest first.
    due: VecDeque<(Timestamp, Key)>,
    waiting: usize,
    /// Fragments whose first fragment has come and stayed with this worker.
    recalled: VecDeque<Waiting>,
    /// Fragments for which their owner had no room.
    lost: Vec<Waiting>,
}

impl Guide {
    /// Creates a guide without datagrams; each datagram is forgotten after `timeout`.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            datagrams: HashMap::new(),
            due: VecDeque::new(),
            waiting: 0,
            recalled: VecDeque::new(),
            lost: Vec::new(),
        }
    }

    /// Decides about a fragment. `owner` is the owner of a first fragment. `bytes` are a whole
    /// packet.
    pub(super) fn advise(
        &mut self,
        now: Timestamp,
        kind: Kind,
        bytes: &[u8],
        owner: Option<usize>,
    ) -> Advice {
        let Ok(packet) = Ipv4::new_checked(bytes) else { return Advice::Full };
        let key =
            (packet.source(), packet.destination(), packet.protocol(), packet.identification());
        if !self.datagrams.contains_key(&key) {
            if self.datagrams.len() >= MOST_DATAGRAMS {
                return owner.map_or(Advice::Full, |owner| Advice::Go(owner, Vec::new()));
            }
            self.datagrams.insert(key, Datagram::Unknown(Vec::new()));
            self.due.push_back((now.plus(self.timeout), key));
        }
        let Some(datagram) = self.datagrams.get_mut(&key) else { return Advice::Full };
        match (datagram, owner) {
            (datagram, Some(owner)) => match std::mem::replace(datagram, Datagram::Known(owner)) {
                Datagram::Unknown(waiting) => {
                    self.waiting -= waiting.len();
                    Advice::Go(owner, waiting)
                }
                Datagram::Known(_) => Advice::Go(owner, Vec::new()),
            },
            (Datagram::Known(owner), None) => Advice::Go(*owner, Vec::new()),
            (Datagram::Unknown(waiting), None) => {
                if self.waiting >= MOST_WAITING || waiting.len() >= MOST_OF_ONE {
                    return Advice::Full;
                }
                self.waiting += 1;
                waiting.push(Waiting { kind, bytes: bytes.to_vec() });
                Advice::Wait
            }
        }
    }

    /// Releases fragments whose first fragment stayed with this worker.
    pub(super) fn recall(&mut self, waiting: Vec<Waiting>) {
        self.recalled.extend(waiting);
    }

    /// Next fragment of those.
    pub(super) fn recalled(&mut self) -> Option<Waiting> {
        self.recalled.pop_front()
    }

    /// Keeps a fragment for which its owner had no room, to be counted.
    pub(super) fn give_up(&mut self, waiting: Waiting) {
        self.lost.push(waiting);
    }

    /// Returns a fragment that waited in vain: its kind, its length, and whether its owner had no
    /// room for it.
    pub(super) fn given_up(&mut self, now: Timestamp) -> Option<(Kind, usize, bool)> {
        if let Some(Waiting { kind, bytes }) = self.lost.pop() {
            return Some((kind, bytes.len(), true));
        }
        while let Some((due, key)) = self.due.front().copied()
            && due <= now
        {
            let datagram = self.datagrams.get_mut(&key);
            if let Some(Datagram::Unknown(waiting)) = datagram
                && let Some(Waiting { kind, bytes }) = waiting.pop()
            {
                self.waiting -= 1;
                return Some((kind, bytes.len(), false));
            }
            self.due.pop_front();
            self.datagrams.remove(&key);
        }
        None
    }

    /// Time at which the next datagram is forgotten.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.front().map(|(due, _)| *due)
    }
}
