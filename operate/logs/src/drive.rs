//! The work of a sink at a given time: take from the queue, write, retry, and report.
//!
//! Nothing here waits or reads the clock, so a test of an hour without a collector takes
//! milliseconds. Records are dropped when the sink has written them. Records not yet written stay
//! in the batch, further ones in the queue, and records without room in the queue become a gap.

use crate::in_force::InForce;
use crate::json::Names;
use crate::queue::Queue;
use crate::record::{Gap, Record};
use crate::wall::WallClock;
use natgate_engine::Timestamp;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Records that are written in one go.
const BATCH: usize = 512;

/// First pause before a retry, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Interval of flushes.
const FLUSH: Duration = Duration::from_secs(1);

/// Reports a sentence to the operator.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// Destination of records.
pub trait Sink: Send {
    /// Prepares to write, after the start or an error.
    ///
    /// # Errors
    /// The error if that is not possible now.
    fn connect(&mut self, now: Timestamp) -> io::Result<()>;

    /// Writes records; returns the number written, from the first on.
    ///
    /// # Errors
    /// The error of the first record that was not written; then the sink connects again before it
    /// writes.
    fn write(
        &mut self,
        records: &[Record],
        names: &Names,
        now: Timestamp,
    ) -> (usize, io::Result<()>);

    /// Puts another configuration in force, with times by the machine's clock. The default ignores
    /// it.
    ///
    /// # Errors
    /// The errors of [`Sink::write`]; then the call is repeated.
    fn put_in_force(&mut self, _new: &InForce, _now: Timestamp) -> io::Result<()> {
        Ok(())
    }

    /// Notifies the sink that all records until a time have been written. The default ignores it.
    fn passed(&mut self, _until: Timestamp) {}

    /// Flushes written records; called about once a second, with or without records.
    ///
    /// # Errors
    /// The errors of [`Sink::write`].
    fn flush(&mut self, now: Timestamp) -> io::Result<()>;

    /// Reopens files: they may have been rotated.
    fn reopen(&mut self) {}

    /// Shortens all waits: no further records come.
    fn hurry(&mut self) {}

    /// Closes the sink after the last record.
    ///
    /// # Errors
    /// The errors of [`Sink::write`].
    fn close(&mut self, _now: Timestamp) -> io::Result<()> {
        Ok(())
    }
}

/// Counters of a sink, readable at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkMetrics {
    /// Name: the kind of the sink and its destination.
    pub name: String,
    /// Events written.
    pub written: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Events that are missing in gaps.
    pub lost: u64,
    /// Records that wait.
    pub waiting: u64,
    /// Most records that can wait.
    pub capacity: u64,
    /// True if the sink can write.
    pub connected: bool,
    /// Number of failures.
    pub failures: u64,
}

/// Counters of a sink's thread.
#[derive(Debug)]
pub(crate) struct Counts {
    name: String,
    capacity: usize,
    written: AtomicU64,
    failures: AtomicU64,
    connected: AtomicBool,
    /// True if files are to be reopened.
    pub(crate) reopen: AtomicBool,
    /// True if written records are to be flushed now.
    pub(crate) flush: AtomicBool,
    /// Time by the machine's clock until which all records are written and flushed.
    pub(crate) until: AtomicU64,
}

impl Counts {
    /// Counters of the sink and of its queue.
    pub(crate) fn metrics(&self, queue: &Queue) -> SinkMetrics {
        let (waiting, lost, gaps) = queue.figures();
        SinkMetrics {
            name: self.name.clone(),
            written: self.written.load(Ordering::Relaxed),
            gaps,
            lost,
            waiting,
            capacity: self.capacity as u64,
            connected: self.connected.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

/// A sink with its queue and its state.
pub struct Drive {
    sink: Box<dyn Sink>,
    queue: Arc<Queue>,
    names: Arc<RwLock<Arc<Names>>>,
    tell: Tell,
    counts: Arc<Counts>,
    batch: Vec<Record>,
    health: Health,
    next_flush: Timestamp,
    wall: Arc<WallClock>,
    /// Configuration that the sink knows.
    in_force: Option<Arc<InForce>>,
}

/// Ability of a sink to write.
enum Health {
    /// The sink has not been tried.
    New,
    Well,
    /// The sink has failed since a time; the time of the next try, and the pause after it.
    Failed {
        since: Timestamp,
        again: Timestamp,
        pause: Duration,
    },
}

impl Drive {
    /// Creates the drive of a sink with a queue of `capacity` records. `name` appears in reports,
    /// `names` are those of the configuration. `wall` gives the sink its time.
    pub fn new(
        name: String,
        capacity: usize,
        sink: Box<dyn Sink>,
        queue: Arc<Queue>,
        names: Arc<RwLock<Arc<Names>>>,
        tell: Tell,
        wall: Arc<WallClock>,
    ) -> Self {
        let counts = Counts {
            name,
            capacity,
            written: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            flush: AtomicBool::new(false),
            until: AtomicU64::new(0),
        };
        Self {
            sink,
            queue,
            names,
            tell,
            counts: Arc::new(counts),
            batch: Vec::with_capacity(BATCH),
            health: Health::New,
            next_flush: Timestamp(0),
            wall,
            in_force: None,
        }
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Counters of the sink.
    pub fn metrics(&self) -> SinkMetrics {
        self.counts.metrics(&self.queue)
    }

    /// Does the work that is due; returns how long the thread may sleep.
    pub fn turn(&mut self, now: Timestamp) -> Pause {
        if let Health::Failed { again, .. } = self.health
            && now < again
        {
            return Pause::Whatever(again.since(now));
        }
        match self.work_or_fail(now) {
            Ok(()) => Pause::UnlessSomethingComes(self.next_flush.since(now)),
            Err(error) => Pause::Whatever(self.failed(&error, now)),
        }
    }

    /// Writes what can be written now, because no further records come; returns true if that was
    /// all.
    pub fn finish(&mut self, now: Timestamp) -> bool {
        self.sink.hurry();
        self.next_flush = now;
        let worked = self.work_or_fail(now);
        let worked = worked.and_then(|()| self.sink.close(self.wall.at(now)));
        match worked {
            Ok(()) => true,
            Err(error) => {
                self.failed(&error, now);
                false
            }
        }
    }

    /// Works. A panic counts as a failure, after which the sink connects again.
    fn work_or_fail(&mut self, now: Timestamp) -> io::Result<()> {
        let worked = panic::catch_unwind(AssertUnwindSafe(|| self.work(now)));
        worked.unwrap_or_else(|_| Err(io::Error::other("its writer panicked, a bug of natgate's")))
    }

    fn work(&mut self, now: Timestamp) -> io::Result<()> {
        if self.counts.reopen.swap(false, Ordering::Relaxed) {
            self.sink.reopen();
        }
        if !matches!(self.health, Health::Well) {
            self.sink.connect(self.wall.at(now))?;
            // An open connection need not accept anything: only a successful write proves that it
            // works.
            self.next_flush = now;
        }
        let names = Arc::clone(&self.names.read().unwrap_or_else(PoisonError::into_inner));
        self.put_in_force(&names, now)?;
        loop {
            self.queue.take(BATCH, &mut self.batch);
            if self.batch.is_empty() {
                break;
            }
            let (written, result) = self.sink.write(&self.batch, &names, self.wall.at(now));
            // A host's name stays with the event that it belongs to.
            let is_between = crate::host_before(&self.batch, written).is_some();
            let written = if is_between { written - 1 } else { written };
            self.made_progress(written);
            let done = self.batch.drain(..written);
            let (mut events, mut gaps) = (0, Vec::new());
            for record in done {
                match record {
                    Record::Event(_) | Record::Expectation(_) | Record::Slice(_) => events += 1,
                    Record::Gap(gap) => gaps.push(gap),
                    Record::Host(_) | Record::ClockSet(_) | Record::Summary(_) => {}
                }
            }
            self.counts.written.fetch_add(events, Ordering::Relaxed);
            gaps.iter().for_each(|gap| self.tell_gap(gap));
            result?;
        }
        if self.counts.flush.swap(false, Ordering::Relaxed) || now >= self.next_flush {
            self.next_flush = now.plus(FLUSH);
            let until = self.queue.passed_until();
            if let Some(until) = until {
                self.sink.passed(until);
            }
            self.sink.flush(self.wall.at(now))?;
            if let Some(until) = until {
                self.counts.until.store(until.0, Ordering::Release);
            }
        }
        self.is_well(now);
        Ok(())
    }

    /// Puts configurations in force that the sink does not know.
    fn put_in_force(&mut self, names: &Names, now: Timestamp) -> io::Result<()> {
        let all = &names.in_force;
        let first = match &self.in_force {
            Some(known) => {
                all.iter().rposition(|one| Arc::ptr_eq(one, known)).map_or(0, |place| place + 1)
            }
            None => all.len().saturating_sub(1),
        };
        for new in all.iter().skip(first) {
            let (from, until) = (self.wall.at(new.from), self.wall.at(new.until));
            let timed = InForce { packed: new.packed.clone(), from, until };
            self.sink.put_in_force(&timed, self.wall.at(now))?;
            self.in_force = Some(Arc::clone(new));
        }
        Ok(())
    }

    /// Resets the pause of a sink that takes some records: it is retried like one that has just
    /// failed.
    fn made_progress(&mut self, written: usize) {
        if let Health::Failed { pause, .. } = &mut self.health
            && written > 0
        {
            *pause = RETRY.0;
        }
    }

    fn is_well(&mut self, now: Timestamp) {
        if let Health::Failed { since, .. } = self.health {
            let name = &self.counts.name;
            let seconds = now.since(since).as_secs();
            (self.tell)(format!("log {name} is written again, after {seconds} s"));
        }
        self.health = Health::Well;
        self.counts.connected.store(true, Ordering::Relaxed);
    }

    /// Records that the sink cannot write; returns the pause before the next try.
    fn failed(&mut self, error: &io::Error, now: Timestamp) -> Duration {
        self.counts.connected.store(false, Ordering::Relaxed);
        let (since, pause) = match self.health {
            Health::Failed { since, pause, .. } => (since, pause),
            Health::New | Health::Well => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                (self.tell)(format!(
                    "warning: log {} cannot be written: {}; events wait for it, and what is more \
                     than {} is counted as a gap",
                    self.counts.name,
                    reason(error),
                    self.counts.capacity
                ));
                (now, RETRY.0)
            }
        };
        self.health =
            Health::Failed { since, again: now.plus(pause), pause: RETRY.1.min(pause * 2) };
        pause
    }

    fn tell_gap(&self, gap: &Gap) {
        let name = &self.counts.name;
        let seconds = gap.to.since(gap.from).as_secs_f64();
        (self.tell)(format!(
            "warning: log {name} has a gap: {} events of {seconds:.3} s are missing",
            gap.lost
        ));
    }
}

/// Reason of a write error, with the remedy if there is a usual one.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full, make room there".to_owned()
        }
        io::ErrorKind::PermissionDenied => "this user may not (any more)".to_owned(),
        _ => error.to_string(),
    }
}

/// Longest sleep of a sink's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Sleep this long, or until the queue has a record.
    UnlessSomethingComes(Duration),
    /// Sleep this long in any case.
    Whatever(Duration),
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sinks::file::FileSink;
    use natgate_engine::{Change, Endpoint, Event, MappingId, MappingKind};
    use natgate_gateway::LogWhat;
    use std::path::Path;
    use std::sync::Mutex;

    /// Record of a mapping made at a time.
    pub(crate) fn created(time: u64) -> Record {
        let id = MappingId {
            realm: 0,
            protocol: 17,
            internal: Endpoint::new(0x0a00_0005, 4000),
            external: Endpoint::new(0xcb00_7101, time as u16),
            kind: MappingKind::Dynamic,
        };
        Record::Event(Event { time: Timestamp(time), change: Change::MappingCreated(id) })
    }

    pub(crate) fn times(records: &[Record]) -> Vec<u64> {
        records.iter().map(|record| record.time().0).collect()
    }

    /// A collector that can be absent, and takes a limited number of records a turn.
    #[derive(Clone, Default)]
    struct Collector(Arc<Mutex<Inside>>);

    #[derive(Default)]
    struct Inside {
        away: bool,
        most: Option<usize>,
        got: Vec<Record>,
        tries: usize,
    }

    impl Sink for Collector {
        fn connect(&mut self, _: Timestamp) -> io::Result<()> {
            let mut inside = self.0.lock().unwrap();
            inside.tries += 1;
            if inside.away { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
        }

        fn write(
            &mut self,
            records: &[Record],
            _: &Names,
            _: Timestamp,
        ) -> (usize, io::Result<()>) {
            let mut inside = self.0.lock().unwrap();
            if inside.away {
                return (0, Err(io::ErrorKind::BrokenPipe.into()));
            }
            let most = inside.most.unwrap_or(usize::MAX);
            let count = records.len().min(most);
            inside.got.extend(&records[..count]);
            let slow = count < records.len();
            (count, if slow { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) })
        }

        fn flush(&mut self, _: Timestamp) -> io::Result<()> {
            Ok(())
        }
    }

    struct World {
        collector: Collector,
        queue: Arc<Queue>,
        drive: Drive,
        said: Arc<Mutex<Vec<String>>>,
    }

    fn world(capacity: usize) -> World {
        let collector = Collector::default();
        let queue = Arc::new(Queue::new(capacity, LogWhat::Mappings));
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let tell: Tell = Arc::new(move |sentence| heard.lock().unwrap().push(sentence));
        let (sink, taking) = (Box::new(collector.clone()), Arc::clone(&queue));
        let drive =
            Drive::new("c".into(), capacity, sink, taking, Arc::default(), tell, Arc::default());
        World { collector, queue, drive, said }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_collector_that_is_away_for_an_hour_gets_what_fits_and_the_exact_gap() {
        let mut world = world(1000);
        let inside = Arc::clone(&world.collector.0);
        world.queue.offer(&[created(SECOND)]);
        world.drive.turn(Timestamp(SECOND));
        inside.lock().unwrap().away = true;
        // Ten events a second for an hour.
        let hour = 3600 * 10;
        for at in 0..hour {
            let time = 2 * SECOND + at * SECOND / 10;
            world.queue.offer(&[created(time)]);
            world.drive.turn(Timestamp(time));
        }
        assert!(inside.lock().unwrap().tries < 400, "it is not asked all the time");
        inside.lock().unwrap().away = false;
        let back = 2 * SECOND + 3610 * SECOND;
        world.queue.offer(&[created(back)]);
        world.drive.turn(Timestamp(back));
        let metrics = world.drive.metrics();
        let got = inside.lock().unwrap().got.clone();
        let events = got.iter().filter(|record| matches!(record, Record::Event(_))).count();
        let gaps: Vec<_> = got
            .iter()
            .filter_map(|record| match record {
                Record::Gap(gap) => Some(*gap),
                _ => None,
            })
            .collect();
        // The sink held one batch beside the queue.
        let lost = gaps.iter().map(|gap| gap.lost).sum::<u64>();
        assert_eq!(events as u64 + lost, 1 + hour + 1);
        assert_eq!(gaps.len(), 1, "one outage is one gap");
        assert!(events as u64 <= 1 + 1000 + BATCH as u64 + 1, "{events} were kept");
        let missing = times(&got)
            .windows(2)
            .find(|pair| pair[0] < gaps[0].from.0 && pair[1] == gaps[0].to.0)
            .is_some();
        assert!(missing, "the gap is where the events would have been");
        assert_eq!((metrics.lost, metrics.gaps), (lost, 1));
        assert_eq!((metrics.written, metrics.connected), (events as u64, true));
        let said = world.said.lock().unwrap().join("\n");
        assert_eq!(said.matches("cannot be written").count(), 1, "{said}");
        assert!(said.contains("log c is written again, after 36"), "{said}");
        assert!(said.contains(&format!("has a gap: {lost} events")), "{said}");
    }

    #[test]
    fn a_slow_collector_gets_all_in_order() {
        let mut world = world(10_000);
        world.collector.0.lock().unwrap().most = Some(7);
        let records: Vec<_> = (1..=700).map(created).collect();
        world.queue.offer(&records);
        let mut now = 0;
        for _ in 0..200 {
            now += 20 * SECOND;
            world.drive.turn(Timestamp(now));
        }
        assert_eq!(world.collector.0.lock().unwrap().got, records);
        assert_eq!(world.drive.metrics().lost, 0);
    }

    #[test]
    fn what_opens_and_takes_nothing_is_told_once() {
        let mut world = world(10);
        world.drive.sink = Box::new(FileSink::open(Path::new("/dev/full"), false).unwrap());
        world.queue.offer(&[created(1)]);
        let turns = (1..=100).map(|second| world.drive.turn(Timestamp(second * SECOND)));
        assert!(turns.last().is_some_and(|last| matches!(last, Pause::Whatever(_))));
        let said = world.said.lock().unwrap().join("\n");
        assert_eq!(said.matches("the disk is full, make room there").count(), 1, "{said}");
        assert!(!said.contains("again"), "{said}");
        assert!(!world.drive.metrics().connected);
    }

    #[test]
    fn the_end_is_told() {
        let mut world = world(10);
        world.queue.offer(&[created(1)]);
        assert!(world.drive.finish(Timestamp(2)));
        assert_eq!(world.collector.0.lock().unwrap().got, [created(1)]);
        world.collector.0.lock().unwrap().away = true;
        world.queue.offer(&[created(3)]);
        assert!(!world.drive.finish(Timestamp(4)));
        assert!(!world.drive.metrics().connected);
    }
}
