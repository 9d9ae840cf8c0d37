//! `natgate bench ipv6`: translations of IPv6 and softwires beside NAT44.

use super::{Batch, Output, ascending, command, count, require_memory, seconds};
use crate::Failure;
use natgate_lab::ipv6::{Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
NAT44, NAT64 (RFC 6146), DS-Lite (RFC 6333), SIIT by a prefix and by 1,000 explicit maps (RFC 7915,
RFC 7757), NPTv6 (RFC 6296), lw4o6 with a million bindings (RFC 7596), MAP-E and MAP-T with 10,000
domains (RFC 7597, RFC 7599) take turns, with the same number of sessions in random order. The JSON
has nanoseconds a packet, ratios to NAT44, and bytes a session and a host.

Example:
natgate bench ipv6 --sessions 1M,20M --seconds 20

lab/bench/src/ipv6/README.md describes the method.";

/// Measure translations of IPv6 and softwires beside NAT44: nanoseconds a packet, bytes a session
/// and a host
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Numbers of sessions, such as 64k,1M [default: 1M,20M; quick: 20k]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = count)]
    sessions: Vec<u64>,
    #[command(flatten)]
    batch: Batch,
    /// Time of the measurement of one number of sessions [default: 20; quick: 0.2]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    plan.sessions = ascending(args.sessions).unwrap_or(plan.sessions);
    plan.batch = args.batch.packets();
    plan.time = args.seconds.unwrap_or(plan.time);
    if plan.sessions.last().is_some_and(|sessions| *sessions > Plan::MOST) {
        let wrong = format!("--sessions: there are hosts for {} at most", Plan::MOST);
        return Err(Failure::Input(vec![wrong]));
    }
    require_memory(plan.memory(), "measuring so many sessions", "--sessions")?;
    let report = measure(&plan, &command());
    args.output.deliver("ipv6", &report)
}
