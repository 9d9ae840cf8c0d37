//! Ports that mappings give back: hold-down (RFC 6888 REQ-8), release, and return to the free
//! ports.

use super::{EMPTY, ExternalPorts, HELD, LAST, Mode, PORTS, Range, WORDS};
use crate::calendar::{NONE, lane};
use crate::endpoint::External;
use crate::prefetch::prefetch_within;
use crate::protocols::{PROTOCOLS, protocol_index};
use core::ops;
use natgate_wire::protocol;

impl ExternalPorts {
    /// Takes a port from its mapping, which has ended at tick `ended`. The port is held until tick
    /// `release` if its protocol has a hold-down, otherwise it is free at once. If too many ports
    /// are held, the port that was held longest becomes free. `now` is the latest completed tick.
    pub(crate) fn give(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        [ended, release]: [u32; 2],
        now: u32,
    ) {
        let place = protocol_index(protocol);
        if !self.has_hold_down_at(place, index) {
            self.give_at_once(protocol, External::new(index, port), ended);
            return;
        }
        //= rfc6888#REQ-8
        self.hold_until(place, index, port, release);
        self.count_held(place, index, true);
        //= rfc6888#REQ-8-configurable
        self.limit_held(now);
    }

    /// Takes a port from its mapping, which has ended at tick `ended`. The port is free at once.
    pub(crate) fn give_at_once(
        &mut self,
        protocol: u8,
        External { index, port }: External,
        ended: u32,
    ) {
        let place = protocol_index(protocol);
        self.ports[place].owner[Self::entry(index, port)] = EMPTY;
        self.put_back(place, index, port, ended);
    }

    /// True if ports of an address are held after their mapping; `protocol` is the protocol's
    /// place.
    #[inline(always)]
    pub(super) fn has_hold_down_at(&self, protocol: usize, index: u32) -> bool {
        //= rfc6888#REQ-8a
        self.ports[protocol].hold > 0
            && self.most_held > 0
            && !(self.shares && self.is_whole(self.pool_of(index)))
    }

    /// True if ports of a protocol of an address are held after their mapping.
    pub(crate) fn has_hold_down(&self, protocol: u8, index: u32) -> bool {
        self.has_hold_down_at(protocol_index(protocol), index)
    }

    /// Counts a held port more, or less; `protocol` is the protocol's place.
    #[inline(always)]
    pub(super) fn count_held(&mut self, protocol: usize, index: u32, is_more: bool) {
        self.held = if is_more { self.held + 1 } else { self.held - 1 };
        let pool = self.pool_of(index);
        self.ports[protocol].count_held(index, pool, is_more);
    }

    /// Frees held ports, the earliest due first, while too many are held.
    #[inline(always)]
    pub(super) fn limit_held(&mut self, now: u32) {
        if self.held > self.most_held {
            self.free_most(now);
        }
    }

    #[cold]
    fn free_most(&mut self, now: u32) {
        while self.held > self.most_held
            && let Some(tick) = self.next_release(now)
            && let Some(port) = self.due(tick, 0)
        {
            self.release(port, tick, now + 1);
        }
    }

    /// Frees a port that was used or held, if its address still gives out the port; `protocol` is
    /// the protocol's place. `tick` is the time of the release.
    #[inline(always)]
    pub(super) fn put_back(&mut self, protocol: usize, index: u32, port: u16, tick: u32) {
        let slot = &mut self.slots[index as usize];
        slot.busy -= 1;
        let (pool, is_gone) = (usize::from(slot.pool), slot.busy == 0 && !slot.is_known);
        let is_free = self.gives_out(protocol, index, port);
        if is_free {
            self.ports[protocol].set_free(index, pool, port);
        }
        self.note_freed(protocol, index, port, is_free, tick);
        if is_gone {
            self.waiting -= 1;
            self.unused.push(index);
        }
    }

    /// True if a port of an address may be given out when it has no owner; `protocol` is the
    /// protocol's place.
    #[inline(always)]
    pub(super) fn gives_out(&self, protocol: usize, index: u32, port: u16) -> bool {
        let slot = &self.slots[index as usize];
        if slot.is_closed || slot.kept >> protocol & 1 != 0 {
            return false;
        }
        let pool = &self.pools[usize::from(slot.pool)];
        if matches!(pool.mode, Mode::Random | Mode::Preserve) {
            let is_in_pool = pool.bits[usize::from(port) / 64] >> (port % 64) & 1 != 0;
            let (first, last) = pool.ports;
            return is_in_pool && (first..=last).contains(&port) && self.part.has(index, port);
        }
        self.gives_share_out(index, port)
    }

    /// [`ExternalPorts::gives_out`] of an address whose pool shares its ports out.
    #[inline(never)]
    fn gives_share_out(&self, index: u32, port: u16) -> bool {
        let slot = &self.slots[index as usize];
        let pool = &self.pools[usize::from(slot.pool)];
        let is_in_pool = pool.bits[usize::from(port) / 64] >> (port % 64) & 1 != 0;
        let is_in = |range: Option<(u16, u16)>| {
            range.is_some_and(|(first, last)| (first..=last).contains(&port))
        };
        let [mut usable, further] = self.usable(usize::from(slot.pool), index).map(is_in);
        if pool.mode == Mode::Block {
            usable |= further;
            usable &= self.part.has(index, port);
        } else {
            usable |= further && self.part.has(index, port);
        }
        usable && is_in_pool
    }

    /// Bitmap of an address's ports that may be given out when they have no owner, for some words;
    /// `protocol` is the protocol's place.
    pub(super) fn given_out(
        &self,
        index: u32,
        protocol: usize,
        words: ops::Range<usize>,
    ) -> impl Iterator<Item = u64> + '_ {
        let slot = &self.slots[index as usize];
        let shut = slot.is_closed || slot.kept >> protocol & 1 != 0;
        let pool = self.pools.get(usize::from(slot.pool)).filter(|_| !shut);
        let usable = self.usable(usize::from(slot.pool), index);
        let usable = usable.map(|range| range.map(|(first, last)| Range { first, last }));
        words.map(move |word| {
            let Some(pool) = pool else { return 0 };
            let own = self.part.mask(index, word);
            let [first, further] = usable.map(|range| range.map_or(0, |range| range.bits(word)));
            let first = if pool.mode == Mode::Deterministic { first } else { first & own };
            pool.bits[word] & (first | further & own)
        })
    }

    /// Recomputes the free ports of an address: ports that the address gives out and that have no
    /// owner. `protocol` is the protocol's place.
    pub(super) fn renew(&mut self, index: u32, protocol: usize) {
        let mut bits = [0; WORDS];
        let given_out = self.given_out(index, protocol, 0..WORDS);
        bits.iter_mut().zip(given_out).for_each(|(bits, all)| *bits = all);
        let slot = &self.slots[index as usize];
        let pool = usize::from(slot.pool);
        let pool = (pool < self.pools.len()).then_some(pool);
        self.ports[protocol].renew(index, pool, slot.busy > 0, &bits);
        self.count_shares(index, protocol);
    }

    /// Recomputes the free ports of an address, of all protocols.
    pub(super) fn renew_all(&mut self, index: u32) {
        (0..PROTOCOLS.len()).for_each(|protocol| self.renew(index, protocol));
    }

    /// Holds a port of a pool until tick `release`, if the port has no owner, no static mapping has
    /// the whole address, and the limit of held ports leaves room.
    pub(crate) fn hold(&mut self, protocol: u8, index: u32, port: u16, release: u32) {
        if self.held < self.most_held {
            self.hold_beyond(protocol, index, port, release);
        }
    }

    /// Holds ports of an address until tick `release`, with their protocols. Beyond the limit, the
    /// ports that are due first become free.
    pub(crate) fn hold_all(&mut self, index: u32, ports: &[(u8, u16)], [now, release]: [u32; 2]) {
        if self.most_held == 0 || release <= now {
            return;
        }
        for &(protocol, port) in ports {
            self.hold_beyond(protocol, index, port, release);
            self.limit_held(now);
        }
    }

    /// [`ExternalPorts::hold`], whatever the limit is.
    fn hold_beyond(&mut self, protocol: u8, index: u32, port: u16, release: u32) {
        let (place, slot) = (protocol_index(protocol), &mut self.slots[index as usize]);
        let number = usize::from(slot.pool);
        let Some(pool) = self.pools.get(number) else { return };
        let ports = &mut self.ports[place];
        if slot.kept >> place & 1 != 0
            || !(pool.ports.0..=pool.ports.1).contains(&port)
            || ports.owner[Self::entry(index, port)] != EMPTY
        {
            return;
        }
        slot.busy += 1;
        self.hold_until(place, index, port, release);
        self.count_held(place, index, true);
        let ports = &mut self.ports[place];
        if ports.take_free(index, number, port) {
            self.note_taken(place, index, number, port);
        } else {
            self.blocks.held(number, index, port);
        }
    }

    /// True if no further port can be held.
    pub(crate) fn holds_most(&self) -> bool {
        self.held >= self.most_held
    }

    /// Sets the hold-down of ports that mappings give back from now on, ticks.
    pub(crate) fn set_hold(&mut self, hold: u32) {
        for (ports, protocol) in self.ports.iter_mut().zip(PROTOCOLS) {
            ports.hold = if protocol == protocol::TCP { 0 } else { hold };
        }
    }

    /// The first tick after `now` at which a port or a block is released.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        match self.next_release(now) {
            Some(tick) if tick == now + 1 => Some(tick),
            tick => tick.into_iter().chain(self.blocks.next_tick(now)).min(),
        }
    }

    /// The first tick after `now` at which a port is released.
    pub(super) fn next_release(&self, now: u32) -> Option<u32> {
        let mut first = None;
        for ports in &self.ports {
            match ports.holds.next(now + 1) {
                Some(tick) if tick == now + 1 => return Some(tick),
                Some(tick) => first = Some(first.map_or(tick, |first: u32| first.min(tick))),
                None => {}
            }
        }
        first
    }

    /// A port that is released at a tick, from the first non-empty list from `from` on: the place
    /// of its protocol, and the port's entry.
    pub(super) fn due(&self, tick: u32, from: usize) -> Option<(usize, u32)> {
        let protocol = self.due_protocol(tick)?;
        Some((protocol, self.due_of(protocol, tick, from)?))
    }

    /// The place of the first protocol that has a port that is released at a tick.
    pub(crate) fn due_protocol(&self, tick: u32) -> Option<usize> {
        self.ports.iter().position(|ports| ports.holds.head(tick, 0) != NONE)
    }

    /// The entry of a port of a protocol, given by its place, that is released at a tick, from the
    /// first non-empty list from `from` on.
    #[inline(always)]
    pub(crate) fn due_of(&self, protocol: usize, tick: u32, from: usize) -> Option<u32> {
        let entry = self.ports[protocol].holds.head(tick, from);
        (entry != NONE).then_some(entry)
    }

    /// Prefetches what the release of a due port will touch, if the port is still held. Returns the
    /// port that is due after it.
    pub(crate) fn fetch_due(&self, (protocol, entry): (usize, u32)) -> Option<(usize, u32)> {
        let ports = &self.ports[protocol];
        let owner = ports.owner[entry as usize];
        if owner & HELD == 0 {
            return None;
        }
        prefetch_within(&ports.free, entry as usize / 64);
        let next = Some(owner & !HELD).filter(|&next| next != LAST)?;
        prefetch_within(&ports.owner, next as usize);
        Some((protocol, next))
    }

    /// Frees the first of the ports that are due at `tick`. `at` is the time of the release, and
    /// may be before `tick`.
    pub(crate) fn release(&mut self, port: (usize, u32), tick: u32, at: u32) {
        if !self.lingering.is_empty() && self.end_lingering(port, tick, at) {
            return;
        }
        let (protocol, entry) = port;
        let ports = &mut self.ports[protocol];
        let owner = &mut ports.owner[entry as usize];
        let is_held = *owner & HELD != 0;
        // A static mapping may have taken the port since.
        let evicted = if is_held { None } else { self.evicted.remove(&port) };
        let next = evicted.unwrap_or(*owner & !HELD);
        ports.holds.advance(tick, lane(entry), if next == LAST { NONE } else { next });
        if !is_held {
            return;
        }
        self.free_held(protocol, entry as usize, at);
    }

    /// Frees a held port at tick `at`; `protocol` is the protocol's place. The port is in no list
    /// of a tick any more.
    #[inline(always)]
    pub(super) fn free_held(&mut self, protocol: usize, entry: usize, at: u32) {
        let (index, port) = ((entry / PORTS) as u32, entry as u16);
        self.ports[protocol].owner[entry] = EMPTY;
        self.count_held(protocol, index, false);
        self.put_back(protocol, index, port, at);
    }
}
