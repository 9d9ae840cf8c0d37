//! Binary search for the highest rate, or the largest number, that passes.

/// The highest value that passes between 0 and `high`, to a share of `high`; 0 when none did. What
/// passes is taken to pass below, too.
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

/// The largest number that passes: doubled from `first` on until one does not, then halved down to
/// a share of the number; 0 when the first does not.
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

/// Where the search for a capacity may begin, packets a second, and by what it goes on.
pub(crate) const FIRST: f64 = 100e3;
const STEP: f64 = 1.6;
/// The lowest rate that is tried, and the highest.
const BOUNDS: [f64; 2] = [1e3, 50e6];

/// The highest rate that passes, to a thirtieth, whatever its magnitude; 0 when not even 1,000 a
/// second does. Goes by factors until it has one rate that passes and one that does not, then halves
/// what lies between.
pub(crate) fn capacity<E>(
    first: f64,
    mut passes: impl FnMut(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    let (mut low, mut high) = (0.0, 0.0);
    let mut rate = if first > 0.0 { first } else { FIRST };
    while low == 0.0 || high == 0.0 {
        if passes(rate)? {
            low = rate;
            rate *= STEP;
        } else {
            high = rate;
            rate /= STEP;
        }
        if !(BOUNDS[0]..BOUNDS[1]).contains(&rate) {
            return Ok(low);
        }
    }
    while high / low > 1.03 {
        let middle = f64::sqrt(low * high);
        if passes(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
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
                Ok::<_, ()>(rate <= limit)
            });
            let found = found.unwrap();
            assert!(found <= limit && found > limit / 1.03, "{found} for {limit}");
            assert!(tries < 20, "{tries} tries");
        }
        assert_eq!(capacity(FIRST, |_| Ok::<_, ()>(false)), Ok(0.0));
        assert_eq!(capacity(FIRST, |_| Err::<bool, _>("broken")), Err("broken"));
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
