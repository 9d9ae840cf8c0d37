//! Threads that read the kernel's notifications until their owner drops them.

use natgate_gateway::panics;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread that ends when this handle is dropped.
#[derive(Debug)]
pub(super) struct Follower {
    /// Closing it wakes the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// The stop signal for a thread.
#[derive(Debug)]
pub(super) struct Stop(UnixStream);

impl Follower {
    /// Starts a thread that runs the function from `work`, which returns at the stop signal.
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
            // The thread has reported all problems already.
            let _ = thread.join();
        }
    }
}

impl Stop {
    /// Waits for the stop signal; returns true if it came within `time`.
    pub(super) fn comes_within(&self, time: Duration) -> bool {
        // Nothing is written: the closed peer makes the socket readable.
        matches!(natgate_io::wait(&[self.as_fd()], time), Ok(true))
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
