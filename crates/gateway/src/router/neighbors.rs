//! Who is on one side's link: hardware addresses by address, and packets that wait for one.
//!
//! A neighbour is *asked* for until it answers; it is then *known* for a while. A known neighbour
//! that was used meanwhile is asked again, and used on until it has failed to answer; one that was
//! not is forgotten. Everything is bounded: neighbours, packets that wait for each, and how many
//! new ones may be asked for in a second.

use super::recent::Recent;
use crate::counters::Origin;
use natgate_engine::Timestamp;
use natgate_wire::arp::Mac;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Most neighbours on a side.
pub const MOST_NEIGHBORS: usize = 4096;

/// Most packets that wait for one neighbour.
pub const MOST_HELD: usize = 16;

/// How long an answer holds.
pub const KNOWN: Duration = Duration::from_secs(60);

/// How long an answer is waited for before asking again.
pub const RETRY: Duration = Duration::from_secs(1);

/// How often is asked.
pub const TRIES: u8 = 3;

/// Most new neighbours that are asked for in a second: a scan of the link's addresses from the
/// other side must not become a storm on the link.
pub const MOST_NEW_PER_SECOND: u32 = 1000;

/// A packet that waits for its neighbour: room for an Ethernet header, then the packet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) frame: Vec<u8>,
    pub(super) origin: Option<Origin>,
}

/// Something to be done for a neighbour.
#[derive(Debug)]
pub(super) enum Action {
    /// Ask for an address: everybody, or the one that had it.
    Ask(Ipv4Addr, Option<Mac>),
    /// These packets' neighbour does not answer.
    GiveUp(Vec<Held>),
    /// These packets' neighbour makes room for another; whether it would have answered is not
    /// known.
    Evict(Vec<Held>),
}

#[derive(Debug)]
struct Neighbor {
    mac: Option<Mac>,
    /// Requests sent without an answer so far; 0: known.
    tries: u8,
    /// When something is to be done: ask again, give up, or question what is known.
    deadline: Timestamp,
    /// Whether it was used since it was last known.
    used: bool,
    /// Order of making, for eviction.
    serial: u64,
    held: Vec<Held>,
}

/// A neighbour as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborInfo {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its hardware address, once it has answered.
    pub mac: Option<Mac>,
    /// Whether an answer is being waited for.
    pub asking: bool,
    /// Packets that wait for it.
    pub held: usize,
}

/// One side's neighbours.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    table: HashMap<Ipv4Addr, Neighbor>,
    /// Some of those that are known and used, for packets to find quickly.
    recent: Recent,
    /// Deadlines of all.
    timers: BTreeSet<(Timestamp, Ipv4Addr)>,
    /// Those without a hardware address, oldest first.
    unresolved: BTreeSet<(u64, Ipv4Addr)>,
    next_serial: u64,
    /// The second in which new ones are counted, and how many there were.
    window: (Timestamp, u32),
}

impl Neighbors {
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
        self.recent.put(address, mac);
        Some(mac)
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
        if now.since(self.window.0) >= Duration::from_secs(1) {
            self.window = (now, 0);
        }
        if self.window.1 >= MOST_NEW_PER_SECOND {
            return false;
        }
        self.window.1 += 1;
        if self.table.len() >= MOST_NEIGHBORS {
            self.evict(act);
        }
        self.insert(address, now.plus(RETRY));
        act(Action::Ask(address, None));
        true
    }

    fn insert(&mut self, address: Ipv4Addr, deadline: Timestamp) {
        let serial = self.next_serial;
        self.next_serial += 1;
        let held = Vec::new();
        let neighbor = Neighbor { mac: None, tries: 1, deadline, used: true, serial, held };
        self.table.insert(address, neighbor);
        self.recent.fit(self.table.len());
        self.timers.insert((deadline, address));
        self.unresolved.insert((serial, address));
    }

    /// Gets to know a neighbour that another gateway knew; nobody makes room for it.
    pub(super) fn introduce(&mut self, now: Timestamp, address: Ipv4Addr, mac: Mac) {
        if self.table.len() < MOST_NEIGHBORS && !self.table.contains_key(&address) {
            self.insert(address, now.plus(RETRY));
            self.confirm(now, address, mac);
        }
    }

    //= rfc1812#section-3.3.2-queue
    /// Lets a packet wait for a neighbour that is being asked for; gives it back when enough wait.
    pub(super) fn hold(&mut self, address: Ipv4Addr, held: Held) -> Result<(), Held> {
        match self.table.get_mut(&address) {
            Some(neighbor) if neighbor.held.len() < MOST_HELD => {
                neighbor.held.push(held);
                Ok(())
            }
            _ => Err(held),
        }
    }

    /// Makes room: the oldest that has not answered goes first, else the one that was last known
    /// the longest ago.
    fn evict(&mut self, act: &mut dyn FnMut(Action)) {
        let oldest = self.unresolved.first().map(|(_, address)| *address);
        let victim = oldest.or_else(|| self.timers.first().map(|(_, address)| *address));
        if let Some(address) = victim {
            act(Action::Evict(self.remove(address)));
        }
    }

    fn remove(&mut self, address: Ipv4Addr) -> Vec<Held> {
        self.recent.take_out(address);
        let Some(neighbor) = self.table.remove(&address) else { return Vec::new() };
        self.timers.remove(&(neighbor.deadline, address));
        self.unresolved.remove(&(neighbor.serial, address));
        neighbor.held
    }

    /// Takes the answer to a question; returns the packets that waited for it. An answer that
    /// nobody asked for is not believed.
    pub(super) fn answered(&mut self, now: Timestamp, address: Ipv4Addr, mac: Mac) -> Vec<Held> {
        match self.table.get(&address) {
            Some(neighbor) if neighbor.tries > 0 => self.confirm(now, address, mac),
            _ => Vec::new(),
        }
    }

    /// Takes what a request says about its sender, if the sender is somebody already asked for or
    /// known (RFC 826: the table is updated before the request is looked at).
    pub(super) fn heard(&mut self, now: Timestamp, address: Ipv4Addr, mac: Mac) -> Vec<Held> {
        if self.table.contains_key(&address) { self.confirm(now, address, mac) } else { Vec::new() }
    }

    fn confirm(&mut self, now: Timestamp, address: Ipv4Addr, mac: Mac) -> Vec<Held> {
        // It may have another hardware address now, and counts as unused until the next packet.
        self.recent.take_out(address);
        let Some(neighbor) = self.table.get_mut(&address) else { return Vec::new() };
        self.unresolved.remove(&(neighbor.serial, address));
        self.timers.remove(&(neighbor.deadline, address));
        neighbor.deadline = now.plus(KNOWN);
        self.timers.insert((neighbor.deadline, address));
        neighbor.mac = Some(mac);
        neighbor.tries = 0;
        neighbor.used = !neighbor.held.is_empty();
        std::mem::take(&mut neighbor.held)
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
        if neighbor.tries == 0 && !neighbor.used {
            self.remove(address);
            return;
        }
        //= rfc1812#section-3.3.2
        if neighbor.tries >= TRIES {
            return act(Action::GiveUp(self.remove(address)));
        }
        neighbor.tries += 1;
        neighbor.deadline = now.plus(RETRY);
        self.timers.insert((neighbor.deadline, address));
        // The last time everybody is asked: the address may have moved to other hardware.
        let whom = neighbor.mac.filter(|_| neighbor.tries < TRIES);
        act(Action::Ask(address, whom));
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Forgets everybody, as when the link was away; packets that wait are handed back.
    pub(super) fn clear(&mut self) -> Vec<Held> {
        self.recent.clear();
        self.timers.clear();
        self.unresolved.clear();
        self.table.drain().flat_map(|(_, neighbor)| neighbor.held).collect()
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
            asking: neighbor.tries > 0,
            held: neighbor.held.len(),
        })
    }
}
