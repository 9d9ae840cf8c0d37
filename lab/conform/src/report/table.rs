//! Comparison of several reports, as a table in Markdown.

use super::{Item, Report, Verdict};
use std::fmt::Write;

/// Table of every requirement that is visible in any of the reports, in their order: its level, the
/// verdict of each report, and the reasons where it is not simply met.
pub fn comparison(reports: &[Report]) -> String {
    let visible = |item: &&Item| item.verdict != Verdict::NotVisible;
    let mut ids: Vec<&Item> =
        reports.iter().flat_map(|report| &report.items).filter(visible).collect();
    ids.sort_by_key(|item| crate::catalogue::rank(&item.id));
    ids.dedup_by_key(|item| &item.id);
    let subjects: Vec<_> = reports.iter().map(|report| cell(&report.subject)).collect();
    let mut text = format!("| requirement | level | {} | why |\n", subjects.join(" | "));
    let _ = writeln!(text, "|---|---|{}---|", "---|".repeat(reports.len()));
    for first in ids {
        let items: Vec<_> = reports.iter().map(|report| report.item(&first.id)).collect();
        let verdicts: Vec<_> = items.iter().map(|item| verdict(*item)).collect();
        let _ = writeln!(
            text,
            "| `{}` {} | {} | {} | {} |",
            first.id,
            cell(&first.text),
            first.level,
            verdicts.join(" | "),
            cell(&reasons(reports, &items))
        );
    }
    text
}

fn verdict(item: Option<&Item>) -> String {
    match item.map(|item| item.verdict) {
        None => "-".to_owned(),
        Some(Verdict::Fail) => "**fail**".to_owned(),
        Some(verdict) => verdict.name().to_owned(),
    }
}

/// Reasons of each report in which the requirement is not met or not tried; equal reasons appear
/// once.
fn reasons(reports: &[Report], items: &[Option<&Item>]) -> String {
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    for (report, item) in reports.iter().zip(items) {
        let Some(item) = item.filter(|item| item.verdict != Verdict::Pass) else { continue };
        match reasons.iter_mut().find(|(_, why)| *why == item.why) {
            Some((who, _)) => who.push(&report.subject),
            None => reasons.push((vec![&report.subject], &item.why)),
        }
    }
    let everybody = |who: &[&str]| who.len() == reports.len();
    let sentences = reasons.iter().map(|(who, why)| match everybody(who) {
        true => (*why).to_owned(),
        false => format!("{}: {why}", who.join(", ")),
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// Text escaped for a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}
