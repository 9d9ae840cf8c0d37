//! `natgate bench`: the laboratory's experiments. Here are the choice of one and what they share: how
//! the results leave. Each experiment's arguments are in a file of its own, the experiments themselves
//! in the lab crate.

mod day;
mod engine;
mod instructions;
mod prices;
mod rfc9693;
mod rules;
mod soak;
mod structures;

use crate::Failure;
use anyhow::Context;
use clap::Subcommand;
use natgate_lab::report::Report;
use std::io::Write;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Times are processor time, which a shared machine changes least. Each experiment writes NAME.json,
NAME.md and NAME*.svg, with the facts of the machine, to docs/results/NAME/ under the current
directory or to --out DIR. With --json the JSON goes to standard output instead, or, with both
options, as well.

Examples:
natgate bench structures --quick
natgate bench structures --sessions 1M,4M --out /tmp/structures

docs/bench.md describes the experiments.";

/// Measure natgate and repeat the measurements of the literature
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Engine(engine::Args),
    Structures(structures::Args),
    Rules(rules::Args),
    Rfc9693(rfc9693::Args),
    Prices(prices::Args),
    Instructions(instructions::Args),
    Soak(soak::Args),
    Day(day::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.bench {
        Bench::Engine(args) => engine::run(args),
        Bench::Structures(args) => structures::run(args),
        Bench::Rules(args) => rules::run(args),
        Bench::Rfc9693(args) => rfc9693::run(args),
        Bench::Prices(args) => prices::run(args),
        Bench::Instructions(args) => instructions::run(args),
        Bench::Soak(args) => soak::run(args),
        Bench::Day(args) => day::run(args),
    }
}

/// Where the results go, and how much is measured.
#[derive(clap::Args)]
struct Output {
    /// Write the files to this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the JSON on standard output
    #[arg(long)]
    json: bool,
    /// Measure a small version that takes seconds
    #[arg(long)]
    quick: bool,
}

impl Output {
    /// Hands over a report as the options say; `name` is the directory's when none is given.
    fn deliver(&self, name: &str, report: &Report) -> Result<(), Failure> {
        let mut text = String::new();
        let default = || (!self.json).then(|| PathBuf::from("docs/results").join(name));
        if let Some(directory) = self.out.clone().or_else(default) {
            let files = report.write(&directory).map_err(anyhow::Error::from)?;
            for file in files {
                text.push_str(&format!("{}\n", file.display()));
            }
        }
        if self.json {
            text = format!("{:#}\n", report.json());
        }
        let mut output = std::io::stdout();
        Ok(output.write_all(text.as_bytes()).context("standard output cannot be written")?)
    }
}

/// The command as it was given.
fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("natgate {}", arguments.join(" "))
}

/// A number of sessions: `500`, `64k`, `1M`, `65.5M`.
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    match digits.parse::<f64>().map(|number| number * unit) {
        Ok(number) if (1.0..=1e9).contains(&number) && number.fract() == 0.0 => Ok(number as u64),
        _ => Err("a number of sessions is 1 to 1000M, such as 500, 64k or 65.5M".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_units() {
        assert_eq!(count("500"), Ok(500));
        assert_eq!(count("64k"), Ok(64_000));
        assert_eq!(count("65.5M"), Ok(65_500_000));
        for wrong in ["", "M", "-1", "0", "1.5", "nan", "2000M", "é"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
