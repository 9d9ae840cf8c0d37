//! `natgate bench rules`: time to find the rule of a packet, by the number of rules.

use super::{Output, ascending, command, count, seconds};
use crate::Failure;
use natgate_lab::rules::{Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
The searches are Quick NAT's as its paper describes it, a walk through an ordered list (to 10,000
rules), and natgate's. Caches are warm or cold; packets come one at a time or in batches; rules are
a carrier's, or scattered over all addresses and lengths.

Example:
natgate bench rules --rules 100,10k,1M

lab/bench/src/rules/README.md describes the comparison.";

/// Most rules in a measurement: as many as a configuration file can have.
const MOST: u64 = 4_000_000;

/// Measure the search for a packet's rule, by the number of rules
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Numbers of rules to measure at, such as 100,10k,1M
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = rules)]
    rules: Vec<u64>,
    /// Time for the repetitions of one figure
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    plan.rules = ascending(args.rules).unwrap_or(plan.rules);
    plan.time = args.seconds.unwrap_or(plan.time);
    let report = measure(&plan, &command());
    args.output.deliver("rules", &report)
}

fn rules(text: &str) -> Result<u64, String> {
    let number = count(text).ok().filter(|number| *number <= MOST);
    number.ok_or("a number of rules is 1 to 4M, such as 500, 10k or 1M".into())
}
