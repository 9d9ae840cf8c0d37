//! The workers' threads: made, bound to processors, joined.

use super::Signals;
use super::log::Log;
use super::say;
use anyhow::{Context, anyhow};
use natgate_engine::Timestamp;
use natgate_gateway::{Clock, Settings, Worker, WorkerSettings, team};
use natgate_io::Device;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::thread::{self, Scope, ScopedJoinHandle};

/// On which processor each worker is to run; `None`: on any.
pub(super) fn cores(settings: &WorkerSettings) -> Result<Vec<Option<usize>>, String> {
    let WorkerSettings { count, cores } = settings;
    // Where that cannot be asked, binding will tell.
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
    // One worker alone leaves it to the kernel, who knows what else runs here.
    let bound = *count > 1 && chosen.len() == *count;
    Ok((0..*count).map(|worker| bound.then(|| chosen[worker])).collect())
}

/// The workers, each with its devices.
pub(super) fn workers(
    settings: &Settings,
    devices: Vec<Vec<Box<dyn Device>>>,
    signals: &Signals,
    now: Timestamp,
) -> anyhow::Result<Vec<Worker>> {
    let seed = || {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).context("the system gives no random numbers").map(|()| seed)
    };
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

/// Runs all workers until they are told to stop, and gives them back with their logs.
pub(super) fn run(
    workers: Vec<Worker>,
    logs: Vec<Log>,
    clock: &Clock,
    signals: &Signals,
    cores: &[Option<usize>],
) -> (Vec<Worker>, Vec<Log>, anyhow::Result<()>) {
    let mut ended = (Vec::new(), Vec::new(), Ok(()));
    thread::scope(|scope| {
        let all = workers.into_iter().zip(logs).zip(cores).enumerate();
        let threads: Vec<_> = all
            .map(|(number, ((worker, log), core))| {
                let one = One { number, worker, log, core: *core };
                one.start(scope, clock, signals)
            })
            .collect();
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

/// A worker and what it needs.
struct One {
    number: usize,
    worker: Worker,
    log: Log,
    core: Option<usize>,
}

/// Stops all when one ends, however it does.
struct StopsAll<'a>(&'a Signals);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

type Thread<'s> = ScopedJoinHandle<'s, (One, anyhow::Result<()>)>;

impl One {
    fn start<'s>(
        mut self,
        scope: &'s Scope<'s, '_>,
        clock: &'s Clock,
        signals: &'s Signals,
    ) -> anyhow::Result<Thread<'s>> {
        let run = move || {
            let _stops_all = StopsAll(signals);
            let result = self.run(clock, signals);
            (self, result)
        };
        let thread = thread::Builder::new().name("worker".to_owned()).spawn_scoped(scope, run);
        if thread.is_err() {
            signals.stop();
        }
        thread.context("a worker's thread cannot be made")
    }

    fn run(&mut self, clock: &Clock, signals: &Signals) -> anyhow::Result<()> {
        if let Some(core) = self.core {
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(None, &set)
                .with_context(|| format!("a worker cannot be bound to processor {core}"))?;
        }
        let controls = signals.controls(self.number);
        natgate_gateway::run(&mut self.worker, clock, &controls, &mut self.log)
            .context("waiting for packets failed")
    }
}
