//! `natgate bench structures`: a comparison of a software NAT's lookup structures.

use super::{Output, ascending, command, count, seconds};
use crate::Failure;
use natgate_lab::structures::{Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
Outbound packets with random endpoints make all sessions. Then packets answer all of them, and find
them again in random order, alone and in batches that are fetched ahead. A structure stops at the
size at which one pass would take minutes.

Example:
natgate bench structures --sessions 64k,1M --threads 1,2

lab/bench/src/structures/README.md describes the comparison and its results.";

/// Compare the possible lookup structures of a NAT, by sessions and by threads
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Sessions to measure at, ascending, such as 500,64k,1M,65.536M
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    sessions: Vec<u64>,
    /// Numbers of threads to compare
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(1..=64),
    )]
    threads: Vec<u8>,
    /// Time for the repetitions of one structure at one size
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    plan.sessions = ascending(args.sessions).unwrap_or(plan.sessions);
    if !args.threads.is_empty() {
        plan.threads = args.threads.into_iter().map(usize::from).collect();
    }
    plan.time = args.seconds.unwrap_or(plan.time);
    let report = measure(&plan, &command());
    args.output.deliver("structures", &report)
}
