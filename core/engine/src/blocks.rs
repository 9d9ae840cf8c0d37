//! Port blocks (RFC 6888 REQ-14): the ports of an address in equal pieces. One subscriber has a
//! block at a time, so that one line of log stands for many mappings.
//!
//! A block's entry has its owner, the number of free ports for each protocol, and the number of
//! used and held ports. A subscriber's blocks are linked through their entries, and the first is
//! found by hash. A bitmap has a bit for each block without an owner. Addresses with such blocks
//! are kept in a list without gaps, so that a search costs the same whether few or many are left.
//! `external` chooses the pool and the port in a block.

mod owned;
mod unowned;

use crate::calendar::{Calendar, Link, Links, NONE};
use crate::host::{Grouping, Host};
use crate::index::Index;
use crate::random::HashKey;
use alloc::vec;
use alloc::vec::Vec;

/// Protocols that have ports.
const PROTOCOLS: usize = 4;
/// The owner of a block without an owner. No subscriber has this address.
const NOBODY: Host = Host::new(0, 0);
/// First port of the upper side. Blocks do not span the two sides.
const BORDER: u16 = 1024;

/// A subscriber's block: the subscriber, the index of the address, first and last port.
pub(crate) type OwnedBlock = (Host, u32, (u16, u16));

/// Division of an address's ports into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    size: u16,
    /// First port and number of blocks, of each side.
    sides: [(u16, u16); 2],
    /// Number of ports to divide.
    ports: u32,
}

/// A side of port 1024: places in [`Blocking::sides`].
pub(crate) const LOW: usize = 0;
pub(crate) const HIGH: usize = 1;

impl Blocking {
    /// Divides ports, first to last, into blocks of a size.
    pub fn new(ports: (u16, u16), size: u16) -> Self {
        let (first, last) = (ports.0.max(1), ports.1);
        let cut = |from: u16, to: u16| match to.checked_sub(from) {
            Some(more) => (from, ((u32::from(more) + 1) / u32::from(size.max(1))) as u16),
            None => (from, 0),
        };
        let sides = [cut(first, last.min(BORDER - 1)), cut(first.max(BORDER), last)];
        Self { size, sides, ports: u32::from(last) + 1 - u32::from(first) }
    }

    /// Makes one block of all ports of an address.
    pub fn whole() -> Self {
        let ports = u32::from(u16::MAX);
        Self { size: u16::MAX, sides: [(1, 0), (1, 1)], ports }
    }

    /// True if an address is one block. Then the block also has port 0, which stands for protocols
    /// without ports.
    pub fn is_whole(&self) -> bool {
        self.size == u16::MAX
    }

    /// Number of blocks of an address.
    pub fn count(&self) -> u32 {
        u32::from(self.sides[LOW].1) + u32::from(self.sides[HIGH].1)
    }

    /// Number of an address's ports that are in no block.
    pub fn ports_unused(&self) -> u32 {
        self.ports - self.count() * u32::from(self.size)
    }

    /// Number of consecutive words of 64 ports that have a whole block below port 1024 (`is_low`)
    /// or from it on. If blocks and words overlap in part, the words have one wherever they begin.
    /// 0: there is no block on that side.
    pub fn words_of_block(&self, is_low: bool) -> u32 {
        let side = if is_low { LOW } else { HIGH };
        let size = u32::from(self.size);
        match (self.sides[side].1, self.fits_words(side)) {
            (0, _) => 0,
            (_, true) => size.div_ceil(64),
            (_, false) => (2 * size).div_ceil(64),
        }
    }

    /// True if each block has whole words of 64 ports, or is in one. Otherwise every border of
    /// words on one side of port 1024 is in a block, and two engines that have the ports below and
    /// above it cannot give out that block.
    pub fn has_borders(&self) -> bool {
        [LOW, HIGH].into_iter().all(|side| self.sides[side].1 == 0 || self.fits_words(side))
    }

    /// True if no block of a side and no word of 64 ports overlap in part: one of them is in the
    /// other.
    fn fits_words(&self, side: usize) -> bool {
        self.sides[side].0.is_multiple_of(self.size.min(64))
    }

    /// True if one engine may have the ports below a port, and another one those from it on: no
    /// block has both. If blocks and words of 64 ports overlap in part, every border of words is in
    /// a block, and each of them will do.
    fn may_part(&self, port: u16) -> bool {
        let is_first = |block: u32| self.ports(block).0 == port;
        let fits = self.fits_words(usize::from(port >= BORDER));
        !fits || self.block_of(port).is_none_or(is_first)
    }

    /// The ports of all blocks of a side, first to last.
    fn ports_of_side(&self, side: usize) -> Option<(u16, u16)> {
        let (first, count) = self.sides[side];
        let ports = u32::from(count) * u32::from(self.size);
        (count > 0).then(|| (first, (u32::from(first) + ports - 1) as u16))
    }

    /// First and last port of each block.
    pub fn all(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        (0..self.count()).map(|block| self.ports(block))
    }

    /// True if a port is in a block.
    pub fn contains(&self, port: u16) -> bool {
        self.block_of(port).is_some()
    }

    /// The block that contains a port, counted from the address's first block.
    pub fn block_of(&self, port: u16) -> Option<u32> {
        if self.is_whole() {
            return Some(0);
        }
        let side = usize::from(port >= BORDER);
        let (first, count) = self.sides[side];
        let block = port.checked_sub(first)? / self.size;
        let before = if side == HIGH { self.sides[LOW].1 } else { 0 };
        (block < count).then(|| u32::from(before + block))
    }

    /// First and last port of a block.
    pub fn ports(&self, block: u32) -> (u16, u16) {
        let low = u32::from(self.sides[LOW].1);
        let (first, block) = match block.checked_sub(low) {
            Some(block) => (self.sides[HIGH].0, block),
            None => (self.sides[LOW].0, block),
        };
        let first = u32::from(first) + block * u32::from(self.size);
        (first as u16, (first + u32::from(self.size) - 1) as u16)
    }

    /// The blocks of a side, counted from the address's first block: the first, and the one after
    /// the last.
    fn of_side(&self, side: usize) -> (u32, u32) {
        let low = u32::from(self.sides[LOW].1);
        if side == LOW { (0, low) } else { (low, self.count()) }
    }
}

/// A block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The subscriber that has the block, or [`NOBODY`].
    owner: Host,
    pool: u32,
    /// The subscriber's next block of the pool.
    next: u32,
    /// Number of used or held ports, over all protocols. A pinned block counts one more.
    busy: u32,
    /// Number of mappings of unanswered subscribers.
    unanswered: u32,
    /// Number of free ports, by protocol.
    free: [u16; PROTOCOLS],
    /// Entered in the calendar while the block has an owner and is empty.
    link: Link,
}

impl Entry {
    /// A block without an owner, in no pool.
    const NEW: Self = Self {
        owner: NOBODY,
        pool: 0,
        next: NONE,
        busy: 0,
        unanswered: 0,
        free: [0; PROTOCOLS],
        link: Link::OUT,
    };
}

/// Times of a block's assignment and release, ticks. Packets of established sessions never touch
/// these times.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Time of the assignment; [`NONE`]: not known; [`PINNED`]: the block is pinned.
    since: u32,
    /// Time of the release, while the block is empty.
    due: u32,
}

impl Times {
    const UNKNOWN: Self = Self { since: NONE, due: NONE };
}

/// Marks the block of a static mapping.
const PINNED: u32 = NONE - 1;

/// Duration of an owner's tenure of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// The tick of the assignment, if it is known.
    pub(crate) since: Option<u32>,
    /// The tick of the release, if the block is empty.
    pub(crate) due: Option<u32>,
    /// True if the block is pinned to its owner.
    pub(crate) is_pinned: bool,
}

struct Timers<'e>(&'e mut [Entry]);

impl Links for Timers<'_> {
    fn link(&mut self, element: u32) -> &mut Link {
        &mut self.0[element as usize].link
    }
}

/// A pool that has blocks.
#[derive(Clone, Debug)]
struct BlockPool {
    blocking: Blocking,
    /// Addresses with assignable blocks, by side.
    open: [Vec<u32>; 2],
    /// Number of assignable blocks, by side.
    nobodys: [u32; 2],
    /// Number of blocks with mappings of unanswered subscribers.
    unanswered: u32,
    max: u16,
    /// Delay between a block's last used port and its release, ticks.
    release_after: u32,
}

/// The blocks of one address.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The index of the address.
    index: u32,
    pool: u32,
    /// Number of blocks with an owner.
    owned: u32,
    /// True if ports of the blocks may be given out.
    is_open: bool,
}

/// The blocks of all pools. Each address of a pool with blocks has a row of blocks. There are as
/// many rows as possible addresses.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pools: Vec<Option<BlockPool>>,
    /// Blocks and bitmap words that a row has room for.
    stride: u32,
    words: usize,
    rows: Vec<Row>,
    free_rows: Vec<u32>,
    /// The row of an address, or [`NONE`].
    row_of: Vec<u32>,
    entries: Vec<Entry>,
    /// Times of the blocks, in the order of `entries`.
    times: Vec<Times>,
    /// Bitmap of assignable blocks: without an owner, with a free port, and without held ports.
    unowned: Vec<u64>,
    /// Number of assignable blocks of each address, by side; and the address's place in its pool's
    /// list of open addresses.
    count: Vec<[u16; 2]>,
    place: Vec<[u32; 2]>,
    calendar: Calendar,
    index: Index,
    key: HashKey,
    grouping: Grouping,
    /// Number of assigned blocks, by realm of the subscriber.
    by_realm: Vec<u32>,
}

/// A subscriber's blocks of a pool, without blocks of addresses that give out no ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) blocks: u16,
    /// Index of the address of one of the blocks.
    pub(crate) address: u32,
}

impl Blocks {
    /// Makes an empty set with room for `addresses` with `stride` blocks each. An empty block is
    /// released after at most `reach` ticks.
    pub(crate) fn new(addresses: usize, stride: u32, reach: u32, key: HashKey) -> Self {
        let capacity = addresses * stride as usize;
        let words = (stride as usize).div_ceil(64);
        Self {
            pools: Vec::new(),
            stride,
            words,
            rows: Vec::with_capacity(addresses),
            free_rows: Vec::with_capacity(addresses),
            row_of: vec![NONE; addresses],
            entries: Vec::with_capacity(capacity),
            times: Vec::with_capacity(capacity),
            unowned: vec![0; addresses * words],
            count: vec![[0; 2]; addresses],
            place: vec![[NONE; 2]; addresses],
            calendar: Calendar::new(reach + 2),
            index: Index::new(capacity),
            key,
            grouping: Grouping::NONE,
            by_realm: vec![0; usize::from(Host::REALMS)],
        }
    }

    /// The set, with hosts grouped into subscribers.
    pub(crate) fn grouped(self, grouping: Grouping) -> Self {
        Self { grouping, ..self }
    }

    /// Bytes that the blocks of `addresses` addresses take.
    pub(crate) fn memory(addresses: usize, stride: u32) -> u64 {
        let blocks = addresses * stride as usize;
        let each = size_of::<Row>() + size_of::<[u16; 2]>() + size_of::<[u32; 2]>();
        let each_block = size_of::<Entry>() + size_of::<Times>() + 1;
        (blocks * each_block + addresses * each) as u64 + Index::memory(blocks)
    }

    /// Largest number of blocks of an address.
    pub(crate) fn stride(&self) -> u32 {
        self.stride
    }

    /// Sets the division of a pool's ports into blocks. A pool with addresses must keep its
    /// division.
    pub(crate) fn set_pool(&mut self, pool: usize, cut: Option<(Blocking, u16, u32)>) {
        if self.pools.len() <= pool {
            self.pools.resize(pool + 1, None);
        }
        let room = self.row_of.len();
        let (open, nobodys, unanswered) = match self.pools[pool].take() {
            Some(before) => (before.open, before.nobodys, before.unanswered),
            None => {
                let room = if cut.is_some() { room } else { 0 };
                ([(); 2].map(|()| Vec::with_capacity(room)), [0; 2], 0)
            }
        };
        self.pools[pool] = cut.map(|(blocking, max, release_after)| BlockPool {
            blocking,
            open,
            nobodys,
            unanswered,
            max,
            release_after,
        });
    }

    /// Gives an address of a pool its blocks: without owners and without free ports. `busy` returns
    /// the number of a block's held ports, over all protocols.
    pub(crate) fn attach(&mut self, index: u32, pool: usize, busy: impl Fn((u16, u16)) -> u32) {
        let row = Row { index, pool: pool as u32, owned: 0, is_open: false };
        let at = match self.free_rows.pop() {
            Some(at) => {
                self.rows[at as usize] = row;
                at
            }
            None => {
                self.rows.push(row);
                let blocks = self.rows.len() * self.stride as usize;
                self.entries.resize(blocks, Entry::NEW);
                self.times.resize(blocks, Times::UNKNOWN);
                self.rows.len() as u32 - 1
            }
        };
        self.row_of[index as usize] = at;
        let blocking = self.pool(pool).blocking;
        for block in 0..blocking.count() {
            let busy = busy(blocking.ports(block));
            let entry = Entry { pool: pool as u32, busy, ..Entry::NEW };
            self.entries[(at * self.stride + block) as usize] = entry;
        }
    }

    /// Takes the blocks from an address. No block may have an owner.
    pub(crate) fn detach(&mut self, index: u32) {
        let row = core::mem::replace(&mut self.row_of[index as usize], NONE);
        if row != NONE {
            debug_assert_eq!(self.rows[row as usize].owned, 0);
            for block in self.blocks_of(row) {
                self.entries[block as usize].free = [0; PROTOCOLS];
                self.mark(block);
            }
            self.free_rows.push(row);
        }
    }

    /// True if no block of an address has an owner.
    pub(crate) fn are_nobodys(&self, index: u32) -> bool {
        self.rows.get(self.row_of[index as usize] as usize).is_none_or(|row| row.owned == 0)
    }

    /// Number of an address's blocks with an owner, and of its assignable blocks.
    pub(crate) fn of_address(&self, index: u32) -> Option<[u32; 2]> {
        let row = self.rows.get(*self.row_of.get(index as usize)? as usize)?;
        let [low, high] = self.count[index as usize];
        Some([row.owned, u32::from(low) + u32::from(high)])
    }

    /// Sets the number of free ports of each block of an address for a protocol. `is_open` is true
    /// if ports of the address may be given out. Blocks with free ports and without an owner become
    /// assignable.
    pub(crate) fn renew(
        &mut self,
        index: u32,
        protocol: usize,
        is_open: bool,
        free: impl Fn((u16, u16)) -> u16,
    ) {
        let row = self.row_of[index as usize];
        self.rows[row as usize].is_open = is_open;
        for block in self.blocks_of(row) {
            let (_, ports) = self.place_of(block);
            self.entries[block as usize].free[protocol] = if is_open { free(ports) } else { 0 };
            self.mark(block);
        }
    }

    /// The blocks of a row.
    fn blocks_of(&self, row: u32) -> core::ops::Range<u32> {
        let first = row * self.stride;
        first..first + self.pool(self.rows[row as usize].pool as usize).blocking.count()
    }

    fn pool(&self, pool: usize) -> &BlockPool {
        self.pools[pool].as_ref().expect("a pool with blocks")
    }

    /// True if a pool has blocks.
    pub(crate) fn has(&self, pool: usize) -> bool {
        self.pools.get(pool).is_some_and(Option::is_some)
    }

    /// The block that contains a port, if there is one.
    pub(crate) fn find(&self, pool: usize, index: u32, port: u16) -> Option<u32> {
        let pool = self.pools.get(pool)?.as_ref()?;
        let row = self.row_of[index as usize];
        let block = pool.blocking.block_of(port)?;
        (row != NONE).then(|| row * self.stride + block)
    }

    /// The index of a block's address, and its ports.
    pub(crate) fn place_of(&self, block: u32) -> (u32, (u16, u16)) {
        let row = self.rows[(block / self.stride) as usize];
        (row.index, self.pool(row.pool as usize).blocking.ports(block % self.stride))
    }

    /// True if a port is in no block, or in a block without an owner.
    pub(crate) fn is_nobodys(&self, pool: usize, index: u32, port: u16) -> bool {
        let block = self.find(pool, index, port);
        block.is_none_or(|block| self.entries[block as usize].owner == NOBODY)
    }

    /// True if a subscriber has a block.
    pub(crate) fn has_any(&self) -> bool {
        self.by_realm.iter().any(|&blocks| blocks > 0)
    }

    /// True if a subscriber of a realm has a block.
    pub(crate) fn has_any_of(&self, realm: u16) -> bool {
        self.by_realm[usize::from(realm)] > 0
    }

    /// True if one engine may have the ports of a pool with blocks below a port, and another one
    /// those from it on.
    pub(crate) fn may_part(&self, pool: usize, port: u16) -> bool {
        self.pool(pool).blocking.may_part(port)
    }

    /// The subscriber that has a block.
    pub(crate) fn owner(&self, block: u32) -> Host {
        self.entries[block as usize].owner
    }

    /// True if a port is in a block of this subscriber.
    pub(crate) fn has_port(&self, pool: usize, index: u32, port: u16, subscriber: Host) -> bool {
        self.find(pool, index, port)
            .is_some_and(|block| self.owner(block) == self.grouping.subscriber(subscriber))
    }

    // ---- changes of ports ----

    /// Notes that a free port is used or held now.
    pub(crate) fn taken(&mut self, pool: usize, index: u32, protocol: usize, port: u16) {
        let Some(block) = self.find(pool, index, port) else { return };
        let entry = &mut self.entries[block as usize];
        // A block that this engine has in part counts no free port.
        entry.free[protocol] = entry.free[protocol].saturating_sub(1);
        entry.busy += 1;
        if entry.busy > 1 {
            return;
        }
        if entry.owner == NOBODY {
            // The port was held before a restart. The block is not assignable until the hold ends.
            self.mark(block);
        } else {
            self.calendar.take(&mut Timers(&mut self.entries), block);
        }
    }

    /// Notes that a port is held that was not free before.
    pub(crate) fn held(&mut self, pool: usize, index: u32, port: u16) {
        let Some(block) = self.find(pool, index, port) else { return };
        self.entries[block as usize].busy += 1;
        self.calendar.take(&mut Timers(&mut self.entries), block);
        self.mark(block);
    }

    /// Notes that a port has no owner again, from a tick on. The port is free unless its address
    /// gives out no ports. An empty block stays with its subscriber for the configured time.
    pub(crate) fn freed(
        &mut self,
        pool: usize,
        index: u32,
        (protocol, port): (usize, u16),
        is_free: bool,
        tick: u32,
    ) {
        let Some(block) = self.find(pool, index, port) else { return };
        let entry = &mut self.entries[block as usize];
        entry.free[protocol] += u16::from(is_free);
        entry.busy -= 1;
        if entry.busy > 0 {
            return;
        }
        if entry.owner == NOBODY {
            self.mark(block);
        } else {
            self.release_later(block, pool, tick);
        }
    }

    /// Counts a mapping without a port of an address that is one block.
    pub(crate) fn begin_portless(&mut self, block: u32) {
        self.entries[block as usize].busy += 1;
        self.calendar.take(&mut Timers(&mut self.entries), block);
    }

    /// Counts the end of a mapping without a port, at a tick.
    pub(crate) fn end_portless(&mut self, block: u32, pool: usize, tick: u32) {
        let entry = &mut self.entries[block as usize];
        entry.busy -= 1;
        if entry.busy > 0 {
            return;
        }
        match entry.owner {
            NOBODY => self.mark(block),
            _ => self.release_later(block, pool, tick),
        }
    }

    /// The owner of a block that is in use.
    pub(crate) fn owner_in_use(&self, block: u32) -> Option<Host> {
        let Entry { owner, busy, .. } = self.entries[block as usize];
        (owner != NOBODY && busy > 0).then_some(owner)
    }

    /// Schedules the release of an empty block: `release_after` ticks after `tick`.
    fn release_later(&mut self, block: u32, pool: usize, tick: u32) {
        let due = tick + self.pool(pool).release_after;
        self.calendar.enter(&mut Timers(&mut self.entries), block, due);
        self.times[block as usize].due = due;
    }

    /// Notes that a port without an owner is reserved, or is free again. The engine must have the
    /// whole block.
    pub(crate) fn kept(
        &mut self,
        pool: usize,
        index: u32,
        (protocol, port): (usize, u16),
        is_free: bool,
    ) {
        let Some(block) = self.find(pool, index, port) else { return };
        let free = &mut self.entries[block as usize].free[protocol];
        *free = if is_free { *free + 1 } else { *free - 1 };
        self.mark(block);
    }

    // ---- blocks with an owner ----

    /// The ports of all blocks of an address of a pool on a side, first to last.
    pub(crate) fn ports_of_side(&self, pool: usize, side: usize) -> Option<(u16, u16)> {
        self.pool(pool).blocking.ports_of_side(side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[test]
    fn ports_are_cut_on_each_side_of_1024() {
        let blocking = Blocking::new((1, 65_535), 512);
        assert_eq!((blocking.count(), blocking.ports_unused()), (127, 511));
        assert_eq!(blocking.ports(0), (1, 512));
        assert_eq!(blocking.ports(1), (1024, 1535));
        assert_eq!(blocking.ports(126), (65_024, 65_535));
        let of = |port| blocking.block_of(port);
        assert_eq!((of(0), of(1), of(512), of(513)), (None, Some(0), Some(0), None));
        assert_eq!((of(1023), of(1024), of(65_535)), (None, Some(1), Some(126)));
        let blocking = Blocking::new((5000, 6000), 256);
        assert_eq!((blocking.count(), blocking.ports_unused()), (3, 233));
        assert_eq!((blocking.ports(2), blocking.block_of(5768)), ((5512, 5767), None));
        assert_eq!(Blocking::new((5000, 5100), 512).count(), 0);
        assert_eq!(Blocking::new((1, 65_535), 32_768).ports(0), (1024, 33_791));
        assert_eq!(Blocking::new((0, 15), 16).count(), 0);
    }

    #[test]
    fn a_run_of_words_has_a_whole_block() {
        let words = |ports, size| {
            [true, false].map(|is_low| Blocking::new(ports, size).words_of_block(is_low))
        };
        assert_eq!(words((1024, 65_535), 512), [0, 8]);
        assert_eq!(words((1024, 65_535), 16), [0, 1]);
        assert_eq!(words((512, 65_535), 256), [4, 4]);
        assert_eq!(words((800, 65_535), 256), [0, 4]);
        assert_eq!(words((1, 65_535), 256), [8, 4], "blocks end within words");
        assert_eq!(words((2050, 65_535), 16), [0, 1]);
        assert_eq!(words((2050, 65_535), 64), [0, 2]);
        let has_borders = |ports, size| Blocking::new(ports, size).has_borders();
        assert!(has_borders((800, 65_535), 256), "no block is below 1024");
        assert!(has_borders((2064, 65_535), 16) && !has_borders((2064, 65_535), 64));
        assert!(!has_borders((1, 65_535), 256) && has_borders((64, 65_535), 256));
        for (first, size) in [(2048, 16), (2050, 16), (2048, 64), (2064, 64), (2049, 512)] {
            let blocking = Blocking::new((first, 65_535), size);
            let most = blocking.words_of_block(false) as usize;
            let is_border = |word: &usize| blocking.may_part((word * 64) as u16);
            for begin in (33..900).filter(is_border) {
                let (from, to) = ((begin * 64) as u16, ((begin + most) * 64 - 1) as u16);
                let is_among = |(one, last): (u16, u16)| from <= one && last <= to;
                assert!(blocking.all().any(is_among), "{first}, {size}: {begin}");
                let ends = is_border(&(begin + most));
                assert!(ends, "{first}, {size}: {begin}");
            }
        }
    }

    fn world(addresses: u32, ports: (u16, u16), release_after: u32) -> Blocks {
        let key = HashKey::new(&mut Generator::new([1; 32]));
        let blocking = Blocking::new(ports, 16);
        let mut blocks = Blocks::new(addresses as usize, blocking.count() + 3, release_after, key);
        blocks.set_pool(0, Some((blocking, 4, release_after)));
        for index in 0..addresses {
            blocks.attach(index, 0, |_| 0);
            (0..PROTOCOLS).for_each(|protocol| blocks.renew(index, protocol, true, |_| 16));
        }
        blocks
    }

    proptest! {
        /// Compares with a map from block to subscriber, while blocks come and go.
        #[test]
        fn behaves_as_a_map(
            seed in any::<[u8; 32]>(),
            ops in prop::collection::vec((0_u8..3, 1_u32..6, 0_u32..4), 1..400),
        ) {
            let mut blocks = world(3, (1000, 1100), 5);
            let mut generator = Generator::new(seed);
            let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
            let mut tick = 1;
            for (what, subscriber, step) in ops {
                match what {
                    0 => {
                        let side = (subscriber % 2) as usize;
                        let open = || (0..3).flat_map(|row| blocks.blocks_of(row))
                            .filter(|block| !owners.contains_key(block))
                            .filter(|block| blocks.bit(*block).side == side);
                        let drawn = blocks.draw_anywhere(0, side, 1, &mut generator, |_| true);
                        prop_assert_eq!(drawn.is_some(), open().next().is_some());
                        if let Some(block) = drawn {
                            prop_assert!(open().any(|one| one == block));
                            blocks.assign(block, Host::new(1, subscriber));
                            let (index, (first, _)) = blocks.place_of(block);
                            blocks.taken(0, index, 1, first + 3);
                            owners.insert(block, subscriber);
                        }
                    }
                    1 => {
                        // One of the subscriber's blocks becomes empty, if it is not empty.
                        let used = |block: &u32| blocks.entries[*block as usize].busy > 0;
                        let found = blocks.of(Host::new(1, subscriber), 0).find(used);
                        if let Some(block) = found {
                            let (index, (first, _)) = blocks.place_of(block);
                            blocks.freed(0, index, (1, first + 3), true, tick);
                        }
                    }
                    _ => {
                        for at in tick..tick + step {
                            while let Some((block, owner)) = blocks.release(at) {
                                prop_assert_eq!(owners.remove(&block), Some(owner.address()));
                            }
                        }
                        tick += step;
                    }
                }
                // The lists have no gap: no draw looks at an address without assignable blocks.
                for side in [LOW, HIGH] {
                    let mut open = blocks.pool(0).open[side].clone();
                    open.sort_unstable();
                    let has = |index: &u32| blocks.count[*index as usize][side] > 0;
                    prop_assert_eq!(open, (0..3).filter(has).collect::<Vec<u32>>());
                }
                for subscriber in 1..6 {
                    let mut has: Vec<u32> = blocks.of(Host::new(1, subscriber), 0).collect();
                    has.sort_unstable();
                    let expected = owners.iter().filter(|(_, owner)| **owner == subscriber);
                    prop_assert_eq!(has, expected.map(|(block, _)| *block).collect::<Vec<_>>());
                }
            }
        }
    }

    /// All blocks are equally likely to be drawn.
    #[test]
    fn blocks_are_drawn_evenly() {
        let mut blocks = world(1, (1000, 2623), 5);
        let mut generator = Generator::new([9; 32]);
        for block in (1..101).step_by(2) {
            blocks.assign(block, Host::new(0, 7));
        }
        let mut drawn: BTreeMap<u32, u32> = BTreeMap::new();
        for _ in 0..50_000 {
            let block = blocks.draw(0, 0, HIGH, 0, &mut generator).unwrap();
            *drawn.entry(block).or_default() += 1;
        }
        assert_eq!(drawn.len(), 50);
        assert!(
            drawn.iter().all(|(block, n)| block % 2 == 0 && (800..1200).contains(n)),
            "{drawn:?}"
        );
    }
}
