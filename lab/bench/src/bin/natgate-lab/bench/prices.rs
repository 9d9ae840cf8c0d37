//! `natgate bench prices`: the price of a million packets a second.

use super::engine::read;
use super::{Output, command};
use crate::Failure;
use natgate_lab::engine::{Plan, measure};
use natgate_lab::prices::{Basis, SERVER_PRICE, SERVER_YEAR, report};
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Example:
natgate bench prices --engine docs/results/engine/engine.json --cores 4

lab/bench/src/prices/README.md names the sources of the numbers.";

/// Redo the paper's price table: dollars for a million packets a second
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Take the speed from this report of bench engine [default: measure a million sessions]
    #[arg(long, value_name = "JSON")]
    engine: Option<PathBuf>,
    /// Price of the server, dollars
    #[arg(long, value_name = "DOLLARS", default_value_t = SERVER_PRICE, value_parser = price)]
    price: f64,
    /// Year of that price
    #[arg(long, value_name = "YEAR", default_value_t = SERVER_YEAR)]
    year: u32,
    /// Cores of the server that translate
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1024),
    )]
    cores: u32,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let (mixed_ns, sessions, source) = match &args.engine {
        Some(path) => {
            let engine = read(path)?;
            let figures = (engine["mixed_ns"].as_f64(), engine["sessions"].as_u64());
            let (Some(mixed_ns), Some(sessions)) = figures else {
                let path = path.display();
                let wrong = format!("{path}: has no mixed_ns; give a JSON of bench engine");
                return Err(Failure::Input(vec![wrong]));
            };
            (mixed_ns, sessions, path.display().to_string())
        }
        None => {
            let (sessions, seconds) =
                if args.output.quick { (20_000, 0.1) } else { (1_000_000, 5.0) };
            let time = Duration::from_secs_f64(seconds);
            let figures = measure(&Plan { sessions, batch: 64, time, tcp: false });
            (figures.mixed_ns, sessions, "measured in this run".to_owned())
        }
    };
    let Args { price, year, cores, .. } = args;
    let basis = Basis { mixed_ns, sessions, source, cores, price, year };
    args.output.deliver("prices", &report(&basis, &command()))
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price| (1.0..=1e9).contains(price));
    price.ok_or("a price is dollars from 1 on, such as 1815".into())
}
