//! Threads that follow the kernel's news until their owner drops them.

use natgate_gateway::panics;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread that ends when it is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    /// Its closing wakes the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The sign for a thread to end.
#[derive(Debug)]
pub(super) struct Stop(UnixStream);

impl Follower {
    /// Starts a thread that does the work that `work` makes; the work ends at the sign.
    pub(super) fn start<W: FnMut() + Send + 'static>(
        name: &str,
        work: impl FnOnce(Stop) -> io::Result<W>,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let work = work(Stop(stopped))?;
        let thread = thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || panics::contain(work))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // The thread has told everything that it had to.
            let _ = thread.join();
        }
    }
}

impl Stop {
    /// Waits for the sign; returns whether it came within that time.
    pub(super) fn comes_within(&self, time: Duration) -> bool {
        // Nothing is ever written: only the end makes it readable, which counts as trouble.
        matches!(natgate_io::wait(&[self.as_fd()], time), Ok(true))
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
