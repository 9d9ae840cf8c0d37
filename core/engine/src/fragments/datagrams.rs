//! Datagrams in the table: opening, waiting for the first fragment, release, removal.

use super::coverage::{Coverage, Misfit};
use super::store::{NONE, Queue, Store, Way};
use super::{Datagram, Fragment, Fragments, Key, Rewrite, SOURCE_SHARE, Source, State};
use crate::packet::{Counters, Direction, Side};
use crate::{DropReason, TICK, Timestamp};

impl Fragments {
    /// The fragment's place among the others. A contradiction discards the datagram. A mere
    /// repetition affects only itself.
    pub(super) fn place(
        &mut self,
        slot: u32,
        fragment: &Fragment,
        counters: &mut Counters,
    ) -> Result<usize, DropReason> {
        let fit = if fragment.is_too_long() {
            Err(DropReason::FragmentTooLong)
        } else {
            match self.datagrams[slot].coverage.place(fragment, self.most) {
                Ok(place) => return Ok(place),
                Err(Misfit::Duplicate) => return Err(Misfit::Duplicate.reason()),
                Err(misfit) => Err(misfit.reason()),
            }
        };
        if let Err(reason) = fit {
            self.drop_waiting(slot, reason, counters);
            self.set_state(slot, State::Discarded(reason));
        }
        fit
    }

    /// True if the table and the share of the source have room for a new datagram.
    pub(super) fn may_open(&self, key: Key) -> bool {
        let source = self.sources.find(key.sender());
        let free = self.capacity - self.datagrams.len();
        free > 0 && source.is_none_or(|s| self.sources[s].datagrams < free / SOURCE_SHARE)
    }

    /// Adds a datagram, if the table and the share of its source have room.
    //= rfc4787#REQ-14a
    //= rfc6146#section-3.4-resources
    //= rfc6146#section-5.3-fragments
    pub(super) fn open(&mut self, now: Timestamp, key: Key) -> Option<u32> {
        if !self.may_open(key) {
            return None;
        }
        let source_key = key.sender();
        let source = self.sources.find(source_key);
        // Datagrams are forgotten in the order in which they came, even after the timeout gets
        // shorter.
        //= rfc6146#section-3.4-interval
        //= rfc6146#section-3.4-interval-default
        let due = tick_of(now.plus(self.timeout));
        let due = if self.newest == NONE { due } else { due.max(self.datagrams[self.newest].due) };
        let datagram = Datagram {
            coverage: Coverage::EMPTY,
            state: State::Open,
            due,
            older: self.newest,
            newer: NONE,
            source: NONE,
            waiting: Queue::EMPTY,
        };
        let slot = self.datagrams.insert(key, datagram)?;
        let source = source.unwrap_or_else(|| {
            let source = self.sources.insert(source_key, Source::default());
            source.expect("there are no more sources than datagrams")
        });
        self.sources[source].datagrams += 1;
        self.datagrams[slot].source = source;
        self.unsettled += 1;
        match self.newest {
            NONE => self.oldest = slot,
            newest => {
                assert!(self.datagrams[newest].due <= due, "time went back");
                self.datagrams[newest].newer = slot;
            }
        }
        self.newest = slot;
        Some(slot)
    }

    /// Checks that a fragment before the first of its datagram can be kept, or remembered.
    pub(super) fn may_open_waiting(
        &self,
        fragment: &Fragment,
        len: usize,
    ) -> Result<(), DropReason> {
        let source = self.sources.find(fragment.key.sender()).unwrap_or(NONE);
        // A fragment that is too long is only remembered, not kept.
        let too_long = fragment.is_too_long();
        let room = self.unsettled < self.capacity / 2 && (too_long || self.has_room(source, len));
        match room && self.may_open(fragment.key) {
            true => Ok(()),
            false if too_long => Err(DropReason::FragmentTooLong),
            false => Err(DropReason::FragmentLimit),
        }
    }

    /// Adds a datagram whose first fragment has not come, if this fragment can be kept.
    pub(super) fn open_waiting(
        &mut self,
        now: Timestamp,
        fragment: &Fragment,
        len: usize,
    ) -> Result<u32, DropReason> {
        self.may_open_waiting(fragment, len)?;
        self.open(now, fragment.key).ok_or(DropReason::FragmentLimit)
    }

    /// True if a packet of `len` bytes fits in the memory and in its source's share. [`NONE`]: the
    /// source has nothing yet.
    pub(super) fn has_room(&self, source: u32, len: usize) -> bool {
        let taken = if source == NONE { 0 } else { self.sources[source].blocks };
        let blocks = Store::blocks(len);
        blocks <= self.store.free_blocks() && taken + blocks <= self.source_blocks
    }

    pub(super) fn hold(&mut self, slot: u32, packet: &[u8]) {
        let datagram = &mut self.datagrams[slot];
        self.store.push(&mut datagram.waiting, packet);
        self.sources[datagram.source].blocks += Store::blocks(packet.len());
    }

    pub(super) fn release(&mut self, slot: u32, rewrite: Rewrite, now: Timestamp) {
        let datagram = &mut self.datagrams[slot];
        let Rewrite { out, realm, direction, .. } = rewrite;
        let way = Way { time: now, out, realm, direction };
        while let Some(len) =
            self.store.send(&mut datagram.waiting, &mut self.released, way, |p| rewrite.apply(p))
        {
            self.sources[datagram.source].blocks -= Store::blocks(len);
        }
    }

    pub(super) fn drop_waiting(&mut self, slot: u32, reason: DropReason, counters: &mut Counters) {
        let direction = match self.datagrams.key(slot).side {
            Side::Inside => Direction::Outbound,
            Side::Outside => Direction::Inbound,
        };
        let datagram = &mut self.datagrams[slot];
        while let Some(len) = self.store.discard(&mut datagram.waiting) {
            self.sources[datagram.source].blocks -= Store::blocks(len);
            counters.count_drop(direction, reason, len);
        }
    }

    pub(super) fn set_state(&mut self, slot: u32, state: State) {
        let settled = |state| matches!(state, State::Translated(_));
        let before = core::mem::replace(&mut self.datagrams[slot].state, state);
        self.unsettled += usize::from(settled(before));
        self.unsettled -= usize::from(settled(state));
    }

    /// Forgets a datagram that has gone on completely. Its sender may use the identification again,
    /// and the table is for incomplete datagrams. A fragment that still comes finds no first
    /// fragment, so it goes nowhere.
    pub(super) fn forget_if_complete(&mut self, slot: u32) {
        if self.datagrams[slot].coverage.is_complete() {
            self.forget(slot);
        }
    }

    /// Removes a datagram without waiting fragments from the table.
    pub(super) fn forget(&mut self, slot: u32) {
        let Datagram { state, older, newer, source, .. } = self.datagrams[slot];
        match older {
            NONE => self.oldest = newer,
            older => self.datagrams[older].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.datagrams[newer].older = older,
        }
        self.unsettled -= usize::from(!matches!(state, State::Translated(_)));
        self.sources[source].datagrams -= 1;
        if self.sources[source].datagrams == 0 {
            self.sources.remove(source);
        }
        self.datagrams.remove(slot);
    }
}

/// The time of the first tick that is not before `time`.
pub(super) fn tick_of(time: Timestamp) -> Timestamp {
    let tick = TICK.as_nanos() as u64;
    Timestamp(time.0.div_ceil(tick).saturating_mul(tick))
}
