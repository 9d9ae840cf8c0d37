//! The model's state in the engine's own words, for comparison and for telling states apart.

use crate::tcp::State;
use crate::timers::tick;
use crate::{Key, Mapping, Model, Session};
use natgate_engine::{
    Counters, Endpoint, MappingInfo, PoolUsage, SessionInfo, Side, TICK, Timestamp,
};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;

impl Model {
    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The latest time seen.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Every mapping; times of expiry are those of ticks.
    pub fn mappings(&self) -> Vec<MappingInfo> {
        let listed = |(key, mapping): (&Key, &Mapping)| {
            let sessions = mapping.sessions.values().map(|session| session.expires);
            let latest = sessions.chain(mapping.held_until()).map(tick).max();
            let of_sessions =
                |count: fn(&Session) -> u64| mapping.sessions.values().map(count).sum();
            Self::is_listed(mapping).then(|| MappingInfo {
                id: mapping.id(*key),
                sessions: mapping.sessions.len() as u32,
                created: mapping.created,
                expires: if mapping.permanent { None } else { latest },
                packets_out: of_sessions(|session| session.packets_out),
                packets_in: of_sessions(|session| session.packets_in),
            })
        };
        self.mappings.iter().filter_map(listed).collect()
    }

    /// Every session; times of expiry are those of ticks.
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

    /// What a pool holds for a protocol.
    pub fn pool_usage(&self, pool: usize, protocol: u8) -> PoolUsage {
        let (first, last) = self.config.pools[pool].ports;
        let of_pool = |end: &Endpoint| {
            self.pool_of(end.address.to_bits()) == Some(pool) && (first..=last).contains(&end.port)
        };
        let used: BTreeSet<Endpoint> = self
            .dynamic()
            .filter(|(key, mapping)| key.protocol == protocol && of_pool(&mapping.external))
            .map(|(_, mapping)| mapping.external)
            .collect();
        let held = self.held.keys().filter(|(of, end)| *of == protocol && of_pool(end));
        let held: BTreeSet<Endpoint> = held.map(|(_, end)| *end).collect();
        let is_static = |address| self.fixed.iter().any(|one| one.external.0 == address);
        // Where nothing else keeps ports, there are too many to look at.
        let may_keep = |address: &Ipv4Addr| {
            is_static(*address)
                || self.given[pool].is_some()
                || !self.config.pools[pool].excluded_ports.is_empty()
                || !self.is_open(*address, pool)
        };
        let reserved = self
            .addresses_of(pool)
            .filter(may_keep)
            .flat_map(|address| (first..=last).map(move |port| Endpoint { address, port }))
            .filter(|end| !used.contains(end) && !held.contains(end))
            .filter(|end| !self.gives_out(pool, protocol, *end));
        let all = self.addresses_of(pool).count() * (usize::from(last - first) + 1);
        let (used, held, reserved) =
            (used.len() as u64, held.len() as u64, reserved.count() as u64);
        PoolUsage { free: all as u64 - used - held - reserved, used, held, reserved }
    }

    /// A number that two states share if nothing that can be done from now on tells them apart
    /// (packet counts and absolute times are left out).
    pub fn digest(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        let ahead = |time: Timestamp| time.0.saturating_sub(self.now.0);
        let since = |time: &Option<Timestamp>| {
            time.map_or(1_000_000_000, |time| (self.now.0 - time.0).min(1_000_000_000))
        };
        (self.now.0 % TICK.as_nanos() as u64).hash(&mut hash);
        for (key, mapping) in &self.mappings {
            (key, mapping.external).hash(&mut hash);
            Vec::from_iter(mapping.timeouts.times()).hash(&mut hash);
            let mut sessions: Vec<_> = mapping.sessions.iter().collect();
            sessions.sort_by_key(|(_, session)| session.number); // who is first next (3.10)
            mapping.first.hash(&mut hash);
            for (remote, hold) in &mapping.holds {
                (remote, ahead(hold.until)).hash(&mut hash);
            }
            for (remote, session) in sessions {
                let Session { connection, expires, made_from, seen, is_unanswered, .. } = session;
                (remote, seen, connection, ahead(*expires), *made_from == Side::Inside)
                    .hash(&mut hash);
                is_unanswered.hash(&mut hash);
            }
        }
        self.unanswered_ahead().hash(&mut hash);
        for (held, until) in &self.held {
            (held, ahead(*until)).hash(&mut hash);
        }
        self.blocks_ahead(ahead).hash(&mut hash);
        for syn in &self.syns {
            let back_to = (syn.back_to.0 == Side::Inside, syn.back_to.1);
            (syn.protocol, syn.external, syn.remote, back_to).hash(&mut hash);
            (ahead(syn.due), &syn.quote).hash(&mut hash);
        }
        for (subscriber, due) in &self.mapping_rate {
            (subscriber, ahead(Timestamp(*due))).hash(&mut hash);
        }
        for (subscriber, time) in &self.quota_reported {
            (subscriber, since(time)).hash(&mut hash);
        }
        for (whose, told) in &self.told_of {
            (whose, told.recent(self.now)).hash(&mut hash);
        }
        for (pool, time) in &self.exhaustion_reported {
            (pool, since(time)).hash(&mut hash);
        }
        self.errors.ahead(self.now).hash(&mut hash);
        hash.finish()
    }
}
