//! Two kinds of runs through a program: one executes it, the other only prefetches the memory that
//! the execution will read.
//!
//! A program processes packets strictly one after the other, and with many entries its tables are
//! not in the caches: each packet would wait for memory, several times. So programs are divided at
//! the first look-up in a large table, or earlier, so that neither half touches data that the other
//! one changes. A group of packets runs through the first half. Then each packet runs ahead through
//! the second half without any effect, up to the first look-up in a large table, whose line is
//! fetched. When all packets of the group have reached that point, each runs through this look-up
//! to the next one; and so on. Data found ahead may have changed when the packet is executed. Then
//! a line was fetched in vain.

use super::{
    Action, Counters, Exact, Fate, Frame, LookupResult, Meters, Packed, Place, Random, Registers,
    Stop, Tick, Verdict, World,
};
use crate::machine::execute::USUAL_HEAD;
use std::fmt::Debug;
use std::ops::BitXor;

/// Most packets that run ahead together.
const GROUP: usize = 16;

/// Most consecutive look-ups whose lines are fetched.
const MOST_FOUND: u32 = 4;

/// Operations of a program on its tables and objects.
pub trait Pass {
    /// True for the run without effects.
    const IS_AHEAD: bool;

    /// Looks a key up. `more` says that the program may continue to further data that is worth
    /// fetching.
    ///
    /// # Errors
    ///
    /// The run ends here.
    fn find<K: Packed, A: Action>(
        &mut self,
        table: &Exact<K, A>,
        tick: Tick,
        key: K,
        more: bool,
    ) -> Result<(LookupResult<A>, Place), Stop>;

    /// Continues; `more` says that data worth fetching may follow.
    ///
    /// # Errors
    ///
    /// The run ends here.
    fn rest(&self, more: bool) -> Result<(), Stop>;

    /// Adds an entry, like [`Exact::add`].
    fn add<K: Packed, A: Action>(
        &mut self,
        table: &mut Exact<K, A>,
        now: u64,
        key: K,
        action: A,
        timeout: u32,
    ) -> Place;

    /// Changes an entry's timeout, like [`Exact::set_timeout`].
    fn set_timeout<K: Packed, A: Action>(
        &mut self,
        table: &mut Exact<K, A>,
        place: Place,
        timeout: u32,
    );

    /// Restarts an entry's timer, like [`Exact::restart`].
    fn restart<K: Packed, A: Action>(&mut self, table: &mut Exact<K, A>, now: u64, place: Place);

    /// Counts a packet, like [`Counters::count`].
    fn count(&mut self, counters: &mut Counters, index: u128, bytes: u128);

    /// Colour of a packet, like [`Meters::colour`].
    fn colour(
        &mut self,
        meters: &mut Meters,
        now: u64,
        index: u128,
        before: u128,
        length: u128,
    ) -> u128;

    /// Reads a register, like [`Registers::read`].
    fn read<T: Cell>(&mut self, registers: &Registers<T>, index: u128) -> T;

    /// Writes a register, like [`Registers::write`].
    fn write<T: Cell>(&mut self, registers: &mut Registers<T>, index: u128, value: T);

    /// Random number, like [`Random::next`].
    fn next(&mut self, random: &mut Random, least: u128, most: u128) -> u128;
}

/// Value of a register.
pub trait Cell: BitXor<Output = Self> + Copy + Default + Debug {}

impl<T: BitXor<Output = T> + Copy + Default + Debug> Cell for T {}

/// Executes the program.
#[derive(Clone, Copy, Debug)]
pub struct Work;

impl Pass for Work {
    const IS_AHEAD: bool = false;

    #[inline(always)]
    fn find<K: Packed, A: Action>(
        &mut self,
        table: &Exact<K, A>,
        tick: Tick,
        key: K,
        _: bool,
    ) -> Result<(LookupResult<A>, Place), Stop> {
        Ok(table.find(tick, key))
    }

    #[inline(always)]
    fn rest(&self, _: bool) -> Result<(), Stop> {
        Ok(())
    }

    #[inline(always)]
    fn add<K: Packed, A: Action>(
        &mut self,
        table: &mut Exact<K, A>,
        now: u64,
        key: K,
        action: A,
        timeout: u32,
    ) -> Place {
        table.add(now, key, action, timeout)
    }

    #[inline(always)]
    fn set_timeout<K: Packed, A: Action>(
        &mut self,
        table: &mut Exact<K, A>,
        place: Place,
        timeout: u32,
    ) {
        table.set_timeout(place, timeout);
    }

    #[inline(always)]
    fn restart<K: Packed, A: Action>(&mut self, table: &mut Exact<K, A>, now: u64, place: Place) {
        table.restart(now, place);
    }

    #[inline(always)]
    fn count(&mut self, counters: &mut Counters, index: u128, bytes: u128) {
        counters.count(index, bytes);
    }

    #[inline(always)]
    fn colour(
        &mut self,
        meters: &mut Meters,
        now: u64,
        index: u128,
        before: u128,
        length: u128,
    ) -> u128 {
        meters.colour(now, index, before, length)
    }

    #[inline(always)]
    fn read<T: Cell>(&mut self, registers: &Registers<T>, index: u128) -> T {
        registers.read(index)
    }

    #[inline(always)]
    fn write<T: Cell>(&mut self, registers: &mut Registers<T>, index: u128, value: T) {
        registers.write(index, value);
    }

    #[inline(always)]
    fn next(&mut self, random: &mut Random, least: u128, most: u128) -> u128 {
        random.next(least, most)
    }
}

/// Prefetches, and changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// Number of look-ups in large tables whose lines were fetched before.
    found: u32,
}

impl Ahead {
    /// A run with the lines of `found` look-ups fetched before.
    #[inline(always)]
    pub fn new(found: u32) -> Self {
        Self { found }
    }
}

impl Pass for Ahead {
    const IS_AHEAD: bool = true;

    #[inline(always)]
    fn find<K: Packed, A: Action>(
        &mut self,
        table: &Exact<K, A>,
        tick: Tick,
        key: K,
        more: bool,
    ) -> Result<(LookupResult<A>, Place), Stop> {
        if table.is_large() {
            let Some(left) = self.found.checked_sub(1) else {
                table.fetch(key);
                return Err(Stop::Ahead { more });
            };
            self.found = left;
        }
        Ok(table.find(tick, key))
    }

    #[inline(always)]
    fn rest(&self, more: bool) -> Result<(), Stop> {
        if more { Ok(()) } else { Err(Stop::Ahead { more }) }
    }

    #[inline(always)]
    fn add<K: Packed, A: Action>(
        &mut self,
        _: &mut Exact<K, A>,
        _: u64,
        _: K,
        _: A,
        _: u32,
    ) -> Place {
        None
    }

    #[inline(always)]
    fn set_timeout<K: Packed, A: Action>(&mut self, _: &mut Exact<K, A>, _: Place, _: u32) {}

    #[inline(always)]
    fn restart<K: Packed, A: Action>(&mut self, _: &mut Exact<K, A>, _: u64, _: Place) {}

    #[inline(always)]
    fn count(&mut self, counters: &mut Counters, index: u128, _: u128) {
        counters.fetch(index);
    }

    #[inline(always)]
    fn colour(&mut self, _: &mut Meters, _: u64, _: u128, before: u128, _: u128) -> u128 {
        before
    }

    /// The run does not wait for the register's value: it uses the initial value instead.
    #[inline(always)]
    fn read<T: Cell>(&mut self, registers: &Registers<T>, index: u128) -> T {
        registers.fetch(index);
        registers.initial()
    }

    #[inline(always)]
    fn write<T: Cell>(&mut self, registers: &mut Registers<T>, index: u128, _: T) {
        registers.fetch(index);
    }

    #[inline(always)]
    fn next(&mut self, _: &mut Random, least: u128, _: u128) -> u128 {
        least
    }
}

/// A program in two halves; neither touches data that the other one changes.
pub trait Halves {
    /// State of a packet for the second half.
    type PacketState: Default;

    /// Runs a packet that came in by a port through the first half.
    fn begin(&mut self, world: &mut World, port: u32, packet: &[u8], kept: &mut Self::PacketState);

    /// Prefetches the next look-up of the second half, after `found` look-ups; returns true if
    /// there may be more.
    fn fetch(
        &mut self,
        world: &mut World,
        packet: &[u8],
        kept: &Self::PacketState,
        found: u32,
    ) -> bool;

    /// Runs the packet through the second half. Writes the new headers of the packet into `head`,
    /// which is empty at first.
    fn finish(
        &mut self,
        world: &mut World,
        packet: &[u8],
        kept: &Self::PacketState,
        head: &mut Vec<u8>,
    ) -> Verdict;
}

/// Runs frames that came in by a port through a program, group by group; writes their fates.
#[inline(always)]
pub fn in_halves<H: Halves>(
    halves: &mut H,
    world: &mut World,
    port: u32,
    frames: &mut [Frame<'_>],
    fates: &mut [Fate],
) {
    let mut head = Vec::with_capacity(USUAL_HEAD);
    // For each packet: true if it still runs ahead, and its state.
    let mut group: Vec<(bool, H::PacketState)> = (0..GROUP).map(|_| Default::default()).collect();
    for (frames, fates) in frames.chunks_mut(GROUP).zip(fates.chunks_mut(GROUP)) {
        for (frame, (is_waiting, kept)) in frames.iter().zip(&mut group) {
            halves.begin(world, port, frame.bytes(), kept);
            *is_waiting = halves.fetch(world, frame.bytes(), kept, 0);
        }
        for found in 1..MOST_FOUND {
            let mut are_some_waiting = false;
            for (frame, (is_waiting, kept)) in frames.iter().zip(&mut group) {
                *is_waiting = *is_waiting && halves.fetch(world, frame.bytes(), kept, found);
                are_some_waiting |= *is_waiting;
            }
            if !are_some_waiting {
                break;
            }
        }
        for ((frame, fate), (_, kept)) in frames.iter_mut().zip(fates).zip(&group) {
            head.clear();
            let verdict = halves.finish(world, frame.bytes(), kept, &mut head);
            *fate = Fate::of(verdict, &head, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::Store;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct To(u32);

    impl Action for To {
        fn of(_: usize, args: &[u128]) -> Self {
            Self(args[0] as u32)
        }

        fn number(&self) -> usize {
            0
        }

        fn args(&self) -> Vec<u128> {
            vec![self.0.into()]
        }
    }

    /// A table with `entries` entries; the keys are numbers from zero on.
    fn table(entries: u32) -> Exact<u64, To> {
        let mut table = Exact::new(&[32], 1 << 20, true, To(0));
        for number in 0..entries {
            table.add(0, number.into(), To(number + 1), 1000);
        }
        table
    }

    fn found(pass: &mut impl Pass, table: &Exact<u64, To>, more: bool) -> Result<To, Stop> {
        pass.find(table, Tick::default(), 7, more).map(|(found, _)| found.action)
    }

    #[test]
    fn the_way_ahead_ends_at_the_first_line_that_was_not_fetched() {
        let (small, large) = (table(100), table(21_000));
        assert!(!small.is_large() && large.is_large());
        let end = |more| Err(Stop::Ahead { more });
        for (before, expected) in [(0, end(true)), (1, end(true)), (2, Ok(To(8)))] {
            let mut pass = Ahead::new(before);
            assert_eq!(found(&mut pass, &small, true), Ok(To(8)));
            let first = found(&mut pass, &large, true);
            assert_eq!(first.and_then(|_| found(&mut pass, &large, true)), expected);
        }
        assert_eq!(found(&mut Ahead::new(0), &large, false), end(false));
        assert_eq!(found(&mut Work, &large, true), Ok(To(8)));
        assert_eq!(
            (Ahead::new(0).rest(true), Ahead::new(0).rest(false)),
            (Ok(()), Err(Stop::Ahead { more: false }))
        );
        assert_eq!(Work.rest(false), Ok(()));
    }

    #[test]
    fn the_way_ahead_changes_nothing() {
        let (mut table, mut counters) = (table(10), Counters::new(4, u64::MAX));
        let (mut registers, mut meters) = (Registers::new(4, 5_u32), Meters::new(4, true));
        let before = table.list(0);
        let (_, place) = table.find(Tick::default(), 7);
        let mut pass = Ahead::new(0);
        assert_eq!(pass.add(&mut table, 0, 99, To(1), 5), None);
        pass.set_timeout(&mut table, place, 5);
        pass.restart(&mut table, 3_000_000_000, place);
        pass.count(&mut counters, 1, 2);
        pass.write(&mut registers, 1, 9);
        assert_eq!(pass.read(&registers, 1), 5);
        assert_eq!(pass.colour(&mut meters, 0, 1, 2, 64), 2);
        assert_eq!((counters.read(1), registers.read(1)), ((0, 0), 5));
        assert_eq!(table.list(0), before);
        let (mut one, mut other) = (Random::new(3), Random::new(3));
        assert_eq!(pass.next(&mut one, 4, 90), 4);
        assert_eq!(one.next(0, 1 << 40), other.next(0, 1 << 40));
    }

    /// Records operations on packets; each packet requests a number of further look-ups.
    #[derive(Default)]
    struct Asking {
        seen: Vec<(char, u8, u32)>,
    }

    impl Halves for Asking {
        type PacketState = u8;

        fn begin(&mut self, _: &mut World, port: u32, packet: &[u8], kept: &mut u8) {
            self.seen.push(('b', packet[0], port));
            *kept = packet[0];
        }

        fn fetch(&mut self, _: &mut World, _: &[u8], kept: &u8, found: u32) -> bool {
            self.seen.push(('f', *kept, found));
            found < (*kept).into()
        }

        fn finish(
            &mut self,
            _: &mut World,
            packet: &[u8],
            kept: &u8,
            head: &mut Vec<u8>,
        ) -> Verdict {
            self.seen.push(('e', *kept, 0));
            head.push(packet[0] + 100);
            Verdict { port: Some(7), taken: 1 }
        }
    }

    fn seen(packets: &[u8]) -> Vec<(char, u8, u32)> {
        let (mut asking, mut world) = (Asking::default(), World::new());
        let mut buffers: Vec<[u8; 2]> = packets.iter().map(|packet| [0, *packet]).collect();
        let mut frames: Vec<Frame<'_>> =
            buffers.iter_mut().map(|buffer| Frame::of(buffer, 1, 2)).collect();
        let mut fates = vec![Fate::Dropped; packets.len()];
        in_halves(&mut asking, &mut world, 3, &mut frames, &mut fates);
        assert!(fates.iter().all(|fate| *fate == Fate::Sent { port: 7, start: 1 }));
        assert!(frames.iter().zip(packets).all(|(frame, packet)| frame.bytes() == [packet + 100]));
        asking.seen
    }

    #[test]
    fn packets_go_on_as_long_as_there_is_more() {
        let (begin, fetch) = (|one| ('b', one, 3), |one, found| ('f', one, found));
        let first = [begin(0), fetch(0, 0), begin(2), fetch(2, 0), begin(1), fetch(1, 0)];
        let more = [fetch(2, 1), fetch(1, 1), fetch(2, 2)];
        let last = [('e', 0, 0), ('e', 2, 0), ('e', 1, 0)];
        assert_eq!(seen(&[0, 2, 1]), [&first[..], &more, &last].concat());
        let fetched = seen(&[9]).iter().filter(|(what, ..)| *what == 'f').count();
        assert_eq!(fetched as u32, MOST_FOUND, "it ends");
        let groups = seen(&[0; GROUP + 1]);
        assert_eq!(groups[groups.len() - 3..], [begin(0), fetch(0, 0), ('e', 0, 0)]);
    }
}
