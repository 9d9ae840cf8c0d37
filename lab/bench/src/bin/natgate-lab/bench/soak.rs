//! `natgate bench soak`: an hour of virtual time over a table as large as memory permits.

use super::{Output, command, count, require_memory};
use crate::{Failure, memory};
use natgate_lab::soak::{Plan, report, run as soak};
use std::io::Write;

const AFTER_HELP: &str = "\
The experiment fills the table and more, then sends random traffic for an hour. It compares every
packet that leaves with the events and, now and then, every mapping, session and port. A broken
invariant is an error that names the seed. The experiment writes files only if --out names a
directory.

Example:
natgate bench soak --sessions 1M --packets 20M --seed 7

lab/bench/src/soak/README.md lists the promises.";

/// Check the engine's invariants in a big table over a random hour of virtual time
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Mappings in the table [default: as many as memory permits, at most 65.5M; quick: 10k]
    #[arg(long, value_name = "N", value_parser = count)]
    sessions: Option<u64>,
    /// Packets of the hour [default: four a mapping; quick: 40 a mapping]
    #[arg(long, value_name = "N", value_parser = count)]
    packets: Option<u64>,
    /// Seed of the traffic [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let output = args.output;
    let mappings = args.sessions.unwrap_or_else(|| match output.quick {
        true => 10_000,
        // Other programs keep a part of the memory.
        false => Plan::mappings_in(memory::available().unwrap_or(u64::MAX) / 10 * 7),
    });
    let packets = args.packets.unwrap_or(mappings * if output.quick { 40 } else { 4 });
    let seed = match args.seed {
        Some(seed) => seed,
        None => getrandom::u64().map_err(|error| anyhow::anyhow!("no random seed: {error}"))?,
    };
    let plan = Plan { mappings, packets, seed };
    require_memory(plan.memory(), "soaking so many sessions", "--sessions")?;
    let results = soak(&plan).map_err(|broken| anyhow::anyhow!("a promise is broken: {broken}"))?;
    if output.json || output.out.is_some() {
        return output.deliver("soak", &report(&results, &command()));
    }
    let said = format!(
        "every promise was kept: {} packets, {} mappings made, at most {} at a time, seed {seed}\n",
        results.packets, results.made, results.most
    );
    let written = std::io::stdout().write_all(said.as_bytes());
    Ok(written.map_err(|error| anyhow::anyhow!("standard output cannot be written: {error}"))?)
}
