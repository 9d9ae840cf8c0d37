//! Tests of randomness. A perfect source crosses each bound with a probability below 10^-6 for each
//! figure (Z is 5.2 standard deviations, 2 x 10^-7 for both sides). The seeds are fixed, so a
//! result is always the same.

/// Standard deviations beyond which a figure is refused.
const Z: f64 = 5.2;

/// The figures of a sequence of numbers below `range`.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Chi-square of the numbers over equal buckets, with its bounds.
    pub(crate) buckets: Bounded,
    /// Chi-square of the differences of successive numbers, modulo the range.
    pub(crate) steps: Bounded,
    /// Correlation of each number with the one 1 to 8 places before: the largest in magnitude.
    pub(crate) correlation: Bounded,
    /// Frequency with which the next number is one of a naive guesser's: the last one, the last
    /// plus or minus one or two, or the last step repeated.
    pub(crate) guessed: Bounded,
}

/// A figure and its bounds for a perfect source.
#[derive(Debug)]
pub(crate) struct Bounded {
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Bounded {
    pub(crate) fn holds(&self) -> bool {
        (self.least..=self.most).contains(&self.value)
    }
}

impl Figures {
    /// Computes the figures of numbers below `range`, in `buckets` buckets.
    pub(crate) fn of(numbers: &[u32], range: u32, buckets: u32) -> Self {
        let steps: Vec<u32> =
            numbers.windows(2).map(|pair| (pair[1] + range - pair[0]) % range).collect();
        Self {
            buckets: chi_square(numbers, range, buckets),
            steps: chi_square(&steps, range, buckets),
            correlation: worst_correlation(numbers),
            guessed: guessed(numbers, &steps, range),
        }
    }

    pub(crate) fn all_hold(&self) -> bool {
        [&self.buckets, &self.steps, &self.correlation, &self.guessed].iter().all(|f| f.holds())
    }
}

/// Pearson's statistic over equal buckets. Its bounds use Wilson and Hilferty's approximation. A
/// too small value is as suspicious as a too large one: numbers that count up are spread too
/// evenly.
fn chi_square(numbers: &[u32], range: u32, buckets: u32) -> Bounded {
    let mut seen = vec![0_u32; buckets as usize];
    for &number in numbers {
        seen[(u64::from(number) * u64::from(buckets) / u64::from(range)) as usize] += 1;
    }
    // Buckets differ by one number if the range is no multiple of their number.
    let width = |bucket: u64| {
        let edge = |bucket: u64| (bucket * u64::from(range)).div_ceil(u64::from(buckets));
        (edge(bucket + 1) - edge(bucket)) as f64
    };
    let value = seen.iter().zip(0..).map(|(&seen, bucket)| {
        let expected = numbers.len() as f64 * width(bucket) / f64::from(range);
        (f64::from(seen) - expected).powi(2) / expected
    });
    let freedom = f64::from(buckets - 1);
    let spread = 2.0 / (9.0 * freedom);
    let bound = |z: f64| freedom * (1.0 - spread + z * spread.sqrt()).powi(3);
    Bounded { value: value.sum(), least: bound(-Z), most: bound(Z) }
}

fn worst_correlation(numbers: &[u32]) -> Bounded {
    let mean = numbers.iter().map(|&n| f64::from(n)).sum::<f64>() / numbers.len() as f64;
    let product = |a: u32, b: u32| (f64::from(a) - mean) * (f64::from(b) - mean);
    let variance: f64 = numbers.iter().map(|&n| product(n, n)).sum();
    let at = |lag: usize| {
        numbers.iter().zip(&numbers[lag..]).map(|(&a, &b)| product(a, b)).sum::<f64>() / variance
    };
    let worst =
        (1..=8).map(at).fold(0.0, |worst: f64, r| if r.abs() > worst.abs() { r } else { worst });
    // One of eight lags strays more often, so a wider bound keeps the probability.
    let most = (Z + 0.4) / (numbers.len() as f64).sqrt();
    Bounded { value: worst, least: -most, most }
}

fn guessed(numbers: &[u32], steps: &[u32], range: u32) -> Bounded {
    const NEARBY: u32 = 2;
    let near = steps.iter().filter(|&&step| (step + NEARBY) % range <= 2 * NEARBY).count();
    let alike = steps.windows(2).filter(|pair| pair[0] == pair[1]).count();
    let expected = numbers.len() as f64 * f64::from(2 * NEARBY + 2) / f64::from(range);
    let most = expected + (Z + 1.0) * expected.sqrt() + 6.0;
    Bounded { value: (near + alike) as f64, least: 0.0, most }
}

// The figures must detect sequences that are not random.

fn sequential(range: u32) -> Vec<u32> {
    (0..100_000).map(|i| i % range).collect()
}

#[test]
fn numbers_that_count_up_are_seen() {
    let figures = Figures::of(&sequential(50_000), 50_000, 256);
    assert!(!figures.buckets.holds() && !figures.steps.holds());
    assert!(!figures.correlation.holds() && !figures.guessed.holds());
}

#[test]
fn numbers_of_a_half_are_seen() {
    let mut dice = crate::world::Dice(1);
    let numbers: Vec<u32> = (0..100_000).map(|_| dice.word() % 25_000).collect();
    assert!(!Figures::of(&numbers, 50_000, 256).buckets.holds());
}

#[test]
fn numbers_that_lean_on_the_last_are_seen() {
    let mut dice = crate::world::Dice(2);
    let mut last = 0;
    let mut next = || {
        last = (last + dice.word() % 48_000) % 50_000;
        last
    };
    let numbers: Vec<u32> = (0..100_000).map(|_| next()).collect();
    assert!(!Figures::of(&numbers, 50_000, 256).steps.holds());
}

#[test]
fn random_numbers_pass() {
    for seed in 0..20 {
        let mut dice = crate::world::Dice(seed);
        let numbers: Vec<u32> = (0..100_000).map(|_| dice.word() % 50_000).collect();
        let figures = Figures::of(&numbers, 50_000, 256);
        assert!(figures.all_hold(), "{figures:?}");
    }
}
