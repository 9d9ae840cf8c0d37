//! Neighbours of one link: their hardware addresses, and packets that wait for one (RFC 4861
//! section 7).
//!
//! A neighbour is *incomplete* until it answers. It is *reachable* for a while after each answer,
//! then *stale*. The first packet to a stale neighbour makes it *delayed*, and if nothing confirms
//! the hardware address, *probed*. A *static* neighbour comes from the configuration: it is neither
//! asked nor changed.
//!
//! Everything is bounded (RFC 6583): neighbours, unanswered questions, packets that wait for each
//! neighbour, and questions in a second. Packets to addresses that nobody has, and messages from
//! forged sources, only evict entries of their own kind. Neighbours that have answered stay.

use crate::counters::Origin;
use crate::pace::Rate;
use crate::router::{MOST_FORMER_PER_SECOND, MOST_HELD, MOST_NEW_PER_SECOND};
use natgate_engine::Timestamp;
use natgate_wire::arp::Mac;
use natgate_wire::nd::Advertisement;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Time for which an answer holds (REACHABLE_TIME, RFC 4861 section 10).
pub const REACHABLE: Duration = Duration::from_secs(30);

/// Time between two questions (RETRANS_TIMER).
pub const RETRANSMIT: Duration = Duration::from_secs(1);

/// Number of questions before a neighbour counts as lost (MAX_MULTICAST_SOLICIT,
/// MAX_UNICAST_SOLICIT).
pub const TRIES: u8 = 3;

/// Time from the first packet to a stale neighbour to the first probe (DELAY_FIRST_PROBE_TIME).
pub const DELAY: Duration = Duration::from_secs(5);

/// Time for which a stale neighbour is kept without use.
pub const STALE: Duration = Duration::from_secs(600);

/// Most unanswered questions of a link at a time.
pub const MOST_INCOMPLETE: usize = 1024;

/// Share of the table for the unproven neighbours of one hardware address: one place in this
/// number, but at least [`FEWEST_UNPROVEN_OF_ONE`].
const SHARE_OF_ONE: usize = 16;

/// Unproven neighbours that one hardware address may have in any table.
const FEWEST_UNPROVEN_OF_ONE: usize = 256;

/// Number of neighbours that are remembered as formerly known.
const FORMER: usize = 4096;

/// A packet that waits for its neighbour: room for an Ethernet header, then the packet.
#[derive(Debug)]
pub(super) struct WaitingPacket {
    pub(super) frame: Vec<u8>,
    pub(super) origin: Option<Origin>,
}

/// Work for the caller.
#[derive(Debug)]
pub(super) enum Action {
    /// Ask for an address: its group, or the hardware that is believed to have it.
    Ask(Ipv6Addr, Option<Mac>),
    /// Drop these packets: their neighbour does not answer.
    GiveUp(VecDeque<WaitingPacket>),
    /// Drop these packets: their neighbour makes room for another. It might still have answered.
    Evict(VecDeque<WaitingPacket>),
}

/// State of a neighbour (RFC 4861 section 7.3.2). Of the states that several workers have of one
/// neighbour, the greatest tells most about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighborState6 {
    /// The neighbour is being asked for.
    Incomplete,
    /// The neighbour has not answered lately, and no packet has used it since.
    Stale,
    /// A packet has used the neighbour; it will be probed soon.
    Delay,
    /// The neighbour is asked whether it is still there.
    Probe,
    /// The neighbour has answered lately.
    Reachable,
    /// The configuration has the neighbour.
    Static,
}

impl NeighborState6 {
    /// Name of the state in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Static => "static",
        }
    }
}

/// A neighbour as lists show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborInfo6 {
    /// Address.
    pub address: Ipv6Addr,
    /// Hardware address, once it is known.
    pub mac: Option<Mac>,
    /// State.
    pub state: NeighborState6,
    /// True if the neighbour says that it is a router.
    pub router: bool,
    /// Packets that wait for the neighbour.
    pub held: usize,
}

/// Neighbours that make room for others. Of the first three kinds the largest does, then the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Never known, and asked for.
    New,
    /// Known before, and asked for.
    Former,
    /// Learnt from the neighbour's own message; no question was answered yet.
    Unproven,
    /// Known, and not used lately.
    Stale,
}

const GROUPS: usize = 4;

#[derive(Debug)]
struct Neighbor {
    mac: Option<Mac>,
    state: NeighborState6,
    is_router: bool,
    /// Questions sent without an answer so far.
    tries: u8,
    /// Time of the next step.
    deadline: Timestamp,
    /// True if the neighbour has answered a question.
    proven: bool,
    /// True if the neighbour was known before it was asked for.
    former: bool,
    /// Order of insertion, for eviction.
    serial: u64,
    held: VecDeque<WaitingPacket>,
}

impl Neighbor {
    fn group(&self) -> Option<Group> {
        match self.state {
            NeighborState6::Incomplete if self.former => Some(Group::Former),
            NeighborState6::Incomplete => Some(Group::New),
            NeighborState6::Stale if self.proven => Some(Group::Stale),
            NeighborState6::Stale | NeighborState6::Delay | NeighborState6::Probe => {
                (!self.proven).then_some(Group::Unproven)
            }
            NeighborState6::Reachable | NeighborState6::Static => None,
        }
    }
}

/// Neighbours of one link.
#[derive(Debug)]
pub(super) struct Neighbors {
    table: HashMap<Ipv6Addr, Neighbor>,
    /// Most neighbours that messages and packets may put into the table.
    limit: usize,
    /// Neighbours from the configuration.
    fixed: Vec<(Ipv6Addr, Mac)>,
    /// Deadlines of all neighbours but the static ones.
    timers: BTreeSet<(Timestamp, Ipv6Addr)>,
    /// Neighbours of each group, oldest first.
    groups: [BTreeSet<(u64, Ipv6Addr)>; GROUPS],
    /// Number of unproven neighbours of each hardware address.
    unproven_of: HashMap<Mac, usize>,
    former: Former,
    next_serial: u64,
    new: Rate,
    known_before: Rate,
}

impl Neighbors {
    /// Creates a table with room for `limit` neighbours and the static ones.
    pub(super) fn new(limit: usize, fixed: Vec<(Ipv6Addr, Mac)>) -> Self {
        let mut neighbors = Self {
            table: HashMap::new(),
            limit,
            fixed,
            timers: BTreeSet::new(),
            groups: Default::default(),
            unproven_of: HashMap::new(),
            former: Former::default(),
            next_serial: 0,
            new: Rate::default(),
            known_before: Rate::default(),
        };
        neighbors.insert_fixed();
        neighbors
    }

    fn insert_fixed(&mut self) {
        for (address, mac) in self.fixed.clone() {
            self.insert(address, Some(mac), NeighborState6::Static, Timestamp(0));
        }
    }

    /// Takes the limit and the static neighbours of `new`; the other neighbours stay. Returns
    /// packets that waited for a neighbour that is static now, with its hardware address.
    pub(super) fn renew(&mut self, new: &Self) -> Vec<(Mac, VecDeque<WaitingPacket>)> {
        for (address, _) in std::mem::take(&mut self.fixed) {
            self.remove(address);
        }
        (self.limit, self.fixed) = (new.limit, new.fixed.clone());
        let waiting = self.fixed.clone().into_iter();
        let released = waiting.map(|(address, mac)| (mac, self.remove(address))).collect();
        self.insert_fixed();
        released
    }

    /// Returns a neighbour's hardware address for a packet, if it is known.
    //= rfc4861#section-7.3.3-delay
    pub(super) fn resolve(&mut self, now: Timestamp, address: Ipv6Addr) -> Option<Mac> {
        let neighbor = self.table.get(&address)?;
        if neighbor.state == NeighborState6::Stale {
            self.change(address, |neighbor| {
                neighbor.state = NeighborState6::Delay;
                neighbor.deadline = now.plus(DELAY);
            });
        }
        self.known(address)
    }

    /// Returns a neighbour's hardware address, if it is known; changes nothing.
    pub(super) fn known(&self, address: Ipv6Addr) -> Option<Mac> {
        self.table.get(&address)?.mac
    }

    /// State and hardware address of a neighbour; changes nothing.
    pub(super) fn look_up(&self, address: Ipv6Addr) -> Option<(NeighborState6, Option<Mac>)> {
        self.table.get(&address).map(|neighbor| (neighbor.state, neighbor.mac))
    }

    /// Begins to ask for a neighbour. Returns false if too many new neighbours were asked for in
    /// this second.
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        address: Ipv6Addr,
        act: &mut dyn FnMut(Action),
    ) -> bool {
        if self.table.contains_key(&address) {
            return true;
        }
        let former = self.former.contains(address);
        let is_left = match former {
            true => self.known_before.take(now, MOST_FORMER_PER_SECOND),
            false => self.new.take(now, MOST_NEW_PER_SECOND),
        };
        if !is_left || !self.make_room_to_ask(act) {
            return false;
        }
        let deadline = now.plus(RETRANSMIT);
        self.insert(address, None, NeighborState6::Incomplete, deadline);
        self.change(address, |neighbor| (neighbor.former, neighbor.tries) = (former, 1));
        act(Action::Ask(address, None));
        true
    }

    /// Lets a packet wait for a neighbour that is being asked for. Returns the packet that may not
    /// wait: the oldest, if enough wait.
    //= rfc4861#section-7.2.2-queue
    //= rfc4861#section-7.2.2-overflow
    pub(super) fn hold(&mut self, address: Ipv6Addr, held: WaitingPacket) -> Option<WaitingPacket> {
        let Some(neighbor) = self.table.get_mut(&address).filter(|one| one.mac.is_none()) else {
            return Some(held);
        };
        neighbor.held.push_back(held);
        if neighbor.held.len() > MOST_HELD { neighbor.held.pop_front() } else { None }
    }

    /// Takes the hardware address that a neighbour states for itself in a solicitation. Returns the
    /// packets that waited for the neighbour. `None`: there is no room for the neighbour.
    //= rfc4861#section-6.2.6-entry
    //= rfc4861#section-7.2.3-entry
    //= rfc4861#section-7.2.3-stale
    //= rfc4861#section-7.2.3-router
    pub(super) fn learn(
        &mut self,
        now: Timestamp,
        address: Ipv6Addr,
        mac: Mac,
        act: &mut dyn FnMut(Action),
    ) -> Option<VecDeque<WaitingPacket>> {
        let Some(neighbor) = self.table.get(&address) else {
            let most = (self.limit / SHARE_OF_ONE).max(FEWEST_UNPROVEN_OF_ONE);
            let is_share_used = self.unproven_of.get(&mac).is_some_and(|count| *count >= most);
            if is_share_used || !self.make_room(act) {
                return None;
            }
            self.insert(address, Some(mac), NeighborState6::Stale, now.plus(STALE));
            return Some(VecDeque::new());
        };
        if neighbor.state == NeighborState6::Static || neighbor.mac == Some(mac) {
            return Some(VecDeque::new());
        }
        Some(self.set_mac(now, address, mac))
    }

    /// Makes a neighbour stale with a hardware address. Packets that waited use it at once.
    fn set_mac(&mut self, now: Timestamp, address: Ipv6Addr, mac: Mac) -> VecDeque<WaitingPacket> {
        let change = |neighbor: &mut Neighbor| {
            let held = std::mem::take(&mut neighbor.held);
            let is_used = !held.is_empty();
            neighbor.mac = Some(mac);
            neighbor.tries = 0;
            (neighbor.state, neighbor.deadline) = match is_used {
                true => (NeighborState6::Delay, now.plus(DELAY)),
                false => (NeighborState6::Stale, now.plus(STALE)),
            };
            held
        };
        self.change(address, change).unwrap_or_default()
    }

    /// Takes a neighbor advertisement about an entry of the table. Returns the packets that waited
    /// for the neighbour, and true if the neighbour has other hardware now.
    //= rfc4861#section-7.2.5
    pub(super) fn hear(
        &mut self,
        now: Timestamp,
        said: &Advertisement,
    ) -> (VecDeque<WaitingPacket>, bool) {
        let nothing = (VecDeque::new(), false);
        let Some(neighbor) = self.table.get(&said.target) else { return nothing };
        //= rfc4861#section-7.2.5-incomplete
        let Some(mac) = said.mac.or(neighbor.mac) else { return nothing };
        if neighbor.state == NeighborState6::Static {
            return nothing;
        }
        let is_other = neighbor.mac.is_some_and(|known| known != mac);
        //= rfc4861#section-7.2.5-override
        if is_other && !said.replaces {
            if neighbor.state == NeighborState6::Reachable {
                self.change(said.target, |neighbor| {
                    neighbor.state = NeighborState6::Stale;
                    neighbor.deadline = now.plus(STALE);
                });
            }
            return nothing;
        }
        //= rfc4861#section-7.2.5-update
        //= rfc4861#section-7.3.1
        let held = if said.solicited {
            self.confirm(now, said.target, mac)
        } else if neighbor.mac != Some(mac) {
            self.set_mac(now, said.target, mac)
        } else {
            VecDeque::new()
        };
        self.change(said.target, |neighbor| neighbor.is_router = said.router);
        (held, is_other)
    }

    /// Notes that a neighbour is no router.
    pub(super) fn is_host(&mut self, address: Ipv6Addr) {
        if let Some(neighbor) = self.table.get_mut(&address) {
            neighbor.is_router = false;
        }
    }

    /// Makes a neighbour reachable.
    fn confirm(&mut self, now: Timestamp, address: Ipv6Addr, mac: Mac) -> VecDeque<WaitingPacket> {
        let change = |neighbor: &mut Neighbor| {
            neighbor.state = NeighborState6::Reachable;
            neighbor.mac = Some(mac);
            neighbor.tries = 0;
            neighbor.proven = true;
            neighbor.deadline = now.plus(REACHABLE);
            std::mem::take(&mut neighbor.held)
        };
        self.change(address, change).unwrap_or_default()
    }

    /// Does the work that is due.
    pub(super) fn advance(&mut self, now: Timestamp, act: &mut dyn FnMut(Action)) {
        while let Some((_, address)) = self.timers.first().filter(|(due, _)| *due <= now).copied() {
            self.due(now, address, act);
        }
    }

    /// Takes the next step of a neighbour.
    //= rfc4861#section-7.3.3
    //= rfc4861#section-7.3.3-rate
    fn due(&mut self, now: Timestamp, address: Ipv6Addr, act: &mut dyn FnMut(Action)) {
        let Some(neighbor) = self.table.get(&address) else { return };
        match neighbor.state {
            NeighborState6::Reachable => {
                self.change(address, |neighbor| {
                    neighbor.state = NeighborState6::Stale;
                    neighbor.deadline = now.plus(STALE);
                });
            }
            NeighborState6::Stale | NeighborState6::Static => {
                self.remove(address);
            }
            //= rfc4861#section-7.3.3-delete
            NeighborState6::Incomplete | NeighborState6::Probe if neighbor.tries >= TRIES => {
                act(Action::GiveUp(self.remove(address)));
            }
            //= rfc4861#section-7.2.2-retransmit
            NeighborState6::Incomplete | NeighborState6::Probe | NeighborState6::Delay => {
                let mac = neighbor.mac;
                self.change(address, |neighbor| {
                    if mac.is_some() {
                        neighbor.state = NeighborState6::Probe;
                    }
                    neighbor.tries += 1;
                    neighbor.deadline = now.plus(RETRANSMIT);
                });
                act(Action::Ask(address, mac));
            }
        }
    }

    /// Time of the next work.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Forgets all but static neighbours, as after the link was down; returns the packets that
    /// waited.
    pub(super) fn clear(&mut self) -> VecDeque<WaitingPacket> {
        let addresses: Vec<Ipv6Addr> = self.table.keys().copied().collect();
        let held = addresses.into_iter().flat_map(|address| self.remove(address)).collect();
        self.insert_fixed();
        held
    }

    /// All neighbours, in order of address.
    pub(super) fn list(&self) -> Vec<NeighborInfo6> {
        let info = |(address, neighbor): (&Ipv6Addr, &Neighbor)| NeighborInfo6 {
            address: *address,
            mac: neighbor.mac,
            state: neighbor.state,
            router: neighbor.is_router,
            held: neighbor.held.len(),
        };
        let mut list: Vec<_> = self.table.iter().map(info).collect();
        list.sort_by_key(|neighbor| neighbor.address);
        list
    }

    /// Makes room for a further neighbour in the table; returns false if all neighbours are in use.
    fn make_room(&mut self, act: &mut dyn FnMut(Action)) -> bool {
        if self.table.len() < self.limit {
            return true;
        }
        let [new, former, unproven, stale] = &self.groups;
        let larger =
            if new.len() + former.len() >= unproven.len() { [new, former] } else { [unproven; 2] };
        let victim = larger.into_iter().chain([stale]).find_map(|group| group.first());
        let Some((_, victim)) = victim.copied() else { return false };
        act(Action::Evict(self.remove(victim)));
        true
    }

    /// Makes room for a further question: one that has waited for the longest time ends.
    fn make_room_to_ask(&mut self, act: &mut dyn FnMut(Action)) -> bool {
        let [new, former, ..] = &self.groups;
        if new.len() + former.len() >= MOST_INCOMPLETE {
            self.evict_question(Ipv6Addr::UNSPECIFIED, act);
        }
        self.make_room(act)
    }

    /// Ends the oldest question, except for `but`.
    pub(super) fn evict_question(&mut self, but: Ipv6Addr, act: &mut dyn FnMut(Action)) {
        let [new, former, ..] = &self.groups;
        let victim = new.first().or(former.first()).filter(|(_, victim)| *victim != but).copied();
        if let Some((_, victim)) = victim {
            act(Action::Evict(self.remove(victim)));
        }
    }

    fn insert(
        &mut self,
        address: Ipv6Addr,
        mac: Option<Mac>,
        state: NeighborState6,
        deadline: Timestamp,
    ) {
        let neighbor = Neighbor {
            mac,
            state,
            is_router: false,
            tries: 0,
            deadline,
            proven: state == NeighborState6::Static,
            former: false,
            serial: self.next_serial,
            held: VecDeque::new(),
        };
        self.next_serial += 1;
        self.register(address, &neighbor);
        self.table.insert(address, neighbor);
    }

    /// Changes a neighbour, and its place in the orders.
    fn change<R>(
        &mut self,
        address: Ipv6Addr,
        change: impl FnOnce(&mut Neighbor) -> R,
    ) -> Option<R> {
        let mut neighbor = self.table.remove(&address)?;
        self.unregister(address, &neighbor);
        let result = change(&mut neighbor);
        self.register(address, &neighbor);
        self.table.insert(address, neighbor);
        Some(result)
    }

    /// Removes a neighbour; returns the packets that waited.
    fn remove(&mut self, address: Ipv6Addr) -> VecDeque<WaitingPacket> {
        let Some(neighbor) = self.table.remove(&address) else { return VecDeque::new() };
        self.unregister(address, &neighbor);
        if neighbor.mac.is_some() && neighbor.proven {
            self.former.insert(address);
        }
        neighbor.held
    }

    fn register(&mut self, address: Ipv6Addr, neighbor: &Neighbor) {
        if neighbor.state != NeighborState6::Static {
            self.timers.insert((neighbor.deadline, address));
        }
        let Some(group) = neighbor.group() else { return };
        self.groups[group as usize].insert((neighbor.serial, address));
        if let (Group::Unproven, Some(mac)) = (group, neighbor.mac) {
            *self.unproven_of.entry(mac).or_default() += 1;
        }
    }

    fn unregister(&mut self, address: Ipv6Addr, neighbor: &Neighbor) {
        self.timers.remove(&(neighbor.deadline, address));
        let Some(group) = neighbor.group() else { return };
        self.groups[group as usize].remove(&(neighbor.serial, address));
        if let (Group::Unproven, Some(mac)) = (group, neighbor.mac)
            && let Some(count) = self.unproven_of.get_mut(&mac)
        {
            *count -= 1;
            if *count == 0 {
                self.unproven_of.remove(&mac);
            }
        }
    }
}

/// Some neighbours that were known and have been forgotten. The places follow from a secret key, so
/// that nobody can choose addresses that displace a certain one.
#[derive(Debug, Default)]
struct Former {
    places: Vec<Option<Ipv6Addr>>,
    key: RandomState,
}

impl Former {
    fn contains(&self, address: Ipv6Addr) -> bool {
        self.places.get(self.place(address)).is_some_and(|known| *known == Some(address))
    }

    fn insert(&mut self, address: Ipv6Addr) {
        self.places.resize(FORMER, None);
        let place = self.place(address);
        self.places[place] = Some(address);
    }

    fn place(&self, address: Ipv6Addr) -> usize {
        self.key.hash_one(address) as usize % FORMER
    }
}
