//! Control of the daemon: the control socket, and SIGHUP, which reloads the configuration as
//! `natgate reload` does.

use super::access::RemoteAccess;
use super::{NO_THREAD, say};
use crate::Failure;
use anyhow::{Context, anyhow};
use axum::Router;
use natgate_control::interface::health::Sinks;
use natgate_control::interface::{Interface, Loads, PairAsker, changes};
use natgate_control::reload::{ReloadError, ReloadObserver, Reloader};
use natgate_control::socket::{self, BindError, Listen, Role, Server, Tls, Validity};
use natgate_gateway::fleet::{FleetAsker, FleetRequest};
use natgate_gateway::{ControlSettings, RemoteSettings, panics};
use natgate_logs::CatchUp;
use natgate_partner::Link;
use natgate_service::{Manager, Minder};
use nix::unistd::Group;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread;

/// Makes the router of all requests, at the control socket and elsewhere. Of a pair, the other node
/// may ask from now on, too.
pub(super) fn interface(
    reloader: &Arc<Reloader>,
    loads: Loads,
    sinks: Sinks,
    catch_up: CatchUp,
    pair: Option<(&FleetAsker, &Link)>,
    further: Router,
) -> Router {
    let interface = Interface::new(Arc::clone(reloader), loads).watching(sinks);
    let interface = interface.catching_up(catch_up).paired(pair.map(pair_asker));
    let interface = Arc::new(interface);
    if let Some((_, link)) = pair {
        link.answer_by(Box::new(interface.answerer()));
    }
    let all = Interface::complete(interface.router().merge(further));
    changes::logged(all, &(Arc::new(say) as _))
}

/// The means to ask about slices, and to ask the other node.
fn pair_asker((fleet, link): (&FleetAsker, &Link)) -> PairAsker {
    let (link, fleet) = (link.clone(), fleet.clone());
    let ask = move |question, go_on: &dyn Fn() -> bool| {
        link.ask(question, go_on).map_err(|error| error.to_string())
    };
    let state = move || fleet.ask(FleetRequest::Status).ok();
    PairAsker { state: Arc::new(state), ask: Arc::new(ask) }
}

/// Starts the servers of the control socket and of what else the configuration asks for. If the
/// configuration names no socket, a failure at the default path is no error.
pub(super) fn listen(
    settings: &ControlSettings,
    access: &RemoteAccess,
    router: Router,
) -> Result<Vec<Server>, Failure> {
    let path = settings.socket.as_deref().unwrap_or(Path::new(socket::DEFAULT_PATH));
    let listen = of_group(Listen::unix(path), "control.group", settings.group.as_deref())?;
    let mut servers = Vec::new();
    match (Server::start(listen, router.clone()), &settings.socket) {
        (Ok(server), _) => servers.push(server),
        (Err(BindError::InUse), None) if is_beside(path) => {
            return Err(anyhow!(
                "another natgate runs in this network already, with the control socket {}; stop \
                 that one, or give each control.socket and devices of its own",
                path.display()
            )
            .into());
        }
        (Err(error), None) => {
            let (why, path) = (why(path, &error), path.display());
            let hint = match error {
                BindError::InUse => "",
                _ => "; control.socket names another place",
            };
            say(format!("warning: no commands are taken at {path}: {why}{hint}"));
        }
        (Err(error), Some(_)) => {
            let why = why(path, &error);
            return Err(anyhow!("control.socket {} cannot be used: {why}", path.display()).into());
        }
    }
    if let Some(path) = &settings.read_socket {
        let listen = Listen::unix(path).role(Role::Read);
        let listen = of_group(listen, "control.read_group", settings.read_group.as_deref())?;
        let server = Server::start(listen, router.clone());
        let wrong = |error| unusable("control.read_socket", path.display(), error);
        servers.push(server.map_err(wrong)?);
    }
    if let Some(remote) = &settings.remote {
        let RemoteSettings { listen, certificate, .. } = remote;
        let tls = access
            .load(remote)
            .map_err(|error| Failure::Input(vec![format!("control.tls: {error}")]))?;
        warn_of_lapse(certificate)?;
        let server = Server::start(Listen::tls(*listen, tls), router);
        servers.push(server.map_err(|error| unusable("control.listen", listen, error))?);
        say(format!("commands are taken from other machines at {listen}, with certificates"));
    }
    Ok(servers)
}

/// True if the process that listens at a socket is in our network namespace, as far as the system
/// tells.
fn is_beside(socket: &Path) -> bool {
    let network = |process: &str| Some(fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino());
    let other = socket::listener(socket).and_then(|process| network(&process.to_string()));
    other.is_some() && other == network("self")
}

/// Warns that clients will refuse the certificate. Otherwise only the clients would know.
fn warn_of_lapse(certificate: &Path) -> Result<(), Failure> {
    let validity = Tls::validity(certificate);
    let validity =
        validity.map_err(|error| Failure::Input(vec![format!("control.tls: {error}")]))?;
    let lapsed = match validity {
        Validity::Now => return Ok(()),
        Validity::Until(time) => format!("was valid until {time}"),
        Validity::From(time) => format!("is valid from {time} on"),
    };
    let path = certificate.display();
    say(format!(
        "warning: control.tls: the certificate in {path} {lapsed}, so clients refuse it; put \
         another in its place and reload natgate"
    ));
    Ok(())
}

/// Explains why there is no socket at a path, with the remedy.
fn why(path: &Path, error: &BindError) -> String {
    match error {
        BindError::Io(system) => {
            format!("the socket cannot be made: {}", natgate_service::explain(path, system))
        }
        other => other.to_string(),
    }
}

fn unusable(key: &str, place: impl Display, error: BindError) -> Failure {
    anyhow::Error::from(error).context(format!("{key} {place} cannot be used")).into()
}

/// Adds the group that the configuration key `key` names, if any.
fn of_group(listen: Listen, key: &str, name: Option<&str>) -> Result<Listen, Failure> {
    let Some(name) = name else { return Ok(listen) };
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(listen.group(group.gid.as_raw())),
        _ => Err(Failure::Input(vec![format!(
            "{key}: there is no group {name:?} on this machine; make it with `groupadd {name}`, or \
             name another"
        )])),
    }
}

/// Starts a thread for SIGHUP. The signal reloads the configuration, and makes logs open new files
/// where someone has renamed the old ones.
pub(super) fn reload_on_signal(
    reloader: &Arc<Reloader>,
    reopen: impl Fn() + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("signals cannot be caught")?;
    let reloader = Arc::clone(reloader);
    let listen = move || {
        panics::contain(|| {
            for _ in signals.forever() {
                reopen();
                reload(&reloader);
            }
        });
    };
    thread::Builder::new().name("reload".into()).spawn(listen).context(NO_THREAD)?;
    Ok(())
}

/// Tells the service manager when a configuration is being put in force and when that is done.
pub(super) fn tell_reloads(manager: Manager) -> ReloadObserver {
    Box::new(move |begins| match begins {
        true => manager.reloading(),
        false => manager.reloaded("translating"),
    })
}

/// Reports the gateway's state to the service manager until the minder is dropped.
pub(super) fn mind(manager: Manager, loads: Loads) -> io::Result<Minder> {
    let look = move || {
        let loads = loads.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<_> = loads.iter().map(|load| load.now()).collect();
        let mappings: u64 = now.iter().map(|load| load.mappings).sum();
        let status = match now.len() {
            1 => format!("{mappings} mappings"),
            workers => format!("{mappings} mappings, {workers} workers"),
        };
        // Each turn of a worker sets its age anew.
        (now.iter().map(|load| load.age_ns).collect(), status)
    };
    Minder::start(manager, look)
}

fn reload(reloader: &Reloader) {
    let attempt = reloader.attempt();
    if let Err(ReloadError::Configuration(problems)) = &attempt.result {
        for problem in problems {
            say(problem.to_string());
        }
        say("the configuration is refused; the one in force stays".to_owned());
    }
    say(changes::line("SIGHUP", "reload", &attempt.sentence()));
}
