//! Compares the machine's clock with natgate's.
//!
//! Timers use a clock that never steps. The machine's clock may be set, or may stand still while
//! the machine does. Times in logs follow such a change (`natgate-logs` does that), so the operator
//! must know that times before and after the change do not fit together.

use super::say;
use natgate_engine::Timestamp;
use natgate_gateway::{Clock, panics};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval between comparisons of the clocks, and the smallest difference that is reported, in
/// seconds.
const INTERVAL: Duration = Duration::from_secs(5);
const NOTED: f64 = 1.0;

/// A thread that compares the two clocks until this is dropped.
pub(super) struct Comparison {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Comparison {
    pub(super) fn start(clock: Clock) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let mut watch = Watch::default();
        let thread = Builder::new().name("clock".into()).spawn(move || {
            panics::contain(|| {
                while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if let Some(sentence) = watch.look(clock.now(), SystemTime::now()) {
                        say(sentence);
                    }
                }
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

/// The difference that was reported last.
#[derive(Default)]
struct Watch {
    /// Seconds by which the machine's clock was ahead.
    ahead: f64,
}

impl Watch {
    /// Returns a message if the difference has changed.
    fn look(&mut self, own: Timestamp, machine: SystemTime) -> Option<String> {
        let own = own.since(Timestamp(0)).as_secs_f64();
        let machine = match machine.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_secs_f64(),
            Err(before) => -before.duration().as_secs_f64(),
        };
        let ahead = machine - own;
        if (ahead - self.ahead).abs() < NOTED {
            return None;
        }
        let before = std::mem::replace(&mut self.ahead, ahead);
        let (by, way) = match ahead - before {
            step if step > 0.0 => (step, "forward"),
            step => (-step, "back"),
        };
        Some(format!(
            "warning: the machine's clock has been set {way} by {by:.1} s; times in logs follow it \
             from now on, and logs say where"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_is_told_once() {
        let (mut watch, start) = (Watch::default(), 1_700_000_000_u64);
        let mut look = |own: u64, machine: f64| {
            let machine = UNIX_EPOCH + Duration::from_secs_f64(machine);
            watch.look(Timestamp(own * 1_000_000_000), machine)
        };
        let begin = start as f64;
        assert_eq!(look(start, begin), None);
        assert_eq!(look(start + 5, begin + 5.4), None, "so much any clock is corrected by");
        let said = look(start + 10, begin + 3610.0).expect("an hour is noted");
        assert!(said.contains("set forward by 3600.0 s"), "{said}");
        assert_eq!(look(start + 15, begin + 3615.2), None);
        let said = look(start + 20, begin - 40.0).expect("that is another difference");
        assert!(said.contains("set back by 3660.0 s"), "{said}");
        let said = look(start + 25, begin + 25.0).expect("it is right again");
        assert!(said.contains("set forward by 60.0 s"), "{said}");
        assert_eq!(look(start + 30, begin + 30.0), None);
        let before_1970 =
            watch.look(Timestamp(start * 1_000_000_000), UNIX_EPOCH - Duration::from_secs(1));
        assert!(before_1970.is_some());
    }
}
