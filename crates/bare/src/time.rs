//! The clock: the processor's counter of cycles, how fast it goes, and the date when the machine
//! started.

/// Nanoseconds a second.
const SECOND: u128 = 1_000_000_000;

/// Turns the processor's counter into time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The counter when the machine started.
    begin: u64,
    /// Cycles a second.
    frequency: u64,
    /// When that was, seconds since 1970.
    date: u64,
}

impl Clock {
    /// A clock whose counter stood at `begin` at `date`, seconds since 1970, and has been seen to
    /// count `cycles` in `nanoseconds`. `None`: it does not count.
    pub fn new(begin: u64, date: u64, (cycles, nanoseconds): (u64, u64)) -> Option<Self> {
        let frequency = u128::from(cycles) * SECOND / u128::from(nanoseconds.max(1));
        let frequency = u64::try_from(frequency).ok().filter(|frequency| *frequency > 0)?;
        Some(Self { begin, frequency, date })
    }

    /// Cycles a second.
    pub fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Nanoseconds since the machine started, of a value of the counter.
    pub fn uptime(&self, counter: u64) -> u64 {
        let cycles = u128::from(counter.saturating_sub(self.begin));
        (cycles * SECOND / u128::from(self.frequency)) as u64
    }

    /// Nanoseconds since 1970, of a value of the counter.
    pub fn since_1970(&self, counter: u64) -> u64 {
        self.date.saturating_mul(SECOND as u64).saturating_add(self.uptime(counter))
    }
}

/// Cycles a second of a processor's counter as the processor says (CPUID): three numbers, by which
/// part and by which multiple of a crystal's frequency it counts, and what that is, Hz (leaf 0x15);
/// or else MHz (leaf 0x16). What it does not say is 0. `None`: it says neither.
pub fn frequency([part, multiple, crystal]: [u32; 3], megahertz: u32) -> Option<u64> {
    let by_crystal = (u64::from(crystal) * u64::from(multiple)).checked_div(part.into());
    let by_name = u64::from(megahertz & 0xffff) * 1_000_000;
    by_crystal.filter(|frequency| *frequency > 0).or(Some(by_name).filter(|name| *name > 0))
}

/// What the real-time clock's registers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Seconds, minutes, hours, day, month, year of the century.
    pub fields: [u8; 6],
    /// Register B, which says how they are written.
    pub format: u8,
}

impl Registers {
    const BINARY: u8 = 4;
    const HOURS_24: u8 = 2;
    const AFTERNOON: u8 = 0x80;

    /// Seconds since 1970, of a clock that goes by UTC in this century; `None`: that is no date.
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

/// Days from 1970-01-01 to a date after it: years begin in March here, so that the odd day is the
/// last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    before + (153 * month + 2) / 5 + (day - 1) - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_become_time() {
        let clock = Clock::new(1000, 1_700_000_000, (25_000_000, 10_000_000)).expect("it counts");
        assert_eq!(clock.frequency(), 2_500_000_000);
        assert_eq!(clock.uptime(1000 + 2_500_000_000), 1_000_000_000);
        assert_eq!(clock.since_1970(1000 + 250), 1_700_000_000_000_000_100);
        assert_eq!(clock.uptime(5), 0);
        // Years do not overflow.
        assert_eq!(clock.uptime(1000 + 2_500_000_000 * 1_000_000_000), 1_000_000_000_000_000_000);
        assert_eq!(Clock::new(0, 0, (0, 5)), None);
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
