//! Translation of times of the sender's monotonic scale to the receiver's.

/// Time for which an observation counts, at least; at most twice as long. Nanoseconds. Clocks that
/// differ by 50 ppm get 6 ms apart in twice this time.
const WINDOW: u64 = 60_000_000_000;

/// Difference of two monotonic scales.
///
/// Messages tell when they were sent. The least difference between arrival and sending is the
/// offset plus the shortest delay of the link. So a translated time is late by that delay, and
/// never early. Wall clocks have no effect. Two clocks do not run at one rate, so only the
/// differences of the present and the last window count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The least difference of the present window and of the one before.
    least: Option<i128>,
    before: Option<i128>,
    /// Time at which the present window began, of the receiver's scale.
    began: u64,
}

impl Translation {
    /// Notes a message: the time that it was sent, of the sender's scale, and the time of its
    /// arrival, of the receiver's scale. Nanoseconds.
    pub fn observe(&mut self, sent: u64, arrived: u64) {
        let age = arrived.saturating_sub(self.began);
        if age >= WINDOW {
            let is_near = age < 2 * WINDOW;
            self.before = self.least.take().filter(|_| is_near);
            self.began = arrived;
        }
        let difference = i128::from(arrived) - i128::from(sent);
        self.least = Some(self.least.map_or(difference, |least| least.min(difference)));
    }

    /// What a time of the receiver's scale is more than the same time of the sender's, nanoseconds.
    /// `None` before the first message.
    pub fn difference(&self) -> Option<i128> {
        self.least.into_iter().chain(self.before).min()
    }

    /// The receiver's time of a time of the sender, nanoseconds. `None` before the first message.
    pub fn translate(&self, time: u64) -> Option<u64> {
        let translated = i128::from(time) + self.difference()?;
        Some(translated.clamp(0, i128::from(u64::MAX)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_packet_gives_the_offset() {
        let mut translation = Translation::default();
        assert_eq!(translation.translate(5), None);
        translation.observe(1_000, 90);
        assert_eq!(translation.translate(1_500), Some(590));
        translation.observe(1_100, 170);
        translation.observe(1_200, 500);
        assert_eq!(translation.translate(1_500), Some(570));
        assert_eq!(translation.translate(0), Some(0), "before the receiver's scale began");
        assert_eq!(translation.translate(u64::MAX), Some(u64::MAX - 930));
    }

    #[test]
    fn clocks_of_two_rates_stay_translated() {
        const SECOND: u64 = 1_000_000_000;
        // The receiver's clock is slower by 50 ppm, or faster: 26 minutes in a year.
        for (own, other) in [(SECOND - 50_000, SECOND), (SECOND + 50_000, SECOND)] {
            let mut translation = Translation::default();
            for second in 1..100_000 {
                let delay = if second % 7 == 0 { 1_000_000 } else { 90_000_000 };
                translation.observe(second * other, second * own + delay);
            }
            let (now, due) = (100_000 * other, 100_000 * own);
            let late = translation.translate(now).expect("known").cast_signed() - due.cast_signed();
            assert!((-7_000_000..9_000_000).contains(&late), "{late} ns");
        }
    }

    #[test]
    fn a_difference_of_long_ago_does_not_count() {
        let mut translation = Translation::default();
        translation.observe(100, 100);
        translation.observe(100, 3 * WINDOW);
        assert_eq!(translation.difference(), Some(i128::from(3 * WINDOW - 100)));
    }
}
