//! The sessions of a mapping: how many there may be, which is the first of them, and what a packet
//! does to its own (specification, sections 3.10, 4.6, 9.2 and 9.3). What TCP makes of it is in
//! `tcp`; how sessions end, in `timers`.
//!
//! A session that is not its mapping's first is a further one; further ones are limited in all, by
//! subscriber, and by who made them.

use crate::allocation::MOST_OF_WHOLE;
use crate::bytes::Segment;
use crate::tcp::{Connection, Timer};
use crate::{Key, Mapping, Model, Session};
use natgate_engine::{
    Behavior, Change, Config, DropReason, Endpoint, MappingId, MappingKind, Resource, SessionId,
    Side, TimeoutSet, Timeouts, Timestamp,
};
use natgate_wire::protocol::{ICMP, UDP};
use std::time::Duration;

/// Most sessions of a static mapping (3.10).
const MOST_OF_STATIC: usize = 65_535;

impl Model {
    /// 3.10 and 4.6: whether a mapping may have one session more, which a packet from a side makes.
    pub(crate) fn room_for_session(
        &self,
        key: Key,
        remote: Endpoint,
        from: Side,
    ) -> Result<(), DropReason> {
        if self.is_ambiguous(key, remote) {
            return Err(DropReason::Ambiguous); // 3.10a
        }
        let mapping = &self.mappings[&key];
        if !Self::is_listed(mapping) {
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
        let most = self.further_room;
        if all >= most || from == Side::Outside && inbound.count() >= most.div_ceil(2) {
            return Err(DropReason::SessionTableFull);
        }
        Ok(())
    }

    /// 3.10: whether a new session of a mapping is its first one.
    pub(crate) fn takes_first(&self, key: Key, remote: Endpoint) -> bool {
        let is_apart = self.files_apart()
            && key.remote.is_none()
            && self.mappings[&key].kind != MappingKind::Static; // 16.7
        !is_apart
            && self.mappings[&key].first.is_none()
            && key.remote.is_none_or(|of| match self.config.mapping {
                Behavior::AddressDependent => of.address == remote.address,
                _ => of == remote,
            })
    }

    /// How many further sessions there is room for: unless it is said, as many as mappings.
    pub(crate) fn room_for_further(&self) -> usize {
        let permanent = self.mappings.values().filter(|mapping| mapping.permanent).count();
        let whole = self.config.statics.iter().filter(|fixed| fixed.external.1.is_none()).count();
        let all = self.room + permanent + MOST_OF_WHOLE * whole;
        self.config.limits.extra_sessions.map_or(all, |most| most as usize)
    }

    /// How many of them a subscriber may have: unless it is said, a sixteenth, at least 64.
    fn further_each(&self) -> usize {
        let each = self.config.limits.extra_sessions_per_subscriber;
        each.map_or((self.further_room / 16).max(64), |each| each as usize)
    }

    /// A packet from a side belongs to the session with a remote endpoint, which is seen as it is
    /// or as another if it is new (13): it is made if there is none yet, its time starts afresh,
    /// and the packet is counted.
    pub(crate) fn touch(
        &mut self,
        key: Key,
        (remote, seen): (Endpoint, Endpoint),
        from: Side,
        segment: Option<Segment>,
    ) {
        let latest = match self.mappings[&key].sessions.contains_key(&remote) {
            true => None,
            false => self.add_session(key, (remote, seen), from),
        };
        let mapping = self.mappings.get_mut(&key).expect("looked up");
        let own = mapping.timeouts.clone();
        let session = mapping.sessions.get_mut(&remote).expect("there, or just made");
        let is_new = session.packets_out + session.packets_in == 0;
        let may_refresh = is_new || from == Side::Inside || self.config.inbound_refresh;
        let revives = may_refresh && latest.is_none(); // 9.3
        let timeouts = timeouts_of(&self.config, &own, key.protocol, remote.port);
        let time: Option<Duration> = match (key.protocol, segment) {
            (_, Some(segment)) => match session.connection.step(from, segment, revives) {
                Timer::Opening if may_refresh => Some(timeouts.tcp_opening), // 9.3
                Timer::Established if may_refresh => Some(timeouts.tcp_established),
                Timer::Closing => Some(timeouts.tcp_closing),
                _ => None,
            },
            (UDP, _) if may_refresh => Some(timeouts.udp), // 9.2
            (ICMP, _) if may_refresh => Some(timeouts.icmp),
            (_, _) if may_refresh => Some(timeouts.other),
            _ => None,
        };
        if let Some(time) = time {
            session.expires = self.now.plus(time);
        }
        session.expires = latest.map_or(session.expires, |latest| session.expires.min(latest));
        let (out, into) = if from == Side::Inside { (1, 0) } else { (0, 1) };
        session.packets_out += out;
        session.packets_in += into;
        self.note_answer(key, remote, from);
    }

    /// Makes a session; returns when its time ends at the latest, if that is not its own affair
    /// (9.3).
    fn add_session(
        &mut self,
        key: Key,
        (remote, seen): (Endpoint, Endpoint),
        from: Side,
    ) -> Option<Timestamp> {
        let is_first = self.takes_first(key, remote);
        self.sessions_made += 1;
        self.has_twice |= seen != remote;
        let session = Session {
            number: self.sessions_made,
            seen,
            made_from: from,
            expires: Timestamp(0),
            connection: Connection::default(),
            is_unanswered: self.begins_unanswered(key, from),
            packets_out: 0,
            packets_in: 0,
        };
        let mapping = self.mappings.get_mut(&key).expect("looked up");
        let by_stranger = from == Side::Outside && mapping.kind != MappingKind::Static;
        let latest = match by_stranger && !self.config.inbound_refresh {
            true => {
                let sessions = mapping.sessions.values().map(|session| session.expires);
                sessions.chain(mapping.held_until()).max()
            }
            false => None,
        };
        mapping.sessions.insert(remote, session);
        if is_first {
            mapping.first = Some(remote);
        } else if mapping.kind != MappingKind::Static {
            self.tell_subscriber(key.host(), Resource::Sessions);
        }
        if self.config.session_events {
            let mapping = self.mappings[&key].id(key);
            let id = SessionId { mapping, remote, remote_inside: seen };
            self.raise(self.now, Change::SessionCreated(id)); // 10
        }
        latest
    }
}

impl Session {
    /// Its name, as one of a mapping.
    pub(crate) fn id(&self, mapping: MappingId, remote: Endpoint) -> SessionId {
        SessionId { mapping, remote, remote_inside: self.seen }
    }
}

/// 9.6: what holds for a session: the mapping's rule says, then the remote port, then the protocol.
pub(crate) fn timeouts_of(
    config: &Config,
    own: &TimeoutSet,
    protocol: u8,
    remote_port: u16,
) -> Timeouts {
    let common = &config.timeouts;
    let of_port = config.port_timeouts.iter().find(|timeout| {
        let (first, last) = timeout.ports;
        timeout.protocol == protocol && (first..=last).contains(&remote_port)
    });
    let of_port = of_port.map(|timeout| timeout.idle);
    Timeouts {
        udp: own.udp.or(of_port).unwrap_or(common.udp),
        tcp_established: own.tcp_established.or(of_port).unwrap_or(common.tcp_established),
        tcp_opening: own.tcp_opening.unwrap_or(common.tcp_opening),
        tcp_closing: own.tcp_closing.unwrap_or(common.tcp_closing),
        icmp: own.icmp.unwrap_or(common.icmp),
        other: own.other.unwrap_or(common.other),
        ..common.clone()
    }
}

impl Mapping {
    /// How many further sessions it has.
    pub(crate) fn further(&self) -> usize {
        self.sessions.len() - usize::from(self.first.is_some())
    }

    /// Its further sessions.
    fn further_sessions(&self) -> impl Iterator<Item = &Session> {
        let all = self.sessions.iter().filter(|(remote, _)| self.first != Some(**remote));
        all.map(|(_, session)| session)
    }
}
