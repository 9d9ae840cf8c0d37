//! What a service manager such as systemd is told of a running gateway, and how its log reads there.
//!
//! [`Manager`] speaks by datagrams at the socket that NOTIFY_SOCKET names (sd_notify(3)). [`Minder`] is a
//! thread that tells it at intervals that the workers make progress, which [`Pulse`] judges; one that hangs
//! is no progress, however lively the other threads are. [`log`] writes to standard error, with the
//! priorities that journald reads if that is where it goes. Without a service manager nothing happens, and
//! lines are as people read them. [`explain`] puts what the system said of a file into a sentence with a remedy.

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
