//! What a machine does besides its work: the console, keys, the clock, and sleep while there is
//! nothing to do.

use crate::machine::{self, clock, console, restart, watchdog, wires};
use natgate_bare::alarm::Alarm;
use natgate_bare::menu::{Failure, Wish};
use natgate_engine::Timestamp;
use std::time::Duration;

/// How often everything but packets is looked after, and how often keys are asked for: to ask costs
/// as much as some packets, in an emulated machine above all.
const LOOK: Duration = Duration::from_millis(1);
const KEYS: Duration = Duration::from_millis(10);

/// How often figures are remembered, and shown if somebody wants to see them.
const SECOND: Duration = Duration::from_secs(1);

/// How long to look for frames before sleeping.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// Who looks after the machine.
pub(crate) struct Attendant {
    /// By what cards are told to interrupt, and whether all that are in use do.
    alarm: Alarm,
    all_interrupt: bool,
    /// Whether what was printed has not been shown and sent yet.
    is_printing: bool,
    /// When there was something to do last, and how often it has slept since the start.
    last_work: Timestamp,
    sleeps: u64,
    next_look: Timestamp,
    next_keys: Timestamp,
    next_second: Timestamp,
}

/// What there is to do, now and then.
pub(crate) struct Look {
    /// The key that somebody has pressed.
    pub(crate) key: Option<u8>,
    /// Whether another second has passed.
    pub(crate) is_second: bool,
}

impl Attendant {
    /// Of a machine whose cards are told by `alarm` when to interrupt.
    pub(crate) fn new(alarm: Alarm) -> Self {
        let now = clock::timestamp();
        Self {
            alarm,
            all_interrupt: true,
            is_printing: true,
            last_work: now,
            sleeps: 0,
            next_look: now,
            next_keys: now,
            next_second: now,
        }
    }

    /// Another card is in use, which interrupts or does not.
    pub(crate) fn uses_card(&mut self, interrupts: bool) {
        self.all_interrupt &= interrupts;
    }

    /// Looks after the machine, when it is time to. Without a clock there is the console and no
    /// more.
    fn look(&mut self, now: Timestamp) -> Option<Look> {
        if now < self.next_look && clock::frequency() != 0 {
            return None;
        }
        self.next_look = now.plus(LOOK);
        watchdog::feed();
        clock::compare();
        self.is_printing = !console::pump();
        let mut look = Look { key: None, is_second: now >= self.next_second };
        if now >= self.next_keys {
            self.next_keys = now.plus(KEYS);
            look.key = console::key();
        }
        if look.is_second {
            self.next_second = now.plus(SECOND);
        }
        Some(look)
    }

    /// Whether there has been nothing to do for a while and nothing waits, and whatever comes can
    /// end a sleep.
    fn may_sleep(&self, now: Timestamp) -> bool {
        now.since(self.last_work) >= SPIN
            && self.all_interrupt
            && watchdog::is_ticking()
            && !self.is_printing
    }

    /// Has cards interrupt from now on, and holds that back: whoever is going to sleep looks for
    /// work once more.
    fn prepare_sleep(&mut self) {
        self.alarm.set(true);
        watchdog::hold_interrupts();
    }

    /// Sleeps until a frame comes or the timer ticks, unless there was work just now.
    fn sleep(&mut self, work: Option<Timestamp>) {
        if let Some(now) = work {
            self.last_work = now;
            watchdog::allow_interrupts();
        } else {
            self.sleeps += 1;
            wires::open();
            watchdog::sleep();
        }
        self.alarm.set(false);
    }

    /// How often it has slept.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps
    }
}

/// The machine's work.
pub(crate) trait Work {
    /// Who looks after the machine meanwhile.
    fn attendant(&mut self) -> &mut Attendant;

    /// Takes packets where they belong; whether there was anything to do.
    fn turn(&mut self, now: Timestamp) -> bool;

    /// Looks after everything but packets.
    fn look(&mut self, now: Timestamp, look: Look);

    /// Whether nothing is under way that comes without a packet.
    fn is_idle(&self, now: Timestamp) -> bool;

    /// Says to others that it is going to sleep; `false`: one of them has something for it.
    fn falls_asleep(&mut self) -> bool {
        true
    }

    /// Says that it is awake, after a sleep that began then, if it has slept.
    fn wakes_up(&mut self, _: Option<Timestamp>) {}
}

/// Works until the machine starts again.
pub(crate) fn run(mut work: impl Work) -> ! {
    loop {
        let now = clock::timestamp();
        if work.turn(now) {
            work.attendant().last_work = now;
        }
        if let Some(look) = work.attendant().look(now) {
            work.look(now, look);
        }
        if work.attendant().may_sleep(now) && work.is_idle(now) {
            work.attendant().prepare_sleep();
            let now = clock::timestamp();
            let is_busy = work.turn(now) || !work.falls_asleep();
            let begin = clock::timestamp();
            work.attendant().sleep(is_busy.then_some(now));
            work.wakes_up((!is_busy).then_some(begin));
        }
    }
}

/// Does what is the same whatever the machine's work is; gives back what is not.
pub(crate) fn grant(wish: Wish) -> Option<Wish> {
    match wish {
        Wish::Reboot => {
            println!("the machine starts again");
            restart::restart()
        }
        Wish::Ask(question) => print!("{question}"),
        Wish::Fail(Failure::Panic) => panic!("a panic was asked for"),
        Wish::Fail(Failure::Exception) => machine::fail(),
        Wish::Fail(Failure::StandStill) => machine::stand_still(),
        other => return Some(other),
    }
    None
}
