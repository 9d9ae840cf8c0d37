//! As many packets as wanted: over cables by the generator in the kernel, to ports of DPDK by the
//! tester itself; and what became of them.

use super::flood::Flood;
use super::{Bed, BedError, account};
use crate::search::{self, Capacity, Tried};
use natgate_tester::{Load, Mix, Way};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets of one kind, ready to be sent.
pub struct Stream {
    frames: Mix,
    way: Way,
    flood: Option<Flood>,
    /// The tester's interfaces, if it has any.
    names: [String; 2],
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streamed {
    /// Packets that were sent, or tried.
    pub offered: u64,
    /// Packets that came out of the cables at the other end.
    pub delivered: u64,
    /// Packets that the tester looked at and that are not as they should be.
    pub wrong: u64,
    /// Time from the first to the last that was sent.
    pub elapsed: Duration,
    /// The subject's processor time, until the last had arrived.
    pub spent: Duration,
}

impl Streamed {
    /// Which part did not arrive.
    pub fn loss(&self) -> f64 {
        1.0 - self.delivered.min(self.offered) as f64 / self.offered.max(1) as f64
    }

    /// Whether no more than that share was lost.
    pub(crate) fn tried(&self, loss: f64) -> Tried {
        let sent = self.offered as f64 / self.elapsed.as_secs_f64();
        Tried { passed: self.loss() <= loss, sent }
    }

    /// Packets delivered, a second of wall time.
    pub fn rate(&self) -> f64 {
        self.delivered as f64 / self.elapsed.as_secs_f64()
    }
}

impl Bed<'_> {
    /// Packets of flows that have mappings.
    ///
    /// # Errors
    /// [`BedError`] when the kernel does not take the generator.
    pub fn stream(&self, frames: &Mix, way: Way) -> Result<Stream, BedError> {
        let (flood, names) = match &self.interfaces {
            Some(links) => {
                let numbers = links.each_ref().map(|link| link.index);
                let flood = Flood::new(&self.tester, numbers, frames, way)?;
                (Some(flood), links.each_ref().map(|link| link.name.clone()))
            }
            None => (None, Default::default()),
        };
        Ok(Stream { frames: frames.clone(), way, flood, names })
    }

    /// Sends them for so long, at a rate or as fast as can be.
    ///
    /// # Errors
    /// [`BedError`].
    pub fn send(
        &mut self,
        stream: &Stream,
        rate: Option<f64>,
        duration: Duration,
    ) -> Result<Streamed, BedError> {
        let before = self.account.spent()?;
        let Some(flood) = &stream.flood else {
            let Stream { frames, way, .. } = stream;
            let load = Load { frames: frames.clone(), way: *way, rate, duration, check: false };
            let report = self.tester.run(&load)?;
            return Ok(Streamed {
                offered: report.sent,
                delivered: report.received,
                wrong: report.wrong,
                elapsed: report.elapsed,
                spent: self.account.spent()? - before,
            });
        };
        let arrived = stream.arrived()?;
        let stop = AtomicBool::new(false);
        let begin = Instant::now();
        let (offered, report, elapsed) = std::thread::scope(|scope| {
            let generator = scope.spawn(|| {
                let offered = account::prefer_none().and_then(|()| flood.send(rate, duration));
                let elapsed = begin.elapsed();
                stop.store(true, Ordering::Relaxed);
                offered.map(|offered| (offered, elapsed))
            });
            let report = self.tester.listen(&stream.frames, &stop);
            let sent = generator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.map(|(offered, elapsed)| (offered, report, elapsed))
        })?;
        Ok(Streamed {
            offered,
            delivered: stream.arrived()? - arrived,
            wrong: report.wrong,
            elapsed,
            spent: self.account.spent()? - before,
        })
    }

    /// The highest rate at which at most `loss` of the packets are lost, to a thirtieth; 0 when
    /// there is none. There a subject is as busy as it can be without working on what it then
    /// loses. What it loses in a pause of the machine it does not lose again: a rate has several
    /// trials, of which one has to pass.
    ///
    /// # Errors
    /// [`BedError`].
    pub(crate) fn capacity(
        &mut self,
        stream: &Stream,
        loss: f64,
        step: Duration,
    ) -> Result<Capacity, BedError> {
        const TRIALS: u32 = 3;
        search::capacity(search::FIRST, |rate| {
            let mut tried = self.send(stream, Some(rate), step)?.tried(loss);
            for _ in 1..TRIALS {
                if tried.passed {
                    break;
                }
                tried = self.send(stream, Some(rate), step)?.tried(loss);
            }
            Ok(tried)
        })
    }
}

impl Stream {
    /// Packets that have come out of the cables so far at the ends where these do.
    fn arrived(&self) -> io::Result<u64> {
        let table = fs::read_to_string("/proc/thread-self/net/dev")?;
        let mut total = 0;
        for (end, counts) in [(0, self.way != Way::Up), (1, self.way != Way::Down)] {
            if counts {
                total += received(&table, &self.names[end]).unwrap_or(0);
            }
        }
        Ok(total)
    }
}

/// Packets that an interface has received, by the kernel's table.
fn received(table: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(interface, _)| interface.trim() == name)?;
    numbers.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs |bytes\n    \
                     lo:       1       2    3\n  a17: 640 10 0 0 0 0 0 0 5 6 0\n";
        assert_eq!(received(table, "a17"), Some(10));
        assert_eq!((received(table, "lo"), received(table, "a1")), (Some(2), None));
    }

    #[test]
    fn loss_and_rate_are_of_what_was_offered_and_delivered() {
        let streamed = Streamed {
            offered: 1000,
            delivered: 900,
            elapsed: Duration::from_millis(500),
            ..Streamed::default()
        };
        assert!((streamed.loss() - 0.1).abs() < 1e-9 && streamed.rate() == 1800.0);
        assert_eq!(Streamed::default().loss(), 1.0);
    }
}
