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
use natgate_io::{Batch, Device, Frame, wait};
use natgate_p4::{Machine, Program, programs};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The port of the inside; that of the outside is the next.
const FIRST_PORT: u32 = 1;

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
    let mut switch = Switch { machine, devices, begun: Instant::now(), counts: Counts::default() };
    switch.run(&stop).context("waiting for frames")?;
    natgate_service::say(&format!("stopped; {}", switch.counts));
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

/// A program between its devices.
struct Switch<'p> {
    machine: Machine<'p>,
    devices: Devices,
    begun: Instant,
    counts: Counts,
}

/// What has become of frames.
#[derive(Default)]
struct Counts {
    received: u64,
    sent: u64,
    dropped: u64,
    /// Sent to ports that are not there.
    elsewhere: u64,
    /// Not sent: their heads did not fit, or the link did not take them.
    lost: u64,
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { received, sent, dropped, elsewhere, lost } = self;
        write!(
            f,
            "{received} frames received, {sent} sent, {dropped} dropped by the program, {elsewhere} \
             for ports that are not there, {lost} lost"
        )
    }
}

impl Switch<'_> {
    fn run(&mut self, stop: &AtomicBool) -> std::io::Result<()> {
        let (mut last, mut maintained) = (self.begun, self.begun);
        while !stop.load(Ordering::Relaxed) {
            let taken = self.pass(0) + self.pass(1);
            let now = Instant::now();
            let mut is_troubled = false;
            if taken > 0 {
                last = now;
            } else if now - last > SPIN {
                is_troubled = self.sleep()?;
            }
            if is_troubled || now - maintained > MAINTENANCE {
                self.devices.iter_mut().for_each(|device| drop(device.maintain()));
                maintained = now;
            }
        }
        Ok(())
    }

    /// Takes what has come in by one device through the program; how many frames.
    fn pass(&mut self, from: usize) -> usize {
        let Self { machine, devices: [inside, outside], begun, counts } = self;
        let [(inside_in, inside_out), (outside_in, outside_out)] =
            [inside.split(), outside.split()];
        let receiver = if from == 0 { inside_in } else { outside_in };
        let mut batch = Batch::new();
        receiver.receive(&mut batch);
        let (taken, now) = (batch.len(), begun.elapsed());
        let mut leaving = [Batch::new(), Batch::new()];
        let mut head = Vec::new();
        for mut frame in batch {
            let port = FIRST_PORT + from as u32;
            let verdict = machine.rewrite(now, port, frame.bytes(), &mut head);
            let to = verdict.port.map(|port| port.wrapping_sub(FIRST_PORT) as usize);
            match to {
                None => counts.dropped += 1,
                Some(to) if to >= leaving.len() => counts.elsewhere += 1,
                Some(_) if !put_head(&mut frame, verdict.taken, &head) => counts.lost += 1,
                Some(to) => leaving[to].push(frame),
            }
        }
        for (device, frames) in [inside_out, outside_out].into_iter().zip(&mut leaving) {
            if !frames.is_empty() {
                let lost = device.transmit(frames).count();
                counts.lost += u64::from(lost);
                counts.sent += frames.len() as u64 - u64::from(lost);
            }
        }
        counts.received += taken as u64;
        taken
    }

    /// Waits for frames; whether a device is in trouble.
    fn sleep(&self) -> std::io::Result<bool> {
        let descriptors: Vec<_> =
            self.devices.iter().filter_map(|device| device.readiness()).collect();
        let intervals = self.devices.iter().filter_map(|device| device.poll_interval());
        wait(&descriptors, intervals.min().unwrap_or(GLANCE))
    }
}

/// Puts a new head in place of so many bytes; whether there is room before them.
fn put_head(frame: &mut Frame<'_>, taken: usize, head: &[u8]) -> bool {
    let (start, end) = frame.range();
    let Some(start) = (start + taken).checked_sub(head.len()) else { return false };
    frame.set_range(start, end);
    frame.bytes_mut()[..head.len()].copy_from_slice(head);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_grow_into_the_room_before_them() {
        let mut buffer = [0, 0, 1, 2, 3, 4];
        let mut frame = Frame::new(&mut buffer, 2, 6);
        assert!(put_head(&mut frame, 2, &[7, 8, 9]));
        assert_eq!(frame.bytes(), [7, 8, 9, 3, 4]);
        assert!(put_head(&mut frame, 4, &[5]));
        assert_eq!(frame.bytes(), [5, 4]);
        assert!(!put_head(&mut frame, 0, &[0; 5]));
        assert_eq!(frame.bytes(), [5, 4], "it is as it was");
    }
}
