//! Upgrade in place: the requests of a new process to the running gateway, the permission that the
//! running gateway gives, and the start of a successor by the gateway itself, so that a service
//! stays in its place.

use super::{NO_THREAD, Signals, devices, say};
use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_control::reload::{Hold, Reloader};
use natgate_control::routes::AnnouncementHandle;
use natgate_engine::{Departure, Side};
use natgate_gateway::{Backend, Clock, Device, SavedPorts, Settings, StateError, Worker, panics};
use natgate_handover::{Asker, Gates, Giver, Grant, Heir, TakeOver, path_beside};
use natgate_service::Manager;
use signal_hook::consts::SIGUSR2;
use signal_hook::iterator;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Time to try to open devices that another process has just closed, and the pause between.
/// `PATIENCE` is for the new process: packets are lost while it fails. `LAST_PATIENCE` is for the
/// old process, which has nothing else to do.
const PATIENCE: Duration = Duration::from_secs(3);
const LAST_PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);

/// The devices of each worker.
type Devices = Vec<Vec<Box<dyn Device>>>;

/// True if one process must close its devices before another opens them. Fails if a gateway with
/// these settings cannot be handed over.
fn closes(settings: &Settings) -> Result<bool, String> {
    let mut closes = false;
    for side in [Side::Inside, Side::Outside] {
        match settings.side(side).backend {
            Backend::AfPacket => {}
            Backend::AfXdp => closes = true,
            other => {
                return Err(format!(
                    "{}.backend is \"{}\", whose state in the system or on the card ends with the \
                     process; restart natgate instead, or use \"af-packet\" or \"af-xdp\"",
                    super::name(side),
                    other.name()
                ));
            }
        }
    }
    Ok(closes)
}

/// Asks the running gateway for its state. `is_decorated`: devices are recorded or have faults
/// injected.
pub(super) fn ask(
    settings: &Settings,
    control: &Path,
    is_decorated: bool,
) -> Result<Heir, Failure> {
    let wrong = |lack: String| Failure::Input(vec![format!("--take-over: {lack}")]);
    let closes = closes(settings).map_err(wrong)?;
    let heir = Heir::ask(&path_beside(control), settings.workers.count, closes);
    let heir = heir.context("--take-over")?;
    if heir.closes() && is_decorated {
        return Err(wrong(
            "AF_XDP devices are opened at the last moment, without --tap and --inject; leave these \
             out"
                .to_owned(),
        ));
    }
    Ok(heir)
}

/// Devices at the start. If the other process must close its devices first, these are stand-ins.
pub(super) fn open(heir: &Heir, settings: &Settings) -> anyhow::Result<Devices> {
    if heir.closes() { stand_in(settings) } else { devices::open(settings) }
}

fn stand_in(settings: &Settings) -> anyhow::Result<Devices> {
    (0..settings.workers.count).map(|_| Ok(devices::open_sending(settings)?)).collect()
}

/// Opens devices that another process has just closed. The system may take a moment.
fn open_patiently(settings: &Settings, patience: Duration) -> anyhow::Result<Devices> {
    let began = Instant::now();
    loop {
        match devices::open(settings) {
            Err(_) if began.elapsed() < patience => thread::sleep(PAUSE),
            opened => return opened,
        }
    }
}

/// Files for the ports in use. The other process tells which ports those are.
pub(super) fn files(settings: &Settings) -> Result<Option<Vec<SavedPorts>>, StateError> {
    // Files of workers that no longer exist are left to the next start, which holds their ports.
    let team = SavedPorts::open_team(settings)?;
    Ok(team.map(|team| team.workers.into_iter().map(SavedPorts::without_ports).collect()))
}

/// Takes the state over. When this returns, this process forwards the packets.
pub(super) fn take(
    heir: &mut Heir,
    workers: &mut [Worker],
    settings: &Settings,
) -> anyhow::Result<TakeOver> {
    let open = |workers: &mut [Worker]| {
        let devices = open_patiently(settings, PATIENCE).map_err(|error| format!("{error:#}"))?;
        let pairs = workers.iter_mut().zip(devices);
        pairs.for_each(|(worker, devices)| worker.set_devices(devices));
        Ok(())
    };
    heir.fill(workers).and_then(|()| heir.take(workers, open)).context("--take-over")
}

/// Reports what has been taken over, now that packets flow again.
pub(super) fn tell(taken: &TakeOver) {
    let waited = taken.since.elapsed().as_secs_f64() * 1e3;
    let left_out = Departure::ALL.iter().zip(taken.restored.left_out);
    let left_out: Vec<String> = left_out
        .filter(|(_, count)| *count > 0)
        .map(|(why, count)| format!("{count} for {}", why.name()))
        .collect();
    let left_out = match left_out.is_empty() {
        true => String::new(),
        false => format!(
            ", without those that the configuration does not let stay: {}",
            left_out.join(", ")
        ),
    };
    let mappings = taken.restored.mappings;
    say(format!("took over {mappings} mappings{left_out}; packets waited for {waited:.1} ms"));
}

/// Passes a failure on, unless this process is already the only gateway. Then the failure is
/// reported, and packets continue to flow.
pub(super) fn unless_taken<T: Default>(
    is_taken: bool,
    result: Result<T, Failure>,
) -> Result<T, Failure> {
    match result {
        Err(failure) if is_taken => {
            let error = match failure {
                Failure::Runtime(error) => format!("{error:#}"),
                Failure::Input(messages) => messages.join("; "),
            };
            say(format!(
                "warning: {error}; packets are translated all the same, restart natgate when it is \
                 mended"
            ));
            Ok(T::default())
        }
        result => result,
    }
}

/// The parts that another process needs to take over from this one.
#[derive(Clone)]
pub(super) struct Giving {
    pub(super) control: PathBuf,
    pub(super) reloader: Arc<Reloader>,
    pub(super) clock: Clock,
    pub(super) signals: Arc<Signals>,
    pub(super) manager: Manager,
    /// True if devices are recorded or have faults injected.
    pub(super) is_decorated: bool,
    /// True once the gateway has been handed over.
    pub(super) handed_over: Arc<AtomicBool>,
    /// The announced routes, which the process that takes over gets.
    pub(super) announcement: Arc<OnceLock<AnnouncementHandle>>,
}

/// Keeps the configuration unchanged while another process may take over. Reports it if none does.
struct Waiting {
    _hold: Hold,
    handed_over: Arc<AtomicBool>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.handed_over.load(Ordering::Relaxed) {
            say("warning: the other process has not taken over; this one goes on".to_owned());
        }
    }
}

impl Giving {
    /// Accepts requests from now on. If that fails, reports it.
    pub(super) fn listen(&self) -> Option<Giver> {
        let path = path_beside(&self.control);
        let (granting, going) = (self.clone(), self.clone());
        let grant = move |asker: Asker| granting.grant(asker);
        let gone = move || going.signals.stop();
        let commander = self.reloader.commander().clone();
        match Giver::listen(&path, commander, self.clock, grant, gone) {
            Ok(giver) => Some(giver),
            Err(error) => {
                let path = path.display();
                say(format!("warning: nobody can take over by {path}: {error}"));
                None
            }
        }
    }

    /// Decides if another process may take over, and how.
    fn grant(&self, asker: Asker) -> Result<Grant<Waiting>, String> {
        let (settings, hold) = self.reloader.hold();
        if settings.fleet.is_some() {
            return Err(
                "it is a node of a pair, and its partner would not know the new one; move its \
                        slices to the partner by `natgate fleet drain`, stop it, and start the new \
                        one without --take-over"
                    .to_owned(),
            );
        }
        let closes = closes(&settings)? || asker.closes;
        let workers = settings.workers.count;
        if asker.workers != workers {
            return Err(format!(
                "it has workers.count = {workers}, the new one {}; take over with as many, and \
                 change the number by a reload",
                asker.workers
            ));
        }
        if closes && self.is_decorated {
            return Err(
                "it runs with --tap or --inject, which do not outlive its devices; restart \
                        natgate instead"
                    .to_owned(),
            );
        }
        if !self.reloader.commander().can_be_succeeded().map_err(|error| error.to_string())? {
            return Err(
                "a worker has joined it since its start, and some of what static mappings and \
                        services name has stayed with others; restart natgate instead"
                    .to_owned(),
            );
        }
        if self.manager.is_there() && !is_of_this_service(asker.process) {
            return Err(
                "it is a service, and the new one is outside of that; have the service start it: \
                        `systemctl kill --kill-whom=main --signal=USR2 natgate`"
                    .to_owned(),
            );
        }
        say("handing over to another process".to_owned());
        let (manager, handed_over) = (self.manager, Arc::clone(&self.handed_over));
        let announcement = Arc::clone(&self.announcement);
        let handed = move || {
            handed_over.store(true, Ordering::Relaxed);
            if let Some(announcement) = announcement.get() {
                announcement.release();
            }
            manager.succeeded_by(asker.process);
        };
        let config = match workers {
            1 => settings.engine.clone(),
            workers => settings.engine.share(workers as u32),
        };
        let waiting = Waiting { _hold: hold, handed_over: Arc::clone(&self.handed_over) };
        let gates = closes.then(|| gates(settings));
        Ok(Grant { config, workers, gates, handed: Box::new(handed), hold: waiting })
    }
}

/// Functions that close the devices, and open them again if no process takes over.
fn gates(settings: Arc<Settings>) -> Gates {
    let standing = Arc::clone(&settings);
    let stand_in = move || stand_in(&standing).map_err(|error| format!("{error:#}"));
    let open = move || match open_patiently(&settings, LAST_PATIENCE) {
        Ok(devices) => devices,
        Err(error) => {
            // Without devices nothing is translated. The service manager starts another process.
            say(format!("error: devices cannot be opened again, so this is the end: {error:#}"));
            std::process::exit(1)
        }
    };
    Gates { stand_in: Box::new(stand_in), open: Box::new(open) }
}

/// True if a process is in the same control group as this one. Only then does the service manager
/// accept it as the service's process.
fn is_of_this_service(process: u32) -> bool {
    let group = |of: &str| std::fs::read_to_string(format!("/proc/{of}/cgroup")).ok();
    let own = group("self");
    own.is_some() && group(&process.to_string()) == own
}

/// Starts a thread that starts another natgate at each SIGUSR2, from the program file of that time.
/// The new process takes over.
pub(super) fn start_another_on_signal() -> anyhow::Result<()> {
    let program = env::current_exe().context("the system does not tell the program's file")?;
    let mut signals = iterator::Signals::new([SIGUSR2]).context("signals cannot be caught")?;
    let listen = move || {
        panics::contain(|| {
            for _ in signals.forever() {
                if let Err(error) = start_another(&program) {
                    let program = program.display();
                    say(format!("warning: {program} cannot be started to take over: {error:#}"));
                }
            }
        });
    };
    let thread = Builder::new().name("upgrade".into()).spawn(listen);
    thread.map(drop).context(NO_THREAD)
}

/// Starts another natgate and waits for its end. If it takes over, this process ends first.
fn start_another(program: &Path) -> anyhow::Result<()> {
    const TAKE_OVER: &str = "--take-over";
    say(format!("starting {} to take over", program.display()));
    let arguments = env::args_os().skip(1).filter(|argument| argument != TAKE_OVER);
    let mut child = Command::new(program)
        .args(arguments)
        .arg(TAKE_OVER)
        .stdin(Stdio::null())
        // The new process reports to the watchdog from then on.
        .env_remove("WATCHDOG_PID")
        .spawn()?;
    let status = child.wait()?;
    Err(anyhow!("it has ended, {status}; its words are above"))
}

/// Waits, for a short time at most, until no process listens at a path. Then what that process had
/// is free.
pub(super) fn wait_until_free(control: &Path) {
    let began = Instant::now();
    while began.elapsed() < PATIENCE && std::os::unix::net::UnixStream::connect(control).is_ok() {
        thread::sleep(PAUSE);
    }
}
