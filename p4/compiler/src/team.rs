//! A program that several threads execute.
//!
//! A [`Team`] has a copy of the program for each thread, or one program for all threads. Copies are
//! for programs in which packets leave nothing that later packets read
//! ([`Program::packet_state`]): controllers change all copies at once, and counters are sums. Every
//! other program exists once, and its threads take turns, one batch of packets each. So a packet
//! finds what all packets before it left, whichever thread received them.
//!
//! A controller changes or reads all copies between batches ([`Team::hold`]). While it waits, no
//! thread begins another batch.
//!
//! [`Program::packet_state`]: crate::Program::packet_state

use crate::machine::{Answer, Error, MOST_ANSWERED, Machine, Request, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The copies of a program, or the only one.
#[derive(Debug)]
pub struct Team<'p> {
    machines: Vec<Mutex<Machine<'p>>>,
    /// True while a controller waits for the machines.
    is_asked: AtomicBool,
    /// Locked by the controller that waits for the machines or has them.
    control: Mutex<()>,
}

/// All copies of a program, held between two batches; a controller's requests go to this
/// [`Target`].
#[derive(Debug)]
pub struct Held<'t, 'p> {
    machines: Vec<MutexGuard<'t, Machine<'p>>>,
    /// Released after the machines.
    _control: MutexGuard<'t, ()>,
}

impl<'p> Team<'p> {
    /// Creates a team of copies of a program: with equal entries, and at most their random numbers
    /// differ.
    ///
    /// # Panics
    ///
    /// If there is no copy, or there are several of a program with [`Program::packet_state`].
    ///
    /// [`Program::packet_state`]: crate::Program::packet_state
    pub fn new(machines: Vec<Machine<'p>>) -> Self {
        let is_fit = match &machines[..] {
            [] => false,
            [_] => true,
            [first, ..] => first.program().packet_state().is_empty(),
        };
        assert!(is_fit, "only a program without a state of packets has copies");
        Self {
            machines: machines.into_iter().map(Mutex::new).collect(),
            is_asked: AtomicBool::new(false),
            control: Mutex::new(()),
        }
    }

    /// Takes the program of a thread, for one batch.
    ///
    /// # Panics
    ///
    /// If a thread panicked while it had the program.
    pub(crate) fn take(&self, thread: usize) -> MutexGuard<'_, Machine<'p>> {
        if self.is_asked.load(Ordering::Relaxed) {
            drop(lock(&self.control));
        }
        lock(&self.machines[thread % self.machines.len()])
    }

    /// Holds all copies between two batches; `now` is the time of the requests.
    ///
    /// # Panics
    ///
    /// If a thread panicked while it had the program.
    pub fn hold(&self, now: Duration) -> Held<'_, 'p> {
        let control = lock(&self.control);
        self.is_asked.store(true, Ordering::Relaxed);
        let mut machines: Vec<_> = self.machines.iter().map(lock).collect();
        self.is_asked.store(false, Ordering::Relaxed);
        machines.iter_mut().for_each(|machine| machine.pass(now));
        Held { machines, _control: control }
    }
}

/// Locks a mutex. What a thread left when it panicked is not used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread of the program has panicked")
}

impl Target for Held<'_, '_> {
    fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
        match request {
            Request::Counters { counter, .. } => self.counters(counter, request),
            Request::SetCounter { .. } => self.set_counter(request),
            Request::Notifications { most } => Ok(self.notifications((*most).min(MOST_ANSWERED))),
            Request::Rows { .. }
            | Request::Row { .. }
            | Request::Default { .. }
            | Request::Meters { .. } => self.machines[0].answer(request),
            Request::Insert(_)
            | Request::Modify(_)
            | Request::Delete { .. }
            | Request::SetDefault { .. }
            | Request::SetMeter { .. }
            | Request::SetProfile { .. }
            | Request::Clear => self.change(request),
        }
    }
}

impl Held<'_, '_> {
    /// Changes all copies. They are equal, so the first refuses what the others would refuse.
    fn change(&mut self, request: &Request) -> Result<Answer, Error> {
        let (first, others) = self.machines.split_first_mut().expect("a team has a program");
        let answer = first.answer(request)?;
        for other in others {
            assert_eq!(other.answer(request).as_ref(), Ok(&answer), "copies are equal");
        }
        Ok(answer)
    }

    /// Sums of the counters of all copies, of the counters' width.
    fn counters(&mut self, counter: &str, request: &Request) -> Result<Answer, Error> {
        let most = self.machines[0].counter_most(counter)?;
        let mut sums: Vec<(u32, u64, u64)> = Vec::new();
        for machine in &mut self.machines {
            let Answer::Counters(cells) = machine.answer(request)? else { continue };
            sums.resize(cells.len(), (0, 0, 0));
            for (sum, (index, packets, bytes)) in sums.iter_mut().zip(cells) {
                let added = |sum: u64, more: u64| sum.wrapping_add(more) & most;
                *sum = (index, added(sum.1, packets), added(sum.2, bytes));
            }
        }
        Ok(Answer::Counters(sums))
    }

    /// Sets a counter of the first copy, and that of the others to zero.
    fn set_counter(&mut self, request: &Request) -> Result<Answer, Error> {
        let mut zero = request.clone();
        if let Request::SetCounter { value, .. } = &mut zero {
            *value = (0, 0);
        }
        let (first, others) = self.machines.split_first_mut().expect("a team has a program");
        let answer = first.answer(request)?;
        for other in others {
            other.answer(&zero)?;
        }
        Ok(answer)
    }

    /// Messages of all copies, each copy's in order. Each copy has a share of the answer, so that
    /// none waits for the others.
    fn notifications(&mut self, most: usize) -> Answer {
        let (count, mut all) = (self.machines.len(), Vec::new());
        for (number, machine) in self.machines.iter_mut().enumerate() {
            let share = (most - all.len()).div_ceil(count - number);
            if let Ok(Answer::Notifications(told)) =
                machine.answer(&Request::Notifications { most: share })
            {
                all.extend(told);
            }
        }
        Answer::Notifications(all)
    }
}
