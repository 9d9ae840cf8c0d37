//! Results of the paper (S2: Li et al., LANMAN 2017, an i7-5930K at 3.5 GHz): nanoseconds of a
//! lookup, the mean of 100.

/// Number of rules, time of QNS, time of the linear search.
pub(super) const TABLE: [(u64, f64, f64); 5] = [
    (100, 43.0, 420.0),
    (1000, 45.0, 3256.0),
    (3000, 42.0, 9373.0),
    (5000, 45.0, 15_078.0),
    (10_000, 45.0, 30_120.0),
];

/// Times of QNS, by number of rules.
pub(super) fn qns() -> Vec<(f64, f64)> {
    TABLE.iter().map(|&(rules, qns, _)| (rules as f64, qns)).collect()
}

/// Times of the linear search, by number of rules.
pub(super) fn linear() -> Vec<(f64, f64)> {
    TABLE.iter().map(|&(rules, _, linear)| (rules as f64, linear)).collect()
}
