//! Reports about the engine: counters, mappings, sessions and the use of pools.

use super::Engine;
use crate::endpoint::{AddressPort, External};
use crate::packet::direction_from;
use crate::packet::{Counters, Direction, Side};
use crate::table::{Mapping, SessionRef};
use crate::{DropReason, Endpoint, MappingId, MappingInfo, PoolUsage, SessionInfo, Timestamp};

impl Engine {
    /// The counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of packets since the start that did not take the quick way. A packet of an
    /// established session that is among them costs several times what it should.
    pub fn complete_ways(&self) -> u64 {
        self.complete_ways
    }

    /// Counts a frame that came in on `from` and does not carry IPv4. [`Engine::process`] does not
    /// take such frames.
    pub fn count_foreign(&mut self, from: Side, len: usize) {
        self.counters.count_drop(direction_from(from), DropReason::NotIpv4, len);
    }

    /// Counts a frame from inside that belongs to no realm. [`Engine::process`] does not take such
    /// frames.
    pub fn count_unknown_realm(&mut self, len: usize) {
        self.counters.count_drop(Direction::Outbound, DropReason::UnknownRealm, len);
    }

    /// Drops and counts the fragments that wait for the first of their datagram. Call this at the
    /// end of a capture or of a gateway's life.
    pub fn drop_held(&mut self) {
        self.fragments.advance(Timestamp(u64::MAX), &mut self.counters);
    }

    /// Every mapping, in no particular order.
    pub fn mappings(&self) -> impl Iterator<Item = MappingInfo> + '_ {
        self.table.slots().map(|slot| self.describe(slot))
    }

    /// The mapping that packets of a remote endpoint to an external one belong to. If several
    /// mappings share the external endpoint, it is the one with a session with the remote endpoint.
    /// Filters do not matter. `None`: there is no such mapping.
    pub fn mapping_towards(
        &self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<MappingId> {
        let index = self.external.index(external.address.to_bits())?;
        let remote = AddressPort::new(remote.address.to_bits(), remote.port);
        let external = External::new(index, external.port);
        let slot = self.look_up_external(protocol, external, remote)?;
        Some(self.name_of(self.table.mapping(slot)))
    }

    /// Tick at which a mapping was made.
    pub(crate) fn created(&self, mapping: &Mapping) -> u32 {
        mapping.created().unwrap_or_else(|sibling| self.subscribers.unanswered.created(sibling))
    }

    pub(crate) fn describe(&self, slot: u32) -> MappingInfo {
        let mapping = self.table.mapping(slot);
        let mut info = MappingInfo {
            id: self.name_of(mapping),
            sessions: u32::from(mapping.sessions),
            created: match mapping.is_permanent() && mapping.is_static() {
                true => self.started,
                false => Timestamp(self.time_of(self.created(mapping))),
            },
            expires: None,
            packets_out: 0,
            packets_in: 0,
        };
        for session in self.table.sessions(slot) {
            let session = self.table.session(session);
            info.packets_out += u64::from(session.packets_out);
            info.packets_in += u64::from(session.packets_in);
            if !(mapping.is_permanent() && mapping.is_static()) {
                info.expires = info.expires.max(Some(Timestamp(self.time_of(session.expires))));
            }
        }
        if mapping.is_explicit() {
            let held = self.holds.latest(mapping.host(), slot);
            info.expires = info.expires.max(held.map(|tick| Timestamp(self.time_of(tick))));
        }
        info
    }

    /// Every session, in no particular order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        self.table.slots().flat_map(move |slot| {
            let mapping = self.name_of(self.table.mapping(slot));
            self.table
                .sessions(slot)
                .map(move |session| self.describe_session(slot, mapping, session))
        })
    }

    pub(crate) fn describe_session(
        &self,
        slot: u32,
        mapping: MappingId,
        session: SessionRef,
    ) -> SessionInfo {
        let session = self.table.session(session);
        let remote = session.remote();
        let seen = self.seen(slot, remote);
        SessionInfo {
            mapping,
            remote: Endpoint::new(remote.address, remote.port),
            remote_inside: Endpoint::new(seen.address, seen.port),
            state: session.state().name(),
            expires: Timestamp(self.time_of(session.expires)),
            packets_out: u64::from(session.packets_out),
            packets_in: u64::from(session.packets_in),
        }
    }

    /// The use of a pool's ports for a protocol (TCP, UDP, ICMP or DCCP). `pool` is the engine's
    /// number of the pool.
    ///
    /// # Panics
    /// When there is no such pool, or the protocol is another.
    pub fn pool_usage(&self, pool: usize, protocol: u8) -> PoolUsage {
        self.external.usage(pool, protocol, |slot| self.table.mapping(slot).is_static())
    }
}
