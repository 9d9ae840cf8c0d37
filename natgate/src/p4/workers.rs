//! Threads of `natgate p4 run`: each worker forwards between its own queues of the two devices,
//! while the thread that started them answers controllers.

use natgate_io::wait;
use natgate_p4::{Counts, RequestQueue, Switch, Team};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time to poll for frames before sleeping.
const SPIN: Duration = Duration::from_micros(50);

/// Longest sleep.
const GLANCE: Duration = Duration::from_millis(100);

/// Interval between checks of the links.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Tells the other threads that a thread has ended, in any way.
struct Ending<'s>(&'s AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Forwards until `stop` is set; returns the counters of each worker.
///
/// # Errors
///
/// A thread cannot be started, or cannot wait for frames; all have ended then.
pub(super) fn run(
    team: &Team<'_>,
    switches: Vec<Switch<'_>>,
    requests: Option<&RequestQueue>,
    stop: &AtomicBool,
) -> io::Result<Vec<Counts>> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let _ending = Ending(stop);
        let start = |(number, switch)| {
            let named = thread::Builder::new().name(format!("worker {number}"));
            named.spawn_scoped(scope, move || {
                let _ending = Ending(stop);
                forward(switch, begun, stop)
            })
        };
        let workers: Vec<_> = (1..).zip(switches).map(start).collect::<io::Result<_>>()?;
        while !stop.load(Ordering::Relaxed) {
            match requests {
                Some(requests) => {
                    if let Some(message) = requests.wait(GLANCE) {
                        message.answer(&mut team.hold(begun.elapsed()));
                    }
                }
                None => thread::sleep(GLANCE),
            }
        }
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Work of one thread.
fn forward(mut switch: Switch<'_>, begun: Instant, stop: &AtomicBool) -> io::Result<Counts> {
    let (mut last, mut maintained) = (begun, begun);
    while !stop.load(Ordering::Relaxed) {
        let taken = switch.turn(begun.elapsed());
        let now = Instant::now();
        let mut is_troubled = false;
        if taken > 0 {
            last = now;
        } else if now - last > SPIN {
            is_troubled = sleep(&switch)?;
        }
        if is_troubled || now - maintained > MAINTENANCE {
            switch.maintain();
            maintained = now;
        }
    }
    Ok(switch.counts())
}

/// Waits for frames. Returns true if a device is in trouble.
fn sleep(switch: &Switch<'_>) -> io::Result<bool> {
    let devices = switch.devices();
    let descriptors: Vec<_> = devices.iter().filter_map(|device| device.readiness()).collect();
    let intervals = devices.iter().filter_map(|device| device.poll_interval());
    wait(&descriptors, intervals.min().unwrap_or(GLANCE).min(GLANCE))
}
