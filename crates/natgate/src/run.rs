//! `natgate run`: opens the devices that the configuration names, starts the loop, and listens to
//! signals.
//!
//! What is missing in the configuration and known to the kernel (addresses, the default gateway) is
//! taken from there. Files are written by the loop's thread when it is idle or asked; the state is
//! written to a new file that then takes the old one's place, so that nobody reads half of it.

mod control;
pub(crate) mod devices;

use crate::{Failure, memory};
use anyhow::Context;
use natgate_control::reload::Reloader;
use natgate_control::{config, json};
use natgate_engine::{Direction, DropReason, Engine, Event, MappingId, MappingInfo};
use natgate_engine::{Outcome, Prefix, Side, SideConfig};
use natgate_gateway::{
    Backend, Clock, Controls, Observer, SavedPorts, Settings, SideSettings, SideStatus,
};
use natgate_gateway::{StateError, Status, Worker, commands, run as run_worker};
use natgate_io::decorate::Faults;
use natgate_io::{Change, LinkInfo, kernel_address, kernel_gateway};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Run the gateway
///
/// Translates between the devices that the configuration names, until SIGTERM or SIGINT. Needs
/// root, or CAP_NET_RAW and CAP_NET_ADMIN, with AF_XDP also CAP_BPF and CAP_IPC_LOCK. It answers ARP and ping for its own addresses and ARP
/// for every external address, so the devices should be up and have no IP address of the kernel's
/// own (`ip addr flush dev DEVICE`): otherwise the kernel answers, too. Where the configuration
/// gives no address or gateway of a side, the kernel's are taken. Receive offloads that merge
/// frames are switched off.
#[derive(clap::Args)]
#[command(
    after_help = "Signals: SIGTERM and SIGINT stop; SIGUSR1 writes the state to --status-file; SIGHUP has the\n\
    configuration read anew, as `natgate reload` does.\n\
    \n\
    With [state] in the configuration, ports that were in use before are held at the start.\n\
    \n\
    Example:\n\
    natgate run -c /etc/natgate.toml --events /var/log/natgate.jsonl --status-file /run/nat.json"
)]
pub(crate) struct Args {
    /// Configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Append changes of state to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Where SIGUSR1 has counters, mappings, sessions, neighbors and devices written, as JSON
    #[arg(long, value_name = "FILE")]
    status_file: Option<PathBuf>,
    /// Record the frames of all devices that there are at the start to this pcapng file, up to 1 GiB; slows
    /// everything down
    #[arg(long, value_name = "FILE")]
    tap: Option<PathBuf>,
    /// Harm frames of both devices, both ways, to see what becomes of it: shares of frames to lose,
    /// duplicate, reorder and corrupt, and a seed
    #[arg(long, value_name = "loss=0.01,...")]
    inject: Option<Faults>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let read = config::load(&args.config).map_err(Failure::Input)?;
    let mut settings = read.clone();
    if settings.inside.device == settings.outside.device {
        let device = &settings.inside.device;
        return Err(args.input(format!(
            "inside.device and outside.device are both {device:?}; give each side its own device"
        )));
    }
    memory::require(Engine::memory(&settings.engine), "the configuration").map_err(|lack| {
        args.input(format!("{lack}; lower limits.mappings or limits.extra_sessions"))
    })?;
    devices::require(&settings).map_err(|lack| args.input(lack))?;
    for side in [Side::Inside, Side::Outside] {
        complete(&mut settings, side).map_err(anyhow::Error::from)?;
    }
    let saved = saved_ports(&settings).map_err(anyhow::Error::from)?;
    let devices = devices::open(&settings)?;
    let names = settings.devices();
    let (devices, tap) = devices::decorate(devices, &names, args.inject, args.tap.as_deref())?;
    let mut log = Log::open(&args, &settings)?;

    let mut seed = [0; 32];
    getrandom::fill(&mut seed).context("the system gives no random numbers")?;
    let clock = Clock::new();
    let mut worker = Worker::new(&settings, seed, devices, clock.now())
        .map_err(|error| args.input(error.to_string()))?;
    if let Some(saved) = saved {
        worker.remember(saved, clock.now()).map_err(anyhow::Error::from)?;
    }

    let signals = Signals::catch().context("signals cannot be caught")?;
    let (commander, commands) = commands(signals.waker.try_clone().map_err(anyhow::Error::from)?);
    worker.obey(commands);
    let socket = settings.control.clone();
    let open = Box::new(|name: &str| devices::open_packet(name).map_err(|error| error.to_string()));
    let complete = settings.clone();
    let reloader = Arc::new(Reloader::new(&args.config, read, complete, commander, open));
    let server = control::listen(socket.as_deref(), &reloader)?;
    control::reload_on_signal(&reloader)?;
    say(format!("running, inside {}, outside {}", settings.inside.device, settings.outside.device));
    let result = run_worker(&mut worker, &clock, &signals.controls(), &mut log);
    drop(server);
    log.idle();
    say(format!("stopped; {}", summary(&worker.status(clock.now()))));
    let written = worker.finish().context("ports in use cannot be written to state.file");
    result.context("waiting for packets failed")?;
    written?;
    devices::finish(tap)?;
    match log.failure {
        Some(error) => Err(anyhow::Error::from(error).context("events are missing").into()),
        None => Ok(()),
    }
}

impl Args {
    /// The configuration is wrong.
    fn input(&self, message: String) -> Failure {
        Failure::Input(vec![format!("{}: {message}", self.config.display())])
    }
}

/// Tells the operator something.
fn say(message: String) {
    // There is nobody left to tell when standard error is gone; packets still flow.
    let _ = writeln!(io::stderr(), "natgate: {message}");
}

/// Takes from the kernel what the configuration does not say about a side.
fn complete(settings: &mut Settings, side: Side) -> Result<(), natgate_io::Error> {
    let (own, engine): (&mut SideSettings, &mut SideConfig) = match side {
        Side::Inside => (&mut settings.inside, &mut settings.engine.inside),
        Side::Outside => (&mut settings.outside, &mut settings.engine.outside),
    };
    // The kernel has none for a port of DPDK, and what it has on a TUN device is the other end's.
    if matches!(own.backend, Backend::Dpdk | Backend::Tun) {
        return Ok(());
    }
    let Some((address, len)) = kernel_address(&own.device)? else { return Ok(()) };
    let device = &own.device;
    let trouble = match own.backend {
        Backend::AfXdp => "is not reached there any more, since natgate gets all frames",
        _ => "answers there, too",
    };
    say(format!(
        "warning: the kernel has address {address} on {device} and {trouble}; take it away with \
         `ip addr flush dev {device}` and write {}.address = \"{address}/{len}\"",
        name(side)
    ));
    if own.address.is_none() {
        own.address = Some((address, len));
        engine.address = Some(address);
        engine.network = Some(Prefix::new(address, len));
        own.gateway = own.gateway.or_else(|| kernel_gateway(&own.device));
    }
    Ok(())
}

/// Reads which ports were in use before, and says so.
fn saved_ports(settings: &Settings) -> Result<Option<SavedPorts>, StateError> {
    let saved = SavedPorts::open(settings)?;
    if let Some(saved) = &saved {
        let (path, hold_down) = (saved.path().display(), settings.engine.timeouts.hold_down);
        match (saved.damage(), saved.ports()) {
            (Some(what), _) => say(format!(
                "warning: state.file {path} is damaged ({what}), so ports that were in use before \
                 may be given out at once"
            )),
            (None, 0) => {}
            (None, ports) => {
                say(format!("{ports} ports that were in use before are held for {hold_down:?}"));
            }
        }
    }
    Ok(saved)
}

/// The signals that are listened to.
struct Signals {
    stop: Arc<AtomicBool>,
    status: Arc<AtomicBool>,
    wake: UnixStream,
    /// Its other end.
    waker: UnixStream,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        let (stop, status) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        // Actions of a signal are done in the order of registration: the flag first, then the byte.
        for (signal, flag) in [(SIGTERM, &stop), (SIGINT, &stop), (SIGUSR1, &status)] {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
            signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(Self { stop, status, wake, waker })
    }

    fn controls(&self) -> Controls<'_> {
        Controls { stop: &self.stop, status: &self.status, wake: &self.wake }
    }
}

/// Writes down what the gateway tells.
struct Log {
    events: Option<BufWriter<File>>,
    status_file: Option<PathBuf>,
    /// Names that events mention.
    names: json::Names,
    /// What went wrong with the events first; nothing more is written then.
    failure: Option<io::Error>,
    /// Whether ports in use could be written the last time.
    ports_written: bool,
}

impl Log {
    fn open(args: &Args, settings: &Settings) -> Result<Self, Failure> {
        let append = |path: &PathBuf| {
            let file = File::options().create(true).append(true).open(path);
            file.map(BufWriter::new).with_context(|| format!("{} cannot be opened", path.display()))
        };
        Ok(Self {
            events: args.events.as_ref().map(append).transpose()?,
            status_file: args.status_file.clone(),
            names: json::Names::of(&settings.engine),
            failure: None,
            ports_written: true,
        })
    }

    /// Notes that events cannot be written any more: translation goes on without them.
    fn check(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            say(format!("warning: events cannot be written any more: {error}"));
            self.events = None;
            self.failure = Some(error);
        }
    }
}

impl Observer for Log {
    fn event(&mut self, event: &Event) {
        let Some(file) = &mut self.events else { return };
        let written = serde_json::to_writer(&mut *file, &json::event(event, &self.names))
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"));
        self.check(written);
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
        say(format!("{} device {} {what}", name(side), link.name));
    }

    fn reconfigured(&mut self, settings: Settings) {
        self.names = json::Names::of(&settings.engine);
    }

    fn status(&mut self, status: &Status<'_>) {
        self.idle();
        let Some(path) = &self.status_file else {
            return say(format!("{}; --status-file names a file for more", summary(status)));
        };
        if let Err(error) = replace(path, &status_object(status, &self.names)) {
            say(format!("warning: {} cannot be written: {error}", path.display()));
        }
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

    fn idle(&mut self) {
        if let Some(file) = &mut self.events {
            let flushed = file.flush();
            self.check(flushed);
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

/// The state as scripts read it.
fn status_object(status: &Status<'_>, names: &json::Names) -> Value {
    let now = status.now;
    let by_id: HashMap<MappingId, MappingInfo> =
        status.engine.mappings().map(|info| (info.id, info)).collect();
    let mappings: Vec<_> = by_id.values().map(|info| json::mapping(info, now, names)).collect();
    let sessions = status.engine.sessions().filter_map(|session| {
        by_id.get(&session.mapping).map(|mapping| json::session(&session, mapping, now, names))
    });
    let [inside, outside] = &status.sides;
    let draining = status.engine.draining().map(|one| {
        json!({
            "address": one.address,
            "pool": status.engine.config().pools[one.pool].name,
            "mappings": one.mappings,
            "leaves": one.leaves,
        })
    });
    let mut object = json!({
        "time": now.0 as f64 / 1e9,
        "counters": json::counters(&status.counters),
        "mappings": mappings,
        "sessions": sessions.collect::<Vec<_>>(),
        "draining": draining.collect::<Vec<_>>(),
        "neighbors": { "inside": neighbors(inside), "outside": neighbors(outside) },
        "devices": { "inside": device(inside), "outside": device(outside) },
        "router": {
            "arp_asked": status.router.arp_asked,
            "arp_answered": status.router.arp_answered,
            "arp_ignored": status.router.arp_ignored,
            "arp_conflicts": status.router.arp_conflicts,
            "neighbors_lost": status.router.neighbors_lost,
            "errors_made": status.router.errors_made,
            "errors_suppressed": status.router.errors_suppressed,
            "own_packets_lost": status.own_lost,
            "frames_not_addressed": status.not_addressed,
        },
    });
    // The first name is that of the inside's own network.
    for (number, realm) in &status.realms {
        let Some(name) = names.realms.get(usize::from(*number)) else { continue };
        object["realms"][name] = json!({ "neighbors": neighbors(realm), "device": device(realm) });
    }
    object
}

fn neighbors(side: &SideStatus) -> Value {
    let object = |neighbor: &natgate_gateway::router::NeighborInfo| {
        json!({
            "address": neighbor.address,
            "mac": neighbor.mac.map(|mac| mac.to_string()),
            "asking": neighbor.asking,
            "held": neighbor.held,
        })
    };
    side.neighbors.iter().map(object).collect()
}

fn device(side: &SideStatus) -> Value {
    let (link, frames) = (&side.link, &side.frames);
    json!({
        "name": link.name,
        "mac": link.mac.to_string(),
        "mtu": link.mtu,
        "up": link.up,
        "received": frames.received,
        "transmitted": frames.transmitted,
        "receive_overrun": frames.receive_overrun,
        "receive_no_buffer": frames.receive_no_buffer,
        "receive_oversize": frames.receive_oversize,
        "receive_unfinished": frames.receive_unfinished,
        "transmit_full": frames.transmit_full,
        "transmit_refused": frames.transmit_refused,
        "link_losses": frames.link_losses,
    })
}

/// The counters in one sentence.
fn summary(status: &Status<'_>) -> String {
    let counters = &status.counters;
    let ways = Direction::ALL.map(|direction| {
        let packets = counters.packets[direction as usize];
        let bytes = counters.bytes[direction as usize];
        let done = match direction {
            Direction::Local => Outcome::Replied,
            _ => Outcome::Forwarded,
        } as usize;
        format!("{} {} packets ({} bytes)", direction.name(), packets[done], bytes[done])
    });
    let reasons = DropReason::ALL.iter().map(|reason| (reason.name(), *reason as usize));
    let drops = reasons.map(|(name, reason)| (name, counters.drops[reason]));
    let overrun = status.sides.iter().map(|side| side.frames.receive_overrun).sum();
    let drops: Vec<_> = drops
        .chain([("frames that came too fast", overrun)])
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let drops = if drops.is_empty() { "nothing".to_owned() } else { drops.join(", ") };
    format!("{}; dropped: {drops}", ways.join(", "))
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}
