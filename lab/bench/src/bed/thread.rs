//! A subject that is a thread of this program: it forwards between two devices, and spins and
//! sleeps as natgate's own loop does.

use super::{BackEnd, BedError, Devices, ports};
use natgate_io::wait;
use natgate_testnet::Network;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long to look for frames before sleeping.
const SPIN: Duration = Duration::from_micros(50);
/// How often a thread that sleeps looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(100);

/// What is done again and again.
pub(super) trait Turn {
    /// Takes what has come; how many frames.
    fn turn(&mut self) -> usize;

    fn devices(&self) -> &Devices;

    /// Looks after the links.
    fn maintain(&mut self);
}

/// The thread; it ends when this is dropped.
pub(super) struct Thread {
    task: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Opens the subject's devices, and has `work` done with them, which ends when it is told to
    /// stop.
    pub(super) fn start(
        back_end: BackEnd,
        network: &Network,
        ends: &[String; 2],
        work: impl FnOnce(Devices, &AtomicBool) + Send + 'static,
    ) -> Result<Self, BedError> {
        let devices = network.node("nat").enter(|| ports::open(back_end, network, ends))??;
        let stop = Arc::<AtomicBool>::default();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new().name("forwarder".into()).spawn({
            let stop = Arc::clone(&stop);
            move || {
                let task = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                if tell.send(task).is_ok() {
                    work(devices, &stop);
                }
            }
        })?;
        let task = told.recv().map_err(io::Error::other)?;
        Ok(Self { task, stop, thread: Some(thread) })
    }

    pub(super) fn task(&self) -> u32 {
        self.task
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has said why on standard error.
            let _ = thread.join();
        }
    }
}

/// Turns until it is told to stop.
pub(super) fn run(subject: &mut impl Turn, stop: &AtomicBool) {
    let mut last = Instant::now();
    let mut maintained = last;
    while !stop.load(Ordering::Relaxed) {
        let taken = subject.turn();
        let now = Instant::now();
        if taken > 0 {
            last = now;
        } else if now - last > SPIN {
            sleep(subject.devices());
        }
        let has_timer = subject.devices()[0].poll_interval().is_some();
        if has_timer && now - maintained > GLANCE {
            subject.maintain();
            maintained = now;
        }
    }
}

fn sleep(devices: &Devices) {
    let descriptors: Vec<_> = devices.iter().filter_map(|device| device.readiness()).collect();
    let intervals = devices.iter().filter_map(|device| device.poll_interval());
    let time = intervals.min().unwrap_or(GLANCE);
    // What cannot be waited for is asked again at once.
    let _ = wait(&descriptors, time);
}
