//! What happens by itself: sessions and hold-downs run out, and unsolicited SYNs are answered
//! (specification, sections 1, 4.7, 5.6 and 9.1); and what a restart leaves.

use crate::bytes::ip;
use crate::classes::LimitOwner;
use crate::sessions::timeouts_of;
use crate::tcp::State;
use crate::{Effects, Host, Key, Mapping, Model, Packet, Syn, has_ports};
use natgate_engine::{Change, Endpoint, MappingKind, SessionId, TICK, Timestamp};
use natgate_wire::icmp::kind::UNREACHABLE;
use natgate_wire::protocol::TCP;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// How long an unsolicited SYN waits for its answer (4.7).
const SYN_DELAY: Duration = Duration::from_secs(6);
/// How many may wait.
const MOST_SYNS: usize = 1024;

/// Which of several ports that are due at the same time are still held when only some may be (5.6):
/// the engine's choice.
pub type StillHeld<'f> = &'f dyn Fn(u8, Endpoint) -> bool;

/// The first tick that is not before a time (1.2).
pub fn tick(time: Timestamp) -> Timestamp {
    Timestamp(time.0.div_ceil(TICK.as_nanos() as u64).saturating_mul(TICK.as_nanos() as u64))
}

/// Counts one less of these; whether there are any left.
fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) -> bool {
    let count = counts.get_mut(&key).expect("it was counted");
    *count -= 1;
    *count > 0
}

impl Model {
    /// Lets time pass: what is due until `now` happens, each at its own tick. `still_held` is asked
    /// where more ports would be held than may be; without it the first are free.
    pub fn advance(&mut self, now: Timestamp, still_held: Option<StillHeld<'_>>) -> Effects {
        self.see(now);
        self.settle_pools(); // What gave way (18) may have been the last that kept an address.
        while let Some(time) = self.next_tick().filter(|time| *time <= self.now) {
            // Of what is due at one time sessions go first: they no longer explain a SYN.
            self.expire_sessions(time);
            self.answer_syns(time);
            self.held.retain(|_, until| tick(*until) > time);
            self.evicted.retain(|_, until| tick(*until) > time);
            if self.has_blocks() {
                self.limit_held(still_held); // It may be what makes a block empty.
                self.release_blocks(time);
            }
            self.settle_pools();
            self.forget_thresholds();
        }
        self.limit_held(still_held);
        self.forget_thresholds();
        std::mem::take(&mut self.made)
    }

    /// When something is due next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let sessions = self.mappings.values().flat_map(|mapping| mapping.sessions.values());
        let sessions = sessions.map(|session| session.expires);
        let holds = self.mappings.values().flat_map(|mapping| mapping.holds.values());
        let sessions = sessions.chain(holds.map(|hold| hold.until));
        let ticks = sessions.chain(self.held.values().copied()).map(tick);
        ticks.chain(self.syns.iter().map(|syn| syn.due)).chain(self.next_block()).min()
    }

    /// Sessions whose time has run out go, and with the last of them their mapping (9.1).
    fn expire_sessions(&mut self, time: Timestamp) {
        let mut ended = Vec::new();
        for (key, mapping) in &mut self.mappings {
            let own = timeouts_of(&self.config, &mapping.timeouts, key.protocol, 0);
            let closing = own.tcp_closing;
            let id = mapping.id(*key);
            let Mapping { sessions, holds, .. } = mapping;
            sessions.retain(|remote, session| {
                let held = holds.get(&Some(*remote)).map(|hold| hold.until);
                let is_ending =
                    matches!(session.connection.state, Some(State::Closed | State::Transitory));
                if let Some(until) = held.filter(|until| tick(*until) > time)
                    && tick(session.expires) <= time
                    && !is_ending
                {
                    session.expires = until; // 16.5
                }
                let due = tick(session.expires) <= time;
                if due && session.connection.state == Some(State::Established) {
                    session.connection.state = Some(State::Transitory); // 9.3
                    session.is_unanswered = false; // 18.2
                    session.expires = time.plus(closing);
                    return true;
                }
                if due {
                    ended.push(session.id(id, *remote));
                }
                !due
            });
            holds.retain(|of, _| of.is_none_or(|remote| sessions.contains_key(&remote)));
            if !sessions.is_empty() {
                holds.retain(|_, hold| tick(hold.until) > time);
            }
            if mapping.first.is_some_and(|first| !mapping.sessions.contains_key(&first)) {
                let heirs = mapping.sessions.iter().filter(|_| key.remote.is_none());
                let heir = heirs.max_by_key(|(_, session)| session.number);
                mapping.first = heir.map(|(remote, _)| *remote); // 3.10
            }
        }
        self.tell_ended(ended, time);
        let gone = self.dynamic().filter(|(_, mapping)| {
            mapping.sessions.is_empty()
                && mapping.held_until().is_none_or(|until| tick(until) <= time)
        });
        let gone: Vec<Key> = gone.map(|(key, _)| *key).collect();
        if gone.is_empty() {
            return;
        }
        // Counted once: a million may go together.
        let mut sharing: BTreeMap<(u8, Endpoint), usize> = BTreeMap::new();
        for (key, mapping) in &self.mappings {
            *sharing.entry((key.protocol, mapping.external)).or_default() += 1;
        }
        let mut of_subscriber: BTreeMap<Host, usize> = BTreeMap::new();
        for (key, _) in self.dynamic() {
            *of_subscriber.entry(key.host()).or_default() += 1;
        }
        for key in gone {
            let external = self.mappings[&key].external;
            let still = one_less(&mut sharing, (key.protocol, external)); // 5.21
            let others = one_less(&mut of_subscriber, key.host());
            self.remove_counted(key, time, still, others);
        }
    }

    /// 10: sessions have ended.
    pub(crate) fn tell_ended(&mut self, ended: Vec<SessionId>, time: Timestamp) {
        if self.config.session_events {
            ended.into_iter().for_each(|id| self.raise(time, Change::SessionRemoved(id)));
        }
    }

    /// Removes a mapping (9.1).
    pub(crate) fn remove(&mut self, key: Key, time: Timestamp) {
        let mapping = &self.mappings[&key];
        let id = mapping.id(key);
        let ended = mapping.sessions.iter().map(|(remote, session)| session.id(id, *remote));
        let ended = ended.collect();
        self.tell_ended(ended, time);
        let (kind, external) = (self.mappings[&key].kind, self.mappings[&key].external);
        if kind == MappingKind::Static {
            self.mappings.remove(&key);
            return;
        }
        let mapping = self.mappings.get_mut(&key).expect("it is there");
        mapping.holds.retain(|of, _| of.is_none());
        let mut all = self.mappings.iter().filter(|(other, _)| **other != key);
        let still =
            all.any(|(other, one)| other.protocol == key.protocol && one.external == external); // 5.21
        let is_another = |other: &Key| other.host() == key.host() && *other != key;
        let others = self.dynamic().any(|(other, _)| is_another(other));
        self.remove_counted(key, time, still, others);
    }

    /// Removes a mapping of a subscriber; `still`: another has its external endpoint, `others`: the
    /// subscriber has others.
    fn remove_counted(&mut self, key: Key, time: Timestamp, still: bool, others: bool) {
        let mapping = self.mappings.remove(&key).expect("it was there");
        let is_held = !self.config.timeouts.hold_down.is_zero();
        if has_ports(key.protocol) && key.protocol != TCP && is_held && !still {
            let until = time.plus(self.config.timeouts.hold_down); // 5.6
            self.held.insert((key.protocol, mapping.external), until);
        }
        if self.is_told(key, &mapping) {
            self.raise(time, Change::MappingRemoved(mapping.id(key)));
        }
        if !others {
            let subscriber = LimitOwner::Subscriber(key.host());
            self.quota_reported.remove(&subscriber);
            self.mapping_rate.remove(&subscriber);
            self.told_of.remove(&subscriber);
            self.unanswered.remove(&key.host());
        }
    }

    /// 5.6: of the ports that are due first as many are free as are held too many. It is enough to
    /// see to it when time has passed: none is taken before.
    pub fn limit_held(&mut self, still_held: Option<StillHeld<'_>>) {
        let most = self.config.limits.held_ports.map_or(usize::MAX, |most| most as usize);
        while self.held.len() > most {
            let first = self.held.values().map(|until| tick(*until)).min().expect("some are held");
            let due: Vec<(u8, Endpoint)> = self
                .held
                .iter()
                .filter(|(_, until)| tick(**until) == first)
                .map(|(held, _)| *held)
                .collect();
            let excess = self.held.len() - most;
            let free: Vec<(u8, Endpoint)> = match still_held {
                Some(still_held) if excess < due.len() => {
                    due.iter().filter(|(of, end)| !still_held(*of, *end)).copied().collect()
                }
                _ => due.iter().take(excess).copied().collect(),
            };
            if free.len() != excess.min(due.len()) {
                self.made.illegal =
                    Some(format!("of {due:?}, {excess} should be free, but {free:?} are"));
                return;
            }
            self.held.retain(|held, _| !free.contains(held));
        }
    }

    /// A translator that takes the place of this one: it knows of no mapping, but holds the ports
    /// that were taken (5.6).
    #[must_use]
    pub fn restarted(&self, still_held: Option<StillHeld<'_>>) -> Self {
        let mut after = Self::new(&self.config, self.now);
        let until = self.now.plus(self.config.timeouts.hold_down);
        let used = self.dynamic().map(|(key, mapping)| (key.protocol, mapping.external));
        let used = used.filter(|(protocol, _)| has_ports(*protocol));
        let taken = used.chain(self.held.keys().copied());
        let is_of_pool = |(_, end): &(u8, Endpoint)| {
            let pool = after.pool_of(end.address.to_bits()).map(|pool| &after.config.pools[pool]);
            pool.is_some_and(|pool| (pool.ports.0..=pool.ports.1).contains(&end.port))
        };
        let taken: Vec<(u8, Endpoint)> = taken.filter(is_of_pool).collect();
        if tick(until) > self.now {
            after.held = taken.into_iter().map(|taken| (taken, until)).collect();
        }
        after.limit_held(still_held);
        after
    }

    /// 4.7: remembers a SYN that was refused; `external` is what it was sent to.
    pub(crate) fn remember(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) {
        if !self.config.answer_unsolicited_syn || !packet.is_syn() {
            return;
        }
        if self.syns.len() == MOST_SYNS {
            self.counters.errors_suppressed += 1;
            return;
        }
        let (due, protocol) = (self.now.plus(SYN_DELAY), packet.protocol());
        let (back_to, quote) = ((packet.from, packet.realm), packet.received.clone());
        self.syns.push(Syn { due, protocol, external, remote, back_to, quote });
    }

    /// 4.7, to the nanosecond: answers the SYNs that nothing has explained by now.
    fn answer_syns(&mut self, time: Timestamp) {
        let (due, later) = self.syns.drain(..).partition(|syn: &Syn| syn.due <= time);
        self.syns = later;
        let due: Vec<Syn> = due;
        for syn in due {
            let explained = self.mappings.iter().any(|(key, mapping)| {
                key.protocol == syn.protocol
                    && mapping.external == syn.external
                    && mapping.sessions.contains_key(&syn.remote)
            });
            if !explained {
                let port_unreachable = (UNREACHABLE, 3, 0);
                let sent_to = Ipv4Addr::from_bits(ip(&syn.quote).destination());
                self.send(time, syn.back_to, sent_to, port_unreachable, &syn.quote);
            }
        }
    }
}
