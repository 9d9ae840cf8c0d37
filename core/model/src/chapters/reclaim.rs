//! Admission under pressure (specification, section 18): the unanswered subscribers, and the order
//! in which they give way when something is scarce.

use crate::tcp::State;
use crate::{Effects, Host, Key, Mapping, Model, Session, has_ports};
use natgate_engine::{Allocation, Endpoint, MappingKind, Side, Timestamp};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

/// Least age of a record that gives way (18.5).
const GRACE: Duration = Duration::from_millis(250);
/// A thing is scarce if unanswered subscribers have more than this many times what is free (18.4).
const SCARCE: usize = 15;

/// The record of an unanswered subscriber (18.1).
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Increases from one subscriber to the next.
    number: u64,
    made: Timestamp,
    /// The subscriber's number when it first requested a mapping.
    asking: Option<u64>,
}

/// The part of an unanswered subscriber's state that matters from now on.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Ahead {
    host: Host,
    age: Duration,
    /// Number of subscribers that requested before it, if it has requested.
    asked_before: Option<usize>,
    /// The subscriber's mappings, the latest last.
    mappings: Vec<Key>,
}

/// The unanswered subscribers to look at (18.5).
#[derive(Clone, Copy, Debug)]
enum Queue {
    All,
    Asking,
}

impl Model {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.chapters.numbers += 1;
        self.chapters.numbers
    }

    /// 18.1: notes a host that is about to have a mapping, perhaps its first.
    pub(crate) fn note_newcomer(&mut self, key: Key) {
        let mut all = self.mappings.iter();
        let is_own = |(other, mapping): (&Key, &Mapping)| {
            other.host() == key.host() && mapping.kind != MappingKind::Static
        };
        if !all.any(is_own) {
            let (number, made) = (self.next_number(), self.now);
            self.chapters.unanswered.insert(key.host(), Waiting { number, made, asking: None });
        }
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

    /// The part of the unanswered subscribers' state that matters from now on, the oldest
    /// subscriber first.
    pub(crate) fn unanswered_ahead(&self) -> Vec<Ahead> {
        let mut all: Vec<(&Host, &Waiting)> = self.chapters.unanswered.iter().collect();
        all.sort_by_key(|(_, waiting)| waiting.number);
        let of = |(host, waiting): &(&Host, &Waiting)| {
            let age = self.now.since(waiting.made).min(GRACE);
            let before = |number: u64| {
                let asking = all.iter().filter_map(|(_, other)| other.asking);
                asking.filter(|other| *other < number).count()
            };
            let mut own: Vec<Key> =
                self.dynamic().map(|(key, _)| *key).filter(|key| key.host() == **host).collect();
            own.sort_by_key(|key| self.mappings[key].marks.number);
            Ahead { host: **host, age, asked_before: waiting.asking.map(before), mappings: own }
        };
        all.iter().map(of).collect()
    }

    /// 18.7: notes a granted request of a host.
    pub(crate) fn note_asking(&mut self, host: Host) {
        let number = self.next_number();
        if let Some(waiting) = self.chapters.unanswered.get_mut(&host) {
            waiting.asking.get_or_insert(number);
        }
    }

    // ---- scarcity ----

    /// 18.4: makes unanswered subscribers give way, before a batch or a request. Without the bound
    /// of 18.6: all give way in one call.
    pub fn reclaim(&mut self, now: Timestamp) -> Effects {
        self.see(now);
        if self.config.limits.unanswered_give_way {
            self.relieve(Queue::All, &Self::tables_are_scarce);
            self.relieve(Queue::Asking, &Self::askers_are_too_many);
            for pool in 0..self.config.pools.len() {
                self.relieve(Queue::All, &|model| model.pool_is_scarce(pool));
            }
        }
        self.take_effects()
    }

    /// 18.5, 18.6: takes mappings until a thing is not scarce.
    fn relieve(&mut self, queue: Queue, is_scarce: &dyn Fn(&Self) -> bool) {
        while is_scarce(self) {
            let Some(victim) = self.victim(queue) else { return };
            let own = self.dynamic().map(|(key, _)| *key).filter(|key| key.host() == victim);
            let latest = own.max_by_key(|key| self.mappings[key].marks.number);
            let latest = latest.expect("who has no mapping is forgotten");
            self.give_back(latest);
            self.counters.mappings_reclaimed += 1;
            self.counters.subscribers_reclaimed +=
                u64::from(!self.chapters.unanswered.contains_key(&victim));
            self.forget_thresholds();
        }
    }

    /// 18.5: the oldest subscriber, if it is old enough.
    fn victim(&self, queue: Queue) -> Option<Host> {
        let order = |waiting: &Waiting| match queue {
            Queue::All => Some(waiting.number),
            Queue::Asking => waiting.asking,
        };
        let standing =
            self.chapters.unanswered.iter().filter_map(|(host, one)| Some((order(one)?, host)));
        let (_, oldest) = standing.min()?;
        let age = self.now.since(self.chapters.unanswered[oldest].made);
        (age >= GRACE).then_some(*oldest)
    }

    /// 18.4: true if little is free in comparison with the use by unanswered subscribers.
    fn is_scarce(&self, free: usize, unanswered: usize) -> bool {
        unanswered > self.config.limits.unanswered_kept as usize && free * SCARCE < unanswered
    }

    fn tables_are_scarce(&self) -> bool {
        let hosts: BTreeSet<Host> = self.dynamic().map(|(key, _)| key.host()).collect();
        let free = self.room_for_subscribers().saturating_sub(hosts.len());
        let mappings = self.chapters.room.saturating_sub(self.dynamic().count());
        self.is_scarce(free, self.chapters.unanswered.len())
            || self.is_scarce(mappings, self.unanswered_mappings())
    }

    /// 18.7: true if unanswered subscribers with requests exceed their share.
    fn askers_are_too_many(&self) -> bool {
        let asking =
            self.chapters.unanswered.values().filter(|waiting| waiting.asking.is_some()).count();
        let percent = usize::from(self.config.limits.asking_share);
        let share = (self.room_for_subscribers() * percent / 100).max(1);
        let share = share.max(self.config.limits.unanswered_kept as usize);
        let held: usize = self.mappings.values().map(|mapping| mapping.marks.holds.len()).sum();
        asking > share || self.is_scarce(self.chapters.holds_room - held, asking)
    }

    fn pool_is_scarce(&self, pool: usize) -> bool {
        let config = &self.config.pools[pool];
        let allocation = self.config.allocation_of(config);
        if config.overloading || matches!(allocation, Allocation::Deterministic(_)) {
            return false;
        }
        let unanswered = |protocol: u8| {
            let own = self.dynamic().filter(move |(key, _)| {
                key.protocol == protocol && self.chapters.unanswered.contains_key(&key.host())
            });
            let addresses = own.map(|(_, mapping)| mapping.external.address.to_bits());
            addresses.filter(|address| self.pool_of(*address) == Some(pool)).count()
        };
        let protocols = [TCP, UDP, ICMP, DCCP];
        if matches!(allocation, Allocation::Block(_) | Allocation::Address) {
            let mappings: usize = protocols.into_iter().map(unanswered).sum();
            let (taken, all) = self.use_of_blocks(pool).unwrap_or_default();
            let subscribers = self.chapters.unanswered.len().min(mappings);
            return self.is_scarce((all - taken) as usize, subscribers);
        }
        protocols.into_iter().any(|protocol| {
            let free = self.pool_usage(pool, protocol).free as usize;
            self.is_scarce(free, unanswered(protocol))
        })
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
        if has_ports(key.protocol) {
            self.release_empty(external);
        }
        self.note_empty_since_next_tick();
    }
}
