//! The daemon's ear: the control socket, and SIGHUP, which reloads the configuration as
//! `natgate reload` does.

use super::say;
use crate::Failure;
use anyhow::Context;
use natgate_control::interface::{Interface, Loads};
use natgate_control::reload::{ReloadError, Reloader};
use natgate_control::socket::{self, BindError, Server};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// Makes the control socket; one that the configuration does not ask for may be missing.
pub(super) fn listen(
    configured: Option<&Path>,
    reloader: &Arc<Reloader>,
    loads: Loads,
) -> Result<Option<Server>, Failure> {
    let path = configured.unwrap_or(Path::new(socket::DEFAULT_PATH));
    let interface = Arc::new(Interface::new(Arc::clone(reloader), loads));
    match (Server::start(path, interface), configured) {
        (Ok(server), _) => Ok(Some(server)),
        (Err(error), None) => {
            let hint = match error {
                BindError::InUse => "",
                BindError::Io(_) => "; control.socket names another place",
            };
            let path = path.display();
            say(format!("warning: no commands are taken at {path}: {error}{hint}"));
            Ok(None)
        }
        (Err(error), Some(_)) => {
            let message = format!("control.socket {} cannot be used", path.display());
            Err(anyhow::Error::from(error).context(message).into())
        }
    }
}

/// Reloads the configuration whenever SIGHUP comes, in a thread of its own.
pub(super) fn reload_on_signal(reloader: &Arc<Reloader>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("signals cannot be caught")?;
    let reloader = Arc::clone(reloader);
    let listen = move || {
        for _ in signals.forever() {
            reload(&reloader);
        }
    };
    thread::Builder::new()
        .name("reload".into())
        .spawn(listen)
        .context("a thread cannot be made")?;
    Ok(())
}

fn reload(reloader: &Reloader) {
    match reloader.reload() {
        Ok(reloaded) => say(crate::reload::sentence(&reloaded.object())),
        Err(ReloadError::Configuration(problems)) => {
            for problem in &problems {
                say(problem.to_string());
            }
            say("the configuration is refused; the one in force stays".to_owned());
        }
        Err(ReloadError::Gateway(error)) => say(format!("not reloaded: {error}")),
    }
}
