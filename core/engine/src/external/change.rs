//! Changes of pools while packets flow, in three parts that keep no packet waiting. First, new
//! addresses become external, and ports that the new pools lack are no longer given out. Then the
//! new pools replace the old pools between two packets. Last, new ports are given out. The first
//! and the last part go on address by address, whenever the engine has time.
//!
//! An address that changes its pool, or leaves, is counted with the old pool while it has mappings.
//! So a pool keeps its number as long as anything of it is left: [`PoolChange::new`] arranges the
//! new pools by the present numbers. A pool counts as new if its way of sharing out ports changes,
//! even if it keeps its name.

mod wanted;

use super::index_set::Members;
use super::shares::{self, Mode};
use super::{EMPTY, ExternalPorts, HELD, NO_POOL, PORTLESS, Pool, Range, Slot, WORDS};
use crate::ConfigError;
use crate::blocks::Blocking;
use crate::config::{Allocation, Config, PoolConfig};
use crate::deterministic::Plan;
use crate::host::Host;
use crate::protocols::{PROTOCOLS, has_ports, protocol_index};
use crate::statics::FixedPorts;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
pub use wanted::PoolChange;
use wanted::Wanted;

/// An address that gives out no more ports, and its remaining mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The external address.
    pub address: Ipv4Addr,
    /// Number of the pool that counts the address.
    pub pool: usize,
    /// Mappings of the address that subscribers still have.
    pub mappings: u32,
    /// True if the address leaves the pool after its last mapping.
    pub leaves: bool,
}

/// A pool's ports and the way to choose them.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    ports: (u16, u16),
    bits: Vec<u64>,
    mode: Mode,
    cut: Option<(Blocking, u16, u32)>,
    plan: Option<Plan>,
}

impl Definition {
    /// The definition of a pool. The configuration must be valid.
    pub(super) fn new(config: &Config, pool: &PoolConfig) -> Self {
        let ports = (pool.ports.0.max(1), pool.ports.1);
        let bits = |(first, last)| (0..WORDS).map(move |word| Range { first, last }.bits(word));
        let mut used: Vec<u64> = bits(ports).collect();
        for &excluded in &pool.excluded_ports {
            used.iter_mut().zip(bits(excluded)).for_each(|(used, bits)| *used &= !bits);
        }
        Self {
            ports,
            bits: used,
            mode: Mode::new(config.allocation_of(pool)),
            cut: shares::cut(config, pool),
            plan: plan(config, pool),
        }
    }
}

fn plan(config: &Config, pool: &PoolConfig) -> Option<Plan> {
    match config.allocation_of(pool) {
        Allocation::Deterministic(plan) => Plan::new(plan, pool).ok(),
        _ => None,
    }
}

/// The first address of the first pool that has any.
pub(super) fn first_address(config: &Config) -> u32 {
    let mut ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    ranges.next().map_or(0, |range| range.first.to_bits())
}

/// A step of a change, about one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Make the address external.
    Enter(u32),
    /// Give out no port of the address any more.
    Close(u32),
    /// Compute the ports of a protocol that the address gives out.
    Renew(u32, u8),
    /// Move the address to its new pool.
    Move(u32),
}

/// A change under way.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The change to come, until it is in force.
    change: Option<PoolChange>,
    /// Steps to do, last first.
    tasks: Vec<Task>,
}

impl Work {
    pub(super) fn new(room: usize) -> Self {
        Self { change: None, tasks: Vec::with_capacity(room) }
    }

    /// Notes that nothing keeps an address in its pool any more.
    pub(super) fn moves(&mut self, index: u32) {
        self.tasks.push(Task::Move(index));
    }

    fn renews(&mut self, index: u32) {
        self.tasks.extend((0..PROTOCOLS.len() as u8).rev().map(|place| Task::Renew(index, place)));
    }
}

impl ExternalPorts {
    /// Puts a pool's definition in force.
    pub(super) fn define(&mut self, number: usize, definition: Definition) {
        let Definition { ports, bits, mode, cut, plan } = definition;
        if self.pools.len() <= number {
            self.grow(number + 1);
        }
        let mut slots = core::mem::take(&mut self.pools[number].slots);
        slots.clear();
        let is_whole = cut.is_some_and(|(blocking, ..)| blocking.is_whole());
        let sides = match is_whole {
            true => [Range { first: ports.0, last: ports.1 }; 2],
            false => Range::sides(ports),
        };
        let members = Members::default();
        let next_searched = [0; 2];
        self.pools[number] =
            Pool { slots, members, ports, sides, bits, mode, is_whole, next_searched };
        self.note_shares();
        self.blocks.set_pool(number, cut);
        self.plans.set(number, plan);
    }

    /// Makes room for `pools` pools.
    fn grow(&mut self, pools: usize) {
        let (ports, bits) = ((1, 1), vec![0; WORDS]);
        let sides = Range::sides(ports);
        let (mode, is_whole) = (Mode::Random, false);
        let (slots, members, next_searched) = (Vec::new(), Members::default(), [0; 2]);
        let none = Pool { slots, members, ports, sides, bits, mode, is_whole, next_searched };
        self.pools.resize(pools, none);
        for ports in &mut self.ports {
            ports.pool_count.resize(pools, [0; 2]);
            ports.pool_held.resize(pools, 0);
        }
        for number in self.plans.count_pools()..pools {
            self.blocks.set_pool(number, None);
            self.plans.set(number, None);
        }
    }

    /// Makes an address external that is not external yet. It is in no pool at first.
    pub(super) fn enter(&mut self, address: u32) -> u32 {
        let mut indexes = 0..self.slots.len() as u32;
        let again = (self.waiting > 0)
            .then(|| indexes.find(|&index| self.waits(index) && self.address(index) == address))
            .flatten();
        self.waiting -= u32::from(again.is_some());
        let index = match again.or_else(|| self.unused.pop()) {
            Some(index) => index,
            None => {
                self.addresses.push(address);
                self.slots.push(Slot::NEW);
                self.slots.len() as u32 - 1
            }
        };
        self.addresses[index as usize] = address;
        let busy = self.slots[index as usize].busy;
        let is_foreign = self.is_of_pair;
        self.slots[index as usize] = Slot { busy, is_known: true, is_foreign, ..Slot::NEW };
        self.spans.insert(address, index);
        self.part.forget(index);
        index
    }

    // ---- before the change ----

    /// Begins a change.
    pub(crate) fn prepare(&mut self, change: PoolChange) -> Result<(), ConfigError> {
        self.check(&change)?;
        let is_new = |one: &&Wanted| self.index(one.address).is_none();
        let new = change.wanted.iter().filter(is_new).map(|one| Task::Enter(one.address));
        let new: Vec<Task> = new.rev().collect();
        self.work.tasks.extend(new);
        self.grow(change.definitions.len().max(self.pools.len()));
        self.restrict(&change);
        self.work.change = Some(change);
        Ok(())
    }

    /// Checks that there is room for a change.
    pub(crate) fn check(&self, change: &PoolChange) -> Result<(), ConfigError> {
        let fail = |message: String| Err(ConfigError { message });
        if self.work.change.is_some() || !self.work.tasks.is_empty() {
            return fail("a change of the pools is under way: wait until it is done".into());
        }
        let is_new = |one: &&Wanted| self.index(one.address).is_none();
        let left = self.unused.len() + self.room - self.slots.len();
        let waiting = (0..self.slots.len() as u32).filter(|&index| self.waits(index));
        let known = waiting.filter(|&index| change.find(self.address(index)).is_some()).count();
        let needed = change.wanted.iter().filter(is_new).count() - known;
        if needed > left {
            let used = self.room - left;
            let sum =
                format!("{used} + {needed} external addresses are more than the {}", self.room);
            let why = "those that leave count until their mappings have gone";
            return fail(format!("{sum} of limits.external_addresses; {why}"));
        }
        let stride = self.blocks.stride();
        for (definition, pool) in change.definitions.iter().zip(&change.config.pools) {
            let cut = definition.as_ref().and_then(|definition| definition.cut);
            if let Some((blocking, ..)) = cut.filter(|(blocking, ..)| blocking.count() > stride) {
                let count = blocking.count();
                let message = format!("pool {}: {count} blocks an address are more", pool.name);
                return fail(format!(
                    "{message} than the {stride} that there is room for; restart"
                ));
            }
        }
        Ok(())
    }

    /// Stops giving out the ports and addresses that the change removes.
    fn restrict(&mut self, change: &PoolChange) {
        let mut shrinks = vec![false; self.pools.len()];
        let pools = self.pools.iter_mut().zip(&change.definitions).zip(&mut shrinks);
        for ((pool, definition), shrinks) in pools {
            let Some(definition) = definition else { continue };
            for (bits, after) in pool.bits.iter_mut().zip(&definition.bits) {
                *shrinks |= *bits & !after != 0;
                *bits &= after;
            }
        }
        for index in 0..self.slots.len() as u32 {
            let Slot { pool, is_closed, .. } = self.slots[index as usize];
            if is_closed {
                continue;
            }
            let wanted = change.find(self.address(index));
            if wanted.is_none_or(|wanted| wanted.pool != pool || wanted.is_draining) {
                self.work.tasks.push(Task::Close(index));
            } else if shrinks[usize::from(pool)] {
                self.work.renews(index);
            }
        }
    }

    // ---- the change, and after ----

    /// Puts the prepared pools in force. Returns their configuration.
    pub(crate) fn switch(&mut self) -> Config {
        let change = self.work.change.take().expect("a change was prepared");
        let PoolChange { config, definitions, wanted } = change;
        let mut changed = vec![false; self.pools.len()];
        for (number, definition) in definitions.into_iter().enumerate() {
            match definition {
                Some(definition) => {
                    changed[number] = self.pools[number].bits != definition.bits
                        || definition.mode == Mode::Deterministic;
                    self.define(number, definition);
                }
                None => self.pools[number].slots.clear(),
            }
        }
        for slot in &mut self.slots {
            (slot.target, slot.is_draining, slot.is_static) = (NO_POOL, false, false);
        }
        for one in wanted {
            let index = self.index(one.address).expect("it has been entered");
            let slot = &mut self.slots[index as usize];
            (slot.target, slot.is_draining, slot.is_static) =
                (one.pool, one.is_draining, one.is_static);
        }
        for (number, pool) in config.pools.iter().enumerate() {
            for address in pool.each_address().filter(|&address| !pool.is_draining(address)) {
                let index = self.index(address.to_bits()).expect("it has been entered");
                let is_foreign = self.slots[index as usize].is_foreign;
                let pool = &mut self.pools[number];
                if !is_foreign || pool.mode == Mode::Deterministic {
                    pool.slots.push(index);
                }
            }
        }
        self.pools.iter_mut().for_each(Pool::note_slots);
        for index in 0..self.slots.len() as u32 {
            self.begin_anew(index, &changed);
        }
        self.first = first_address(&config);
        config
    }

    /// Begins the move of an address to its new pool, or the renewal of its ports. `changed` marks
    /// pools with changed ports.
    fn begin_anew(&mut self, index: u32, changed: &[bool]) {
        let slot = &mut self.slots[index as usize];
        if slot.pool != slot.target || slot.pool == NO_POOL {
            if slot.is_known && slot.all_mappings() == 0 {
                self.work.moves(index);
            }
        } else if !slot.is_draining
            && !slot.is_foreign
            && (slot.is_closed || changed[usize::from(slot.pool)])
        {
            slot.is_closed = false;
            self.work.renews(index);
        }
    }

    /// Does one step of a change. Returns `false` if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(task) = self.work.tasks.pop() else { return false };
        match task {
            Task::Enter(address) => self.enter_when_there_is_room(address),
            Task::Close(index) => {
                self.slots[index as usize].is_closed = true;
                self.renew_all(index);
            }
            Task::Renew(index, protocol) => self.renew(index, usize::from(protocol)),
            Task::Move(index) => self.go_over(index),
        }
        true
    }

    /// Makes an address external. If there is no room, the call grows the arrays of one protocol
    /// and leaves the rest to later calls, because growing takes longer than every other step.
    fn enter_when_there_is_room(&mut self, address: u32) {
        let needed = if self.unused.is_empty() { self.slots.len() + 1 } else { self.slots.len() };
        let mut ports = self.ports.iter_mut();
        match ports.find(|ports| ports.addresses() < needed.min(self.room)) {
            Some(ports) => {
                ports.grow();
                self.work.tasks.push(Task::Enter(address));
            }
            None => drop(self.enter(address)),
        }
    }

    /// Moves an address without mappings and without owned blocks to its new pool. An address that
    /// leaves all pools, and that no static mapping names, is external no longer.
    fn go_over(&mut self, index: u32) {
        let slot = self.slots[index as usize];
        let is_there = slot.pool == slot.target && slot.pool != NO_POOL;
        if is_there || !slot.is_known || slot.all_mappings() > 0 || !self.blocks.are_nobodys(index)
        {
            return;
        }
        self.blocks.detach(index);
        self.join(index);
        if slot.target != NO_POOL {
            self.work.renews(index);
        } else if !slot.is_static {
            self.spans.remove(self.address(index));
            self.slots[index as usize].is_known = false;
            match slot.busy {
                0 => self.unused.push(index),
                _ => self.waiting += 1,
            }
        }
    }

    /// True if an address is external no longer and still has held ports.
    fn waits(&self, index: u32) -> bool {
        let slot = &self.slots[index as usize];
        !slot.is_known && slot.busy > 0
    }

    /// True if a change is ready to be put in force.
    pub(crate) fn is_prepared(&self) -> bool {
        self.work.change.is_some() && self.work.tasks.is_empty()
    }

    /// True if a change has begun and is not in force yet.
    pub(crate) fn is_changing(&self) -> bool {
        self.work.change.is_some()
    }

    /// True if there are steps to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.work.tasks.is_empty()
    }

    /// Number of addresses that have an index.
    pub(crate) fn count_addresses(&self) -> usize {
        self.slots.len()
    }

    /// True if no address is counted with a pool.
    pub(crate) fn is_unused(&self, pool: usize) -> bool {
        self.slots.iter().all(|slot| usize::from(slot.pool) != pool)
    }

    /// The addresses that give out no more ports.
    pub(crate) fn draining(&self) -> impl Iterator<Item = Draining> + '_ {
        let slots = self.slots.iter().zip(&self.addresses);
        let drains = |slot: &Slot| {
            slot.is_known && slot.pool != NO_POOL && (slot.is_draining || slot.pool != slot.target)
        };
        slots.filter(move |(slot, _)| drains(slot)).map(|(slot, &address)| Draining {
            address: Ipv4Addr::from_bits(address),
            pool: usize::from(slot.pool),
            mappings: slot.all_mappings(),
            leaves: slot.pool != slot.target,
        })
    }

    /// The addresses that are in no pool any more, and still have a subscriber's block, a mapping
    /// or held ports.
    pub(crate) fn left(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let slots = self.slots.iter().zip(&self.addresses);
        let has_left = |slot: &Slot| match slot.is_known {
            true => slot.target == NO_POOL,
            false => slot.busy > 0,
        };
        slots.filter(move |(slot, _)| has_left(slot)).map(|(_, &one)| Ipv4Addr::from_bits(one))
    }

    /// True if a subscriber's mapping may keep this external endpoint. Then the address stays in
    /// its pool, the pool uses the port, no static mapping has the address for the protocol, and
    /// the port is in the subscriber's own blocks or ports if the pool shares ports out.
    pub(crate) fn allows(&self, protocol: u8, index: u32, port: u16, subscriber: Host) -> bool {
        let slot = &self.slots[index as usize];
        let (number, address) = (usize::from(slot.pool), Ipv4Addr::from_bits(self.address(index)));
        let Some(pool) = self.pools.get(number).filter(|_| slot.pool == slot.target) else {
            return false;
        };
        if !has_ports(protocol) {
            return slot.kept & PORTLESS == 0;
        }
        let is_used = pool.bits[usize::from(port) / 64] >> (port % 64) & 1 != 0;
        let is_own = || match (pool.mode, self.plans.get(number)) {
            (Mode::Block, _) => self.blocks.has_port(number, index, port, subscriber),
            (Mode::Deterministic, Some(plan)) => {
                let owner = plan.reverse(address, port);
                let own = |owner: Ipv4Addr| Host::new(plan.realm(), owner.to_bits()) == subscriber;
                owner.is_some_and(own) || plan.dynamic().is_some_and(|(first, _)| port >= first)
            }
            _ => true,
        };
        is_used && slot.kept >> protocol_index(protocol) & 1 == 0 && is_own()
    }

    /// Number of ports that a pool gives out, used ports included, by the place of their protocol.
    /// The last element is the number of blocks. `fixed` are the ports of the configuration's
    /// static mappings.
    pub(crate) fn all_of(&self, pool: usize, fixed: &FixedPorts) -> [u32; PROTOCOLS.len() + 1] {
        let mut all = [0; PROTOCOLS.len() + 1];
        let slots = self.pools.get(pool).map_or(&[][..], |pool| &pool.slots[..]);
        for index in slots.iter().copied().filter(|&index| self.is_open(index, pool)) {
            let address = self.address(index);
            let mut any = [0; WORDS];
            for (protocol, all) in all.iter_mut().take(PROTOCOLS.len()).enumerate() {
                let mut bits: Vec<u64> = self.given_out(index, protocol, 0..WORDS).collect();
                for port in fixed.of(address, protocol) {
                    bits[usize::from(port) / 64] &= !(1 << (port % 64));
                }
                any.iter_mut().zip(&bits).for_each(|(any, bits)| *any |= bits);
                *all += bits.iter().map(|bits| bits.count_ones()).sum::<u32>();
            }
            let has_port = |&(first, last): &(u16, u16)| {
                (usize::from(first / 64)..=usize::from(last / 64))
                    .any(|word| any[word] & Range { first, last }.bits(word) != 0)
            };
            all[PROTOCOLS.len()] += self.blocks.ports_of(index).filter(has_port).count() as u32;
        }
        all
    }

    // ---- changes of static mappings ----

    /// Makes a port free that was reserved for a static mapping which is gone.
    pub(crate) fn unreserve(&mut self, protocol: u8, index: u32, port: u16, now: u32) {
        let place = protocol_index(protocol);
        if self.hold_again(protocol, index, port, now) {
            return;
        }
        let is_nobodys = self.ports[place].owner[Self::entry(index, port)] == EMPTY;
        if is_nobodys
            && !self.ports[place].is_free(index, port)
            && self.gives_out(place, index, port)
        {
            let pool = self.pool_of(index);
            self.ports[place].set_free(index, pool, port);
            self.note_kept(place, index, port, true);
        }
    }

    /// Makes all ports of an address free that were reserved as a whole.
    pub(crate) fn unreserve_address(&mut self, index: u32) {
        self.slots[index as usize].kept = 0;
        self.work.renews(index);
    }

    /// Takes a held port out of hold-down for a static mapping. The rest of the port's release list
    /// is kept in `evicted` until its tick.
    pub(crate) fn evict(&mut self, protocol: u8, index: u32, port: u16, now: u32) {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        let owner = &mut self.ports[place].owner[entry];
        if *owner & HELD == 0 {
            return;
        }
        self.evicted.insert((place, entry as u32), *owner & !HELD);
        *owner = EMPTY;
        // A port that rests is not among the ports in hold-down.
        self.held += u32::from(self.is_resting(place, entry));
        self.count_held(place, index, false);
        self.slots[index as usize].busy -= 1;
        self.note_freed(place, index, port, false, now + 1);
    }

    /// Holds a port again that a static mapping has left, until the end of its original hold-down.
    /// Returns `false` if the port was not held.
    fn hold_again(&mut self, protocol: u8, index: u32, port: u16, now: u32) -> bool {
        let (place, entry) = (protocol_index(protocol), Self::entry(index, port));
        let Some(next) = self.evicted.remove(&(place, entry as u32)) else { return false };
        self.ports[place].owner[entry] = HELD | next;
        self.count_held(place, index, true);
        self.held -= u32::from(self.is_resting(place, entry));
        self.slots[index as usize].busy += 1;
        let pool = self.pool_of(index);
        match port {
            // It stands for a whole address, and no pool gives it out.
            0 => self.blocks.held(pool, index, port),
            _ => {
                self.note_kept(place, index, port, true);
                self.note_taken(place, index, pool, port);
            }
        }
        self.limit_held(now);
        true
    }
}

impl Slot {
    /// An address that is in no pool and not external.
    const NEW: Self = Self {
        pool: NO_POOL,
        target: NO_POOL,
        is_closed: true,
        is_draining: false,
        is_foreign: false,
        is_static: false,
        is_known: false,
        kept: 0,
        mappings: [0; PROTOCOLS.len() + 1],
        busy: 0,
        resting: 0,
    };
}
