//! `natgate bench p4`: the NAT in P4, as Rust, interpreted and by DPDK's SWX, beside natgate
//! itself.

use super::io::{back_end, fill};
use super::{Output, command, live, mappings, seconds};
use crate::Failure;
use natgate_lab::p4::{Driver, MOST_ENTRIES, Plan, measure};
use std::time::Duration;

const AFTER_HELP: &str = "\
In memory, all subjects get the same Ethernet frames; the cost of making and taking frames is
measured, too. Other drivers use cables between network namespaces and need root, ip, ethtool,
setpriv and nft; the tester has one processor, the measured program another. Several workers use
all processors, beside the tester; the tester fills one queue, so only packet sockets measure
several. Only a natgate that was built with DPDK measures SWX.

Examples:
natgate bench p4 --quick
natgate bench p4 --drivers all
natgate bench p4 --drivers memory,af-xdp --entries 100,1M --frames 64 --seconds 5
natgate bench p4 --drivers af-packet --workers 1,2 --frames 64,256,1518

lab/bench/src/p4/README.md describes the method and the results.";

/// Measure the NAT in P4, as Rust, interpreted and by DPDK's SWX, beside natgate itself
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Packet I/O: memory, af-packet, af-xdp, dpdk; all: every one that this program has
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = drivers,
        default_value = "memory"
    )]
    drivers: Vec<Drivers>,
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
    /// Numbers of processors, in memory [default: 1,2; quick: 1]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=64),
    )]
    cores: Vec<u16>,
    /// Numbers of workers, by other drivers than memory [default: 1]
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=64),
    )]
    workers: Vec<u16>,
    /// Time of each measurement [default: 1; quick: 0.05]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Number of measurements of each combination with cables [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut plan = args.output.choose(Plan::quick, Plan::full);
    fill(&mut plan.frames, args.frames);
    fill(&mut plan.entries, args.entries);
    fill(&mut plan.cores, args.cores);
    fill(&mut plan.workers, args.workers);
    plan.drivers = args.drivers.into_iter().flat_map(|Drivers(drivers)| drivers).collect();
    if let Some(entries) = plan.entries.iter().find(|entries| **entries > MOST_ENTRIES) {
        return Err(Failure::Input(vec![format!(
            "--entries {entries}: the program's tables have room for {MOST_ENTRIES} at most"
        )]));
    }
    plan.time = args.seconds.unwrap_or(plan.time);
    plan.rounds = args.rounds.unwrap_or(plan.rounds);
    if plan.drivers.iter().any(|driver| *driver != Driver::Memory) {
        plan.program = live::prepare(&[])?;
    }
    let report = measure(&plan, &command());
    args.output.deliver("p4", &report)
}

/// The drivers of one name.
#[derive(Clone, Debug)]
struct Drivers(Vec<Driver>);

fn drivers(text: &str) -> Result<Drivers, String> {
    match text {
        "memory" => Ok(Drivers(vec![Driver::Memory])),
        "all" => Ok(Drivers(Driver::all())),
        _ => match back_end(text) {
            Ok(back_end) => Ok(Drivers(vec![Driver::Live(back_end)])),
            Err(why) if text == "dpdk" => Err(why),
            Err(_) => Err("a driver is memory, af-packet, af-xdp or dpdk; all: all of them".into()),
        },
    }
}
