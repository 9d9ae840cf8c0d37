//! Threads of the workers: start, binding to processors, and join.

use super::log::{Joining, Log};
use super::{Signals, WorkerSignals, devices, say};
use anyhow::{Context, anyhow};
use natgate_control::interface::Loads;
use natgate_engine::Timestamp;
use natgate_gateway::{
    Clock, Commander, SavedPorts, Settings, Worker, WorkerSettings, panics, team,
};
use natgate_io::Device;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

/// The processor of each worker. `None`: any processor.
pub(super) fn cores(settings: &WorkerSettings) -> Result<Vec<Option<usize>>, String> {
    let WorkerSettings { count, cores } = settings;
    // If the permitted processors are unknown, binding reports a failure later.
    let permitted = sched_getaffinity(None).ok();
    let is_permitted = |core: usize| permitted.as_ref().is_none_or(|set| set.is_set(core));
    if let Some(core) = cores.iter().find(|&&core| core >= CpuSet::MAX_CPU || !is_permitted(core)) {
        let all = (0..CpuSet::MAX_CPU).filter(|&core| is_permitted(core));
        let all: Vec<String> = all.take(16).map(|core| core.to_string()).collect();
        return Err(format!(
            "workers.cores names processor {core}, which this process may not use; it may use {}",
            all.join(", ")
        ));
    }
    if !cores.is_empty() {
        return Ok(cores.iter().copied().map(Some).collect());
    }
    let mut all = (0..CpuSet::MAX_CPU).filter(|&core| permitted.is_some() && is_permitted(core));
    let chosen: Vec<usize> = all.by_ref().take(*count).collect();
    if *count > 1 && chosen.len() < *count {
        say(format!(
            "note: {count} workers share {} processors; one each is what workers are for",
            chosen.len()
        ));
    }
    // A single worker is left to the kernel, which knows the other load of the machine.
    let bound = *count > 1 && chosen.len() == *count;
    Ok((0..*count).map(|worker| bound.then(|| chosen[worker])).collect())
}

/// Makes the workers, each with its devices.
pub(super) fn workers(
    settings: &Settings,
    devices: Vec<Vec<Box<dyn Device>>>,
    signals: &Signals,
    now: Timestamp,
) -> anyhow::Result<Vec<Worker>> {
    if settings.workers.count == 1 {
        let devices = devices.into_iter().next().context("a worker has devices")?;
        return Ok(vec![Worker::new(settings, seed()?, devices, now)?]);
    }
    let members = team(settings, signals.wakers()?);
    let worker = |(member, devices)| -> anyhow::Result<Worker> {
        Ok(Worker::of_team(settings, seed()?, devices, member, now)?)
    };
    members.into_iter().zip(devices).map(worker).collect()
}

/// A worker and what its thread needs.
pub(super) struct One {
    pub(super) worker: Worker,
    pub(super) log: Log,
    pub(super) own_signals: Arc<WorkerSignals>,
    /// The processor to run on.
    pub(super) core: Option<usize>,
}

/// Messages to the thread that waits for all workers.
enum Message {
    /// Starts another worker.
    Start(Box<One>),
    /// A worker's thread has ended, in any way.
    Ended,
}

/// Starts further workers.
#[derive(Clone)]
pub(super) struct Starter(Sender<Message>);

impl Starter {
    /// Starts a worker.
    ///
    /// # Errors
    /// If the gateway is stopping.
    pub(super) fn start(&self, one: One) -> anyhow::Result<()> {
        let gone = |_| anyhow!("the gateway is stopping");
        self.0.send(Message::Start(Box::new(one))).map_err(gone)
    }
}

/// Receives the messages that start workers, and has the sender of such messages.
pub(super) struct Threads {
    messages: Receiver<Message>,
    starter: Starter,
}

impl Threads {
    pub(super) fn new() -> Self {
        let (sender, messages) = channel();
        Self { messages, starter: Starter(sender) }
    }

    /// Returns a handle that starts further workers.
    pub(super) fn starter(&self) -> Starter {
        self.starter.clone()
    }

    /// Runs all workers until they are told to stop, and returns them with their logs.
    pub(super) fn run(
        self,
        clock: &Clock,
        signals: &Signals,
    ) -> (Vec<Worker>, Vec<Log>, anyhow::Result<()>) {
        let Self { messages, starter } = self;
        let mut ended = (Vec::new(), Vec::new(), Ok(()));
        thread::scope(|scope| {
            let (mut threads, mut running) = (Vec::new(), 0);
            while let Ok(message) = messages.recv() {
                match message {
                    Message::Start(one) => {
                        let ends = Ends { signals, starter: starter.clone() };
                        running += 1;
                        threads.push(one.start(scope, clock, signals, ends));
                    }
                    Message::Ended => running -= 1,
                }
                if running == 0 {
                    break;
                }
            }
            for thread in threads {
                let result = match thread.map(ScopedJoinHandle::join) {
                    Ok(Ok((One { worker, log, .. }, result))) => {
                        ended.0.push(worker);
                        ended.1.push(log);
                        result
                    }
                    Ok(Err(_)) => Err(anyhow!("a worker's thread has panicked")),
                    Err(error) => Err(error),
                };
                if ended.2.is_ok() {
                    ended.2 = result;
                }
            }
        });
        ended
    }
}

/// Stops all workers when one ends, and reports the end.
struct Ends<'a> {
    signals: &'a Signals,
    starter: Starter,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.signals.stop();
        // The receiver exists until all workers have ended.
        let _ = self.starter.0.send(Message::Ended);
    }
}

type Thread<'s> = ScopedJoinHandle<'s, (One, anyhow::Result<()>)>;

impl One {
    fn start<'s>(
        mut self,
        scope: &'s Scope<'s, '_>,
        clock: &'s Clock,
        signals: &'s Signals,
        ends: Ends<'s>,
    ) -> anyhow::Result<Thread<'s>> {
        let run = move || {
            panics::enter_data_plane();
            let _ends = ends;
            let result = self.run(clock, signals);
            (self, result)
        };
        let thread = thread::Builder::new().name("worker".to_owned()).spawn_scoped(scope, run);
        thread.context("a worker's thread cannot be made")
    }

    fn run(&mut self, clock: &Clock, signals: &Signals) -> anyhow::Result<()> {
        if let Some(core) = self.core {
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(None, &set)
                .with_context(|| format!("a worker cannot be bound to processor {core}"))?;
        }
        let controls = self.own_signals.controls(signals);
        natgate_gateway::run(&mut self.worker, clock, &controls, &mut self.log)
            .context("waiting for packets failed")
    }
}

/// The parts that a joining worker needs.
pub(super) struct Crew {
    pub(super) starter: Starter,
    pub(super) signals: Arc<Signals>,
    pub(super) clock: Clock,
    pub(super) logs: Joining,
    pub(super) loads: Loads,
}

impl Crew {
    /// Adds a worker to a gateway that is to have these settings.
    pub(super) fn join(&self, commander: &Commander, settings: &Settings) -> anyhow::Result<()> {
        let number = settings.workers.count - 1;
        let cores = cores(&settings.workers).map_err(anyhow::Error::msg)?;
        let devices = devices::open_sending(settings)?;
        let saved = SavedPorts::of_newcomer(settings, number)?;
        let (first, own_signals) = (self.signals.waker_of(0)?, self.signals.listen()?);
        let wakers = [first, own_signals.waker()?, own_signals.waker()?];
        let now = self.clock.now();
        commander.join(settings, wakers, |member, commands| {
            let mut worker = Worker::of_team(settings, seed()?, devices, member, now)?;
            if let Some(saved) = saved {
                worker.remember(saved, now)?;
            }
            worker.obey(commands);
            let loads = &mut *self.loads.lock().unwrap_or_else(PoisonError::into_inner);
            loads.push(worker.load());
            let log = self.logs.log(settings);
            self.starter.start(One { worker, log, own_signals, core: cores[number] })
        })
    }
}

fn seed() -> anyhow::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the system gives no random numbers")?;
    Ok(seed)
}
