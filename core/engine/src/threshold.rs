//! Thresholds below limits, with damping: use that reaches one is told of once, and again only
//! after it has fallen well below; and however much it changes, no more than one is told a minute.
//!
//! Nothing is done when use falls. Each time that it rises, or may have, is looked at: how far it
//! had fallen is then what it was just before. A threshold whose event the minute held back stays
//! untold, so that the next rise tells it if use is still as high.

use crate::config::Thresholds;

/// Things that thresholds of one subject are about.
pub(crate) const THINGS: usize = 5;
/// How often one subject is told of at most, nanoseconds.
const INTERVAL: u64 = 60_000_000_000;
/// No limit has such a use.
const NEVER: u32 = u32::MAX;

/// The thresholds of one limit, as uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    /// The use at which each is reached, ascending, and at which it may be reached again.
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

    /// Percentages of a limit; one of [`u32::MAX`] is none.
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

/// What has been told of a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// When the last was, nanoseconds; all ones: never.
    told: u64,
    /// Of each thing, how many of its thresholds use has been told to have reached.
    levels: [u8; THINGS],
}

impl Default for Watch {
    fn default() -> Self {
        Self { told: u64::MAX, levels: [0; THINGS] }
    }
}

impl Watch {
    /// Thresholds, or what they are of, are others now: each may be told afresh, when a minute has
    /// gone by.
    pub(crate) fn forget(&mut self) {
        self.levels = [0; THINGS];
    }

    //= rfc7422#section-2.2-alarms
    /// Takes note that a use, which was `before`, is `used` now: the percentage to be told, if one
    /// is.
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

    /// Uses that rise, one a second, and what is told of each.
    fn told(marks: &Marks, uses: impl IntoIterator<Item = u32>) -> Vec<(u32, u8)> {
        let mut watch = Watch::default();
        let seconds = (0..).map(|second: u64| second * SECOND);
        let rise = |(used, now)| Some((used, watch.rise(0, marks, (used - 1, used), now)?));
        uses.into_iter().zip(seconds).filter_map(rise).collect()
    }

    #[test]
    fn a_threshold_is_told_once_until_use_has_fallen_by_ten_points() {
        let marks = Marks::new(&[80], 10);
        // Rises from 7 (70 %) to 8 have fallen far enough, those from 8 to 9 have not.
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
        // Should use have fallen meanwhile there is nothing to tell.
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
