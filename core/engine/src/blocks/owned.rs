//! Blocks of subscribers: assignment, search by subscriber, pinning, restoration and release.

use super::{Blocks, Entry, NOBODY, Owned, OwnedBlock, PINNED, Tenure, Timers, Times};
use crate::calendar::NONE;
use crate::host::Host;
use crate::prefetch::prefetch;

impl Blocks {
    pub(super) fn hash(&self, subscriber: Host, pool: usize) -> u64 {
        let subscriber = self.grouping.subscriber(subscriber);
        self.key.hash(subscriber.bits(), 1 << 62 | pool as u64)
    }

    pub(super) fn head(&self, subscriber: Host, pool: usize) -> Option<u32> {
        let subscriber = self.grouping.subscriber(subscriber);
        self.index.find(self.hash(subscriber, pool), |at| {
            let entry = &self.entries[at as usize];
            (entry.owner, entry.pool as usize) == (subscriber, pool)
        })
    }

    /// Prefetches the line that a search for a subscriber's blocks of a pool reads.
    pub(crate) fn prefetch(&self, subscriber: Host, pool: usize) {
        self.index.prefetch(self.hash(subscriber, pool));
    }

    /// Prefetches the block of a pool that a subscriber most likely has. Returns the index of its
    /// address, and its ports.
    pub(crate) fn approach(&self, subscriber: Host, pool: usize) -> Option<(u32, (u16, u16))> {
        let block = self.index.candidate(self.hash(subscriber, pool))?;
        prefetch(&self.entries, block as usize);
        Some(self.place_of(block))
    }

    /// Iterates over a subscriber's blocks of a pool.
    pub(crate) fn of(&self, subscriber: Host, pool: usize) -> impl Iterator<Item = u32> + Clone {
        core::iter::successors(self.head(subscriber, pool), |&block| self.next_of(block))
    }

    /// The next block of the same subscriber and pool.
    pub(crate) fn next_of(&self, block: u32) -> Option<u32> {
        Some(self.entries[block as usize].next).filter(|&next| next != NONE)
    }

    /// Number of a subscriber's blocks of a pool that still give out ports, if there are any.
    pub(crate) fn owned(&self, subscriber: Host, pool: usize) -> Option<Owned> {
        let is_open = |block: &u32| self.rows[(block / self.stride) as usize].is_open;
        let mut blocks = self.of(subscriber, pool).filter(is_open);
        let first = blocks.next()?;
        Some(Owned { blocks: 1 + blocks.count() as u16, address: self.place_of(first).0 })
    }

    /// Number of a block's free ports for a protocol.
    pub(crate) fn free(&self, block: u32, protocol: usize) -> u32 {
        u32::from(self.entries[block as usize].free[protocol])
    }

    /// Largest number of blocks of a pool that one subscriber may have.
    pub(crate) fn max(&self, pool: usize) -> u16 {
        self.pool(pool).max
    }

    /// True if addresses of a pool have blocks on a side.
    pub(crate) fn has_side(&self, pool: usize, side: usize) -> bool {
        self.pool(pool).blocking.sides[side].1 > 0
    }

    /// Gives a block without an owner to a subscriber.
    pub(crate) fn assign(&mut self, block: u32, subscriber: Host) {
        debug_assert_eq!(self.entries[block as usize].owner, NOBODY);
        self.own(block, subscriber);
    }

    /// Notes the tick of a block's assignment.
    pub(crate) fn note_since(&mut self, block: u32, tick: u32) {
        self.times[block as usize].since = tick;
    }

    /// True if none of a block's ports is used or held, and the block is not pinned.
    pub(crate) fn is_empty(&self, block: u32) -> bool {
        self.entries[block as usize].busy == 0
    }

    /// The tenure of a block's owner.
    pub(crate) fn tenure(&self, block: u32) -> Tenure {
        let Times { since, due } = self.times[block as usize];
        let is_empty = self.entries[block as usize].busy == 0;
        Tenure {
            since: Some(since).filter(|&since| since != NONE && since != PINNED),
            due: Some(due).filter(|_| is_empty),
            is_pinned: since == PINNED,
        }
    }

    /// The owner, the index of the address, and the ports of the block at a place. Inner `None`:
    /// the block has no owner. Outer `None`: there is no such block.
    pub(crate) fn owned_at(&self, block: u32) -> Option<Option<OwnedBlock>> {
        let owner = self.entries.get(block as usize)?.owner;
        let place = || self.place_of(block);
        Some((owner != NOBODY).then(|| (owner, place().0, place().1)))
    }

    /// Gives a block to the subscriber that has it in another engine. Returns the block; `None`:
    /// there is no such block, or it has another owner. An empty block stays with the subscriber
    /// for the configured time from `tick` on.
    pub(crate) fn restore(
        &mut self,
        (pool, index): (usize, u32),
        ports: (u16, u16),
        subscriber: Host,
        tick: u32,
    ) -> Option<u32> {
        let subscriber = self.grouping.subscriber(subscriber);
        let block = self.find(pool, index, ports.0)?;
        let owner = self.entries[block as usize].owner;
        if self.place_of(block).1 != ports || owner != NOBODY && owner != subscriber {
            return None;
        }
        if owner == NOBODY {
            self.own(block, subscriber);
            if self.entries[block as usize].busy == 0 {
                self.release_later(block, pool, tick);
            }
        }
        Some(block)
    }

    /// Gives a block permanently to a subscriber. No other subscriber may have the block. Returns
    /// the block if it had no owner.
    pub(crate) fn pin(&mut self, block: u32, subscriber: Host) -> Option<u32> {
        let owner = self.owner_of(block);
        debug_assert!(owner.is_none_or(|owner| owner == self.subscriber(subscriber)));
        if self.times[block as usize].since == PINNED && owner.is_some() {
            return None;
        }
        self.calendar.take(&mut Timers(&mut self.entries), block);
        // A pinned block counts as if one of its ports were always in use.
        self.entries[block as usize].busy += 1;
        if owner.is_none() {
            self.own(block, subscriber);
        }
        self.note_since(block, PINNED);
        owner.is_none().then_some(block)
    }

    /// Ends the pin of a block, if it is pinned. Returns true if the block is empty then: take it
    /// back.
    pub(crate) fn unpin(&mut self, block: u32) -> bool {
        if !self.is_pinned(block) {
            return false;
        }
        self.times[block as usize] = Times::UNKNOWN;
        let entry = &mut self.entries[block as usize];
        entry.busy -= 1;
        entry.busy == 0
    }

    fn is_pinned(&self, block: u32) -> bool {
        self.owner_of(block).is_some() && self.times[block as usize].since == PINNED
    }

    /// True if a block is pinned, and none of its ports is used or held.
    pub(crate) fn is_only_pinned(&self, block: u32) -> bool {
        self.is_pinned(block) && self.entries[block as usize].busy == 1
    }

    /// The subscriber that has a block.
    pub(crate) fn owner_of(&self, block: u32) -> Option<Host> {
        Some(self.owner(block)).filter(|&owner| owner != NOBODY)
    }

    /// The subscriber that a host belongs to.
    pub(crate) fn subscriber(&self, host: Host) -> Host {
        self.grouping.subscriber(host)
    }

    pub(super) fn own(&mut self, block: u32, subscriber: Host) {
        let subscriber = self.grouping.subscriber(subscriber);
        self.rows[(block / self.stride) as usize].owned += 1;
        self.by_realm[usize::from(subscriber.realm())] += 1;
        let pool = self.entries[block as usize].pool as usize;
        let next = match self.head(subscriber, pool) {
            Some(head) => core::mem::replace(&mut self.entries[head as usize].next, block),
            None => {
                self.index.insert(self.hash(subscriber, pool), block);
                NONE
            }
        };
        let entry = &mut self.entries[block as usize];
        (entry.owner, entry.next) = (subscriber, next);
        self.times[block as usize] = Times::UNKNOWN;
        self.mark(block);
    }

    /// The first tick after `now` at which a block is due for release.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        self.calendar.next(now + 1)
    }

    /// Releases one block that is due at a tick. Returns the block and its former owner.
    pub(crate) fn release(&mut self, tick: u32) -> Option<(u32, Host)> {
        let block = self.calendar.head(tick, 0);
        (block != NONE).then(|| self.take_back(block))
    }

    // ---- blocks of unanswered subscribers ----

    /// Number of blocks of a pool with mappings of unanswered subscribers.
    pub(crate) fn unanswered(&self, pool: usize) -> u32 {
        self.pool(pool).unanswered
    }

    fn unanswered_of(&mut self, block: u32) -> [&mut u32; 2] {
        let entry = &mut self.entries[block as usize];
        let pool = self.pools[entry.pool as usize].as_mut().expect("a pool with blocks");
        [&mut entry.unanswered, &mut pool.unanswered]
    }

    /// Counts a mapping of an unanswered subscriber more in a block.
    pub(crate) fn add_unanswered(&mut self, block: u32) {
        let [of_block, of_pool] = self.unanswered_of(block);
        *of_block += 1;
        *of_pool += u32::from(*of_block == 1);
    }

    /// Counts a mapping less in a block, if the block counts any: a remote endpoint may have
    /// answered the subscriber since.
    pub(crate) fn remove_unanswered(&mut self, block: u32) {
        let [of_block, of_pool] = self.unanswered_of(block);
        *of_pool -= u32::from(*of_block == 1);
        *of_block = of_block.saturating_sub(1);
    }

    /// Counts no mapping of a block any more as one of an unanswered subscriber.
    pub(crate) fn answer(&mut self, block: u32) {
        let [of_block, of_pool] = self.unanswered_of(block);
        *of_pool -= u32::from(core::mem::take(of_block) > 0);
    }

    /// True if this number of a block's ports are used or held, over all protocols.
    pub(crate) fn has_busy(&self, block: u32, ports: u32) -> bool {
        self.entries[block as usize].busy == ports
    }

    /// Releases the block of a port, if the block has an owner and is empty. Returns the block and
    /// its former owner.
    pub(crate) fn release_empty(
        &mut self,
        pool: usize,
        index: u32,
        port: u16,
    ) -> Option<(u32, Host)> {
        let block = self.find(pool, index, port)?;
        let entry = &self.entries[block as usize];
        (entry.owner != NOBODY && entry.busy == 0).then(|| self.take_back(block))
    }

    /// Takes a block from its subscriber. Returns the block and its former owner.
    pub(crate) fn take_back(&mut self, block: u32) -> (u32, Host) {
        self.calendar.take(&mut Timers(&mut self.entries), block);
        let Entry { owner, pool, next, .. } = self.entries[block as usize];
        let head = self.head(owner, pool as usize).expect("the owner of a block has blocks");
        if head == block {
            let hash = self.hash(owner, pool as usize);
            self.index.remove(hash, block);
            if next != NONE {
                self.index.insert(hash, next);
            }
        } else {
            let before = |at: &u32| self.entries[*at as usize].next == block;
            let before = self.of(owner, pool as usize).find(before).expect("it is in the list");
            self.entries[before as usize].next = next;
        }
        self.answer(block);
        let entry = &mut self.entries[block as usize];
        (entry.owner, entry.next) = (NOBODY, NONE);
        self.rows[(block / self.stride) as usize].owned -= 1;
        self.by_realm[usize::from(owner.realm())] -= 1;
        self.mark(block);
        (block, owner)
    }
}
