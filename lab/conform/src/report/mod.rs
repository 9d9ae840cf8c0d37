//! What came out: for each requirement a verdict, why, and what was seen.
//!
//! The same [`Report`] becomes text, a page of HTML, or, by its serialization, JSON; JSON read back
//! gives the same report again.

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

/// What became of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is met, as far as can be seen.
    Pass,
    /// It is not met.
    Fail,
    /// It does not concern this translator as it is set up.
    NotApplicable,
    /// It was not tried, or could not be found out.
    NotTested,
    /// No packet from outside can show it.
    NotVisible,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 5] =
        [Self::Pass, Self::Fail, Self::NotApplicable, Self::NotTested, Self::NotVisible];

    /// Its name for people.
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

/// One requirement's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its name: `rfc4787#REQ-1`.
    pub id: String,
    /// How strongly the RFC asks for it, in the RFC's word.
    pub level: String,
    /// What it asks for.
    pub text: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Why, in a sentence or two.
    pub why: String,
    /// How long the test took, seconds.
    pub seconds: f64,
    /// What was sent and what came, in order.
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

    /// Whether the RFC leaves no choice.
    pub fn is_must(&self) -> bool {
        matches!(&self.level[..], "MUST" | "MUST NOT" | "REQUIRED" | "SHALL" | "SHALL NOT")
    }

    /// The RFC that it is from: `rfc4787`.
    pub fn rfc(&self) -> &str {
        self.id.split('#').next().unwrap_or_default()
    }
}

/// Milliseconds are enough.
fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// A time for people.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, 0) => format!("{m} min"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Everything that was found out about a translator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version that found it out.
    pub natgate: String,
    /// What was tried, in words.
    pub subject: String,
    /// How long it took, seconds; simulated ones if time was simulated.
    pub seconds: f64,
    /// The external addresses that were seen.
    pub external: Vec<Ipv4Addr>,
    /// The requirements, in order.
    pub items: Vec<Item>,
}

/// How many requirements came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// In the order of [`Verdict::ALL`].
    pub verdicts: [usize; 5],
}

impl Report {
    /// How many requirements, of those that leave no choice or of the others, came to what.
    pub fn count(&self, must: bool) -> Count {
        let mut count = Count::default();
        for item in self.items.iter().filter(|item| item.is_must() == must) {
            count.verdicts[item.verdict as usize] += 1;
        }
        count
    }

    /// Requirements that leave no choice and are not met, but for those that are allowed to by name
    /// or the beginning of it.
    pub fn failed_musts(&self, allowed: &[String]) -> impl Iterator<Item = &Item> {
        let allowed = move |id: &str| !allowed.is_empty() && is_named(id, allowed);
        self.items
            .iter()
            .filter(move |it| it.is_must() && it.verdict == Verdict::Fail && !allowed(&it.id))
    }

    /// A requirement's result.
    pub fn item(&self, id: &str) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }

    /// For people, at a terminal; failures with their evidence if asked for.
    pub fn text(&self, evidence: bool) -> String {
        text::write(self, evidence)
    }

    /// A page of HTML that needs nothing else.
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
