//! `natgate bench day`: a day of an ISP's subscribers, for every way of choosing external ports.

use super::{Output, command, count, require_memory};
use crate::Failure;
use natgate_control::json::{self, Names};
use natgate_engine::Event;
use natgate_lab::day::{Plan, measure};

const AFTER_HELP: &str = "\
Subscribers come and go, and open more sessions in the evening than at night. A few subscribers
open most of the sessions. For each allocation, the results are the use of ports, blocks and
addresses, the refused sessions with their reasons, and the length of the log. Time is virtual; the
same seed gives the same day.

Examples:
natgate bench day --quick
natgate bench day --subscribers 20k --hours 12 --seed 7 --out /tmp/day

lab/bench/src/day/README.md describes the assumptions of the traffic model.";

/// Simulate a day of an ISP's subscribers: ports, refusals, log volume
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Internal addresses of subscribers [default: 100k; quick: 1k]
    #[arg(long, value_name = "N", value_parser = subscribers)]
    subscribers: Option<u32>,
    /// Hours of the day, from five in the morning [default: 24; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=168))]
    hours: Option<u32>,
    /// Sessions that an address in use all day opens on average
    #[arg(
        long,
        value_name = "N",
        default_value_t = Plan::full().sessions,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    sessions: u32,
    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = Plan::full().seed)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    plan.subscribers = args.subscribers.unwrap_or(plan.subscribers);
    plan.hours = args.hours.unwrap_or(plan.hours);
    plan.sessions = args.sessions;
    plan.seed = args.seed;
    require_memory(plan.memory(), "simulating so many subscribers", "--subscribers")?;
    args.output.deliver("day", &measure(&plan, &line, &command()))
}

/// Length of an event as a line of the log.
fn line(event: &Event) -> usize {
    // The measured lines contain neither pools nor classes.
    let names = Names::default();
    let line = serde_json::to_string(&json::event(event, &names)).expect("an event is JSON");
    line.len() + 1
}

fn subscribers(text: &str) -> Result<u32, String> {
    let number = count(text).ok().filter(|number| *number <= Plan::MOST.into());
    let number = number.ok_or("a number of subscribers is 1 to 1M, such as 500, 20k or 1M")?;
    Ok(number as u32)
}
