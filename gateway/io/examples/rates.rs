//! Measures the cost of back ends: a forwarder between two cables, in a network namespace of its
//! own.
//!
//! `cargo run --release -p natgate-io --example rates -- [SECONDS] [FRAME BYTES] [BACK END]...`
//!
//! Back ends take turns for several rounds; medians are shown. For each: frames a second that are
//! only sent, and the processor's time for one; frames a second that are forwarded while a
//! generator sends as fast as it can, and the forwarder's time for one; the delay of a single frame
//! without other traffic. The generator has one core, the forwarder the other. Times are those of
//! the thread, including the kernel's work on its behalf: on a veth, sending includes the
//! receiver's first steps. Needs root.
//! veth, sending includes the receiver's first steps. Needs root.

use natgate_io::packet::{self, PacketDevice};
use natgate_io::xdp::{self, XdpDevice};
use natgate_io::{BATCH, Batch, Device, Frame, wait};
use std::error::Error;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Pair = [Box<dyn Device>; 2];

/// Rounds.
const ROUNDS: usize = 5;
/// Time to look for frames before sleeping, as in the gateway.
const SPIN: Duration = Duration::from_micros(50);
/// Frames whose delay is measured in a round, and the time between them.
const SINGLES: usize = 300;
const BETWEEN: Duration = Duration::from_millis(1);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let len: usize = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let chosen: Vec<String> = arguments.collect();
    let kinds: Vec<&str> = BACK_ENDS
        .into_iter()
        .filter(|kind| chosen.is_empty() || chosen.iter().any(|name| name == kind))
        .collect();
    prepare()?;
    let time = Duration::from_secs_f64(seconds);
    let mut results: Vec<Vec<Measured>> = vec![Vec::new(); kinds.len()];
    for _ in 0..ROUNDS {
        for (kind, results) in kinds.iter().zip(&mut results) {
            results.push(measure(kind, time, len)?);
        }
    }
    println!(
        "{len}-byte frames         sent/s  ns each   forwarded/s  ns each  lost     delay p50  p99 \
         (us)"
    );
    for (kind, results) in kinds.iter().zip(&results) {
        let median = |of: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = results.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "{kind:20} {:9.0} {:8.0} {:13.0} {:8.0} {:4.0} % {:12.1} {:6.1}",
            median(|one| one.sent),
            median(|one| one.send_ns),
            median(|one| one.forwarded),
            median(|one| one.forward_ns),
            median(|one| one.lost),
            median(|one| one.delay[0]),
            median(|one| one.delay[1]),
        );
    }
    Ok(())
}

const BACK_ENDS: [&str; 4] = ["af-packet", "af-packet-rate", "af-packet-calls", "af-xdp"];

/// Opens the forwarder's devices.
fn open(kind: &str) -> Result<Pair> {
    let packet = |config: packet::Config| -> Result<Pair> {
        let open = |name| PacketDevice::open(name, config.clone());
        Ok([Box::new(open("a0")?), Box::new(open("b0")?)])
    };
    match kind {
        "af-packet" => packet(packet::Config::default()),
        "af-packet-rate" => {
            let mode = packet::Mode::Rate;
            packet(packet::Config { mode, ..packet::Config::default() })
        }
        "af-packet-calls" => {
            let sending = packet::Sending::Calls;
            packet(packet::Config { sending, ..packet::Config::default() })
        }
        "af-xdp" => {
            let [a, b] = XdpDevice::open_pair(["a0", "b0"], &xdp::Config::default())?;
            Ok([Box::new(a), Box::new(b)])
        }
        _ => Err(format!("back ends are {BACK_ENDS:?}, not {kind:?}").into()),
    }
}

#[derive(Clone, Debug, Default)]
struct Measured {
    sent: f64,
    send_ns: f64,
    forwarded: f64,
    forward_ns: f64,
    /// Percent.
    lost: f64,
    /// p50 and p99, microseconds.
    delay: [f64; 2],
}

fn measure(kind: &str, time: Duration, len: usize) -> Result<Measured> {
    let mut measured = Measured::default();
    {
        let mut devices = open_up(kind)?;
        pin(1);
        let (count, wall, cpu) = send_for(&mut *devices[1], len, time);
        measured.sent = count as f64 / wall;
        measured.send_ns = cpu * 1e9 / count as f64;
    }
    let (generated, came, cpu, wall) = forward(open_up(kind)?, time, len)?;
    measured.forwarded = came as f64 / wall;
    measured.forward_ns = cpu * 1e9 / came as f64;
    measured.lost = 100.0 * (1.0 - came as f64 / generated as f64);
    measured.delay = delays(open_up(kind)?, len)?;
    Ok(measured)
}

fn open_up(kind: &str) -> Result<Pair> {
    let mut devices = open(kind)?;
    for device in &mut devices {
        while !device.link().up {
            device.maintain();
        }
    }
    Ok(devices)
}

/// Sends as fast as frames are taken; returns the number of frames, and the seconds by the clock
/// and of this thread.
fn send_for(device: &mut dyn Device, len: usize, time: Duration) -> (u64, f64, f64) {
    let mut bytes: Vec<_> = (0..BATCH).map(|number| frame(len, number)).collect();
    let (begin, cpu) = (Instant::now(), thread_time());
    let mut sent = 0;
    while begin.elapsed() < time {
        let mut frames: Vec<_> = bytes.iter_mut().map(|bytes| Frame::of(bytes, 0, len)).collect();
        let lost = device.split().1.transmit(&mut frames);
        sent += BATCH as u64 - u64::from(lost.count());
    }
    (sent, begin.elapsed().as_secs_f64(), thread_time() - cpu)
}

/// Forwards the frames of a generator. Returns the frames sent, the frames that came out at the
/// other end, and the seconds of the forwarding thread and by the clock.
fn forward(devices: Pair, time: Duration, len: usize) -> Result<(u64, u64, f64, f64)> {
    let stop = AtomicBool::new(false);
    let before = arrived()?;
    let mut generator = XdpDevice::open("a1", xdp::Config::default())?;
    std::thread::scope(|scope| {
        let forwarder = std::thread::Builder::new()
            .name("forwarder".to_owned())
            .spawn_scoped(scope, || run(devices, &stop))?;
        pin(0);
        let begin = Instant::now();
        let (sent, _, _) = send_for(&mut generator, len, time);
        std::thread::sleep(Duration::from_millis(20));
        let wall = begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let cpu = forwarder.join().map_err(|_| "the forwarder has panicked")?;
        Ok((sent, arrived()? - before, cpu, wall))
    })
}

/// Forwards from the first device to the second until it is told to stop; returns the seconds of
/// this thread.
fn run(devices: Pair, stop: &AtomicBool) -> f64 {
    pin(1);
    let [mut from, mut to] = devices;
    let begin = thread_time();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut batch = Batch::new();
        from.split().0.receive(&mut batch);
        if !batch.is_empty() {
            to.split().1.transmit(&mut batch);
            last = Instant::now();
            continue;
        }
        drop(batch);
        if last.elapsed() > SPIN
            && let Some(descriptor) = from.readiness()
        {
            let _ = wait(&[descriptor], Duration::from_millis(10));
            last = Instant::now();
        }
    }
    thread_time() - begin
}

/// Delays of frames that come one at a time: p50 and p99, microseconds.
fn delays(devices: Pair, len: usize) -> Result<[f64; 2]> {
    let stop = AtomicBool::new(false);
    let mut sender = PacketDevice::open("a1", packet::Config::default())?;
    let mut receiver = PacketDevice::open("b1", packet::Config::default())?;
    let mut delays = std::thread::scope(|scope| -> Result<_> {
        let forwarder = std::thread::Builder::new()
            .name("forwarder".to_owned())
            .spawn_scoped(scope, || run(devices, &stop))?;
        pin(0);
        let mut delays = Vec::new();
        for number in 0..SINGLES {
            std::thread::sleep(BETWEEN);
            let mut bytes = frame(len, number);
            let begin = Instant::now();
            sender.split().1.transmit(&mut [Frame::of(&mut bytes, 0, len)]);
            while begin.elapsed() < Duration::from_millis(200) {
                let mut batch = Batch::new();
                receiver.split().0.receive(&mut batch);
                if !batch.is_empty() {
                    delays.push(begin.elapsed().as_secs_f64() * 1e6);
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        let _ = forwarder.join();
        Ok(delays)
    })?;
    delays.sort_by(f64::total_cmp);
    if delays.len() < SINGLES / 2 {
        return Err("frames were lost that came one at a time".into());
    }
    Ok([delays[delays.len() / 2], delays[delays.len() * 99 / 100]])
}

/// A frame that no program waits for.
fn frame(len: usize, number: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    frame[30..34].copy_from_slice(&(number as u32).to_be_bytes());
    frame
}

/// Frames that have come to the far end of the second cable.
fn arrived() -> Result<u64> {
    Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?
        .lines()
        .find_map(|line| line.trim().strip_prefix("b1:")?.split_whitespace().nth(1)?.parse().ok())
        .ok_or("b1 has no counters")?)
}

/// Makes a namespace with the cables a0 to a1 and b0 to b1.
fn prepare() -> Result<()> {
    // SAFETY: no pointers are passed; there is one thread yet.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for name in ["a", "b"] {
        for arguments in [
            format!("link add {name}0 type veth peer name {name}1"),
            format!("link set {name}0 up"),
            format!("link set {name}1 up"),
        ] {
            let status = Command::new("ip").args(arguments.split(' ')).status()?;
            if !status.success() {
                return Err(format!("ip {arguments} failed").into());
            }
        }
    }
    Ok(())
}

/// Keeps this thread on one core, if there is such a core.
fn pin(core: usize) {
    // SAFETY: a set is integers, of which zero is a value; the core is below the size of a set.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        set
    };
    // SAFETY: a set of this size is passed; 0 is this thread.
    unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set) };
}

/// Processor time of this thread, seconds.
fn thread_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
