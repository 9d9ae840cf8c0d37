//! Removal of what a filter finds, in steps like a survey.

use super::{Cursor, Filter, Stage};
use crate::Engine;
use crate::engine::SESSIONS_A_STEP;

/// Cost of the removal of a mapping or a session, in slots looked at.
const REMOVAL: usize = 16;

impl Engine {
    /// Removes mappings that subscribers have made. Returns the number removed, and true if all
    /// slots have been looked at. Poll the events before the next call.
    pub fn clear_mappings(
        &mut self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
    ) -> (u64, bool) {
        let (mut budget, mut cleared) = (most, 0);
        let mut next = self.resume(cursor, filter).map(|(slot, _)| slot);
        while self.has_room_for_events() {
            let matching = next.take().or_else(|| self.next_match(cursor, &mut budget, filter));
            let Some(slot) = matching else { break };
            if self.table.mapping(slot).is_static() {
                continue;
            }
            if !self.discard_some(slot) {
                next = Some(slot);
                budget = budget.saturating_sub(SESSIONS_A_STEP as usize);
                if budget == 0 {
                    break;
                }
                continue;
            }
            cleared += 1;
            budget = budget.saturating_sub(REMOVAL);
        }
        cursor.session = next.and_then(|slot| Some((slot, self.table.last_session(slot)?)));
        (cleared, matches!((cursor.stage, cursor.session), (Stage::Done, None)))
    }

    /// [`Engine::clear_mappings`] for sessions. A dynamic mapping without another session is
    /// removed too.
    pub fn clear_sessions(
        &mut self,
        cursor: &mut Cursor,
        most: usize,
        filter: &Filter,
    ) -> (u64, bool) {
        let (mut budget, mut cleared) = (most, 0);
        let Some(sought) = self.sought(filter) else { return (0, true) };
        let mut at = self.resume(cursor, filter).and_then(|(slot, next)| Some((slot, next?)));
        while self.has_room_for_events() && budget > 0 {
            let next = self.next_latest(cursor, at.take(), &mut budget, filter);
            let Some((slot, session)) = next else { break };
            let before = self.table.session_before(slot, session).map(|before| (slot, before));
            budget = budget.saturating_sub(1);
            if !self.is_remote_sought(session, &sought) {
                at = before;
                continue;
            }
            let is_last = self.table.mapping(slot).sessions == 1;
            self.note_lost_session(slot, session);
            self.remove_session(session, self.tick);
            cleared += 1;
            budget = budget.saturating_sub(REMOVAL);
            at = before.filter(|_| !is_last);
        }
        cursor.session = at;
        (cleared, matches!((cursor.stage, at), (Stage::Done, None)))
    }
}
