//! Access for the comparison with the engine: choices of the engine that the specification leaves
//! open, the takeover of a large table, and queries for single sessions.

use crate::bytes::{check, ends, ip};
use crate::chapters::{MappingMarks, SessionMarks};
use crate::tcp::Connection;
use crate::{Effects, Key, Mapping, Model, Session};
use natgate_engine::{
    Config, Direction, Endpoint, MappingKind, Outcome, SessionInfo, Side, TimeoutSet, Timestamp,
};
use natgate_wire::protocol::UDP;
use std::collections::BTreeMap;

/// Protocol, internal and remote endpoint of a packet from inside, if it passes the first checks.
pub fn ends_from_inside(bytes: &[u8]) -> Option<(u8, Endpoint, Endpoint)> {
    check(&mut bytes.to_vec(), false).ok()?;
    let (internal, remote) = ends(bytes, Side::Inside);
    Some((ip(bytes).protocol(), internal, remote))
}

impl Model {
    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The effects that the next call returns.
    pub fn effects(&self) -> &Effects {
        &self.made
    }

    /// The effects of calls that do not return them.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.made)
    }

    /// True if there is a session between the same endpoints, of a mapping with the same external
    /// endpoint.
    pub fn has_session(&self, session: &SessionInfo) -> bool {
        self.alike(session).any(|mapping| mapping.sessions.contains_key(&session.remote))
    }

    /// True if there is a mapping with the endpoints of a session's mapping.
    pub fn has_mapping(&self, session: &SessionInfo) -> bool {
        self.alike(session).next().is_some()
    }

    fn alike(&self, session: &SessionInfo) -> impl Iterator<Item = &Mapping> {
        let id = session.mapping;
        let internal = (id.protocol, id.realm, id.internal);
        let keys = self.mappings.iter().filter(move |(key, mapping)| {
            (key.protocol, key.realm, key.internal) == internal && mapping.external == id.external
        });
        keys.map(|(_, mapping)| mapping)
    }

    /// Takes over a mapping that the engine has made for a UDP datagram from an internal to a
    /// remote endpoint. The datagram's length is in bytes.
    pub fn adopt(
        &mut self,
        now: Timestamp,
        (internal, remote): (Endpoint, Endpoint),
        external: Endpoint,
        len: usize,
    ) {
        self.now = now;
        self.sessions_made += 1;
        let session = Session {
            seen: remote,
            number: self.sessions_made,
            made_from: Side::Inside,
            expires: now.plus(self.config.timeouts.udp),
            connection: Connection::default(),
            packets_out: 1,
            packets_in: 0,
            marks: SessionMarks { is_unanswered: true },
        };
        let key =
            Key { protocol: UDP, realm: 0, internal, remote: None, beside: None, host_bits: 0 };
        self.note_newcomer(key, self.config.default_pool);
        let mapping = Mapping {
            external,
            kind: MappingKind::Dynamic,
            created: now,
            timeouts: TimeoutSet::default(),
            sessions: BTreeMap::from([(remote, session)]),
            marks: MappingMarks {
                number: self.next_number(),
                first: Some(remote),
                ..MappingMarks::default()
            },
        };
        let host = (0, internal.address);
        self.paired.entry((host, self.config.default_pool)).or_insert(external.address);
        self.mappings.insert(key, mapping);
        self.counters.count(Direction::Outbound, Outcome::Forwarded, len);
    }
}
