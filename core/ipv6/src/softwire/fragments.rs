//! Fragments on the way to or from customers with shared addresses. Only the first fragment has the
//! ports, so they are remembered for the others (RFC 7597 section 8.3.2, RFC 6346 section 5.3.3).
//!
//! Fragments before their first one are held for a while. Number and memory are bounded; the oldest
//! datagram makes room for a new one.

use super::endpoint::Port;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use natgate_engine::Side;

/// Most datagrams whose ports are remembered.
const MOST_DATAGRAMS: usize = 8192;
/// Most fragments of a datagram that are held.
const MOST_HELD: usize = 64;

/// The name of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Datagram {
    /// The IPv6 source of a packet from a customer; 0: the packet came from outside.
    pub(crate) customer: u128,
    /// Source and destination.
    pub(crate) ends: (u128, u128),
    pub(crate) identification: u32,
    pub(crate) protocol: u8,
}

/// The ports of a datagram's two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) source: Port,
    pub(crate) destination: Port,
}

/// A fragment that waits: the side that it came from, and its bytes as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) side: Side,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    ports: Option<Ports>,
    held: Vec<Held>,
    number: u64,
}

/// Ports of datagrams, and fragments that wait for them.
#[derive(Clone, Debug)]
pub(crate) struct Fragments {
    datagrams: BTreeMap<Datagram, Entry>,
    /// Datagrams in the order in which they came, with the times at which they end. An entry whose
    /// number differs is a later one.
    ends: VecDeque<(u64, u64, Datagram)>,
    next_number: u64,
    /// Time that a datagram is remembered, nanoseconds.
    timeout: u64,
    /// Bytes that may be held, and that are.
    memory: usize,
    held: usize,
    /// Fragments that were given up since they were last asked for.
    lost: Vec<Held>,
}

impl Fragments {
    pub(crate) fn new(memory: usize, timeout: u64) -> Self {
        Self {
            datagrams: BTreeMap::new(),
            ends: VecDeque::new(),
            next_number: 0,
            timeout,
            memory,
            held: 0,
            lost: Vec::new(),
        }
    }

    /// The ports of a datagram, if its first fragment has been seen.
    pub(crate) fn ports(&self, datagram: &Datagram) -> Option<Ports> {
        self.datagrams.get(datagram).and_then(|entry| entry.ports)
    }

    /// Remembers the ports of a datagram; returns the fragments that waited for them.
    pub(crate) fn learn(&mut self, now: u64, datagram: Datagram, ports: Ports) -> Vec<Held> {
        let entry = self.entry(now, datagram);
        entry.ports = Some(ports);
        let held = core::mem::take(&mut entry.held);
        self.held -= held.iter().map(|held| held.bytes.len()).sum::<usize>();
        held
    }

    /// True if there is room for a fragment of so many bytes.
    pub(crate) fn has_room(&self, datagram: &Datagram, len: usize) -> bool {
        let held = self.datagrams.get(datagram).map_or(0, |entry| entry.held.len());
        self.held + len <= self.memory && held < MOST_HELD
    }

    /// Holds a fragment until the first one of its datagram comes; `false`: there is no room.
    pub(crate) fn hold(&mut self, now: u64, datagram: Datagram, side: Side, bytes: &[u8]) -> bool {
        if !self.has_room(&datagram, bytes.len()) {
            return false;
        }
        let entry = self.entry(now, datagram);
        entry.held.push(Held { side, bytes: bytes.to_vec() });
        self.held += bytes.len();
        true
    }

    fn entry(&mut self, now: u64, datagram: Datagram) -> &mut Entry {
        if !self.datagrams.contains_key(&datagram) {
            if self.datagrams.len() >= MOST_DATAGRAMS {
                self.end_oldest();
            }
            self.next_number += 1;
            self.ends.push_back((now + self.timeout, self.next_number, datagram));
        }
        let number = self.next_number;
        self.datagrams.entry(datagram).or_insert(Entry { number, ..Entry::default() })
    }

    fn end_oldest(&mut self) {
        let Some((_, number, datagram)) = self.ends.pop_front() else { return };
        if self.datagrams.get(&datagram).is_none_or(|entry| entry.number != number) {
            return;
        }
        if let Some(entry) = self.datagrams.remove(&datagram) {
            self.held -= entry.held.iter().map(|held| held.bytes.len()).sum::<usize>();
            self.lost.extend(entry.held);
        }
    }

    /// Forgets what is due; returns fragments that were given up.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Held> {
        while self.ends.front().is_some_and(|(end, ..)| *end <= now) {
            self.end_oldest();
        }
        core::mem::take(&mut self.lost)
    }

    /// True if nothing is remembered.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.lost.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(identification: u32) -> Datagram {
        Datagram { customer: 0, ends: (1, 2), identification, protocol: 17 }
    }

    const PORTS: Ports = Ports { source: Port::Number(5), destination: Port::Number(6) };

    #[test]
    fn fragments_wait_for_the_first_of_their_datagram() {
        let mut fragments = Fragments::new(100, 10);
        assert!(fragments.hold(0, datagram(1), Side::Outside, &[1; 30]));
        assert!(fragments.hold(1, datagram(1), Side::Outside, &[2; 30]));
        assert!(fragments.hold(2, datagram(2), Side::Inside, &[3; 30]));
        assert!(!fragments.hold(2, datagram(2), Side::Inside, &[4; 30]));
        let released = fragments.learn(3, datagram(1), PORTS);
        assert_eq!((released.len(), released[1].bytes[0]), (2, 2));
        assert_eq!(fragments.ports(&datagram(1)), Some(PORTS));
        assert!(fragments.expire(9).is_empty());
        assert!(fragments.expire(10).is_empty() && fragments.ports(&datagram(1)).is_none());
        let lost = fragments.expire(12);
        assert_eq!((lost.len(), lost[0].bytes[0], fragments.held), (1, 3, 0));
        assert!(fragments.is_empty());
    }

    #[test]
    fn datagrams_are_bounded_in_number() {
        let mut fragments = Fragments::new(1 << 20, 10);
        for number in 0..20_000 {
            fragments.hold(0, datagram(number), Side::Outside, &[0; 20]);
        }
        assert_eq!(fragments.datagrams.len(), MOST_DATAGRAMS);
        assert_eq!(fragments.expire(0).len(), 20_000 - MOST_DATAGRAMS);
        let more = (0..100).filter(|_| fragments.hold(0, datagram(19_999), Side::Inside, &[0; 20]));
        assert_eq!(more.count(), MOST_HELD - 1);
        assert_eq!(fragments.expire(u64::MAX).len(), MOST_DATAGRAMS + MOST_HELD - 1);
    }
}
