//! Results of the thesis (S1: Plotnikov, Skoltech 2015, an i5-4210U at 2.4 GHz), and figures
//! derived from its statements. No figure is read off its plots.

use super::kind::Kind;

/// Structures of the thesis.
pub(super) const HAS: [Kind; 7] = [
    Kind::Linear,
    Kind::Binary,
    Kind::RedBlack,
    Kind::List,
    Kind::Trees,
    Kind::Lines2,
    Kind::Lines3,
];
/// Order of the structures, from slowest to fastest, as far as the thesis states it.
pub(super) const ORDER: &str = "linear array > binary tree > red-black tree > hash tables of lists \
    or trees > hash tables of lines, of which lines of 3 are the best";
/// Cycle budget of a packet: 180 ns at 2.4 GHz.
pub(super) const BUDGET_CYCLES: f64 = 436.0;
pub(super) use crate::thesis::{TARGET_MPPS, result_mpps};
/// Rewriting headers without a lookup, millions of packets a second.
pub(super) const HEADERS_MPPS: f64 = 20.1;
/// Clock rate of the thesis's processor.
const GIGAHERTZ: f64 = 2.4;

/// Linear array: with 2000 entries three times the budget, and three times the cycles of 500
/// entries.
pub(super) fn linear_cycles() -> Vec<(f64, f64)> {
    vec![(500.0, 3.0 * BUDGET_CYCLES / 3.0), (2000.0, 3.0 * BUDGET_CYCLES)]
}

/// Red-black tree: three times the budget, at an unknown number of sessions.
pub(super) fn red_black_cycles() -> f64 {
    3.0 * BUDGET_CYCLES
}

/// Unbalanced tree: the red-black tree is 14 % better.
pub(super) fn binary_cycles() -> f64 {
    red_black_cycles() / 0.86
}

/// Hash table: 4 times as fast as the trees.
pub(super) fn hash_cycles() -> f64 {
    red_black_cycles() / 4.0
}

/// Rewriting of headers alone, in cycles.
pub(super) fn headers_cycles() -> f64 {
    1e3 * GIGAHERTZ / HEADERS_MPPS
}
