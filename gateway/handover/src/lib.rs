//! An upgrade in place: a gateway's process hands its state over to another one, by a socket, and
//! ends.
//!
//! The one that goes listens ([`Giver`]); the one that comes asks ([`Heir`]). Records of the state
//! go by pass after pass while packets flow, until little has changed in the last; then the old one
//! takes no more packets, sends the last changes, and waits. The new one says that it has
//! everything, the old one says that it is its, and from then on never takes a packet again: that
//! is the point of no return. Before it, whatever goes wrong (an end of the connection, silence, a
//! refusal) leaves the old one at work; the new one goes on only if it has been told.
//!
//! Where two processes cannot have a device's queues at a time, the old one closes its devices when
//! it has sent everything, and the new one opens them before it says so. If that fails the old one
//! opens its own again.
//!
//! Each worker writes its own state, all at the same time, and the new process' worker with its
//! number reads it.
//!
//! Messages are framed, bounded and have a checksum. What the records mean is the translator's
//! business; what a worker does for it, the gateway's.

#![forbid(unsafe_code)]

mod giver;
mod heir;
mod message;
#[cfg(test)]
mod tests;

pub use giver::{Asker, Gates, Giver, Grant};
pub use heir::{Heir, Taken};

use std::io;
use std::path::{Path, PathBuf};

/// Why a gateway's state is not handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// Nobody listens.
    #[error(
        "no natgate hands over at {}: {error}; start without --take-over, or name the socket of the one that \
         runs by control.socket", .path.display()
    )]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The other process has given a reason.
    #[error("the natgate that runs does not hand over: {0}")]
    Refused(String),
    /// The connection has ended or is silent.
    #[error(
        "the natgate that runs broke the hand-over off ({0}); it goes on as before, unless it has ended"
    )]
    Lost(#[source] io::Error),
    /// What came is not what a gateway sends.
    #[error("what came from the natgate that runs cannot be read ({0}); restart natgate instead")]
    Damaged(&'static str),
    /// The state does not fit the configuration.
    #[error("nat.mapping is not what the natgate that runs has; restart natgate to change it")]
    Behavior,
    /// The tables are too small.
    #[error(
        "{0} mappings find no room; raise limits.mappings, limits.subscribers, limits.extra_sessions or \
         pcp.mappings"
    )]
    Room(u64),
    /// Devices cannot be opened.
    #[error("{0}; the natgate that runs opens its devices again and goes on")]
    Devices(String),
}

/// Where the process with a control socket hands over: beside that socket.
pub fn path_beside(control: &Path) -> PathBuf {
    let mut path = control.as_os_str().to_owned();
    path.push(".take-over");
    path.into()
}
