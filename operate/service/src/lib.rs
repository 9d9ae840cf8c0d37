//! The gateway as a service of systemd or another service manager: notifications, watchdog, log.
//!
//! [`Manager`] sends datagrams to the socket that NOTIFY_SOCKET names (sd_notify(3)). [`Minder`] is
//! the watchdog's thread: at intervals it notifies the manager if all workers make progress.
//! [`Pulse`] decides that: one worker that hangs means no progress, however busy the other threads
//! are. [`log`] writes to standard error, with the priorities that journald reads if standard error
//! goes there. Without a service manager nothing is sent, and lines are written for people.
//! [`explain`] makes a sentence with a remedy of a system error about a file.

mod explain;
mod log;
mod manager;
mod minder;
mod pulse;

pub use explain::{explain, explain_address, explain_folder};
pub use log::{Priority, complain, prefixed, priority_of, say};
pub use manager::Manager;
pub use minder::{Minder, interval};
pub use pulse::Pulse;
