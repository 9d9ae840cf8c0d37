//! Paths by which signals and other threads reach the workers.

use natgate_gateway::Controls;
use signal_hook::consts::SIGUSR1;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Flags and wakers that reach the running workers.
pub(super) struct Signals {
    pub(super) stop: Arc<AtomicBool>,
    /// The signals of each worker, by number.
    workers: Mutex<Vec<Arc<WorkerSignals>>>,
}

/// Flags and waker of one worker.
pub(super) struct WorkerSignals {
    /// Set if the worker is to tell its state.
    pub(super) status: Arc<AtomicBool>,
    /// The end that the worker watches, and the end that wakes it.
    wake: UnixStream,
    waker: UnixStream,
}

impl WorkerSignals {
    /// Returns a stream that wakes the worker.
    pub(super) fn waker(&self) -> io::Result<UnixStream> {
        self.waker.try_clone()
    }

    /// Returns the flags and the waker that the worker watches.
    pub(super) fn controls<'a>(&'a self, signals: &'a Signals) -> Controls<'a> {
        Controls { stop: &signals.stop, status: &self.status, wake: &self.wake }
    }
}

impl Signals {
    /// Makes flags and wakers for `workers` workers, and catches the signals.
    pub(super) fn catch(workers: usize) -> io::Result<Self> {
        let signals = Self { stop: Arc::default(), workers: Mutex::default() };
        (0..workers).try_for_each(|_| signals.listen().map(drop))?;
        Ok(signals)
    }

    /// Adds one more worker.
    pub(super) fn listen(&self) -> io::Result<Arc<WorkerSignals>> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let worker = Arc::new(WorkerSignals { status: Arc::default(), wake, waker });
        // Actions of a signal run in the order of registration: the flag first, then the byte.
        signal_hook::flag::register(SIGUSR1, Arc::clone(&worker.status))?;
        signal_hook::low_level::pipe::register(SIGUSR1, worker.waker()?)?;
        self.workers().push(Arc::clone(&worker));
        Ok(worker)
    }

    pub(super) fn workers(&self) -> MutexGuard<'_, Vec<Arc<WorkerSignals>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams that wake the workers, one each.
    pub(super) fn wakers(&self) -> io::Result<Vec<UnixStream>> {
        self.workers().iter().map(|worker| worker.waker()).collect()
    }

    /// The stream that wakes one worker.
    pub(super) fn waker_of(&self, worker: usize) -> io::Result<UnixStream> {
        self.workers()[worker].waker()
    }

    /// Stops all workers.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers().iter() {
            // If the pipe is full, the worker wakes anyway.
            let _ = (&worker.waker).write_all(&[0]);
        }
    }
}
