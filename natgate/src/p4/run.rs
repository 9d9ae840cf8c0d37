//! `natgate p4 run`: runs a program between two devices.
//!
//! The inside is the program's port 1, the outside port 2. Packets to other ports are dropped and
//! counted.

use super::subject::{ENTRIES_HELP, Subject};
use crate::Failure;
use anyhow::Context;
use clap::ValueEnum;
use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{self, XdpDevice};
use natgate_io::{Device, wait};
use natgate_p4::{RequestQueue, Switch};
use natgate_p4runtime::Device as Controlled;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time to poll for frames before sleeping.
const SPIN: Duration = Duration::from_micros(50);

/// Longest sleep.
const GLANCE: Duration = Duration::from_millis(100);

/// Longest sleep if a controller may ask.
const ASKED: Duration = Duration::from_millis(5);

/// Interval between checks of the links.
const MAINTENANCE: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Port 1 is the inside, port 2 the outside. The devices should be up, and the kernel should have no
addresses on them. SIGTERM or SIGINT ends the program.";

const EXAMPLE: &str = "\
Example:
natgate p4 run p4/nat.p4 --inside eth1 --outside eth0 --entry \"routes 0.0.0.0/0 via 192.0.2.1,2\"";

/// Run a program between two devices
#[derive(clap::Args)]
#[command(after_help = format!("{AFTER_HELP}\n\n{ENTRIES_HELP}\n\n{EXAMPLE}"))]
pub(super) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// The device of port 1
    #[arg(long, value_name = "DEVICE")]
    inside: String,
    /// The device of port 2
    #[arg(long, value_name = "DEVICE")]
    outside: String,
    /// Packet I/O
    #[arg(long, value_enum, default_value = "af-packet")]
    backend: Backend,
    /// Let P4Runtime's controllers that reach this address fill and read tables [default:
    /// 127.0.0.1:9559]
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = natgate_p4runtime::DEFAULT_ADDRESS
    )]
    p4runtime: Option<SocketAddr>,
    /// The number by which controllers name this device
    #[arg(long, value_name = "N", default_value_t = 1)]
    device_id: u64,
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

#[cfg(not(feature = "dpdk"))]
pub(super) const WITHOUT_DPDK: &str = "this natgate was built without DPDK; build it with `cargo \
    build --release -p natgate --features dpdk`";

type Devices = [Box<dyn Device>; 2];

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let compiled = args.subject.compile()?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(anyhow::Error::from)?;
    let (machine, with) = args.subject.machine(&compiled, u64::from_ne_bytes(seed))?;
    let stop = Arc::<AtomicBool>::default();
    for signal in [SIGTERM, SIGINT] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&stop));
        caught.context("signals cannot be caught")?;
    }
    let devices = open(args)?;
    let (controller, requests) = natgate_p4::request_queue();
    let info = compiled.program.info();
    let device =
        Controlled { id: args.device_id, info, program: compiled.text.clone().into_bytes() };
    let server =
        args.p4runtime.map(|address| natgate_p4runtime::serve(address, device, controller));
    let server = server.transpose().context("P4Runtime")?;
    if let Some(address) = server.as_ref().and_then(|server| server.address()) {
        natgate_service::say(&format!("P4Runtime at {address}"));
    }
    let (name, inside, outside) = (&compiled.name, &args.inside, &args.outside);
    natgate_service::say(&format!("running {name} ({with}), inside {inside}, outside {outside}"));
    let mut switch = Switch::new(machine, devices);
    let requests = server.as_ref().map(|_| requests);
    forward(&mut switch, requests.as_ref(), &stop).context("waiting for frames")?;
    natgate_service::say(&format!("stopped; {}", switch.counts()));
    Ok(())
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
    anyhow::bail!(WITHOUT_DPDK)
}

/// Forwards until it is told to stop.
fn forward(
    switch: &mut Switch<'_>,
    requests: Option<&RequestQueue>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let glance = if requests.is_some() { ASKED } else { GLANCE };
    let begun = Instant::now();
    let (mut last, mut maintained) = (begun, begun);
    while !stop.load(Ordering::Relaxed) {
        let taken = switch.turn(begun.elapsed());
        let is_asked = requests.is_some_and(|requests| switch.answer(begun.elapsed(), requests));
        let now = Instant::now();
        let mut is_troubled = false;
        if taken > 0 || is_asked {
            last = now;
        } else if now - last > SPIN {
            is_troubled = sleep(switch.devices(), glance)?;
        }
        if is_troubled || now - maintained > MAINTENANCE {
            switch.maintain();
            maintained = now;
        }
    }
    Ok(())
}

/// Waits for frames. Returns true if a device is in trouble.
fn sleep(devices: &Devices, glance: Duration) -> std::io::Result<bool> {
    let descriptors: Vec<_> = devices.iter().filter_map(|device| device.readiness()).collect();
    let intervals = devices.iter().filter_map(|device| device.poll_interval());
    wait(&descriptors, intervals.min().unwrap_or(glance).min(glance))
}
