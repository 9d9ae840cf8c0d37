//! The workers. The first worker has the cards and does the housekeeping. Each of the others has a
//! processor of its own and only processes packets.
//!
//! A worker writes events to the logs while it works. So the order of locks is always first the
//! worker, then the logs.

use crate::attendant::SPIN;
use crate::machine::processors::Bell;
use crate::machine::{clock, watchdog};
use natgate_bare::log::Logs;
use natgate_bare::sharing::Sharing;
use natgate_bare::text;
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{Member, Observer, Settings, Status, Wake, Worker, WorkerError, team};
use natgate_io::{Change, Device, LinkInfo};
use natgate_logs::{Gap, Record};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Logs with the events of all workers.
pub(crate) type SharedLogs = Arc<Mutex<Logs>>;

/// All workers.
pub(crate) struct Crew {
    pub(crate) first: Worker,
    others: Vec<Arc<Other>>,
}

/// A worker on a processor of its own.
pub(crate) struct Other {
    worker: Mutex<Worker>,
    /// Number of requests to use the worker for a moment.
    wanted: AtomicU32,
    /// True if packets for the status page wait at this worker.
    has_visitor: AtomicBool,
    sleeps: AtomicU64,
}

impl Crew {
    /// Creates the workers of the settings, for which the processors have been started. The first
    /// worker has the cards, and the others have their shared parts. `seed` returns the seed of a
    /// worker by its number.
    ///
    /// # Errors
    /// If a worker cannot be created.
    pub(crate) fn new(
        settings: &Settings,
        seed: impl Fn(u8) -> [u8; 32],
        devices: Vec<Box<dyn Device>>,
        sharing: &[Sharing],
        now: Timestamp,
    ) -> Result<Self, WorkerError> {
        let count = settings.workers.count;
        if count == 1 {
            let first = Worker::new(settings, seed(0), devices, now)?;
            return Ok(Self { first, others: Vec::new() });
        }
        let bell = |number| Bell::of(number).map(|bell| Box::new(bell) as Box<dyn Wake>);
        let mut members = team(settings, (0..count).filter_map(bell).collect()).into_iter();
        let first = members.next().expect("a team has a first member");
        let first = Worker::of_team(settings, seed(0), devices, first, now)?;
        let other = |member: Member| -> Result<_, WorkerError> {
            let devices: Vec<_> = sharing.iter().map(Sharing::device).collect();
            let seed = seed(member.number() as u8);
            let worker = Mutex::new(Worker::of_team(settings, seed, devices, member, now)?);
            Ok(Arc::new(Other {
                worker,
                wanted: AtomicU32::new(0),
                has_visitor: AtomicBool::new(false),
                sleeps: AtomicU64::new(0),
            }))
        };
        let others = members.map(other).collect::<Result<_, _>>()?;
        Ok(Self { first, others })
    }

    /// Starts the other workers, each on its processor.
    ///
    /// # Panics
    /// If no processor is free for one of them. The earlier workers then already run.
    pub(crate) fn begin(&self, logs: &SharedLogs) {
        for other in &self.others {
            let (other, logs) = (Arc::clone(other), Arc::clone(logs));
            let thread = std::thread::Builder::new().name("worker".to_owned());
            let thread =
                thread.spawn(move || other.work(&mut LogObserver { logs: &logs, is_first: false }));
            assert!(thread.is_ok(), "a worker has no processor: {thread:?}");
        }
    }

    /// Number of workers.
    pub(crate) fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// Calls `action` with one worker.
    pub(crate) fn with<R>(&mut self, number: usize, action: impl FnOnce(&mut Worker) -> R) -> R {
        match number.checked_sub(1) {
            None => action(&mut self.first),
            Some(place) => action(&mut self.others[place].take()),
        }
    }

    /// Calls `action` with each worker in turn.
    pub(crate) fn each<R>(&mut self, mut action: impl FnMut(&mut Worker) -> R) -> Vec<R> {
        (0..self.count()).map(|number| self.with(number, &mut action)).collect()
    }

    /// Next packet of a worker for the status page.
    pub(crate) fn visitor(&mut self) -> Option<Vec<u8>> {
        let next = |other: &Arc<Other>| {
            // The flag is set after the packet is there.
            let packet = other.has_visitor.load(Ordering::Acquire).then(|| {
                let mut worker = other.take();
                let packet = worker.visitor();
                other.has_visitor.store(packet.is_some(), Ordering::Relaxed);
                packet
            });
            packet.flatten()
        };
        self.first.visitor().or_else(|| self.others.iter().find_map(next))
    }

    /// The last worker, if there is more than one.
    pub(crate) fn last(&self) -> Option<&Other> {
        self.others.last().map(|other| &**other)
    }

    /// Number of sleeps of the other workers.
    pub(crate) fn sleeps(&self) -> u64 {
        self.others.iter().map(|other| other.sleeps.load(Ordering::Relaxed)).sum()
    }
}

impl Other {
    /// Stops the worker for good.
    pub(crate) fn hold(&self) {
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks the worker, which pauses meanwhile.
    fn take(&self) -> MutexGuard<'_, Worker> {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let worker = lock(&self.worker);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        worker
    }

    /// Runs the worker until the machine restarts.
    fn work(&self, observer: &mut dyn Observer) -> ! {
        let mut last_work = clock::timestamp();
        loop {
            watchdog::feed();
            while self.wanted.load(Ordering::Relaxed) > 0 {
                std::hint::spin_loop();
            }
            let mut worker = lock(&self.worker);
            let now = clock::timestamp();
            let frames = worker.turn(now, observer);
            let ended = clock::timestamp();
            worker.note_turn(now, ended, frames);
            if worker.has_visitor() {
                self.has_visitor.store(true, Ordering::Release);
            }
            if frames > 0 {
                last_work = now;
                continue;
            }
            if now.since(last_work) < SPIN || !watchdog::is_ticking() {
                std::hint::spin_loop();
                continue;
            }
            watchdog::hold_interrupts();
            let may_sleep = worker.next_deadline() > ended && worker.falls_asleep();
            drop(worker);
            if may_sleep {
                self.sleeps.fetch_add(1, Ordering::Relaxed);
                watchdog::sleep();
            } else {
                watchdog::allow_interrupts();
            }
            wake_up(&mut lock(&self.worker), may_sleep.then_some(ended));
        }
    }
}

/// Records events in the logs. The observer of the first worker also prints changes of links.
pub(crate) struct LogObserver<'a> {
    pub(crate) logs: &'a Mutex<Logs>,
    pub(crate) is_first: bool,
}

impl LogObserver<'_> {
    fn tell(&self, record: Record, host: Option<&HostName>) {
        lock(self.logs).take(record, host);
    }
}

impl Observer for LogObserver<'_> {
    fn event(&mut self, event: &Event) {
        self.tell(Record::Event(*event), None);
    }

    fn event_of(&mut self, event: &Event, host: Option<&HostName>) {
        self.tell(Record::Event(*event), host);
    }

    fn events_lost(&mut self, lost: u64, from: Timestamp, to: Timestamp) {
        self.tell(Record::Gap(Gap { lost, from, to }), None);
    }

    fn link(&mut self, side: Side, link: &LinkInfo, _: &Change) {
        if self.is_first {
            println!("{side:?}: {}", text::link(link));
        }
    }

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}

/// Announces to a worker the end of a sleep, with the begin of the sleep if there was one.
pub(crate) fn wake_up(worker: &mut Worker, slept: Option<Timestamp>) {
    worker.wakes_up();
    if let Some(begin) = slept {
        worker.note_sleep(begin, clock::timestamp());
    }
}

/// Locks a mutex. A panic restarts the machine, so a poisoned mutex is still valid.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
