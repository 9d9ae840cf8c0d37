//! `natgate demo`: the translator at work, for everybody to see.
//!
//! Builds a small network of its own out of network namespaces, starts `natgate run` in the middle
//! of it, lets the kernels at its ends talk through it with the usual programs (ping, curl,
//! traceroute, iperf3) and with sockets of its own, and reports.
//!
//! The network itself is made in `natgate-testnet`, what is done in it stands in [`steps`], how it
//! is told in [`report`]. Whatever way this ends, the namespaces, the processes in them and the
//! files go with it; what a killed run could not take along goes at the start of the next.

mod report;
mod steps;

use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use natgate_testnet::{
    Gateway, Machine, Network, Servers, abandon, config, is_root, remove_leftovers,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;
use report::{Report, StepResult};
use steps::{DemoNetwork, STEPS};

/// What the names of all namespaces of all demonstrations begin with.
const TAG: &str = "ngdemo";

/// Programs that the demonstration needs, and the Debian packages they come in.
const TOOLS: [(&str, &str); 8] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("traceroute", "traceroute"),
    ("iperf3", "iperf3"),
    ("setpriv", "util-linux"),
    ("timeout", "coreutils"),
];

/// What the web server serves, bytes.
const BODY: usize = 16 << 20;

/// Show the translator at work between network namespaces
///
/// Builds two subscribers, a gateway, a router and two servers as network namespaces of its own,
/// runs the gateway between them on packet sockets, and sends real traffic through it: pings, web
/// downloads, UDP to several servers, traceroute, iperf3 both ways, connections between the two
/// subscribers by their external addresses. Prints what went through, the mappings and the
/// counters, and removes everything again. Takes about ten seconds; needs root; touches nothing
/// outside its own namespaces.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 every step passed, 1 a step failed or the demonstration could not be held.

Examples:
natgate demo
natgate demo --json
natgate demo --hold
natgate demo --image target/release/natgate-bare")]
pub(crate) struct Args {
    /// Print the result as one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Keep the network after the steps, say how to enter it, and wait for the Enter key
    #[arg(long, conflicts_with = "json")]
    hold: bool,

    /// Have this image, which boots without an operating system, be the gateway, in an emulator
    ///
    /// `make bare` builds it; the emulator is QEMU (on Debian: apt-get install qemu-system-x86).
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

/// What translates.
enum Translator {
    /// This program.
    Program(Gateway),
    /// The image in an emulator.
    Image(Machine),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let started = Instant::now();
    check_requirements()?;
    remove_leftovers(TAG);
    let name = format!("{TAG}{}", std::process::id());
    clean_up_whatever_happens(&format!("{name}-"))?;

    let mut report = hold_demonstration(&args, &name)?;
    report.seconds = started.elapsed().as_secs_f64();
    if args.json {
        println!("{:#}", report.to_json());
    } else {
        report.print_end();
    }
    if report.passed() { Ok(()) } else { Err(anyhow!("{}", report.failures()).into()) }
}

/// Everything between the making of the network and its removal.
fn hold_demonstration(args: &Args, name: &str) -> anyhow::Result<Report> {
    let say = |text: &str| {
        if !args.json {
            println!("{text}");
        }
    };
    let network = Network::build(name).context("cannot build the network")?;
    say(&report::introduction(name));
    let body = body();
    let _servers = Servers::start(&network, Arc::clone(&body)).context("cannot start a server")?;
    let mut translator = Translator::start(args, &network)?;

    let network = DemoNetwork { nodes: network, body };
    let mut report = Report::default();
    for (number, step) in STEPS.iter().enumerate() {
        let result = StepResult::of(step, &network);
        say(&result.line(number + 1));
        report.steps.push(result);
    }
    let status = match &mut translator {
        Translator::Program(gateway) => {
            StepResult::measure("status", "the gateway tells its mappings", || {
                report.status = gateway.status()?;
                let mappings = report.status["mappings"].as_array().context("no mappings in it")?;
                Ok(format!("{} mappings", mappings.len()))
            })
        }
        Translator::Image(image) => {
            StepResult::measure("status", "the image shows its counters", || {
                report.console = image.counters()?;
                let mut lines = report.console.lines();
                let line = lines.find(|line| line.starts_with("mappings "));
                Ok(line.context("no mappings among them")?.to_owned())
            })
        }
    };
    say(&status.line(report.steps.len() + 1));
    report.steps.push(status);
    if args.hold {
        report.print_status();
        println!("{}", report::ways_in(name));
        // End of input is as good as the key.
        let _ = std::io::stdin().read_line(&mut String::new());
    }
    let stop = StepResult::measure("stop", "SIGTERM ends the gateway, exit code 0", || {
        let status = match translator {
            Translator::Program(gateway) => gateway.stop()?,
            Translator::Image(image) => image.stop()?,
        };
        if status.success() { Ok(status.to_string()) } else { bail!("it ended with {status}") }
    });
    say(&stop.line(report.steps.len() + 1));
    report.steps.push(stop);
    if !args.json && !args.hold {
        report.print_status();
    }
    Ok(report)
}

impl Translator {
    fn start(args: &Args, network: &Network) -> anyhow::Result<Self> {
        if let Some(image) = &args.image {
            let image = std::fs::canonicalize(image).with_context(|| {
                format!("the image {} cannot be found; `make bare` builds it", image.display())
            })?;
            return Ok(Self::Image(Machine::start(network, &image).context("the image")?));
        }
        let program = crate::gateway()?;
        let gateway = Gateway::start(network, &program, &config("")).context("natgate run")?;
        Ok(Self::Program(gateway))
    }
}

/// Fails with one sentence that says what is missing.
fn check_requirements() -> anyhow::Result<()> {
    if !is_root() {
        bail!(
            "demo makes network namespaces and must be run as root, such as by sudo natgate demo"
        );
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|d| d.join(tool).is_file());
    let missing: Vec<_> = TOOLS.iter().filter(|(tool, _)| !there(tool)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let tools: Vec<_> = missing.iter().map(|(tool, _)| *tool).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    bail!(
        "demo needs programs that are not in PATH ({}): on Debian, apt-get install {}",
        tools.join(", "),
        packages.join(" ")
    )
}

/// Has signals and panics, after which nothing is dropped, clean up too.
fn clean_up_whatever_happens(prefix: &str) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    let own = prefix.to_owned();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprintln!("natgate: demo was interrupted: removing everything it made");
            abandon(&own, 1);
        }
    });
    let usual = panic::take_hook();
    let own = prefix.to_owned();
    panic::set_hook(Box::new(move |panic| {
        usual(panic);
        abandon(&own, 1);
    }));
    Ok(())
}

/// Bytes in which nothing repeats soon, so that what is lost or swapped is noticed.
fn body() -> Arc<[u8]> {
    let mut state = 1u64;
    let mut next = || {
        // Knuth's MMIX constants; the high bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..BODY).map(|_| next()).collect()
}
