//! Cache lines that workers touch. A measurement of time uses [`Unmetered`], which costs nothing. A
//! count uses [`Caches`]: the private caches of all cores, and the lines that move between them.

use hashbrown::HashMap;
use serde::Serialize;

/// Bytes of a line.
const LINE: usize = 64;
/// Lines of a set. A line can be in one set alone.
const WAYS: usize = 16;
/// Sets of a private cache: one MiB, as the second-level cache of the measured machine.
const SETS: usize = 1024;

/// Sees the accesses of a worker to memory.
pub(super) trait Meter {
    fn read(&mut self, address: usize);
    fn write(&mut self, address: usize);
}

/// Sees nothing.
pub(super) struct Unmetered;

impl Meter for Unmetered {
    #[inline(always)]
    fn read(&mut self, _: usize) {}
    #[inline(always)]
    fn write(&mut self, _: usize) {}
}

/// Lines that moved. Each figure is a number of lines, or of lines a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Moved {
    /// Lines from memory or from the cache that all cores share.
    pub(super) fetched: f64,
    /// Lines from the cache of another core, which wrote them last.
    pub(super) from_others: f64,
    /// Writes that first take the line away from the caches of other cores.
    pub(super) taken_away: f64,
}

impl Moved {
    /// Lines for each of `packets` packets.
    pub(super) fn each(self, packets: usize) -> Self {
        let each = |lines: f64| lines / packets as f64;
        Self {
            fetched: each(self.fetched),
            from_others: each(self.from_others),
            taken_away: each(self.taken_away),
        }
    }

    /// Messages between cores.
    pub(super) fn between_cores(self) -> f64 {
        self.from_others + self.taken_away
    }
}

/// Cores that have a line, as bits; and whether one of them has written it.
#[derive(Clone, Copy, Default)]
struct Holders {
    cores: u32,
    is_written: bool,
}

/// The private caches of up to 32 cores. They replace the line that was not used for the longest
/// time. A line can be in several caches after reads. After a write it is only in the cache of the
/// core that wrote it (the protocol MESI).
pub(super) struct Caches {
    /// For each core and set, the lines in the order of their use; the last one is the latest.
    sets: Vec<Vec<usize>>,
    holders: HashMap<usize, Holders>,
    core: usize,
    pub(super) moved: Moved,
}

impl Caches {
    pub(super) fn new(cores: usize) -> Self {
        let sets = vec![Vec::with_capacity(WAYS); cores * SETS];
        Self { sets, holders: HashMap::new(), core: 0, moved: Moved::default() }
    }

    /// The following accesses are those of this core.
    pub(super) fn run_on(&mut self, core: usize) {
        self.core = core;
    }

    /// A network card writes a line: no core has it any more.
    pub(super) fn receive(&mut self, address: usize) {
        let line = address / LINE;
        if let Some(holders) = self.holders.remove(&line) {
            self.forget(line, holders.cores);
        }
    }

    fn set(&mut self, core: usize, line: usize) -> &mut Vec<usize> {
        &mut self.sets[core * SETS + line % SETS]
    }

    /// Removes a line from the caches of these cores.
    fn forget(&mut self, line: usize, cores: u32) {
        for core in (0..u32::BITS as usize).filter(|core| cores >> core & 1 == 1) {
            self.set(core, line).retain(|&one| one != line);
        }
    }

    /// Puts a line at the end of its set, and removes the oldest line of a full set.
    fn keep(&mut self, line: usize) {
        let core = self.core;
        let set = self.set(core, line);
        if let Some(place) = set.iter().rposition(|&one| one == line) {
            set[place..].rotate_left(1);
            return;
        }
        let oldest = (set.len() == WAYS).then(|| set.remove(0));
        set.push(line);
        if let Some(oldest) = oldest
            && let Some(holders) = self.holders.get_mut(&oldest)
        {
            holders.cores &= !(1 << core);
            holders.is_written &= holders.cores != 0;
        }
    }

    fn access(&mut self, address: usize, writes: bool) {
        let (line, own) = (address / LINE, 1_u32 << self.core);
        let before = self.holders.get(&line).copied().unwrap_or_default();
        let others = before.cores & !own;
        if before.cores & own == 0 {
            if before.is_written {
                self.moved.from_others += 1.0;
            } else {
                self.moved.fetched += 1.0;
            }
        }
        if writes && others != 0 {
            // A line that comes from the core that wrote it leaves that core with the same message.
            if before.cores & own != 0 || !before.is_written {
                self.moved.taken_away += 1.0;
            }
            self.forget(line, others);
        }
        let cores = if writes { own } else { before.cores | own };
        let keeps_written = before.is_written && others == 0;
        self.holders.insert(line, Holders { cores, is_written: writes || keeps_written });
        self.keep(line);
    }
}

impl Meter for Caches {
    fn read(&mut self, address: usize) {
        self.access(address, false);
    }

    fn write(&mut self, address: usize) {
        self.access(address, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(work: impl FnOnce(&mut Caches)) -> [f64; 3] {
        let mut caches = Caches::new(4);
        work(&mut caches);
        let Moved { fetched, from_others, taken_away } = caches.moved;
        [fetched, from_others, taken_away]
    }

    #[test]
    fn a_core_fetches_a_line_once() {
        let repeated = |caches: &mut Caches| {
            for address in [0, 63, 0, 8] {
                caches.read(address);
                caches.write(address);
            }
        };
        assert_eq!(moved(repeated), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_written_line_moves_between_cores_and_a_read_one_does_not() {
        let alternate = |writes: bool| {
            moved(|caches| {
                for turn in 0..8 {
                    caches.run_on(turn % 4);
                    caches.access(128, writes);
                }
            })
        };
        assert_eq!(alternate(true), [1.0, 7.0, 0.0]);
        assert_eq!(alternate(false), [4.0, 0.0, 0.0]);
    }

    #[test]
    fn a_writer_takes_the_line_from_its_readers() {
        let shared = |caches: &mut Caches| {
            for core in [0, 1, 2] {
                caches.run_on(core);
                caches.read(0);
            }
            caches.write(0);
            caches.run_on(0);
            caches.read(0);
        };
        assert_eq!(moved(shared), [3.0, 1.0, 1.0]);
    }

    #[test]
    fn a_full_set_loses_its_oldest_line_and_a_card_takes_lines_from_all() {
        let full = |caches: &mut Caches| {
            for way in 0..=WAYS {
                caches.write(way * SETS * LINE);
            }
            caches.read(WAYS * SETS * LINE);
            caches.read(0);
        };
        assert_eq!(moved(full), [WAYS as f64 + 2.0, 0.0, 0.0]);
        let received = |caches: &mut Caches| {
            caches.write(0);
            caches.receive(0);
            caches.run_on(1);
            caches.read(0);
        };
        assert_eq!(moved(received), [2.0, 0.0, 0.0]);
    }
}
