//! Who is on one side's link: hardware addresses by address, and packets that wait for one.
//!
//! A neighbour is *asked* for until it answers; it is then *known* for a while. A known neighbour
//! that was used meanwhile is asked again, and used on until it has failed to answer; one that was
//! not is forgotten. A neighbour that asks for the gateway is *learnt* without a question, and a
//! *static* one is the configuration's: it is neither asked nor changed.
//!
//! No message alone changes a hardware address that is here: the old one is asked first
//! ([`super::claims`]). Everything is bounded: neighbours, packets that wait for each, and how many
//! new ones may be asked for in a second. When the table is full, those go that never answered or
//! never were used.

use super::budget::{Budget, Rate};
use super::claims::{Assertion, Claim};
use super::recent::Recent;
use crate::counters::Origin;
use crate::limits::FEWEST_NEIGHBORS;
use natgate_engine::Timestamp;
use natgate_wire::arp::Mac;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Most packets that wait for one neighbour.
pub const MOST_HELD: usize = 16;

/// How long an answer holds.
pub const KNOWN: Duration = Duration::from_secs(60);

/// How long an answer is waited for before asking again.
pub const RETRY: Duration = Duration::from_secs(1);

/// How often is asked.
pub const TRIES: u8 = 3;

/// The share of the table that one hardware address may have by its own requests alone: one in so
/// many places, but at least [`FEWEST_LEARNT_OF_ONE`].
const SHARE_OF_ONE: usize = 16;

/// So many learnt neighbours one hardware address may have in any table.
const FEWEST_LEARNT_OF_ONE: usize = 256;

/// A packet that waits for its neighbour: room for an Ethernet header, then the packet.
#[derive(Debug)]
pub(super) struct WaitingPacket {
    pub(super) frame: Vec<u8>,
    pub(super) origin: Option<Origin>,
}

/// Something to be done for a neighbour.
#[derive(Debug)]
pub(super) enum Action {
    /// Ask for an address: everybody, or the one that had it.
    Ask(Ipv4Addr, Option<Mac>),
    /// These packets' neighbour does not answer.
    GiveUp(Vec<WaitingPacket>),
    /// These packets' neighbour makes room for another; whether it would have answered is not
    /// known.
    Evict(Vec<WaitingPacket>),
    /// Another hardware address claimed a neighbour's address, and the one that had it answers.
    Conflict { address: Ipv4Addr, mac: Mac, claimed: Mac },
    /// A neighbour has another hardware address now.
    Changed { address: Ipv4Addr, from: Mac, to: Mac },
}

/// How a neighbour's hardware address came to be known, the better the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighborState {
    /// It is not: the neighbour is being asked for.
    Asked,
    /// By a request that the neighbour sent; it has not been asked yet.
    Learnt,
    /// By the neighbour's answer.
    Known,
    /// By the configuration.
    Static,
}

impl NeighborState {
    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Learnt => "learnt",
            Self::Known => "known",
            Self::Static => "static",
        }
    }
}

#[derive(Debug)]
pub(super) struct Neighbor {
    pub(super) mac: Option<Mac>,
    pub(super) state: NeighborState,
    /// Requests sent without an answer so far; 0: none is being waited for.
    pub(super) tries: u8,
    /// When something is to be done: ask again, give up, or question what is known.
    deadline: Timestamp,
    /// Whether it was used since it was last known.
    used: bool,
    /// Whether it is among the learnt that no packet has needed yet.
    idle: bool,
    /// Whether it was known before it was asked for.
    former: bool,
    /// The claim of other hardware to the address.
    pub(super) claim: Option<Claim>,
    /// Before this time no other claim is looked into.
    pub(super) quiet_until: Timestamp,
    /// Order of making, for eviction.
    serial: u64,
    held: Vec<WaitingPacket>,
}

/// A neighbour as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborInfo {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its hardware address, once it has answered.
    pub mac: Option<Mac>,
    /// How the hardware address came to be known.
    pub state: NeighborState,
    /// Whether an answer is being waited for.
    pub asking: bool,
    /// Packets that wait for it.
    pub held: usize,
}

/// One side's neighbours.
#[derive(Debug)]
pub(super) struct Neighbors {
    pub(super) table: HashMap<Ipv4Addr, Neighbor>,
    /// Most neighbours that requests and packets may put into the table.
    limit: usize,
    /// Neighbours by configuration.
    fixed: Vec<(Ipv4Addr, Mac)>,
    /// Some of those that are known and used, for packets to find quickly.
    recent: Recent,
    /// Some of those that were known and have been forgotten.
    former: Recent,
    /// Deadlines of all but static ones.
    timers: BTreeSet<(Timestamp, Ipv4Addr)>,
    /// Those without a hardware address: such as never were known first, then the oldest.
    unresolved: BTreeSet<(bool, u64, Ipv4Addr)>,
    /// Learnt ones that no packet has needed yet, oldest first.
    idle: BTreeSet<(u64, Ipv4Addr)>,
    /// How many of these each hardware address has.
    idle_of: HashMap<Mac, usize>,
    next_serial: u64,
    budget: Budget,
    pub(super) verifications: Rate,
    /// Neighbours that are asked for because a packet claims to be theirs.
    pub(super) source_checks: Rate,
}

impl Default for Neighbors {
    fn default() -> Self {
        Self::new(FEWEST_NEIGHBORS, Vec::new())
    }
}

impl Neighbors {
    /// Room for so many neighbours, and those that the configuration names.
    pub(super) fn new(limit: usize, fixed: Vec<(Ipv4Addr, Mac)>) -> Self {
        let mut neighbors = Self {
            table: HashMap::new(),
            limit,
            fixed,
            recent: Recent::default(),
            former: Recent::default(),
            timers: BTreeSet::new(),
            unresolved: BTreeSet::new(),
            idle: BTreeSet::new(),
            idle_of: HashMap::new(),
            next_serial: 0,
            budget: Budget::default(),
            verifications: Rate::default(),
            source_checks: Rate::default(),
        };
        neighbors.insert_fixed();
        neighbors
    }

    /// Goes by what `new` has been made with from now on; its neighbours stay those that it had.
    /// Returns packets that waited for a neighbour that is static now, and its hardware address.
    pub(super) fn renew(&mut self, new: &Self) -> Vec<(Mac, Vec<WaitingPacket>)> {
        for (address, _) in std::mem::take(&mut self.fixed) {
            self.remove(address);
        }
        (self.limit, self.fixed) = (new.limit, new.fixed.clone());
        let waiting = self.fixed.clone().into_iter();
        let released = waiting.map(|(address, mac)| (mac, self.remove(address))).collect();
        self.insert_fixed();
        released
    }

    fn insert_fixed(&mut self) {
        for (address, mac) in &self.fixed {
            let neighbor = Neighbor {
                mac: Some(*mac),
                state: NeighborState::Static,
                ..Neighbor::asked(Timestamp(0), self.next_serial)
            };
            self.table.insert(*address, Neighbor { tries: 0, ..neighbor });
            self.next_serial += 1;
        }
        self.recent.fit(self.table.len());
    }

    /// A neighbour's hardware address, if there is one.
    pub(super) fn resolve(&mut self, address: Ipv4Addr) -> Option<Mac> {
        self.recent.get(address).or_else(|| self.search(address))
    }

    /// The same, for who only asks: the neighbour does not count as used.
    pub(super) fn known(&self, address: Ipv4Addr) -> Option<Mac> {
        self.table.get(&address)?.mac
    }

    #[cold]
    fn search(&mut self, address: Ipv4Addr) -> Option<Mac> {
        let neighbor = self.table.get_mut(&address)?;
        neighbor.used = true;
        let mac = neighbor.mac?;
        if std::mem::take(&mut neighbor.idle) {
            let serial = neighbor.serial;
            self.idle.remove(&(serial, address));
            self.forget_idle_of(mac);
        }
        self.recent.put(address, mac);
        Some(mac)
    }

    fn forget_idle_of(&mut self, mac: Mac) {
        if let Some(count) = self.idle_of.get_mut(&mac) {
            *count -= 1;
            if *count == 0 {
                self.idle_of.remove(&mac);
            }
        }
    }

    /// Sees to it that a neighbour is asked for; returns whether it is. It is not when too many new
    /// ones were asked for this second.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        address: Ipv4Addr,
        act: &mut dyn FnMut(Action),
    ) -> bool {
        if self.table.contains_key(&address) {
            return true;
        }
        let former = self.was_known(address);
        if !self.budget.take(now, address, former) {
            return false;
        }
        if self.table.len() >= self.limit
            && !self.evict_unproven(act)
            && let Some((_, oldest)) = self.timers.first().copied()
        {
            act(Action::Evict(self.remove(oldest)));
        }
        let neighbor = Neighbor { former, ..Neighbor::asked(now.plus(RETRY), self.next_serial) };
        self.unresolved.insert((former, neighbor.serial, address));
        self.insert(address, neighbor);
        act(Action::Ask(address, None));
        true
    }

    /// Whether a neighbour was known before, as far as that is remembered.
    pub(super) fn was_known(&self, address: Ipv4Addr) -> bool {
        self.former.get(address).is_some()
    }

    fn insert(&mut self, address: Ipv4Addr, neighbor: Neighbor) {
        self.next_serial += 1;
        self.timers.insert((neighbor.deadline, address));
        self.table.insert(address, neighbor);
        self.recent.fit(self.table.len());
        self.former.fit(self.table.len());
    }

    /// Gets to know a neighbour by its own request; returns false if there is no room. Nobody who
    /// has answered or is in use makes room for it.
    pub(super) fn learn(
        &mut self,
        now: Timestamp,
        address: Ipv4Addr,
        mac: Mac,
        act: &mut dyn FnMut(Action),
    ) -> bool {
        let most = (self.limit / SHARE_OF_ONE).max(FEWEST_LEARNT_OF_ONE);
        if self.idle_of.get(&mac).is_some_and(|count| *count >= most)
            || self.table.len() >= self.limit && !self.evict_unproven(act)
        {
            return false;
        }
        let neighbor = Neighbor {
            mac: Some(mac),
            state: NeighborState::Learnt,
            tries: 0,
            used: false,
            idle: true,
            ..Neighbor::asked(now.plus(KNOWN), self.next_serial)
        };
        self.idle.insert((neighbor.serial, address));
        *self.idle_of.entry(mac).or_default() += 1;
        self.insert(address, neighbor);
        true
    }

    /// Gets to know a neighbour that another gateway knew; nobody makes room for it.
    pub(super) fn introduce(&mut self, now: Timestamp, address: Ipv4Addr, mac: Mac) {
        if self.table.len() < self.limit && !self.table.contains_key(&address) {
            let neighbor = Neighbor {
                mac: Some(mac),
                state: NeighborState::Known,
                tries: 0,
                used: false,
                ..Neighbor::asked(now.plus(KNOWN), self.next_serial)
            };
            self.insert(address, neighbor);
        }
    }

    //= rfc1812#section-3.3.2-queue
    /// Lets a packet wait for a neighbour that is being asked for; gives it back when enough wait.
    pub(super) fn hold(
        &mut self,
        address: Ipv4Addr,
        held: WaitingPacket,
    ) -> Result<(), WaitingPacket> {
        match self.table.get_mut(&address) {
            Some(neighbor) if neighbor.held.len() < MOST_HELD => {
                neighbor.held.push(held);
                Ok(())
            }
            _ => Err(held),
        }
    }

    /// Makes room: the oldest goes of those that have not answered, or of those that were learnt
    /// and never used, whichever are more; so a flood of either kind pushes out itself. Returns
    /// false if there are neither.
    fn evict_unproven(&mut self, act: &mut dyn FnMut(Action)) -> bool {
        let victim = if self.unresolved.len() >= self.idle.len() {
            self.unresolved.first().map(|(.., address)| *address)
        } else {
            self.idle.first().map(|(_, address)| *address)
        };
        match victim {
            Some(address) if self.table[&address].state == NeighborState::Asked => {
                act(Action::Evict(self.remove(address)));
                true
            }
            Some(address) => {
                self.remove(address);
                true
            }
            None => false,
        }
    }

    fn remove(&mut self, address: Ipv4Addr) -> Vec<WaitingPacket> {
        self.recent.take_out(address);
        let Some(neighbor) = self.table.remove(&address) else { return Vec::new() };
        self.timers.remove(&(neighbor.deadline, address));
        self.unresolved.remove(&(neighbor.former, neighbor.serial, address));
        if let Some(mac) = neighbor.mac {
            if neighbor.idle {
                self.idle.remove(&(neighbor.serial, address));
                self.forget_idle_of(mac);
            } else {
                self.former.put(address, mac);
            }
        }
        neighbor.held
    }

    /// Takes the hardware address that a message gives as a neighbour's, which the caller has
    /// decided to believe; returns the packets that waited for it.
    pub(super) fn confirm(&mut self, now: Timestamp, said: &Assertion) -> Vec<WaitingPacket> {
        let address = said.address;
        // It may have another hardware address now, and counts as unused until the next packet.
        self.recent.take_out(address);
        let Some(neighbor) = self.table.get_mut(&address) else { return Vec::new() };
        self.unresolved.remove(&(neighbor.former, neighbor.serial, address));
        self.timers.remove(&(neighbor.deadline, address));
        neighbor.deadline = now.plus(KNOWN);
        self.timers.insert((neighbor.deadline, address));
        let is_answer = said.is_reply || neighbor.state == NeighborState::Asked;
        if is_answer || neighbor.mac != Some(said.mac) {
            neighbor.state = NeighborState::Known;
        }
        let idle_of = neighbor.mac.filter(|_| neighbor.idle);
        let serial = neighbor.serial;
        let stays_idle = neighbor.state == NeighborState::Learnt;
        neighbor.idle &= stays_idle;
        neighbor.mac = Some(said.mac);
        neighbor.tries = 0;
        neighbor.claim = None;
        neighbor.used = !neighbor.held.is_empty();
        let held = std::mem::take(&mut neighbor.held);
        if let Some(before) = idle_of.filter(|_| !stays_idle) {
            self.idle.remove(&(serial, address));
            self.forget_idle_of(before);
        }
        held
    }

    /// Does what is due.
    pub(super) fn advance(&mut self, now: Timestamp, act: &mut dyn FnMut(Action)) {
        while self.timers.first().is_some_and(|(deadline, _)| *deadline <= now)
            && let Some((_, address)) = self.timers.pop_first()
        {
            self.due(now, address, act);
        }
    }

    fn due(&mut self, now: Timestamp, address: Ipv4Addr, act: &mut dyn FnMut(Action)) {
        let Some(neighbor) = self.table.get_mut(&address) else { return };
        if neighbor.tries == 0 && !neighbor.used && neighbor.claim.is_none() {
            self.remove(address);
            return;
        }
        //= rfc1812#section-3.3.2
        if neighbor.tries >= TRIES {
            return act(Action::GiveUp(self.remove(address)));
        }
        if neighbor.tries == 0 && neighbor.claim.is_some() {
            neighbor.quiet_until = now.plus(RETRY);
        }
        self.ask_again(now, address, act);
    }

    /// Asks for a neighbour once more: the one that has the address, the last time everybody, for
    /// the address may have moved to other hardware.
    pub(super) fn ask_again(
        &mut self,
        now: Timestamp,
        address: Ipv4Addr,
        act: &mut dyn FnMut(Action),
    ) {
        let Some(neighbor) = self.table.get_mut(&address) else { return };
        neighbor.tries += 1;
        let whom = neighbor.mac.filter(|_| neighbor.tries < TRIES);
        // Where two claim an address, the one that has it has half the time for each answer.
        let wait = match whom.is_some() && neighbor.claim.is_some() {
            true => RETRY / 2,
            false => RETRY,
        };
        self.set_deadline(address, now.plus(wait));
        act(Action::Ask(address, whom));
    }

    /// Has something be due for a neighbour at another time.
    pub(super) fn set_deadline(&mut self, address: Ipv4Addr, deadline: Timestamp) {
        if let Some(neighbor) = self.table.get_mut(&address) {
            self.timers.remove(&(neighbor.deadline, address));
            neighbor.deadline = deadline;
            self.timers.insert((deadline, address));
        }
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Forgets everybody but static neighbours, as when the link was away; packets that wait are
    /// handed back.
    pub(super) fn clear(&mut self) -> Vec<WaitingPacket> {
        self.recent.clear();
        self.timers.clear();
        self.unresolved.clear();
        self.idle.clear();
        self.idle_of.clear();
        let mut held = Vec::new();
        for (address, neighbor) in self.table.drain() {
            if let Some(mac) = neighbor.mac.filter(|_| !neighbor.idle) {
                self.former.put(address, mac);
            }
            held.extend(neighbor.held);
        }
        self.insert_fixed();
        held
    }

    /// Has the next packet to each search for it.
    #[cfg(test)]
    pub(super) fn forget_recent(&mut self) {
        self.recent.clear();
    }

    /// Everybody, in order of address.
    pub(super) fn list(&self) -> Vec<NeighborInfo> {
        let mut list: Vec<_> = self.each().collect();
        list.sort_by_key(|neighbor| neighbor.address);
        list
    }

    /// All neighbours, in any order.
    pub(super) fn each(&self) -> impl Iterator<Item = NeighborInfo> + '_ {
        self.table.iter().map(|(address, neighbor)| NeighborInfo {
            address: *address,
            mac: neighbor.mac,
            state: neighbor.state,
            asking: neighbor.tries > 0,
            held: neighbor.held.len(),
        })
    }
}

impl Neighbor {
    /// A neighbour that has been asked for once.
    fn asked(deadline: Timestamp, serial: u64) -> Self {
        Self {
            mac: None,
            state: NeighborState::Asked,
            tries: 1,
            deadline,
            used: true,
            idle: false,
            former: false,
            claim: None,
            quiet_until: Timestamp(0),
            serial,
            held: Vec::new(),
        }
    }
}
