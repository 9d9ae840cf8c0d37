//! The thread that notifies the service manager of the status and of the progress of workers.

use crate::{Manager, Pulse, say};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Interval of notifications without a watchdog.
const USUAL: Duration = Duration::from_secs(5);

/// Checks without progress before a warning is logged; a single one may be a slow turn.
const SLOW: u32 = 3;

/// A thread that watches the workers until this is dropped.
#[derive(Debug)]
pub struct Minder {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The interval of checks. A sign of life may be late by one turn of a second, and the next check
/// must still come in time.
pub fn interval(watchdog: Option<Duration>) -> Duration {
    watchdog.map_or(USUAL, |watchdog| USUAL.min(watchdog / 4)).max(Duration::from_millis(10))
}

impl Minder {
    /// Starts the thread; `look` gives the workers' counts and a status. Without a service manager
    /// no thread is started.
    ///
    /// # Errors The system refuses a thread.
    pub fn start(
        manager: Manager,
        look: impl FnMut() -> (Vec<u64>, String) + Send + 'static,
    ) -> io::Result<Self> {
        if !manager.is_there() {
            return Ok(Self { stop: None, thread: None });
        }
        let (stop, stopped) = channel();
        let thread = Builder::new().name("minder".into());
        let thread = thread.spawn(move || mind(manager, &stopped, look))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
        }
    }
}

fn mind(manager: Manager, stopped: &Receiver<()>, mut look: impl FnMut() -> (Vec<u64>, String)) {
    let (mut pulse, mut in_vain) = (Pulse::default(), 0);
    let interval = interval(manager.watchdog());
    while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let (counts, status) = look();
        match pulse.look(&counts) {
            Ok(()) => {
                in_vain = 0;
                manager.alive(&status);
            }
            Err(still) => {
                let names: Vec<String> = still.iter().map(usize::to_string).collect();
                let stuck = format!("no progress of worker {}", names.join(", "));
                in_vain += 1;
                if in_vain == SLOW {
                    say(&format!("warning: {stuck}; the service manager is not told of any"));
                }
                match in_vain < SLOW {
                    true => manager.status(&status),
                    false => manager.status(&format!("{stuck}; {status}")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_several_times_within_the_watchdogs_patience() {
        let seconds = Duration::from_secs;
        assert_eq!(interval(Some(seconds(10))), Duration::from_millis(2500));
        assert_eq!(interval(Some(seconds(3600))), seconds(5));
        assert_eq!(interval(Some(Duration::from_nanos(1))), Duration::from_millis(10));
        assert_eq!(interval(None), seconds(5));
    }
}
