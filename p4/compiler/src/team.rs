//! A program that several threads execute.
//!
//! A [`Team`] has a copy of the program for each thread, or one program for all threads. Copies are
//! for programs in which packets leave nothing that later packets read
//! ([`Program::packet_state`]): controllers change all copies at once, and counters are sums. Every
//! other program exists once, and its threads take turns, one batch of packets each. So a packet
//! finds what all packets before it left, whichever thread received them.
//!
//! A controller changes or reads all copies between batches ([`Team::hold`]). While it waits, no
//! thread begins another batch. Threads that waited for the controller have a batch each before the
//! next controller, so a packet never waits for more than one.
//!
//! [`Program::packet_state`]: crate::Program::packet_state

use crate::machine::{Answer, Error, MOST_ANSWERED, Machine, Request, Target};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The copies of a program, or the only one.
#[derive(Debug)]
pub struct Team<'p> {
    machines: Vec<Mutex<Machine<'p>>>,
    /// True while a controller waits for the machines or has them; a hint, as `gate` decides.
    is_asked: AtomicBool,
    /// Locked for moments only, and after machines.
    gate: Mutex<Gate>,
    /// The gate is open for threads, or for a controller.
    opened: Condvar,
}

/// Turns of threads and controllers.
#[derive(Debug, Default)]
struct Gate {
    /// True while a controller waits for the machines or has them.
    is_held: bool,
    /// Number of threads that wait for their program.
    waiting: usize,
    /// Number of threads that waited at the latest release, and wait still.
    owed: usize,
    /// Number of times that controllers have released the machines.
    releases: u64,
}

/// A thread that waits for its program; the count of such threads is right in a panic, too.
struct Waiting<'t, 'p> {
    team: &'t Team<'p>,
    /// Number of releases when it began to wait.
    since: u64,
}

/// All copies of a program, held between two batches; a controller's requests go to this
/// [`Target`].
#[derive(Debug)]
pub struct Held<'t, 'p> {
    team: &'t Team<'p>,
    machines: Vec<MutexGuard<'t, Machine<'p>>>,
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
            gate: Mutex::default(),
            opened: Condvar::new(),
        }
    }

    /// Takes the program of a thread, for one batch.
    ///
    /// # Panics
    ///
    /// If a thread panicked while it had the program.
    pub(crate) fn take(&self, thread: usize) -> MutexGuard<'_, Machine<'p>> {
        let machine = &self.machines[thread % self.machines.len()];
        if !self.is_asked.load(Ordering::Relaxed)
            && let Ok(machine) = machine.try_lock()
        {
            return machine;
        }
        let _waiting = self.wait();
        lock(machine)
    }

    /// Waits until no controller has the machines.
    fn wait(&self) -> Waiting<'_, 'p> {
        let mut gate = self.gate();
        gate.waiting += 1;
        let waiting = Waiting { team: self, since: gate.releases };
        drop(self.opened.wait_while(gate, |gate| gate.is_held));
        waiting
    }

    /// Locks the gate. Its numbers are right after a panic, too.
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds all copies between two batches; `now` is the time of the requests.
    ///
    /// # Panics
    ///
    /// If a thread panicked while it had the program.
    pub fn hold(&self, now: Duration) -> Held<'_, 'p> {
        let is_closed = |gate: &mut Gate| gate.is_held || gate.owed > 0;
        let gate = self.opened.wait_while(self.gate(), is_closed);
        let mut gate = gate.unwrap_or_else(PoisonError::into_inner);
        gate.is_held = true;
        self.is_asked.store(true, Ordering::Relaxed);
        drop(gate);
        let mut held = Held { team: self, machines: Vec::with_capacity(self.machines.len()) };
        held.machines.extend(self.machines.iter().map(lock));
        held.machines.iter_mut().for_each(|machine| machine.pass(now));
        held
    }
}

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        let mut gate = self.team.gate();
        gate.waiting -= 1;
        if gate.releases != self.since {
            gate.owed -= 1;
            if gate.owed == 0 {
                self.team.opened.notify_all();
            }
        }
    }
}

impl Drop for Held<'_, '_> {
    fn drop(&mut self) {
        let mut gate = self.team.gate();
        gate.is_held = false;
        gate.owed = gate.waiting;
        gate.releases += 1;
        self.team.is_asked.store(false, Ordering::Relaxed);
        drop(gate);
        self.machines.clear();
        self.team.opened.notify_all();
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::thread;

    #[test]
    fn threads_that_waited_for_a_controller_come_before_the_next() {
        const ROUNDS: usize = 100;
        let text = include_str!("../../nat.p4");
        let program = crate::compile("nat.p4", text).expect("it is a program");
        // Threads that share one program.
        let team = Team::new(vec![Machine::new(&program, 0)]);
        let (batches, stop) = ([const { AtomicU32::new(0) }; 2], AtomicBool::new(false));
        let count = || batches.each_ref().map(|batches| batches.load(Ordering::SeqCst));
        thread::scope(|scope| {
            // If this thread panics while it has the program, the others do, too.
            let mut held = team.hold(Duration::ZERO);
            for (thread, batches) in batches.iter().enumerate() {
                let (team, stop) = (&team, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let machine = team.take(thread);
                        batches.fetch_add(1, Ordering::SeqCst);
                        drop(machine);
                    }
                });
            }
            for _ in 0..ROUNDS {
                while team.gate().waiting < 2 {
                    thread::yield_now();
                }
                let before = count();
                drop(held);
                held = team.hold(Duration::ZERO);
                let after = count();
                assert!(after[0] > before[0] && after[1] > before[1], "{before:?}, {after:?}");
            }
            stop.store(true, Ordering::SeqCst);
        });
    }
}
