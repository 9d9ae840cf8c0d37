//! `natgate run`: opens the devices that the configuration names, starts the loop, and listens to
//! signals.
//!
//! If the configuration lacks an address or a default gateway, the kernel's is taken. The loop's
//! thread writes files when it is idle or asked. The state is written to a new file, which then
//! replaces the old one, so no reader sees half a file.

mod access;
mod claims;
mod clock;
mod control;
pub(crate) mod devices;
mod doors;
mod ending;
mod fleet;
mod handover;
mod kernel;
mod links;
mod locks;
mod log;
mod monitoring;
mod neighbors;
mod page;
mod servers;
mod signals;
mod status;
mod threads;

use crate::Failure;
use crate::memory::{self, Stage};
use access::RemoteAccess;
use anyhow::{Context, anyhow};
use axum::Router;
use claims::Claims;
use devices::Devices;
use doors::ControlServers;
use ending::{Ending, Leaver};
pub(crate) use fleet::link_settings;
use handover::Giving;
use kernel::RoutesLeft;
pub(crate) use kernel::remove_routes_left;
use locks::Locks;
use log::Joining;
use monitoring::MonitoringState;
use natgate_control::config::{self, Argument, Configuration, Places};
use natgate_control::interface::Loads;
use natgate_control::interface::fleet as fleet_routes;
use natgate_control::refresh;
use natgate_control::reload::Reloader;
use natgate_control::routes::Announcer;
use natgate_control::socket::{DEFAULT_PATH, listener};
use natgate_engine::{Engine, Side};
use natgate_gateway::{
    Clock, Commander, SavedPorts, Settings, StateError, Worker, WorkerError, panics, team_commands,
    team_memory,
};
use natgate_io::decorate::Faults;
use natgate_logs::Logs;
use natgate_service::Manager;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signals::{Signals, WorkerSignals};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use threads::{Crew, One, Threads};

const AFTER_HELP: &str = "\
Signals: SIGTERM and SIGINT end the gateway: it withdraws the routes that it announced, and goes on
for the time of shutdown.drain (2 s with [announce], otherwise none). A second signal ends it at
once. SIGUSR1 writes the state to --status-file. SIGHUP reads the configuration again, as `natgate
reload` does. SIGUSR2 starts the program's file, as it is then, with --take-over: an upgrade in
place.

A service manager gets notices (sd_notify) when packets are translated, of reloads, of the end, and,
with a watchdog, while every worker makes progress. Lines that journald reads have their priority.

With [state] in the configuration, the gateway holds ports at the start that were in use before.

Example:
natgate run -c /etc/natgate/natgate.toml --status-file /run/natgate/status.json";

/// Run the gateway
///
/// Translates between the devices that the configuration names, until SIGTERM or SIGINT. Needs
/// root, or CAP_NET_RAW and CAP_NET_ADMIN, with AF_XDP also CAP_BPF and CAP_IPC_LOCK. The gateway
/// answers ARP and ping for its own addresses and ARP for every external address. The devices
/// should be up, and the kernel should have none of these addresses there: otherwise the kernel
/// answers, too. Other addresses of the kernel stay reachable. If the configuration has no address
/// or gateway for a side, natgate takes the kernel's. It switches off receive offloads that merge
/// frames.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Append changes of state to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// File to which SIGUSR1 writes counters, mappings, sessions, neighbors and devices, as JSON
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// Record the frames of the devices of the start to this pcapng file, up to 1 GiB; this slows
    /// the gateway down
    #[arg(long, value_name = "FILE")]
    tap: Option<PathBuf>,
    /// Inject faults into frames of both devices, both ways, for tests: shares of frames to lose,
    /// duplicate, reorder and corrupt, and a seed
    #[arg(long, value_name = "loss=0.01,...")]
    inject: Option<Faults>,
    /// Take over the mappings of the natgate that runs with the same control socket, while packets
    /// flow; that natgate ends when this one has everything, and goes on after a failure
    #[arg(long)]
    take_over: bool,
}

/// Reason why a thread could not be made: the system's error names neither limit.
const NO_THREAD: &str =
    "a thread cannot be made; the limit of memory or of threads (LimitAS=, TasksMax=) is too low";

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    memory::return_what_is_freed();
    allow_many_descriptors();
    // This thread waits for the workers, and the workers rely on what it does before.
    panics::enter_data_plane();
    panics::install(natgate_service::say);
    let (read, settings) = args.settings()?;
    let cores = threads::cores(&settings.workers).map_err(|lack| args.input(lack))?;
    let claims = Claims::take(&settings, args.take_over)?;
    let control = settings.control.socket.clone().unwrap_or_else(|| DEFAULT_PATH.into());
    let is_decorated = args.tap.is_some() || args.inject.is_some();
    let mut heir = match args.take_over {
        true => Some(handover::ask(&settings, &control, is_decorated)?),
        false => None,
    };
    let predecessor = heir.as_ref().and_then(|_| listener(&control));
    let locks = Locks::take(&settings, predecessor)?;
    let routes_left = RoutesLeft::new(&settings, !args.take_over);
    let heartbeats = fleet::guard(&settings, &args.config)?;
    memory::enter(Stage::Devices);
    let (saved, devices) = match &heir {
        None => (saved_ports(&settings), devices::open(&settings)?),
        Some(heir) => (handover::files(&settings), handover::open(heir, &settings)?),
    };
    let saved = saved.map_err(anyhow::Error::from)?;
    let _groups = devices::join_groups(&settings);
    let names = settings.devices();
    let (devices, tap) = devices::decorate(devices, &names, args.inject, args.tap.as_deref())?;
    let clock = heir.as_ref().map_or_else(Clock::new, |heir| heir.clock());
    let (events, status) = (args.events.as_deref(), args.status_file.as_deref());
    memory::enter(Stage::Logs);
    let (written, mut logs) = log::open(events, status, &settings, clock, heir.is_some())?;

    let (manager, ending) = (Manager::of_environment(), Ending::catch()?);
    let signals =
        Arc::new(Signals::catch(settings.workers.count).context("signals cannot be caught")?);
    memory::enter(Stage::Tables);
    let mut workers = args.workers(&settings, devices, saved, &signals, clock)?;
    memory::enter(Stage::Rest);
    let waker = signals.waker_of(0).map_err(anyhow::Error::from)?;
    let fleet = fleet::join(&settings, &mut workers, (heartbeats, waker), clock.now())?;
    let wakers = signals.wakers().map_err(anyhow::Error::from)?;
    let (commander, commands) = team_commands(wakers);
    workers.iter_mut().zip(commands).for_each(|(worker, commands)| worker.obey(commands));
    let (complete, learning) = (settings.clone(), commander.clone());
    let loads: Loads = Arc::new(Mutex::new(workers.iter().map(Worker::load).collect()));
    let threads = Threads::new();
    let crew = Crew {
        starter: threads.starter(),
        signals: Arc::clone(&signals),
        clock,
        logs: Joining::of(&written, &logs[0]),
        loads: Arc::clone(&loads),
    };
    let reloader = args.reloader(read, complete, commander.clone(), crew);
    let reloader = reloader
        .telling(control::tell_reloads(manager))
        .claiming(claims.claiming(locks.claiming()));
    let own = args.add_files(Places::default()).map_err(Failure::Input)?;
    let access = RemoteAccess::default();
    let reloader = reloader.logging(log::exchange(&written, events, own));
    let reloader = Arc::new(reloader.admitting(access.reread()));
    let asker = fleet.as_ref().map(|(asker, _)| asker.clone());
    let sinks = monitoring::sinks(written.metrics());
    let watched = MonitoringState::new(&reloader, &loads, sinks, asker.clone());
    let asked = questions(&reloader, commander, clock, &written).merge(watched.router());
    let asked = asked.merge(fleet_routes::router(asker));
    let interface = control::interface(
        &reloader,
        Arc::clone(&loads),
        Arc::new(written.metrics()),
        written.catch_up(),
        fleet.as_ref().map(|(asker, link)| (asker, link)),
        asked,
    );
    refresh::watch_bindings(Arc::clone(&reloader), say).context(NO_THREAD)?;
    control::reload_on_signal(&reloader, written.reopen())?;
    handover::start_another_on_signal()?;
    let giving = Giving {
        control,
        reloader: Arc::clone(&reloader),
        clock,
        signals: Arc::clone(&signals),
        manager,
        is_decorated,
        handed_over: Arc::default(),
        announcement: Arc::default(),
    };
    let (handed_over, announcement) =
        (Arc::clone(&giving.handed_over), Arc::clone(&giving.announcement));
    if settings.control.remote.is_some() {
        access.watch(&reloader).context(NO_THREAD)?;
    }
    let (of_doors, watching) = (settings.clone(), watched.clone());
    let doors = ControlServers { settings: of_doors, access, interface, watched: watching, giving };
    let taken = match &mut heir {
        Some(heir) => Some(handover::take(heir, &mut workers, &settings)?),
        None => None,
    };
    // After a take-over this is the only gateway from here on. Errors are reported, and packets
    // continue to flow.
    if heir.is_some() {
        memory::enter(Stage::Running);
    }
    let is_taken = taken.is_some();
    let doors = match heir {
        Some(heir) => doors.open_when_gone(heir),
        None => doors.open()?,
    };
    say(format!("running, inside {}, outside {}", settings.inside.device, settings.outside.device));
    logs[0].begin_links(clock.now(), workers[0].devices());
    links::tell_narrow(&workers[0], &settings);
    let announcer = kernel::announce(&settings, workers[0].devices()).map_err(Failure::from);
    logs[0].announcer = handover::unless_taken(is_taken, announcer)?;
    routes_left.are_found();
    let announced = logs[0].announcer.as_ref().map(Announcer::handle);
    if let Some(announced) = &announced {
        let _ = announcement.set(announced.clone());
    }
    let leaver =
        Leaver { workers: Arc::clone(&signals), reloader, announcement: announced, manager };
    handover::unless_taken(is_taken, ending.listen(leaver).map_err(Failure::from))?;
    let minder = control::mind(manager, loads).context(NO_THREAD);
    let minder = handover::unless_taken(is_taken, minder.map(Some).map_err(Failure::from))?;
    // From here until the workers end there is no early return, because the learner waits for the
    // workers' answers.
    let learner = kernel::learn(&settings, learning).map_err(Failure::from);
    let learner = handover::unless_taken(is_taken, learner)?;
    let agent = watched.connect(&settings.monitoring, &written.subscribers());
    let comparison = clock::Comparison::start(clock);
    let starter = threads.starter();
    let per_worker = signals.workers().clone();
    for (((worker, log), own_signals), core) in
        workers.into_iter().zip(logs).zip(per_worker).zip(cores)
    {
        starter.start(One { worker, log, own_signals, core })?;
    }
    memory::enter(Stage::Running);
    tell_ready(manager);
    if let Some(taken) = &taken {
        handover::tell(taken);
    }
    let (mut workers, mut logs, result) = threads.run(&clock, &signals);
    workers.iter_mut().for_each(Worker::leave_fleet);
    drop(minder);
    if handed_over.load(Ordering::Relaxed) {
        // From now on the routes and the file of ports in use belong to the other process. The
        // hand-over may have happened before the announcer existed.
        if let Some(announcement) = announcement.get() {
            announcement.release();
        }
        logs.iter_mut().for_each(|log| log.announcer = None);
        drop(doors);
        say(format!("another took over; {}", log::summary_of(&mut workers, &clock)));
        return log::finish(written, logs, events);
    }
    logs.iter_mut().for_each(|log| log.announcer = None);
    drop(doors);
    say(format!("stopped; {}", log::summary_of(&mut workers, &clock)));
    let saved: Vec<_> = workers.into_iter().map(Worker::finish).collect();
    drop(learner);
    drop(agent);
    drop(comparison);
    if let Some((_, link)) = fleet {
        link.stop();
    }
    result?;
    let saved = saved.into_iter().collect::<io::Result<()>>();
    let finished = log::finish(written, logs, events);
    drop(claims);
    log::told_of_ports(&settings, saved)?;
    devices::finish(tap)?;
    finished
}

/// Raises the limit of open descriptors to the hard limit, before anything is opened. Servers limit
/// their connections to a share of it, so that descriptors are left for everything else.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, fewer connections are accepted.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The interface's paths that look into the workers and into the event logs.
fn questions(reloader: &Arc<Reloader>, commander: Commander, clock: Clock, logs: &Logs) -> Router {
    let in_force = Arc::clone(reloader);
    let insight = natgate_insight::api::router(commander, clock, move || in_force.settings());
    let in_force = Arc::clone(reloader);
    let events = natgate_insight::events::router(logs.subscribers(), move || in_force.settings());
    insight.merge(events)
}

/// Tells the service manager that packets are translated.
fn tell_ready(manager: Manager) {
    if let Err(error) = manager.ready("translating") {
        say(format!(
            "warning: the service manager cannot be told that natgate is ready, and may end it: \
             {error}; NOTIFY_SOCKET should name the socket that it listens at"
        ));
    }
}

impl Args {
    /// Returns two forms of the configuration: as written, and completed from the kernel.
    fn settings(&self) -> Result<(Settings, Settings), Failure> {
        let input = |problems| Failure::Input(config::sentences(problems));
        let Configuration { settings: read, places, .. } =
            config::read(&self.config).map_err(input)?;
        if self.take_over && read.fleet.is_some() {
            return Err(self.input(
                "--take-over cannot take over the part of a pair; move its slices to the partner \
                 by `natgate fleet drain`, stop natgate, and start it again"
                    .to_owned(),
            ));
        }
        self.add_files(places).map_err(Failure::Input)?;
        let mut settings = read.clone();
        if let Err(failure) = self.complete(&mut settings) {
            if !self.take_over {
                remove_routes_left(&settings);
            }
            return Err(failure);
        }
        Ok((read, settings))
    }

    /// Completes the settings by what the machine has.
    fn complete(&self, settings: &mut Settings) -> Result<(), Failure> {
        if settings.inside.device == settings.outside.device {
            let device = &settings.inside.device;
            return Err(self.input(format!(
                "inside.device and outside.device are both {device:?}; give each side its own \
                 device"
            )));
        }
        let tables = Engine::memory(&settings.engine) + settings.ipv6.memory(&settings.engine);
        let of_flows = settings.alg.memory(settings.workers.count);
        let needed = tables + team_memory(settings) + of_flows;
        // More memory may be free at another time, so this is not an error of the configuration.
        memory::require(needed, "the configuration").map_err(|lack| {
            anyhow!(
                "{}: {lack}; lower limits.mappings, limits.extra_sessions or alg.flows",
                self.config.display()
            )
        })?;
        devices::require(settings).map_err(|lack| self.input(lack))?;
        for side in [Side::Inside, Side::Outside] {
            kernel::complete(settings, side).map_err(anyhow::Error::from)?;
        }
        settings.derive_inside_routes();
        Ok(())
    }

    /// Adds the files that the command line names to the places of the configuration.
    fn add_files(&self, mut places: Places) -> Result<Places, Vec<String>> {
        let argument = |name, path, beside| Argument { name, path, beside };
        places.add_arguments(&[
            argument("--events", self.events.as_deref(), &[]),
            argument("--status-file", self.status_file.as_deref(), &[".new"]),
            argument("--tap", self.tap.as_deref(), &[]),
        ])?;
        Ok(places)
    }

    /// Makes workers that move packets between these devices and hold the ports that were in use
    /// before.
    fn workers(
        &self,
        settings: &Settings,
        devices: Vec<Devices>,
        saved: Option<Vec<SavedPorts>>,
        signals: &Signals,
        clock: Clock,
    ) -> Result<Vec<Worker>, Failure> {
        let made = threads::workers(settings, devices, signals, clock.now());
        let mut workers = made.map_err(|error| match error.downcast::<WorkerError>() {
            Ok(error) => self.input(error.to_string()),
            Err(error) => error.into(),
        })?;
        for (worker, saved) in workers.iter_mut().zip(saved.into_iter().flatten()) {
            worker.remember(saved, clock.now()).map_err(anyhow::Error::from)?;
        }
        Ok(workers)
    }

    /// Makes the reloader, which reads the configuration anew and adds workers to the crew.
    fn reloader(
        &self,
        read: Settings,
        complete: Settings,
        commander: Commander,
        crew: Crew,
    ) -> Reloader {
        let count = complete.workers.count;
        let open =
            move |name: &str| devices::open_packet(name, count).map_err(|error| error.to_string());
        let join = move |commander: &Commander, settings: &Settings| {
            crew.join(commander, settings).map_err(|error| format!("{error:#}"))
        };
        let (open, join) = (Box::new(open), Box::new(join));
        Reloader::new(&self.config, read, complete, commander, open, join)
            .finding(Box::new(devices::find_packet))
    }

    /// A failure caused by the configuration.
    fn input(&self, message: String) -> Failure {
        Failure::Input(vec![format!("{}: {message}", self.config.display())])
    }
}

/// Tells the operator something.
fn say(message: String) {
    natgate_service::say(&message);
}

/// Reads the ports that were in use before, and reports them.
fn saved_ports(settings: &Settings) -> Result<Option<Vec<SavedPorts>>, StateError> {
    let Some(team) = SavedPorts::open_team(settings)? else { return Ok(None) };
    // Each worker has all ports of before.
    for (number, saved) in team.workers.iter().chain(&team.former).enumerate() {
        let (path, hold_down) = (saved.path().display(), settings.engine.timeouts.hold_down);
        let before = saved.generation_before();
        match (saved.damage(), saved.ports()) {
            (Some(what), _) if let Some(before) = before => say(format!(
                "warning: state.file {path} is damaged ({what}), so ports that were in use before \
                 are taken from {}, which is one writing older, and held for {hold_down:?}",
                before.display()
            )),
            (Some(what), _) => say(format!(
                "warning: state.file {path} is damaged ({what}), so ports that were in use before \
                 may be given out at once"
            )),
            (None, ports) if number > 0 || ports == 0 => {}
            (None, ports) => {
                let held = match ports {
                    1 => "1 port that was in use before is held".to_owned(),
                    ports => format!("{ports} ports that were in use before are held"),
                };
                say(format!("{held} for {hold_down:?}"));
            }
        }
    }
    if let Err(error) = team.adopt() {
        say(format!(
            "warning: files of workers that there are no more stay beside state.file until the \
             next start: {error}"
        ));
    }
    Ok(Some(team.workers))
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}
