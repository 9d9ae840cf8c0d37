//! Streams of packets, and their results. The generator in the kernel sends over cables. The tester
//! itself sends to ports of DPDK.

use super::flood::Flood;
use super::{Bed, BedError, account};
use crate::search::{self, Capacity, Tried};
use crate::spread::Spread;
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
    /// Names of the tester's interfaces, if it has any.
    names: [String; 2],
}

/// Results of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streamed {
    /// Packets sent or attempted.
    pub offered: u64,
    /// Packets that came out of the cables at the other end.
    pub delivered: u64,
    /// Incorrect packets among the packets that the tester checked.
    pub wrong: u64,
    /// Time from the first sent packet to the last.
    pub elapsed: Duration,
    /// The subject's processor time, until the last packet arrived.
    pub spent: Duration,
    /// Lost share of the packets in the median slice of [`SLICE`].
    pub usual_loss: f64,
}

/// Duration of a slice. The machines of these measurements pause for milliseconds, several times a
/// second. A slice is long compared to the time of packets under way. It is short enough that most
/// slices have no pause.
const SLICE: Duration = Duration::from_millis(20);
/// Slices of one trial.
const SLICES: u32 = 5;

/// Numbers of packets sent and arrived at the ends of slices.
struct Slices {
    begin: Instant,
    /// `[sent, arrived]`; the first entry is the beginning.
    ends: Vec<[u64; 2]>,
}

impl Slices {
    /// Ends the current slice if it is long enough.
    fn tell(&mut self, counts: impl FnOnce() -> io::Result<[u64; 2]>) -> io::Result<()> {
        if self.begin.elapsed() >= SLICE {
            self.ends.push(counts()?);
            self.begin = Instant::now();
        }
        Ok(())
    }

    /// Lost share of the packets in the median slice.
    fn usual_loss(&self) -> f64 {
        let losses = self.ends.windows(2).map(|ends| {
            let [sent, arrived] = [0, 1].map(|of| (ends[1][of] - ends[0][of]) as f64);
            1.0 - arrived / sent.max(1.0)
        });
        Spread::of(&losses.collect::<Vec<_>>()).median
    }
}

impl Streamed {
    /// Lost share of the packets.
    pub fn loss(&self) -> f64 {
        1.0 - self.delivered.min(self.offered) as f64 / self.offered.max(1) as f64
    }

    /// Result of a trial; it passed if at most the share `loss` was lost.
    pub(crate) fn tried(&self, loss: f64) -> Tried {
        Tried {
            passed: self.loss() <= loss,
            sent: self.offered as f64 / self.elapsed.as_secs_f64(),
        }
    }

    /// Delivered packets a second of wall time.
    pub fn rate(&self) -> f64 {
        self.delivered as f64 / self.elapsed.as_secs_f64()
    }
}

impl Bed<'_> {
    /// Creates a stream of packets of flows that have mappings.
    ///
    /// # Errors
    /// [`BedError`] if the kernel refuses the generator.
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

    /// Sends the stream for a time, at a rate or as fast as possible.
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
            let mut streamed = Streamed {
                offered: report.sent,
                delivered: report.received,
                wrong: report.wrong,
                elapsed: report.elapsed,
                spent: self.account.spent()? - before,
                usual_loss: 0.0,
            };
            streamed.usual_loss = streamed.loss();
            return Ok(streamed);
        };
        let arrived = stream.arrived()?;
        let stop = AtomicBool::new(false);
        let begin = Instant::now();
        let mut slices = Slices { begin, ends: vec![[0, arrived]] };
        let (offered, report, elapsed) = std::thread::scope(|scope| {
            let generator = scope.spawn(|| {
                let tell = |sent| slices.tell(|| Ok([sent, stream.arrived()?]));
                let offered =
                    account::prefer_none().and_then(|()| flood.send(rate, duration, tell));
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
            usual_loss: slices.usual_loss(),
        })
    }

    /// Finds the highest rate at which usually at most the share `loss` of the packets is lost, to
    /// a thirtieth; 0 if no rate passes. At this rate a subject is as busy as possible without work
    /// on packets that it then loses. Losses in a pause of the machine do not count.
    ///
    /// # Errors
    /// [`BedError`].
    pub(crate) fn capacity(&mut self, stream: &Stream, loss: f64) -> Result<Capacity, BedError> {
        search::capacity(search::FIRST, |rate| {
            let found = self.send(stream, Some(rate), SLICE * SLICES + SLICE / 2)?;
            Ok(Tried { passed: found.usual_loss <= loss, ..found.tried(loss) })
        })
    }
}

impl Stream {
    /// Packets that have come out of the cables so far at the receiving ends.
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

/// Packets that an interface has received, from the kernel's table.
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
    fn a_pause_is_not_in_the_median_slice() {
        let ends = vec![[0, 5], [100, 105], [200, 145], [300, 246], [400, 344], [500, 444]];
        let slices = Slices { begin: Instant::now(), ends };
        assert_eq!(slices.usual_loss(), 0.0);
        let ends = vec![[0, 0], [100, 98], [200, 196], [300, 294]];
        let loss = Slices { ends, ..slices }.usual_loss();
        assert!((loss - 0.02).abs() < 1e-9, "{loss}");
    }

    #[test]
    fn a_slice_ends_once_it_is_long_enough() {
        let mut slices = Slices { begin: Instant::now(), ends: Vec::new() };
        slices.tell(|| Ok([1, 1])).unwrap();
        // The machine may have been slow here.
        let early = slices.ends.len();
        slices.begin -= SLICE;
        slices.tell(|| Ok([2, 2])).unwrap();
        assert_eq!(slices.ends.len(), early + 1);
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
