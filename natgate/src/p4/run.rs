//! `natgate p4 run`: runs a program between two devices.
//!
//! The inside is the program's port 1, the outside port 2. Packets to other ports are dropped and
//! counted.

use super::queues::{self, Backend};
use super::subject::{ENTRIES_HELP, Subject};
use super::workers;
use crate::Failure;
use anyhow::Context;
use natgate_p4::{Counts, Switch, Team};
use natgate_p4runtime::Device as Controlled;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const AFTER_HELP: &str = "\
Port 1 is the inside, port 2 the outside. The devices should be up, and the kernel should have no
addresses on them. SIGTERM or SIGINT ends the program.

With --workers, packet sockets get their packets by the kernel's hash of flows; AF_XDP and DPDK
need as many receive queues as workers. A program whose packets leave nothing for later packets has
a copy for each worker, and a controller changes all copies at once. Every other program (tables
that packets add entries to, registers, meters) exists once: workers receive and send at the same
time, and process packets one after the other.";

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
    /// Number of threads, each with a queue of both devices
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=MOST_WORKERS)
    )]
    workers: u8,
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

/// Most workers, as in a gateway.
const MOST_WORKERS: i64 = 64;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let compiled = args.subject.compile()?;
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(anyhow::Error::from)?;
    let (kept, count) = (compiled.program.packet_state(), usize::from(args.workers));
    let copies = if kept.is_empty() { count } else { 1 };
    let seed = u64::from_ne_bytes(seed);
    // The pool of buffers is made when DPDK starts, and SWX starts it before the ports are opened.
    let receivers = if matches!(args.backend, Backend::Dpdk) { args.workers } else { 1 };
    let (machines, with) = args.subject.machines(&compiled, seed, copies, receivers)?;
    let stop = Arc::<AtomicBool>::default();
    for signal in [SIGTERM, SIGINT] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&stop));
        caught.context("signals cannot be caught")?;
    }
    let (inside, outside) = (&args.inside, &args.outside);
    let devices = queues::open(args.backend, [inside, outside], count)?;
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
    if count > 1 {
        natgate_service::say(&sharing(count, &kept));
    }
    let name = &compiled.name;
    natgate_service::say(&format!("running {name} ({with}), inside {inside}, outside {outside}"));
    let team = Arc::new(Team::new(machines));
    let switch = |(number, devices)| Switch::of_team(&team, number, devices);
    let switches = devices.into_iter().enumerate().map(switch).collect();
    let requests = server.as_ref().map(|_| requests);
    let counts = workers::run(&team, switches, requests.as_ref(), &stop);
    let counts = counts.context("running the workers")?;
    if count > 1 {
        for (number, counts) in (1..).zip(&counts) {
            natgate_service::say(&format!("worker {number}: {counts}"));
        }
    }
    natgate_service::say(&format!("stopped; {}", counts.into_iter().sum::<Counts>()));
    Ok(())
}

/// Sentence about the copies of the program. `kept` are its objects in which packets leave
/// something.
fn sharing(workers: usize, kept: &[&str]) -> String {
    match kept {
        [] => format!("{workers} workers, each with a copy of the program"),
        kept => format!(
            "{workers} workers take turns with one program, because packets change {}",
            kept.join(", ")
        ),
    }
}
