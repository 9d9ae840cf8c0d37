//! A subject that is a thread of this program, or several. Each forwards between two devices, and
//! spins and sleeps like natgate's own loop.

use super::{BackEnd, BedError, Devices, ports};
use natgate_io::wait;
use natgate_testnet::Network;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
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

/// Running threads; they end when dropped.
pub(super) struct Threads {
    tasks: Vec<u32>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Threads of a subject that is being started.
pub(super) struct Crew<'s> {
    count: usize,
    /// Numbers of the threads in the system.
    tell: Sender<u32>,
    /// Set when the subject has to end.
    pub(super) stop: &'s AtomicBool,
}

impl Threads {
    /// Opens the subject's devices for each of its workers, and runs `work` with them in a thread.
    /// The work has to call [`Crew::run`], and ends when the crew's flag is set.
    pub(super) fn start(
        back_end: BackEnd,
        network: &Network,
        ends: &[String; 2],
        workers: u16,
        work: impl FnOnce(Vec<Devices>, &Crew<'_>) + Send + 'static,
    ) -> Result<Self, BedError> {
        let open = || ports::open(back_end, network, ends, workers.into());
        let devices = network.node("nat").enter(open)??;
        let stop = Arc::<AtomicBool>::default();
        let (tell, told) = channel();
        let count = devices.len();
        let thread = thread::Builder::new().name("forwarder".into()).spawn({
            let stop = Arc::clone(&stop);
            move || work(devices, &Crew { count, tell, stop: &stop })
        })?;
        let mut threads = Self { tasks: Vec::new(), stop, thread: Some(thread) };
        for _ in 0..count {
            threads.tasks.push(told.recv().map_err(io::Error::other)?);
        }
        Ok(threads)
    }

    pub(super) fn tasks(&self) -> &[u32] {
        &self.tasks
    }
}

impl Crew<'_> {
    /// Starts all threads. Then `prepare` makes the subject of each in this thread, which runs the
    /// first. It returns `None` if the subject has to end before.
    pub(super) fn run<T: Turn + Send>(&self, prepare: impl FnOnce() -> Option<Vec<T>>) {
        let tell = || {
            let task = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            // The starter may have given up.
            let _ = self.tell.send(task);
        };
        thread::scope(|scope| {
            let others: Vec<Sender<T>> = (1..self.count)
                .map(|_| {
                    let (give, given) = channel();
                    scope.spawn(move || {
                        tell();
                        if let Ok(mut subject) = given.recv() {
                            run(&mut subject, self.stop);
                        }
                    });
                    give
                })
                .collect();
            tell();
            let mut subjects = prepare().into_iter().flatten();
            let Some(mut own) = subjects.next() else { return };
            for (other, subject) in others.iter().zip(subjects) {
                // A thread that has ended has printed the reason on standard error.
                let _ = other.send(subject);
            }
            run(&mut own, self.stop);
        });
    }
}

impl Drop for Threads {
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
