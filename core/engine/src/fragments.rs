//! Forwarding of fragmented datagrams without reassembly: each later fragment gets the rewrite that
//! the translator chose for the first fragment, the only one with ports. Fragments may come in any
//! order (RFC 4787 REQ-14). Fragments before the first wait, in bounded memory and time.
//!
//! The engine does the rest: checks of every packet, the translation of the first fragment, the
//! counting of forwarded fragments. Always true: a fragment leaves only by the rewrite of a first
//! fragment that went before it; no two fragments of a datagram that leave share a byte (RFC 1858,
//! 3128, 5722); a held packet is handed out once or counted as dropped once; nothing is allocated
//! after construction, and no call but `advance` looks at more than one datagram.
//!
//! One source, spoofed or not, gets an eighth of the memory. It gets a new place in the table only
//! while it has less than an eighth of the free places. So for any number of flooding sources, some
//! places stay free for sources without a place. Datagrams without a translated first fragment get
//! half of the table. So floods of later fragments do not hurt a sender that sends its fragments in
//! order.

mod coverage;
mod datagrams;
mod keyed;
mod store;
#[cfg(test)]
mod tests;

use crate::packet::{Counters, Direction, Side};
use crate::random::HashKey;
use crate::{DropReason, Limits, Timestamp};
use core::time::Duration;
use coverage::{Coverage, MAX_PIECES, Misfit};
use keyed::{Keyed, Words};
use natgate_wire::{Delta, Ipv4, protocol};
use store::{BLOCK, NONE, Queue, Store, Way};

/// Divisor: one source may take this part of the memory, and of the table's free places.
const SOURCE_SHARE: usize = 8;

/// Bytes of memory for waiting fragments for each datagram in the table.
const MEMORY_PER_DATAGRAM: usize = 1024;
const DATAGRAMS: core::ops::RangeInclusive<usize> = 1024..=65_536;

/// Blocks that one source may always take, even with little memory: one fragment of Ethernet size.
const LEAST_SOURCE_BLOCKS: usize = 4;

/// Bytes of a TCP header without options. A first fragment must contain these.
const TCP_HEADER_LEN: u32 = 20;

/// Common fields of the fragments of one datagram (RFC 791), and the side they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    side: Side,
    /// The realm of the sender; 0 from outside.
    realm: u16,
    source: u32,
    destination: u32,
    protocol: u8,
    identification: u16,
}

/// Position of a fragment in its datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    key: Key,
    /// Offset of the payload in the datagram's payload, bytes.
    start: u16,
    end: u32,
    /// True if more fragments follow.
    more: bool,
    header_len: u32,
}

/// Rewrite of a datagram's first fragment, for its later fragments.
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
    /// The direction to count.
    pub(crate) direction: Direction,
}

/// Decision about a fragment other than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// Rewrite it and send it.
    Apply(Rewrite),
    /// A copy waits for the first fragment.
    Held,
    Drop(DropReason),
}

/// A fragment that has waited and goes on, rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// Time of the translation of its datagram's first fragment.
    pub(crate) time: Timestamp,
    /// The side to send it by.
    pub(crate) out: Side,
    /// The realm to send it to, if by the inside.
    pub(crate) realm: u16,
    /// The direction to count.
    pub(crate) direction: Direction,
    /// Length of the fragment, bytes.
    pub(crate) len: usize,
}

impl Released {
    /// [`Rewrite::hands_over`] for a released fragment.
    pub(crate) fn hands_over(&self) -> bool {
        self.direction == Direction::Hairpin && self.out == Side::Outside
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first fragment has not come or is being translated. Others wait.
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
    /// Time at which the datagram is forgotten.
    due: Timestamp,
    /// Neighbours in the list by age. The list is also in the order of `due`.
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

/// Use of the table and of memory by one source.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    datagrams: usize,
    blocks: usize,
}

/// Every datagram with fragments under way.
#[derive(Clone, Debug)]
pub(crate) struct Fragments {
    timeout: Duration,
    /// Most fragments of a datagram.
    most: usize,
    capacity: usize,
    datagrams: Keyed<Key, Datagram>,
    sources: Keyed<SourceKey, Source>,
    oldest: u32,
    newest: u32,
    /// Number of datagrams without a translated first fragment.
    unsettled: usize,
    store: Store,
    /// Largest number of blocks of one source.
    source_blocks: usize,
    /// Fragments that have waited and go on.
    released: Queue,
}

impl Limits {
    /// Most fragments of one datagram that can be allowed.
    pub const MOST_FRAGMENTS: u8 = MAX_PIECES as u8;
}

impl Fragment {
    /// Reads the fragment fields of a packet from this side; `None`: the packet is a whole
    /// datagram.
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

    /// Sets the realm that the fragment came from.
    pub(crate) fn in_realm(mut self, realm: u16) -> Self {
        self.key.realm = realm;
        self
    }

    /// True if the fragment is the first of its datagram.
    pub(crate) fn is_first(&self) -> bool {
        self.start == 0
    }

    /// True if no honest sender makes such a fragment: it is empty, or its length is no multiple of
    /// eight bytes although it is not the last, or the first fragment does not contain the whole
    /// TCP header (RFC 1858, RFC 3128).
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

    /// Checks that the fragment has a place among fragments that have come.
    fn fits(&self, coverage: &Coverage, most: usize) -> Result<(), DropReason> {
        if self.is_too_long() {
            return Err(DropReason::FragmentTooLong);
        }
        coverage.place(self, most).map(|_| ()).map_err(Misfit::reason)
    }

    fn is_too_long(&self) -> bool {
        self.header_len + self.end > u32::from(u16::MAX)
    }
}

impl Rewrite {
    /// True if the divider of the work between several engines must find the receiver. Only such
    /// packets are hairpinned and leave by the outside.
    pub(crate) fn hands_over(&self) -> bool {
        self.direction == Direction::Hairpin && self.out == Side::Outside
    }

    /// Rewrites the header at the front of `packet`: addresses, identification, time to live minus
    /// one, checksum. `packet` may end early.
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
    /// Makes an empty table with room for `memory` bytes of waiting fragments. A datagram is
    /// forgotten `timeout` after the arrival of its earliest fragment.
    pub(crate) fn new(limits: &Limits, timeout: Duration, hash_key: HashKey) -> Self {
        let (capacity, blocks) = Self::sizes(limits.fragment_memory);
        let mut fragments = Self::sized(capacity, blocks, timeout, hash_key);
        fragments.set_most(limits.fragments_per_datagram);
        fragments
    }

    fn sized(capacity: usize, blocks: usize, timeout: Duration, hash_key: HashKey) -> Self {
        Self {
            timeout,
            most: MAX_PIECES,
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

    /// Number of datagrams and number of blocks. Block numbers have 32 bits.
    fn sizes(memory: usize) -> (usize, usize) {
        let capacity = (memory / MEMORY_PER_DATAGRAM).clamp(*DATAGRAMS.start(), *DATAGRAMS.end());
        (capacity, (memory / BLOCK).min(NONE as usize))
    }

    /// Checks that a first fragment may be translated. After `Ok`, [`Fragments::decided`] must
    /// follow. Time never goes back from call to call.
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

    /// Takes the result of a first fragment that [`Fragments::first`] let pass: its rewrite, or
    /// `None` if it was refused. Waiting fragments are released or dropped accordingly.
    pub(crate) fn decided(
        &mut self,
        now: Timestamp,
        fragment: &Fragment,
        rewrite: Option<Rewrite>,
        counters: &mut Counters,
    ) {
        // The datagram may have been discarded between the two calls.
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

    /// Decides about a fragment other than the first; `packet` is the whole packet. `counters`
    /// counts waiting fragments of the datagram that are dropped. The caller counts the fragment
    /// itself unless it is held.
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
        //= rfc6146#section-3.4-fragments
        //= rfc6146#section-3.4-order
        self.hold(slot, packet);
        self.datagrams[slot].coverage.insert(place, fragment);
        Later::Held
    }

    /// Predicts the result of [`Fragments::first`] without a change.
    pub(crate) fn try_first(&self, fragment: &Fragment) -> Result<(), DropReason> {
        if fragment.is_tiny() {
            return Err(DropReason::FragmentTiny);
        }
        let Some(slot) = self.datagrams.find(fragment.key) else {
            return match self.may_open(fragment.key) {
                true => fragment.fits(&Coverage::EMPTY, self.most),
                false => Err(DropReason::FragmentLimit),
            };
        };
        match self.datagrams[slot].state {
            State::Discarded(reason) => Err(reason),
            _ => fragment.fits(&self.datagrams[slot].coverage, self.most),
        }
    }

    /// Predicts the result of [`Fragments::later`] without a change. The packet is `len` bytes
    /// long.
    pub(crate) fn try_later(&self, fragment: &Fragment, len: usize) -> Later {
        if fragment.is_tiny() {
            return Later::Drop(DropReason::FragmentTiny);
        }
        let Some(slot) = self.datagrams.find(fragment.key) else {
            let fate = self.may_open_waiting(fragment, len);
            return match fate.and_then(|()| fragment.fits(&Coverage::EMPTY, self.most)) {
                Ok(()) => Later::Held,
                Err(reason) => Later::Drop(reason),
            };
        };
        let Datagram { state, coverage, source, .. } = &self.datagrams[slot];
        match *state {
            State::Discarded(reason) => Later::Drop(reason),
            State::Refused => Later::Drop(DropReason::FragmentUnmatched),
            State::Open | State::Translated(_) => {
                match (fragment.fits(coverage, self.most), *state) {
                    (Err(reason), _) => Later::Drop(reason),
                    (Ok(()), State::Translated(rewrite)) => Later::Apply(rewrite),
                    (Ok(()), _) if self.has_room(*source, len) => Later::Held,
                    (Ok(()), _) => Later::Drop(DropReason::FragmentLimit),
                }
            }
        }
    }

    /// The time of the oldest released fragment.
    pub(crate) fn next_released(&self) -> Option<Timestamp> {
        self.store.front(&self.released).map(|way| way.time)
    }

    /// Writes the oldest released fragment to the front of `buffer`.
    ///
    /// # Panics
    /// When the buffer is too short. 65,535 bytes suffice.
    pub(crate) fn poll_released(&mut self, buffer: &mut [u8]) -> Option<Released> {
        let (way, len) = self.store.pop(&mut self.released, buffer)?;
        let Way { time, out, realm, direction } = way;
        Some(Released { time, out, realm, direction, len })
    }

    /// Forgets the datagrams whose time is not after `now`, and drops their waiting fragments.
    pub(crate) fn advance(&mut self, now: Timestamp, counters: &mut Counters) {
        while self.next_deadline().is_some_and(|due| due <= now) {
            self.forget_oldest(counters);
        }
    }

    /// Forgets the oldest datagram, if there is one.
    pub(crate) fn forget_oldest(&mut self, counters: &mut Counters) {
        if self.oldest != NONE {
            let slot = self.oldest;
            self.drop_waiting(slot, DropReason::FragmentUnmatched, counters);
            self.forget(slot);
        }
    }

    /// The time at which [`Fragments::advance`] has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        (self.oldest != NONE).then(|| self.datagrams[self.oldest].due)
    }

    /// The time at which the last of the present datagrams is forgotten.
    pub(crate) fn last_deadline(&self) -> Option<Timestamp> {
        (self.newest != NONE).then(|| self.datagrams[self.newest].due)
    }

    /// Sets the number of fragments that a datagram may have from now on.
    pub(crate) fn set_most(&mut self, most: u8) {
        self.most = usize::from(most);
    }

    /// Sets the timeout of datagrams that come from now on.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }
}

impl Key {
    /// The sender of the fragments.
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
