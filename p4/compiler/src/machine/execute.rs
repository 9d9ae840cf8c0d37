//! The seam between a program's control plane and what executes the program.
//!
//! [`super::Machine`] knows names; behind it, everything goes by the program's numbers. The
//! interpreter is one that executes, code that was made from the program another.

use super::Fate;
use super::externs::{Meter, Rates};
use super::table::Tick;
use crate::ir::Match;
use natgate_io::Frame;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

/// Most digests that wait for the control plane.
const MOST_DIGESTS: usize = 1024;

/// Bytes of headers that packets usually leave with, at most.
pub(crate) const USUAL_HEAD: usize = 256;

/// What timeouts are counted in, nanoseconds.
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// The longest timeout, milliseconds: more than 24 days.
pub(crate) const LONGEST_TIMEOUT: u32 = (1 << 31) - 1;

/// How long entries stay if nothing is said of their profile, milliseconds.
const USUAL_TIMEOUT: u32 = 120_000;

/// Executes a program, and keeps its tables and what its objects remember.
pub trait Execute: Debug {
    /// Takes a packet that came in by a port. What it begins with when it leaves is put into
    /// `head`, which is empty.
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict;

    /// Takes frames that came in by a port where they lie; what becomes of each. It is the same as
    /// one after the other.
    fn forward_all(
        &mut self,
        world: &mut World,
        port: u32,
        frames: &mut [Frame<'_>],
        fates: &mut [Fate],
    ) {
        one_by_one(self, world, port, frames, fates);
    }

    /// The entries of the table with that number.
    ///
    /// # Panics
    ///
    /// When there is none.
    fn table(&self, number: usize) -> &dyn Store;

    /// The entries of the table with that number, to change.
    ///
    /// # Panics
    ///
    /// When there is none.
    fn table_mut(&mut self, number: usize) -> &mut dyn Store;

    /// Packets and bytes of a counter; none, if the object with that number is no counter.
    fn counter(&self, object: usize, index: u32) -> (u64, u64);

    /// Sets a counter's packets and bytes, if the object with that number is an array of counters
    /// that large.
    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool;

    /// The rates at a place of the object with that number; nothing, if there are none.
    fn meter(&self, object: usize, index: u32) -> Option<Rates>;

    /// Puts a meter at a place of the object with that number, or takes it away, if that is an
    /// array of meters that large.
    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool;

    /// Makes counters, meters and registers as they were at the start.
    fn clear(&mut self);
}

/// Takes frames that came in by a port through a program, one after the other.
pub fn one_by_one<E: Execute + ?Sized>(
    execute: &mut E,
    world: &mut World,
    port: u32,
    frames: &mut [Frame<'_>],
    fates: &mut [Fate],
) {
    let mut head = Vec::with_capacity(USUAL_HEAD);
    for (frame, fate) in frames.iter_mut().zip(fates) {
        head.clear();
        let verdict = execute.process(world, port, frame.bytes(), &mut head);
        *fate = Fate::of(verdict, &head, frame);
    }
}

/// What keeps a table's entries.
pub trait Store: Debug {
    /// Adds or replaces an entry; whether there was room.
    fn insert(
        &mut self,
        now: u64,
        keys: &[Match],
        action: usize,
        args: &[u128],
        priority: u32,
    ) -> bool;

    /// Removes an entry; whether it was there.
    fn remove(&mut self, keys: &[Match]) -> bool;

    /// How many there are at that time.
    fn count(&self, now: u64) -> usize;

    /// Those that there are at that time, in the order of their keys.
    fn list(&self, now: u64) -> Vec<Listed>;

    /// The entry with these keys, if there is one at that time.
    fn get(&self, now: u64, keys: &[Match]) -> Option<Listed>;

    /// The first so many of those that there are at that time behind some keys, or of all, in the
    /// order of their keys.
    fn page(&self, now: u64, after: Option<&[Match]>, most: usize) -> Vec<Listed> {
        let is_behind = |one: &Listed| after.is_none_or(|after| &*one.keys > after);
        self.list(now).into_iter().filter(is_behind).take(most).collect()
    }

    /// Removes all entries.
    fn clear(&mut self);

    /// What is done with keys that are not there: an action's number and its arguments.
    fn default(&self) -> (usize, Vec<u128>);

    /// What is done with keys that are not there.
    fn set_default(&mut self, action: usize, args: &[u128]);
}

/// An entry that is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// What it asks of each key.
    pub keys: Vec<Match>,
    /// The number of its action in the table's list.
    pub action: usize,
    /// The action's arguments.
    pub args: Vec<u128>,
    /// Of several that fit the highest wins, where keys have masks.
    pub priority: u32,
    /// Whether a packet added it.
    pub is_learnt: bool,
    /// When it goes unless packets find it, nanoseconds; nothing, if it stays.
    pub deadline: Option<u64>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// By which port; `None`: nowhere.
    pub port: Option<u32>,
    /// So many bytes were read; what is behind them follows the new head.
    pub taken: usize,
}

/// What executing shares with the control plane: time, timeouts, messages.
#[derive(Debug)]
pub struct World {
    now: u64,
    /// The latest tick of timers.
    tick: Tick,
    /// By profile, milliseconds.
    timeouts: Box<[u32; 256]>,
    digests: VecDeque<(usize, Vec<u128>)>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: 0,
            tick: Tick::default(),
            timeouts: Box::new([USUAL_TIMEOUT; 256]),
            digests: VecDeque::new(),
        }
    }

    /// The time, nanoseconds since some beginning.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The latest tick of timers.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Time passes; it does not go back.
    pub(super) fn pass(&mut self, now: Duration) {
        self.now = self.now.max(nanoseconds(now));
        self.tick = Tick::at(self.now);
    }

    /// How long entries of a profile stay, milliseconds.
    #[inline]
    pub fn timeout(&self, profile: u128) -> u32 {
        let profile = usize::try_from(profile).unwrap_or(usize::MAX);
        self.timeouts.get(profile).copied().unwrap_or(USUAL_TIMEOUT)
    }

    pub(super) fn set_timeout(&mut self, profile: u8, timeout: Duration) {
        let whole = nanoseconds(timeout).div_ceil(MILLISECOND).min(LONGEST_TIMEOUT.into());
        self.timeouts[usize::from(profile)] = whole as u32;
    }

    /// Leaves a message for the control plane: the digest's number, and its fields. Once
    /// [`MOST_DIGESTS`] wait, further ones are dropped.
    pub fn tell(&mut self, object: usize, values: Vec<u128>) {
        if self.digests.len() < MOST_DIGESTS {
            self.digests.push_back((object, values));
        }
    }

    /// Forgets messages.
    pub(super) fn clear(&mut self) {
        self.digests.clear();
    }

    pub(super) fn told(&mut self) -> Option<(usize, Vec<u128>)> {
        self.digests.pop_front()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    // The largest is left for what has no time.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_whole_milliseconds_and_end() {
        let mut world = World::new();
        assert_eq!((world.timeout(3), world.timeout(256)), (120_000, 120_000));
        for (given, kept) in [
            (Duration::from_micros(1500), 2),
            (Duration::from_secs(300), 300_000),
            (Duration::from_secs((1 << 21) - 1), ((1 << 21) - 1) * 1000),
            (Duration::MAX, LONGEST_TIMEOUT),
        ] {
            world.set_timeout(3, given);
            assert_eq!(world.timeout(3), kept, "{given:?}");
        }
    }
}
