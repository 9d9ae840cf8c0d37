//! `natgate guard`: the guardian of a gateway that is one of a pair. `natgate run` starts it.
//!
//! It waits for the end of the gateway's process, by a pidfd: the kernel says when no thread of it
//! is left. Then it withdraws the routes that the gateway announced, and tells the partner the
//! gateway's boot number. If the gateway's worker makes no progress, the guardian ends the process
//! first. It says nothing to the partner before the kernel has said that the process has ended.

use crate::Failure;
use crate::run::{link_settings, remove_routes_left};
use anyhow::{Context, anyhow};
use natgate_control::config;
use natgate_gateway::Settings;
use natgate_service::say;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Pause without a heartbeat that is counted. Counts, not a clock, tell a gateway that hangs: a
/// machine that stood still has stopped the guardian, too.
const PAUSE: Duration = Duration::from_millis(100);

/// Time to tell the partner. A service manager waits for the guardian before it starts the gateway
/// again, and that start tells the partner as well.
const PATIENCE: Duration = Duration::from_secs(5);

/// Guard a gateway of a pair; `natgate run` starts this
#[derive(clap::Args)]
#[command(after_help = "Example:\nnatgate guard -c /etc/natgate/natgate.toml --process 4711")]
pub(crate) struct Args {
    /// Configuration of the gateway
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Process of the gateway, which has started this one; its heartbeats come by standard input
    #[arg(long, value_name = "PID")]
    process: i32,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // A signal to the whole group or unit means the gateway. This process ends after it.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ignored))
            .context("signals cannot be caught")?;
    }
    let process = Pid::from_raw(args.process)
        .ok_or_else(|| Failure::Input(vec!["--process is no process".to_owned()]))?;
    let settings = args.settings()?;
    let fleet = settings.fleet.as_ref();
    let fleet = fleet.ok_or_else(|| anyhow!("the configuration has no [fleet]"))?;
    let boot = wait(process, fleet.hang).context("the gateway cannot be watched")?;
    // A reload may have changed the routes. A file that cannot be read now changes nothing.
    remove_routes_left(args.settings().as_ref().unwrap_or(&settings));
    if boot == 0 {
        return Ok(());
    }
    let partner = &fleet.partner.node;
    match natgate_partner::tell_end(&link_settings(fleet), boot, PATIENCE) {
        Ok(()) => say(&format!("guardian: node {partner} knows that this gateway has ended")),
        Err(error) => say(&format!(
            "warning: guardian: node {partner} cannot be told that this gateway has ended: \
             {error}; the next start of this node tells it"
        )),
    }
    Ok(())
}

impl Args {
    fn settings(&self) -> Result<Settings, Failure> {
        let read = config::read(&self.config);
        Ok(read.map_err(|problems| Failure::Input(config::sentences(problems)))?.settings)
    }
}

/// Waits for the end of the process. Returns its last boot number; 0: it told none.
fn wait(process: Pid, hang: Duration) -> io::Result<u64> {
    let opened = pidfd_open(process, PidfdFlags::empty());
    // If the parent is another one now, the process had ended, and its number may be another's.
    if getppid() != Some(process) {
        return Ok(0);
    }
    let pidfd = opened?;
    let mut heart = Heart { beats: io::stdin().as_fd().try_clone_to_owned()?.into(), boot: 0 };
    ioctl_fionbio(&heart.beats, true)?;
    let mut is_open = true;
    let mut silence = Duration::ZERO;
    loop {
        let looked = look(&pidfd, is_open.then_some(&heart.beats))?;
        let Some([has_ended, has_beat]) = looked else { continue };
        if has_ended {
            // The last heartbeats are in the pipe.
            while heart.read().is_ok_and(|is_open| is_open) {}
            return Ok(heart.boot);
        }
        if has_beat {
            is_open = heart.read()?;
            silence = Duration::ZERO;
        } else if is_open && heart.boot != 0 {
            silence += PAUSE;
        }
        if silence >= hang {
            say(&format!("guardian: no progress for {hang:?}, so this gateway is ended"));
            pidfd_send_signal(&pidfd, Signal::KILL)?;
            silence = Duration::ZERO;
        }
    }
}

/// The heartbeats of the gateway.
struct Heart {
    beats: File,
    /// The latest boot number.
    boot: u64,
}

impl Heart {
    /// Reads what has come. Returns `false` if nothing more comes.
    fn read(&mut self) -> io::Result<bool> {
        // Each heartbeat was written at once, and the pipe's length is a multiple of its length.
        let mut bytes = [0; 4096];
        let len = self.beats.read(&mut bytes)?;
        if let Some(last) = bytes[..len].as_chunks().0.last() {
            self.boot = u64::from_le_bytes(*last);
        }
        Ok(len > 0)
    }
}

/// Waits for a pause at most. Tells if the process has ended, and if there is a heartbeat. `None`:
/// a signal came.
fn look(pidfd: &OwnedFd, beats: Option<&File>) -> io::Result<Option<[bool; 2]>> {
    let mut places = vec![PollFd::new(pidfd, PollFlags::IN)];
    places.extend(beats.map(|beats| PollFd::new(beats, PollFlags::IN)));
    let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    match poll(&mut places, Some(&pause)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let is_ready = |one: &PollFd<'_>| !one.revents().is_empty();
    Ok(Some([0, 1].map(|place| places.get(place).is_some_and(is_ready))))
}
