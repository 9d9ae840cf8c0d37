//! How the gateway ends: SIGTERM or SIGINT has it leave, the same once more has it end at once.
//!
//! Leaving takes the announced routes away first, so that routers send packets elsewhere, and goes
//! on translating all that still comes for as long as `shutdown.drain` says, new mappings too:
//! whose packets come this way has no other yet. Then the workers stop. A thread of its own waits
//! for the signals, so that neither workers nor commands ever do.

use super::{Signals, say};
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

/// How long the routes' withdrawal may keep the gateway from draining.
const PATIENCE: Duration = Duration::from_secs(1);

/// The signals that end the gateway, from now on kept until somebody listens.
pub(super) struct Ending(iterator::Signals);

impl Ending {
    pub(super) fn catch() -> anyhow::Result<Self> {
        let signals = iterator::Signals::new([SIGTERM, SIGINT]);
        Ok(Self(signals.context("signals cannot be caught")?))
    }

    /// Has a thread listen.
    pub(super) fn listen(self, leaver: Leaver) -> anyhow::Result<()> {
        let Self(mut signals) = self;
        let listen = move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                // Without the farewell it ends all the same.
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
        thread.map(drop).context("a thread cannot be made")
    }
}

/// What it takes to leave.
pub(super) struct Leaver {
    pub(super) workers: Arc<Signals>,
    pub(super) reloader: Arc<Reloader>,
    /// Takes the announced routes away, if there are some.
    pub(super) announcement: Option<AnnouncementHandle>,
    pub(super) manager: Manager,
}

impl Leaver {
    /// Begins to leave; the workers stop when the time has passed.
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
            // Without a thread that waits there is no waiting.
            self.workers.stop();
        }
    }
}
