//! Port blocks (RFC 6888 REQ-14): an address's ports in equal pieces, each of which one subscriber has
//! at a time, so that one line of log tells of many mappings.
//!
//! A block's entry says whose it is, how many of its ports are free for each protocol, and how many
//! are used or held; a subscriber's blocks are linked through their entries, and the first is found by
//! hash. Blocks that nobody has are a bit each, and addresses that have such are kept in a list without
//! gaps, so that finding one costs the same when few are left as when all are. Who asks for what, and
//! which port of a block it is, is `external`'s business.

use crate::calendar::{Calendar, Link, Links, NONE};
use crate::config::{Allocation, BlockConfig, Config, PoolConfig};
use crate::host::Host;
use crate::index::Index;
use crate::random::{Generator, HashKey};
use alloc::vec;
use alloc::vec::Vec;

/// Protocols that have ports.
const PROTOCOLS: usize = 4;
/// Nobody's address: a subscriber never has it.
const NOBODY: Host = Host::new(0, 0);
/// Ports below are one side, the others another; blocks do not span the two.
const BORDER: u16 = 1024;

/// How the ports of an address are cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    size: u16,
    /// Of each side the first port and the number of blocks.
    sides: [(u16, u16); 2],
    /// All ports there are to cut.
    ports: u32,
}

/// A side of port 1024: places in [`Blocking::sides`].
pub(crate) const LOW: usize = 0;
pub(crate) const HIGH: usize = 1;

impl Blocking {
    /// Cuts ports, first to last, into blocks of a size.
    pub fn new(ports: (u16, u16), size: u16) -> Self {
        let (first, last) = (ports.0.max(1), ports.1);
        let cut = |from: u16, to: u16| match to.checked_sub(from) {
            Some(more) => (from, ((u32::from(more) + 1) / u32::from(size.max(1))) as u16),
            None => (from, 0),
        };
        let sides = [cut(first, last.min(BORDER - 1)), cut(first.max(BORDER), last)];
        Self { size, sides, ports: u32::from(last) + 1 - u32::from(first) }
    }

    /// Blocks of an address.
    pub fn count(&self) -> u32 {
        u32::from(self.sides[LOW].1) + u32::from(self.sides[HIGH].1)
    }

    /// Ports of an address that are in no block.
    pub fn ports_unused(&self) -> u32 {
        self.ports - self.count() * u32::from(self.size)
    }

    /// The ports of all blocks of a side, first to last.
    fn ports_of_side(&self, side: usize) -> Option<(u16, u16)> {
        let (first, count) = self.sides[side];
        let ports = u32::from(count) * u32::from(self.size);
        (count > 0).then(|| (first, (u32::from(first) + ports - 1) as u16))
    }

    /// Whether a port is in a block.
    pub fn contains(&self, port: u16) -> bool {
        self.block_of(port).is_some()
    }

    /// The block, counted from the address's first, that a port is in.
    fn block_of(&self, port: u16) -> Option<u32> {
        let side = usize::from(port >= BORDER);
        let (first, count) = self.sides[side];
        let block = port.checked_sub(first)? / self.size;
        let before = if side == HIGH { self.sides[LOW].1 } else { 0 };
        (block < count).then(|| u32::from(before + block))
    }

    /// First and last port of a block.
    fn ports(&self, block: u32) -> (u16, u16) {
        let low = u32::from(self.sides[LOW].1);
        let (first, block) = match block.checked_sub(low) {
            Some(block) => (self.sides[HIGH].0, block),
            None => (self.sides[LOW].0, block),
        };
        let first = u32::from(first) + block * u32::from(self.size);
        (first as u16, (first + u32::from(self.size) - 1) as u16)
    }

    /// The blocks of a side, counted from the address's first, and the one after.
    fn of_side(&self, side: usize) -> (u32, u32) {
        let low = u32::from(self.sides[LOW].1);
        if side == LOW { (0, low) } else { (low, self.count()) }
    }
}

/// A block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The subscriber that has it, or [`NOBODY`].
    owner: Host,
    pool: u32,
    /// The subscriber's next block of the pool.
    next: u32,
    /// Ports that are used or held, over all protocols.
    busy: u32,
    /// Ports that are free, by protocol.
    free: [u16; PROTOCOLS],
    /// Entered in the calendar while it is somebody's and empty.
    link: Link,
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
    /// The index of its first address, and the number of its first block.
    address: u32,
    first: u32,
    /// Its first word of the bitmap, and the words of an address.
    word: usize,
    words: usize,
    /// Addresses with a block that nobody has, by side.
    open: [Vec<u32>; 2],
    /// Blocks that nobody has.
    nobodys: u32,
    max: u16,
    /// Ticks.
    release_after: u32,
}

/// The blocks of all pools.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pools: Vec<Option<BlockPool>>,
    entries: Vec<Entry>,
    /// A bit a block that nobody has and none of whose ports is held.
    unowned: Vec<u64>,
    /// Such blocks of an address, by side; and its place in the list of its pool's open ones.
    count: Vec<[u16; 2]>,
    place: Vec<[u32; 2]>,
    calendar: Calendar,
    index: Index,
    key: HashKey,
}

/// What blocks a subscriber has of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned {
    pub(crate) blocks: u16,
    /// The index of the address that one of them is of.
    pub(crate) address: u32,
}

/// The pools that have blocks, with the index of their first address.
fn pools(config: &Config) -> impl Iterator<Item = (usize, u32, &PoolConfig, &BlockConfig)> {
    let mut address = 0;
    config.pools.iter().enumerate().filter_map(move |(number, pool)| {
        let first = address;
        address += pool.count() as u32;
        match config.allocation_of(pool) {
            Allocation::Block(block) => Some((number, first, pool, block)),
            _ => None,
        }
    })
}

fn all_blocks(config: &Config) -> usize {
    let of = |pool: &PoolConfig, block: &BlockConfig| {
        Blocking::new(pool.ports, block.size).count() as usize * pool.count()
    };
    pools(config).map(|(_, _, pool, block)| of(pool, block)).sum()
}

impl Blocks {
    /// All blocks nobody's and without a free port: [`Blocks::settle`] says which there are. `ticks`
    /// tells how many a duration is.
    pub(crate) fn new(
        config: &Config,
        addresses: usize,
        key: HashKey,
        ticks: impl Fn(core::time::Duration) -> u32,
    ) -> Self {
        let capacity = all_blocks(config);
        let longest = pools(config).map(|(.., block)| ticks(block.release_after)).max();
        let addresses = if capacity == 0 { 0 } else { addresses };
        let mut blocks = Self {
            pools: vec![None; config.pools.len()],
            entries: Vec::with_capacity(capacity),
            unowned: Vec::new(),
            count: vec![[0; 2]; addresses],
            place: vec![[NONE; 2]; addresses],
            calendar: Calendar::new(longest.map_or(0, |longest| longest + 2)),
            index: Index::new(capacity),
            key,
        };
        for (number, address, pool, block) in pools(config) {
            let blocking = Blocking::new(pool.ports, block.size);
            let words = (blocking.count() as usize).div_ceil(64);
            let entry = Entry {
                owner: NOBODY,
                pool: number as u32,
                next: NONE,
                busy: 0,
                free: [0; PROTOCOLS],
                link: Link::OUT,
            };
            blocks.pools[number] = Some(BlockPool {
                blocking,
                address,
                first: blocks.entries.len() as u32,
                word: blocks.unowned.len(),
                words,
                open: [(); 2].map(|()| Vec::with_capacity(pool.count())),
                nobodys: 0,
                max: block.max_per_subscriber,
                release_after: ticks(block.release_after),
            });
            let count = blocking.count() as usize * pool.count();
            blocks.entries.resize(blocks.entries.len() + count, entry);
            blocks.unowned.resize(blocks.unowned.len() + words * pool.count(), 0);
        }
        blocks
    }

    /// Bytes that they take.
    pub(crate) fn memory(config: &Config) -> u64 {
        let blocks = all_blocks(config);
        let addresses: usize = pools(config).map(|(_, _, pool, _)| pool.count()).sum();
        let each = size_of::<[u16; 2]>() + size_of::<[u32; 2]>() + 2 * size_of::<u32>();
        (blocks * (size_of::<Entry>() + 1) + addresses * each) as u64 + Index::memory(blocks)
    }

    /// Says, before anything is used, how many ports of each block are free for each protocol; blocks
    /// that have any may be assigned.
    pub(crate) fn settle(&mut self, free: impl Fn(u32, (u16, u16)) -> [u16; PROTOCOLS]) {
        for block in 0..self.entries.len() as u32 {
            let (index, ports) = self.place_of(block);
            self.entries[block as usize].free = free(index, ports);
            if self.entries[block as usize].free != [0; PROTOCOLS] {
                self.open(block);
            }
        }
    }

    /// Whether a pool has blocks.
    pub(crate) fn has(&self, pool: usize) -> bool {
        self.pools[pool].is_some()
    }

    fn pool(&self, pool: usize) -> &BlockPool {
        self.pools[pool].as_ref().expect("a pool with blocks")
    }

    /// The block of a port, if it is in one.
    fn find(&self, pool: usize, index: u32, port: u16) -> Option<u32> {
        let pool = self.pools.get(pool)?.as_ref()?;
        let block = pool.blocking.block_of(port)?;
        Some(pool.first + (index - pool.address) * pool.blocking.count() + block)
    }

    /// The index of a block's address, and its ports.
    pub(crate) fn place_of(&self, block: u32) -> (u32, (u16, u16)) {
        let pool = self.pool(self.entries[block as usize].pool as usize);
        let (block, count) = (block - pool.first, pool.blocking.count());
        (pool.address + block / count, pool.blocking.ports(block % count))
    }

    /// The subscriber that has a block.
    pub(crate) fn owner(&self, block: u32) -> Host {
        self.entries[block as usize].owner
    }

    // ---- ports come and go ----

    /// A port that was free is used or held.
    pub(crate) fn taken(&mut self, pool: usize, index: u32, protocol: usize, port: u16) {
        let Some(block) = self.find(pool, index, port) else { return };
        let entry = &mut self.entries[block as usize];
        entry.free[protocol] -= 1;
        entry.busy += 1;
        if entry.busy > 1 {
            return;
        }
        if entry.owner == NOBODY {
            // Held since before a restart: not to be assigned until that is over.
            self.close(block);
        } else {
            self.calendar.take(&mut Timers(&mut self.entries), block);
        }
    }

    /// A port that was used or held is free, at a tick. An empty block stays with its subscriber for a
    /// while yet.
    pub(crate) fn freed(&mut self, pool: usize, index: u32, protocol: usize, port: u16, tick: u32) {
        let Some(block) = self.find(pool, index, port) else { return };
        let entry = &mut self.entries[block as usize];
        entry.free[protocol] += 1;
        entry.busy -= 1;
        if entry.busy > 0 {
            return;
        }
        if entry.owner == NOBODY {
            self.open(block);
        } else {
            let due = tick + self.pool(pool).release_after;
            self.calendar.enter(&mut Timers(&mut self.entries), block, due);
        }
    }

    // ---- blocks that nobody has ----

    /// Of a block: its pool, the index of its address, its side, its word and bit.
    fn bit(&self, block: u32) -> (usize, u32, usize, usize, u64) {
        let number = self.entries[block as usize].pool as usize;
        let pool = self.pool(number);
        let (offset, count) = (block - pool.first, pool.blocking.count());
        let (address, local) = (offset / count, offset % count);
        let side = usize::from(local >= pool.blocking.of_side(LOW).1);
        let word = pool.word + address as usize * pool.words + local as usize / 64;
        (number, pool.address + address, side, word, 1 << (local % 64))
    }

    fn count_nobodys(&mut self, pool: usize, change: i32) {
        let pool = self.pools[pool].as_mut().expect("a pool with blocks");
        pool.nobodys = pool.nobodys.strict_add_signed(change);
    }

    /// How many blocks of a pool nobody has; of one without blocks none.
    pub(crate) fn nobodys(&self, pool: usize) -> u32 {
        self.pools[pool].as_ref().map_or(0, |pool| pool.nobodys)
    }

    fn open(&mut self, block: u32) {
        let (pool, index, side, word, bit) = self.bit(block);
        self.unowned[word] |= bit;
        self.count_nobodys(pool, 1);
        let count = &mut self.count[index as usize][side];
        *count += 1;
        if *count == 1 {
            let open = &mut self.pools[pool].as_mut().expect("a pool with blocks").open[side];
            self.place[index as usize][side] = open.len() as u32;
            open.push(index);
        }
    }

    fn close(&mut self, block: u32) {
        let (pool, index, side, word, bit) = self.bit(block);
        self.unowned[word] &= !bit;
        self.count_nobodys(pool, -1);
        let count = &mut self.count[index as usize][side];
        *count -= 1;
        if *count == 0 {
            let open = &mut self.pools[pool].as_mut().expect("a pool with blocks").open[side];
            let place = core::mem::replace(&mut self.place[index as usize][side], NONE);
            open.swap_remove(place as usize);
            if let Some(&moved) = open.get(place as usize) {
                self.place[moved as usize][side] = place;
            }
        }
    }

    /// A block of an address and side that nobody has and that has a free port for the protocol, each
    /// as likely as another unless static mappings have taken whole ones.
    pub(crate) fn draw(
        &self,
        pool: usize,
        index: u32,
        side: usize,
        protocol: usize,
        generator: &mut Generator,
    ) -> Option<u32> {
        let count = u32::from(self.count[index as usize][side]);
        if count == 0 {
            return None;
        }
        let pool = self.pool(pool);
        let address = index - pool.address;
        let words = &self.unowned[pool.word + address as usize * pool.words..][..pool.words];
        let (from, to) = pool.blocking.of_side(side);
        let unowned = |word: usize| {
            let below = |block: u32| match (block as usize).saturating_sub(word * 64) {
                bits @ 0..64 => (1_u64 << bits) - 1,
                _ => u64::MAX,
            };
            words[word] & below(to) & !below(from)
        };
        let first = pool.first + address * pool.blocking.count();
        let has_port = |block: &u32| self.entries[*block as usize].free[protocol] > 0;
        let mut which = generator.below(count);
        let mut word = from as usize / 64;
        while which >= unowned(word).count_ones() {
            which -= unowned(word).count_ones();
            word += 1;
        }
        let rest = (0..which).fold(unowned(word), |rest, _| rest & (rest - 1));
        let drawn = (word * 64) as u32 + rest.trailing_zeros();
        let is_unowned = |local: &u32| unowned(*local as usize / 64) >> (local % 64) & 1 != 0;
        let others = || (drawn + 1..to).chain(from..drawn).filter(is_unowned);
        Some(first + drawn)
            .filter(has_port)
            .or_else(|| others().map(|local| first + local).find(has_port))
    }

    /// As [`Blocks::draw`], of the better of two addresses; should `has_port` rule out both, of the next
    /// that will do.
    pub(crate) fn draw_anywhere(
        &self,
        pool: usize,
        side: usize,
        protocol: usize,
        generator: &mut Generator,
        has_port: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let open = &self.pool(pool).open[side];
        if open.is_empty() {
            return None;
        }
        let count = open.len() as u32;
        let (a, b) = (generator.below(count), generator.below(count));
        let unowned = |place: u32| self.count[open[place as usize] as usize][side];
        let better = if unowned(a) >= unowned(b) { a } else { b };
        (better..count).chain(0..better).map(|place| open[place as usize]).find_map(|index| {
            let will_do = has_port(index);
            will_do.then(|| self.draw(pool, index, side, protocol, generator)).flatten()
        })
    }

    // ---- blocks that somebody has ----

    fn hash(&self, subscriber: Host, pool: usize) -> u64 {
        self.key.hash(subscriber.bits(), 1 << 62 | pool as u64)
    }

    fn head(&self, subscriber: Host, pool: usize) -> Option<u32> {
        self.index.find(self.hash(subscriber, pool), |at| {
            let entry = &self.entries[at as usize];
            (entry.owner, entry.pool as usize) == (subscriber, pool)
        })
    }

    /// A subscriber's blocks of a pool.
    pub(crate) fn of(&self, subscriber: Host, pool: usize) -> impl Iterator<Item = u32> + Clone {
        core::iter::successors(self.head(subscriber, pool), |&block| {
            Some(self.entries[block as usize].next).filter(|&next| next != NONE)
        })
    }

    /// How many blocks of a pool a subscriber has, if any.
    pub(crate) fn owned(&self, subscriber: Host, pool: usize) -> Option<Owned> {
        let mut blocks = self.of(subscriber, pool);
        let first = blocks.next()?;
        Some(Owned { blocks: 1 + blocks.count() as u16, address: self.place_of(first).0 })
    }

    /// How many ports of a block are free for a protocol.
    pub(crate) fn free(&self, block: u32, protocol: usize) -> u32 {
        u32::from(self.entries[block as usize].free[protocol])
    }

    /// How many blocks of a pool one subscriber may have.
    pub(crate) fn max(&self, pool: usize) -> u16 {
        self.pool(pool).max
    }

    /// The ports of all blocks of an address of a pool on a side, first to last.
    pub(crate) fn ports_of_side(&self, pool: usize, side: usize) -> Option<(u16, u16)> {
        self.pool(pool).blocking.ports_of_side(side)
    }

    /// Whether addresses of a pool have blocks on a side.
    pub(crate) fn has_side(&self, pool: usize, side: usize) -> bool {
        self.pool(pool).blocking.sides[side].1 > 0
    }

    /// Gives a block that nobody has to a subscriber.
    pub(crate) fn assign(&mut self, block: u32, subscriber: Host) {
        debug_assert_eq!(self.entries[block as usize].owner, NOBODY);
        self.close(block);
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
    }

    /// The first tick after `now` at which a block is to be released.
    pub(crate) fn next_tick(&self, now: u32) -> Option<u32> {
        self.calendar.next(now + 1)
    }

    /// Takes from its subscriber one block that is due at a tick; returns both.
    pub(crate) fn release(&mut self, tick: u32) -> Option<(u32, Host)> {
        let block = self.calendar.head(tick);
        if block == NONE {
            return None;
        }
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
        let entry = &mut self.entries[block as usize];
        (entry.owner, entry.next) = (NOBODY, NONE);
        self.open(block);
        Some((block, owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AddressRange;
    use alloc::collections::BTreeMap;
    use core::net::Ipv4Addr;
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

    fn world(addresses: u32, ports: (u16, u16), release_after: u64) -> Blocks {
        let at = |off: u32| Ipv4Addr::from_bits(0xcb00_7100 + off);
        let block = BlockConfig {
            size: 16,
            max_per_subscriber: 4,
            release_after: core::time::Duration::from_secs(release_after),
        };
        let pool = PoolConfig {
            addresses: vec![AddressRange { first: at(0), last: at(addresses - 1) }],
            ports,
            allocation: Some(Allocation::Block(block)),
            ..PoolConfig::default()
        };
        let config = Config { pools: vec![pool], ..Config::default() };
        let key = HashKey::new(&mut Generator::new([1; 32]));
        let mut blocks =
            Blocks::new(&config, addresses as usize, key, |time| time.as_secs() as u32);
        blocks.settle(|_, _| [16; PROTOCOLS]);
        blocks
    }

    proptest! {
        /// Against a map from block to subscriber, while blocks come and go.
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
                        let open = || (0..blocks.entries.len() as u32)
                            .filter(|block| !owners.contains_key(block))
                            .filter(|block| blocks.bit(*block).2 == side);
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
                        // One of the subscriber's blocks becomes empty, if it is not.
                        let used = |block: &u32| blocks.entries[*block as usize].busy > 0;
                        let found = blocks.of(Host::new(1, subscriber), 0).find(used);
                        if let Some(block) = found {
                            let (index, (first, _)) = blocks.place_of(block);
                            blocks.freed(0, index, 1, first + 3, tick);
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
                // The lists have no gap: whoever draws from them looks at no address in vain.
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

    /// What is drawn is as likely one block as another.
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
