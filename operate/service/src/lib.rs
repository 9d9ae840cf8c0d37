//! The gateway as a service of systemd or another service manager: notifications, watchdog, log.
//!
//! [`Manager`] sends datagrams to the socket that NOTIFY_SOCKET names (sd_notify(3)). [`Minder`] is
//! the watchdog's thread: at intervals it notifies the manager if all workers make progress.
//! [`Pulse`] decides that: one worker that hangs means no progress, however busy the other threads
//! are. [`log`] writes to standard error, with the priorities that journald reads if standard error
//! goes there. Without a service manager nothing is sent, and lines are written for people.
//! [`explain`] explains a system error about a file in a sentence, with a remedy.
//!
//! ```
//! use natgate_service::{Manager, Priority, Pulse, prefixed, priority_of};
//!
//! let mut pulse = Pulse::default();
//! assert_eq!(pulse.look(&[1, 1]), Ok(()));
//! assert_eq!(pulse.look(&[2, 1]), Err(vec![1]), "worker 1 hangs");
//!
//! let line = "warning: the disk is full";
//! assert_eq!(priority_of(line), Priority::Warning);
//! assert_eq!(prefixed(Priority::Warning, line), "<4>warning: the disk is full\n");
//!
//! // Without a service manager nothing is sent.
//! let manager = Manager::of_environment();
//! manager.status("running");
//! ```

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
