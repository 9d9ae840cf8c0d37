//! `natgate p4 run`: a program between two devices.
//!
//! The inside is the program's port 1, the outside port 2. What a program sends to another port goes nowhere and
//! is counted.

use super::{entry, failure, read};
use crate::Failure;
use anyhow::Context;
use clap::ValueEnum;
use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{self, XdpDevice};
use natgate_io::{Device, wait};
use natgate_p4::{Machine, Program, Switch, programs};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long to look for frames before sleeping.
const SPIN: Duration = Duration::from_micros(50);

/// How long a sleep lasts at most.
const GLANCE: Duration = Duration::from_millis(100);

/// How often the links are looked after.
const MAINTENANCE: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Port 1 is the inside, port 2 the outside. The devices should be up and have no addresses of the
kernel's. SIGTERM or SIGINT ends it. Entries are TABLE KEYS ACTION [ARGUMENTS], keys and arguments
with commas between them: numbers, 0x..., addresses; prefixes as 10.0.0.0/8, masks as 5&&&0xf.

Example:
natgate p4 run p4/nat.p4 --inside eth1 --outside eth0 --entry \"routes 0.0.0.0/0 via 192.0.2.1,2\"";

/// Run a program between two devices
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The program
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The device of port 1
    #[arg(long, value_name = "DEVICE")]
    inside: String,
    /// The device of port 2
    #[arg(long, value_name = "DEVICE")]
    outside: String,
    /// How frames come and go
    #[arg(long, value_enum, default_value = "af-packet")]
    backend: Backend,
    /// What executes the program [default: Rust if this program was compiled with natgate, else the interpreter]
    #[arg(long, value_enum)]
    with: Option<With>,
    /// Put an entry into a table
    #[arg(long = "entry", value_name = "ENTRY")]
    entries: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Backend {
    /// Packet sockets
    AfPacket,
    /// AF_XDP
    AfXdp,
    /// Ports of DPDK
    Dpdk,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum With {
    /// The reference, slow
    Interpreter,
    /// Rust that was made from the program and compiled with natgate
    Rust,
}

type Devices = [Box<dyn Device>; 2];

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (name, text) = read(&args.file)?;
    let program = natgate_p4::compile(&name, &text).map_err(|error| failure(&error))?;
    let (mut machine, with) = machine(&program, &name, args.with)?;
    for text in &args.entries {
        let wrong = |why| Failure::Input(vec![format!("--entry {text:?}: {why}")]);
        entry::add(&mut machine, text).map_err(wrong)?;
    }
    let stop = Arc::<AtomicBool>::default();
    for signal in [SIGTERM, SIGINT] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&stop));
        caught.context("signals cannot be caught")?;
    }
    let devices = open(args)?;
    let (inside, outside) = (&args.inside, &args.outside);
    natgate_service::say(&format!("running {name} ({with}), inside {inside}, outside {outside}"));
    let mut switch = Switch::new(machine, devices);
    forward(&mut switch, &stop).context("waiting for frames")?;
    natgate_service::say(&format!("stopped; {}", switch.counts()));
    Ok(())
}

/// The program at work, and by what.
fn machine<'p>(
    program: &'p Program,
    name: &str,
    with: Option<With>,
) -> Result<(Machine<'p>, &'static str), Failure> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(anyhow::Error::from)?;
    let seed = u64::from_ne_bytes(seed);
    let compiled = match with {
        Some(With::Interpreter) => None,
        _ => programs::compiled(program, seed),
    };
    match (compiled, with) {
        (Some(code), _) => Ok((Machine::with(program, code), "Rust")),
        (None, Some(With::Rust)) => Err(Failure::Input(vec![format!(
            "{name} is not among the programs compiled with this natgate ({}): put what `natgate p4 \
             compile --emit rust {name}` prints beside them in crates/p4/src/programs, name it there \
             in mod.rs, and build natgate anew",
            programs::names().collect::<Vec<_>>().join(", ")
        )])),
        (None, _) => Ok((Machine::new(program, seed), "interpreter")),
    }
}

fn open(args: &Args) -> anyhow::Result<Devices> {
    let names = [args.inside.as_str(), args.outside.as_str()];
    let [inside, outside]: Devices = match args.backend {
        Backend::AfPacket => {
            let open = |name| PacketDevice::open(name, packet::Config::default());
            let devices = [open(names[0])?, open(names[1])?];
            for device in &devices {
                device.stop_merging()?;
            }
            devices.map(|device| Box::new(device) as Box<dyn Device>)
        }
        Backend::AfXdp => {
            let devices = XdpDevice::open_pair(names, &xdp::Config::default())?;
            for device in &devices {
                device.stop_merging()?;
            }
            devices.map(|device| Box::new(device) as Box<dyn Device>)
        }
        Backend::Dpdk => open_dpdk(names)?,
    };
    Ok([inside, outside])
}

#[cfg(feature = "dpdk")]
fn open_dpdk(names: [&str; 2]) -> anyhow::Result<Devices> {
    const MTU: u16 = 1500;
    let open = |name: &str| -> anyhow::Result<Box<dyn Device>> {
        let queue = natgate_dpdk::start(None, MTU)?.open(name, MTU, 1)?.pop();
        Ok(Box::new(queue.with_context(|| format!("DPDK port {name} has no queue"))?))
    };
    Ok([open(names[0])?, open(names[1])?])
}

#[cfg(not(feature = "dpdk"))]
fn open_dpdk(_: [&str; 2]) -> anyhow::Result<Devices> {
    anyhow::bail!(
        "this natgate was built without DPDK; build it with `cargo build --release -p natgate \
         --features dpdk`"
    )
}

/// Forwards until it is told to stop.
fn forward(switch: &mut Switch<'_>, stop: &AtomicBool) -> std::io::Result<()> {
    let begun = Instant::now();
    let (mut last, mut maintained) = (begun, begun);
    while !stop.load(Ordering::Relaxed) {
        let taken = switch.turn(begun.elapsed());
        let now = Instant::now();
        let mut is_troubled = false;
        if taken > 0 {
            last = now;
        } else if now - last > SPIN {
            is_troubled = sleep(switch.devices())?;
        }
        if is_troubled || now - maintained > MAINTENANCE {
            switch.maintain();
            maintained = now;
        }
    }
    Ok(())
}

/// Waits for frames; whether a device is in trouble.
fn sleep(devices: &Devices) -> std::io::Result<bool> {
    let descriptors: Vec<_> = devices.iter().filter_map(|device| device.readiness()).collect();
    let intervals = devices.iter().filter_map(|device| device.poll_interval());
    wait(&descriptors, intervals.min().unwrap_or(GLANCE))
}
