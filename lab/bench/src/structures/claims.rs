//! Statements of the thesis, and the results of this project.

use super::experiment::{Size, Sizes};
use super::kind::Kind;
use super::paper;
use super::report::Cycles;
use super::threads::Threaded;
use crate::report::Table;
use serde::Serialize;

/// A statement of the thesis, and this project's result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    statement: String,
    paper: f64,
    ours: Option<f64>,
    unit: &'static str,
}

/// Compares all statements that can be compared.
pub(super) fn compare(sizes: &Sizes, threads: &[Threaded], cycles: Cycles) -> Vec<Claim> {
    let figures = Figures { sizes, threads, cycles };
    [figures.linear(), figures.trees(), figures.rates()].concat()
}

/// All measurements, for look-ups of single figures.
struct Figures<'a> {
    sizes: &'a Sizes,
    threads: &'a [Threaded],
    cycles: Cycles,
}

impl Figures<'_> {
    fn linear(&self) -> Vec<Claim> {
        let at = |sessions| self.cycles(Kind::Linear, false, sessions);
        let growth = ratio(at(2000), at(500));
        let over = ratio(at(2000), Some(paper::BUDGET_CYCLES));
        vec![
            times("linear array: 2000 entries against 500".into(), 3.0, growth),
            times(
                "linear array with 2000 entries against the budget of 436 cycles".into(),
                3.0,
                over,
            ),
        ]
    }

    fn trees(&self) -> Vec<Claim> {
        let sessions = reference(self.sizes);
        let alone = |kind| self.cycles(kind, false, sessions);
        let red_black = alone(Kind::RedBlack);
        let against = |what: &str, paper: f64, other: Option<f64>| {
            let statement = format!("red-black tree against {what}, {sessions} sessions");
            times(statement, paper, ratio(red_black, other))
        };
        vec![
            against("the unbalanced tree", 0.86, alone(Kind::Binary)),
            against("the budget", 3.0, Some(paper::BUDGET_CYCLES)),
            against("a hash table with lists", 4.0, alone(Kind::List)),
        ]
    }

    fn rates(&self) -> Vec<Claim> {
        let largest = self.sizes.sizes.iter().map(|size| size.sessions).max().unwrap_or(0);
        let headers = self.size(Kind::Headers, false, reference(self.sizes)).map(mpps);
        let against_target = |batched: bool, way: &str| {
            let rate = self.size(Kind::Lines3, batched, largest).map(mpps);
            times(
                format!(
                    "lines of 3, {way}, one thread, {largest} sessions against the target of {} \
                     Mpps",
                    paper::TARGET_MPPS,
                ),
                paper::result_mpps() / paper::TARGET_MPPS,
                ratio(rate, Some(paper::TARGET_MPPS)),
            )
        };
        let threads = |count: usize| {
            let is_wanted = |one: &&Threaded| {
                one.variant.kind == Kind::Lines3 && one.variant.batched && one.threads == count
            };
            self.threads.iter().find(is_wanted).map(|one| one.paper_mpps)
        };
        let headers = Claim {
            statement: "headers only".into(),
            paper: paper::HEADERS_MPPS,
            ours: headers,
            unit: "Mpps",
        };
        vec![
            headers,
            against_target(false, "one packet at a time as in the thesis"),
            against_target(true, "batched"),
            times(
                "lines of 3, batched: two threads against one".into(),
                2.0,
                ratio(threads(2), threads(1)),
            ),
        ]
    }

    fn cycles(&self, kind: Kind, batched: bool, sessions: u64) -> Option<f64> {
        let size = self.size(kind, batched, sessions)?;
        Some(self.cycles.of(size.paper_ns.spread.median))
    }

    fn size(&self, kind: Kind, batched: bool, sessions: u64) -> Option<&Size> {
        let mut all = self.sizes.sizes.iter().filter(|size| size.sessions == sessions);
        all.find(|size| size.variant.kind == kind && size.variant.batched == batched)
    }
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

fn mpps(size: &Size) -> f64 {
    1e3 / size.paper_ns.spread.median
}

fn times(statement: String, paper: f64, ours: Option<f64>) -> Claim {
    Claim { statement, paper, ours, unit: "times" }
}

/// Table of the statements.
pub(super) fn table(claims: &[Claim]) -> Table {
    let mut table = Table::new(["statement", "thesis", "here", ""]);
    for claim in claims {
        let ours = claim.ours.map_or("not measured".into(), |ours| format!("{ours:.2}"));
        table.push([&claim.statement, &format!("{:.2}", claim.paper), &ours, claim.unit]);
    }
    table
}

/// The thesis's structures from slowest to fastest, in the thesis and in this project.
pub(super) fn order(sizes: &Sizes) -> String {
    let order = |at: u64| {
        let in_thesis =
            |size: &&Size| size.sessions == at && paper::HAS.contains(&size.variant.kind);
        let mut sizes: Vec<&Size> =
            sizes.sizes.iter().filter(in_thesis).filter(|size| !size.variant.batched).collect();
        sizes.sort_by(|a, b| b.paper_ns.spread.median.total_cmp(&a.paper_ns.spread.median));
        let names: Vec<&str> = sizes.iter().map(|size| size.structure.as_str()).collect();
        format!("with {at} sessions {}", names.join(" > "))
    };
    let few = sizes.sizes.iter().rfind(|size| size.variant.kind == Kind::Linear);
    let mut sentences = vec![format!("From slowest to quickest, in the thesis: {}.", paper::ORDER)];
    let here = few.map(|size| size.sessions).into_iter().chain([reference(sizes)]);
    sentences.extend(here.map(|at| format!("Here, {}.", order(at))));
    sentences.dedup();
    sentences.join(" ")
}

/// Size for comparisons of structures: the size nearest to a million.
pub(super) fn reference(sizes: &Sizes) -> u64 {
    let distance = |sessions: &u64| sessions.abs_diff(1_000_000);
    sizes.sizes.iter().map(|size| size.sessions).min_by_key(distance).unwrap_or(0)
}
