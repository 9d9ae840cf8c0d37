//! The clock: the processor's cycle counter, its rate, and the date at the start of the machine.
//!
//! A measurement may be interrupted at any time for any duration, especially in an emulator. So a
//! measurement always has two numbers that bound the true value. A disturbed measurement has a wide
//! interval instead of a wrong value.

/// Nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// Bounds of a counter's rate, cycles a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    least: u64,
    most: u64,
}

/// Unit of a rate's uncertainty: parts of a million.
const MILLION: u64 = 1_000_000;

/// Largest difference of two clocks' seconds, parts of a million.
const DRIFT: u64 = 1000;

impl Rate {
    /// Rate of a counter, from bounds of its cycles and bounds of the nanoseconds. Returns `None`
    /// if it does not count, or if the numbers contradict each other.
    pub fn of((least, most): (u64, u64), (shortest, longest): (u64, u64)) -> Option<Self> {
        let a_second = |cycles: u64, ns: u64| {
            u64::try_from(u128::from(cycles) * SECOND / u128::from(ns)).unwrap_or(u64::MAX)
        };
        if least == 0 || least > most || shortest == 0 || shortest > longest {
            return None;
        }
        Self { least: a_second(least, longest), most: a_second(most, shortest) }.checked()
    }

    /// Rate around a reported frequency, with the tolerance of clocks.
    pub fn said(frequency: u64) -> Self {
        Self { least: frequency, most: frequency }.widened()
    }

    fn checked(self) -> Option<Self> {
        (0 < self.least && self.least <= self.most).then_some(self)
    }

    /// Intersection of two rates; `None` if they contradict each other.
    pub fn and(self, other: Self) -> Option<Self> {
        Self { least: self.least.max(other.least), most: self.most.min(other.most) }.checked()
    }

    /// Uncertainty, parts of a million.
    pub fn spread(self) -> u64 {
        let spread = u128::from(self.most - self.least) * u128::from(MILLION);
        u64::try_from(spread / u128::from(self.least)).unwrap_or(u64::MAX)
    }

    /// Rate with the tolerance of another clock.
    fn widened(self) -> Self {
        let widen = |frequency: u64| frequency / MILLION * DRIFT;
        let most = self.most.saturating_add(widen(self.most));
        Self { least: self.least - widen(self.least), most }
    }

    /// The middle of the rate, or the processor's reported frequency if it is possible.
    pub fn choose(self, told: Option<u64>) -> u64 {
        let told = told.filter(|told| *told > 0 && self.and(Self::said(*told)).is_some());
        told.unwrap_or(self.least + (self.most - self.least) / 2)
    }
}

/// Conversion of the processor's counter to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Value of the counter at a moment, and the uptime at that moment, nanoseconds.
    begin: u64,
    uptime: u64,
    /// Cycles a second.
    frequency: u64,
    /// Time of the start, seconds since 1970.
    date: u64,
}

impl Clock {
    /// Creates a clock. The counter was `begin` at `date`, seconds since 1970. The frequency in Hz
    /// must not be 0.
    pub fn new(begin: u64, date: u64, frequency: u64) -> Self {
        Self { begin, uptime: 0, frequency: frequency.max(1), date }
    }

    /// Number of parts of a clock.
    pub const PARTS: usize = 4;

    /// Creates a clock from its parts.
    pub fn from_parts([begin, uptime, frequency, date]: [u64; Self::PARTS]) -> Self {
        Self { begin, uptime, frequency, date }
    }

    /// Parts of the clock.
    pub fn to_parts(&self) -> [u64; Self::PARTS] {
        [self.begin, self.uptime, self.frequency, self.date]
    }

    /// Changes the frequency from a value of the counter on, without a jump of the time.
    pub fn correct(&mut self, counter: u64, frequency: u64) {
        self.uptime = self.uptime(counter);
        self.begin = self.begin.max(counter);
        self.frequency = frequency.max(1);
    }

    /// Cycles a second.
    pub fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Nanoseconds since the start of the machine, for a value of the counter.
    pub fn uptime(&self, counter: u64) -> u64 {
        let cycles = u128::from(counter.saturating_sub(self.begin));
        self.uptime + (cycles * SECOND / u128::from(self.frequency)) as u64
    }

    /// Nanoseconds since 1970, for a value of the counter.
    pub fn since_1970(&self, counter: u64) -> u64 {
        self.date.saturating_mul(SECOND as u64).saturating_add(self.uptime(counter))
    }
}

/// Cycles a second of a processor's counter, as reported by CPUID. Leaf 0x15 has a divisor, a
/// factor and a crystal's frequency in Hz; leaf 0x16 has MHz. A missing number is 0. Returns `None`
/// if both leaves are empty.
pub fn frequency([part, multiple, crystal]: [u32; 3], megahertz: u32) -> Option<u64> {
    let by_crystal = (u64::from(crystal) * u64::from(multiple)).checked_div(part.into());
    let by_name = u64::from(megahertz & 0xffff) * 1_000_000;
    by_crystal.filter(|frequency| *frequency > 0).or(Some(by_name).filter(|name| *name > 0))
}

/// Comparison of the counter with a clock of seconds during the whole uptime. The precision of the
/// counter's rate increases with the duration.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// First measurement.
    measured: Rate,
    /// Uncertainty of the latest returned rate.
    told: u64,
    /// First observed begin of a second, and that second.
    first: Option<Edge>,
    /// Counter before the latest look, and its second.
    last: Option<(u64, u64)>,
}

/// Begin of a second, with bounds of the counter.
#[derive(Clone, Copy, Debug)]
struct Edge {
    second: u64,
    after: u64,
    before: u64,
}

impl Comparison {
    /// Creates a comparison for a counter with a measured rate.
    pub fn new(measured: Rate) -> Self {
        Self { measured, told: measured.spread(), first: None, last: None }
    }

    /// Adds a look: at a moment between two values of the counter the clock had this second.
    /// Returns the corrected frequency, Hz, if its precision has doubled.
    pub fn look(&mut self, (begin, end): (u64, u64), second: u64) -> Option<u64> {
        let (after, before_it) = self.last.replace((begin, second))?;
        // A gap between seconds means that the clock was set, or that looks are missing.
        if before_it.checked_add(1) != Some(second) {
            return None;
        }
        let edge = Edge { second, after, before: end };
        let first = *self.first.get_or_insert(edge);
        if first.second == second || edge.after <= first.before {
            return None;
        }
        let permitted = self.measured.widened();
        let Some(rate) = rate_between(&first, &edge).and_then(|rate| rate.and(permitted)) else {
            // The clock was set.
            self.first = Some(edge);
            return None;
        };
        if rate.spread() > self.told / 2 {
            return None;
        }
        self.told = rate.spread();
        Some(rate.choose(None))
    }
}

fn rate_between(first: &Edge, last: &Edge) -> Option<Rate> {
    let seconds = last.second.checked_sub(first.second).filter(|seconds| *seconds > 0)?;
    let nanoseconds = seconds.checked_mul(SECOND as u64)?;
    let cycles = (last.after.saturating_sub(first.before), last.before.checked_sub(first.after)?);
    Rate::of(cycles, (nanoseconds, nanoseconds))
}

/// Registers of the real-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Seconds, minutes, hours, day, month, year of the century.
    pub fields: [u8; 6],
    /// Register B, which defines the format of the fields.
    pub format: u8,
}

impl Registers {
    const BINARY: u8 = 4;
    const HOURS_24: u8 = 2;
    const AFTERNOON: u8 = 0x80;

    /// Seconds since 1970, for a clock in UTC and in this century; `None` if the fields are no
    /// date.
    pub fn seconds(&self) -> Option<u64> {
        let number = |byte: u8| {
            u64::from(if self.format & Self::BINARY != 0 {
                byte
            } else {
                (byte >> 4) * 10 + (byte & 15)
            })
        };
        let [second, minute, hour, day, month, year] = self.fields;
        let is_afternoon = self.format & Self::HOURS_24 == 0 && hour & Self::AFTERNOON != 0;
        let hour = match (self.format & Self::HOURS_24 != 0, number(hour & !Self::AFTERNOON)) {
            (true, hour) => hour,
            (false, hour) => hour % 12 + if is_afternoon { 12 } else { 0 },
        };
        let [second, minute, day, month, year] = [second, minute, day, month, year].map(number);
        let is_date = second < 60 && minute < 60 && hour < 24 && year < 100;
        if !is_date || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        Some(((days(2000 + year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
    }
}

/// Days from 1970-01-01 to a later date. Years begin in March here, so the leap day is the last
/// day.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    before + (153 * month + 2) / 5 + (day - 1) - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cycles_become_time() {
        let mut clock = Clock::new(1000, 1_700_000_000, 2_500_000_000);
        assert_eq!(clock.uptime(1000 + 2_500_000_000), 1_000_000_000);
        assert_eq!(clock.since_1970(1000 + 250), 1_700_000_000_000_000_100);
        assert_eq!(clock.uptime(5), 0);
        // Years do not overflow.
        assert_eq!(clock.uptime(1000 + 2_500_000_000 * 1_000_000_000), 1_000_000_000_000_000_000);
        // A correction does not change the present time.
        let now = 1000 + 5_000_000_000;
        clock.correct(now, 1_000_000_000);
        assert_eq!((clock.uptime(now), clock.uptime(now - 7)), (2_000_000_000, 2_000_000_000));
        assert_eq!(clock.uptime(now + 1_000_000_000), 3_000_000_000);
    }

    #[test]
    fn a_rate_is_what_all_measurements_permit() {
        let one = Rate::of((9, 11), (1_000_000_000, 1_000_000_000)).expect("it counts");
        let other = Rate::of((100, 300), (10_000_000_000, 10_000_000_000)).expect("it counts");
        assert_eq!(one.and(other), Rate::of((10, 11), (1_000_000_000, 1_000_000_000)));
        assert_eq!(one.spread(), 222_222);
        assert_eq!(Rate::of((0, 5), (1, 1)), None);
        assert_eq!(Rate::of((6, 5), (1, 1)), None);
        assert_eq!(Rate::of((1, 1), (0, 5)), None);
        let far = Rate::of((50, 60), (1_000_000_000, 1_000_000_000)).expect("it counts");
        assert_eq!(one.and(far), None);
        assert_eq!((one.choose(None), one.choose(Some(11)), one.choose(Some(50))), (10, 11, 10));
    }

    /// Looks at a clock of seconds at these pauses; returns the latest frequency and the number of
    /// returned frequencies.
    fn compare(measured: Rate, frequency: u64, pauses: &[u64]) -> (Option<u64>, usize) {
        let (mut comparison, mut told, mut times) = (Comparison::new(measured), None, 0);
        let mut counter = 12_345;
        for pause in pauses {
            counter += pause;
            let second = 1_700_000_000 + (counter + frequency / 3) / frequency;
            if let Some(found) = comparison.look((counter, counter + 1000), second) {
                (told, times) = (Some(found), times + 1);
            }
        }
        (told, times)
    }

    proptest! {
        #[test]
        fn a_comparison_finds_the_frequency_though_it_looks_seldom(
            frequency in 1_000_000_000_u64..5_000_000_000,
            pauses in proptest::collection::vec(1_000_000_u64..500_000_000, 2000),
        ) {
            // The machine was busy during the measurement, so the rate may be half or twice the
            // measured one.
            let measured = Rate { least: frequency / 2, most: frequency * 2 };
            let (told, times) = compare(measured, frequency, &pauses);
            let told = told.expect("there is time enough");
            prop_assert!(told.abs_diff(frequency) < frequency / 100, "{} {}", told, frequency);
            prop_assert!(times < 30);
        }

        #[test]
        fn no_clock_does_harm(looks: Vec<(u64, u64, u64)>) {
            let measured = Rate { least: 1_000_000_000, most: 1_100_000_000 };
            let mut comparison = Comparison::new(measured);
            for (begin, end, second) in looks {
                if let Some(found) = comparison.look((begin.min(end), begin.max(end)), second) {
                    prop_assert!((900_000_000..1_200_000_000).contains(&found));
                }
            }
        }
    }

    #[test]
    fn a_clock_that_somebody_sets_is_not_followed() {
        let frequency = 1_000_000_000;
        let measured = Rate { least: frequency / 1001 * 1000, most: frequency / 1000 * 1001 };
        let mut comparison = Comparison::new(measured);
        let mut told = Vec::new();
        for millisecond in 0..600_000_u64 {
            let counter = 1 + millisecond * 1_000_000;
            // The clock jumps by an hour after 100 s, and back after 200 s.
            let set = if (100_000..200_000).contains(&millisecond) { 3600 } else { 0 };
            let second = 1_700_000_000 + counter / frequency + set;
            told.extend(comparison.look((counter, counter + 500), second));
        }
        assert!(!told.is_empty());
        let is_right = |found: &u64| found.abs_diff(frequency) < frequency / 1000;
        assert!(told.iter().all(is_right), "{told:?}");
    }

    #[test]
    fn processors_say_how_fast_they_count_or_do_not() {
        assert_eq!(frequency([2, 184, 24_000_000], 2200), Some(2_208_000_000));
        assert_eq!(frequency([2, 184, 0], 2200), Some(2_200_000_000));
        assert_eq!(frequency([0, 184, 24_000_000], 0xffff_0000), None);
        assert_eq!(frequency([1, u32::MAX, u32::MAX], 0), Some(0xffff_fffe_0000_0001));
    }

    #[test]
    fn dates_are_read_in_each_format() {
        let read = |fields, format| Registers { fields, format }.seconds();
        // 2026-11-22 22:34:01 UTC.
        let expected = Some(1_795_386_841);
        assert_eq!(read([1, 34, 22, 22, 11, 26], 6), expected);
        assert_eq!(read([0x01, 0x34, 0x22, 0x22, 0x11, 0x26], 2), expected);
        assert_eq!(read([0x01, 0x34, 0x90, 0x22, 0x11, 0x26], 0), expected);
        assert_eq!(read([0, 0, 12, 29, 2, 24], 4), Some(1_709_164_800));
        assert_eq!(read([0, 0, 0, 1, 13, 26], 6), None);
        assert_eq!(read([0xff; 6], 0), None);
    }
}
