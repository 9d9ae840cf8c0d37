//! Sessions of a mapping: addition, search, removal, iteration.
//!
//! The first session lives in the mapping's own line. Further sessions have lines of their own and
//! are linked to the mapping.

use super::{EPOCH, Further, Mapping, PERMANENT, SHARED_EXTERNAL, SHARED_INTERNAL, STATIC};
use super::{SessionRef, TWICE, Table};
use crate::calendar::NONE;
use crate::endpoint::AddressPort;
use crate::session::{Session, State, Way};

impl Table {
    /// True if there is room for a session of a mapping with a remote endpoint.
    pub(crate) fn has_room_for_session(&self, slot: u32, remote: AddressPort, way: Way) -> bool {
        let mapping = *self.mapping(slot);
        let kept = Mapping { first: Session::new(remote), ..mapping };
        let fits =
            !self.is_keyed_by_remote(&mapping) || self.key_of(&kept) == self.key_of(&mapping);
        if mapping.first.state() == State::None && fits {
            return true;
        }
        (way == Way::Out || self.inbound < self.room_for_further(way)) && self.further.has_room()
    }

    pub(super) fn hash_remote(&self, mapping: u32, remote: AddressPort) -> u64 {
        self.key.hash(
            u64::from(mapping) | 1 << 63,
            u64::from(remote.address) << 16 | u64::from(remote.port),
        )
    }

    pub(super) fn hash_address(&self, mapping: u32, remote: u32) -> u64 {
        self.key.hash(u64::from(mapping) | 1 << 60, u64::from(remote))
    }

    /// Finds a mapping's session with this remote endpoint.
    #[inline]
    pub(crate) fn find_session(&self, slot: u32, remote: AddressPort) -> Option<SessionRef> {
        let mapping = self.mapping(slot);
        let first = &mapping.first;
        if first.state() != State::None && first.remote() == remote {
            return Some(SessionRef::First(slot));
        }
        if mapping.more == NONE {
            return None;
        }
        self.by_remote
            .find(self.hash_remote(slot, remote), |further| {
                let further = &self.further.slots[further as usize];
                let session = &further.session;
                further.mapping == slot && session.remote() == remote
            })
            .map(SessionRef::Further)
    }

    /// True if a mapping has a session with this remote address. Only for the address-dependent
    /// filter.
    pub(crate) fn knows_address(&self, slot: u32, remote: u32) -> bool {
        let first = &self.mapping(slot).first;
        first.state() != State::None && first.remote().address == remote
            || self.first_alike(slot, remote).is_some()
    }

    /// The first further session of a mapping with this remote address.
    pub(super) fn first_alike(&self, slot: u32, remote: u32) -> Option<u32> {
        self.by_address.as_ref()?.find(self.hash_address(slot, remote), |further| {
            let further = &self.further.slots[further as usize];
            further.mapping == slot && further.session.remote().address == remote
        })
    }

    /// Puts a further session at the head of the list of sessions with its remote address.
    pub(super) fn link_alike(&mut self, further: u32) {
        let Further { session, mapping, .. } = self.further.slots[further as usize];
        let head = self.first_alike(mapping, session.remote().address);
        let hash = self.hash_address(mapping, session.remote().address);
        let Some(by_address) = &mut self.by_address else { return };
        if let Some(head) = head {
            by_address.remove(hash, head);
            self.further.slots[head as usize].prev_alike = further;
            self.further.slots[further as usize].next_alike = head;
        }
        by_address.insert(hash, further);
    }

    /// Takes a further session out of the list of sessions with its remote address.
    pub(super) fn unlink_alike(&mut self, further: u32) {
        let Further { session, mapping, next_alike, prev_alike, .. } =
            self.further.slots[further as usize];
        let hash = self.hash_address(mapping, session.remote().address);
        let Some(by_address) = &mut self.by_address else { return };
        if next_alike != NONE {
            self.further.slots[next_alike as usize].prev_alike = prev_alike;
        }
        if prev_alike != NONE {
            self.further.slots[prev_alike as usize].next_alike = next_alike;
            return;
        }
        by_address.remove(hash, further);
        if next_alike != NONE {
            by_address.insert(hash, next_alike);
        }
    }

    /// Adds a session to a mapping. `None`: there is no room for further sessions. Sessions that
    /// packets from outside make get half of the room, so that strangers leave subscribers the
    /// rest.
    pub(crate) fn add_session(
        &mut self,
        slot: u32,
        session: Session,
        way: Way,
    ) -> Option<SessionRef> {
        let added = self.place_session(slot, session, way)?;
        if self.mapping(slot).flags & (SHARED_EXTERNAL | SHARED_INTERNAL) != 0 {
            self.share(slot, session.remote());
        }
        Some(added)
    }

    pub(super) fn place_session(
        &mut self,
        slot: u32,
        session: Session,
        way: Way,
    ) -> Option<SessionRef> {
        let mapping = *self.mapping(slot);
        let kept = Mapping { first: session, ..mapping };
        let fits =
            !self.is_keyed_by_remote(&mapping) || self.key_of(&kept) == self.key_of(&mapping);
        let mapping = &mut self.mappings.slots[slot as usize];
        if mapping.first.state() == State::None && fits {
            mapping.first = session;
            mapping.sessions += 1;
            return Some(SessionRef::First(slot));
        }
        let inbound = way == Way::In;
        if inbound && self.inbound >= self.room_for_further(way) {
            return None;
        }
        let further = self.further.take()?;
        self.inbound += usize::from(inbound);
        self.further_used += 1;
        let mapping = &mut self.mappings.slots[slot as usize];
        let next = core::mem::replace(&mut mapping.more, further);
        mapping.sessions += 1;
        self.further.slots[further as usize] =
            Further { session, mapping: slot, inbound, next, ..Further::UNLINKED };
        if next != NONE {
            self.further.slots[next as usize].prev = further;
        }
        let hash = self.hash_remote(slot, session.remote());
        self.by_remote.insert(hash, further);
        self.link_alike(further);
        Some(SessionRef::Further(further))
    }

    /// The mapping that a session belongs to.
    pub(crate) fn mapping_of(&self, session: SessionRef) -> u32 {
        match session {
            SessionRef::First(slot) => slot,
            SessionRef::Further(slot) => self.further.slots[slot as usize].mapping,
        }
    }

    /// Removes a session of a mapping. Returns true if this frees a further session's slot.
    pub(crate) fn remove_session(&mut self, session: SessionRef, now: u32) -> bool {
        let slot = self.mapping_of(session);
        if self.mapping(slot).flags & (SHARED_EXTERNAL | SHARED_INTERNAL) != 0 {
            self.unshare(slot, self.session(session).remote());
        }
        match session {
            SessionRef::First(slot) => self.remove_first(slot, now),
            SessionRef::Further(further) => {
                self.unlink(further);
                true
            }
        }
    }

    /// True if a mapping ends at a tick with its first and only session, whose timer is due. The
    /// mapping is dynamic and not explicit, shares no endpoint, has been checked in this epoch, and
    /// its remote endpoint has no other name inside. The session's time has passed, and it does not
    /// wait once more, as an established connection does.
    #[inline(always)]
    pub(crate) fn ends_alone(&self, slot: u32, tick: u32) -> bool {
        const OTHERS: u8 = PERMANENT | STATIC | SHARED_EXTERNAL | SHARED_INTERNAL | TWICE;
        let mapping = self.mapping(slot);
        mapping.flags & (OTHERS | EPOCH) == self.epoch.0
            && mapping.sessions == 1
            && mapping.first.expires <= tick
            && mapping.first.state() != State::Established
    }

    /// Removes a mapping together with its first session, of which [`Table::ends_alone`] holds. The
    /// session is the first of a list of sessions that are due at the tick.
    #[inline(always)]
    pub(crate) fn remove_only(&mut self, slot: u32, tick: u32) -> Mapping {
        self.timers.take_first(&mut self.mappings, slot, tick);
        let mapping = *self.mapping(slot);
        debug_assert!(mapping.first.state() != State::None && mapping.more == NONE);
        self.by_internal.remove(self.hash_of(&mapping), slot);
        self.dynamic -= 1;
        self.mappings.give(slot, Mapping::default());
        mapping
    }

    pub(super) fn remove_first(&mut self, slot: u32, now: u32) -> bool {
        self.timers.take(&mut self.mappings, slot);
        let keyed = self.is_keyed_by_remote(self.mapping(slot));
        let mapping = &mut self.mappings.slots[slot as usize];
        mapping.first.set_state(State::None);
        if mapping.more == NONE || keyed {
            mapping.sessions -= 1;
            return false;
        }
        let heir = mapping.more;
        mapping.first = self.further.slots[heir as usize].session;
        self.unlink(heir);
        self.schedule(SessionRef::First(slot), now);
        true
    }

    /// Takes a further session out of its mapping and frees its slot.
    pub(super) fn unlink(&mut self, further: u32) {
        let Further { session, mapping: slot, inbound, next, prev, .. } =
            self.further.slots[further as usize];
        self.inbound -= usize::from(inbound);
        self.further_used -= 1;
        let hash = self.hash_remote(slot, session.remote());
        self.by_remote.remove(hash, further);
        self.unlink_alike(further);
        self.further_timers.take(&mut self.further, further);
        if next != NONE {
            self.further.slots[next as usize].prev = prev;
        }
        if prev != NONE {
            self.further.slots[prev as usize].next = next;
        } else {
            self.mappings.slots[slot as usize].more = next;
        }
        self.mappings.slots[slot as usize].sessions -= 1;
        self.further.give(further, Further::UNLINKED);
    }

    /// True for a further session that a packet from outside made.
    pub(crate) fn is_inbound(&self, session: SessionRef) -> bool {
        match session {
            SessionRef::First(_) => false,
            SessionRef::Further(slot) => self.further.slots[slot as usize].inbound,
        }
    }

    /// A session of a mapping. The session in the mapping's own line comes last.
    pub(crate) fn last_session(&self, slot: u32) -> Option<SessionRef> {
        let mapping = self.mapping(slot);
        match mapping.more {
            NONE => (mapping.first.state() != State::None).then_some(SessionRef::First(slot)),
            further => Some(SessionRef::Further(further)),
        }
    }

    /// The next session of a mapping in an order that starts with [`Table::last_session`]: further
    /// sessions in their order, then the session in the mapping's own line.
    pub(crate) fn session_before(&self, slot: u32, session: SessionRef) -> Option<SessionRef> {
        let SessionRef::Further(further) = session else { return None };
        match self.further.slots[further as usize].next {
            NONE => {
                let first = &self.mapping(slot).first;
                (first.state() != State::None).then_some(SessionRef::First(slot))
            }
            next => Some(SessionRef::Further(next)),
        }
    }

    /// Every session of a mapping.
    pub(crate) fn sessions(&self, slot: u32) -> impl Iterator<Item = SessionRef> + '_ {
        let mapping = self.mapping(slot);
        let first = (mapping.first.state() != State::None).then_some(SessionRef::First(slot));
        let start = Some(mapping.more).filter(|&more| more != NONE);
        let further = core::iter::successors(start, |&at| {
            Some(self.further.slots[at as usize].next).filter(|&next| next != NONE)
        });
        first.into_iter().chain(further.map(SessionRef::Further))
    }

    /// True if a session exists and belongs to this mapping.
    pub(crate) fn is_of(&self, session: SessionRef, slot: u32) -> bool {
        match session {
            SessionRef::First(first) => {
                first == slot && self.mapping(slot).first.state() != State::None
            }
            SessionRef::Further(further) => self.further.slots[further as usize].mapping == slot,
        }
    }

    /// The session of a mapping that follows another in the order of [`Table::sessions`].
    pub(crate) fn session_after(&self, slot: u32, session: SessionRef) -> Option<SessionRef> {
        let next = match session {
            SessionRef::First(_) => self.mapping(slot).more,
            SessionRef::Further(further) => self.further.slots[further as usize].next,
        };
        (next != NONE).then_some(SessionRef::Further(next))
    }
}
