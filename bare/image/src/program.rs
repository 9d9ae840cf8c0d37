//! A P4 program in place of the gateway, between the first two cards, with entries from the file
//! beside the image.

use crate::attendant::{self, Attendant, Look, Work, grant};
use crate::machine::cards::Card;
use crate::machine::last_words::{self, Words};
use crate::machine::{clock, system, watchdog};
use natgate_bare::menu::{ALONE, Menu, PROGRAM_HELP, Wish};
use natgate_bare::text;
use natgate_control::config;
use natgate_engine::Timestamp;
use natgate_p4::{Entries, FIRST_PORT, Machine, Switch, compile, programs};
use std::time::Duration;

/// Name of the file in messages.
pub(crate) const ENTRIES: &str = "entries";

/// The P4 program as the machine's work.
pub(crate) struct Program {
    attendant: Attendant,
    switch: Option<Switch<'static>>,
    menu: Menu,
    shows_counters: bool,
}

impl Program {
    /// Creates the program of this name between cards, with these entries. If there are problems,
    /// it prints them, and only the menu works.
    pub(crate) fn new(
        (name, seed): (&str, u64),
        (cards, mut attendant): (Vec<Card>, Attendant),
        entries: Result<Vec<u8>, Vec<String>>,
    ) -> Self {
        // Compiling the program and allocating its memory are slow.
        watchdog::pause();
        let text = |bytes| config::text_of(bytes, ENTRIES).map_err(config::sentences);
        let switch = entries.and_then(text).and_then(|entries| {
            start((name, seed), cards, &mut attendant, &entries).map_err(|problem| vec![problem])
        });
        watchdog::feed();
        match &switch {
            Ok(_) => println!("the P4 program {name} is running"),
            Err(problems) => problems.iter().for_each(|problem| println!("{problem}")),
        }
        Self { attendant, switch: switch.ok(), menu: Menu::default(), shows_counters: false }
    }

    /// Runs until the machine restarts.
    pub(crate) fn run(self) -> ! {
        print!("{PROGRAM_HELP}");
        attendant::run(self)
    }

    fn grant(&mut self, wish: Wish) {
        match grant(wish) {
            Some(Wish::Counters) => self.shows_counters = !self.shows_counters,
            Some(Wish::Fail(_)) => println!("{ALONE}"),
            Some(_) => print!("{PROGRAM_HELP}"),
            None => {}
        }
    }

    fn every_second(&mut self) {
        let Some(switch) = &mut self.switch else { return };
        switch.maintain();
        let counts = switch.counts();
        if self.shows_counters {
            println!("{counts}");
        }
        last_words::remember(Words::Program(counts));
    }
}

impl Work for Program {
    fn attendant(&mut self) -> &mut Attendant {
        &mut self.attendant
    }

    fn turn(&mut self, now: Timestamp) -> bool {
        self.switch.as_mut().is_some_and(|switch| switch.turn(Duration::from_nanos(now.0)) > 0)
    }

    fn look(&mut self, _: Timestamp, look: Look) {
        if let Some(wish) = look.key.and_then(|key| self.menu.key(key)) {
            self.grant(wish);
        }
        if look.is_second {
            self.every_second();
        }
    }

    fn is_idle(&self, _: Timestamp) -> bool {
        true
    }
}

/// Starts the program between the first two cards.
fn start(
    (name, seed): (&str, u64),
    cards: Vec<Card>,
    attendant: &mut Attendant,
    entries: &str,
) -> Result<Switch<'static>, String> {
    if clock::frequency() == 0 {
        return Err(clock::MISSING.to_owned());
    }
    let missing = || format!("there is no program {name:?} in this image");
    let program = compile(name, programs::text(name).ok_or_else(missing)?);
    // The program lives until the machine restarts.
    let program = Box::leak(Box::new(program.map_err(|error| error.to_string())?));
    let [needed, free] = [program.memory(), system::free_memory()].map(|bytes| bytes >> 20);
    if needed > free / 4 * 3 {
        return Err(format!(
            "the program takes {needed} MiB when packets have filled its tables, and {free} MiB \
             are free, of which other entries need some as well; run it on a machine with more \
             memory"
        ));
    }
    let code = programs::made(name, seed).ok_or_else(missing)?;
    let mut machine = Machine::with(program, code);
    let entries = Entries::read(program, ENTRIES, entries).map_err(|error| error.to_string())?;
    entries.load(&mut machine).map_err(|error| error.to_string())?;
    let count = cards.len();
    let mut devices = Vec::new();
    for card in cards.into_iter().take(2) {
        attendant.uses_card(card.interrupts);
        let device = card.device.map(|(device, _)| device);
        devices.push(device.map_err(|problem| format!("device {}: {problem}", card.name))?);
    }
    let devices = devices.try_into().map_err(|_| {
        format!(
            "a P4 program runs between two network cards, and there are {count} that natgate knows"
        )
    })?;
    let switch = Switch::new(machine, devices);
    for (port, device) in (FIRST_PORT..).zip(switch.devices()) {
        println!("port {port}: {}", text::link(device.link()));
    }
    Ok(switch)
}
