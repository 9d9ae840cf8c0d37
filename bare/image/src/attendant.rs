//! Housekeeping of the machine beside its work: the console, the keyboard, the clock, and sleep
//! while there is no work.

use crate::machine::{self, clock, console, restart, watchdog, wires};
use natgate_bare::alarm::Alarm;
use natgate_bare::menu::{Failure, Wish};
use natgate_engine::Timestamp;
use std::time::Duration;

/// Interval of housekeeping, and interval of keyboard reads. A read costs as much as some packets,
/// especially in an emulated machine.
const LOOK: Duration = Duration::from_millis(1);
const KEYS: Duration = Duration::from_millis(10);

/// Interval of the saved figures, and of their display if it is switched on.
const SECOND: Duration = Duration::from_secs(1);

/// Time of spinning without frames before a sleep.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// Housekeeping of the machine.
pub(crate) struct Attendant {
    /// Request for interrupts by cards, and true if all cards in use interrupt.
    alarm: Alarm,
    all_interrupt: bool,
    /// True if printed text still waits to be shown and sent.
    is_printing: bool,
    /// Time of the latest work, and number of sleeps since the start.
    last_work: Timestamp,
    sleeps: u64,
    next_look: Timestamp,
    next_keys: Timestamp,
    next_second: Timestamp,
}

/// Results of one round of housekeeping.
pub(crate) struct Look {
    /// Key that was pressed.
    pub(crate) key: Option<u8>,
    /// True if another second has passed.
    pub(crate) is_second: bool,
}

impl Attendant {
    /// Creates the housekeeping of a machine whose cards obey `alarm`.
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

    /// Adds a card in use; `interrupts` is true if it can interrupt.
    pub(crate) fn uses_card(&mut self, interrupts: bool) {
        self.all_interrupt &= interrupts;
    }

    /// Does the housekeeping if it is due. Without a clock there is only the console.
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

    /// Returns true if there has been no work for a while, no text waits, and every possible work
    /// can end a sleep.
    fn may_sleep(&self, now: Timestamp) -> bool {
        now.since(self.last_work) >= SPIN
            && self.all_interrupt
            && watchdog::is_ticking()
            && !self.is_printing
    }

    /// Switches the cards' interrupts on, and holds them back. The caller then looks for work once
    /// more.
    fn prepare_sleep(&mut self) {
        self.alarm.set(true);
        watchdog::hold_interrupts();
    }

    /// Sleeps until a frame comes or the timer ticks. With `work` it does not sleep.
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

    /// Number of sleeps.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps
    }
}

/// Work of the machine.
pub(crate) trait Work {
    /// Housekeeping of the machine.
    fn attendant(&mut self) -> &mut Attendant;

    /// Processes packets; returns true if there was work.
    fn turn(&mut self, now: Timestamp) -> bool;

    /// Handles keys, seconds and everything except packets.
    fn look(&mut self, now: Timestamp, look: Look);

    /// Returns true if no work is due without a packet.
    fn is_idle(&self, now: Timestamp) -> bool;

    /// Announces a sleep to the other workers; returns false if one of them has work for this one.
    fn falls_asleep(&mut self) -> bool {
        true
    }

    /// Announces the end of a sleep, with the begin of the sleep if there was one.
    fn wakes_up(&mut self, _: Option<Timestamp>) {}
}

/// Runs the work until the machine restarts.
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

/// Executes wishes that do not depend on the machine's work; returns the other wishes.
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
