//! An upgrade in place: the process of a gateway hands its state over to another process, by a
//! socket, and ends.
//!
//! The old process listens ([`Giver`]); the new one asks ([`Heir`]). Records of the state are sent
//! pass after pass while packets flow, until little has changed in the last pass. Then the old
//! process takes no more packets, sends the last changes, and waits. The new process confirms that
//! it has everything. The old process replies that the gateway is the new one's, and from then on
//! never takes a packet again: that is the point of no return. Before it, any failure (an end of
//! the connection, silence, a refusal) leaves the old process at work. The new process goes on only
//! after that reply.
//!
//! If two processes cannot have a device's queues at a time, the old process closes its devices
//! after it has sent everything, and the new one opens them before it confirms. If that fails, the
//! old process opens its devices again.
//!
//! All workers write their state at the same time. The worker with the same number in the new
//! process reads it.
//!
//! Messages are framed, bounded and have a checksum. The translator defines the records; the
//! gateway crate defines what a worker does.
//!
//! Call order of the new process:
//!
//! ```
//! use natgate_gateway::Worker;
//! use natgate_handover::{HandoverError, Heir};
//! use std::path::Path;
//!
//! fn take_over(workers: &mut [Worker], socket: &Path) -> Result<u64, HandoverError> {
//!     let mut heir = Heir::ask(socket, workers.len(), false)?;
//!     heir.fill(workers)?;
//!     let taken = heir.take(workers, |_| Ok(()))?;
//!     heir.wait_until_gone();
//!     Ok(taken.restored.mappings)
//! }
//!
//! let alone = take_over(&mut [], Path::new("/run/natgate/no-such.sock"));
//! assert!(matches!(alone, Err(HandoverError::Nobody { .. })));
//! ```

#![forbid(unsafe_code)]

mod giver;
mod heir;
mod message;
#[cfg(test)]
mod tests;

pub use giver::{Asker, Gates, Giver, Grant};
pub use heir::{Heir, TakeOver};

use natgate_gateway::ipv6::UnfitHost;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a gateway's state is not handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// No process listens.
    #[error(
        "no natgate hands over at {}: {error}; start without --take-over, or name the socket of \
         the one that runs by control.socket", .path.display()
    )]
    Nobody {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The other process has given a reason.
    #[error("the natgate that runs does not hand over: {0}")]
    Refused(String),
    /// The connection has ended or is silent.
    #[error(
        "the natgate that runs broke the hand-over off ({0}); it goes on as before, unless it has \
         ended"
    )]
    Lost(#[source] io::Error),
    /// A message is not one that a gateway sends.
    #[error("what came from the natgate that runs cannot be read ({0}); restart natgate instead")]
    Damaged(&'static str),
    /// The state does not fit the configuration.
    #[error("nat.mapping is not what the natgate that runs has; restart natgate to change it")]
    Behavior,
    /// The tables are too small.
    #[error(
        "{0} mappings find no room; raise limits.mappings, limits.subscribers, \
         limits.extra_sessions or pcp.mappings"
    )]
    Room(u64),
    /// The hosts of NAT64 or DS-Lite do not fit the configuration.
    #[error("{0}; restart natgate to change it")]
    Host(UnfitHost),
    /// Devices cannot be opened.
    #[error("{0}; the natgate that runs opens its devices again and goes on")]
    Devices(String),
}

/// Path of the socket for take-overs: beside the control socket.
pub fn path_beside(control: &Path) -> PathBuf {
    let mut path = control.as_os_str().to_owned();
    path.push(".take-over");
    path.into()
}
