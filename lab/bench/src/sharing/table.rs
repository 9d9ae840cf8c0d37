//! A table of sessions that any number of workers use without a lock.
//!
//! The index has buckets of eight entries in a line: a fingerprint and the number of the session's
//! line. A search that meets a full bucket goes on in the next one. Entries fill the places of a
//! bucket in order and are never removed, so that two workers that make the same session at the
//! same time meet at the same free place, and one of them finds the other's entry. The packets from
//! outside find the session's line by an array over all external endpoints.

use super::meter::Meter;
use crate::frame::End;
use crate::random::Random;
use natgate_hugepages::prefetch;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Places of a bucket.
const PLACES: usize = 8;
/// Sessions for each bucket, if the table is full. Then 0.3 % of the sessions are not in their
/// first bucket.
const EACH: usize = 4;
/// Number of an address' ports; the first 1024 of them stay free.
const PORTS: u32 = 1 << 16;
const FIRST_PORT: u32 = 1024;
/// Ports of a word of the bitmap.
const WORD: u32 = u64::BITS;
/// Words that are drawn before the bitmap is searched in order.
const DRAWS: usize = 8;

#[repr(align(64))]
#[derive(Default)]
struct Bucket([AtomicU64; PLACES]);

/// A mapping and its session, in a line as those of the engine.
#[repr(align(64))]
#[derive(Default)]
struct Line {
    internal: AtomicU64,
    external: AtomicU64,
    remote: AtomicU64,
    /// Tick of the latest packet.
    used: AtomicU32,
}

const _: () = assert!(size_of::<Bucket>() == 64 && size_of::<Line>() == 64);

/// The table.
pub(super) struct Table {
    buckets: Vec<Bucket>,
    lines: Vec<Line>,
    /// For each external endpoint the number of its line plus one; 0: it has no line.
    by_external: Vec<AtomicU32>,
    /// A bit for each free external endpoint.
    free: Vec<AtomicU64>,
    first_address: u32,
}

/// Lines and random numbers with which one worker makes sessions.
pub(super) struct Maker {
    next: u32,
    end: u32,
    random: Random,
}

/// The endpoints of a session, with which a packet is rewritten.
#[derive(Clone, Copy, Default)]
pub(super) struct Session {
    pub(super) internal: End,
    pub(super) external: End,
    pub(super) remote: End,
}

impl Table {
    /// Creates a table of `sessions` sessions and so many addresses from `first_address` on.
    pub(super) fn new(sessions: usize, first_address: u32, addresses: u32) -> Self {
        let endpoints = (addresses * PORTS) as usize;
        let is_free = |word: u32| word * WORD % PORTS >= FIRST_PORT;
        let word = |word: u32| AtomicU64::new(if is_free(word) { u64::MAX } else { 0 });
        Self {
            buckets: filled(sessions.div_ceil(EACH) + 1),
            lines: filled(sessions),
            by_external: filled(endpoints),
            free: (0..addresses * PORTS / WORD).map(word).collect(),
            first_address,
        }
    }

    /// Number of lines.
    pub(super) fn capacity(&self) -> u32 {
        self.lines.len() as u32
    }

    /// Starts to fetch the bucket of a key.
    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        prefetch(&self.buckets, self.bucket(hash));
    }

    /// Starts to fetch the entry of an external endpoint.
    #[inline(always)]
    pub(super) fn prefetch_external(&self, external: End) {
        prefetch(&self.by_external, self.number(external) as usize);
    }

    /// The line whose entry in the first bucket of a hash has the same fingerprint. The caller has
    /// to compare the endpoint. [`Table::find_or_make`] finds sessions outside their first bucket.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u64, meter: &mut impl Meter) -> Option<u32> {
        let bucket = &self.buckets[self.bucket(hash)];
        meter.read(address_of(bucket));
        let entries = bucket.0.iter().map(|entry| entry.load(Ordering::Acquire));
        let is_like = |entry: &u64| *entry != 0 && fingerprint(hash) == entry >> 32;
        let found = entries.into_iter().find(is_like)?;
        let line = found as u32 - 1;
        prefetch(&self.lines, line as usize);
        Some(line)
    }

    /// Line of an external endpoint.
    #[inline(always)]
    pub(super) fn by_external(&self, external: End, meter: &mut impl Meter) -> Option<u32> {
        let entry = self.by_external.get(self.number(external) as usize)?;
        meter.read(address_of(entry));
        let line = entry.load(Ordering::Acquire).checked_sub(1)?;
        prefetch(&self.lines, line as usize);
        Some(line)
    }

    /// Session of a line, which a packet uses at a tick.
    #[inline(always)]
    pub(super) fn session(&self, line: u32, now: u32, meter: &mut impl Meter) -> Session {
        let line = &self.lines[line as usize];
        meter.read(address_of(line));
        // Other workers may have the line, so it is written once a tick.
        if line.used.load(Ordering::Relaxed) < now {
            line.used.store(now, Ordering::Relaxed);
            meter.write(address_of(line));
        }
        let end = |word: &AtomicU64| unpacked(word.load(Ordering::Relaxed));
        Session {
            internal: end(&line.internal),
            external: end(&line.external),
            remote: end(&line.remote),
        }
    }

    /// All sessions: internal and external endpoint.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (End, End)> {
        let end = |word: &AtomicU64| unpacked(word.load(Ordering::Relaxed));
        let made = self.lines.iter().filter(|line| line.internal.load(Ordering::Relaxed) != 0);
        made.map(move |line| (end(&line.internal), end(&line.external)))
    }

    /// Line of an internal endpoint, which is made if there is none; `None`: the table is full.
    #[cold]
    pub(super) fn find_or_make(
        &self,
        (internal, remote): (End, End),
        hash: u64,
        maker: &mut Maker,
        meter: &mut impl Meter,
    ) -> Option<u32> {
        if let Err(line) = self.search(internal, hash, None, meter)? {
            return Some(line);
        }
        let number = maker.next;
        if number == maker.end {
            return None;
        }
        let endpoint = self.take_port(&mut maker.random, meter)?;
        let line = &self.lines[number as usize];
        meter.write(address_of(line));
        line.external.store(packed(self.endpoint(endpoint)), Ordering::Relaxed);
        line.remote.store(packed(remote), Ordering::Relaxed);
        line.internal.store(packed(internal), Ordering::Relaxed);
        if let Err(found) = self.search(internal, hash, Some(number), meter)? {
            // Another worker was earlier.
            line.internal.store(0, Ordering::Relaxed);
            self.free_word(endpoint, meter).fetch_or(bit(endpoint), Ordering::Relaxed);
            return Some(found);
        }
        maker.next += 1;
        let entry = &self.by_external[endpoint as usize];
        meter.write(address_of(entry));
        entry.store(number + 1, Ordering::Release);
        Some(number)
    }

    /// Searches an internal endpoint: `Err` has its line. At the first free place, the search puts
    /// the line `new` there, or stops if there is none. `None`: every place is in use.
    fn search(
        &self,
        internal: End,
        hash: u64,
        new: Option<u32>,
        meter: &mut impl Meter,
    ) -> Option<Result<(), u32>> {
        let first = self.bucket(hash);
        let wanted = packed(internal);
        let others = (first..self.buckets.len()).chain(0..first);
        for bucket in others.map(|at| &self.buckets[at]) {
            meter.read(address_of(bucket));
            for place in &bucket.0 {
                let mut entry = place.load(Ordering::Acquire);
                if entry == 0 {
                    let Some(new) = new else { return Some(Ok(())) };
                    meter.write(address_of(bucket));
                    let own = fingerprint(hash) << 32 | u64::from(new + 1);
                    let swap = (Ordering::AcqRel, Ordering::Acquire);
                    match place.compare_exchange(0, own, swap.0, swap.1) {
                        Ok(_) => return Some(Ok(())),
                        Err(found) => entry = found,
                    }
                }
                let line = entry as u32 - 1;
                if entry >> 32 == fingerprint(hash) && self.has(line, wanted, meter) {
                    return Some(Err(line));
                }
            }
        }
        None
    }

    fn has(&self, line: u32, internal: u64, meter: &mut impl Meter) -> bool {
        let line = &self.lines[line as usize];
        meter.read(address_of(line));
        line.internal.load(Ordering::Relaxed) == internal
    }

    /// Takes a random free endpoint.
    fn take_port(&self, random: &mut Random, meter: &mut impl Meter) -> Option<u32> {
        let words = self.free.len() as u64;
        let draw = |_| random.below(words) as usize;
        let mut drawn: Vec<usize> = (0..DRAWS).map(draw).collect();
        let last = drawn.pop().unwrap_or_default();
        let all = drawn.into_iter().chain(last..self.free.len()).chain(0..last);
        for at in all {
            let word = &self.free[at];
            let mut free = word.load(Ordering::Relaxed);
            meter.read(address_of(word));
            while free != 0 {
                let bit = free & free.wrapping_neg();
                meter.write(address_of(word));
                free = word.fetch_and(!bit, Ordering::Relaxed);
                if free & bit != 0 {
                    return Some(at as u32 * WORD + bit.trailing_zeros());
                }
            }
        }
        None
    }

    fn free_word(&self, endpoint: u32, meter: &mut impl Meter) -> &AtomicU64 {
        let word = &self.free[(endpoint / WORD) as usize];
        meter.write(address_of(word));
        word
    }

    fn bucket(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    fn number(&self, (address, port): End) -> u32 {
        let address = address.wrapping_sub(self.first_address);
        address.saturating_mul(PORTS).saturating_add(port.into())
    }

    fn endpoint(&self, number: u32) -> End {
        (self.first_address + number / PORTS, (number % PORTS) as u16)
    }
}

impl Maker {
    /// Worker `number` of `workers` that make sessions in a table.
    pub(super) fn new(table: &Table, number: usize, workers: usize) -> Self {
        let part = table.capacity() / workers as u32;
        let next = number as u32 * part;
        Self { next, end: next + part, random: Random::new(number as u64 * 0x9e37 + 3) }
    }
}

/// Hash of an internal endpoint.
#[inline(always)]
pub(super) fn hash(internal: End) -> u64 {
    let mut mixed = packed(internal);
    for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
        mixed = mixed.wrapping_mul(factor);
        mixed ^= mixed >> 29;
    }
    mixed
}

/// The low 32 bits of a hash. The high bits choose the bucket.
#[inline(always)]
fn fingerprint(hash: u64) -> u64 {
    hash & u64::from(u32::MAX)
}

fn bit(endpoint: u32) -> u64 {
    1 << (endpoint % WORD)
}

fn packed((address, port): End) -> u64 {
    u64::from(address) << 16 | u64::from(port)
}

fn unpacked(word: u64) -> End {
    ((word >> 16) as u32, word as u16)
}

fn filled<T: Default>(count: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(count);
    all.resize_with(count, T::default);
    all
}

/// Address of something in memory.
#[inline(always)]
pub(super) fn address_of<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

#[cfg(test)]
mod tests {
    use super::super::meter::Unmetered;
    use super::*;
    use std::collections::HashSet;

    const SESSIONS: u32 = 20_000;

    fn internal(session: u32) -> End {
        (0x0a00_0000 + session / 7, 1024 + (session % 7) as u16)
    }

    #[test]
    fn workers_that_make_the_same_sessions_at_once_agree() {
        let workers = 4;
        let table = &Table::new(SESSIONS as usize * workers, 0xc000_0200, 2);
        std::thread::scope(|scope| {
            for number in 0..workers {
                scope.spawn(move || {
                    let mut maker = Maker::new(table, number, workers);
                    for session in 0..SESSIONS {
                        let ends = (internal(session), (1, 1));
                        let line = table
                            .find_or_make(ends, hash(ends.0), &mut maker, &mut Unmetered)
                            .expect("there is room");
                        assert_eq!(table.session(line, 1, &mut Unmetered).internal, ends.0);
                    }
                });
            }
        });
        let sessions: Vec<_> = table.sessions().collect();
        let hosts: HashSet<End> = sessions.iter().map(|session| session.0).collect();
        let externals: HashSet<End> = sessions.iter().map(|session| session.1).collect();
        assert_eq!((sessions.len(), hosts.len(), externals.len()), (20_000, 20_000, 20_000));
        assert!(externals.iter().all(|end| end.1 >= 1024));
        let taken: u32 =
            table.free.iter().map(|word| word.load(Ordering::Relaxed).count_zeros()).sum();
        assert_eq!(taken, SESSIONS + 2 * FIRST_PORT, "no port is lost");
        for (inside, outside) in sessions {
            let line = table.by_external(outside, &mut Unmetered).expect("a line");
            assert_eq!(table.session(line, 1, &mut Unmetered).internal, inside);
        }
    }

    #[test]
    fn a_full_table_makes_no_session() {
        let table = Table::new(10, 1, 1);
        let mut maker = Maker::new(&table, 0, 1);
        let mut make = |session: u32| {
            let end = (session, 1);
            table.find_or_make((end, (1, 1)), hash(end), &mut maker, &mut Unmetered)
        };
        assert!((1..=10).all(|session| make(session).is_some()));
        assert!(make(11).is_none() && make(1).is_some());
    }
}
