//! `natgate bench`: the laboratory's experiments. This file chooses the experiment and delivers its
//! results. A file for each experiment has its arguments. The experiments themselves are in the lab
//! crate.

mod day;
mod engine;
mod instructions;
mod io;
mod ipv6;
mod live;
mod p4;
mod pair;
mod payloads;
mod prices;
mod rfc9693;
mod router;
mod rules;
mod sharing;
mod soak;
mod structures;
mod timings;

use crate::{Failure, memory};
use anyhow::Context;
use clap::Subcommand;
use natgate_cli::NO_OUTPUT;
use natgate_lab::report::Report;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Times are processor time, because other programs on the machine change it least; io, pair, router
and timings send real packets. Each experiment writes NAME.json, NAME.md and NAME*.svg, with the
facts of the machine, to docs/results/NAME/ under the current directory or to --out DIR. With
--json, the JSON goes to standard output instead. With both options, it goes to both.

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
    Ipv6(ipv6::Args),
    Structures(structures::Args),
    Rules(rules::Args),
    Sharing(sharing::Args),
    Rfc9693(rfc9693::Args),
    Prices(prices::Args),
    Instructions(instructions::Args),
    Soak(soak::Args),
    Day(day::Args),
    Io(io::Args),
    P4(p4::Args),
    Pair(pair::Args),
    Payloads(payloads::Args),
    Router(router::Args),
    Timings(timings::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.bench {
        Bench::Engine(args) => engine::run(args),
        Bench::Ipv6(args) => ipv6::run(args),
        Bench::Structures(args) => structures::run(args),
        Bench::Rules(args) => rules::run(args),
        Bench::Sharing(args) => sharing::run(args),
        Bench::Rfc9693(args) => rfc9693::run(args),
        Bench::Prices(args) => prices::run(args),
        Bench::Instructions(args) => instructions::run(args),
        Bench::Soak(args) => soak::run(args),
        Bench::Day(args) => day::run(args),
        Bench::Io(args) => io::run(args),
        Bench::P4(args) => p4::run(args),
        Bench::Pair(args) => pair::run(args),
        Bench::Payloads(args) => payloads::run(args),
        Bench::Router(args) => router::run(args),
        Bench::Timings(args) => timings::run(args),
    }
}

/// Destination of the results, and size of the measurement.
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
    /// Chooses the small or the full plan.
    fn choose<P>(&self, quick: fn() -> P, full: fn() -> P) -> P {
        if self.quick { quick() } else { full() }
    }

    /// Delivers a report according to the options. `name` is the directory's name if `--out` is
    /// missing.
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
        Ok(output.write_all(text.as_bytes()).context(NO_OUTPUT)?)
    }
}

/// Number of packets in a batch.
#[derive(clap::Args)]
struct Batch {
    /// Packets in one call of the translator
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    batch: u16,
}

impl Batch {
    fn packets(&self) -> usize {
        self.batch.into()
    }
}

/// Checks that the memory for an experiment is available. `option` is the option that reduces it.
fn require_memory(bytes: u64, what: &str, option: &str) -> Result<(), Failure> {
    memory::require(bytes, what)
        .map_err(|lack| Failure::Input(vec![format!("{lack}; give fewer {option}")]))
}

/// The command with its arguments.
fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("natgate {}", arguments.join(" "))
}

/// Parses a number of sessions: `500`, `64k`, `1M`, `65.5M`.
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

/// Parses a number of mappings that live traffic makes.
fn mappings(text: &str) -> Result<u32, String> {
    let most = 1 << 24;
    let wrong = format!("a number of mappings is 1 to {most}, such as 100, 10k or 1M");
    count(text).ok().filter(|count| *count <= most).map(|count| count as u32).ok_or(wrong)
}

/// Parses a time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or("a time is 0 to 3600 seconds, such as 0.5".into())
}

/// Sorts sizes in the order of their measurement, without repetitions; `None` if there are none.
fn ascending(mut sizes: Vec<u64>) -> Option<Vec<u64>> {
    sizes.sort_unstable();
    sizes.dedup();
    Some(sizes).filter(|sizes| !sizes.is_empty())
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

    #[test]
    fn sizes_are_measured_in_ascending_order() {
        assert_eq!(ascending(vec![3, 1, 3, 2]), Some(vec![1, 2, 3]));
        assert_eq!(ascending(Vec::new()), None);
    }
}
