//! `natgate bench sharing`: one table for all workers, or one for each.

use super::{Output, ascending, command, count, require_memory, seconds};
use crate::Failure;
use natgate_lab::sharing::{Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
Three designs of the same plain NAT take turns, with one thread and with two: own tables and packets
that come to their owner; own tables and packets that are handed over; one lock-free table. For up
to 16 cores the cache lines that move between them are counted.

Example:
natgate bench sharing --sessions 1M --seconds 5

lab/bench/src/sharing/README.md describes the comparison.";

/// Compare one table for all workers with one for each
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Numbers of sessions to measure at, such as 64k,1M
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    sessions: Vec<u64>,
    /// Time for each number of sessions and each load
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    plan.sessions = ascending(args.sessions).unwrap_or(plan.sessions);
    plan.time = args.seconds.unwrap_or(plan.time);
    require_memory(plan.memory(), "the comparison", "--sessions")?;
    let report = measure(&plan, &command());
    args.output.deliver("sharing", &report)
}
