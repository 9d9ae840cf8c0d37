//! `natgate bench router`: delay, throughput, memory and processor time of a NAT router; with
//! `--transition` technologies of IPv6 by RFC 8219.

use super::{Output, command, live, mappings, seconds};
use crate::{Failure, memory};
use natgate_lab::bed::BackEnd;
use natgate_lab::router::transition::{self, Technology};
use natgate_lab::router::{Part, Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
The experiment makes its own network namespaces. It needs root, ip, ethtool, setpriv and nft. The
whole experiment takes three quarters of an hour; RFC 2544 requires --trial 60, which takes days.

With --transition it measures technologies of the transition to IPv6 by RFC 8219, between virtual
links in memory. That needs neither root nor programs, and takes an hour. It fails if a technology
or a size of frames could not be measured.

Examples:
natgate bench router --quick
natgate bench router --back-end af-packet --trial 2 --out /tmp/router
natgate bench router --only transit,latency --trial 0.5
natgate bench router --transition --out /tmp/transition
natgate bench router --transition=nat64,464xlat --repetitions 5

lab/bench/src/router/README.md describes the method and the results of the thesis.";

/// Measure natgate as a router: delay, throughput, memory, processor time by entries (Chugh 2003)
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Packet I/O: af-packet, af-xdp
    #[arg(long, value_name = "NAME", default_value = "af-xdp", value_parser = back_end)]
    back_end: BackEnd,
    /// Measure technologies of IPv6 by RFC 8219: nat64, siit, eam, clat, 464xlat, ds-lite, lw4o6
    /// [default: all]
    #[arg(
        long,
        value_name = "TECHNOLOGY",
        num_args = 0..,
        require_equals = true,
        value_delimiter = ',',
        value_parser = technology,
        conflicts_with_all = ["back_end", "only", "fill", "trials", "rest"],
    )]
    transition: Option<Vec<Technology>>,
    /// Measured parts: transit (delay in one process), delay (and memory), throughput, latency,
    /// processor, creation [default: all]
    #[arg(long, value_name = "PART", value_delimiter = ',', value_parser = part)]
    only: Vec<Part>,
    /// Number of entries in the table at the end [default: 1M; quick: 20k]
    #[arg(long, value_name = "N", value_parser = mappings)]
    fill: Option<u32>,
    /// Time of a trial [default: 0.2; quick: 0.1; with --transition 0.02 of virtual time]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    trial: Option<Duration>,
    /// Repetitions of delay and latency; throughput has half as many, but with --transition as many
    /// [default: 20; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=999))]
    repetitions: Option<u32>,
    /// Trials of one rate in the search for throughput; the majority decides [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    trials: Option<u32>,
    /// Rest between the trials of a search [default: 0.05; quick: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    rest: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.transition.is_some() {
        return run_transition(args);
    }
    let program = live::prepare(&[])?;
    let mut plan = if args.output.quick { Plan::quick(program) } else { Plan::full(program) };
    plan.back_end = args.back_end;
    if !args.only.is_empty() {
        plan.parts.retain(|part| args.only.contains(part));
    }
    plan.fill = args.fill.unwrap_or(plan.fill);
    plan.trial = args.trial.unwrap_or(plan.trial);
    plan.turns = args.repetitions.unwrap_or(plan.turns);
    plan.trials = args.trials.unwrap_or(plan.trials);
    plan.rest = args.rest.unwrap_or(plan.rest);
    let report = measure(&plan, &command());
    args.output.deliver("router", &report)
}

fn run_transition(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(transition::Plan::quick, transition::Plan::full);
    let chosen = args.transition.unwrap_or_default();
    if !chosen.is_empty() {
        plan.technologies.retain(|technology| chosen.contains(technology));
    }
    plan.trial = args.trial.unwrap_or(plan.trial);
    plan.repetitions = args.repetitions.unwrap_or(plan.repetitions);
    memory::require(plan.memory(), "measuring the delays of such a trial")
        .map_err(|lack| Failure::Input(vec![format!("{lack}; give a shorter --trial")]))?;
    let report = transition::measure(&plan, &command());
    args.output.deliver(transition::NAME, &report)?;
    let json = report.json();
    let failed: Vec<&str> =
        json["failed"].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Runtime(anyhow::anyhow!("not measured: {}", failed.join("; "))))
}

fn technology(text: &str) -> Result<Technology, String> {
    let technology = Technology::ALL.into_iter().find(|technology| technology.key() == text);
    technology.ok_or_else(|| {
        format!("a technology is one of {}", Technology::ALL.map(Technology::key).join(", "))
    })
}

fn back_end(text: &str) -> Result<BackEnd, String> {
    match text {
        "af-packet" => Ok(BackEnd::AfPacket),
        "af-xdp" => Ok(BackEnd::AfXdp),
        _ => Err("a back end is af-packet or af-xdp".into()),
    }
}

fn part(text: &str) -> Result<Part, String> {
    let part = Part::ALL.into_iter().find(|part| part.name() == text);
    part.ok_or_else(|| format!("a part is one of {}", Part::ALL.map(Part::name).join(", ")))
}
