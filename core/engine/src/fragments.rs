//! Fragmented datagrams on their way through: no reassembly, but each later fragment gets the
//! rewrite that the translator chose for the first, the only one with ports. Fragments may come in
//! any order (RFC 4787 REQ-14); those before the first wait, in bounded memory and time.
//!
//! Left to the engine: checks that hold for every packet, the translation of the first fragment,
//! counting of what goes on. Always true: a fragment leaves only by the rewrite of a first fragment
//! that went before it; no two fragments of a datagram that leave share a byte (RFC 1858, 3128,
//! 5722); a packet that was held is handed out once or counted as dropped once; nothing is
//! allocated after construction, and no call but `advance` looks at more than one datagram.
//!
//! One source, spoofed or not, gets an eighth of the memory, and a new place in the table only
//! while it has less than an eighth of those that are free: so however many flood the table, some
//! of it stays free for who has nothing there. Datagrams without a translated first fragment get
//! half of the table: so who sends fragments in order, through a mapping, is not hurt by floods of
//! others.

mod coverage;
mod datagrams;
mod keyed;
mod store;
#[cfg(test)]
mod tests;

use crate::packet::{Counters, Direction, Side};
use crate::random::HashKey;
use crate::{DropReason, Timestamp};
use core::time::Duration;
use coverage::{Coverage, Misfit};
use keyed::{Keyed, Words};
use natgate_wire::{Delta, Ipv4, protocol};
use store::{BLOCK, NONE, Queue, Store, Way};

/// The part of memory, and of the table's free places, that one source may take.
const SOURCE_SHARE: usize = 8;

/// Memory for waiting fragments for which the table has room for one datagram.
const MEMORY_PER_DATAGRAM: usize = 1024;
const DATAGRAMS: core::ops::RangeInclusive<usize> = 1024..=65_536;

/// Blocks that one source may take however little memory there is: one fragment of Ethernet size.
const LEAST_SOURCE_BLOCKS: usize = 4;

/// Bytes of a TCP header without options: what a first fragment must hold.
const TCP_HEADER_LEN: u32 = 20;

/// What the fragments of one datagram have in common (RFC 791), and the side they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    side: Side,
    /// The realm that they come from, if from inside.
    realm: u16,
    source: u32,
    destination: u32,
    protocol: u8,
    identification: u16,
}

/// A packet that is a fragment: of which datagram, and which part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    key: Key,
    /// Its payload's place in the datagram's, bytes.
    start: u16,
    end: u32,
    /// Whether the datagram goes on after it.
    more: bool,
    header_len: u32,
}

/// What a later fragment gets: the rewrite of its datagram's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rewrite {
    /// Address to write as the source.
    pub(crate) source: u32,
    /// Address to write as the destination.
    pub(crate) destination: u32,
    /// Identification to write.
    pub(crate) identification: u16,
    /// The side to send by.
    pub(crate) out: Side,
    /// The realm to send to, if by the inside.
    pub(crate) realm: u16,
    /// What to count it as.
    pub(crate) direction: Direction,
}

/// The fate of a fragment other than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// Rewrite it and send it.
    Apply(Rewrite),
    /// A copy waits for the first fragment.
    Held,
    Drop(DropReason),
}

/// A fragment that waited and goes on, rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// When its datagram's first fragment was translated.
    pub(crate) time: Timestamp,
    /// The side to send it by.
    pub(crate) out: Side,
    /// The realm to send it to, if by the inside.
    pub(crate) realm: u16,
    /// What to count it as.
    pub(crate) direction: Direction,
    /// Its length, bytes.
    pub(crate) len: usize,
}

impl Released {
    /// As [`Rewrite::hands_over`].
    pub(crate) fn hands_over(&self) -> bool {
        self.direction == Direction::Hairpin && self.out == Side::Outside
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first fragment has not come or is being translated; others wait.
    Open,
    /// The first fragment has gone on.
    Translated(Rewrite),
    /// The first fragment was refused. Nothing has gone on, so another first may try again.
    Refused,
    /// The fragments contradict each other: all are dropped, for this reason.
    Discarded(DropReason),
}

#[derive(Clone, Debug)]
struct Datagram {
    coverage: Coverage,
    state: State,
    /// Its tick: when it is forgotten.
    due: Timestamp,
    /// Neighbours in the list by age, which is also the order of their ticks.
    older: u32,
    newer: u32,
    source: u32,
    waiting: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SourceKey {
    side: Side,
    realm: u16,
    address: u32,
}

/// What one source takes.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    datagrams: usize,
    blocks: usize,
}

/// Every datagram of which fragments are on their way.
#[derive(Clone, Debug)]
pub(crate) struct Fragments {
    timeout: Duration,
    capacity: usize,
    datagrams: Keyed<Key, Datagram>,
    sources: Keyed<SourceKey, Source>,
    oldest: u32,
    newest: u32,
    /// Datagrams without a translated first fragment.
    unsettled: usize,
    store: Store,
    /// Most blocks of one source.
    source_blocks: usize,
    /// Fragments that waited and go on.
    released: Queue,
}

impl Fragment {
    /// The fragment that a packet from this side is; `None`: it is a whole datagram.
    pub(crate) fn of<T: AsRef<[u8]>>(side: Side, packet: &Ipv4<T>) -> Option<Self> {
        let start = packet.fragment_offset();
        let more = packet.more_fragments();
        if start == 0 && !more {
            return None;
        }
        let payload = usize::from(packet.total_len()) - packet.header_len();
        let key = Key {
            side,
            realm: 0,
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            identification: packet.identification(),
        };
        Some(Self {
            key,
            start: start as u16,
            end: (start + payload) as u32,
            more,
            header_len: packet.header_len() as u32,
        })
    }

    /// The same fragment, come from a realm.
    pub(crate) fn in_realm(mut self, realm: u16) -> Self {
        self.key.realm = realm;
        self
    }

    /// Whether it is the first of its datagram.
    pub(crate) fn is_first(&self) -> bool {
        self.start == 0
    }

    /// Whether no honest sender makes it: empty, not the last and no multiple of eight bytes, or
    /// such that the TCP header would not be whole in the first (RFC 1858, RFC 3128).
    fn is_tiny(&self) -> bool {
        let len = self.end - u32::from(self.start);
        let within_tcp_header = self.key.protocol == protocol::TCP
            && if self.is_first() {
                self.end < TCP_HEADER_LEN
            } else {
                u32::from(self.start) < TCP_HEADER_LEN
            };
        len == 0 || (self.more && !len.is_multiple_of(8)) || within_tcp_header
    }

    /// Whether it has a place among fragments that have come.
    fn fits(&self, coverage: &Coverage) -> Result<(), DropReason> {
        if self.is_too_long() {
            return Err(DropReason::FragmentTooLong);
        }
        coverage.place(self).map(|_| ()).map_err(Misfit::reason)
    }

    fn is_too_long(&self) -> bool {
        self.header_len + self.end > u32::from(u16::MAX)
    }
}

impl Rewrite {
    /// Whether who divided the work between several engines is to say who goes on: nothing else
    /// that turns round leaves by the outside.
    pub(crate) fn hands_over(&self) -> bool {
        self.direction == Direction::Hairpin && self.out == Side::Outside
    }

    /// Rewrites the header at the front of `packet`, which may end early: addresses,
    /// identification, time to live one less, checksum.
    ///
    /// # Panics
    /// When there is no whole IPv4 header.
    pub(crate) fn apply(&self, packet: &mut [u8]) {
        let mut header = Ipv4::new_header_checked(packet).expect("fragments are checked packets");
        let ttl = header.ttl().saturating_sub(1);
        let delta = Delta::NONE
            .replace_u32(header.source(), self.source)
            .replace_u32(header.destination(), self.destination)
            .replace_u16(header.identification(), self.identification)
            .replace_u16(u16::from(header.ttl()) << 8, u16::from(ttl) << 8);
        header.set_source(self.source);
        header.set_destination(self.destination);
        header.set_identification(self.identification);
        header.set_ttl(ttl);
        header.update_checksum(delta);
    }
}

impl Fragments {
    /// Room for `memory` bytes of waiting fragments; a datagram is forgotten `timeout` after the
    /// first of its fragments to arrive, whichever that was.
    pub(crate) fn new(memory: usize, timeout: Duration, hash_key: HashKey) -> Self {
        let (capacity, blocks) = Self::sizes(memory);
        Self::sized(capacity, blocks, timeout, hash_key)
    }

    fn sized(capacity: usize, blocks: usize, timeout: Duration, hash_key: HashKey) -> Self {
        Self {
            timeout,
            capacity,
            datagrams: Keyed::new(capacity, hash_key),
            sources: Keyed::new(capacity, hash_key),
            oldest: NONE,
            newest: NONE,
            unsettled: 0,
            store: Store::new(blocks),
            source_blocks: (blocks / SOURCE_SHARE).max(LEAST_SOURCE_BLOCKS),
            released: Queue::EMPTY,
        }
    }

    /// Bytes that [`Fragments::new`] takes in all.
    pub(crate) fn memory(memory: usize) -> u64 {
        let (capacity, blocks) = Self::sizes(memory);
        Keyed::<Key, Datagram>::memory(capacity)
            + Keyed::<SourceKey, Source>::memory(capacity)
            + Store::memory(blocks)
    }

    /// Datagrams and blocks; block numbers have 32 bits.
    fn sizes(memory: usize) -> (usize, usize) {
        let capacity = (memory / MEMORY_PER_DATAGRAM).clamp(*DATAGRAMS.start(), *DATAGRAMS.end());
        (capacity, (memory / BLOCK).min(NONE as usize))
    }

    /// A first fragment, before its translation: whether it may be translated. Then
    /// [`Fragments::decided`] must follow. Time never goes back from call to call.
    pub(crate) fn first(
        &mut self,
        now: Timestamp,
        fragment: &Fragment,
        counters: &mut Counters,
    ) -> Result<(), DropReason> {
        assert!(fragment.is_first());
        if fragment.is_tiny() {
            return Err(DropReason::FragmentTiny);
        }
        let slot = match self.datagrams.find(fragment.key) {
            Some(slot) => slot,
            None => self.open(now, fragment.key).ok_or(DropReason::FragmentLimit)?,
        };
        if let State::Discarded(reason) = self.datagrams[slot].state {
            return Err(reason);
        }
        let place = self.place(slot, fragment, counters)?;
        self.datagrams[slot].coverage.insert(place, fragment);
        self.datagrams[slot].state = State::Open;
        Ok(())
    }

    /// What became of a first fragment that [`Fragments::first`] let pass: its rewrite, or `None`
    /// if it was refused. Waiting fragments are released or dropped accordingly.
    pub(crate) fn decided(
        &mut self,
        now: Timestamp,
        fragment: &Fragment,
        rewrite: Option<Rewrite>,
        counters: &mut Counters,
    ) {
        // Between the two calls the datagram may have been discarded.
        let Some(slot) = self.datagrams.find(fragment.key) else { return };
        if self.datagrams[slot].state != State::Open {
            return;
        }
        match rewrite {
            Some(rewrite) => {
                self.set_state(slot, State::Translated(rewrite));
                self.release(slot, rewrite, now);
                self.forget_if_complete(slot);
            }
            None => {
                self.drop_waiting(slot, DropReason::FragmentUnmatched, counters);
                self.datagrams[slot].coverage = Coverage::EMPTY;
                self.set_state(slot, State::Refused);
                if self.unsettled > self.capacity / 2 {
                    self.forget(slot);
                }
            }
        }
    }

    /// A fragment other than the first, with the packet that it is. The counters are for others of
    /// its datagram that waited; its own fate is the caller's to count, unless it is held.
    pub(crate) fn later(
        &mut self,
        now: Timestamp,
        fragment: &Fragment,
        packet: &[u8],
        counters: &mut Counters,
    ) -> Later {
        assert!(!fragment.is_first());
        if fragment.is_tiny() {
            return Later::Drop(DropReason::FragmentTiny);
        }
        let slot = match self.datagrams.find(fragment.key) {
            Some(slot) => slot,
            None => match self.open_waiting(now, fragment, packet.len()) {
                Ok(slot) => slot,
                Err(reason) => return Later::Drop(reason),
            },
        };
        match self.datagrams[slot].state {
            State::Discarded(reason) => return Later::Drop(reason),
            State::Refused => return Later::Drop(DropReason::FragmentUnmatched),
            State::Open | State::Translated(_) => {}
        }
        let place = match self.place(slot, fragment, counters) {
            Ok(place) => place,
            Err(reason) => return Later::Drop(reason),
        };
        if let State::Translated(rewrite) = self.datagrams[slot].state {
            self.datagrams[slot].coverage.insert(place, fragment);
            self.forget_if_complete(slot);
            return Later::Apply(rewrite);
        }
        if !self.has_room(self.datagrams[slot].source, packet.len()) {
            return Later::Drop(DropReason::FragmentLimit);
        }
        //= rfc4787#REQ-14
        self.hold(slot, packet);
        self.datagrams[slot].coverage.insert(place, fragment);
        Later::Held
    }

    /// What [`Fragments::first`] would say of a first fragment.
    pub(crate) fn try_first(&self, fragment: &Fragment) -> Result<(), DropReason> {
        if fragment.is_tiny() {
            return Err(DropReason::FragmentTiny);
        }
        let Some(slot) = self.datagrams.find(fragment.key) else {
            return match self.may_open(fragment.key) {
                true => fragment.fits(&Coverage::EMPTY),
                false => Err(DropReason::FragmentLimit),
            };
        };
        match self.datagrams[slot].state {
            State::Discarded(reason) => Err(reason),
            _ => fragment.fits(&self.datagrams[slot].coverage),
        }
    }

    /// What [`Fragments::later`] would say of another fragment, which is so many bytes long.
    pub(crate) fn try_later(&self, fragment: &Fragment, len: usize) -> Later {
        if fragment.is_tiny() {
            return Later::Drop(DropReason::FragmentTiny);
        }
        let Some(slot) = self.datagrams.find(fragment.key) else {
            let fate = self.may_open_waiting(fragment, len);
            return match fate.and_then(|()| fragment.fits(&Coverage::EMPTY)) {
                Ok(()) => Later::Held,
                Err(reason) => Later::Drop(reason),
            };
        };
        let Datagram { state, coverage, source, .. } = &self.datagrams[slot];
        match *state {
            State::Discarded(reason) => Later::Drop(reason),
            State::Refused => Later::Drop(DropReason::FragmentUnmatched),
            State::Open | State::Translated(_) => match (fragment.fits(coverage), *state) {
                (Err(reason), _) => Later::Drop(reason),
                (Ok(()), State::Translated(rewrite)) => Later::Apply(rewrite),
                (Ok(()), _) if self.has_room(*source, len) => Later::Held,
                (Ok(()), _) => Later::Drop(DropReason::FragmentLimit),
            },
        }
    }

    /// The time of the oldest released fragment.
    pub(crate) fn next_released(&self) -> Option<Timestamp> {
        self.store.front(&self.released).map(|way| way.time)
    }

    /// Writes the oldest released fragment to the front of `buffer`.
    ///
    /// # Panics
    /// When the buffer is too short; 65,535 bytes suffice.
    pub(crate) fn poll_released(&mut self, buffer: &mut [u8]) -> Option<Released> {
        let (way, len) = self.store.pop(&mut self.released, buffer)?;
        let Way { time, out, realm, direction } = way;
        Some(Released { time, out, realm, direction, len })
    }

    /// Forgets the datagrams whose tick is not after `now`, and drops what waits for them.
    pub(crate) fn advance(&mut self, now: Timestamp, counters: &mut Counters) {
        while self.next_deadline().is_some_and(|due| due <= now) {
            self.forget_oldest(counters);
        }
    }

    /// Forgets one datagram, the oldest, if there is any.
    pub(crate) fn forget_oldest(&mut self, counters: &mut Counters) {
        if self.oldest != NONE {
            let slot = self.oldest;
            self.drop_waiting(slot, DropReason::FragmentUnmatched, counters);
            self.forget(slot);
        }
    }

    /// The tick at which [`Fragments::advance`] will find the next thing to do.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        (self.oldest != NONE).then(|| self.datagrams[self.oldest].due)
    }

    /// The tick at which the last of the datagrams that there are is forgotten.
    pub(crate) fn last_deadline(&self) -> Option<Timestamp> {
        (self.newest != NONE).then(|| self.datagrams[self.newest].due)
    }

    /// How long datagrams that come from now on wait for the rest of them.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Key {
    /// Who sends them.
    fn sender(self) -> SourceKey {
        SourceKey { side: self.side, realm: self.realm, address: self.source }
    }
}

impl Words for Key {
    fn words(self) -> (u64, u64) {
        let Self { side, realm, source, destination, protocol, identification } = self;
        let addresses = u64::from(source) << 32 | u64::from(destination);
        let rest = u64::from(identification) << 16 | u64::from(protocol) << 8 | side as u64;
        (addresses, u64::from(realm) << 32 | rest)
    }
}

impl Words for SourceKey {
    fn words(self) -> (u64, u64) {
        (u64::from(self.realm) << 32 | u64::from(self.address), self.side as u64)
    }
}
