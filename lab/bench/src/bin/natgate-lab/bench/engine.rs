//! `natgate bench engine`: the translator's own speed, memory, pauses.

use super::{Batch, Output, command, count, instructions, require_memory, seconds};
use crate::Failure;
use anyhow::Context;
use natgate_cli::NO_OUTPUT;
use natgate_lab::engine::{Plan, run as measure};
use natgate_lab::report::Report;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const AFTER_HELP: &str = "\
The JSON has outbound_ns, inbound_ns, mixed_ns (a packet of an established session, sessions at
random), create_ns (a new session), limit_ns (one random line of memory, the limit of any table
that is larger than the caches), bytes_per_session, sessions, cycles_per_ns, and more. Times are
processor time of the thread.

Examples:
natgate bench engine --sessions 1M --seconds 5 --json
natgate bench engine --sessions 65.5M --threads 2 --out /tmp/now --compare before/engine.json

lab/bench/src/engine/README.md describes the method.";

/// Measure the translator: nanoseconds a packet, bytes a session, the longest pause
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Established sessions, such as 64k, 1M, 65.5M [default: 65.5M; quick: 20k]
    #[arg(long, value_name = "N", value_parser = count)]
    sessions: Option<u64>,
    #[command(flatten)]
    batch: Batch,
    /// Time of the measurement of established sessions [default: 10; quick: 0.2]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Measure TCP connections instead of UDP sessions
    #[arg(long)]
    tcp: bool,
    /// Compare this number of threads with one; each has its share of the sessions
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=64),
    )]
    threads: u8,
    /// Show the difference to an earlier run
    #[arg(long, value_name = "JSON")]
    compare: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let quick = args.output.quick;
    let (sessions, seconds) = if quick { (20_000, 0.2) } else { (65_500_000, 10.0) };
    let plan = Plan {
        sessions: args.sessions.unwrap_or(sessions),
        batch: args.batch.packets(),
        time: args.seconds.unwrap_or(Duration::from_secs_f64(seconds)),
        tcp: args.tcp,
    };
    require_memory(plan.memory(), "measuring so many sessions", "--sessions")?;
    let earlier = args.compare.as_deref().map(read).transpose()?;
    let report = Report::new("engine", "The engine's speed", &command());
    let results = measure(&plan, args.threads.into(), quick, report.machine().cycles_per_ns());
    let changes = match (&earlier, &args.compare) {
        (Some(earlier), Some(path)) => results
            .against(earlier)
            .map_err(|wrong| Failure::Input(vec![format!("{}: {wrong}", path.display())]))?,
        _ => Vec::new(),
    };
    // Without valgrind the report explains how to get the counts.
    let counts = if quick { Vec::new() } else { instructions::count(false).unwrap_or_default() };
    if !args.output.json {
        let mut output = std::io::stdout();
        output.write_all(results.summary(&changes).as_bytes()).context(NO_OUTPUT)?;
    }
    args.output.deliver("engine", &results.report(report, &counts, &changes))
}

/// Reads the JSON of an earlier run.
pub(super) fn read(path: &Path) -> Result<serde_json::Value, Failure> {
    let wrong = |error: String| Failure::Input(vec![format!("{}: {error}", path.display())]);
    let text =
        std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| wrong(format!("is no JSON: {error}")))
}
