//! What the gateway tells, written down: events to a file, in order of time whichever worker they are
//! of; the state, put together from all workers'; the rest to standard error.
//!
//! Each worker has a [`Log`] and collects its events there; from time to time it hands them to what all
//! share. An event is written when every worker has told all that it had until then: those that sleep
//! say so about once a second.

use super::status::Told;
use super::{name, say};
use crate::Failure;
use anyhow::Context;
use natgate_control::json;
use natgate_control::routes::{Announcer, external_prefixes};
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::{Clock, Observer, Settings, Status, Worker};
use natgate_io::{Change, LinkInfo};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events that a worker collects before it hands them over.
const MOST_COLLECTED: usize = 256;

/// Events that wait for other workers; beyond, they are written in the order in which they came.
const MOST_WAITING: usize = 1 << 20;

/// An event's time and its line.
type Line = (Timestamp, Vec<u8>);

/// One worker's log.
pub(super) struct Log {
    number: usize,
    shared: Arc<Mutex<Shared>>,
    /// Announces the external addresses, if that is to be done and this is who does.
    pub(super) announcer: Option<Announcer>,
    /// The devices of inside and outside.
    sides: [String; 2],
    /// Names that events mention.
    names: json::Names,
    /// Whether there is a file for events.
    has_file: bool,
    collected: Vec<Line>,
    /// Until when all events are among those.
    until: Timestamp,
    /// Whether ports in use could be written the last time.
    ports_written: bool,
}

/// What all workers' logs share.
struct Shared {
    events: Option<BufWriter<File>>,
    /// Of each worker, events that others are waited for, and until when there are all.
    waiting: Vec<(VecDeque<Line>, Timestamp)>,
    status_file: Option<PathBuf>,
    /// What each worker has told of its state, since all were asked.
    told: Vec<Option<Told>>,
    /// What went wrong with the events first; nothing more is written then.
    failure: Option<io::Error>,
}

/// The logs of as many workers as the settings have.
pub(super) fn open(
    events: Option<&Path>,
    status_file: Option<&Path>,
    settings: &Settings,
) -> Result<Vec<Log>, Failure> {
    let append = |path: &Path| {
        let file = File::options().create(true).append(true).open(path);
        file.map(BufWriter::new).with_context(|| format!("{} cannot be opened", path.display()))
    };
    let workers = settings.workers.count;
    let shared = Arc::new(Mutex::new(Shared {
        events: events.map(append).transpose()?,
        waiting: (0..workers).map(|_| (VecDeque::new(), Timestamp(0))).collect(),
        status_file: status_file.map(Path::to_owned),
        told: (0..workers).map(|_| None).collect(),
        failure: None,
    }));
    let log = |number| Log::new(number, &shared, events.is_some(), settings);
    Ok((0..workers).map(log).collect())
}

/// Makes logs for workers that join.
pub(super) struct Joining {
    shared: Arc<Mutex<Shared>>,
    has_file: bool,
}

impl Joining {
    /// The log of one more.
    pub(super) fn log(&self, settings: &Settings) -> Log {
        let mut shared = lock(&self.shared);
        let number = shared.waiting.len();
        shared.waiting.push((VecDeque::new(), Timestamp(0)));
        shared.told.push(None);
        Log::new(number, &self.shared, self.has_file, settings)
    }
}

/// Writes what is left.
pub(super) fn finish(logs: Vec<Log>) -> Result<(), Failure> {
    let Some(shared) = logs.first().map(|log| Arc::clone(&log.shared)) else { return Ok(()) };
    for mut log in logs {
        log.until = Timestamp(u64::MAX);
        log.hand_over();
    }
    let mut shared = lock(&shared);
    shared.flush();
    match shared.failure.take() {
        Some(error) => Err(anyhow::Error::from(error).context("events are missing").into()),
        None => Ok(()),
    }
}

/// What workers that have stopped have done, in a sentence.
pub(super) fn summary_of(workers: &mut [Worker], clock: &Clock) -> String {
    let names = json::Names::default();
    let told = workers.iter_mut().map(|worker| Told::of(&worker.status(clock.now()), &names));
    let all = told.reduce(|mut all, one| {
        all.add(one);
        all
    });
    all.map_or_else(String::new, |all| all.summary())
}

/// Nobody leaves it half done.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Writes the events of which no earlier can come any more.
    fn write(&mut self) {
        loop {
            let all = self.waiting.iter().map(|(lines, _)| lines.len()).sum::<usize>();
            let missing = self.waiting.iter().filter(|(lines, _)| lines.is_empty());
            let limit = missing.map(|(_, until)| *until).min().unwrap_or(Timestamp(u64::MAX));
            let heads = self.waiting.iter().enumerate();
            let heads = heads.filter_map(|(worker, (lines, _))| Some((lines.front()?.0, worker)));
            let Some((time, worker)) = heads.min() else { return };
            if time > limit && all <= MOST_WAITING {
                return;
            }
            let line = self.waiting[worker].0.pop_front();
            if let Some((file, (_, line))) = self.events.as_mut().zip(line) {
                let written = file.write_all(&line);
                self.check(written);
            }
        }
    }

    fn flush(&mut self) {
        if let Some(file) = &mut self.events {
            let flushed = file.flush();
            self.check(flushed);
        }
    }

    /// Notes that events cannot be written any more: translation goes on without them.
    fn check(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            say(format!("warning: events cannot be written any more: {error}"));
            self.events = None;
            self.failure = Some(error);
        }
    }

    /// Tells the state, if all workers have told theirs.
    fn tell(&mut self) {
        if self.told.iter().any(Option::is_none) {
            return;
        }
        let told = self.told.iter_mut().filter_map(Option::take);
        let all = told.reduce(|mut all, one| {
            all.add(one);
            all
        });
        let Some(all) = all else { return };
        let Some(path) = &self.status_file else {
            return say(format!("{}; --status-file names a file for more", all.summary()));
        };
        if let Err(error) = replace(path, all.object()) {
            say(format!("warning: {} cannot be written: {error}", path.display()));
        }
    }
}

impl Log {
    fn new(
        number: usize,
        shared: &Arc<Mutex<Shared>>,
        has_file: bool,
        settings: &Settings,
    ) -> Self {
        Self {
            number,
            shared: Arc::clone(shared),
            announcer: None,
            sides: [&settings.inside, &settings.outside].map(|side| side.device.clone()),
            names: json::Names::of(&settings.engine),
            has_file,
            collected: Vec::with_capacity(MOST_COLLECTED),
            until: Timestamp(0),
            ports_written: true,
        }
    }

    /// What makes logs for others who join.
    pub(super) fn joining(&self) -> Joining {
        Joining { shared: Arc::clone(&self.shared), has_file: self.has_file }
    }

    /// Hands over what was collected.
    fn hand_over(&mut self) {
        let mut shared = lock(&self.shared);
        let (lines, until) = &mut shared.waiting[self.number];
        lines.extend(self.collected.drain(..));
        *until = self.until;
        shared.write();
    }
}

impl Observer for Log {
    fn event(&mut self, event: &Event) {
        if !self.has_file {
            return;
        }
        let line = serde_json::to_vec(&json::event(event, &self.names)).map(|mut line| {
            line.push(b'\n');
            line
        });
        match line {
            Ok(line) => self.collected.push((event.time, line)),
            Err(error) => lock(&self.shared).check(Err(error.into())),
        }
        if self.collected.len() >= MOST_COLLECTED {
            self.hand_over();
        }
    }

    fn link(&mut self, side: Side, link: &LinkInfo, change: &Change) {
        let what = match change {
            Change::Up => "is up".to_owned(),
            Change::Down => "is down".to_owned(),
            Change::Gone => "is gone; waiting for it to come back".to_owned(),
            Change::Back(Ok(())) => "is back".to_owned(),
            Change::Back(Err(error)) => format!("is back, but cannot be used: {error}"),
            Change::Altered => format!("has address {} and MTU {} now", link.mac, link.mtu),
        };
        // All workers see it.
        if self.number == 0 {
            say(format!("{} device {} {what}", name(side), link.name));
        }
        if let Some(announcer) = self.announcer.as_ref().filter(|_| self.sides.contains(&link.name))
        {
            announcer.link(side, link.up);
        }
    }

    fn reconfigured(&mut self, settings: Settings) {
        self.names = json::Names::of(&settings.engine);
        if let Some(announcer) = &self.announcer {
            announcer.announce(external_prefixes(&settings.engine));
        }
    }

    fn status(&mut self, status: &Status<'_>) {
        self.passed(status.now);
        self.idle();
        let told = Told::of(status, &self.names);
        let mut shared = lock(&self.shared);
        shared.told[self.number] = Some(told);
        shared.tell();
    }

    fn ports_written(&mut self, result: &io::Result<()>) {
        // Said once, not every few seconds.
        if result.is_ok() != self.ports_written {
            say(match result {
                Ok(()) => "ports in use are written to state.file again".to_owned(),
                Err(error) => format!(
                    "warning: ports in use cannot be written to state.file: {error}; after a \
                     restart they may be given out at once"
                ),
            });
        }
        self.ports_written = result.is_ok();
    }

    fn passed(&mut self, now: Timestamp) {
        self.until = now;
        if self.has_file {
            self.hand_over();
        }
    }

    fn idle(&mut self) {
        if self.has_file {
            lock(&self.shared).flush();
        }
    }
}

/// Writes a file anew, in one step for who reads it.
fn replace(path: &Path, value: &Value) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = BufWriter::new(File::create(&beside)?);
    serde_json::to_writer(&mut file, value)?;
    file.write_all(b"\n")?;
    file.into_inner()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(workers: usize) -> Shared {
        Shared {
            events: None,
            waiting: (0..workers).map(|_| (VecDeque::new(), Timestamp(0))).collect(),
            status_file: None,
            told: Vec::new(),
            failure: None,
        }
    }

    fn waiting(shared: &Shared) -> Vec<Vec<u64>> {
        let of = |(lines, _): &(VecDeque<Line>, Timestamp)| {
            lines.iter().map(|(time, _)| time.0).collect()
        };
        shared.waiting.iter().map(of).collect()
    }

    #[test]
    fn an_event_waits_until_no_earlier_one_can_come() {
        let mut shared = shared(2);
        let line = |time| (Timestamp(time), Vec::new());
        shared.waiting[0].0.extend([line(3), line(5), line(9)]);
        shared.waiting[0].1 = Timestamp(10);
        shared.write();
        assert_eq!(waiting(&shared), [vec![3, 5, 9], vec![]]);
        shared.waiting[1].1 = Timestamp(4);
        shared.write();
        assert_eq!(waiting(&shared), [vec![5, 9], vec![]]);
        shared.waiting[1].0.extend([line(7), line(12)]);
        shared.waiting[1].1 = Timestamp(12);
        shared.write();
        assert_eq!(waiting(&shared), [vec![], vec![12]]);
        shared.waiting[0].1 = Timestamp(12);
        shared.write();
        assert_eq!(waiting(&shared), [vec![], vec![]] as [Vec<u64>; 2]);
    }
}
