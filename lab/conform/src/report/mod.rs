//! Results: a verdict for each requirement, its reason, and the evidence.
//!
//! A [`Report`] becomes text, a page of HTML, or JSON by its serialization. Reading the JSON gives
//! an equal report.

mod html;
mod table;
mod text;

pub use table::comparison;

use crate::catalogue::{self, Requirement};
use crate::setup::is_named;
use crate::stage::{Finding, Stop};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Result of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The requirement is met, as far as it is visible.
    Pass,
    /// The requirement is not met.
    Fail,
    /// The requirement does not apply to this translator with its configuration.
    NotApplicable,
    /// The requirement was not tried, or the trial gave no result.
    NotTested,
    /// No packet from outside can show the requirement.
    NotVisible,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 5] =
        [Self::Pass, Self::Fail, Self::NotApplicable, Self::NotTested, Self::NotVisible];

    /// Name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotApplicable => "n/a",
            Self::NotTested => "not tested",
            Self::NotVisible => "not visible",
        }
    }
}

/// Result of one requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Name: `rfc4787#REQ-1`.
    pub id: String,
    /// Level in the RFC's word.
    pub level: String,
    /// Text of the requirement.
    pub text: String,
    /// Verdict on the requirement.
    pub verdict: Verdict,
    /// Reason, in one or two sentences.
    pub why: String,
    /// Duration of the test, seconds.
    pub seconds: f64,
    /// Sent and received packets, in order.
    pub evidence: Vec<String>,
}

impl Item {
    pub(crate) fn new(
        requirement: &str,
        finding: Finding,
        evidence: &[String],
        seconds: f64,
    ) -> Self {
        let (verdict, why) = match finding {
            Ok(why) => (Verdict::Pass, why),
            Err(Stop::Failed(why)) => (Verdict::Fail, why),
            Err(Stop::NotApplicable(why)) => (Verdict::NotApplicable, why),
            Err(Stop::NotTested(why)) => (Verdict::NotTested, why),
        };
        let evidence = evidence.to_vec();
        Self { verdict, why, seconds: round(seconds), evidence, ..Self::empty(requirement) }
    }

    pub(crate) fn left_out(requirement: &str, needs: Duration) -> Self {
        let why = format!("Not tested: needs {}.", minutes(needs));
        Self { why, ..Self::empty(requirement) }
    }

    pub(crate) fn unseen(requirement: &Requirement, why: &str) -> Self {
        let verdict = Verdict::NotVisible;
        Self { verdict, why: why.to_owned(), ..Self::empty(&requirement.id) }
    }

    fn empty(id: &str) -> Self {
        let known = catalogue::find(id);
        Self {
            id: id.to_owned(),
            level: known.map(|one| one.level.clone()).unwrap_or_default(),
            text: known.map(|one| one.text.clone()).unwrap_or_default(),
            verdict: Verdict::NotTested,
            why: String::new(),
            seconds: 0.0,
            evidence: Vec::new(),
        }
    }

    /// Returns true if the RFC requires it absolutely.
    pub fn is_must(&self) -> bool {
        matches!(&self.level[..], "MUST" | "MUST NOT" | "REQUIRED" | "SHALL" | "SHALL NOT")
    }

    /// RFC of the requirement: `rfc4787`.
    pub fn rfc(&self) -> &str {
        self.id.split('#').next().unwrap_or_default()
    }
}

/// Rounds to milliseconds.
fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// A duration for people.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Results of one translator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of natgate that ran the suite.
    pub natgate: String,
    /// Description of the tested translator.
    pub subject: String,
    /// Duration, seconds; in simulated time if time was simulated.
    pub seconds: f64,
    /// Observed external addresses.
    pub external: Vec<Ipv4Addr>,
    /// Results of the requirements, in order.
    pub items: Vec<Item>,
}

/// Number of requirements by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Numbers in the order of [`Verdict::ALL`].
    pub verdicts: [usize; 5],
}

impl Report {
    /// Counts the verdicts of the absolute requirements, or of the others.
    pub fn count(&self, must: bool) -> Count {
        let mut count = Count::default();
        for item in self.items.iter().filter(|item| item.is_must() == must) {
            count.verdicts[item.verdict as usize] += 1;
        }
        count
    }

    /// Absolute requirements that failed and are not allowed to fail. `allowed` has names or their
    /// beginnings.
    pub fn failed_musts(&self, allowed: &[String]) -> impl Iterator<Item = &Item> {
        let allowed = move |id: &str| !allowed.is_empty() && is_named(id, allowed);
        self.items
            .iter()
            .filter(move |it| it.is_must() && it.verdict == Verdict::Fail && !allowed(&it.id))
    }

    /// Result of a requirement.
    pub fn item(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    /// Text for a terminal; with `evidence` failures have their packets.
    pub fn text(&self, evidence: bool) -> String {
        text::write(self, evidence)
    }

    /// A self-contained page of HTML.
    pub fn html(&self) -> String {
        html::write(self)
    }

    /// Counts in one sentence.
    pub(crate) fn summary(&self) -> String {
        let part = |must: bool| {
            let count = self.count(must).verdicts;
            let parts = Verdict::ALL.iter().zip(count).filter(|(_, number)| *number > 0);
            let parts: Vec<_> =
                parts.map(|(verdict, number)| format!("{number} {}", verdict.name())).collect();
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
        };
        format!("MUST: {}; other: {}", part(true), part(false))
    }
}

#[cfg(test)]
mod tests;
