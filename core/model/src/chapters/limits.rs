//! Limits of mappings and sessions (specification, sections 3.27, 3.33 and 4.20): of the tables, of
//! a mapping, of a subscriber. Limits of a class are in `classes`.
//!
//! A session other than its mapping's first is a further session. Further sessions are limited in
//! all, by subscriber, and by the side that made them.

use crate::chapters::classes::LimitOwner;
use crate::chapters::shares;
use crate::{Host, Key, Mapping, Model, Session};
use natgate_engine::{
    Behavior, Change, Config, DropReason, Endpoint, MappingKind, PoolConfig, Resource, Side,
};
use natgate_wire::protocol::DCCP;
use std::collections::BTreeSet;
use std::time::Duration;

/// Most mappings at a time of one whole mapped address (3.25).
const MOST_OF_WHOLE: usize = 4096;
/// Most sessions of a static mapping (3.33).
const MOST_OF_STATIC: usize = 65_535;

/// Most dynamic mappings: the configured number, or the number of ports.
pub(crate) fn most_mappings(config: &Config) -> usize {
    let ports = |pool: &PoolConfig| {
        // Room for all ports of TCP, UDP and ICMP. DCCP shares it.
        3 * shares::usable_ports(config, pool) * pool.mappings_per_port()
    };
    let all = config.pools.iter().map(ports).sum::<usize>().min(1 << 20);
    config.limits.mappings.map_or(all, |most| most as usize)
}

impl Model {
    /// 3.27: checks that limits permit a mapping.
    pub(crate) fn limits_permit(&self, key: Key, pool: usize) -> Result<(), DropReason> {
        self.permits_mapping(key).map_err(|(_, reason)| reason)?;
        self.room_for_mapping(key, pool)
    }

    /// 3.27: checks that the tables have room for a mapping of a pool.
    pub(crate) fn room_for_mapping(&self, key: Key, pool: usize) -> Result<(), DropReason> {
        let limits = &self.config.limits;
        let own = key.host();
        let others: BTreeSet<Host> =
            self.dynamic().map(|(other, _)| other.host()).filter(|of| *of != own).collect();
        let most = self.chapters.room;
        let subscribers = limits.subscribers.map_or((most / 16).max(1 << 16), |most| most as usize);
        let has_record = || self.has_any_of(own, pool) || self.records() < self.room_for_records();
        if self.dynamic().count() >= most || others.len() >= subscribers || !has_record() {
            return Err(DropReason::MappingTableFull);
        }
        Ok(())
    }

    /// 3.25: checks that one more port of a whole mapped address may have a mapping.
    pub(crate) fn room_for_whole(&self, key: Key) -> Result<(), DropReason> {
        let external = self.mappings[&key].external.address;
        let alike = |(other, mapping): &(&Key, &Mapping)| {
            mapping.kind == MappingKind::Static
                && !mapping.marks.permanent
                && other.host() == key.host()
                && mapping.external.address == external
        };
        let there_are = self.mappings.iter().filter(alike).filter(|(_, one)| one.is_listed());
        if there_are.count() < MOST_OF_WHOLE { Ok(()) } else { Err(DropReason::MappingTableFull) }
    }

    /// Raises the event of 3.29 about a refused mapping, at most once a second.
    pub(crate) fn report(&mut self, key: Key, pool: usize, reason: DropReason) {
        let permitted = self.permits_mapping(key);
        let owner = permitted.err().map_or(LimitOwner::Subscriber(key.host()), |(of, _)| of);
        let ((realm, subscriber), protocol) = (key.host(), key.protocol);
        let (last, change) = match reason {
            DropReason::MappingRate | DropReason::PortQuota | DropReason::SessionLimit => {
                let change = match owner {
                    LimitOwner::Class(class) => Change::ClassQuotaReached { class, protocol },
                    _ => Change::QuotaReached { realm, subscriber, protocol },
                };
                let is_subscriber = matches!(owner, LimitOwner::Subscriber(_));
                if is_subscriber && self.sessions_of(owner) == 0 {
                    return; // Reports about a subscriber go with its last mapping.
                }
                (self.chapters.quota_reported.entry(owner).or_default(), change)
            }
            DropReason::PoolExhausted => {
                let last = self.chapters.exhaustion_reported.entry(pool).or_default();
                (last, Change::PoolExhausted { pool, protocol })
            }
            _ => return,
        };
        if last.is_none_or(|last| self.now.since(last) >= Duration::from_secs(1)) {
            *last = Some(self.now);
            self.raise(self.now, change);
        }
    }

    /// 3.33 and 4.20: checks that a mapping may have one more session, made by a packet from a
    /// side.
    pub(crate) fn limits_permit_session(
        &self,
        key: Key,
        remote: Endpoint,
        from: Side,
    ) -> Result<(), DropReason> {
        let mapping = &self.mappings[&key];
        if !mapping.is_listed() && (key.protocol, mapping.external.port) == (DCCP, 0) {
            return Err(DropReason::NoMapping); // 3.25
        }
        if self.is_ambiguous(key, remote) {
            return Err(DropReason::Ambiguous); // 3.36
        }
        if !mapping.is_listed() {
            return self.room_for_whole(key);
        }
        let is_full = match mapping.kind {
            MappingKind::Static => mapping.sessions.len() >= MOST_OF_STATIC,
            MappingKind::Dynamic | MappingKind::Deterministic | MappingKind::Pcp => {
                let own = |other: &Key| other.host() == key.host();
                let own = self.dynamic().filter(|(other, _)| own(other));
                let further: usize = own.map(|(_, one)| one.further()).sum();
                let subscriber = key.host();
                mapping.sessions.len() >= self.sessions_per_mapping(subscriber)
                    || further >= self.further_each()
                    || !self.permits_session(subscriber)
            }
        };
        if is_full {
            return Err(DropReason::SessionLimit);
        }
        if self.takes_first(key, remote) {
            return Ok(());
        }
        let all: usize = self.mappings.values().map(Mapping::further).sum();
        let inbound = self.mappings.values().flat_map(Mapping::further_sessions);
        let inbound = inbound.filter(|session| session.made_from == Side::Outside);
        let most = self.chapters.further_room;
        if all >= most || from == Side::Outside && inbound.count() >= most.div_ceil(2) {
            return Err(DropReason::SessionTableFull);
        }
        Ok(())
    }

    /// 3.35: true if a new session of a mapping becomes its first one.
    pub(crate) fn takes_first(&self, key: Key, remote: Endpoint) -> bool {
        let is_apart = self.files_apart()
            && key.remote.is_none()
            && self.mappings[&key].kind != MappingKind::Static; // 16.27
        !is_apart
            && self.mappings[&key].marks.first.is_none()
            && key.remote.is_none_or(|of| match self.config.mapping {
                Behavior::AddressDependent => of.address == remote.address,
                _ => of == remote,
            })
    }

    /// Largest number of further sessions: the configured number, or the number of mappings.
    pub(crate) fn room_for_further(&self) -> usize {
        let permanent = self.mappings.values().filter(|mapping| mapping.marks.permanent).count();
        let whole = self.config.statics.iter().filter(|fixed| fixed.external.1.is_none()).count();
        let all = self.chapters.room + permanent + MOST_OF_WHOLE * whole;
        self.config.limits.extra_sessions.map_or(all, |most| most as usize)
    }

    /// Largest number of further sessions of a subscriber: the configured number, or a sixteenth of
    /// all, at least 64.
    fn further_each(&self) -> usize {
        let each = self.config.limits.extra_sessions_per_subscriber;
        each.map_or((self.chapters.further_room / 16).max(64), |each| each as usize)
    }

    /// 3.35: counts a new session as its mapping's first, or as a further one.
    pub(crate) fn count_session(&mut self, key: Key, remote: Endpoint) {
        if self.takes_first(key, remote) {
            self.mappings.get_mut(&key).expect("it is there").marks.first = Some(remote);
        } else if self.mappings[&key].kind != MappingKind::Static {
            self.report_subscriber_use(key.host(), Resource::Sessions);
        }
    }

    /// 3.35: replaces first sessions that are gone by the session made last.
    pub(crate) fn replace_firsts(&mut self) {
        for (key, mapping) in &mut self.mappings {
            if mapping.marks.first.is_some_and(|first| !mapping.sessions.contains_key(&first)) {
                let heirs = mapping.sessions.iter().filter(|_| key.remote.is_none());
                let heir = heirs.max_by_key(|(_, session)| session.number);
                mapping.marks.first = heir.map(|(remote, _)| *remote);
            }
        }
    }
}

impl Mapping {
    /// Number of the mapping's further sessions.
    pub(crate) fn further(&self) -> usize {
        self.sessions.len() - usize::from(self.marks.first.is_some())
    }

    /// The mapping's further sessions.
    fn further_sessions(&self) -> impl Iterator<Item = &Session> {
        let all = self.sessions.iter().filter(|(remote, _)| self.marks.first != Some(**remote));
        all.map(|(_, session)| session)
    }
}
