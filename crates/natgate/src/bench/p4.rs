//! `natgate bench p4`: the NAT in P4, interpreted and as Rust, beside natgate itself.

use super::{Output, command, io::fill, mappings, seconds};
use crate::Failure;
use natgate_lab::p4::{MOST_ENTRIES, Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
Everything happens in memory: the same Ethernet frames go through each, and what making and taking
them costs is measured, too. One processor.

Examples:
natgate bench p4 --quick
natgate bench p4 --entries 100,1M --frames 64 --seconds 5

crates/lab/src/p4/README.md says how it is measured, and what came out.";

/// Measure the NAT in P4, interpreted and as Rust, beside natgate itself
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Lengths of frames, bytes [default: 64,128,256,512,1024,1280,1518; quick: 64,1518]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(64..=1518),
    )]
    frames: Vec<u16>,
    /// Numbers of entries [default: 100,10k,1M; quick: 100,10k]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = mappings)]
    entries: Vec<u32>,
    /// Time of each measurement [default: 1; quick: 0.05]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    fill(&mut plan.frames, args.frames);
    fill(&mut plan.entries, args.entries);
    if let Some(entries) = plan.entries.iter().find(|entries| **entries > MOST_ENTRIES) {
        return Err(Failure::Input(vec![format!(
            "--entries {entries}: the program's tables have room for {MOST_ENTRIES} at most"
        )]));
    }
    plan.time = args.seconds.unwrap_or(plan.time);
    let report = measure(&plan, &command());
    args.output.deliver("p4", &report)
}
