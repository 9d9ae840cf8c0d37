//! `natgate demo`: a demonstration of the translator with real traffic.
//!
//! Builds a small network out of network namespaces and starts `natgate run` in the middle of it.
//! The kernels at its ends send traffic through it with the usual programs (ping, curl, traceroute,
//! iperf3) and with sockets of this program. Then the demonstration reports the results.
//!
//! With `--pair` it shows two gateways instead ([`pair`]).
//!
//! `natgate-testnet` makes the network, [`steps`], [`ipv6`] and [`tunnels`] have the steps, and
//! [`report`] writes the results. However the command ends, the namespaces, their processes and the
//! files are removed. The next start removes the remains of a killed run.

mod ipv6;
mod pair;
mod report;
mod steps;
mod tunnels;

use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use natgate_testnet::{
    Gateway, Machine, Network, Resolver, Servers, abandon, config, config_of_aftr,
    config_with_ipv6, is_root, kernel_has_ipv6, remove_leftovers,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;
use ipv6::IPV6_STEPS;
pub(crate) use pair::{Notice, Outage, Stage};
use report::{Report, StepResult};
use steps::{DemoNetwork, STEPS};
use tunnels::TUNNEL_STEPS;

/// Prefix of the names of all namespaces of all demonstrations.
const TAG: &str = "ngdemo";

/// Programs of the demonstration, and their Debian packages.
const TOOLS: [(&str, &str); 10] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("getent", "libc-bin"),
    ("unbound", "unbound"),
    ("traceroute", "traceroute"),
    ("iperf3", "iperf3"),
    ("setpriv", "util-linux"),
    ("timeout", "coreutils"),
];

/// Bytes that the web server serves.
const BODY: usize = 16 << 20;

/// Show the translator at work between network namespaces
///
/// Builds three subscribers, a gateway, a router and two servers as network namespaces of its own,
/// runs the gateway between them on packet sockets, and sends real traffic through it: pings, web
/// downloads, UDP to several servers, traceroute, iperf3 both ways, connections between two
/// subscribers by their external addresses. The third subscriber has IPv6 alone: it learns its
/// address and its resolver from the gateway, and reaches an IPv4 web server by name through DNS64
/// (unbound) and NAT64. Two homes with one IPv4 address are behind tunnels of DS-Lite, with a
/// gateway of their own. Prints the results, the mappings and the counters, and removes everything
/// again. Takes about twenty seconds; needs root; touches nothing outside its own namespaces,
/// except for files in /tmp and /etc/netns, which it removes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 every step passed, 1 a step failed or the demonstration could not be held.

Examples:
natgate demo
natgate demo --json
natgate demo --hold
natgate demo --pair
natgate demo --image target/release/natgate-bare")]
pub(crate) struct Args {
    /// Print the result as one JSON object instead of text
    #[arg(long)]
    json: bool,

    /// Keep the network after the steps, print how to enter it, and wait for the Enter key
    #[arg(long, conflicts_with = "json")]
    hold: bool,

    /// Show a pair of gateways instead: the active one is killed, and comes back
    ///
    /// A call, a download, iperf3 and 100,000 mappings go through the pair. Tells for how long each
    /// was interrupted, and how many mappings kept their external endpoint. Takes about a minute.
    #[arg(long, conflicts_with_all = ["hold", "image"])]
    pair: bool,

    /// Run this image without an operating system as the gateway, in an emulator
    ///
    /// `make bare` builds it; the emulator is QEMU (on Debian: apt-get install qemu-system-x86).
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

/// Translator in the middle of the network.
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

    let say = |text: &str| {
        if !args.json {
            println!("{text}");
        }
    };
    let mut report = match args.pair {
        true => pair::hold(&name, &say)?,
        false => hold_demonstration(&args, &name, &say)?,
    };
    report.seconds = started.elapsed().as_secs_f64();
    if args.json {
        println!("{:#}", report.to_json());
    } else {
        report.print_end();
    }
    if report.passed() { Ok(()) } else { Err(anyhow!("{}", report.failures()).into()) }
}

/// Runs the demonstration between the making of the network and its removal.
fn hold_demonstration(args: &Args, name: &str, say: &dyn Fn(&str)) -> anyhow::Result<Report> {
    let mut network = Network::build(name).context("cannot build the network")?;
    let mut report = Report { skipped: reason_to_skip_ipv6(), ..Report::default() };
    let with_ipv6 = report.skipped.is_none();
    if with_ipv6 {
        network.add_ipv6().context("cannot add IPv6 to the network")?;
    }
    let with_tunnels = with_ipv6 && network.add_tunnels().context("cannot add the tunnels")?;
    if with_ipv6 && !with_tunnels {
        report.skipped_tunnels = Some("this machine's kernel has no encap seg6 and End.DX4");
    }
    say(&report::introduction(name, with_ipv6, with_tunnels));
    let body = body();
    let _servers = Servers::start(&network, Arc::clone(&body)).context("cannot start a server")?;
    let resolver = with_ipv6.then(|| Resolver::start(&network));
    let _resolver = resolver.transpose().context("cannot start the resolver")?;
    let mut translator = Translator::start(args, &network, with_ipv6)?;

    let aftr = with_tunnels.then(|| {
        Gateway::start_in(&network, "aftr", &crate::gateway()?, &config_of_aftr(&network))
            .context("the gateway of the tunnels")
    });
    let aftr = aftr.transpose()?;

    let network = DemoNetwork { nodes: network, body, aftr };
    let ipv6_steps = if with_ipv6 { IPV6_STEPS } else { &[] };
    let tunnel_steps = if with_tunnels { TUNNEL_STEPS } else { &[] };
    for (number, step) in STEPS.iter().chain(ipv6_steps).chain(tunnel_steps).enumerate() {
        let result = StepResult::of(step, &network);
        say(&result.line(number + 1));
        report.steps.push(result);
    }
    if let Some(reason) = report.skipped {
        say(&report::skip_line("IPv6-only subscriber, NAT64, DS-Lite", reason));
    }
    if let Some(reason) = report.skipped_tunnels {
        say(&report::skip_line("customers of DS-Lite", reason));
    }
    let status = translator.report_status(&mut report);
    say(&status.line(report.steps.len() + 1));
    report.steps.push(status);
    if args.hold {
        report.print_status();
        println!("{}", report::ways_in(name, with_ipv6));
        // The end of input has the effect of the key.
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

/// Returns the reason why the steps with IPv6 cannot be run.
fn reason_to_skip_ipv6() -> Option<&'static str> {
    (!kernel_has_ipv6()).then_some("this machine's kernel has no IPv6")
}

impl Translator {
    fn start(args: &Args, network: &Network, with_ipv6: bool) -> anyhow::Result<Self> {
        let config = if with_ipv6 { config_with_ipv6() } else { config("") };
        if let Some(image) = &args.image {
            let image = std::fs::canonicalize(image).with_context(|| {
                format!("the image {} cannot be found; `make bare` builds it", image.display())
            })?;
            let image = Machine::start(network, &image, &config).context("the image")?;
            return Ok(Self::Image(image));
        }
        let program = crate::gateway()?;
        let gateway = Gateway::start(network, &program, &config).context("natgate run")?;
        Ok(Self::Program(gateway))
    }

    /// Adds the status or the counters to the report.
    fn report_status(&mut self, report: &mut Report) -> StepResult {
        match self {
            Self::Program(gateway) => {
                StepResult::measure("status", "the gateway tells its mappings", || {
                    report.status = gateway.status()?;
                    let mappings = report.status["mappings"].as_array();
                    Ok(format!("{} mappings", mappings.context("no mappings in it")?.len()))
                })
            }
            Self::Image(image) => {
                StepResult::measure("status", "the image shows its counters", || {
                    report.console = image.counters()?;
                    let mut lines = report.console.lines();
                    let line = lines.find(|line| line.starts_with("mappings "));
                    Ok(line.context("no mappings among them")?.to_owned())
                })
            }
        }
    }
}

/// Returns an error of one sentence that names the missing requirement.
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

/// Cleans up after signals and panics, too. They drop nothing.
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

/// Bytes without early repetitions, so that a loss or an exchange is noticed.
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
