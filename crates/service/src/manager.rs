//! The service manager that has started the program, and what it is told (sd_notify(3)).

use sd_notify::NotifyState;
use std::io;
use std::time::Duration;

/// What is left of the stop's time when a drain has passed: ports are written down, files closed.
const REST: Duration = Duration::from_secs(30);

/// The service manager, if one has started the program.
#[derive(Clone, Copy, Debug)]
pub struct Manager {
    is_there: bool,
    watchdog: Option<Duration>,
}

impl Manager {
    /// As the environment says.
    pub fn of_environment() -> Self {
        let is_there = std::env::var_os("NOTIFY_SOCKET").is_some_and(|path| !path.is_empty());
        let watchdog = sd_notify::watchdog_enabled().filter(|time| is_there && !time.is_zero());
        Self { is_there, watchdog }
    }

    /// Whether there is anybody to tell.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// How long it waits for a sign of life, if it wants any.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Packets are translated.
    ///
    /// # Errors
    /// When nobody listens at the socket: then this program will be ended as one that never got ready.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)])
    }

    /// A configuration is read anew; [`Manager::reloaded`] is to follow.
    pub fn reloading(&self) {
        // Managers that know `Type=notify-reload` want the time, too; others leave it out.
        let now = NotifyState::monotonic_usec_now();
        let told = now.and_then(|now| self.tell(&[NotifyState::Reloading, now]));
        drop(told);
    }

    /// The configuration has been read, and is in force or refused.
    pub fn reloaded(&self, status: &str) {
        self.mention(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The program ends when it has drained for so long.
    pub fn stopping(&self, status: &str, drain: Duration) {
        let more = (drain + REST).as_micros().try_into().unwrap_or(u32::MAX);
        self.mention(&[
            NotifyState::Stopping,
            NotifyState::Status(status),
            NotifyState::ExtendTimeoutUsec(more),
        ]);
    }

    /// Another process of the service goes on in this one's place, and is heard from now on.
    pub fn succeeded_by(&self, process: u32) {
        self.mention(&[NotifyState::MainPid(process)]);
    }

    /// Says how things are, and that all workers make progress.
    pub fn alive(&self, status: &str) {
        let states = [NotifyState::Status(status), NotifyState::Watchdog];
        self.mention(if self.watchdog.is_some() { &states } else { &states[..1] });
    }

    /// Says how things are, and nothing of progress.
    pub fn status(&self, status: &str) {
        self.mention(&[NotifyState::Status(status)]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) -> io::Result<()> {
        if self.is_there { sd_notify::notify(states) } else { Ok(()) }
    }

    /// Who does not hear it will notice by itself.
    fn mention(&self, states: &[NotifyState<'_>]) {
        drop(self.tell(states));
    }
}
