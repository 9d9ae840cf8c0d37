//! `natgate bench io`: packets a second by each back end, beside the kernel.

use super::{Output, command, live, mappings, seconds};
use crate::Failure;
use natgate_lab::bed::BackEnd;
use natgate_lab::io::{Plan, measure};
use natgate_tester::{Mix, Way};
use std::time::Duration;

const AFTER_HELP: &str = "\
The experiment makes its own network namespaces. It needs root, ip, ethtool, setpriv and nft. The
tester has one processor and the measured program another, so two processors should be free. If the
kernel's limit of tracked connections is too low, the experiment raises it for good.

Examples:
natgate bench io --quick
natgate bench io --back-ends af-xdp --frames 64,imix --mappings 1M --ways up

lab/bench/src/io/README.md describes how processor time is counted, and the results.";

/// Measure packets a second by each back end, beside the Linux kernel's forwarding and masquerade
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Back ends [default: all back ends of this program]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = back_end)]
    back_ends: Vec<BackEnd>,
    /// Leave out the kernel, the driver's programs and the forwarder that does not translate
    #[arg(long)]
    alone: bool,
    /// Lengths of frames, bytes, or imix [default: 64,128,256,512,1024,1280,1518,imix]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = frames)]
    frames: Vec<Mix>,
    /// Direction of the packets: up, down, both [default: all three; quick: up]
    #[arg(long, value_name = "WAY", value_delimiter = ',', value_parser = way)]
    ways: Vec<Way>,
    /// Numbers of mappings [default: 100,10k,1M; quick: 100,10k]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = mappings)]
    mappings: Vec<u32>,
    /// Numbers of workers [default: 1; without a network: 2]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=64),
    )]
    workers: Vec<u16>,
    /// Time of each measurement [default: 1; quick: 0.3]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Number of rounds of all measurements [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let program = live::prepare(&[])?;
    let mut plan = if args.output.quick { Plan::quick(program) } else { Plan::full(program) };
    fill(&mut plan.back_ends, args.back_ends);
    fill(&mut plan.frames, args.frames);
    fill(&mut plan.ways, args.ways);
    fill(&mut plan.mappings, args.mappings);
    let several: Vec<u16> = args.workers.iter().copied().filter(|&workers| workers > 1).collect();
    fill(&mut plan.together, several);
    fill(&mut plan.workers, args.workers);
    plan.others = !args.alone;
    plan.time = args.seconds.unwrap_or(plan.time);
    plan.rounds = args.rounds.map_or(plan.rounds, usize::from);
    let report = measure(&plan, &command());
    args.output.deliver("io", &report)
}

/// Replaces a default by the given values, if any.
pub(super) fn fill<T>(default: &mut Vec<T>, given: Vec<T>) {
    if !given.is_empty() {
        *default = given;
    }
}

pub(super) fn back_end(text: &str) -> Result<BackEnd, String> {
    match text {
        "af-packet" => Ok(BackEnd::AfPacket),
        "af-xdp" => Ok(BackEnd::AfXdp),
        "dpdk" if cfg!(feature = "dpdk") => Ok(BackEnd::Dpdk),
        "dpdk" => {
            Err("this natgate was built without it; build it with `cargo build --release -p \
                       natgate --features dpdk`"
                .into())
        }
        _ => Err("a back end is af-packet, af-xdp or dpdk".into()),
    }
}

fn frames(text: &str) -> Result<Mix, String> {
    if text == "imix" {
        return Ok(Mix::imix());
    }
    let len = text.parse().ok().and_then(|len| Mix::of(len).ok());
    len.ok_or("frames have 64 to 1518 bytes, or are imix".into())
}

fn way(text: &str) -> Result<Way, String> {
    match text {
        "up" => Ok(Way::Up),
        "down" => Ok(Way::Down),
        "both" => Ok(Way::Both),
        _ => Err("a way is up, down or both".into()),
    }
}
