//! Time (specification, sections 1, 5.9 and 9.1): sessions run out, mappings go with their last
//! session, and ports rest before another mapping gets them.

use crate::points::DecisionPoints as _;
use crate::sessions::timeouts_of;
use crate::tcp::State;
use crate::{Effects, Host, Key, Mapping, Model, has_ports};
use natgate_engine::{Change, Endpoint, MappingKind, SessionId, TICK, Timestamp};
use natgate_wire::protocol::TCP;
use std::collections::BTreeSet;

/// The engine's choice of ports that stay held, if several are due at the same time and too many
/// are held (5.11).
pub type StillHeld<'f> = &'f dyn Fn(u8, Endpoint) -> bool;

/// The first tick that is not before a time (1.2).
pub fn tick(time: Timestamp) -> Timestamp {
    Timestamp(time.0.div_ceil(TICK.as_nanos() as u64).saturating_mul(TICK.as_nanos() as u64))
}

impl Model {
    /// Lets time pass: does what is due until `now`, each at its own tick. If too many ports are
    /// held, `still_held` decides which stay; without it the first become free.
    pub fn advance(&mut self, now: Timestamp, still_held: Option<StillHeld<'_>>) -> Effects {
        self.see(now);
        self.before_time();
        while let Some(time) = self.next_tick().filter(|time| *time <= self.now) {
            self.expire_sessions(time);
            self.held.retain(|_, until| tick(*until) > time);
            self.at_tick(time, still_held);
        }
        self.after_time(still_held);
        std::mem::take(&mut self.made)
    }

    /// The tick of the next thing that is due.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let sessions = self.mappings.values().flat_map(|mapping| mapping.sessions.values());
        let sessions = sessions.map(|session| session.expires);
        let ticks = sessions.chain(self.held.values().copied()).map(tick);
        ticks.chain(self.next_due()).min()
    }

    /// Ends sessions whose time has run out, and a mapping with its last session (9.1).
    fn expire_sessions(&mut self, time: Timestamp) {
        self.before_expiry(time);
        let mut ended = Vec::new();
        for (key, mapping) in &mut self.mappings {
            let closing = timeouts_of(&self.config, &mapping.timeouts, key.protocol, 0).tcp_closing;
            let id = mapping.id(*key);
            mapping.sessions.retain(|remote, session| {
                let is_due = tick(session.expires) <= time;
                if is_due && session.connection.state == Some(State::Established) {
                    session.connection.state = Some(State::Transitory); // 9.3
                    session.expires = time.plus(closing);
                    return true;
                }
                if is_due {
                    ended.push(session.id(id, *remote));
                }
                !is_due
            });
        }
        self.after_expiry(time);
        self.raise_ended(ended, time);
        let gone = self.dynamic().filter(|(_, mapping)| {
            let until = mapping.marks.held_until();
            mapping.sessions.is_empty() && until.is_none_or(|until| tick(until) <= time)
        });
        self.remove_all(gone.map(|(key, _)| *key).collect(), time);
    }

    /// 10: raises the events of ended sessions.
    pub(crate) fn raise_ended(&mut self, ended: Vec<SessionId>, time: Timestamp) {
        if self.config.session_events {
            ended.into_iter().for_each(|id| self.raise(time, Change::SessionRemoved(id)));
        }
    }

    /// 9.1: removes mappings with their sessions.
    pub(crate) fn remove_all(&mut self, keys: Vec<Key>, time: Timestamp) {
        let take = |key: Key| Some((key, self.mappings.remove(&key)?));
        let gone: Vec<(Key, Mapping)> = keys.into_iter().filter_map(take).collect();
        if gone.is_empty() {
            return;
        }
        let external = |(key, mapping): (&Key, &Mapping)| (key.protocol, mapping.external);
        let used: BTreeSet<(u8, Endpoint)> = self.mappings.iter().map(external).collect();
        let hosts: BTreeSet<Host> = self.dynamic().map(|(key, _)| key.host()).collect();
        for (key, mut mapping) in gone {
            let id = mapping.id(key);
            let ended = mapping.sessions.iter().map(|(remote, one)| one.id(id, *remote)).collect();
            self.raise_ended(ended, time);
            if mapping.kind == MappingKind::Static {
                continue;
            }
            mapping.marks.forget_sessions();
            let end = (key.protocol, mapping.external);
            let hold_down = self.config.timeouts.hold_down;
            let rests = has_ports(key.protocol) && key.protocol != TCP && !hold_down.is_zero();
            if rests && !used.contains(&end) && self.rests(mapping.external) {
                self.held.insert(end, time.plus(hold_down)); // 5.9
            }
            if self.has_events(key, &mapping) {
                self.raise(time, Change::MappingRemoved(mapping.id(key)));
            }
            if !hosts.contains(&key.host()) {
                self.forget_host(key.host());
            }
        }
    }
}
