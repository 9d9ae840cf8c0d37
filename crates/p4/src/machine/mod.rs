//! The interpreter: packets through a program, one after the other, with tables that a control plane fills.
//!
//! It is made to be right and to be read: every bit is a loop's turn, tables that are not exact are searched from
//! end to end. Time comes with the packets; nothing else is asked of the world, so the same calls give the same
//! bytes.

mod bits;
mod externs;
mod run;
mod table;

pub use externs::Rates;

use crate::ir::{Action, Match, MatchKind, ObjectKind, Program, Slot, Table};
use bits::{Cursor, Writer};
use externs::{Memory, Meter};
use run::{Flow, Run};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use table::{Entries, Entry};

/// Entries expire on ticks of so many nanoseconds.
const TICK: u64 = 125_000_000;

/// Most digests that wait for the control plane.
const MOST_DIGESTS: usize = 1024;

/// How long entries stay if nothing is said of their profile.
const USUAL_TIMEOUT: Duration = Duration::from_secs(120);

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves by a port.
    Sent {
        /// The port.
        port: u32,
        /// The packet.
        packet: Vec<u8>,
    },
    /// It goes nowhere.
    Dropped,
}

/// What an entry asks of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// This value.
    Exact(u128),
    /// A value's first so many bits.
    Prefix(u128, u32),
    /// A value's bits where the mask has ones.
    Masked(u128, u128),
}

/// Why the control plane is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is nothing of that name, or several are.
    #[error("there is no one {what} `{name}`; the program has {there}")]
    Name {
        /// What it would be.
        what: &'static str,
        /// The name.
        name: String,
        /// What there is.
        there: String,
    },
    /// Keys or arguments are not as many, or as wide, as they should be.
    #[error("{0}")]
    Values(String),
    /// The table is full.
    #[error("the table `{0}` is full; give it a larger `size`")]
    Full(String),
    /// The entry, or the default, is part of the program.
    #[error("`{0}` is const in the program; change it there")]
    Const(String),
}

/// A message from a program to its control plane.
#[derive(Clone, Debug)]
struct Digest {
    object: usize,
    values: Vec<u128>,
}

/// A program at work.
#[derive(Debug)]
pub struct Machine<'p> {
    program: &'p Program,
    tables: Vec<Entries>,
    /// Of every table: an index into its actions, and arguments.
    defaults: Vec<(usize, Vec<u128>)>,
    memory: Vec<Memory>,
    /// By profile.
    timeouts: Vec<Duration>,
    digests: VecDeque<Digest>,
    lost: u64,
    now: u64,
}

impl<'p> Machine<'p> {
    /// With the program's own entries; `seed` is that of its random numbers.
    pub fn new(program: &'p Program, seed: u64) -> Self {
        let mut tables = Vec::new();
        for table in &program.tables {
            let mut entries = Entries::default();
            for (number, entry) in table.entries.iter().enumerate() {
                // The first of them wins, and all win over what is added.
                let priority = u32::MAX - number as u32;
                let (action, args) = (entry.action, entry.args.clone());
                let entry_ = Entry { action, args, priority, deadline: None, timeout: 0 };
                let known = entries.get_mut(&entry.keys).is_some();
                if !known {
                    entries.insert(table, 0, entry.keys.clone(), entry_);
                }
            }
            tables.push(entries);
        }
        Self {
            program,
            tables,
            defaults: program.tables.iter().map(|table| table.default.clone()).collect(),
            memory: program.objects.iter().map(|object| Memory::new(&object.kind, seed)).collect(),
            timeouts: vec![USUAL_TIMEOUT; 256],
            digests: VecDeque::new(),
            lost: 0,
            now: 0,
        }
    }

    /// Takes a packet that came in by a port; `now` is the time since some beginning, and does not go back.
    pub fn process(&mut self, now: Duration, port: u32, packet: &[u8]) -> Outcome {
        self.now = self.now.max(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        for (memory, object) in self.memory.iter_mut().zip(&self.program.objects) {
            if object.kind == ObjectKind::Checksum {
                *memory = Memory::Checksum(0);
            }
        }
        let (program, now) = (self.program, self.now);
        let mut run = Run {
            slots: vec![0; program.slots.len()],
            machine: self,
            now,
            packet,
            cursor: Cursor::default(),
            out: Writer::default(),
            port: None,
            error: 0,
            steps: 0,
            applied: None,
        };
        let shared = &program.metadata;
        fill(&mut run.slots, &shared.input_ports, port.into());
        fill(&mut run.slots, &shared.timestamps, now.into());
        let _: Flow = run.parse(program.parser);
        let error = run.error;
        fill(&mut run.slots, &shared.parser_errors, error);
        // Headers and metadata go from part to part.
        for part in 1..4 {
            for param in 0..2 {
                // What pre control may not change of the headers, main control has from the parser.
                let before = if (part, param) == (2, 0) { 0 } else { part - 1 };
                let (from, size) = shared.params[before][param];
                copy(&mut run.slots, from, shared.params[part][param].0, size);
            }
            let _: Flow = run.call(program.controls[part - 1], &[]);
        }
        let (port, cursor) = (run.port, run.cursor);
        let mut bytes = run.out.finish();
        bytes.extend_from_slice(&packet[cursor.at.div_ceil(8)..]);
        match port {
            Some(port) => Outcome::Sent { port, packet: bytes },
            None => Outcome::Dropped,
        }
    }

    /// Adds an entry, or replaces the one with the same keys. Of several ternary entries that match the one with
    /// the highest priority wins.
    ///
    /// # Errors
    ///
    /// Names, keys or arguments are not the program's, or the table is full.
    pub fn insert(
        &mut self,
        table: &str,
        keys: &[Key],
        action: &str,
        args: &[u128],
        priority: u32,
    ) -> Result<(), Error> {
        let index = self.table(table)?;
        let found = &self.program.tables[index];
        let keys = matches(found, keys)?;
        if found.entries.iter().any(|entry| entry.keys == keys) {
            return Err(Error::Const(found.name.to_string()));
        }
        let (action, args) = self.chosen(found, action, args)?;
        let entry = Entry { action, args, priority, deadline: None, timeout: 0 };
        match self.tables[index].insert(found, self.now, keys, entry) {
            true => Ok(()),
            false => Err(Error::Full(found.name.to_string())),
        }
    }

    /// Removes an entry; whether it was there.
    ///
    /// # Errors
    ///
    /// As for [`Self::insert`].
    pub fn remove(&mut self, table: &str, keys: &[Key]) -> Result<bool, Error> {
        let index = self.table(table)?;
        let found = &self.program.tables[index];
        let keys = matches(found, keys)?;
        match found.entries.iter().any(|entry| entry.keys == keys) {
            true => Err(Error::Const(found.name.to_string())),
            false => Ok(self.tables[index].remove(&keys)),
        }
    }

    /// Sets what a table does with keys that it does not have.
    ///
    /// # Errors
    ///
    /// Names or arguments are not the program's, or the program says it for good.
    pub fn set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), Error> {
        let index = self.table(table)?;
        let found = &self.program.tables[index];
        if found.default_is_const {
            return Err(Error::Const(found.name.to_string()));
        }
        self.defaults[index] = self.chosen(found, action, args)?;
        Ok(())
    }

    /// How many entries a table has.
    ///
    /// # Errors
    ///
    /// There is no such table.
    pub fn entries(&self, table: &str) -> Result<usize, Error> {
        Ok(self.tables[self.table(table)?].count(self.now))
    }

    /// Packets and bytes of a counter.
    ///
    /// # Errors
    ///
    /// There is no such counter.
    pub fn counter(&self, name: &str, index: u32) -> Result<(u64, u64), Error> {
        let object = self.object("counter", name)?;
        match &self.memory[object] {
            Memory::Counter(cells) => Ok(cells.get(&index).copied().unwrap_or_default()),
            _ => Err(self.unknown("counter", name)),
        }
    }

    /// Gives a meter its rates, and full buckets.
    ///
    /// # Errors
    ///
    /// There is no such meter.
    pub fn set_meter(&mut self, name: &str, index: u32, rates: Rates) -> Result<(), Error> {
        let (object, now) = (self.object("meter", name)?, self.now);
        let unknown = self.unknown("meter", name);
        match (&mut self.memory[object], &self.program.objects[object].kind) {
            (Memory::Meter(cells), ObjectKind::Meter { size, .. }) if index < *size => {
                cells.insert(index, Meter::new(rates, now));
                Ok(())
            }
            _ => Err(unknown),
        }
    }

    /// How long entries of a profile stay without being restarted; two minutes, if nothing is said.
    pub fn set_profile(&mut self, profile: u8, timeout: Duration) {
        self.timeouts[usize::from(profile)] = timeout;
    }

    /// The oldest message to the control plane: the name of its digest, and its fields.
    pub fn digest(&mut self) -> Option<(&'p str, Vec<(&'p str, u128)>)> {
        let Digest { object, values } = self.digests.pop_front()?;
        let object = &self.program.objects[object];
        let ObjectKind::Digest { fields } = &object.kind else { return None };
        let names = fields.iter().map(|(name, _)| &**name);
        Some((&object.name, names.zip(values).collect()))
    }

    /// How many digests found no place.
    pub fn digests_lost(&self) -> u64 {
        self.lost
    }

    /// A profile's time, nanoseconds.
    fn timeout(&self, profile: u128) -> u64 {
        let timeout = self.timeouts.get(profile as usize).copied().unwrap_or(USUAL_TIMEOUT);
        u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)
    }

    fn table(&self, name: &str) -> Result<usize, Error> {
        let names: Vec<&Rc<str>> = self.program.tables.iter().map(|table| &table.name).collect();
        named("table", &names, name)
    }

    fn object(&self, what: &'static str, name: &str) -> Result<usize, Error> {
        let names: Vec<&Rc<str>> = self.program.objects.iter().map(|object| &object.name).collect();
        named(what, &names, name)
    }

    fn unknown(&self, what: &'static str, name: &str) -> Error {
        Error::Name { what, name: name.to_owned(), there: "none such".to_owned() }
    }

    fn chosen(
        &self,
        table: &Table,
        name: &str,
        args: &[u128],
    ) -> Result<(usize, Vec<u128>), Error> {
        let actions: Vec<&Action> =
            table.actions.iter().map(|action| &self.program.actions[*action]).collect();
        let names: Vec<&Rc<str>> = actions.iter().map(|action| &action.name).collect();
        let position = named("action", &names, name)?;
        let params = &actions[position].params;
        let fits = params.iter().zip(args).all(|((_, _, ty), arg)| *arg <= ty.mask());
        match params.len() == args.len() && fits {
            true => Ok((position, args.to_vec())),
            false => {
                let words: Vec<_> =
                    params.iter().map(|(name, _, ty)| format!("{ty} {name}")).collect();
                let what = format!("`{name}` takes the arguments ({})", words.join(", "));
                Err(Error::Values(what))
            }
        }
    }
}

fn fill(slots: &mut [u128], places: &[Slot], value: u128) {
    places.iter().for_each(|place| slots[*place as usize] = value);
}

fn copy(slots: &mut [u128], from: Slot, to: Slot, size: usize) {
    slots.copy_within(from as usize..from as usize + size, to as usize);
}

/// The one that has a name, or whose name ends in it after a dot.
fn named(what: &'static str, names: &[&Rc<str>], name: &str) -> Result<usize, Error> {
    let ends = |full: &str| full.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    let exact = names.iter().position(|full| &***full == name);
    let mut ending = (0..names.len()).filter(|number| ends(names[*number]));
    match (exact, ending.next(), ending.next()) {
        (Some(found), ..) | (None, Some(found), None) => Ok(found),
        _ => {
            let there: Vec<String> = names.iter().map(|full| format!("`{full}`")).collect();
            Err(Error::Name { what, name: name.to_owned(), there: there.join(", ") })
        }
    }
}

/// Keys as the table compares them.
fn matches(table: &Table, keys: &[Key]) -> Result<Vec<Match>, Error> {
    let wrong = || {
        let words = table.keys.iter().map(|key| {
            let kind = format!("{:?}", key.kind).to_lowercase();
            format!("{} {} ({kind})", key.expr.ty, key.name)
        });
        let words: Vec<_> = words.collect();
        Error::Values(format!("the keys of `{}` are {}", table.name, words.join(", ")))
    };
    if keys.len() != table.keys.len() {
        return Err(wrong());
    }
    let pairs = table.keys.iter().zip(keys);
    pairs
        .map(|(key, given)| {
            let all = key.expr.ty.mask();
            let (value, mask) = match (key.kind, *given) {
                (_, Key::Exact(value)) => (value, all),
                (MatchKind::Lpm, Key::Prefix(value, length)) if length <= key.expr.ty.width() => {
                    let rest = key.expr.ty.width() - length;
                    (value, all & !1_u128.checked_shl(rest).map_or(u128::MAX, |one| one - 1))
                }
                (MatchKind::Ternary, Key::Masked(value, mask)) => (value, mask),
                _ => return Err(wrong()),
            };
            match value <= all && mask <= all {
                true => Ok(Match { value: value & mask, mask }),
                false => Err(wrong()),
            }
        })
        .collect()
}
