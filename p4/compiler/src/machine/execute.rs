//! Interface between a program's control plane and an executor of the program.
//!
//! [`super::Machine`] knows names; the executor uses the program's numbers. The interpreter is one
//! executor, code generated from the program another.

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

/// Most bytes of headers that packets usually leave with.
pub(crate) const USUAL_HEAD: usize = 256;

/// Unit of timeouts, nanoseconds.
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// The longest timeout, milliseconds: more than 24 days.
pub(crate) const LONGEST_TIMEOUT: u32 = (1 << 31) - 1;

/// Default timeout of a profile, milliseconds.
const USUAL_TIMEOUT: u32 = 120_000;

/// An executor of a program, with its tables and the state of its objects. Several threads may use
/// it one after the other.
pub trait Execute: Debug + Send {
    /// Processes a packet that came in by a port. Writes the new headers of the packet into `head`,
    /// which is empty at first.
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict;

    /// Processes frames that came in by a port in place, and writes their fates. The result equals
    /// that of one frame after the other.
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
    /// If there is no such table.
    fn table(&self, number: usize) -> &dyn Store;

    /// The entries of the table with that number, mutable.
    ///
    /// # Panics
    ///
    /// If there is no such table.
    fn table_mut(&mut self, number: usize) -> &mut dyn Store;

    /// Packets and bytes of a counter; zero if the object is no counter.
    fn counter(&self, object: usize, index: u32) -> (u64, u64);

    /// Sets a counter's packets and bytes; returns false if the object is no array of counters of
    /// that size.
    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool;

    /// Rates at an index of the object with that number; `None` if there are none.
    fn meter(&self, object: usize, index: u32) -> Option<Rates>;

    /// Sets or removes the meter at an index of the object with that number; returns false if that
    /// is no array of meters of that size.
    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool;

    /// Resets counters, meters and registers.
    fn clear(&mut self);
}

/// Processes frames that came in by a port, one after the other.
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

/// Storage of a table's entries.
pub trait Store: Debug {
    /// Adds or replaces an entry; returns true if there was room.
    fn insert(
        &mut self,
        now: u64,
        keys: &[Match],
        action: usize,
        args: &[u128],
        priority: u32,
    ) -> bool;

    /// Removes an entry; returns true if it existed.
    fn remove(&mut self, keys: &[Match]) -> bool;

    /// Number of entries at a time.
    fn count(&self, now: u64) -> usize;

    /// Entries at a time, in the order of their keys.
    fn list(&self, now: u64) -> Vec<Listed>;

    /// Entry with these keys at a time.
    fn get(&self, now: u64, keys: &[Match]) -> Option<Listed>;

    /// The first `most` entries at a time, behind some keys or from the beginning, in the order of
    /// their keys.
    fn page(&self, now: u64, after: Option<&[Match]>, most: usize) -> Vec<Listed> {
        let is_behind = |one: &Listed| after.is_none_or(|after| &*one.keys > after);
        self.list(now).into_iter().filter(is_behind).take(most).collect()
    }

    /// Removes all entries.
    fn clear(&mut self);

    /// Action for keys without an entry: its number and arguments.
    fn default(&self) -> (usize, Vec<u128>);

    /// Sets the action for keys without an entry.
    fn set_default(&mut self, action: usize, args: &[u128]);
}

/// An entry that was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Match of each key.
    pub keys: Vec<Match>,
    /// Number of the action in the table's list.
    pub action: usize,
    /// Arguments of the action.
    pub args: Vec<u128>,
    /// Priority: the highest of several matching entries wins, if keys have masks.
    pub priority: u32,
    /// True if a packet added the entry.
    pub is_learnt: bool,
    /// Time at which the entry is removed unless packets match it, nanoseconds; `None` if it stays.
    pub deadline: Option<u64>,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Port of the packet; `None` if it is dropped.
    pub port: Option<u32>,
    /// Bytes that were parsed; the bytes behind them follow the new headers.
    pub taken: usize,
}

/// Shared state of execution and the control plane: time, timeouts, messages.
#[derive(Debug)]
pub struct World {
    now: u64,
    /// Latest tick of timers.
    tick: Tick,
    /// Timeouts by profile, milliseconds.
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

    /// Time, nanoseconds since some beginning.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Latest tick of timers.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Sets the time; it does not go back.
    pub(super) fn pass(&mut self, now: Duration) {
        self.now = self.now.max(nanoseconds(now));
        self.tick = Tick::at(self.now);
    }

    /// Timeout of a profile, milliseconds.
    #[inline]
    pub fn timeout(&self, profile: u128) -> u32 {
        let profile = usize::try_from(profile).unwrap_or(usize::MAX);
        self.timeouts.get(profile).copied().unwrap_or(USUAL_TIMEOUT)
    }

    pub(super) fn set_timeout(&mut self, profile: u8, timeout: Duration) {
        let whole = nanoseconds(timeout).div_ceil(MILLISECOND).min(LONGEST_TIMEOUT.into());
        self.timeouts[usize::from(profile)] = whole as u32;
    }

    /// Adds a message for the control plane: the digest's number, and its fields. If
    /// [`MOST_DIGESTS`] wait, the message is dropped.
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
    // The largest value means that there is no time.
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
