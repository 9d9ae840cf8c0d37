//! How signals and other threads reach the workers.

use natgate_gateway::Controls;
use signal_hook::consts::SIGUSR1;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the workers are told while they run, by signals or otherwise.
pub(super) struct Signals {
    pub(super) stop: Arc<AtomicBool>,
    /// By worker.
    ears: Mutex<Vec<Arc<Ear>>>,
}

/// How one worker is told something.
pub(super) struct Ear {
    /// Whether it is to tell its state.
    pub(super) status: Arc<AtomicBool>,
    /// What wakes it, and the other end.
    wake: UnixStream,
    waker: UnixStream,
}

impl Ear {
    /// What wakes the worker.
    pub(super) fn waker(&self) -> io::Result<UnixStream> {
        self.waker.try_clone()
    }

    /// What the worker listens to.
    pub(super) fn controls<'a>(&'a self, signals: &'a Signals) -> Controls<'a> {
        Controls { stop: &signals.stop, status: &self.status, wake: &self.wake }
    }
}

impl Signals {
    /// For so many workers.
    pub(super) fn catch(workers: usize) -> io::Result<Self> {
        let signals = Self { stop: Arc::default(), ears: Mutex::default() };
        (0..workers).try_for_each(|_| signals.listen().map(drop))?;
        Ok(signals)
    }

    /// For one more.
    pub(super) fn listen(&self) -> io::Result<Arc<Ear>> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let ear = Arc::new(Ear { status: Arc::default(), wake, waker });
        // Actions of a signal are done in the order of registration: the flag first, then the byte.
        signal_hook::flag::register(SIGUSR1, Arc::clone(&ear.status))?;
        signal_hook::low_level::pipe::register(SIGUSR1, ear.waker()?)?;
        self.ears().push(Arc::clone(&ear));
        Ok(ear)
    }

    pub(super) fn ears(&self) -> MutexGuard<'_, Vec<Arc<Ear>>> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What wakes each worker.
    pub(super) fn wakers(&self) -> io::Result<Vec<UnixStream>> {
        self.ears().iter().map(|ear| ear.waker()).collect()
    }

    /// What wakes one.
    pub(super) fn waker_of(&self, worker: usize) -> io::Result<UnixStream> {
        self.ears()[worker].waker()
    }

    /// Has all workers stop.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for ear in self.ears().iter() {
            // A pipe that is full wakes as well.
            let _ = (&ear.waker).write_all(&[0]);
        }
    }
}
