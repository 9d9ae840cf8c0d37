//! Binary search for the highest rate, or the largest number, that passes.

/// Returns the highest passing value between 0 and `high`, to the share `precision` of `high`; 0 if
/// none passes. It assumes that lower values pass, too.
pub(crate) fn highest(high: f64, precision: f64, mut passes: impl FnMut(f64) -> bool) -> f64 {
    let (mut low, mut above) = (0.0, high);
    if passes(high) {
        return high;
    }
    while above - low > high * precision {
        let middle = f64::midpoint(low, above);
        if passes(middle) {
            low = middle;
        } else {
            above = middle;
        }
    }
    low
}

/// Returns the largest passing number: doubles from `first` until a number fails, then halves the
/// interval to the share `precision` of the number. Returns 0 if `first` fails.
pub(crate) fn largest(first: u64, precision: f64, mut passes: impl FnMut(u64) -> bool) -> u64 {
    let (mut low, mut above) = (0, first);
    while passes(above) {
        low = above;
        above *= 2;
    }
    while low > 0 && (above - low) as f64 > above as f64 * precision && above - low > 1 {
        let middle = low.midpoint(above);
        if passes(middle) {
            low = middle;
        } else {
            above = middle;
        }
    }
    low
}

/// First rate of a search for a capacity, packets a second, and the factor between rates.
pub(crate) const FIRST: f64 = 100e3;
const STEP: f64 = 1.6;
/// Lowest and highest rate of a search.
const BOUNDS: [f64; 2] = [1e3, 50e6];

/// Share of a rate that the tester must reach. Below it the tester is the limit.
const KEPT: f64 = 0.95;

/// Result of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tried {
    pub(crate) passed: bool,
    /// Packets a second that the tester sent.
    pub(crate) sent: f64,
}

/// Result of a search for a capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Capacity {
    /// Packets a second.
    pub(crate) rate: f64,
    /// True if the tester could not send faster, so the real rate may be higher.
    pub(crate) tester_limited: bool,
}

/// Finds the highest rate that passes, to a thirtieth, at any magnitude; 0 if 1,000 a second fails.
///
/// The search multiplies or divides by a factor until one rate passes and one fails. Then it halves
/// the interval. It ends early if the tester cannot send faster. At the end it tries the lowest
/// failed rate once more, because a pause of the machine may have disturbed it. If that rate
/// passes, the search continues above it.
pub(crate) fn capacity<E>(
    first: f64,
    mut attempt: impl FnMut(f64) -> Result<Tried, E>,
) -> Result<Capacity, E> {
    let (mut low, mut high) = (0.0, 0.0);
    let mut rate = if first > 0.0 { first } else { FIRST };
    loop {
        let again = rate == high;
        let Tried { passed, sent } = attempt(rate)?;
        if passed && sent < rate * KEPT {
            return Ok(Capacity { rate: sent, tester_limited: true });
        }
        match (passed, again) {
            (true, false) => low = rate,
            (true, true) => (low, high) = (rate, 0.0),
            (false, false) => high = rate,
            (false, true) => break,
        }
        rate = match (low, high) {
            (low, 0.0) => low * STEP,
            (0.0, high) => high / STEP,
            (low, high) if high / low > 1.03 => f64::sqrt(low * high),
            (_, high) => high,
        };
        if !(BOUNDS[0]..BOUNDS[1]).contains(&rate) {
            break;
        }
    }
    Ok(Capacity { rate: low, tester_limited: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_found_whatever_its_magnitude() {
        for limit in [2e3, 99e3, 101e3, 1.5e6, 10e6] {
            let mut tries = 0;
            let found = capacity(FIRST, |rate| {
                tries += 1;
                Ok::<_, ()>(Tried { passed: rate <= limit, sent: rate })
            });
            let Capacity { rate: found, tester_limited } = found.unwrap();
            assert!(!tester_limited);
            assert!(found <= limit && found > limit / 1.03, "{found} for {limit}");
            assert!(tries < 21, "{tries} tries");
        }
        for paused in 0..20 {
            let mut tries = 0;
            let found = capacity(FIRST, |rate| {
                tries += 1;
                let passed = rate <= 1e6 && tries - 1 != paused;
                Ok::<_, ()>(Tried { passed, sent: rate })
            });
            let Capacity { rate, .. } = found.unwrap();
            assert!(rate <= 1e6 && rate > 1e6 / 1.03, "{rate} after a pause in try {paused}");
        }
        let never = |rate| Ok::<_, ()>(Tried { passed: false, sent: rate });
        assert_eq!(capacity(FIRST, never), Ok(Capacity::default()));
        assert_eq!(capacity(FIRST, |_| Err("broken")), Err("broken"));
    }

    #[test]
    fn a_capacity_beyond_the_testers_is_not_made_up() {
        let found =
            capacity(FIRST, |rate| Ok::<_, ()>(Tried { passed: true, sent: rate.min(700e3) }));
        assert_eq!(found, Ok(Capacity { rate: 700e3, tester_limited: true }));
    }

    #[test]
    fn the_highest_rate_is_found_within_the_precision() {
        for limit in [0.0, 1.0, 333.3, 999.0, 1000.0, 5000.0] {
            let mut tries = 0;
            let found = highest(1000.0, 0.01, |rate| {
                tries += 1;
                rate <= limit
            });
            let right = limit.min(1000.0);
            assert!(found <= right && found >= right - 10.0, "{found} for {limit}");
            assert!(tries <= 8, "{tries} tries");
        }
    }

    #[test]
    fn the_largest_number_is_found_by_doubling_and_halving() {
        for limit in [999, 1000, 1001, 65_536, 1_000_003] {
            let found = largest(1000, 0.0, |number| number <= limit);
            assert_eq!(found, if limit < 1000 { 0 } else { limit });
        }
        let found = largest(1000, 0.01, |number| number <= 50_000);
        assert!((49_400..=50_000).contains(&found), "{found}");
    }
}
