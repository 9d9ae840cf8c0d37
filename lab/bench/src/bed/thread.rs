//! A subject that is a thread of this program. It forwards between two devices, and spins and
//! sleeps like natgate's own loop.

use super::{BackEnd, BedError, Devices, ports};
use natgate_io::wait;
use natgate_testnet::Network;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time of spinning without frames before the thread sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep before the thread checks `stop`.
const GLANCE: Duration = Duration::from_millis(100);

/// One turn of a subject.
pub(super) trait Turn {
    /// Processes the frames that have come; returns their number.
    fn turn(&mut self) -> usize;

    fn devices(&self) -> &Devices;

    /// Maintains the links.
    fn maintain(&mut self);
}

/// A running thread; it ends when dropped.
pub(super) struct Thread {
    task: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Opens the subject's devices, and runs `work` with them in a thread. The work ends when its
    /// flag is set.
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
            // The thread has printed the reason on standard error.
            let _ = thread.join();
        }
    }
}

/// Takes turns until `stop` is set.
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
    // If the wait fails, the devices are polled again at once.
    let _ = wait(&descriptors, time);
}
