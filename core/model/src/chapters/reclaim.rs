//! Admission under pressure (specification, section 18): the unanswered subscribers, and the order
//! in which they give way when something is scarce.

use crate::allocation::addresses;
use crate::tcp::State;
use crate::{Effects, Host, Key, Mapping, Model, Session, has_ports};
use natgate_engine::{Allocation, Endpoint, MappingKind, Side, Timestamp};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Least age of a record that gives way (18.5).
const GRACE: Duration = Duration::from_millis(250);
/// A thing is scarce if unanswered subscribers have more than this many times what is free (18.4).
const SCARCE: usize = 15;
/// The protocols with ports, in the order of 18.6.
const WITH_PORTS: [u8; 4] = [TCP, UDP, ICMP, DCCP];

/// A thing of a pool that may be scarce (18.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Thing {
    /// The ports of a protocol.
    Ports(u8),
    Blocks,
}

/// The first of some mappings: its number, which increases from one first mapping to the next, and
/// its time.
#[derive(Clone, Copy, Debug)]
struct Begin {
    number: u64,
    made: Timestamp,
}

/// The mappings of a pool that an unanswered subscriber has (18.5).
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    begin: Begin,
    /// The first mapping that takes each thing.
    of: BTreeMap<Thing, Begin>,
    /// The number of the first request.
    asking: Option<u64>,
}

/// The unanswered subscribers (18.1), with what they have of each pool. A pool of which a
/// subscriber has no mapping any more is forgotten before the next look.
pub(crate) type Unanswered = BTreeMap<Host, BTreeMap<usize, Waiting>>;

/// The part of an unanswered subscriber's state that matters from now on, for a pool.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Ahead {
    host: Host,
    pool: usize,
    age: Duration,
    /// For each thing that it has, the age of the first mapping, and the number of hosts before it.
    things: Vec<(Thing, Duration, usize)>,
    /// Number of requests before its own, if it has requested.
    asked_before: Option<usize>,
    /// The subscriber's mappings of the pool, the latest last.
    mappings: Vec<Key>,
}

/// The mappings of unanswered subscribers to look at (18.5). For records, all mappings of a
/// subscriber go before those of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Records,
    All,
    Asking,
    Of(usize, Thing),
}

impl Model {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.chapters.numbers += 1;
        self.chapters.numbers
    }

    /// 18.1, 18.5: notes a host that is about to have a mapping of a pool, perhaps its first.
    pub(crate) fn note_newcomer(&mut self, key: Key, pool: usize) {
        let host = key.host();
        if !self.dynamic().any(|(other, _)| other.host() == host) {
            self.chapters.unanswered.insert(host, BTreeMap::new());
            self.chapters.first_pools.insert(host, pool);
        }
        if !self.chapters.unanswered.contains_key(&host) {
            return;
        }
        let begin = Begin { number: self.next_number(), made: self.now };
        let thing = self.thing_of(key.protocol, pool);
        let own = self.dynamic().filter(|(other, mapping)| {
            other.host() == host && self.pool_of_mapping(mapping) == Some(pool)
        });
        let own: Vec<Option<Thing>> =
            own.map(|(other, _)| self.thing_of(other.protocol, pool)).collect();
        let pools = self.chapters.unanswered.entry(host).or_default();
        let new = Waiting { begin, of: BTreeMap::new(), asking: None };
        if own.is_empty() {
            pools.insert(pool, new.clone());
        }
        let waiting = pools.entry(pool).or_insert(new);
        if let Some(thing) = thing.filter(|_| !own.contains(&thing)) {
            waiting.of.insert(thing, begin);
        }
    }

    /// 18.4: the thing of a pool that a mapping of a protocol takes.
    fn thing_of(&self, protocol: u8, pool: usize) -> Option<Thing> {
        match self.config.allocation_of(&self.config.pools[pool]) {
            Allocation::Address => Some(Thing::Blocks),
            _ if !has_ports(protocol) => None,
            Allocation::Block(_) => Some(Thing::Blocks),
            _ => Some(Thing::Ports(protocol)),
        }
    }

    /// 18.5: forgets the pools of which unanswered subscribers have no mappings any more, and the
    /// things that none of their mappings takes.
    fn forget_pools(&mut self) {
        let mut unanswered = std::mem::take(&mut self.chapters.unanswered);
        let waiting = self.dynamic().filter(|(key, _)| unanswered.contains_key(&key.host()));
        let mut present: BTreeMap<(Host, usize), BTreeSet<Thing>> = BTreeMap::new();
        for (key, mapping) in waiting {
            if let Some(pool) = self.pool_of_mapping(mapping) {
                let things = present.entry((key.host(), pool)).or_default();
                things.extend(self.thing_of(key.protocol, pool));
            }
        }
        for (host, pools) in &mut unanswered {
            pools.retain(|pool, waiting| {
                let things = present.get(&(*host, *pool));
                waiting.of.retain(|thing, _| things.is_some_and(|has| has.contains(thing)));
                things.is_some()
            });
        }
        self.chapters.unanswered = unanswered;
    }

    fn pool_of_mapping(&self, mapping: &Mapping) -> Option<usize> {
        self.pool_of(mapping.external.address.to_bits())
    }

    /// 18.3: notes that a host has opened a connection that a packet from outside began.
    pub(crate) fn note_service(
        &mut self,
        key: Key,
        remote: Endpoint,
        from: Side,
        before: Option<State>,
    ) {
        let state = self.session_of(key, remote).connection.state;
        let is_opened = from == Side::Inside
            && before == Some(State::OpeningIn)
            && state == Some(State::Established);
        if is_opened
            && self.mappings[&key].kind != MappingKind::Static
            && self.chapters.unanswered.contains_key(&key.host())
        {
            self.session_of(key, remote).marks.is_unanswered = true;
        }
    }

    /// 18.2: notes a packet from a side in a session.
    pub(crate) fn note_answer(&mut self, key: Key, remote: Endpoint, from: Side) {
        let session = self.session_of(key, remote);
        if !session.marks.is_unanswered {
            return;
        }
        let state = session.connection.state;
        let is_answer = from == Side::Outside && state != Some(State::OpeningOut);
        session.marks.is_unanswered =
            !is_answer && matches!(state, None | Some(State::OpeningOut | State::Established));
        if is_answer {
            self.chapters.unanswered.remove(&key.host());
        }
    }

    fn session_of(&mut self, key: Key, remote: Endpoint) -> &mut Session {
        let mapping = self.mappings.get_mut(&key).expect("looked up");
        mapping.sessions.get_mut(&remote).expect("just used")
    }

    /// 18.2: marks a session that a packet from a side has begun, if it waits for an answer.
    pub(crate) fn mark_unanswered(&mut self, key: Key, remote: Endpoint, from: Side) {
        let waits = from == Side::Inside
            && self.mappings[&key].kind != MappingKind::Static
            && self.chapters.unanswered.contains_key(&key.host());
        self.session_of(key, remote).marks.is_unanswered = waits;
    }

    /// 18.2: ends the wait of sessions that have become transitory.
    pub(crate) fn end_waiting(&mut self) {
        let sessions = self.mappings.values_mut().flat_map(|one| one.sessions.values_mut());
        for session in sessions.filter(|one| one.connection.state == Some(State::Transitory)) {
            session.marks.is_unanswered = false;
        }
    }

    /// The part of the unanswered subscribers' state that matters from now on, the oldest first.
    pub(crate) fn unanswered_ahead(&self) -> Vec<Ahead> {
        let mut all: Vec<(Host, usize, &Waiting, Vec<Key>)> = Vec::new();
        for (host, pools) in &self.chapters.unanswered {
            for (pool, waiting) in pools {
                let own = self.own_mappings(*host, *pool);
                if !own.is_empty() {
                    all.push((*host, *pool, waiting, own));
                }
            }
        }
        all.sort_by_key(|(_, _, waiting, _)| waiting.begin.number);
        let of = |(host, pool, waiting, own): &(Host, usize, &Waiting, Vec<Key>)| {
            let age = |begin: &Begin| self.now.since(begin.made).min(GRACE);
            let before = |number: u64| {
                let asking = all.iter().filter_map(|(_, _, other, _)| other.asking);
                asking.filter(|other| *other < number).count()
            };
            let things = waiting.of.iter().map(|(thing, begin)| {
                let others = all.iter().filter(|(_, other, ..)| other == pool);
                let others = others.filter_map(|(_, _, other, _)| other.of.get(thing));
                let before = others.filter(|other| other.number < begin.number).count();
                (*thing, age(begin), before)
            });
            let (age, things) = (age(&waiting.begin), things.collect());
            let asked_before = waiting.asking.map(before);
            Ahead { host: *host, pool: *pool, age, things, asked_before, mappings: own.clone() }
        };
        all.iter().map(of).collect()
    }

    /// The mappings of a pool that a subscriber has, by protocol, and of each the latest last.
    fn own_mappings(&self, host: Host, pool: usize) -> Vec<Key> {
        let is_own = |(key, mapping): &(&Key, &Mapping)| {
            key.host() == host && self.pool_of_mapping(mapping) == Some(pool)
        };
        let mut own: Vec<Key> = self.dynamic().filter(is_own).map(|(key, _)| *key).collect();
        let place = |protocol| {
            let with_ports = WITH_PORTS.iter().position(|other| *other == protocol);
            with_ports.unwrap_or(WITH_PORTS.len())
        };
        own.sort_by_key(|key| (place(key.protocol), self.mappings[key].marks.number));
        own
    }

    /// 18.7: notes a granted request of a host for a mapping.
    pub(crate) fn note_asking(&mut self, key: Key) {
        let number = self.next_number();
        let Some(pool) = self.pool_of_mapping(&self.mappings[&key]) else { return };
        let pools = self.chapters.unanswered.get_mut(&key.host());
        if let Some(waiting) = pools.and_then(|pools| pools.get_mut(&pool)) {
            waiting.asking.get_or_insert(number);
        }
    }

    // ---- scarcity ----

    /// 18.4: makes unanswered subscribers give way, before a batch or a request. Without the bound
    /// of 18.6: all give way in one call.
    pub fn reclaim(&mut self, now: Timestamp) -> Effects {
        self.see(now);
        if self.config.limits.unanswered_give_way {
            self.forget_pools();
            self.relieve(Queue::Records, &Self::records_are_scarce);
            self.relieve(Queue::All, &Self::mappings_are_scarce);
            self.relieve(Queue::Asking, &Self::askers_are_too_many);
            for pool in 0..self.config.pools.len() {
                let things = WITH_PORTS.into_iter().map(Thing::Ports).chain([Thing::Blocks]);
                for thing in things {
                    let is_scarce = |model: &Self| model.is_scarce_in(pool, thing);
                    self.relieve(Queue::Of(pool, thing), &is_scarce);
                }
            }
        }
        self.take_effects()
    }

    /// 18.5, 18.6: takes mappings until a thing is not scarce.
    fn relieve(&mut self, queue: Queue, is_scarce: &dyn Fn(&Self) -> bool) {
        while is_scarce(self) {
            let Some((victim, pool)) = self.victim(queue) else { return };
            let counts = |key: &Key| match queue {
                Queue::Of(_, thing) => self.thing_of(key.protocol, pool) == Some(thing),
                _ => true,
            };
            let latest = self.own_mappings(victim, pool).into_iter().rfind(counts);
            self.give_back(latest.expect("what has no mapping is forgotten"));
            self.forget_pools();
            self.counters.mappings_reclaimed += 1;
            self.counters.subscribers_reclaimed +=
                u64::from(!self.chapters.unanswered.contains_key(&victim));
            self.forget_thresholds();
        }
    }

    /// 18.5: the oldest subscriber of a queue and the pool of its mappings, if they are old enough.
    /// 18.6: for records, its mappings of other pools go first.
    fn victim(&self, queue: Queue) -> Option<(Host, usize)> {
        // The order, and the time of the first mapping.
        let order = |pool: usize, waiting: &Waiting| {
            let Begin { number, made } = match queue {
                Queue::Records | Queue::All => waiting.begin,
                Queue::Asking => Begin { number: waiting.asking?, ..waiting.begin },
                Queue::Of(of, thing) => *waiting.of.get(&thing).filter(|_| of == pool)?,
            };
            Some((number, made))
        };
        let all = self.chapters.unanswered.iter().flat_map(|(host, pools)| {
            pools.iter().map(move |(pool, waiting)| (*host, *pool, waiting))
        });
        let standing = all.filter_map(|(host, pool, one)| Some((order(pool, one)?, (host, pool))));
        let ((_, made), (host, pool)) = standing.min()?;
        if self.now.since(made) < GRACE {
            return None;
        }
        let mut others = self.chapters.unanswered[&host].keys().copied();
        let further = others.rfind(|other| queue == Queue::Records && *other != pool);
        Some((host, further.unwrap_or(pool)))
    }

    /// 18.4: true if little is free in comparison with the use by unanswered subscribers.
    fn is_scarce(&self, free: usize, unanswered: usize) -> bool {
        unanswered > self.config.limits.unanswered_kept as usize && free * SCARCE < unanswered
    }

    fn records_are_scarce(&self) -> bool {
        let hosts: BTreeSet<Host> = self.dynamic().map(|(key, _)| key.host()).collect();
        let free = self.room_for_subscribers().saturating_sub(hosts.len());
        let free_records = self.room_for_records().saturating_sub(self.records());
        let pools = self.chapters.unanswered.values().map(BTreeMap::len).sum();
        self.is_scarce(free, self.chapters.unanswered.len()) || self.is_scarce(free_records, pools)
    }

    /// 14.21: number of records: one for each subscriber, and one for each further pool of which it
    /// has mappings.
    pub(crate) fn records(&self) -> usize {
        let of = |(key, mapping): (&Key, &Mapping)| (key.host(), self.pool_of_mapping(mapping));
        let present: BTreeSet<(Host, Option<usize>)> = self.dynamic().map(of).collect();
        let hosts: BTreeSet<Host> = present.iter().map(|(host, _)| *host).collect();
        let is_further = |(host, pool): &&(Host, Option<usize>)| {
            self.chapters.first_pools.get(host).copied() != *pool
        };
        hosts.len() + present.iter().filter(is_further).count()
    }

    /// 14.21: largest number of records, fixed at the start.
    pub(crate) fn room_for_records(&self) -> usize {
        self.room_for_subscribers() * self.chapters.pools_at_start
    }

    fn mappings_are_scarce(&self) -> bool {
        let free = self.chapters.room.saturating_sub(self.dynamic().count());
        self.is_scarce(free, self.unanswered_mappings())
    }

    /// 18.7: true if unanswered subscribers with requests exceed their share.
    fn askers_are_too_many(&self) -> bool {
        let all = self.chapters.unanswered.values().flat_map(BTreeMap::values);
        let asking = all.filter(|waiting| waiting.asking.is_some()).count();
        let percent = usize::from(self.config.limits.asking_share);
        let share = (self.room_for_subscribers() * percent / 100).max(1);
        let share = share.max(self.config.limits.unanswered_kept as usize);
        let held: usize = self.mappings.values().map(|mapping| mapping.marks.holds.len()).sum();
        asking > share || self.is_scarce(self.chapters.holds_room - held, asking)
    }

    fn is_scarce_in(&self, pool: usize, thing: Thing) -> bool {
        let config = &self.config.pools[pool];
        let allocation = self.config.allocation_of(config);
        let has_blocks = matches!(allocation, Allocation::Block(_) | Allocation::Address);
        if has_blocks != (thing == Thing::Blocks)
            || config.overloading
            || matches!(allocation, Allocation::Deterministic(_))
            || addresses(config).all(|address| config.is_draining(address))
        {
            return false;
        }
        let taken = self.dynamic().filter(|(key, mapping)| {
            self.chapters.unanswered.contains_key(&key.host())
                && self.pool_of_mapping(mapping) == Some(pool)
                && self.thing_of(key.protocol, pool) == Some(thing)
        });
        match thing {
            Thing::Ports(protocol) => {
                let free = self.pool_usage(pool, protocol).free as usize;
                self.is_scarce(free, taken.count())
            }
            Thing::Blocks => {
                let (used, all) = self.use_of_blocks(pool).unwrap_or_default();
                let blocks = taken.filter_map(|(_, mapping)| self.block_of(mapping.external));
                let blocks: BTreeSet<Endpoint> = blocks.map(|(start, _)| start).collect();
                self.is_scarce((all - used) as usize, blocks.len())
            }
        }
    }

    /// Number of mappings of unanswered subscribers.
    fn unanswered_mappings(&self) -> usize {
        self.dynamic().filter(|(key, _)| self.chapters.unanswered.contains_key(&key.host())).count()
    }

    fn room_for_subscribers(&self) -> usize {
        let subscribers = self.config.limits.subscribers;
        let all = subscribers.map_or((self.chapters.room / 16).max(1 << 16), |most| most as usize);
        all.min(self.chapters.room)
    }

    /// 18.6: removes a mapping. Its port does not rest.
    fn give_back(&mut self, key: Key) {
        let mapping = self.mappings.get_mut(&key).expect("it is there");
        let (id, external, first) = (mapping.id(key), mapping.external, mapping.marks.first);
        let mut sessions: Vec<(Endpoint, Session)> =
            std::mem::take(&mut mapping.sessions).into_iter().collect();
        // The latest session first, and the mapping's first session last.
        sessions.sort_by_key(|(remote, one)| (first == Some(*remote), Reverse(one.number)));
        let ended = sessions.iter().map(|(remote, session)| session.id(id, *remote)).collect();
        self.raise_ended(ended, self.now);
        self.remove_all(vec![key], self.now);
        self.held.remove(&(key.protocol, external));
        let pool = self.pool_of(external.address.to_bits()).map(|pool| &self.config.pools[pool]);
        let is_whole =
            pool.is_some_and(|pool| *self.config.allocation_of(pool) == Allocation::Address);
        if has_ports(key.protocol) || is_whole {
            self.release_empty(external);
        }
        self.note_empty_since_next_tick();
    }
}
