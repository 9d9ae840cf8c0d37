//! The report as text.

use super::{Report, Verdict};
use std::fmt::Write;

pub(super) fn write(report: &Report, evidence: bool) -> String {
    let mut text = String::new();
    let mut rfc = "";
    for item in &report.items {
        // The list of requirements already has everything about them.
        if item.verdict == Verdict::NotVisible {
            continue;
        }
        if item.rfc() != rfc {
            rfc = item.rfc();
            let _ = writeln!(text, "\n{} {}", rfc.to_uppercase(), crate::catalogue::title(rfc));
        }
        let (verdict, name) = (item.verdict.name(), item.id.split('#').nth(1).unwrap_or_default());
        let _ = writeln!(text, "  {verdict:<10} {name:<24} {:<11} {}", item.level, item.text);
        if item.verdict != Verdict::Pass || evidence {
            let _ = writeln!(text, "  {:47} {}", "", item.why);
        }
        if evidence && item.verdict == Verdict::Fail {
            for line in &item.evidence {
                let _ = writeln!(text, "  {:47}   {line}", "");
            }
        }
    }
    let _ = writeln!(text, "\n{}", report.summary());
    text
}
