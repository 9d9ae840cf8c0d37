//! Servers of the daemon: the control socket, the page, metrics, and the socket for a hand-over.
//!
//! A process that takes over opens these servers after the end of the process before, in a thread
//! of its own. Failures are reported.

use super::access::RemoteAccess;
use super::handover::{Giving, unless_taken, wait_until_free};
use super::monitoring::{Listener, MonitoringState};
use super::{control, page, say};
use crate::Failure;
use axum::Router;
use natgate_control::socket::Server;
use natgate_gateway::Settings;
use natgate_handover::{Giver, Heir};
use std::thread::{Builder, JoinHandle};

/// The parts that the servers need.
pub(super) struct ControlServers {
    pub(super) settings: Settings,
    pub(super) access: RemoteAccess,
    pub(super) interface: Router,
    pub(super) watched: MonitoringState,
    pub(super) giving: Giving,
}

/// The open servers. They are closed when this is dropped.
#[derive(Default)]
pub(super) struct Open {
    _control: Vec<Server>,
    _page: Option<Server>,
    _metrics: Option<Server>,
    _giver: Option<Giver>,
    _late: Option<Late>,
}

/// Servers that another thread opens. Drop waits for that thread and closes the servers.
struct Late {
    thread: Option<JoinHandle<Open>>,
}

impl Drop for Late {
    fn drop(&mut self) {
        // A thread that has panicked has reported the panic.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl ControlServers {
    /// Opens the servers.
    pub(super) fn open(&self) -> Result<Open, Failure> {
        self.open_as(false)
    }

    /// Opens the servers after the end of the process before.
    pub(super) fn open_when_gone(self, heir: Heir) -> Open {
        let open = move || {
            heir.wait_until_gone();
            wait_until_free(&self.giving.control);
            self.open_as(true).unwrap_or_default()
        };
        match Builder::new().name("listeners".into()).spawn(open) {
            Ok(thread) => Open { _late: Some(Late { thread: Some(thread) }), ..Open::default() },
            Err(error) => {
                say(format!("warning: no commands are taken: a thread cannot be made: {error}"));
                Open::default()
            }
        }
    }

    fn open_as(&self, is_taken: bool) -> Result<Open, Failure> {
        let control = control::listen(&self.settings.control, &self.access, self.interface.clone());
        let control = unless_taken(is_taken, control)?;
        // If the control socket belongs to another gateway, this gateway must not be found beside
        // it.
        let giver = if control.is_empty() { None } else { self.giving.listen() };
        let page = page::serve(
            &self.settings.page,
            self.interface.clone(),
            self.watched.refused(Listener::Page),
        );
        let page = unless_taken(is_taken, page)?;
        let metrics = unless_taken(is_taken, self.watched.serve(&self.settings.monitoring))?;
        Ok(Open { _control: control, _page: page, _metrics: metrics, _giver: giver, _late: None })
    }
}
