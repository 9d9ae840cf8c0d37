//! Notifications to the service manager that started the program (sd_notify(3)).

use sd_notify::NotifyState;
use std::io;
use std::time::Duration;

/// Time to stop after a drain: ports are written to the state file, files are closed.
const REST: Duration = Duration::from_secs(30);

/// The service manager, if one has started the program.
#[derive(Clone, Copy, Debug)]
pub struct Manager {
    is_there: bool,
    watchdog: Option<Duration>,
}

impl Manager {
    /// The service manager that the environment names.
    pub fn of_environment() -> Self {
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty());
        let watchdog = sd_notify::watchdog_enabled().filter(|time| is_there && !time.is_zero());
        Self { is_there, watchdog }
    }

    /// True if a service manager started the program.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// The interval within which the manager expects a sign of life, if it expects any.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Notifies the manager that packets are translated.
    ///
    /// # Errors
    /// The socket has no listener; the manager will then end this program as one that is not ready.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)])
    }

    /// Notifies the manager that a reload begins; [`Manager::reloaded`] has to follow.
    pub fn reloading(&self) {
        // Managers that know `Type=notify-reload` want the time, too; others leave it out.
        let now = NotifyState::monotonic_usec_now();
        let told = now.and_then(|now| self.tell(&[NotifyState::Reloading, now]));
        drop(told);
    }

    /// Notifies the manager that the configuration is in force, or was refused.
    pub fn reloaded(&self, status: &str) {
        self.mention(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Notifies the manager that the program ends after a drain of this length.
    pub fn stopping(&self, status: &str, drain: Duration) {
        let more = (drain + REST).as_micros().try_into().unwrap_or(u32::MAX);
        self.mention(&[
            NotifyState::Stopping,
            NotifyState::Status(status),
            NotifyState::ExtendTimeoutUsec(more),
        ]);
    }

    /// Notifies the manager that another process of the service takes this one's place.
    pub fn succeeded_by(&self, process: u32) {
        self.mention(&[NotifyState::MainPid(process)]);
    }

    /// Sends the status, and that all workers make progress.
    pub fn alive(&self, status: &str) {
        let states = [NotifyState::Status(status), NotifyState::Watchdog];
        self.mention(if self.watchdog.is_some() { &states } else { &states[..1] });
    }

    /// Sends the status alone.
    pub fn status(&self, status: &str) {
        self.mention(&[NotifyState::Status(status)]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) -> io::Result<()> {
        if self.is_there { sd_notify::notify(states) } else { Ok(()) }
    }

    /// Sends a notification that may be lost.
    fn mention(&self, states: &[NotifyState<'_>]) {
        drop(self.tell(states));
    }
}
