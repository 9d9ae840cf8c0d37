//! The end of the gateway. The first SIGTERM or SIGINT makes it leave; the second ends it at once.
//!
//! Leaving begins with the withdrawal of announced routes, so that routers send packets elsewhere.
//! Then the gateway continues to translate for the time that `shutdown.drain` says. It also makes
//! new mappings in that time, because the senders of such packets have no other way yet. Then the
//! workers stop. A separate thread waits for the signals, so that neither workers nor commands wait
//! for them.

use super::{NO_THREAD, Signals, say};
use anyhow::Context;
use natgate_control::reload::Reloader;
use natgate_control::routes::AnnouncementHandle;
use natgate_service::Manager;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Duration;

/// Longest time that the withdrawal of routes delays the draining.
const PATIENCE: Duration = Duration::from_secs(1);

/// Signals that end the gateway. From now on they are kept until a thread listens.
pub(super) struct Ending(iterator::Signals);

impl Ending {
    pub(super) fn catch() -> anyhow::Result<Self> {
        let signals = iterator::Signals::new([SIGTERM, SIGINT]);
        Ok(Self(signals.context("signals cannot be caught")?))
    }

    /// Starts a thread that waits for the signals.
    pub(super) fn listen(self, leaver: Leaver) -> anyhow::Result<()> {
        let Self(mut signals) = self;
        let listen = move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                // If leaving fails, the gateway still ends.
                let left = panic::catch_unwind(AssertUnwindSafe(|| leaver.leave()));
                if left.is_err() {
                    leaver.workers.stop();
                }
            }
            if signals.next().is_some() {
                leaver.workers.stop();
            }
        };
        let thread = Builder::new().name("ending".into()).spawn(listen);
        thread.map(drop).context(NO_THREAD)
    }
}

/// The parts that leaving needs.
pub(super) struct Leaver {
    pub(super) workers: Arc<Signals>,
    pub(super) reloader: Arc<Reloader>,
    /// Withdraws the announced routes, if any.
    pub(super) announcement: Option<AnnouncementHandle>,
    pub(super) manager: Manager,
}

impl Leaver {
    /// Begins to leave. The workers stop when the drain time has passed.
    fn leave(&self) {
        let drain = self.reloader.drain();
        if drain.is_zero() {
            self.manager.stopping("stopping", drain);
            return self.workers.stop();
        }
        let status = format!("draining for {drain:?}");
        self.manager.stopping(&status, drain);
        if let Some(announcement) = &self.announcement {
            announcement.withdraw(PATIENCE);
        }
        say(format!("{status}; another SIGTERM ends it at once"));
        let workers = Arc::clone(&self.workers);
        let stop = move || {
            thread::sleep(drain);
            workers.stop();
        };
        if Builder::new().name("drain".into()).spawn(stop).is_err() {
            // No thread can wait for the end of the drain time, so the workers stop now.
            self.workers.stop();
        }
    }
}
