//! The report as one self-contained page: without scripts and other files.

use super::{Item, Report, Verdict, minutes};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::time::Duration;

const STYLE: &str = "
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em;
  color: #222; background: #fff; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100%; margin-bottom: 2em }
th, td { text-align: left; vertical-align: top; padding: .3em .6em; border-bottom: 1px solid #ddd }
td.id, td.level { white-space: nowrap }
pre { white-space: pre-wrap; background: #f6f6f6; padding: .6em; font-size: 12px }
.pass { color: #06692f } .fail { color: #b00020; font-weight: bold }
.not-applicable, .not-tested, .not-visible { color: #666 }
summary { cursor: pointer; color: #666 }
@media (max-width: 45em) {
  body { margin: 1em auto }
  .counts th, .counts td { padding: .3em .2em; font-size: 12px; overflow-wrap: break-word }
  .items, .items tbody, .items tr { display: block }
  .items .names { display: none }
  .items tr { border-bottom: 1px solid #ddd; padding: .4em 0 }
  .items td { display: block; border: 0; padding: .1em 0 }
  .items td.id, .items td.level, .items td.verdict { display: inline-block; margin-right: 1em }
}
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b } th, td, .items tr { border-color: #444 }
  pre { background: #262626 }
  .pass { color: #5fd38d } .fail { color: #ff6b81 }
  .not-applicable, .not-tested, .not-visible, summary { color: #999 }
}
";

pub(super) fn write(report: &Report) -> String {
    let title = format!("Conformance: {}", report.subject);
    let external: Vec<_> = report.external.iter().map(ToString::to_string).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p {
                    "External addresses seen: " (external.join(", ")) ". Took "
                    (minutes(Duration::from_secs_f64(report.seconds.max(0.0))))
                    ". Made by natgate conform " (report.natgate) "."
                }
                (counts(report))
                @for rfc in rfcs(report) {
                    h2 id=(rfc) { (rfc.to_uppercase()) ": " (crate::catalogue::title(rfc)) }
                    (table(report, rfc))
                }
            }
        }
    };
    page.into_string()
}

fn counts(report: &Report) -> Markup {
    html! {
        table.counts {
            tr {
                th {}
                @for verdict in Verdict::ALL { th class=(class(verdict)) { (verdict.name()) } }
            }
            @for (name, must) in [("MUST, MUST NOT", true), ("SHOULD, RECOMMENDED, MAY", false)] {
                tr {
                    th { (name) }
                    @for number in report.count(must).verdicts { td { (number) } }
                }
            }
        }
    }
}

fn rfcs(report: &Report) -> Vec<&str> {
    let mut rfcs: Vec<&str> = report.items.iter().map(Item::rfc).collect();
    rfcs.dedup();
    rfcs
}

fn table(report: &Report, rfc: &str) -> Markup {
    html! {
        table.items {
            tr.names {
                th { "requirement" } th { "level" } th { "verdict" }
                th { "what it asks for, and why" }
            }
            @for item in report.items.iter().filter(|item| item.rfc() == rfc) {
                tr id=(item.id) {
                    td.id { (item.id.split('#').nth(1).unwrap_or_default()) }
                    td.level { (item.level) }
                    td class={ "verdict " (class(item.verdict)) } { (item.verdict.name()) }
                    td {
                        (item.text) br; em { (item.why) }
                        @if !item.evidence.is_empty() {
                            details {
                                summary { (item.evidence.len()) " lines of evidence" }
                                pre { (item.evidence.join("\n")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NotApplicable => "not-applicable",
        Verdict::NotTested => "not-tested",
        Verdict::NotVisible => "not-visible",
    }
}
