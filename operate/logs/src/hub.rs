//! Threads of the logs: one orders workers' events and distributes them, and one for each sink.
//! Sinks are added and removed while others run ([`Changer`]); the others do not notice.

use crate::damping::Damping;
use crate::drive::{Counts, Drive, Pause, SinkMetrics, Tell};
use crate::feed::{Feed, Outlet, RING, feed};
use crate::in_force::{InForce, OwnersInForce};
use crate::json::Names;
use crate::merge::Merge;
use crate::queue::Queue;
use crate::record::Record;
use crate::sinks;
use crate::wall::{Timing, WallClock};
use natgate_engine::Timestamp;
use natgate_gateway::{Clock, LogSettings, LogTo, LogWhat, Settings, panics};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Interval at which the rings are checked without a wake-up.
const LOOK: Duration = Duration::from_millis(50);

/// Interval at which the machine's clock is compared with the translator's.
const COMPARE: Duration = Duration::from_secs(1);

/// Difference of a clock that has not been set since its start, nanoseconds: less than this.
const AGREES: i64 = 100_000_000;

/// Records that are distributed in one go.
const DEAL: usize = 1024;

/// Configurations that sinks may not have taken yet.
const MOST_IN_FORCE: usize = 16;

/// Longest wait until the spools have reached a time, and the interval of looking.
const CATCH_UP: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(20));

/// Reason why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("log {name} cannot be opened: {error}")]
pub struct OpenError {
    /// Name of the log.
    pub name: String,
    /// Error of the system.
    #[source]
    pub error: io::Error,
}

/// Receivers of records: queues of logs, and of temporary listeners.
type Queues = Arc<Mutex<Vec<Arc<Queue>>>>;

/// Logs that are written, in the order of the settings.
type Sinks = Arc<Mutex<Vec<Running>>>;

/// A log that is written.
struct Running {
    settings: LogSettings,
    counts: Arc<Counts>,
    queue: Arc<Queue>,
    /// Thread of the sink; taken when its end is awaited.
    thread: Option<JoinHandle<bool>>,
}

/// A log that is open, and not yet running.
struct Opened {
    settings: LogSettings,
    drive: Drive,
    queue: Arc<Queue>,
}

/// Shared parts needed to open a log.
#[derive(Clone)]
struct Kit {
    names: Arc<RwLock<Arc<Names>>>,
    clock: Clock,
    wall: Arc<WallClock>,
    tell: Tell,
}

impl Kit {
    fn open(&self, settings: &LogSettings, continued: bool) -> Result<Opened, OpenError> {
        let name = sinks::name(settings);
        let failed = |error| OpenError { name: name.clone(), error };
        let sink = sinks::open(settings, continued).map_err(failed)?;
        let queue = Arc::new(Queue::new(settings.queue, settings.what));
        let (taking, known) = (Arc::clone(&queue), Arc::clone(&self.names));
        let (tell, wall) = (Arc::clone(&self.tell), Arc::clone(&self.wall));
        let drive = Drive::new(name, settings.queue, sink, taking, known, tell, wall);
        Ok(Opened { settings: settings.clone(), drive, queue })
    }

    /// Makes a record the one of the configuration in force, unless it says the same as the present
    /// one.
    fn put_in_force(&self, new: InForce) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if names.in_force.last().is_some_and(|present| present.packed == new.packed) {
            return;
        }
        let mut changed = Names::clone(&names);
        let too_many = (changed.in_force.len() + 1).saturating_sub(MOST_IN_FORCE);
        changed.in_force.drain(..too_many);
        changed.in_force.push(Arc::new(InForce { until: self.clock.now(), ..new }));
        *names = Arc::new(changed);
    }

    fn start(&self, opened: Opened) -> Result<Running, OpenError> {
        let Opened { settings, drive, queue } = opened;
        let (counts, taking, clock) = (drive.counts(), Arc::clone(&queue), self.clock);
        let thread = thread::Builder::new().name("log".to_owned());
        let thread = thread.spawn(move || write(drive, &taking, clock));
        let name = || sinks::name(&settings);
        let thread = thread.map_err(|error| OpenError { name: name(), error })?;
        Ok(Running { settings, counts, queue, thread: Some(thread) })
    }
}

impl Running {
    /// True if the log is no spool, or has all records until a time by the machine's clock. A spool
    /// whose records have come is made to write them.
    fn has_reached(&self, at: Timestamp) -> bool {
        if !matches!(self.settings.to, LogTo::Spool(_))
            || self.counts.until.load(Ordering::Acquire) >= at.0
        {
            return true;
        }
        if self.queue.passed_until() >= Some(at) {
            self.counts.flush.store(true, Ordering::Relaxed);
            self.queue.wake();
        }
        false
    }

    /// Makes the log write its remaining records. The returned function waits for the end; it
    /// returns the log's counters, and true if all records were written.
    fn end(&mut self) -> impl FnOnce() -> (SinkMetrics, bool) + use<> {
        self.queue.close();
        let (thread, counts, queue) =
            (self.thread.take(), Arc::clone(&self.counts), Arc::clone(&self.queue));
        move || {
            let complete = thread.is_none_or(|thread| thread.join().unwrap_or(false));
            (counts.metrics(&queue), complete)
        }
    }
}

/// All logs in operation.
pub struct Logs {
    dealer: Option<JoinHandle<()>>,
    joining: Joining,
    kit: Kit,
    sinks: Sinks,
    queues: Queues,
    stop: Arc<AtomicBool>,
}

/// Creates feeds for workers.
#[derive(Clone)]
pub struct Joining {
    outlets: Sender<Outlet>,
    wanted: Arc<AtomicBool>,
    dealer: Thread,
}

impl Joining {
    /// Creates the feed of one more worker.
    pub fn feed(&self) -> Feed {
        let (feed, outlet) = feed(RING, Arc::clone(&self.wanted), Some(self.dealer.clone()));
        // The distributing thread exists until the logs are finished.
        let _ = self.outlets.send(outlet);
        feed
    }
}

impl Logs {
    /// Opens the logs and starts their threads. `names` are those of the configuration in force.
    /// `continued` says that there are mappings from before. `tell` reports to the operator.
    ///
    /// # Errors
    /// [`OpenError`] if a file, folder or certificate cannot be used. An absent collector is no
    /// error: it may appear later.
    pub fn open(
        settings: &[LogSettings],
        names: Names,
        clock: Clock,
        continued: bool,
        tell: &Tell,
    ) -> Result<Self, OpenError> {
        let names = Arc::new(RwLock::new(Arc::new(names)));
        let ahead = clock.ahead();
        let ahead = if ahead.abs() < AGREES { 0 } else { ahead };
        let wall = Arc::new(WallClock::new(ahead));
        let kit = Kit { names, clock, wall, tell: Arc::clone(tell) };
        let opened = settings.iter().map(|one| kit.open(one, continued));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let queues: Vec<_> = opened.iter().map(|one| Arc::clone(&one.queue)).collect();
        let wanted = Arc::new(AtomicBool::new(!queues.is_empty()));
        let queues: Queues = Arc::new(Mutex::new(queues));
        let stop = Arc::new(AtomicBool::new(false));
        let running = opened.into_iter().map(|one| kit.start(one));
        let sinks = Arc::new(Mutex::new(running.collect::<Result<_, _>>()?));
        let (sender, outlets) = channel();
        let (dealt, stopping) = (Arc::clone(&queues), Arc::clone(&stop));
        let wall = Arc::clone(&kit.wall);
        let dealer = thread::Builder::new()
            .name("log-order".to_owned())
            .spawn(move || deal(&outlets, (clock, &wall), &dealt, &stopping))
            .map_err(|error| OpenError { name: "of events".to_owned(), error })?;
        let joining = Joining { outlets: sender, wanted, dealer: dealer.thread().clone() };
        let dealer = Some(dealer);
        Ok(Self { dealer, joining, kit, sinks, queues, stop })
    }

    /// Creates feeds for present and joining workers.
    pub fn joining(&self) -> Joining {
        self.joining.clone()
    }

    /// The machine's clock of the logs, to be updated when the clock is set.
    pub fn wall(&self) -> Arc<WallClock> {
        Arc::clone(&self.kit.wall)
    }

    /// Returns a function that sets the names of pools, classes and realms. The configuration in
    /// force stays ([`Exchange::putting_in_force`]).
    pub fn rename(&self) -> impl Fn(Names) + Send + use<> {
        let names = Arc::clone(&self.kit.names);
        move |new| {
            let mut names = names.write().unwrap_or_else(PoisonError::into_inner);
            *names = Arc::new(Names { in_force: names.in_force.clone(), ..new });
        }
    }

    /// Returns the means to wait until the spools have reached a time.
    pub fn catch_up(&self) -> CatchUp {
        CatchUp { sinks: Arc::clone(&self.sinks) }
    }

    /// Returns a function that reopens files, after they have been rotated.
    pub fn reopen(&self) -> impl Fn() + Send + use<> {
        let sinks = Arc::clone(&self.sinks);
        move || lock(&sinks).iter().for_each(|one| one.counts.reopen.store(true, Ordering::Relaxed))
    }

    /// Returns a function that reads the counters of each log, from any thread.
    pub fn metrics(&self) -> impl Fn() -> Vec<SinkMetrics> + Send + Sync + use<> {
        let sinks = Arc::clone(&self.sinks);
        move || lock(&sinks).iter().map(|one| one.counts.metrics(&one.queue)).collect()
    }

    /// Returns the means to change the set of logs.
    pub fn changer(&self) -> Changer {
        let (kit, sinks, queues) =
            (self.kit.clone(), Arc::clone(&self.sinks), Arc::clone(&self.queues));
        Changer { kit, sinks, queues, wanted: Arc::clone(&self.joining.wanted) }
    }

    /// Returns the means to listen to events for a while.
    pub fn subscribers(&self) -> Subscribers {
        let (queues, wanted) = (Arc::clone(&self.queues), Arc::clone(&self.joining.wanted));
        Subscribers { queues, wanted }
    }

    /// Writes the remaining records, after workers have dropped their feeds. Returns the logs that
    /// could not be written to their end, or have missed events.
    pub fn finish(mut self) -> Vec<SinkMetrics> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(dealer) = self.dealer.take() {
            dealer.thread().unpark();
            // A thread that has panicked has reported that.
            let _ = dealer.join();
        }
        let ends: Vec<_> = lock(&self.sinks).iter_mut().map(Running::end).collect();
        let ended = ends.into_iter().map(|end| end());
        let bad = ended.filter(|(metrics, complete)| !complete || metrics.lost > 0);
        bad.map(|(metrics, _)| metrics).collect()
    }
}

/// Waits until the spools have reached a time.
#[derive(Clone)]
pub struct CatchUp {
    sinks: Sinks,
}

impl CatchUp {
    /// Waits, a few seconds at most, until all spools have all records until a time by the
    /// machine's clock that is not in the future. Ends when `go_on` returns false.
    pub fn wait(&self, at: Timestamp, go_on: &dyn Fn() -> bool) {
        let began = Instant::now();
        loop {
            // Each spool must be asked, because the question makes it write.
            let late = lock(&self.sinks).iter().filter(|one| !one.has_reached(at)).count();
            if late == 0 || !go_on() || began.elapsed() >= CATCH_UP.0 {
                return;
            }
            thread::sleep(CATCH_UP.1);
        }
    }
}

/// Changes the set of logs while events come.
#[derive(Clone)]
pub struct Changer {
    kit: Kit,
    sinks: Sinks,
    queues: Queues,
    wanted: Arc<AtomicBool>,
}

impl Changer {
    /// Opens the new logs of these settings. They are not written, and no other log ends, before
    /// [`Exchange::apply`].
    ///
    /// # Errors
    /// The errors of [`Logs::open`]; then nothing has changed.
    pub fn prepare(&self, settings: &[LogSettings]) -> Result<Exchange, OpenError> {
        let new = self.new_among(settings);
        // There are mappings, whether the log is new or only has other settings.
        let opened = new.into_iter().map(|one| self.kit.open(one, true));
        let opened = opened.collect::<Result<_, _>>()?;
        let settings = settings.to_vec();
        Ok(Exchange { changer: self.clone(), opened, settings, in_force: None })
    }

    /// Checks whether the new logs of these settings could be opened. Opens none, and makes no file
    /// and no folder.
    ///
    /// # Errors
    /// The error of [`Self::prepare`], as far as it is known beforehand.
    pub fn check(&self, settings: &[LogSettings]) -> Result<(), OpenError> {
        self.new_among(settings).into_iter().try_for_each(|one| {
            sinks::check(one).map_err(|error| OpenError { name: sinks::name(one), error })
        })
    }

    /// The settings that no log in force has.
    fn new_among<'s>(&self, settings: &'s [LogSettings]) -> Vec<&'s LogSettings> {
        let mut before: Vec<LogSettings> =
            lock(&self.sinks).iter().map(|one| one.settings.clone()).collect();
        let mut new = Vec::new();
        for one in settings {
            match before.iter().position(|other| other == one) {
                Some(place) => drop(before.swap_remove(place)),
                None => new.push(one),
            }
        }
        new
    }
}

/// Logs that are ready to replace others.
pub struct Exchange {
    changer: Changer,
    opened: Vec<Opened>,
    /// Settings of all logs after the exchange.
    settings: Vec<LogSettings>,
    /// Record of the configuration that comes into force, if the exchange includes one.
    in_force: Option<InForce>,
}

impl Exchange {
    /// Includes a configuration, which comes into force between this call and [`Self::apply`]. The
    /// spools record it.
    #[must_use]
    pub fn putting_in_force(self, settings: &Settings) -> Self {
        let from = self.changer.kit.clock.now();
        // Compression into memory does not fail; without a record, answers say that there is none.
        let packed = OwnersInForce::of_settings(settings).pack().unwrap_or_default();
        Self { in_force: Some(InForce { packed, from, until: from }), ..self }
    }

    /// Starts the new logs with the next event, and ends removed logs with the event before it.
    /// Their waiting records are written if that can be done within moments.
    pub fn apply(self) {
        let Self { changer: Changer { kit, sinks, queues, wanted }, opened, settings, in_force } =
            self;
        in_force.into_iter().for_each(|new| kit.put_in_force(new));
        let (mut gone, mut left) = (Vec::<Running>::new(), settings.clone());
        let before = std::mem::take(&mut *lock(&sinks));
        for one in before {
            match left.iter().position(|other| *other == one.settings) {
                Some(place) => {
                    left.swap_remove(place);
                    lock(&sinks).push(one);
                }
                None => gone.push(one),
            }
        }
        {
            // An event goes to the former logs or to the new ones.
            let mut queues = lock(&queues);
            queues.retain(|queue| !gone.iter().any(|one| Arc::ptr_eq(&one.queue, queue)));
            queues.extend(opened.iter().map(|one| Arc::clone(&one.queue)));
            wanted.store(!queues.is_empty(), Ordering::Relaxed);
            // The remaining logs record the configuration.
            queues.iter().for_each(|queue| queue.wake());
        }
        // A former log at the same destination ends before its successor writes there.
        let ends: Vec<_> = gone.iter_mut().map(Running::end).collect();
        let incomplete = ends.into_iter().map(|end| end()).filter(|(_, complete)| !complete);
        for (SinkMetrics { name, waiting, .. }, _) in incomplete {
            (kit.tell)(format!(
                "warning: log {name} ends by the reload and could not be written to its end: \
                 {waiting} events or gaps are missing"
            ));
        }
        for one in opened {
            let queue = Arc::clone(&one.queue);
            match kit.start(one) {
                Ok(running) => lock(&sinks).push(running),
                Err(OpenError { name, error }) => {
                    lock(&queues).retain(|other| !Arc::ptr_eq(other, &queue));
                    (kit.tell)(format!(
                        "warning: log {name} is not written: no thread can be made: {error}; \
                         restart natgate when there is room"
                    ));
                }
            }
        }
        let place = |one: &Running| settings.iter().position(|other| *other == one.settings);
        lock(&sinks).sort_by_key(place);
    }
}

/// Source of subscriptions to events.
#[derive(Clone)]
pub struct Subscribers {
    queues: Queues,
    wanted: Arc<AtomicBool>,
}

impl Subscribers {
    /// Listens from now on. At most `most` records wait; further ones become a gap.
    pub fn listen(&self, most: usize, what: LogWhat) -> Subscription {
        self.listen_by(Queue::new(most, what))
    }

    /// Listens to every event about a limit, though logs only count some; otherwise like
    /// [`Self::listen`]. Such events come later than their place, with times by the translator's
    /// clock.
    pub fn listen_undamped(&self, most: usize, what: LogWhat) -> Subscription {
        self.listen_by(Queue::undamped(most, what))
    }

    fn listen_by(&self, queue: Queue) -> Subscription {
        let queue = Arc::new(queue);
        let mut queues = lock(&self.queues);
        queues.push(Arc::clone(&queue));
        self.wanted.store(true, Ordering::Relaxed);
        drop(queues);
        Subscription { queue, of: self.clone() }
    }
}

/// A subscription to events.
pub struct Subscription {
    queue: Arc<Queue>,
    of: Subscribers,
}

impl Subscription {
    /// Takes records that have come; waits for them up to `patience`.
    pub fn take(&self, most: usize, patience: Duration, into: &mut Vec<Record>) {
        self.queue.wait(patience);
        self.queue.take(most, into);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut queues = lock(&self.of.queues);
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.of.wanted.store(!queues.is_empty(), Ordering::Relaxed);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compares the machine's clock with the translator's, to notice that it was set.
fn compare(clock: Clock, wall: &WallClock) {
    let ahead = clock.ahead();
    if ahead.saturating_sub(wall.ahead()).saturating_abs() >= AGREES {
        wall.set(clock.now(), ahead);
    }
}

/// Orders and distributes events until the workers have ended.
fn deal(
    outlets: &Receiver<Outlet>,
    (clock, wall): (Clock, &WallClock),
    queues: &Queues,
    stop: &AtomicBool,
) {
    let mut dealing = Dealing {
        merge: Merge::default(),
        damping: Damping::default(),
        timing: Timing::new(wall),
        taken: Vec::with_capacity(DEAL),
        damped: Vec::with_capacity(DEAL),
        counted: Vec::new(),
        records: Vec::with_capacity(DEAL),
    };
    // The feeds stay in the merge, even if a turn panics.
    panics::contain(|| dealing.go_on(outlets, (clock, wall), queues, stop));
}

/// State of the thread that distributes records.
struct Dealing {
    merge: Merge,
    damping: Damping,
    timing: Timing,
    taken: Vec<Record>,
    damped: Vec<Record>,
    counted: Vec<Record>,
    records: Vec<Record>,
}

impl Dealing {
    fn go_on(
        &mut self,
        outlets: &Receiver<Outlet>,
        (clock, wall): (Clock, &WallClock),
        queues: &Queues,
        stop: &AtomicBool,
    ) {
        let Self { merge, damping, timing, taken, damped, counted, records } = self;
        let mut compared = Instant::now();
        taken.clear();
        damped.clear();
        counted.clear();
        records.clear();
        loop {
            outlets.try_iter().for_each(|outlet| merge.add(outlet));
            if compared.elapsed() >= COMPARE {
                compare(clock, wall);
                compared = Instant::now();
            }
            let until = merge.take(DEAL, taken);
            let is_idle = taken.is_empty();
            damping.apply(taken, until, damped, counted);
            let is_end =
                is_idle && damped.is_empty() && merge.is_done() && stop.load(Ordering::Relaxed);
            if is_end {
                damping.end(damped);
            }
            let until = timing.apply(wall, damped, until, records);
            // The list is short, and no thread holds its lock for long.
            for queue in &*lock(queues) {
                queue.offer(records);
                if queue.is_undamped() {
                    queue.offer(counted);
                }
                if let Some(until) = until {
                    queue.passed(until);
                }
            }
            counted.clear();
            if is_end {
                return;
            }
            if is_idle && records.is_empty() {
                merge.tidy();
                thread::park_timeout(LOOK);
            }
            records.clear();
        }
    }
}

/// Runs one sink until its queue is closed; returns true if all records were written.
fn write(mut drive: Drive, queue: &Queue, clock: Clock) -> bool {
    loop {
        let goes_on = match drive.turn(clock.now()) {
            Pause::UnlessSomethingComes(most) => queue.wait(most),
            Pause::Whatever(most) => queue.pause(most),
        };
        if !goes_on {
            return drive.finish(clock.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_noticed() {
        let wall = WallClock::new(3_600_000_000_000);
        compare(Clock::default(), &wall);
        assert!(wall.ahead().abs() < 60_000_000_000);
    }
}
