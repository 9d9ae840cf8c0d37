//! Thresholds below limits, with damping. Use that reaches a threshold is reported once, and again
//! only after it has fallen well below. At most one threshold of a subject is reported a minute,
//! however much its use changes.
//!
//! Nothing is done when use falls. Each rise, or possible rise, is looked at: the use just before
//! the rise shows how far it had fallen. A threshold whose report was held back for the minute
//! counts as not reported, so the next rise reports it if use is still as high.

use crate::config::Thresholds;

/// Number of things with thresholds of one subject.
pub(crate) const THINGS: usize = 5;
/// Shortest time between two reports about one subject, nanoseconds.
const INTERVAL: u64 = 60_000_000_000;
/// A use that no limit has.
const NEVER: u32 = u32::MAX;

/// The thresholds of one limit, as uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// Uses at which each threshold is reached, ascending, and uses at which each may be reported
    /// again.
    reached: [u32; Thresholds::MOST],
    again: [u32; Thresholds::MOST],
    percent: [u8; Thresholds::MOST],
}

impl Marks {
    /// No thresholds.
    pub(crate) const NONE: Self = Self {
        reached: [NEVER; Thresholds::MOST],
        again: [0; Thresholds::MOST],
        percent: [0; Thresholds::MOST],
    };

    /// Computes the thresholds from percentages of a limit. Limit [`u32::MAX`] means no limit.
    pub(crate) fn new(thresholds: &[u8], limit: u32) -> Self {
        let mut marks = Self::NONE;
        if limit == u32::MAX {
            return marks;
        }
        let share = |percent: u8| u64::from(percent) * u64::from(limit);
        for (at, &percent) in thresholds.iter().take(Thresholds::MOST).enumerate() {
            marks.reached[at] = share(percent).div_ceil(100) as u32;
            marks.again[at] = (share(percent.saturating_sub(Thresholds::DAMPING)) / 100) as u32;
            marks.percent[at] = percent;
        }
        marks
    }
}

/// Reports about a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// Time of the latest report, nanoseconds; all ones: never.
    told: u64,
    /// For each thing, the number of its thresholds that count as reported.
    levels: [u8; THINGS],
}

impl Default for Watch {
    fn default() -> Self {
        Self { told: u64::MAX, levels: [0; THINGS] }
    }
}

impl Watch {
    /// Forgets which thresholds were reached, because the thresholds or their subject changed. Each
    /// may be reported again once the minute is over.
    pub(crate) fn forget(&mut self) {
        self.levels = [0; THINGS];
    }

    //= rfc7422#section-2.2-alarms
    /// Notes that a use, which was `before`, is `used` now. Returns the percentage to report, if
    /// any.
    pub(crate) fn rise(
        &mut self,
        thing: usize,
        marks: &Marks,
        (before, used): (u32, u32),
        now: u64,
    ) -> Option<u8> {
        let level = &mut self.levels[thing];
        while *level > 0 && before <= marks.again[usize::from(*level) - 1] {
            *level -= 1;
        }
        let reached = marks.reached.iter().take_while(|&&mark| used >= mark).count();
        let recently = self.told != u64::MAX && now - self.told < INTERVAL;
        if reached <= usize::from(*level) || recently {
            return None;
        }
        *level = reached as u8;
        self.told = now;
        Some(marks.percent[reached - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const SECOND: u64 = 1_000_000_000;

    /// Makes uses rise, one a second. Returns the reports with their uses.
    fn told(marks: &Marks, uses: impl IntoIterator<Item = u32>) -> Vec<(u32, u8)> {
        let mut watch = Watch::default();
        let seconds = (0..).map(|second: u64| second * SECOND);
        let rise = |(used, now)| Some((used, watch.rise(0, marks, (used - 1, used), now)?));
        uses.into_iter().zip(seconds).filter_map(rise).collect()
    }

    #[test]
    fn a_threshold_is_told_once_until_use_has_fallen_by_ten_points() {
        let marks = Marks::new(&[80], 10);
        // Rises from 7 (70 %) to 8 have fallen far enough, rises from 8 to 9 have not.
        let mut watch = Watch::default();
        let mut rise =
            |used, minute: u64| watch.rise(0, &marks, (used - 1, used), minute * 60 * SECOND);
        assert_eq!(rise(7, 0), None);
        assert_eq!(rise(8, 1), Some(80));
        assert_eq!(rise(9, 2), None);
        assert_eq!(rise(8, 3), Some(80));
    }

    #[test]
    fn one_that_the_minute_held_back_is_told_by_the_next_rise() {
        let marks = Marks::new(&[50, 90], 100);
        assert_eq!(told(&marks, 1..=100), [(50, 50)]);
        assert_eq!(told(&marks, (1..=100).chain([100; 9])), [(50, 50)]);
        assert_eq!(told(&marks, (1..=100).chain([100; 10])), [(50, 50), (100, 90)]);
        // There is nothing to report if use has fallen meanwhile.
        assert_eq!(told(&marks, (1..=100).chain([85; 50])), [(50, 50)]);
    }

    #[test]
    fn two_that_are_reached_at_once_are_told_as_the_higher() {
        assert_eq!(told(&Marks::new(&[50, 60], 1), [1, 1]), [(1, 60)]);
        assert_eq!(told(&Marks::new(&[10, 100], 0), [1]), [(1, 100)]);
    }

    #[test]
    fn what_has_no_limit_has_no_thresholds() {
        assert_eq!(told(&Marks::new(&[10], u32::MAX), [1, u32::MAX - 1]), vec![]);
        let marks = Marks::new(&[100], u32::MAX - 1);
        assert_eq!(told(&marks, [u32::MAX - 2, u32::MAX - 1]), [(u32::MAX - 1, 100)]);
    }
}
