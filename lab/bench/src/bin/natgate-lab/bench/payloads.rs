//! `natgate bench payloads`: messages of application-level gateways.

use super::{Output, command};
use crate::Failure;
use natgate_lab::payloads::{Plan, measure};

const AFTER_HELP: &str = "\
A gateway in memory with all application-level gateways gets registrations, answers and calls of
SIP, and packets of other protocols, which a gateway without application-level gateways gets, too.

Example:
natgate bench payloads --rounds 20

lab/bench/src/payloads/README.md describes the measurement.";

/// Measure messages of application-level gateways, and what these cost other packets
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Rounds of each kind of message
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    plan.rounds = args.rounds.map_or(plan.rounds, |rounds| rounds as usize);
    let report = measure(&plan, &command());
    args.output.deliver("payloads", &report)
}
