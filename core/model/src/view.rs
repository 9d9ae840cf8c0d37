//! The model's state in the engine's types, for comparison.

use crate::tcp::State;
use crate::timers::tick;
use crate::{Key, Mapping, Model, Session};
use natgate_engine::{Counters, MappingInfo, SessionInfo, Timestamp};

impl Model {
    /// The counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The latest time seen.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Every mapping. Times of expiry are at ticks.
    pub fn mappings(&self) -> Vec<MappingInfo> {
        let listed = |(key, mapping): (&Key, &Mapping)| {
            let sessions = mapping.sessions.values().map(|session| session.expires);
            let latest = sessions.chain(mapping.marks.held_until()).map(tick).max();
            let of_sessions =
                |count: fn(&Session) -> u64| mapping.sessions.values().map(count).sum();
            mapping.is_listed().then(|| MappingInfo {
                id: mapping.id(*key),
                sessions: mapping.sessions.len() as u32,
                created: mapping.created,
                expires: latest.filter(|_| !mapping.marks.is_permanent()),
                packets_out: of_sessions(|session| session.packets_out),
                packets_in: of_sessions(|session| session.packets_in),
            })
        };
        self.mappings.iter().filter_map(listed).collect()
    }

    /// Every session. Times of expiry are at ticks.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let of = |(key, mapping): (&Key, &Mapping)| -> Vec<SessionInfo> {
            let id = mapping.id(*key);
            let sessions = mapping.sessions.iter();
            sessions
                .map(|(remote, session)| SessionInfo {
                    mapping: id,
                    remote: *remote,
                    remote_inside: session.seen,
                    state: session.connection.state.map_or("open", State::name),
                    expires: tick(session.expires),
                    packets_out: session.packets_out,
                    packets_in: session.packets_in,
                })
                .collect()
        };
        self.mappings.iter().flat_map(of).collect()
    }
}

impl Mapping {
    /// True if the mapping exists for a listing. A mapping of a whole address does so only with
    /// sessions or holds.
    pub(crate) fn is_listed(&self) -> bool {
        self.marks.is_permanent() || !self.sessions.is_empty() || self.marks.held_until().is_some()
    }
}
