//! The holds on mappings: records in slots, with an index by mapping, an index by subscriber, and a
//! timer for each. The configuration gives the number of holds; without requests in the
//! configuration no memory is allocated.

use super::{Nonce, RemoteFilter};
use crate::calendar::{Calendar, Link, Links, NONE};
use crate::endpoint::AddressPort;
use crate::host::{Grouping, Host};
use crate::index::Index;
use crate::random::HashKey;
use crate::table::REACH;
use alloc::vec::Vec;

/// The filters of a mapping. Without filters every remote endpoint is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filters {
    all: [RemoteFilter; RemoteFilter::MOST],
    count: u8,
    /// Bit `i`: filter `i` is for one session. The highest bit stands for a hold without filters.
    once: u16,
}

/// Bit of a hold without filters.
const WITHOUT_FILTERS: u16 = 1 << RemoteFilter::MOST;

impl Filters {
    pub(crate) fn as_slice(&self) -> &[RemoteFilter] {
        &self.all[..usize::from(self.count)]
    }

    /// Adds a filter unless it is present. Returns `false` if there are too many filters.
    pub(crate) fn add(&mut self, filter: RemoteFilter) -> bool {
        if self.as_slice().contains(&filter) {
            return true;
        }
        let place = self.all.get_mut(usize::from(self.count));
        self.count += u8::from(place.is_some());
        place.map(|place| *place = filter).is_some()
    }

    /// Limits a filter to one session; `None`: a hold without filters. Returns `false` if the hold
    /// has other filters.
    pub(crate) fn limit_to_one(&mut self, filter: Option<RemoteFilter>) -> bool {
        let place = match filter {
            Some(filter) => self.as_slice().iter().position(|one| *one == filter),
            None => (self.count == 0).then_some(RemoteFilter::MOST),
        };
        self.once |= place.map_or(0, |place| 1 << place);
        place.is_some()
    }

    /// A bit for each filter that is for one session; the highest bit stands for a hold without
    /// filters.
    pub(crate) fn once(&self) -> u16 {
        self.once
    }

    /// Limits filters to one session, by [`Filters::once`] of a copy.
    pub(crate) fn set_once(&mut self, once: u16) {
        let of_filters = (1_u16 << self.count) - 1;
        self.once = once & if self.count == 0 { WITHOUT_FILTERS } else { of_filters };
    }

    /// Removes the filter for one session by which a session has begun. Returns true if no remote
    /// endpoint is admitted any more.
    pub(crate) fn use_up(&mut self, remote: AddressPort) -> bool {
        if self.count == 0 {
            return self.once & WITHOUT_FILTERS != 0;
        }
        let place = self.as_slice().iter().position(|filter| filter.admits(remote));
        let Some(place) = place.filter(|place| self.once >> place & 1 == 1) else { return false };
        self.remove_at(place)
    }

    /// Removes a filter. Returns true if it was there, and no remote endpoint is admitted any more.
    pub(crate) fn remove(&mut self, filter: RemoteFilter) -> bool {
        let place = self.as_slice().iter().position(|one| *one == filter);
        place.is_some_and(|place| self.remove_at(place))
    }

    fn remove_at(&mut self, place: usize) -> bool {
        // The last filter takes the place of the removed one.
        let last = usize::from(self.count) - 1;
        self.all.swap(place, last);
        self.all[last] = RemoteFilter::default();
        let is_last_once = self.once >> last & 1;
        self.once &= !(1 << last | 1 << place);
        if place != last {
            self.once |= is_last_once << place;
        }
        self.count -= 1;
        self.count == 0
    }
}

/// A hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// The mapping.
    pub(crate) slot: u32,
    /// The session that the hold keeps; `None`: the mapping, for all remote endpoints.
    pub(crate) remote: Option<AddressPort>,
    pub(crate) nonce: Nonce,
    /// Tick at which the hold ends.
    pub(crate) until: u32,
    /// The keeper that has asked last; 0: a request without one.
    pub(crate) keeper: u32,
    /// Tick until which others have asked for the hold, if the last keeper is not alone.
    pub(crate) others: u32,
    /// The mapping's subscriber: the first of its possible hosts.
    subscriber: Host,
    pub(crate) filters: Filters,
    /// Neighbours in the list of the subscriber's holds. In a free slot `next` is the next free
    /// slot.
    next: u32,
    prev: u32,
    timer: Link,
}

impl Hold {
    /// True if a remote endpoint may begin a session.
    pub(crate) fn admits(&self, remote: AddressPort) -> bool {
        let filters = self.filters.as_slice();
        filters.is_empty() || filters.iter().any(|filter| filter.admits(remote))
    }
}

/// Contents of a new hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) slot: u32,
    pub(crate) remote: Option<AddressPort>,
    pub(crate) host: Host,
    pub(crate) nonce: Nonce,
    pub(crate) until: u32,
    pub(crate) filters: Filters,
}

#[derive(Clone, Debug)]
struct Slots(Vec<Hold>);

impl Links for Slots {
    fn link(&mut self, element: u32) -> &mut Link {
        &mut self.0[element as usize].timer
    }
}

/// All holds.
#[derive(Clone, Debug)]
pub(crate) struct Holds {
    key: HashKey,
    grouping: Grouping,
    slots: Slots,
    room: usize,
    used: usize,
    free: u32,
    by_mapping: Index,
    /// The first hold of each subscriber.
    by_subscriber: Index,
    timers: Calendar,
    /// Number of mappings that were removed despite a hold.
    pub(crate) lost: u64,
}

impl Holds {
    pub(crate) fn new(room: usize, grouping: Grouping, key: HashKey) -> Self {
        Self {
            key,
            grouping,
            slots: Slots(Vec::with_capacity(room)),
            room,
            used: 0,
            free: NONE,
            by_mapping: Index::new(room),
            by_subscriber: Index::new(room),
            timers: Calendar::new(if room > 0 { REACH } else { 0 }),
            lost: 0,
        }
    }

    /// Takes the room of new holds if there was none, and keeps its own key. Returns what is no
    /// longer needed.
    pub(crate) fn take_room(&mut self, new: Self) -> Self {
        if self.has_room() {
            return new;
        }
        let Self { key, grouping, lost, .. } = *self;
        core::mem::replace(self, Self { key, grouping, lost, ..new })
    }

    /// Number of holds that there may be.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Bytes that `room` holds take.
    pub(crate) fn memory(room: usize) -> u64 {
        (room * size_of::<Hold>()) as u64 + 2 * Index::memory(room)
    }

    /// True if the configuration allows holds.
    pub(crate) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Number of holds that can still be made.
    pub(crate) fn count_free(&self) -> usize {
        self.room - self.used
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.room
    }

    pub(crate) fn get(&self, hold: u32) -> &Hold {
        &self.slots.0[hold as usize]
    }

    /// The filters of a hold.
    pub(super) fn filters_mut(&mut self, hold: u32) -> &mut Filters {
        &mut self.get_mut(hold).filters
    }

    fn get_mut(&mut self, hold: u32) -> &mut Hold {
        &mut self.slots.0[hold as usize]
    }

    fn hash_mapping(&self, slot: u32, remote: Option<AddressPort>) -> u64 {
        let remote = remote.map_or(1 << 48, |AddressPort { address, port }| {
            u64::from(address) << 16 | u64::from(port)
        });
        self.key.hash(u64::from(slot) | 1 << 59, remote)
    }

    fn hash_subscriber(&self, subscriber: Host) -> u64 {
        self.key.hash(subscriber.bits(), 1 << 58)
    }

    /// Finds the hold on a mapping for all remote endpoints (`None`), or for one.
    pub(crate) fn find(&self, slot: u32, remote: Option<AddressPort>) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        self.by_mapping.find(self.hash_mapping(slot, remote), |hold| {
            let hold = self.get(hold);
            (hold.slot, hold.remote) == (slot, remote)
        })
    }

    fn first_of(&self, subscriber: Host) -> Option<u32> {
        let is_of = |hold| self.get(hold).subscriber == subscriber;
        self.by_subscriber.find(self.hash_subscriber(subscriber), is_of)
    }

    /// The holds of a host's subscriber.
    pub(crate) fn of_subscriber(&self, host: Host) -> impl Iterator<Item = u32> + '_ {
        let subscriber = self.grouping.subscriber(host);
        let first = if self.used == 0 { None } else { self.first_of(subscriber) };
        core::iter::successors(first, |&hold| {
            Some(self.get(hold).next).filter(|&next| next != NONE)
        })
    }

    /// The filters of a hold after a change. `None`: too many filters.
    //= rfc6887#section-13.3-add
    pub(crate) fn filters(
        &self,
        hold: Option<u32>,
        replaced: bool,
        added: &[RemoteFilter],
    ) -> Option<Filters> {
        let had = hold.filter(|_| !replaced).map(|hold| self.get(hold).filters);
        let mut filters = had.unwrap_or_default();
        added.iter().all(|filter| filters.add(*filter)).then_some(filters)
    }

    /// Makes a hold, or changes the present one. There must be room.
    pub(crate) fn put(&mut self, new: New, now: u32) {
        let New { slot, remote, host, nonce, until, filters } = new;
        if let Some(hold) = self.find(slot, remote) {
            let of = self.get_mut(hold);
            (of.nonce, of.until, of.filters) = (nonce, until, filters);
            self.schedule(hold, now);
            return;
        }
        let subscriber = self.grouping.subscriber(host);
        let first = self.first_of(subscriber);
        let hold = match self.free {
            NONE => self.slots.0.len() as u32,
            free => free,
        };
        let next = first.unwrap_or(NONE);
        let (prev, timer) = (NONE, Link::default());
        let made = Hold {
            slot,
            remote,
            nonce,
            until,
            keeper: 0,
            others: 0,
            subscriber,
            filters,
            next,
            prev,
            timer,
        };
        match self.slots.0.get_mut(hold as usize) {
            Some(place) => self.free = core::mem::replace(place, made).next,
            None => self.slots.0.push(made),
        }
        self.used += 1;
        let hash = self.hash_subscriber(subscriber);
        if let Some(first) = first {
            self.by_subscriber.remove(hash, first);
            self.get_mut(first).prev = hold;
        }
        self.by_subscriber.insert(hash, hold);
        self.by_mapping.insert(self.hash_mapping(slot, remote), hold);
        self.schedule(hold, now);
    }

    /// Notes that a keeper has asked for a hold. The hold lasts as long as before at least.
    pub(super) fn keep(&mut self, hold: u32, keeper: u32, before: Option<Hold>, now: u32) {
        let of = self.get_mut(hold);
        of.keeper = keeper;
        if let Some(before) = before {
            of.until = of.until.max(before.until);
            of.others = if before.keeper == keeper { before.others } else { before.until };
        }
        self.schedule(hold, now);
    }

    /// Enters the timer of a hold, and removes the earlier entry.
    pub(crate) fn schedule(&mut self, hold: u32, now: u32) {
        self.wait(hold, self.get(hold).until, now);
    }

    /// Enters the timer of a hold whose time has passed for a later tick.
    pub(crate) fn wait(&mut self, hold: u32, tick: u32, now: u32) {
        let tick = tick.min(now + self.timers.span()).max(now + 1);
        self.timers.take(&mut self.slots, hold);
        self.timers.enter(&mut self.slots, hold, tick);
    }

    /// Removes a hold. Returns its mapping, and true if the mapping has no other hold.
    pub(crate) fn remove(&mut self, hold: u32) -> (u32, bool) {
        let Hold { slot, remote, subscriber, next, prev, .. } = *self.get(hold);
        self.timers.take(&mut self.slots, hold);
        self.by_mapping.remove(self.hash_mapping(slot, remote), hold);
        if next != NONE {
            self.get_mut(next).prev = prev;
        }
        if prev != NONE {
            self.get_mut(prev).next = next;
        } else {
            let hash = self.hash_subscriber(subscriber);
            self.by_subscriber.remove(hash, hold);
            if next != NONE {
                self.by_subscriber.insert(hash, next);
            }
        }
        let free = core::mem::replace(&mut self.free, hold);
        self.get_mut(hold).next = free;
        self.used -= 1;
        (slot, !self.of_subscriber(subscriber).any(|other| self.get(other).slot == slot))
    }

    /// Removes all holds on a mapping of a subscriber.
    pub(crate) fn remove_all(&mut self, host: Host, slot: u32) {
        loop {
            let hold = self.of_subscriber(host).find(|&hold| self.get(hold).slot == slot);
            let Some(hold) = hold else { return };
            self.remove(hold);
        }
    }

    /// Removes all holds on sessions of a mapping. Returns true if the mapping has a hold for all.
    pub(crate) fn remove_sessions(&mut self, host: Host, slot: u32) -> bool {
        loop {
            let is_one = |&hold: &u32| {
                let hold = self.get(hold);
                hold.slot == slot && hold.remote.is_some()
            };
            let hold = self.of_subscriber(host).find(is_one);
            let Some(hold) = hold else { return self.find(slot, None).is_some() };
            self.remove(hold);
        }
    }

    /// The tick at which the last hold on a mapping of a subscriber ends.
    pub(crate) fn latest(&self, host: Host, slot: u32) -> Option<u32> {
        let of_mapping = self.of_subscriber(host).map(|hold| self.get(hold));
        of_mapping.filter(|hold| hold.slot == slot).map(|hold| hold.until).max()
    }

    /// The first tick after `now` at which a timer is due.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        self.timers.next(now + 1)
    }

    /// A hold with a timer at this tick.
    pub(crate) fn due(&self, tick: u32) -> Option<u32> {
        Some(self.timers.head(tick, 0)).filter(|&hold| hold != NONE)
    }
}
