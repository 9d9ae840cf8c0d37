//! Restoration of a mapping's sessions, of the names of their remote endpoints inside, and of
//! holds.

use super::RestoreError;
use crate::endpoint::AddressPort;
use crate::engine::Engine;
use crate::explicit::New;
use crate::handover::record::{HoldFields, SessionFields};
use crate::session::{Parts, Session, Way};
use crate::table::SessionRef;
use alloc::vec::Vec;

impl Engine {
    /// Makes the sessions of a mapping equal to a record. Returns `false` if there is no room for
    /// all: those that fit are there.
    pub(super) fn restore_sessions(
        &mut self,
        slot: u32,
        sessions: &[SessionFields],
    ) -> Result<bool, RestoreError> {
        // Sessions that are gone make room first.
        if usize::from(self.table.mapping(slot).sessions) > 0 {
            self.end_other_sessions(slot, sessions);
        }
        let mut fit_all = true;
        for fields in sessions {
            match self.table.find_session(slot, fields.remote) {
                Some(session) => self.renew_session(session, fields)?,
                None if self.add_restored_session(slot, fields)? => {}
                None => {
                    fit_all = false;
                    continue;
                }
            }
            if !self.restore_seen(slot, fields) {
                fit_all = false;
                // Without its name inside, its packets would go to another host.
                if let Some(session) = self.table.find_session(slot, fields.remote) {
                    self.end_session(session, slot, self.tick);
                }
            }
        }
        // Rules may have changed since the copy was made.
        let answers = self.first_answers(slot);
        self.set_answers(slot, answers);
        Ok(fit_all)
    }

    /// Ends the sessions of a mapping that are not in a record.
    fn end_other_sessions(&mut self, slot: u32, sessions: &[SessionFields]) {
        if let ([one], 1) = (sessions, self.table.mapping(slot).sessions)
            && self.table.find_session(slot, one.remote).is_some()
        {
            return;
        }
        let mut stay: Vec<AddressPort> = sessions.iter().map(|fields| fields.remote).collect();
        stay.sort_unstable();
        let remote_of = |session| {
            let session = self.table.session(session);
            session.remote()
        };
        let present = self.table.sessions(slot).map(remote_of);
        let others: Vec<AddressPort> =
            present.filter(|remote| stay.binary_search(remote).is_err()).collect();
        for remote in others {
            if let Some(session) = self.table.find_session(slot, remote) {
                self.end_session(session, slot, self.tick);
            }
        }
    }

    fn renew_session(
        &mut self,
        at: SessionRef,
        fields: &SessionFields,
    ) -> Result<(), RestoreError> {
        let expires = self.restored_tick(fields.expires);
        let session = self.table.session_mut(at);
        let sooner = expires < session.expires;
        fill(session, fields, expires)?;
        if sooner {
            self.table.schedule(at, self.tick);
        }
        Ok(())
    }

    fn add_restored_session(
        &mut self,
        slot: u32,
        fields: &SessionFields,
    ) -> Result<bool, RestoreError> {
        let mut session = Session::new(fields.remote);
        fill(&mut session, fields, self.restored_tick(fields.expires))?;
        let way = if fields.inbound == 0 { Way::Out } else { Way::In };
        let Some(added) = self.table.add_session(slot, session, way) else { return Ok(false) };
        let mapping = self.table.mapping(slot);
        if let SessionRef::Further(_) = added
            && !mapping.is_static()
            && let Some(record) = self.subscribers.find(mapping.host())
        {
            self.subscribers.count_further(record, 1);
        }
        self.table.schedule(added, self.tick);
        Ok(true)
    }

    /// Notes the remote endpoint of a session as seen from inside. Returns `false` if there is no
    /// room.
    fn restore_seen(&mut self, slot: u32, fields: &SessionFields) -> bool {
        let (remote, seen) = (fields.remote, fields.seen);
        if self.seen(slot, remote) == seen {
            return true;
        }
        self.twice.remove(slot, remote);
        if remote == seen {
            return true;
        }
        if self.twice.is_full() {
            return false;
        }
        let mapping = self.table.mapping_mut(slot);
        mapping.set_twice();
        let flow = (mapping.protocol, mapping.internal());
        self.twice.add(slot, flow, remote, seen);
        true
    }

    /// Makes the holds on a mapping equal to a record. Returns `false` if there is no room for all:
    /// those that fit are there.
    pub(super) fn restore_holds(&mut self, slot: u32, holds: &[HoldFields]) -> bool {
        let mapping = self.table.mapping(slot);
        if mapping.is_static() {
            return holds.is_empty();
        }
        let host = mapping.host();
        if mapping.is_explicit() {
            self.holds.remove_all(host, slot);
        }
        self.table.set_permanent(slot, !holds.is_empty());
        for (place, fields) in holds.iter().enumerate() {
            if self.holds.is_full() {
                self.table.set_permanent(slot, place > 0);
                return false;
            }
            let HoldFields { remote, nonce, until, filters } = *fields;
            let until = self.restored_tick(until);
            self.holds.put(New { slot, remote, host, nonce, until, filters }, self.tick);
        }
        true
    }
}

impl SessionFields {
    pub(super) fn parts(&self) -> Parts {
        let Self { expects, window, scales, state, known, .. } = *self;
        Parts { expects, window, scales, state, known }
    }
}

fn fill(session: &mut Session, fields: &SessionFields, expires: u32) -> Result<(), RestoreError> {
    session
        .set_parts(fields.parts())
        .ok_or(RestoreError::Damaged("a session in a state that cannot be"))?;
    // Tick 0 has passed, and a timer that is due is looked at in the next tick.
    session.expires = expires.max(1);
    (session.packets_out, session.packets_in) = (fields.packets_out, fields.packets_in);
    Ok(())
}
