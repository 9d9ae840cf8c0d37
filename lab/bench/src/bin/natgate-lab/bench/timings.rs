//! `natgate bench timings`: cycles of the engine's calls, and the image without an operating system
//! beside a Linux guest.

use super::{Output, command, live};
use crate::Failure;
use anyhow::Context;
use natgate_cli::NO_OUTPUT;
use natgate_lab::timings::{Plan, Size, internal, measure};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Programs for the emulation of the image, and their Debian packages.
const TOOLS: [(&str, &str); 5] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("apt-get", "apt"),
    ("strip", "binutils"),
];

const AFTER_HELP: &str = "\
Without --image, the experiment takes seconds and measures only the engine in this program. With
--image, it makes its own network namespaces and needs root, ip, ethtool, setpriv, nft, ping,
iperf3, strip and qemu-system-x86_64. It takes half an hour (with --quick three minutes), and two
processors should be free. `make bare` builds the image. The Linux guest has the Debian packages
linux-image-cloud-amd64, linux-image-amd64 (for Intel's cards) and busybox-static: apt-get
downloads them, and they are not installed.

Examples:
natgate bench timings --quick
natgate bench timings --image target/release/natgate-bare --packages target/debian
natgate bench timings --image target/release/natgate-bare --packages target/debian --quick

lab/bench/src/timings/README.md describes the method and the results of the paper.";

/// Measure the engine's calls, and the image without an operating system beside Linux (Tsetse 2012)
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Measure this image in an emulator, too, beside a Linux guest
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Keep Debian's packages in this directory, and use the packages there
    #[arg(long, value_name = "DIR", requires = "image")]
    packages: Option<PathBuf>,
    /// Boots and measurements of both guests with each kind of card [default: 3; quick: 1]
    #[arg(
        long,
        value_name = "N",
        requires = "image",
        value_parser = clap::value_parser!(u8).range(1..=100),
    )]
    rounds: Option<u8>,
    /// Time of each measurement of packets and throughput [default: 3; quick: 1]
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "image",
        value_parser = clap::value_parser!(u32).range(1..=600),
    )]
    seconds: Option<u32>,
    /// Print only the engine's cycles in this program, one line of JSON for each number of entries
    #[arg(long, conflicts_with_all = ["image", "out", "json"])]
    lines: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.lines {
        return print_lines(args.output.choose(|| Size::Quick, || Size::Full));
    }
    let image = args.image.as_deref().map(find).transpose()?;
    if image.is_some() {
        live::prepare(&TOOLS)?;
    }
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let mut plan = if args.output.quick { Plan::quick(program) } else { Plan::full(program) };
    plan.image = image;
    plan.packages = args.packages;
    plan.rounds = args.rounds.map_or(plan.rounds, usize::from);
    plan.seconds = args.seconds.unwrap_or(plan.seconds);
    let report = measure(&plan, &command());
    args.output.deliver("timings", &report)
}

/// Finds the absolute path of the image.
fn find(image: &Path) -> Result<PathBuf, Failure> {
    image.canonicalize().map_err(|error| {
        let wrong = format!("{}: {error}; `make bare` builds the image", image.display());
        Failure::Input(vec![wrong])
    })
}

fn print_lines(size: Size) -> Result<(), Failure> {
    let mut output = std::io::stdout();
    for timing in internal(size) {
        writeln!(output, "{}", timing.to_line()).context(NO_OUTPUT)?;
    }
    Ok(())
}
