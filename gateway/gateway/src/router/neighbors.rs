//! Neighbours of one link: their hardware addresses, and packets that wait for one.
//!
//! A neighbour is *asked* for until it answers; it is then *known* for a while. A known neighbour
//! that was used meanwhile is asked again, and stays in use until it has failed to answer. A known
//! neighbour that was not used is forgotten. A neighbour that asks for the gateway is *learnt*
//! without a question. A *static* neighbour comes from the configuration: it is neither asked nor
//! changed.
//!
//! No message alone changes a hardware address that is here: the former owner is asked first
//! ([`super::claims`]). Everything is bounded: neighbours, packets that wait for each, and new
//! neighbours asked for in a second. If the table is full, neighbours that never answered or never
//! were used make room.

use super::budget::Budget;
use super::claims::{Assertion, Claim};
use super::header::{HeaderTemplate, LinkHeader};
use super::recent::Recent;
use crate::counters::Origin;
use crate::limits::FEWEST_NEIGHBORS;
use crate::pace::Rate;
use natgate_engine::Timestamp;
use natgate_wire::arp::Mac;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Most packets that wait for one neighbour.
pub const MOST_HELD: usize = 16;

/// Time for which an answer holds.
pub const KNOWN: Duration = Duration::from_secs(60);

/// Time to wait for an answer before asking again.
pub const RETRY: Duration = Duration::from_secs(1);

/// Number of requests before a neighbour counts as lost.
pub const TRIES: u8 = 3;

/// Share of the table for the learnt neighbours of one hardware address: one place in this number,
/// but at least [`FEWEST_LEARNT_OF_ONE`].
const SHARE_OF_ONE: usize = 16;

/// Learnt neighbours that one hardware address may have in any table.
const FEWEST_LEARNT_OF_ONE: usize = 256;

/// A packet that waits for its neighbour: room for an Ethernet header, then the packet.
#[derive(Debug)]
pub(super) struct WaitingPacket {
    pub(super) frame: Vec<u8>,
    pub(super) origin: Option<Origin>,
}

/// Work for the caller.
#[derive(Debug)]
pub(super) enum Action {
    /// Ask for an address: by broadcast, or the hardware that had it.
    Ask(Ipv4Addr, Option<Mac>),
    /// Drop these packets: their neighbour, with this address, does not answer.
    GiveUp(Ipv4Addr, Vec<WaitingPacket>),
    /// Drop these packets: their neighbour makes room for another. It might still have answered.
    Evict(Vec<WaitingPacket>),
    /// Report a conflict: other hardware claims a neighbour's address, and the former owner
    /// answers.
    Conflict { address: Ipv4Addr, mac: Mac, claimed: Mac },
    /// Report that a neighbour has another hardware address now.
    Changed { address: Ipv4Addr, from: Mac, to: Mac },
}

/// Source of a neighbour's hardware address. A later variant is better proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighborState {
    /// None yet: the neighbour is being asked for.
    Asked,
    /// A request that the neighbour sent; the neighbour has not been asked yet.
    Learnt,
    /// The neighbour's answer.
    Known,
    /// The configuration.
    Static,
}

impl NeighborState {
    /// Name of the state in lists.
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
    /// Requests sent without an answer so far; 0 if no answer is expected.
    pub(super) tries: u8,
    /// Time of the next step: ask again, give up, or verify.
    deadline: Timestamp,
    /// True if a packet has used the neighbour since it was last known.
    used: bool,
    /// True if the neighbour is learnt and no packet has needed it yet.
    idle: bool,
    /// True if the neighbour was known before it was asked for.
    former: bool,
    /// Claim of other hardware to the address.
    pub(super) claim: Option<Claim>,
    /// Time until which further claims are ignored.
    pub(super) quiet_until: Timestamp,
    /// Order of insertion, for eviction.
    serial: u64,
    held: Vec<WaitingPacket>,
}

/// A neighbour as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborInfo {
    /// Address.
    pub address: Ipv4Addr,
    /// Hardware address, once it is known.
    pub mac: Option<Mac>,
    /// Source of the hardware address.
    pub state: NeighborState,
    /// True if an answer is expected.
    pub asking: bool,
    /// Packets that wait for the neighbour.
    pub held: usize,
}

/// Neighbours of one link.
#[derive(Debug)]
pub(super) struct Neighbors {
    pub(super) table: HashMap<Ipv4Addr, Neighbor>,
    /// Most neighbours that requests and packets may put into the table.
    limit: usize,
    /// Neighbours from the configuration.
    fixed: Vec<(Ipv4Addr, Mac)>,
    /// Own part of the headers in `recent`.
    template: HeaderTemplate,
    /// Headers of some known and used neighbours, for a fast look-up.
    recent: Recent<LinkHeader>,
    /// Some neighbours that were known and have been forgotten.
    former: Recent<Mac>,
    /// Deadlines of all neighbours but the static ones.
    timers: BTreeSet<(Timestamp, Ipv4Addr)>,
    /// Neighbours without a hardware address: first those never known before, then by age, oldest
    /// first.
    unresolved: BTreeSet<(bool, u64, Ipv4Addr)>,
    /// Learnt neighbours that no packet has needed yet, oldest first.
    idle: BTreeSet<(u64, Ipv4Addr)>,
    /// Number of such neighbours of each hardware address.
    idle_of: HashMap<Mac, usize>,
    next_serial: u64,
    budget: Budget,
    pub(super) verifications: Rate,
    /// Rate of questions that verify the source of a packet.
    pub(super) source_checks: Rate,
}

impl Default for Neighbors {
    fn default() -> Self {
        Self::new(FEWEST_NEIGHBORS, Vec::new())
    }
}

impl Neighbors {
    /// Creates a table with room for `limit` neighbours and the static ones.
    pub(super) fn new(limit: usize, fixed: Vec<(Ipv4Addr, Mac)>) -> Self {
        let mut neighbors = Self {
            table: HashMap::new(),
            limit,
            fixed,
            template: HeaderTemplate::new(Mac::default(), None),
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

    /// Takes the limit and the static neighbours of `new`; the other neighbours stay. Returns
    /// packets that waited for a neighbour that is static now, with its hardware address.
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

    /// Sets the own part of the headers of frames to neighbours.
    pub(super) fn set_template(&mut self, template: HeaderTemplate) {
        if self.template != template {
            self.template = template;
            self.recent.clear();
        }
    }

    /// Header of the frames to a neighbour, if the neighbour is known and marked as used.
    #[inline]
    pub(super) fn header(&self, address: Ipv4Addr) -> Option<LinkHeader> {
        self.recent.get(address)
    }

    /// Returns a neighbour's hardware address, if it is known, and marks the neighbour as used.
    /// [`Neighbors::header`] finds the neighbour from then on.
    pub(super) fn resolve(&mut self, address: Ipv4Addr) -> Option<Mac> {
        match self.recent.get(address) {
            Some(header) => Some(self.template.neighbor(&header)),
            None => self.search(address),
        }
    }

    /// Returns a neighbour's hardware address, if it is known; the neighbour does not count as
    /// used.
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
        self.recent.put(address, self.template.to(mac));
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

    /// Begins to ask for a neighbour. Returns false if too many new neighbours were asked for in
    /// this second.
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

    /// True if a neighbour was known before, as far as that is remembered.
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

    /// Learns a neighbour from its own request; returns false if there is no room. Neighbours that
    /// have answered or are in use do not make room for it.
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

    /// Adds a neighbour that another gateway knew; no other neighbour makes room for it.
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

    /// Makes room: removes the oldest neighbour of the larger group, those that have not answered
    /// or those that were learnt and never used. So a flood of either kind evicts itself. Returns
    /// false if both groups are empty.
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

    /// Takes the hardware address that a message states for a neighbour; the caller has decided to
    /// believe the message. Returns the packets that waited for the neighbour.
    pub(super) fn confirm(&mut self, now: Timestamp, said: &Assertion) -> Vec<WaitingPacket> {
        let address = said.address;
        // The neighbour may have another hardware address now, and counts as unused until the next
        // packet.
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

    /// Does the work that is due.
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
            return act(Action::GiveUp(address, self.remove(address)));
        }
        if neighbor.tries == 0 && neighbor.claim.is_some() {
            neighbor.quiet_until = now.plus(RETRY);
        }
        self.ask_again(now, address, act);
    }

    /// Asks for a neighbour once more: its known hardware address, or, at the last try, by
    /// broadcast, because the address may have moved to other hardware.
    pub(super) fn ask_again(
        &mut self,
        now: Timestamp,
        address: Ipv4Addr,
        act: &mut dyn FnMut(Action),
    ) {
        let Some(neighbor) = self.table.get_mut(&address) else { return };
        neighbor.tries += 1;
        let whom = neighbor.mac.filter(|_| neighbor.tries < TRIES);
        // If two claim an address, the former owner has half the time for each answer.
        let wait = match whom.is_some() && neighbor.claim.is_some() {
            true => RETRY / 2,
            false => RETRY,
        };
        self.set_deadline(address, now.plus(wait));
        act(Action::Ask(address, whom));
    }

    /// Sets the deadline of a neighbour.
    pub(super) fn set_deadline(&mut self, address: Ipv4Addr, deadline: Timestamp) {
        if let Some(neighbor) = self.table.get_mut(&address) {
            self.timers.remove(&(neighbor.deadline, address));
            neighbor.deadline = deadline;
            self.timers.insert((deadline, address));
        }
    }

    /// Time of the next work.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Forgets all but static neighbours, as after the link was down; returns the packets that
    /// waited.
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

    /// Forces a full search at the next look-up of each neighbour.
    #[cfg(test)]
    pub(super) fn forget_recent(&mut self) {
        self.recent.clear();
    }

    /// All neighbours, in order of address.
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
    /// Creates a neighbour that has been asked for once.
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
