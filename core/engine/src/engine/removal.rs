//! The end of sessions and mappings: updates tables, counts and ports, and raises events.

use super::Engine;
use crate::calendar::NONE;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::{OwnershipSource, Rest};
use crate::protocols::{has_ports, place_of, quota_class, quota_of};
use crate::table::{Mapping, SessionRef};
use crate::{Change, Endpoint, MappingId, MappingKind, SessionId};

/// Most sessions that one step removes of a mapping that may not stay. Their events fit into the
/// half of the queue that [`Engine::has_room_for_events`] finds free.
pub(crate) const SESSIONS_A_STEP: u32 = 256;

impl Engine {
    /// Removes a session whose timer is due at a tick, and its mapping with the last session.
    pub(crate) fn remove_session(&mut self, session: SessionRef, tick: u32) {
        self.remove_session_at(session, tick, self.time_of(tick));
    }

    /// Removes a session, and its mapping with the last session. `time` is that of the events, in
    /// nanoseconds.
    pub(crate) fn remove_session_at(&mut self, session: SessionRef, tick: u32, time: u64) {
        let slot = self.table.mapping_of(session);
        self.tell_ended(session, slot, time);
        self.end_session(session, slot, tick);
        let mapping = self.table.mapping(slot);
        if mapping.sessions == 0 && !mapping.is_permanent() {
            self.remove_mapping(slot, time);
        } else {
            if session == SessionRef::First(slot) {
                let answers = self.first_answers(slot);
                self.set_answers(slot, answers);
            }
            self.note_change(slot);
        }
    }

    /// Removes a mapping with its sessions, however many. No event of it is lost.
    pub(crate) fn discard(&mut self, slot: u32) {
        self.keep_all_events(true);
        while !self.discard_some(slot) {}
        self.keep_all_events(false);
    }

    /// Removes some sessions of a mapping, the latest first, and the mapping if none is left.
    /// Returns true if the mapping has gone.
    pub(crate) fn discard_some(&mut self, slot: u32) -> bool {
        // Events of its sessions name the mapping as it was.
        self.reclaim_sessions(slot, SESSIONS_A_STEP);
        if self.table.mapping(slot).sessions > 0 {
            return false;
        }
        self.holds.lost += u64::from(self.table.mapping(slot).is_explicit());
        self.end_session_holds(slot);
        self.remove_mapping(slot, self.now);
        true
    }

    /// Raises the event of a session's end, if session events are configured.
    pub(crate) fn tell_ended(&mut self, session: SessionRef, slot: u32, time: u64) {
        if !self.config.session_events {
            return;
        }
        let session = self.table.session(session);
        let remote = session.remote();
        let id = self.name_of_session(slot, remote, self.seen(slot, remote));
        self.raise(time, Change::SessionRemoved(id));
    }

    /// The identity of a session in events.
    pub(crate) fn name_of_session(
        &self,
        slot: u32,
        remote: AddressPort,
        seen: AddressPort,
    ) -> SessionId {
        SessionId {
            mapping: self.name_of(self.table.mapping(slot)),
            remote: Endpoint::new(remote.address, remote.port),
            remote_inside: Endpoint::new(seen.address, seen.port),
        }
    }

    /// Removes a session from its mapping, and the PCP hold on the session.
    pub(crate) fn end_session(&mut self, session: SessionRef, slot: u32, tick: u32) {
        if self.table.mapping(slot).is_explicit() {
            let session = self.table.session(session);
            self.end_session_hold(slot, session.remote());
        }
        self.drop_session(session, slot, tick);
    }

    /// Removes a session from its mapping. A PCP hold on the session stays.
    pub(crate) fn drop_session(&mut self, session: SessionRef, slot: u32, tick: u32) {
        if self.table.mapping(slot).is_twice() {
            let session = self.table.session(session);
            self.twice.remove(slot, session.remote());
        }
        let one_further_less = self.table.remove_session(session, tick);
        let mapping = self.table.mapping(slot);
        if one_further_less && !mapping.is_static() {
            let record = self.subscribers.find(mapping.host());
            let record = record.expect("a mapping's subscriber has a record");
            self.subscribers.count_further(record, -1);
        }
    }

    /// Counts a new dynamic mapping of a protocol with an address of a pool.
    #[inline(always)]
    pub(crate) fn note_made(&mut self, protocol: u8, pool: usize) {
        self.made[quota_class(protocol)] += 1;
        self.may_be_short = true;
        if let Some(used) = self.used.get_mut(pool) {
            used[place_of(protocol)] += 1;
        }
    }

    /// Removes a mapping without sessions, and puts its port in hold-down.
    pub(crate) fn remove_mapping(&mut self, slot: u32, time: u64) {
        self.remove_mapping_to(slot, time, Rest::HoldDown);
    }

    //= rfc7857#section-11
    /// Removes a mapping without sessions. `rest` decides about its port.
    pub(crate) fn remove_mapping_to(&mut self, slot: u32, time: u64, rest: Rest) {
        let mapping = self.table.remove(slot);
        self.note_removed(slot, &mapping, time, rest);
    }

    /// Removes a mapping together with its first session, of which `Table::ends_alone` holds and
    /// whose turn it is, and puts its port in hold-down. The session's end is not told. Comes to
    /// what [`Engine::remove_session`] does, with fewer steps. `record` is the likely record of the
    /// subscriber, or none.
    pub(crate) fn remove_only(&mut self, slot: u32, tick: u32, record: u32) {
        let mapping = self.table.remove_only(slot, tick);
        // No division is needed: the session ends when the tick does.
        let (time, release) = (self.time_of(tick), tick + self.timeouts.hold_ticks);
        let end = End { time, tick, release };
        debug_assert_eq!(end, self.end_at(time));
        self.note_dynamic_removed((slot, record), &mapping, end, Rest::HoldDown);
    }

    /// The end of a mapping at a time.
    fn end_at(&self, time: u64) -> End {
        // A packet may remove a mapping before the ticks of the past have been completed.
        let tick = self.deadline(time, 0).max(self.tick + 1);
        End { time, tick, release: self.deadline(time, self.timeouts.hold_down) }
    }

    /// Does what follows the removal of a mapping from the table.
    fn note_removed(&mut self, slot: u32, mapping: &Mapping, time: u64, rest: Rest) {
        if mapping.is_explicit() {
            self.holds.remove_all(mapping.host(), slot);
        }
        let (protocol, External { index, port }) = (mapping.protocol, mapping.external());
        if mapping.is_static() {
            if has_ports(protocol) {
                self.external.disown(protocol, index, port);
                self.external.unreserve(protocol, index, port, self.tick);
            }
            if !mapping.is_permanent() {
                self.statics.release(index, protocol);
            }
            self.note_static_end(slot, protocol, mapping.external());
            return;
        }
        self.note_dynamic_removed((slot, NONE), mapping, self.end_at(time), rest);
    }

    /// The part of [`Engine::note_removed`] for a dynamic mapping.
    #[inline]
    fn note_dynamic_removed(
        &mut self,
        (slot, record): (u32, u32),
        mapping: &Mapping,
        end: End,
        rest: Rest,
    ) {
        let (protocol, external) = (mapping.protocol, mapping.external());
        let External { index, port } = external;
        if let Some(heir) = self.rings.leave(slot) {
            // The port becomes free when the last mapping that shares it goes.
            if self.external.owner(protocol, index, port) == Some(slot) {
                self.external.hand_over(protocol, index, port, heir);
            }
        } else if has_ports(protocol) {
            match rest {
                _ if self.rests(slot, protocol, external, rest) => {}
                Rest::HoldDown => {
                    self.external.give(protocol, external, [end.tick, end.release], self.tick);
                }
                Rest::Free => self.external.give_at_once(protocol, external, end.tick),
            }
        } else {
            self.end_portless(slot, mapping, rest, end.tick);
        }
        let place = place_of(protocol);
        let pool = self.external.uncount(index, place);
        if self.pair.is_some() {
            self.leave_whole(index);
        }
        self.gone[quota_of(place)] += 1;
        if let Some(used) = self.used.get_mut(pool) {
            used[place] -= 1;
        }
        let sibling = mapping.created().err();
        if sibling.is_some() && self.external.has_shares() {
            self.external.count_unanswered(external, false);
        }
        self.subscribers.release((record, mapping.host()), sibling, pool, place);
        if self.external.told(protocol, index, port) == OwnershipSource::Mapping {
            let is_explicit = mapping.is_explicit();
            let kind = if is_explicit { MappingKind::Pcp } else { MappingKind::Dynamic };
            let id = self.id_of(protocol, mapping.internal(), External::new(index, port), kind);
            self.raise(end.time, Change::MappingRemoved(id));
        }
    }

    /// The identity of a mapping in events.
    pub(crate) fn name_of(&self, mapping: &Mapping) -> MappingId {
        let External { index, port } = mapping.external();
        let told = || self.external.told(mapping.protocol, index, port);
        let kind = match mapping.is_static() {
            true => MappingKind::Static,
            false if mapping.is_explicit() => MappingKind::Pcp,
            false if told() == OwnershipSource::Plan => MappingKind::Deterministic,
            false => MappingKind::Dynamic,
        };
        self.id_of(mapping.protocol, mapping.internal(), External::new(index, port), kind)
    }

    /// The identity of a mapping between these endpoints. The external endpoint is given by the
    /// index of its address.
    #[inline(always)]
    pub(crate) fn id_of(
        &self,
        protocol: u8,
        internal: Internal,
        External { index, port }: External,
        kind: MappingKind,
    ) -> MappingId {
        let external = Endpoint::new(self.external.address(index), port);
        MappingId::new(protocol, internal, external, kind)
    }
}

impl MappingId {
    /// The identity of a mapping between these endpoints.
    #[inline(always)]
    pub(crate) fn new(
        protocol: u8,
        Internal { host, port }: Internal,
        external: Endpoint,
        kind: MappingKind,
    ) -> Self {
        let internal = Endpoint::new(host.address(), port);
        Self { protocol, realm: host.realm(), internal, external, kind }
    }
}

/// When a mapping ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// The time, nanoseconds.
    time: u64,
    /// The first tick that is not before it and is not completed.
    tick: u32,
    /// The tick at which the mapping's port is free again after its hold-down.
    release: u32,
}
