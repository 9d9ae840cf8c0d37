//! An engine as one of a pair (`docs/design/pair.md`): which addresses assign ports, which mappings
//! end by their timers, which mappings have changed, and which ports rest after their mapping.
//!
//! An engine that is none of a pair has no such state, and asks once for each end of a mapping.

use crate::endpoint::{AddressPort, External};
use crate::engine::Engine;
use crate::external::Rest;
use crate::host::Host;
use crate::protocols::has_ports;
use crate::session::{Idle, State};
use crate::table::{Mapping, SessionRef};
use crate::time::{TICK, nanos};
use crate::{AddressRange, Change, Endpoint, Timestamp};
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Start of a timer for sessions that do not end by themselves.
const KEPT: u32 = u32::MAX;

/// Ticks between looks at a hold that does not end.
const KEPT_LOOK: u32 = 8;

/// Ended mappings without ports that may rest before no new one begins.
const MOST_PORTLESS: u32 = 1 << 16;

/// The part of an engine in external addresses that it shares with another engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duty {
    /// New mappings may have ports of the addresses.
    pub assigns: bool,
    /// Sessions and requested mappings do not end by themselves. Once they may end again, each
    /// session has its full timeout, and a requested mapping whose time has passed has a hold-down.
    pub keeps: bool,
    /// The engine decides about requests for the mappings of the addresses. Otherwise it confirms
    /// what there is.
    pub owns: bool,
}

/// A change that the partner must hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyChange {
    /// The mapping with this key has come, or has other sessions or states.
    Changed(u32),
    /// The mapping with this key has ended. Its port rests until [`Engine::end_rest`].
    Ended(u32, PairPort),
    /// The static mapping with this key has ended. Its port does not rest: nobody else has got it.
    StaticEnded(u32, PairPort),
}

/// An external port of a mapping, as one that rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPort {
    /// Protocol.
    pub protocol: u8,
    /// The port. A protocol without ports has port 0.
    pub external: Endpoint,
    /// For a protocol without ports the remote address, to which the external endpoint leads to one
    /// subscriber; otherwise 0.0.0.0.
    pub remote: Ipv4Addr,
    /// For a protocol without ports, tells one end from another; otherwise 0.
    pub number: u32,
}

/// An external address of a protocol without ports, towards a remote address: protocol, index of
/// the external address, remote address.
type Portless = (u8, u32, u32);

/// Facts about a mapping, for the decision whether to copy it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFacts {
    /// External address.
    pub address: Ipv4Addr,
    /// Time of creation.
    pub created: Timestamp,
    /// True if a TCP connection of the mapping is no longer opening, or if the mapping needs no
    /// connection: it is static or a host has requested it.
    pub is_settled: bool,
    /// True if the mapping's protocol is TCP.
    pub is_tcp: bool,
    /// True if the mapping is static. Each of several engines that share the work has all of these.
    pub is_static: bool,
    /// Realm and address of the internal host.
    pub host: (u16, Ipv4Addr),
    /// Internal port.
    pub port: u16,
}

/// An endpoint without ports that rests after mappings.
#[derive(Clone, Copy, Debug)]
struct RestingPortless {
    /// The one host that the mappings were of. `None`: they were of several, or of one with a
    /// number, which another host can get.
    last: Option<Host>,
    /// Number of mappings that have ended there.
    ends: u32,
    /// Number of these that keep a whole address in use while they rest, and number of those that
    /// gave way to others.
    in_use: u32,
    gave_way: u32,
}

/// State of an engine that is one of a pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    changes: Vec<CopyChange>,
    /// A bit for each key in `changes`.
    is_listed: Vec<u64>,
    /// By index of the address: 0, the tick from which timers run again, or [`KEPT`].
    since: Vec<u32>,
    /// By index of the address: [`Duty::owns`].
    owned: Vec<bool>,
    /// Endpoints without ports that rest.
    resting: BTreeMap<Portless, RestingPortless>,
    /// Number of these mappings, and of all that have ended.
    ends_resting: u32,
    ends: u32,
    /// True if this engine has every mapping of the other one, as far as it knows.
    has_all: bool,
}

impl Pair {
    /// One mapping less rests at a place. Returns its state afterwards if a whole address was in
    /// use because of it.
    fn end_portless(&mut self, place: Portless) -> Option<Rest> {
        let Entry::Occupied(mut entry) = self.resting.entry(place) else { return None };
        self.ends_resting -= 1;
        let resting = entry.get_mut();
        resting.ends -= 1;
        let was_in_use = resting.in_use > 0;
        resting.in_use -= u32::from(was_in_use);
        let gave_way = was_in_use && resting.gave_way > 0;
        resting.gave_way -= u32::from(gave_way);
        if resting.ends == 0 {
            entry.remove();
        }
        was_in_use.then_some(if gave_way { Rest::Free } else { Rest::HoldDown })
    }

    fn change(&mut self, key: u32) {
        let (word, bit) = (key as usize / 64, 1_u64 << (key % 64));
        if self.is_listed.len() <= word {
            self.is_listed.resize(word + 1, 0);
        }
        if self.is_listed[word] & bit == 0 {
            self.is_listed[word] |= bit;
            self.changes.push(CopyChange::Changed(key));
        }
    }
}

impl Engine {
    /// Becomes one of a pair: notes changes from now on, and lets ports rest. No external address
    /// assigns ports before [`Engine::set_duty`] says so, those of later configurations neither.
    pub fn join_pair(&mut self) {
        self.pair.get_or_insert_default();
        self.external.join_pair();
        let ranges = self.config.pools.iter().flat_map(|pool| pool.addresses.clone());
        for range in ranges.collect::<Vec<_>>() {
            self.set_duty(range, Duty { assigns: false, keeps: true, owns: false });
        }
    }

    /// Sets the engine's part in a range of addresses, between two batches of packets.
    ///
    /// # Panics
    /// If the engine is none of a pair.
    pub fn set_duty(&mut self, range: AddressRange, duty: Duty) {
        let now = self.present_tick().clamp(1, KEPT - 1);
        let pair = self.pair.as_mut().expect("the engine has joined a pair");
        for index in range.each().filter_map(|address| self.external.index(address.to_bits())) {
            let at = index as usize;
            if pair.since.len() <= at {
                pair.since.resize(at + 1, 0);
                pair.owned.resize(at + 1, false);
            }
            pair.owned[at] = duty.owns;
            match duty.keeps {
                true => pair.since[at] = KEPT,
                false if pair.since[at] == KEPT => pair.since[at] = now,
                false => {}
            }
        }
        self.external.set_assigning(range, duty.assigns);
        self.may_be_short = true;
    }

    /// Sets whether this engine has every mapping of the pair, as far as it can know: it owns all
    /// addresses, or has a present copy of the others. Until then it does not say that a mapping
    /// does not exist.
    ///
    /// # Panics
    /// If the engine is none of a pair.
    pub fn set_has_all(&mut self, has_all: bool) {
        self.pair.as_mut().expect("the engine has joined a pair").has_all = has_all;
    }

    /// True if the other engine of a pair may have mappings that this one does not know.
    pub(crate) fn may_lack_copies(&self) -> bool {
        self.pair.as_ref().is_some_and(|pair| !pair.has_all)
    }

    /// True if new mappings may have ports of an address.
    pub fn assigns(&self, address: Ipv4Addr) -> bool {
        self.external.index(address.to_bits()).is_some_and(|index| self.external.assigns(index))
    }

    /// Moves the changes since the last call into `into`, in their order. A mapping is named once.
    pub fn take_changes(&mut self, into: &mut Vec<CopyChange>) {
        let Some(pair) = &mut self.pair else { return };
        for change in &pair.changes {
            if let CopyChange::Changed(key) = change {
                pair.is_listed[*key as usize / 64] = 0;
            }
        }
        into.append(&mut pair.changes);
    }

    /// True if changes wait for [`Engine::take_changes`].
    pub fn has_changes(&self) -> bool {
        self.pair.as_ref().is_some_and(|pair| !pair.changes.is_empty())
    }

    /// Fetches the memory that [`Engine::copy_facts`] of a key needs.
    pub fn fetch_copy(&self, key: u32) {
        self.table.prefetch_mapping(key);
    }

    /// Facts about the mapping with a key. `None`: there is none.
    pub fn copy_facts(&self, key: u32) -> Option<CopyFacts> {
        if key >= self.table.extent() || !self.table.is_live(key) {
            return None;
        }
        let mapping = self.table.mapping(key);
        let is_tcp = mapping.protocol == natgate_wire::protocol::TCP;
        let opens = |at: SessionRef| {
            matches!(self.table.session(at).state(), State::OpeningOut | State::OpeningIn)
        };
        let is_settled = mapping.is_static()
            || mapping.is_explicit()
            || is_tcp && !self.table.sessions(key).all(opens);
        Some(CopyFacts {
            address: Ipv4Addr::from_bits(self.external.address(mapping.external().index)),
            created: Timestamp(self.time_of(self.created(mapping))),
            is_settled,
            is_tcp,
            is_static: mapping.is_any_static(),
            host: (mapping.host().realm(), Ipv4Addr::from_bits(mapping.host().address())),
            port: mapping.internal().port,
        })
    }

    /// True if a mapping here has an external port.
    pub fn is_mapped(&self, protocol: u8, Endpoint { address, port }: Endpoint) -> bool {
        self.copy_key(protocol, Endpoint { address, port }).is_some()
    }

    /// The key of the mapping that has an external port, its slot. `None`: there is none, or the
    /// protocol has no ports.
    pub fn copy_key(&self, protocol: u8, Endpoint { address, port }: Endpoint) -> Option<u32> {
        let index = self.external.index(address.to_bits()).filter(|_| has_ports(protocol))?;
        self.external.owner(protocol, index, port)
    }

    /// [`Engine::copy_key`] of the mapping with an internal endpoint: the servers of a service have
    /// one external port. If no server has the endpoint, it is the key of the first mapping.
    pub fn copy_key_of(
        &self,
        protocol: u8,
        external: Endpoint,
        Endpoint { address, port }: Endpoint,
    ) -> Option<u32> {
        let key = self.copy_key(protocol, external)?;
        let index = self.external.index(external.address.to_bits())?;
        let external = External::new(index, external.port);
        let server = self.services.server(protocol, external, (address, port));
        Some(server.unwrap_or(key))
    }

    /// The first address or number of a subscriber, by one of its hosts.
    pub fn subscriber_of(&self, (realm, address): (u16, Ipv4Addr)) -> Ipv4Addr {
        let subscriber = self.subscribers.subscriber_of(Host::new(realm, address.to_bits()));
        Ipv4Addr::from_bits(subscriber.address())
    }

    /// True if a port rests.
    pub fn rests_at(&self, PairPort { protocol, external, .. }: PairPort) -> bool {
        let index = self.external.index(external.address.to_bits());
        index.filter(|_| has_ports(protocol)).is_some_and(|index| {
            self.external.rests_at(protocol, External::new(index, external.port))
        })
    }

    /// Keeps a port from new mappings until [`Engine::end_rest`], because another engine that
    /// shares the work has its mapping. A port that is held rests instead. The block of the port is
    /// released if no mapping here has a port of it. Port 0 stands for a whole address. Returns
    /// false if the address is unknown, the
    /// protocol has no ports, or a mapping here has the port.
    pub fn guard(&mut self, PairPort { protocol, external, .. }: PairPort) -> bool {
        let index = self.external.index(external.address.to_bits());
        let Some(index) = index.filter(|_| has_ports(protocol)) else { return false };
        let external = External::new(index, external.port);
        let is_guarded = self.external.guard(protocol, external, self.present_tick());
        if is_guarded && let Some(block) = self.external.take_unused(external) {
            self.raise(self.now, Change::BlockReleased(block));
        }
        is_guarded
    }

    /// Releases the block of a port, if other engines share the work of this one, which does not
    /// give the block out, and if no mapping here has a port of it any more. Another engine may
    /// have a mapping of the block's next subscriber from now on.
    pub(crate) fn leave_block(&mut self, external: External) {
        if let Some(block) = self.external.leave_unused(external) {
            self.raise(self.now, Change::BlockReleased(block));
            let until = self.deadline(self.now, self.timeouts.hold_down);
            self.external.hold_whole(external.index, [self.present_tick(), until]);
        }
    }

    /// [`Engine::leave_block`] of a whole address, after the end of one of its mappings.
    #[cold]
    pub(crate) fn leave_whole(&mut self, index: u32) {
        if !self.external.has_mappings(index)
            && self.external.is_whole(self.external.pool_of(index))
        {
            self.leave_block(External::new(index, 0));
        }
    }

    /// True if this engine has mappings of an external address that one host has as a whole, or
    /// something of it that rests after such.
    pub fn uses_address(&self, address: Ipv4Addr) -> bool {
        let index = self.external.index(address.to_bits());
        index.is_some_and(|index| {
            self.external.has_mappings(index) || self.external.has_resting(index)
        })
    }

    /// True if a subscriber has a block, or a whole address, in this engine.
    pub fn has_assigned_blocks(&self) -> bool {
        self.external.has_assigned_blocks()
    }

    /// [`Engine::has_assigned_blocks`] of one address.
    pub fn has_assigned_blocks_of(&self, address: Ipv4Addr) -> bool {
        let index = self.external.index(address.to_bits());
        index.is_some_and(|index| self.external.has_assigned_blocks_of(index))
    }

    /// Releases the blocks of an address that this engine has ceased to give out, if other engines
    /// share its work, and if no mapping here has a port of them. Returns the number of ports that
    /// it has read. `None`: there is no room for the events of all; poll them, and call again.
    pub fn leave_blocks(&mut self, address: Ipv4Addr) -> Option<usize> {
        let Some(index) = self.external.index(address.to_bits()) else { return Some(0) };
        let mut read = 0;
        for (port, reads) in self.external.owned_blocks(index) {
            if !self.has_room_for_events() {
                return None;
            }
            self.leave_block(External::new(index, port));
            read += reads;
        }
        Some(read)
    }

    /// Ends the rest of a port: the partner has no copy of its mapping any more. The hold-down
    /// begins, if the protocol has one and the mapping did not give way to others; otherwise the
    /// port is free.
    pub fn end_rest(&mut self, port: PairPort) {
        let PairPort { protocol, external, remote, .. } = port;
        let until = self.deadline(self.now, self.timeouts.hold_down);
        let Some(index) = self.external.index(external.address.to_bits()) else { return };
        if has_ports(protocol) {
            let external = External::new(index, external.port);
            let released = self.external.end_rest(protocol, external, until, self.present_tick());
            if let Some(block) = released {
                self.raise(self.now, Change::BlockReleased(block));
            }
        } else if let Some(pair) = &mut self.pair {
            let (place, times) = ((protocol, index, remote.to_bits()), [self.tick, until]);
            if let Some(after) = pair.end_portless(place)
                && let Some(block) = self.external.end_rest_portless(index, after, times)
            {
                self.raise(self.now, Change::BlockReleased(block));
            }
        }
    }

    /// Ends mappings of a range of addresses whose slots `is_copy` does not accept: the other
    /// engines, which assign the ports, do not have them. Looks at `most` slots from `from` on.
    /// Returns the next slot; `None`: all have been looked at. Poll the events before the next
    /// call.
    pub fn end_strangers(
        &mut self,
        is_copy: impl Fn(u32) -> bool,
        has: impl Fn(Ipv4Addr) -> bool,
        from: u32,
        most: u32,
    ) -> Option<u32> {
        let extent = self.table.extent();
        for slot in from..extent.min(from.saturating_add(most)) {
            if !self.has_room_for_events() {
                return Some(slot);
            }
            let is_stranger = self.table.is_live(slot) && !is_copy(slot) && {
                let mapping = self.table.mapping(slot);
                let address = self.external.address(mapping.external().index);
                let is_dynamic = !mapping.is_static() && !mapping.is_fixed();
                is_dynamic && has(Ipv4Addr::from_bits(address))
            };
            if is_stranger && !self.discard_some(slot) {
                return Some(slot);
            }
        }
        let next = from.saturating_add(most);
        (next < extent).then_some(next)
    }

    /// Ends the mapping with a key that the other engine has no place for, if it has this protocol
    /// and external endpoint and is not static. Its port rests as after any end. Returns false if
    /// there is no such mapping, or no room for its events: poll them before the next call.
    pub fn end_uncopied(&mut self, key: u32, protocol: u8, external: (Ipv4Addr, u16)) -> bool {
        if key >= self.table.extent() || !self.table.is_live(key) || !self.has_room_for_events() {
            return false;
        }
        let mapping = self.table.mapping(key);
        let External { index, port } = mapping.external();
        let address = Ipv4Addr::from_bits(self.external.address(index));
        let is_meant = mapping.protocol == protocol && (address, port) == external;
        let ends = is_meant && !mapping.is_static() && !mapping.is_fixed();
        if ends {
            self.discard(key);
        }
        ends
    }

    /// True if a host has the whole external address at a place, used or not. `address` counts from
    /// 0.
    pub fn is_given_whole(&self, address: usize) -> bool {
        self.external.has_whole_owner(address as u32)
    }

    /// Number of mappings that there is room for.
    pub fn most_mappings(&self) -> u32 {
        let most = self.table.filled().most + self.table.room_for_statics();
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Number of ports that rest.
    pub fn resting(&self) -> usize {
        let portless = self.pair.as_ref().map_or(0, |pair| pair.ends_resting as usize);
        self.external.resting() + portless
    }

    /// A mapping has come, or its sessions have changed.
    #[inline(always)]
    pub(crate) fn note_change(&mut self, slot: u32) {
        if let Some(pair) = &mut self.pair {
            pair.change(slot);
        }
    }

    /// A mapping has ended that had a port: the port rests; `after` is its state after the rest.
    /// Returns `false` if the engine is none of a pair; then nothing has happened.
    #[inline(always)]
    pub(crate) fn rests(
        &mut self,
        slot: u32,
        protocol: u8,
        external: External,
        after: Rest,
    ) -> bool {
        self.pair.is_some() && self.begin_rest(slot, protocol, external, after)
    }

    #[cold]
    fn begin_rest(&mut self, key: u32, protocol: u8, external: External, after: Rest) -> bool {
        self.external.rest(protocol, external, after);
        self.leave_block(external);
        let external = self.shown_end(external);
        let port = PairPort { protocol, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 };
        if let Some(pair) = &mut self.pair {
            pair.changes.push(CopyChange::Ended(key, port));
        }
        true
    }

    /// A static mapping has ended.
    pub(crate) fn note_static_end(&mut self, key: u32, protocol: u8, external: External) {
        let external = self.shown_end(external);
        let port = PairPort { protocol, external, remote: Ipv4Addr::UNSPECIFIED, number: 0 };
        if let Some(pair) = &mut self.pair {
            pair.changes.push(CopyChange::StaticEnded(key, port));
        }
    }

    /// A mapping without a port has ended, at a tick. Its endpoint rests if the engine is one of a
    /// pair. A whole address is in use until the end of that rest: `after` is its state then.
    pub(crate) fn end_portless(&mut self, key: u32, mapping: &Mapping, after: Rest, tick: u32) {
        let (protocol, external) = (mapping.protocol, mapping.external());
        let rests = self.pair.is_some();
        let after = rests.then(|| self.external.rest_portless(external.index, after)).flatten();
        if after.is_none() {
            self.external.end_portless(external.index, tick);
        }
        let (endpoint, remote) = (self.shown_end(external), mapping.first.remote().address);
        let host = mapping.host();
        let last = Some(host).filter(|host| !self.has_numbers(host.realm()));
        let Some(pair) = &mut self.pair else { return };
        let new = RestingPortless { last, ends: 0, in_use: 0, gave_way: 0 };
        let resting = pair.resting.entry((protocol, external.index, remote)).or_insert(new);
        resting.last = resting.last.filter(|_| resting.last == last);
        resting.ends += 1;
        resting.in_use += u32::from(after.is_some());
        resting.gave_way += u32::from(after == Some(Rest::Free));
        pair.ends_resting += 1;
        pair.ends = pair.ends.wrapping_add(1);
        let (remote, number) = (Ipv4Addr::from_bits(remote), pair.ends);
        let port = PairPort { protocol, external: endpoint, remote, number };
        pair.changes.push(CopyChange::Ended(key, port));
    }

    fn shown_end(&self, External { index, port }: External) -> Endpoint {
        Endpoint::new(self.external.address(index), port)
    }

    /// True if a host may have an external address for a protocol without ports, towards a remote
    /// address: it does not rest, or rests after mappings of the same host.
    pub(crate) fn may_take_portless(&self, place: Portless, host: Host) -> bool {
        let Some(pair) = &self.pair else { return true };
        let is_free = pair.resting.get(&place).is_none_or(|resting| resting.last == Some(host));
        is_free && self.may_begin_portless()
    }

    /// True if a mapping without a port may begin: not too many of those that have ended rest.
    pub(crate) fn may_begin_portless(&self) -> bool {
        self.pair.as_ref().is_none_or(|pair| pair.ends_resting < MOST_PORTLESS)
    }

    /// True if the other engine of a pair decides about the mappings of an address.
    pub(crate) fn is_others(&self, index: u32) -> bool {
        let owns = |pair: &Pair| pair.owned.get(index as usize).copied().unwrap_or(false);
        self.pair.as_ref().is_some_and(|pair| !owns(pair))
    }

    /// The next look at a hold of a mapping of an address, whose end has passed at `tick`, if it
    /// may not end yet. The owner may have given it more time without a word to this engine.
    pub(crate) fn keeps_hold(&self, index: u32, tick: u32) -> Option<u32> {
        match *self.pair.as_ref()?.since.get(index as usize)? {
            KEPT => Some(tick + KEPT_LOOK),
            0 => None,
            since => {
                let end = self.deadline(self.time_of(since), self.timeouts.hold_down);
                Some(end).filter(|end| *end > tick)
            }
        }
    }

    /// Extends a session that is due and whose time has passed, if it may not end yet.
    #[inline(always)]
    pub(crate) fn keep_session(&mut self, session: SessionRef, slot: u32, tick: u32) {
        if self.pair.is_some() {
            self.keep_session_of_pair(session, slot, tick);
        }
    }

    #[cold]
    fn keep_session_of_pair(&mut self, session: SessionRef, slot: u32, tick: u32) {
        let mapping = self.table.mapping(slot);
        let External { index, .. } = mapping.external();
        let since = self.pair.as_ref().and_then(|pair| pair.since.get(index as usize));
        let begins = match since.copied().unwrap_or(0) {
            0 => return,
            KEPT => tick.max(self.present_tick()),
            since => since,
        };
        let state = self.table.session(session).state();
        let AddressPort { port, .. } = self.table.session(session).remote();
        let timeout = self.timeouts.of(mapping.timeouts(), idle_in(state), mapping.protocol, port);
        let expires = self.deadline(self.time_of(begins), timeout.max(nanos(TICK)));
        let session = self.table.session_mut(session);
        session.expires = session.expires.max(expires);
    }
}

/// The timer of a session in a state.
fn idle_in(state: State) -> Idle {
    match state {
        State::OpeningOut | State::OpeningIn => Idle::Opening,
        State::Closed | State::Transitory => Idle::Closing,
        _ => Idle::Established,
    }
}
