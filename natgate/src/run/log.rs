//! Output of the gateway: events to the logs; the state of all workers, in one object, to a file;
//! everything else to standard error.
//!
//! Each worker has a [`Log`], which puts events into a bounded ring. `natgate-logs` orders, formats
//! and writes them in its own threads.

use super::links::DownLinks;
use super::neighbors::NeighborLines;
use super::servers;
use super::status::{Summary, WorkerStatus};
use super::{name, say};
use crate::Failure;
use anyhow::anyhow;
use natgate_control::config::Places;
use natgate_control::json;
use natgate_control::reload::{Logging, Purpose};
use natgate_control::routes::{Announcer, RoutePlan};
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::fleet::{Node, SliceChange};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::router::NeighborReport;
use natgate_gateway::{
    AlgExpectation, Clock, LogSettings, LogTo, Observer, ServerChange, Settings, Status, Worker,
    create_anew,
};
use natgate_io::{Change, Device, LinkInfo};
use natgate_logs::{Feed, Gap, InForce, Logs, OpenError};
use natgate_service::{explain, explain_folder};
use serde_json::Value;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One worker's log.
pub(super) struct Log {
    number: usize,
    shared: Arc<Mutex<Shared>>,
    /// Announces the external addresses, if the settings say so and this worker is the one to do
    /// it.
    pub(super) announcer: Option<Announcer>,
    /// Routes that it announces.
    routes: RoutePlan,
    /// Devices of inside and outside.
    sides: [String; 2],
    /// Names that events mention.
    names: json::Names,
    /// Destination of events.
    feed: Feed,
    /// File of the ports in use, and whether the last write succeeded.
    state: PathBuf,
    ports_written: bool,
    neighbors: NeighborLines,
    /// Links that are down; used by the worker that reports links.
    down: DownLinks,
    /// Time of the last maintenance.
    now: Timestamp,
}

/// State shared by all workers' logs.
struct Shared {
    status_file: Option<PathBuf>,
    /// The state of each worker, as far as it has answered since all were asked.
    told: Vec<Option<WorkerStatus>>,
    /// Announces the present names of pools, classes and realms.
    rename: Box<dyn Fn(json::Names) + Send>,
}

/// Opens the event logs of the settings and the file of the command line, and makes a log for each
/// worker. `continued`: mappings of another process continue here.
pub(super) fn open(
    events: Option<&Path>,
    status_file: Option<&Path>,
    settings: &Settings,
    clock: Clock,
    continued: bool,
) -> Result<(Logs, Vec<Log>), Failure> {
    let in_force = vec![InForce::since(&settings.engine, clock.now())];
    let names = json::Names { in_force, ..names(settings) };
    let logs =
        Logs::open(&all(events, &settings.logs), names, clock, continued, &(Arc::new(say) as _));
    let logs = logs.map_err(|error| anyhow!(sentence(&error, events)))?;
    let workers = settings.workers.count;
    let shared = Arc::new(Mutex::new(Shared {
        status_file: status_file.map(Path::to_owned),
        told: (0..workers).map(|_| None).collect(),
        rename: Box::new(logs.rename()),
    }));
    let feeds = logs.joining();
    let log = |number| Log::new(number, &shared, feeds.feed(), settings);
    let of_workers = (0..workers).map(log).collect();
    Ok((logs, of_workers))
}

/// All event logs. The command line's comes first.
fn all(events: Option<&Path>, settings: &[LogSettings]) -> Vec<LogSettings> {
    let file = events.map(|path| LogSettings::file(path.to_owned()));
    file.into_iter().chain(settings.iter().cloned()).collect()
}

/// Explains why a log cannot be opened.
fn sentence(OpenError { name, error }: &OpenError, events: Option<&Path>) -> String {
    let place = name.split_once(' ').map(|(_, place)| Path::new(place));
    let path = place.filter(|place| place.is_absolute());
    let why = path.map_or_else(
        || error.to_string(),
        |path| match name.starts_with("spool ") {
            true => explain_folder(path, error),
            false => explain(path, error),
        },
    );
    match path.filter(|path| events == Some(path)) {
        Some(path) => format!("--events: {} cannot be opened: {why}", path.display()),
        None => format!("log {name} cannot be opened: {why}"),
    }
}

/// Returns a function that exchanges the event logs at a reload. The command line's log stays.
/// `own`: the files that the command line names.
pub(super) fn exchange(logs: &Logs, events: Option<&Path>, own: Places) -> Logging {
    let (changer, events) = (logs.changer(), events.map(Path::to_owned));
    Box::new(move |settings, purpose| {
        let events = events.as_deref();
        for log in &settings.logs {
            match &log.to {
                LogTo::File(path) => own.accepts(path)?,
                LogTo::Spool(spool) => own.accepts(&spool.folder)?,
                LogTo::Syslog(_) | LogTo::Ipfix(_) => {}
            }
        }
        if purpose == Purpose::DryRun {
            let checked = changer.check(&all(events, &settings.logs));
            checked.map_err(|error| sentence(&error, events))?;
            return Ok(Box::new(|| {}));
        }
        let exchange = changer.prepare(&all(events, &settings.logs));
        let exchange = exchange.map_err(|error| sentence(&error, events))?;
        let exchange = exchange.putting_in_force(settings);
        Ok(Box::new(move || exchange.apply()))
    })
}

/// Makes logs for workers that join.
pub(super) struct Joining {
    shared: Arc<Mutex<Shared>>,
    feeds: natgate_logs::Joining,
}

impl Joining {
    /// Makes logs that share the state of `beside`.
    pub(super) fn of(logs: &Logs, beside: &Log) -> Self {
        Self { shared: Arc::clone(&beside.shared), feeds: logs.joining() }
    }

    /// Makes the log of one more worker.
    pub(super) fn log(&self, settings: &Settings) -> Log {
        let mut shared = lock(&self.shared);
        let number = shared.told.len();
        shared.told.push(None);
        Log::new(number, &self.shared, self.feeds.feed(), settings)
    }
}

/// Writes the remaining events. `events`: the file that the command line names.
pub(super) fn finish(logs: Logs, workers: Vec<Log>, events: Option<&Path>) -> Result<(), Failure> {
    // Dropping the workers' logs hands over the last events.
    drop(workers);
    let asked = events.map(|path| format!("file {}", path.display()));
    let mut missing = Ok(());
    for log in logs.finish() {
        let sentence = match log.lost {
            0 => format!("log {} could not be written to its end", log.name),
            lost => format!("log {}: {lost} events are missing in {} gaps", log.name, log.gaps),
        };
        if asked.as_ref() == Some(&log.name) {
            missing = Err(anyhow!(sentence).context("events are missing").into());
        } else {
            say(format!("warning: {sentence}"));
        }
    }
    missing
}

/// One sentence about the work of workers that have stopped.
pub(super) fn summary_of(workers: &mut [Worker], clock: &Clock) -> String {
    let told = workers.iter_mut().map(|worker| {
        let status = worker.status(clock.now());
        Summary::of(&status.counters, &status.sides)
    });
    let all = told.reduce(|mut all, one| {
        all.add(&one);
        all
    });
    all.map_or_else(String::new, |all| all.to_string())
}

/// The shared state is valid after a panic too, because no change is left half done.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Writes the state if all workers have told theirs.
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
        let (Some(path), Some(object)) = (&self.status_file, all.object()) else {
            return say(format!("{}; --status-file names a file for more", all.summary()));
        };
        if let Err(error) = replace(path, object) {
            let why = explain(path, &error);
            say(format!("warning: {} cannot be written: {why}", path.display()));
        }
    }
}

impl Log {
    fn new(number: usize, shared: &Arc<Mutex<Shared>>, feed: Feed, settings: &Settings) -> Self {
        Self {
            number,
            shared: Arc::clone(shared),
            announcer: None,
            routes: RoutePlan::of(settings),
            sides: [&settings.inside, &settings.outside].map(|side| side.device.clone()),
            names: names(settings),
            feed,
            state: settings.state.as_ref().map(|state| state.file.clone()).unwrap_or_default(),
            ports_written: true,
            neighbors: NeighborLines::default(),
            down: DownLinks::default(),
            now: Timestamp::default(),
        }
    }

    /// Reports links that are down at the start. `devices` has the order of [`Settings::devices`].
    pub(super) fn begin_links(&mut self, now: Timestamp, devices: &[Box<dyn Device>]) {
        self.now = now;
        for (place, device) in devices.iter().enumerate() {
            let side = if place == 1 { Side::Outside } else { Side::Inside };
            self.down.begin(now, name(side), device.link());
        }
    }
}

/// Names of a configuration.
fn names(settings: &Settings) -> json::Names {
    json::Names::of_settings(settings).of_pair(settings.fleet.as_ref())
}

impl Observer for Log {
    fn event(&mut self, event: &Event) {
        self.feed.event(event);
    }

    fn event_of(&mut self, event: &Event, host: Option<&HostName>) {
        match host {
            Some(host) => self.feed.event_of(event, host),
            None => self.feed.event(event),
        }
    }

    fn expectation(&mut self, expectation: &AlgExpectation, host: Option<&HostName>) {
        self.feed.expectation(expectation, host);
    }

    fn slice(&mut self, change: &SliceChange) {
        self.feed.slice(change);
        let names = self.names.nodes.as_ref();
        let owner = names.map_or("", |[a, b]| if change.owner == Node::A { a } else { b });
        let (slice, epoch) = (change.slice, change.epoch);
        let goes_on = change
            .continued
            .map_or(String::new(), |count| format!("; it continues {count} mappings"));
        say(format!("node {owner} owns slice {slice} in epoch {epoch}{goes_on}"));
        self.routes.set_owner(slice.into(), owner);
        if let Some(announcer) = &self.announcer {
            announcer.announce(self.routes.routes());
        }
    }

    fn events_lost(&mut self, lost: u64, from: Timestamp, to: Timestamp) {
        self.feed.lost(Gap { lost, from, to });
    }

    fn link(&mut self, side: Side, link: &LinkInfo, change: &Change) {
        let what = match change {
            Change::Up => "is up".to_owned(),
            Change::Down => "is down".to_owned(),
            Change::Gone => "is gone; waiting for it to come back".to_owned(),
            Change::Back(Ok(())) => "is back".to_owned(),
            Change::Back(Err(error)) => format!("is back, but cannot be used: {error}"),
            Change::Altered => format!("has address {} and MTU {} now", link.mac, link.mtu),
            Change::Unknown(error) => {
                format!("cannot be looked at, so its last known state holds: {error}")
            }
        };
        // All workers see the change, but only one reports it.
        if self.number == 0 {
            say(format!("{} device {} {what}", name(side), link.name));
            self.down.note(self.now, name(side), link);
        }
        if let Some(announcer) = self.announcer.as_ref().filter(|_| self.sides.contains(&link.name))
        {
            announcer.link(side, link.up);
        }
    }

    fn neighbor(&mut self, report: &NeighborReport) {
        let realms = &self.names.realms;
        let realm = realms.get(usize::from(report.link.realm)).filter(|_| realms.len() > 1);
        if let Some(line) = self.neighbors.line(Instant::now(), report, realm.map(|name| &**name)) {
            say(line);
        }
    }

    fn server(&mut self, change: &ServerChange) {
        let realms = &self.names.realms;
        let realm = realms.get(usize::from(change.realm)).filter(|_| realms.len() > 1);
        say(servers::line(change, realm.map(|name| &**name)));
    }

    fn reconfigured(&mut self, settings: Settings) {
        self.names = names(&settings);
        self.down.keep(&settings.devices());
        self.routes.renew(&settings);
        // All workers come here. Numbers mean the same before and after.
        (lock(&self.shared).rename)(self.names.clone());
        if let Some(announcer) = &self.announcer {
            announcer.announce(self.routes.routes());
        }
    }

    fn status(&mut self, status: &Status<'_>) {
        self.passed(status.now);
        let with_object = lock(&self.shared).status_file.is_some();
        let told = WorkerStatus::of(status, &self.names, with_object);
        let mut shared = lock(&self.shared);
        shared.told[self.number] = Some(told);
        shared.tell();
    }

    fn ports_written(&mut self, result: &io::Result<()>) {
        // Report only a change, not every failure.
        if result.is_ok() != self.ports_written {
            say(match result {
                Ok(()) => "ports in use are written to state.file again".to_owned(),
                Err(error) => format!("warning: {}", unwritten(&self.state, error)),
            });
        }
        self.ports_written = result.is_ok();
    }

    fn passed(&mut self, now: Timestamp) {
        self.feed.passed(now);
        self.now = now;
        self.down.remind(now);
    }

    fn idle(&mut self) {}
}

/// Converts the result of writing the ports in use to the program's result.
pub(super) fn told_of_ports(settings: &Settings, result: io::Result<()>) -> anyhow::Result<()> {
    let path = settings.state.as_ref().map(|state| &*state.file).unwrap_or(Path::new(""));
    result.map_err(|error| anyhow!("{}", unwritten(path, &error)))
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    let why = explain(path, error);
    format!(
        "ports in use cannot be written to state.file {}: {why}; packets go on, but after a \
         restart these ports may be given out at once",
        path.display()
    )
}

/// Replaces a file in one step, so that readers never see half of it.
fn replace(path: &Path, value: &Value) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = BufWriter::new(create_anew(Path::new(&beside), 0o644)?);
    serde_json::to_writer(&mut file, value)?;
    file.write_all(b"\n")?;
    file.into_inner()?;
    fs::rename(&beside, path)
}
