//! Admission under pressure (section 18 of the specification): when records, mappings, ports or
//! blocks are scarce, unanswered subscribers give way, the oldest first, because their addresses
//! may be forged. Answered subscribers keep everything.
//!
//! Unanswered subscribers give way before a batch and before a request, never in the middle of a
//! batch: the stages of a batch look ahead at records, mappings and ports, and these must not
//! change under the stages. The queues are in `subscriber/unanswered.rs`.

use crate::endpoint::External;
use crate::engine::Engine;
use crate::external::Rest;
use crate::limits::Filled;
use crate::protocols::{has_ports, place_of};
use crate::session::{State, Way};
use crate::subscriber::{BLOCKS, Queue, Thing};
use crate::table::SessionRef;
use crate::{Change, Timestamp};

/// Least age of an unanswered subscriber's record when it gives way, nanoseconds: the time of a
/// long round trip.
const GRACE: u64 = 250_000_000;
/// Most sessions, and mappings without sessions, that are removed before one batch: the number that
/// the largest batch can begin.
const MOST_WORK: u32 = Engine::MAX_BATCH as u32;
/// A thing is scarce if unanswered subscribers have more than this many times what is free.
const SCARCE: u64 = 15;

/// A resource that may be scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    /// Records of subscribers.
    Records,
    Mappings,
    /// Holds of requested mappings, and the share of subscribers that request them.
    Holds,
    /// A thing of a pool: the ports of a protocol, or blocks.
    Of(usize, Thing),
}

impl Resource {
    /// The queue of the entries that give way for it.
    fn queue(self) -> Queue {
        match self {
            Self::Records | Self::Mappings => Queue::All,
            Self::Holds => Queue::Asking,
            Self::Of(pool, thing) => Queue::Of(pool, thing),
        }
    }
}

impl Engine {
    /// Makes unanswered subscribers give way if something is scarce, as long as the events fit
    /// their queue. Returns true if more must give way: drain the queue and call again.
    /// [`Engine::process`], [`Engine::map`] and [`Engine::peer`] start with one such call.
    pub fn reclaim(&mut self, now: Timestamp) -> bool {
        self.observe(now);
        self.make_room()
    }

    /// [`Engine::reclaim`] at the present time. It returns at once if nothing was taken since it
    /// last found nothing scarce.
    #[inline(always)]
    pub(crate) fn make_room(&mut self) -> bool {
        self.may_be_short && self.reclaim_some()
    }

    #[cold]
    fn reclaim_some(&mut self) -> bool {
        self.may_be_short = false;
        // Every other count is at most the number of their mappings. So the usual case looks at one
        // number.
        let limits = &self.config.limits;
        if !limits.unanswered_give_way
            || self.subscribers.unanswered.mappings() <= limits.unanswered_kept
        {
            return false;
        }
        let mut work = 0;
        let mut more = false;
        for resource in self.resources() {
            more |= self.relieve(resource, &mut work);
        }
        more
    }

    /// All resources, in the order in which they are checked.
    fn resources(&self) -> impl Iterator<Item = Resource> + use<> {
        let of_all = [Resource::Records, Resource::Mappings, Resource::Holds];
        let of_pool = |pool| (0..=BLOCKS).map(move |thing| Resource::Of(pool, thing));
        of_all.into_iter().chain((0..self.config.pools.len()).flat_map(of_pool))
    }

    /// Takes the latest mapping of the oldest subscriber of a queue, one after another, until a
    /// resource is not scarce. For a thing of a pool it takes only mappings that have one. For
    /// records it takes all mappings of a subscriber, because only the last one frees the record.
    /// Returns true if more mappings must go at this time.
    fn relieve(&mut self, resource: Resource, work: &mut u32) -> bool {
        while self.is_short_of(resource) {
            // If the oldest is too young, or the work is enough for now, the next batch continues.
            self.may_be_short = true;
            let queue = resource.queue();
            let Some(entry) = self.oldest_that_gives_way(queue, self.now) else { return false };
            if *work >= MOST_WORK || !self.has_room_for_events() {
                return true;
            }
            let unanswered = &self.subscribers.unanswered;
            // The oldest entry is the last of its subscriber, so that it is still the oldest when
            // the next batch continues.
            let further = || unanswered.last_further(entry);
            let further = if resource == Resource::Records { further() } else { None };
            let slot = unanswered.latest_mapping(further.unwrap_or(entry), queue);
            let slot = slot.expect("an unanswered subscriber has a mapping");
            *work += self.reclaim_sessions(slot, MOST_WORK - *work).max(1);
            if self.table.mapping(slot).sessions > 0 {
                return true;
            }
            let before = self.subscribers.filled().used;
            self.reclaim_mapping(slot);
            let gone = before - self.subscribers.filled().used;
            self.counters.subscribers_reclaimed += gone as u64;
        }
        false
    }

    /// True if a batch at time `now` would make a subscriber give way.
    pub(crate) fn would_reclaim(&self, now: u64) -> bool {
        let gives_way = |one: Resource| {
            self.oldest_that_gives_way(one.queue(), now).is_some() && self.is_short_of(one)
        };
        self.may_be_short
            && self.config.limits.unanswered_give_way
            && self.resources().any(gives_way)
    }

    /// The oldest entry of a queue, if its mappings have been without an answer for long enough.
    fn oldest_that_gives_way(&self, queue: Queue, now: u64) -> Option<u32> {
        let unanswered = &self.subscribers.unanswered;
        let is_old = |entry: &u32| now.saturating_sub(unanswered.made(*entry, queue)) >= GRACE;
        unanswered.oldest(queue).filter(is_old)
    }

    /// True if little is free in comparison with the use by unanswered subscribers.
    fn is_scarce(&self, free: usize, unanswered: u32) -> bool {
        unanswered > self.config.limits.unanswered_kept
            && free as u64 * SCARCE < u64::from(unanswered)
    }

    /// True if a resource is scarce.
    fn is_short_of(&self, resource: Resource) -> bool {
        let unanswered = &self.subscribers.unanswered;
        let free = |filled: Filled<usize>| filled.most.saturating_sub(filled.used);
        match resource {
            // A further pool takes a further record.
            Resource::Records => {
                let entries = unanswered.count(Queue::All);
                self.is_scarce(free(self.subscribers.filled()), unanswered.subscribers())
                    || self.is_scarce(free(self.subscribers.records_filled()), entries)
            }
            Resource::Mappings => self.is_scarce(free(self.table.filled()), unanswered.mappings()),
            Resource::Holds => self.askers_are_too_many(),
            Resource::Of(pool, thing) => self.is_short_in(pool, thing),
        }
    }

    /// True if unanswered subscribers with requests exceed their share, or holds are scarce.
    fn askers_are_too_many(&self) -> bool {
        let asking = self.subscribers.unanswered.count(Queue::Asking);
        let most = self.subscribers.filled().most;
        let percent = u64::from(self.config.limits.asking_share);
        let kept = u64::from(self.config.limits.unanswered_kept).max(1);
        let share = (most as u64 * percent / 100).max(kept);
        u64::from(asking) > share || self.is_scarce(self.holds.count_free(), asking)
    }

    /// True if a thing of a pool is scarce. A deterministic pool is never short here, because a
    /// port of one subscriber is of no use to another. A pool that overloads ports is never short,
    /// because it shares its ports instead. In a pool whose addresses all give out nothing more, no
    /// mapping's end is of use.
    fn is_short_in(&self, pool: usize, thing: Thing) -> bool {
        let external = &self.external;
        if external.has_blocks(pool) != (thing == BLOCKS)
            || self.config.pools[pool].overloading
            || external.is_deterministic(pool)
            || !external.has_open(pool)
        {
            return false;
        }
        let taken = match thing {
            BLOCKS => external.unanswered_blocks(pool),
            place => self.subscribers.unanswered.mappings_of(pool)[place],
        };
        let free = external.free_of(pool, thing) + external.returning(pool, thing);
        self.is_scarce(free as usize, taken)
    }

    /// Removes at most `most` sessions of a mapping, the latest first. Returns their number.
    pub(crate) fn reclaim_sessions(&mut self, slot: u32, most: u32) -> u32 {
        for removed in 0..most {
            let Some(session) = self.table.last_session(slot) else { return removed };
            self.tell_ended(session, slot, self.now);
            self.drop_session(session, slot, self.tick);
        }
        most
    }

    /// Removes a mapping of an unanswered subscriber that has no session left. Its port is free at
    /// once, so that forged packets cannot put all ports of the pool in hold-down. Its block is
    /// free too if the block is empty.
    fn reclaim_mapping(&mut self, slot: u32) {
        self.end_session_holds(slot);
        let mapping = *self.table.mapping(slot);
        self.remove_mapping_to(slot, self.now, Rest::Free);
        self.counters.mappings_reclaimed += 1;
        let External { index, port } = mapping.external();
        let is_whole = self.external.is_whole(self.external.pool_of(index));
        if (has_ports(mapping.protocol) || is_whole)
            && let Some(block) = self.external.release_empty(index, port)
        {
            self.raise(self.now, Change::BlockReleased(block));
        }
    }

    // ---- answers ----

    /// Notes a new mapping of a pool, and its first session, of an unanswered subscriber with this
    /// record.
    #[cold]
    pub(crate) fn note_unanswered(&mut self, record: u32, slot: u32, pool: usize) {
        let entry = self.subscribers.enter_pool(record, pool);
        let mapping = self.table.mapping(slot);
        let (created, of) = (self.created(mapping), (slot, place_of(mapping.protocol)));
        let unanswered = &mut self.subscribers.unanswered;
        let sibling = unanswered.add_mapping(entry, of, created, self.now);
        let external = mapping.external();
        self.table.set_listed(slot, sibling);
        self.table.mapping_mut(slot).first.mark_unanswered();
        if self.external.has_shares() {
            self.external.count_unanswered(external, true);
        }
    }

    /// Notes a granted request for a mapping, if its host is unanswered.
    pub(crate) fn note_asking(&mut self, slot: u32) {
        self.may_be_short = true;
        let mapping = self.table.mapping(slot);
        let (host, pool) = (mapping.host(), self.external.pool_of(mapping.external().index));
        let record = self.subscribers.find(host);
        let entry = record.and_then(|at| self.subscribers.unanswered_entry(at, pool));
        if let Some(entry) = entry
            && self.subscribers.unanswered.has_mappings(entry)
        {
            self.subscribers.unanswered.ask(entry);
        }
    }

    /// Looks at a session that a packet from outside began, after a packet from inside. If the host
    /// has opened the connection and is still unanswered, the next packet from outside is the
    /// answer.
    #[cold]
    pub(crate) fn note_service(&mut self, at: SessionRef) {
        if self.table.session(at).state() != State::Established {
            return;
        }
        let mapping = self.table.mapping(self.table.mapping_of(at));
        if mapping.is_static() {
            return;
        }
        let record = self.subscribers.find(mapping.host());
        if record.is_some_and(|record| self.subscribers.is_unanswered(record)) {
            self.table.session_mut(at).mark_unanswered();
        }
    }

    /// Looks at an unanswered session after a packet. A packet from outside answers the session,
    /// unless the packet did not open the connection.
    #[cold]
    pub(crate) fn note_answer(&mut self, at: SessionRef, way: Way) {
        let session = self.table.session_mut(at);
        if way == Way::Out || session.state() == State::OpeningOut {
            session.mark_unanswered();
            return;
        }
        session.set_state(session.state());
        let host = self.table.mapping(self.table.mapping_of(at)).host();
        if let Some(record) = self.subscribers.find(host) {
            self.answer_subscriber(record);
        }
    }

    /// A remote endpoint has answered the subscriber of a record.
    pub(crate) fn answer_subscriber(&mut self, record: u32) {
        if self.external.has_shares() {
            let host = self.subscribers.get(record).host;
            for pool in self.subscribers.unanswered_pools(record) {
                self.external.answer_blocks(pool, host);
            }
        }
        self.subscribers.answer(record);
    }
}
