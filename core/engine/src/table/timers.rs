//! Timers of sessions: the ticks at which sessions are looked at.
//!
//! A session's timer is entered for its deadline, or for the end of the calendar's reach if that is
//! earlier. A refresh of the session moves its deadline only; the timer notices the new deadline
//! when it is due.

use super::{Further, Mapping, SessionRef, Table};
use crate::calendar::{NONE, lane};
use crate::prefetch::prefetch_within;

impl Table {
    /// The tick at which the timer of a deadline is looked at next.
    #[inline(always)]
    pub(super) fn timer_tick(&self, expires: u32, now: u32) -> u32 {
        expires.min(now + self.timers.span()).max(now + 1)
    }

    /// Enters a session's timer for its deadline, and removes its earlier entry.
    pub(crate) fn schedule(&mut self, session: SessionRef, now: u32) {
        let tick = self.timer_tick(self.session(session).expires, now);
        match session {
            SessionRef::First(slot) => {
                self.timers.take(&mut self.mappings, slot);
                self.timers.enter(&mut self.mappings, slot, tick);
            }
            SessionRef::Further(slot) => {
                self.further_timers.take(&mut self.further, slot);
                self.further_timers.enter(&mut self.further, slot, tick);
            }
        }
    }

    /// The first tick after `now` at which a session's timer is due.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        match self.timers.next(now + 1) {
            Some(tick) if tick == now + 1 => Some(tick),
            tick => tick.into_iter().chain(self.further_timers.next(now + 1)).min(),
        }
    }

    /// A session with a timer at this tick, from the first non-empty list from `from` on.
    pub(crate) fn due(&self, tick: u32, from: usize) -> Option<SessionRef> {
        let first = self.timers.head(tick, from);
        let further = self.further_timers.head(tick, from);
        if further != NONE {
            Some(SessionRef::Further(further))
        } else if first != NONE {
            Some(SessionRef::First(first))
        } else {
            None
        }
    }

    /// The session after another in the timer list of one tick.
    #[inline]
    pub(crate) fn due_after(&self, session: SessionRef) -> Option<SessionRef> {
        let some = |next| Some(next).filter(|&next| next != NONE);
        match session {
            SessionRef::First(slot) => some(self.mapping(slot).timer.next()).map(SessionRef::First),
            SessionRef::Further(slot) => {
                some(self.further.slots[slot as usize].timer.next()).map(SessionRef::Further)
            }
        }
    }

    /// The list of a tick that a session is in.
    #[inline]
    pub(crate) fn lane(session: SessionRef) -> usize {
        match session {
            SessionRef::First(slot) | SessionRef::Further(slot) => lane(slot),
        }
    }

    /// Prefetches a session.
    #[inline]
    pub(crate) fn fetch(&self, session: SessionRef) {
        match session {
            SessionRef::First(slot) => prefetch_within(&self.mappings.slots, slot as usize),
            SessionRef::Further(slot) => prefetch_within(&self.further.slots, slot as usize),
        }
    }

    /// Prefetches the index entries of a session and of its mapping. Returns the mapping, whose
    /// line this waits for. `None`: the session has gone, or its end is later than this tick.
    #[inline]
    pub(crate) fn fetch_end(&self, session: SessionRef, tick: u32) -> Option<&Mapping> {
        if self.session(session).expires > tick {
            return None;
        }
        let mapping = self.mappings.slots.get(self.mapping_of(session) as usize)?;
        match session {
            SessionRef::First(_) => self.by_internal.prefetch(self.hash_of(mapping)),
            SessionRef::Further(slot) => {
                let Further { session, mapping, .. } = &self.further.slots[slot as usize];
                let remote = session.remote();
                self.by_remote.prefetch(self.hash_remote(*mapping, remote));
            }
        }
        Some(mapping)
    }
}
