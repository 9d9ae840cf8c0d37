//! Routes exchanged with the kernel of the machine by netlink, and so with a routing daemon.
//!
//! [`Announcer`] adds routes to the external addresses to a table of the kernel while the gateway
//! works; a daemon may redistribute them. [`Learner`] follows a table of the kernel and gives its
//! routes to the router. Each has its own thread and is not part of the packet path.
//!
//! natgate itself speaks no routing protocol.

mod announcer;
mod follower;
mod learner;
mod netlink;
mod plan;
mod table;
mod watch;

pub use announcer::{AnnouncementHandle, Announcer, announced};
pub use learner::Learner;
pub use plan::{AnnouncedRoute, RoutePlan};

use std::io;

/// Writes a line for the operator.
pub type Tell = Box<dyn FnMut(String) + Send>;

/// An error of the exchange of routes.
#[derive(Debug)]
pub struct RoutesError {
    /// The operation that failed.
    what: String,
    /// The error of the system.
    error: io::Error,
}

impl std::fmt::Display for RoutesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, error } = self;
        write!(f, "{what}: {error}")?;
        match error.kind() {
            io::ErrorKind::PermissionDenied => f.write_str("; run as root, or with CAP_NET_ADMIN"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for RoutesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
