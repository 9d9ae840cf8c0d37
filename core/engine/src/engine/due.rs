//! Timers: does what is due, in order of time, in calls of bounded length.
//!
//! The elements that are due at a tick form linked lists, scattered in memory. The engine looks at
//! a few elements ahead of their turn and prefetches the cache lines that the turn will touch.

use super::Engine;
use crate::calendar::{LANES, NONE, lane};
use crate::event::{Change, Events};
use crate::reconfigure::Checked;
use crate::session::{Idle, State};
use crate::table::{SessionRef, Table};
use crate::time::{TICK, Timestamp, nanos};

/// Most things that one call of [`Engine::advance`] does while the engine keeps pace. A batch then
/// waits well below a tenth of a millisecond, even if nothing is in the caches.
const BUDGET: u32 = 32;

/// Ticks of delay after which the budget doubles. It doubles again for each further `BEHIND` ticks.
const BEHIND: u64 = 2;

/// Largest number of doublings. With one call for each batch, the budget then covers what the
/// largest batch can begin: a new mapping is due twice, when it ends and when its port is free
/// again.
const MOST_DOUBLED: u64 = 4;

const _: () = assert!(BUDGET << MOST_DOUBLED >= 2 * Engine::MAX_BATCH as u32);

/// Ticks (about a year) after which ticks are counted afresh as soon as nothing is under way. A
/// capture may jump by decades. (If something stays under way for 17 years, timers go wrong.)
const FAR: u64 = 1 << 28;

/// Distance, in elements of one list, between an element that is looked at and the element on turn.
/// With [`LANES`] lists this is [`LANES`] times as many turns.
const DISTANCE: u32 = 3;

/// Number of hints that a list keeps: one for each element that has been looked at.
const HINTS: usize = DISTANCE as usize + 1;

const _: () = assert!(HINTS.is_power_of_two());

/// The elements of a list that have been looked at, from the element on turn.
#[derive(Clone, Debug)]
struct Lead<T> {
    /// Number of them.
    len: u32,
    /// Number of all elements of the list that were ever looked at.
    looked: u32,
    /// The next element to look at. Its cache line has been requested.
    next: Option<T>,
    /// A word that the look at an element gave, for its turn; by the element's number.
    hints: [u64; HINTS],
}

impl<T> Default for Lead<T> {
    fn default() -> Self {
        Self { len: 0, looked: 0, next: None, hints: [0; HINTS] }
    }
}

impl<T> Lead<T> {
    /// Starts the turn of `first`. `look` prefetches what the turn of an element will touch, and
    /// returns the next element and a hint. The list may have changed since then: `look` may get an
    /// element of another list or of none, and then prefetches in vain. Returns the hint of the
    /// element after `first`, if that has been looked at, or 0.
    #[inline(always)]
    fn take(&mut self, first: T, look: impl Fn(T) -> (Option<T>, u64)) -> u64 {
        if self.len == 0 {
            self.next = Some(first);
        }
        // Two at a time, because each element waits for the line of the one before it.
        for _ in 0..2 {
            if self.len <= DISTANCE
                && let Some(next) = self.next.take()
            {
                (self.next, self.hints[self.looked as usize % HINTS]) = look(next);
                self.looked = self.looked.wrapping_add(1);
                self.len += 1;
            }
        }
        self.len -= 1;
        match self.len {
            0 => 0,
            len => self.hints[self.looked.wrapping_sub(len) as usize % HINTS],
        }
    }
}

/// State of the look-ahead between two calls.
#[derive(Clone, Debug)]
pub(super) struct Leads {
    /// The tick of the lists.
    tick: u32,
    /// Look-ahead of each list. The hint of a session is the hash of its subscriber, or 0.
    sessions: [Lead<SessionRef>; LANES],
    ports: [Lead<(usize, u32)>; LANES],
    /// The likely records of the subscribers of the sessions on turn, or [`NONE`].
    records: [u32; LANES],
    /// Number of the list on turn.
    turn: usize,
}

impl Leads {
    /// Nothing has been looked at of the lists of a tick.
    fn of(tick: u32) -> Self {
        let (sessions, ports) = Default::default();
        Self { tick, sessions, ports, records: [NONE; LANES], turn: 0 }
    }

    /// The list whose turn is next.
    #[inline(always)]
    fn next_turn(&mut self) -> usize {
        self.turn = (self.turn + 1) % LANES;
        self.turn
    }
}

impl Default for Leads {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Engine {
    /// Lets time pass: does what is due until `now`, in order, each at its own time. The work stops
    /// when the queues of events and packets have no more room. Returns true if there is more to
    /// do: drain the queues and call again. Packets may be processed in between; due work then
    /// happens later than it should, and does not happen for what the packets refresh. A `now`
    /// before the latest time seen counts as the latest.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        let more = self.advance_some(now);
        self.free_realms();
        more
    }

    fn advance_some(&mut self, now: Timestamp) -> bool {
        self.observe(now);
        let target = self.tick_of(self.now);
        self.work_on_pools();
        if target == u64::from(self.tick)
            && self.pending.next_due().is_none_or(|due| due > self.now)
            && self.sweep.is_done()
        {
            return self.external.has_work();
        }
        let swept = self.sweep_some();
        let behind = (target - u64::from(self.tick)) / BEHIND;
        let budget = BUDGET << behind.min(MOST_DOUBLED);
        let mut leads = core::mem::take(&mut self.leads);
        let is_done = self.catch_up(target, budget, &mut leads);
        self.leads = leads;
        if !is_done {
            return true;
        }
        if target > FAR && self.next_tick().is_none() {
            // No timer refers to a tick, so ticks can be counted from here.
            self.base += target * nanos(TICK);
            self.tick = 0;
        } else {
            self.tick = target as u32;
        }
        !swept || self.external.has_work()
    }

    /// Does what is due until tick `target`, at most `budget` things. Returns true if nothing is
    /// left.
    fn catch_up(&mut self, target: u64, mut budget: u32, leads: &mut Leads) -> bool {
        loop {
            let tick = self.next_tick().filter(|&tick| u64::from(tick) <= target);
            let syn = self.pending.next_due().filter(|&due| due <= self.now);
            if tick.is_none() && syn.is_none() {
                return true;
            }
            if self.must_pause(budget) {
                return false;
            }
            match (tick, syn) {
                (Some(tick), syn) if syn.is_none_or(|due| self.time_of(tick) <= due) => {
                    self.tick = tick - 1;
                    if leads.tick != tick {
                        *leads = Leads::of(tick);
                    }
                    while self.work(tick, &mut budget, leads) && !self.must_pause(budget) {}
                }
                _ => {
                    budget -= 1;
                    self.answer_syn();
                }
            }
        }
    }

    /// The first tick at which something is due.
    fn next_tick(&self) -> Option<u32> {
        let sessions = self.table.next_tick(self.tick);
        if sessions == Some(self.tick + 1) {
            // Nothing is due earlier, and the search for later ticks takes time.
            return sessions;
        }
        let ticks = [
            sessions,
            self.external.next_tick(self.tick),
            self.holds.next_tick(self.tick),
            self.fragments_due(),
        ];
        ticks.into_iter().flatten().min()
    }

    /// The time of the next thing that is due, or the present if a reconfiguration is not complete.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let tick = self.next_tick().map(|tick| self.time_of(tick));
        let unsettled = !self.sweep.is_done() || self.external.has_work();
        let change = unsettled.then_some(self.now);
        tick.into_iter().chain(self.pending.next_due()).chain(change).min().map(Timestamp)
    }

    /// True if the rest of the due work waits for the next call.
    #[inline(always)]
    fn must_pause(&self, budget: u32) -> bool {
        budget == 0 || self.responder.is_full() || self.events.len() > Events::ROOM / 2
    }

    /// Does things of one kind that are due at this tick, until none of the kind is left or the
    /// rest must wait. Returns `false` if nothing is due.
    fn work(&mut self, tick: u32, budget: &mut u32, leads: &mut Leads) -> bool {
        if self.work_on_sessions(tick, budget, leads) {
            return true;
        }
        if let Some(hold) = self.holds.due(tick) {
            self.hold_due(hold, tick);
        } else if let Some(protocol) = self.external.due_protocol(tick) {
            self.release_ports(protocol, tick, budget, leads);
            return true;
        } else if let Some(block) = self.external.release_block(tick) {
            self.raise(self.time_of(tick), Change::BlockReleased(block));
        } else if self.fragments_due().is_some_and(|due| due <= tick) {
            self.fragments.forget_oldest(&mut self.counters);
        } else {
            return false;
        }
        *budget -= 1;
        true
    }

    /// The part of [`Engine::work`] for sessions.
    fn work_on_sessions(&mut self, tick: u32, budget: &mut u32, leads: &mut Leads) -> bool {
        let mut is_any = false;
        while !self.must_pause(*budget)
            && let Some(session) = self.table.due(tick, leads.next_turn())
        {
            is_any = true;
            *budget -= 1;
            let lane = Table::lane(session);
            let sender =
                leads.sessions[lane].take(session, |session| self.fetch_session(session, tick));
            // The subscriber of the next session of the list. Its line of the index has come.
            let next = if sender == 0 { NONE } else { self.subscribers.approach(sender) };
            let record = core::mem::replace(&mut leads.records[lane], next);
            self.session_due(session, tick, record);
        }
        is_any
    }

    /// The part of [`Engine::work`] for the held ports of a protocol, given by its place.
    fn release_ports(&mut self, protocol: usize, tick: u32, budget: &mut u32, leads: &mut Leads) {
        while !self.must_pause(*budget)
            && let Some(entry) = self.external.due_of(protocol, tick, leads.next_turn())
        {
            *budget -= 1;
            let port = (protocol, entry);
            leads.ports[lane(entry)].take(port, |port| (self.external.fetch_due(port), 0));
            self.external.release(port, tick, tick);
        }
    }

    /// The tick at which waiting fragments expire.
    fn fragments_due(&self) -> Option<u32> {
        self.fragments.next_deadline().map(|due| self.deadline(due.0, 0))
    }

    /// Prefetches what the end of a session with a due timer will touch. Returns the session that
    /// is due after it, and the hash of its own subscriber if the session ends, or 0.
    #[inline(never)]
    fn fetch_session(&self, session: SessionRef, tick: u32) -> (Option<SessionRef>, u64) {
        let mut sender = 0;
        if let Some(mapping) = self.table.fetch_end(session, tick) {
            sender = self.subscribers.prefetch(mapping.host());
            self.external.fetch_owner(mapping.protocol, mapping.external());
        }
        let next = self.table.due_after(session);
        if let Some(next) = next {
            self.table.fetch(next);
        }
        (next, sender)
    }

    /// Does what is due for a session. `record`: the likely record of the session's subscriber, or
    /// [`NONE`].
    #[inline(always)]
    fn session_due(&mut self, session: SessionRef, tick: u32, record: u32) {
        // Most sessions that are due end, and their mappings with them.
        if let SessionRef::First(slot) = session
            && self.table.ends_alone(slot, tick)
            && !self.config.session_events
        {
            self.keep_session(session, slot, tick);
            if self.table.session(session).expires <= tick {
                self.remove_only(slot, tick, record);
                return;
            }
        }
        self.any_session_due(session, tick);
    }

    /// [`Engine::session_due`] of any session.
    #[inline(never)]
    fn any_session_due(&mut self, session: SessionRef, tick: u32) {
        let slot = self.table.mapping_of(session);
        if !self.table.is_asked(slot) {
            match self.ask_some(slot) {
                Checked::Stays => {}
                Checked::Going if self.table.is_of(session, slot) => {}
                Checked::Gone | Checked::Going => return,
            }
        }
        let mapping = self.table.mapping(slot);
        if mapping.is_explicit()
            && self.table.session(session).expires <= tick
            && let Some(until) = self.held_until(session, slot, tick)
        {
            self.table.session_mut(session).expires = until;
        }
        if self.table.session(session).expires <= tick {
            self.keep_session(session, slot, tick);
        }
        let state = self.table.session(session);
        if state.expires <= tick && state.state() == State::Established {
            let mapping = self.table.mapping(slot);
            let closing = self.timeouts.of(mapping.timeouts(), Idle::Closing, mapping.protocol, 0);
            let expires = self.deadline(self.time_of(tick), closing);
            let state = self.table.session_mut(session);
            state.set_state(State::Transitory);
            state.expires = expires;
            self.note_change(slot);
        }
        if self.table.session(session).expires > tick {
            self.table.schedule(session, tick);
        } else {
            self.remove_session(session, tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressRange, Config, Packet, PoolConfig, Side, Verdict};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::cell::RefCell;
    use core::net::Ipv4Addr;

    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

    #[test]
    fn every_element_is_looked_at_once_and_before_its_turn() {
        let (mut lead, seen) = (Lead::default(), RefCell::new(Vec::new()));
        for turn in 0..20 {
            let hint = lead.take(turn, |element| {
                seen.borrow_mut().push(element);
                (Some(element + 1).filter(|&next| next < 20), u64::from(element) + 100)
            });
            assert!(seen.borrow().contains(&turn));
            assert_eq!(hint, if turn < 19 { u64::from(turn) + 101 } else { 0 });
            assert_eq!(lead.len, (turn + 1).min(DISTANCE).min(19 - turn));
        }
        assert_eq!(seen.into_inner(), (0..20).collect::<Vec<_>>());
        // The next list begins anew.
        lead.take(100, |_| (None, 0));
        assert_eq!(lead.len, 0);
    }

    /// The number of a mapping must not be taken for the number of a port.
    #[test]
    fn a_port_that_is_somebodys_leads_nowhere() {
        let range = AddressRange { first: OUTSIDE, last: OUTSIDE };
        let pool = PoolConfig { addresses: vec![range], ..PoolConfig::default() };
        let config = Config { pools: vec![pool], ..Config::default() };
        let mut engine = Engine::new(&config, [0; 32], Timestamp(0)).unwrap();
        let mut udp = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 5, 198, 51, 100, 7];
        udp.extend([0x10, 0, 0, 53, 0, 8, 0, 0]);
        let sum = natgate_wire::Ipv4::new_checked(&mut udp[..]).map(|mut ip| ip.fill_checksum());
        assert!(sum.is_ok());
        let mut verdicts = [Verdict::Held];
        engine.process(Timestamp(1), Side::Inside, &mut [Packet::new(&mut udp, 0)], &mut verdicts);
        let made = engine.mappings().next().map(|mapping| mapping.id.external);
        let made = made.expect("the packet begins a mapping");
        let index = engine.external.index(made.address.to_bits()).expect("it is external");
        let entry = crate::external::ExternalPorts::entry(index, made.port) as u32;
        for port in [entry, entry ^ 1] {
            assert_eq!(engine.external.fetch_due((1, port)), None);
        }
    }
}
