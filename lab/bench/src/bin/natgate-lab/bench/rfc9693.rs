//! `natgate bench rfc9693`: connection rates, throughput and capacity by RFC 9693's methods.

use super::{Batch, Output, command, count, require_memory};
use crate::Failure;
use natgate_lab::rfc9693::{Plan, measure};

const AFTER_HELP: &str = "\
The engine runs on one core between two virtual links in memory. Virtual time advances by the
engine's processor time. Large tables have fewer repetitions. The whole experiment takes most of an
hour.

Examples:
natgate bench rfc9693 --quick
natgate bench rfc9693 --sessions 1M,10M --repetitions 5 --out /tmp/rfc9693
natgate bench rfc9693 --nat64 --sessions 1M

lab/bench/src/rfc9693/README.md describes the method and its differences from the RFC.";

/// Measure connection rates, throughput and table capacity by RFC 9693's methods
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Sizes of the table, such as 64k,1M [default: 1M,10M,65.5M; quick: 5k,20k]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    sessions: Vec<u64>,
    /// Measure NAT64: the connections have IPv6 inside
    #[arg(long)]
    nat64: bool,
    #[command(flatten)]
    batch: Batch,
    /// Most repetitions of each search [default: 20; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: Option<u64>,
    /// Room for sessions while the capacity is searched [default: 10M; quick: 30k]
    #[arg(long, value_name = "N", value_parser = count)]
    capacity: Option<u64>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    if !args.sessions.is_empty() {
        plan.sessions = args.sessions;
    }
    plan.nat64 = args.nat64;
    plan.batch = args.batch.packets();
    plan.repetitions = args.repetitions.unwrap_or(plan.repetitions);
    plan.capacity = args.capacity.unwrap_or(plan.capacity);
    plan.first_capacity = plan.first_capacity.min(plan.capacity);
    if plan.sessions.iter().any(|&sessions| sessions > Plan::MOST) || plan.capacity > Plan::MOST {
        let most = Plan::MOST;
        let wrong = format!("--sessions and --capacity: there are addresses for {most} at most");
        return Err(Failure::Input(vec![wrong]));
    }
    require_memory(plan.memory(), "measuring so many sessions", "--sessions")?;
    let report = measure(&plan, &command());
    args.output.deliver(plan.name(), &report)
}
