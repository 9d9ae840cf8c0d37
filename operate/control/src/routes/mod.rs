//! Routes exchanged with the kernel of the machine, by netlink, and so with a routing daemon there.
//!
//! [`Announcer`] puts routes to the external addresses into one of the kernel's tables while the
//! gateway works; a daemon that redistributes the kernel's routes passes them on. [`Learner`]
//! follows one of the kernel's tables and has the router go by what is there. Each has a thread of
//! its own and no part in the way of packets.
//!
//! What a daemon does with the routes is its own business: natgate speaks no routing protocol.

mod announcer;
mod follower;
mod learner;
mod netlink;
mod table;
mod watch;

pub use announcer::{Announcer, Withdrawal, announced, external_prefixes, external_ranges};
pub use learner::Learner;

use std::io;

/// What a thread tells the operator.
pub type Tell = Box<dyn FnMut(String) + Send>;

/// Why routes cannot be exchanged.
#[derive(Debug)]
pub struct RoutesError {
    /// What was tried.
    what: String,
    /// What the system says.
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
