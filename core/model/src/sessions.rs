//! Effects of a packet on its session (specification, sections 9.2 and 9.3). `tcp` has the states
//! of TCP, `timers` the end of sessions.

use crate::chapters::SessionMarks;
use crate::points::DecisionPoints as _;
use crate::tcp::{Connection, Segment, Timer};
use crate::{Key, Model, Session};
use natgate_engine::{
    Change, Config, Endpoint, MappingId, MappingKind, SessionId, Side, TimeoutSet, Timeouts,
    Timestamp,
};
use natgate_wire::protocol::{ICMP, UDP};
use std::time::Duration;

impl Model {
    /// Takes a packet from a side into account for the session with a remote endpoint: makes the
    /// session if it is new, restarts its time, and counts the packet. `seen` is the name inside of
    /// a new session's remote endpoint (13).
    pub(crate) fn touch(
        &mut self,
        key: Key,
        (remote, seen): (Endpoint, Endpoint),
        from: Side,
        segment: Option<Segment>,
    ) {
        let is_new = !self.mappings[&key].sessions.contains_key(&remote);
        let latest = is_new.then(|| self.latest_end(key, from)).flatten();
        if is_new {
            self.add_session(key, (remote, seen), from);
        }
        let mapping = self.mappings.get_mut(&key).expect("looked up");
        let timeouts = timeouts_of(&self.config, &mapping.timeouts, key.protocol, remote.port);
        let session = mapping.sessions.get_mut(&remote).expect("there, or just made");
        let before = session.connection.state;
        let may_refresh = is_new || from == Side::Inside || self.config.inbound_refresh;
        let revives = may_refresh && latest.is_none(); // 9.3
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
        match from {
            Side::Inside => session.packets_out += 1,
            Side::Outside => session.packets_in += 1,
        }
        self.note_packet(key, remote, from, before);
    }

    /// 9.3: the latest end of a new session, if a stranger makes it.
    fn latest_end(&self, key: Key, from: Side) -> Option<Timestamp> {
        let mapping = &self.mappings[&key];
        if from == Side::Inside
            || mapping.kind == MappingKind::Static
            || self.config.inbound_refresh
        {
            return None;
        }
        let sessions = mapping.sessions.values().map(|session| session.expires);
        sessions.chain(mapping.marks.held_until()).max()
    }

    fn add_session(&mut self, key: Key, (remote, seen): (Endpoint, Endpoint), from: Side) {
        self.sessions_made += 1;
        let session = Session {
            number: self.sessions_made,
            seen,
            made_from: from,
            expires: Timestamp(0),
            connection: Connection::default(),
            packets_out: 0,
            packets_in: 0,
            marks: SessionMarks::default(),
        };
        let mapping = self.mappings.get_mut(&key).expect("looked up");
        mapping.sessions.insert(remote, session);
        self.note_session(key, remote, from);
        if self.config.session_events {
            let mapping = self.mappings[&key].id(key);
            let id = SessionId { mapping, remote, remote_inside: seen };
            self.raise(self.now, Change::SessionCreated(id)); // 10
        }
    }
}

impl Session {
    /// The session's identity, in a mapping.
    pub(crate) fn id(&self, mapping: MappingId, remote: Endpoint) -> SessionId {
        SessionId { mapping, remote, remote_inside: self.seen }
    }
}

/// 9.11: the timeouts of a session: from the mapping's rule, then the remote port, then the
/// protocol.
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
