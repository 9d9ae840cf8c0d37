//! The external endpoints that the engine chose for the mappings of a batch's packets. They are
//! found by sessions that the engine has and the model does not have yet.
//!
//! The engine's sessions are visited once for all packets, and only possible sessions of the
//! packets are kept.

use natgate_engine::{Endpoint, Engine, MappingId, SessionInfo, Side};
use natgate_model::{Model, ends_from_inside};
use std::collections::HashMap;

/// Protocol, realm, internal endpoint, and remote endpoint as seen from inside.
type Ends = (u8, u16, Endpoint, Endpoint);

/// The engine's sessions between the endpoints of some packets from inside, by these endpoints.
pub(crate) struct Choices(HashMap<Ends, Vec<SessionInfo>>);

impl Choices {
    /// Collects the sessions of packets, with their realms, that the engine has just processed.
    pub(crate) fn of(engine: &Engine, from: Side, packets: &[(u16, Vec<u8>)]) -> Self {
        let inside = packets.iter().filter(|_| from == Side::Inside);
        let mut by_ends: HashMap<Ends, Vec<SessionInfo>> =
            inside.filter_map(ends_of).map(|ends| (ends, Vec::new())).collect();
        if by_ends.is_empty() {
            return Self(by_ends);
        }
        for session in engine.sessions() {
            let MappingId { protocol, realm, internal, .. } = session.mapping;
            let ends = (protocol, realm, internal, session.remote_inside);
            if let Some(between) = by_ends.get_mut(&ends) {
                between.push(session);
            }
        }
        Self(by_ends)
    }

    /// The external endpoint of a packet's mapping, if the engine made one that the model does not
    /// have: the endpoint of the session that only the engine has.
    pub(crate) fn choice(&self, model: &Model, packet: &(u16, Vec<u8>)) -> Option<Endpoint> {
        let between = self.0.get(&ends_of(packet)?)?;
        let mut made = between.iter().filter(|one| !model.has_session(one));
        let is_new = |one: &&SessionInfo| !model.has_mapping(one);
        let first = made.clone().next()?;
        Some(made.find(is_new).unwrap_or(first).mapping.external)
    }
}

/// The endpoints of a packet from inside, if it has any.
fn ends_of((realm, bytes): &(u16, Vec<u8>)) -> Option<Ends> {
    let (protocol, internal, remote) = ends_from_inside(bytes)?;
    Some((protocol, *realm, internal, remote))
}
