//! Where the fragments of a datagram go that say nothing of ports, if several workers share the
//! address that they are for: to the worker to which the first fragment went. One worker an address
//! knows; what comes before the first fragment waits here.
//!
//! Everything is bounded: datagrams, fragments that wait, how long.

use super::exchange::Kind;
use natgate_engine::Timestamp;
use natgate_wire::Ipv4;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Most datagrams that are known, and most fragments that wait, in all and of one datagram.
const MOST_DATAGRAMS: usize = 4096;
const MOST_WAITING: usize = 512;
const MOST_OF_ONE: usize = 32;

/// What names a datagram: its addresses, protocol and identification.
type Key = (u32, u32, u8, u16);

/// A fragment that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
enum Datagram {
    /// Its first fragment went to this worker.
    Known(usize),
    /// These wait for the first.
    Unknown(Vec<Waiting>),
}

/// What becomes of a fragment.
#[derive(Debug)]
pub(super) enum Advice {
    /// It goes to this worker, and after it those that have waited.
    Go(usize, Vec<Waiting>),
    /// It waits.
    Wait,
    /// There is no room for it.
    Full,
}

/// What one worker knows of datagrams.
#[derive(Debug)]
pub(super) struct Guide {
    timeout: Duration,
    datagrams: HashMap<Key, Datagram>,
    /// When each is forgotten, oldest first.
    due: VecDeque<(Timestamp, Key)>,
    waiting: usize,
    /// Fragments whose first has come, and went no further.
    recalled: VecDeque<Waiting>,
    /// Those for which there was no room where they belong.
    lost: Vec<Waiting>,
}

impl Guide {
    /// Knows of nothing; datagrams are forgotten after so long.
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

    /// Where a fragment goes; `owner` is whose it is if it is the first. `bytes` are a whole
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

    /// Lets fragments follow the first that went no further.
    pub(super) fn recall(&mut self, waiting: Vec<Waiting>) {
        self.recalled.extend(waiting);
    }

    /// The next of these.
    pub(super) fn recalled(&mut self) -> Option<Waiting> {
        self.recalled.pop_front()
    }

    /// Notes that there was no room for one.
    pub(super) fn give_up(&mut self, waiting: Waiting) {
        self.lost.push(waiting);
    }

    /// A fragment that has waited in vain: what it was, its length, and whether there was no room
    /// for it where it belonged.
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

    /// When something is forgotten next.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.front().map(|(due, _)| *due)
    }
}
