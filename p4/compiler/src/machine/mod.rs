//! Programs in operation: packets one after the other, and tables that a control plane fills by
//! names.
//!
//! The executor is exchangeable; the default is the interpreter. Time comes with the packets, and
//! there is no other input, so the same calls give the same bytes.

pub(crate) mod bits;
mod control;
pub(crate) mod execute;
pub(crate) mod externs;
mod interpreter;
mod notification;
mod run;
pub(crate) mod table;

pub use control::{Answer, InstalledRow, MOST_ANSWERED, Request, Row, Target};
pub use execute::{Execute, Listed, Store, Verdict, World, one_by_one};
pub use externs::{Meter, Rates};
pub use notification::{CONTROLLER_PORT, Notification};

use crate::ir::{Action, Match, MatchKind, ObjectKind, Program, Table, Ty};
use control::beyond;
use interpreter::Interpreter;
use natgate_io::Frame;
use std::collections::VecDeque;
use std::time::Duration;

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The packet leaves by a port.
    Sent {
        /// Number of the port.
        port: u32,
        /// Bytes of the packet.
        packet: Vec<u8>,
    },
    /// The packet is dropped.
    Dropped,
}

/// Fate of a packet that stays in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet leaves.
    Sent {
        /// Number of the port.
        port: u32,
        /// Offset of the packet in the buffer.
        start: usize,
    },
    /// The packet is dropped.
    Dropped,
    /// The packet would leave, but its new headers have no room before it.
    NoRoom,
}

impl Fate {
    /// Applies a verdict to a frame: puts its new headers in front of the rest.
    pub fn of(verdict: Verdict, head: &[u8], frame: &mut Frame<'_>) -> Self {
        let Some(port) = verdict.port else { return Self::Dropped };
        let rest = frame.range().0 + verdict.taken;
        let Some(start) = rest.checked_sub(head.len()) else { return Self::NoRoom };
        frame.buffer_mut()[start..rest].copy_from_slice(head);
        Self::Sent { port, start }
    }
}

/// Match of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// This value.
    Exact(u128),
    /// The first bits of a value.
    Prefix(u128, u32),
    /// Bits of a value where the mask has ones.
    Masked(u128, u128),
}

/// Reason why a request of the control plane is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No object has that name, or several have.
    #[error("there is no one {what} `{name}`; the program has {there}")]
    Name {
        /// Kind of object.
        what: &'static str,
        /// Name.
        name: String,
        /// Existing names.
        there: String,
    },
    /// The number or the widths of keys or arguments are wrong.
    #[error("{0}")]
    Values(String),
    /// The table is full.
    #[error("the table `{0}` is full; give it a larger `size`")]
    Full(String),
    /// The table's entries, or its default, are part of the program.
    #[error("`{0}` is const in the program; change it there")]
    Const(String),
    /// The table has an entry with these keys, which may be one that a packet added.
    #[error("the table `{0}` has an entry with these keys already; modify it, or delete it before")]
    Exists(String),
    /// The table has no entry with these keys and this priority.
    #[error("the table `{0}` has no entry with these keys and this priority; insert one")]
    Missing(String),
    /// The executor of the program has ended.
    #[error("the program runs no more; start it again")]
    Gone,
}

/// An entry as the control plane reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry<'p> {
    /// Match of each key.
    pub keys: Vec<Match>,
    /// Full name of the action.
    pub action: &'p str,
    /// Arguments of the action.
    pub args: Vec<u128>,
}

/// A program in operation.
#[derive(Debug)]
pub struct Machine<'p> {
    program: &'p Program,
    execute: Box<dyn Execute + 'p>,
    world: World,
    /// New headers of the latest packet.
    head: Vec<u8>,
    /// Frames for controllers.
    packets: VecDeque<Vec<u8>>,
    /// Time of the latest request for messages, nanoseconds.
    asked: Option<u64>,
}

impl<'p> Machine<'p> {
    /// Creates an interpreted machine with the program's own entries; `seed` is that of its random
    /// numbers.
    pub fn new(program: &'p Program, seed: u64) -> Self {
        Self::with(program, Box::new(Interpreter::new(program, seed)))
    }

    /// Creates a machine with another executor of this program, with the program's own entries.
    pub fn with(program: &'p Program, execute: Box<dyn Execute + 'p>) -> Self {
        let (world, head, packets) = (World::new(), Vec::new(), VecDeque::new());
        let mut machine = Self { program, execute, world, head, packets, asked: None };
        machine.insert_own();
        machine
    }

    /// Inserts the program's own entries.
    fn insert_own(&mut self) {
        for (index, table) in self.program.tables.iter().enumerate() {
            for (number, entry) in table.entries.iter().enumerate() {
                let is_known = table.entries[..number].iter().any(|one| one.keys == entry.keys);
                if !is_known {
                    // The first of the program's entries wins, and all of them win over added ones.
                    let priority = u32::MAX - number as u32;
                    let own = self.execute.table_mut(index);
                    own.insert(0, &entry.keys, entry.action, &entry.args, priority);
                }
            }
        }
    }

    /// Processes a packet that came in by a port; `now` is the time since some beginning, and does
    /// not go back.
    pub fn process(&mut self, now: Duration, port: u32, packet: &[u8]) -> Outcome {
        self.pass(now);
        let Verdict { port, taken } = self.take(port, packet);
        match port {
            Some(port) => Outcome::Sent { port, packet: [&self.head, &packet[taken..]].concat() },
            None => Outcome::Dropped,
        }
    }

    /// Processes frames that came in by a port together, without copying them. A frame that leaves
    /// stays in its buffer, and may begin earlier.
    ///
    /// # Panics
    ///
    /// If there are fewer fates than frames.
    pub fn forward_all(
        &mut self,
        now: Duration,
        port: u32,
        frames: &mut [Frame<'_>],
        fates: &mut [Fate],
    ) {
        assert!(frames.len() <= fates.len(), "each frame comes to something");
        self.pass(now);
        self.execute.forward_all(&mut self.world, port, frames, fates);
    }

    fn take(&mut self, port: u32, packet: &[u8]) -> Verdict {
        self.head.clear();
        self.execute.process(&mut self.world, port, packet, &mut self.head)
    }

    /// Sets the time without a packet; it does not go back.
    pub fn pass(&mut self, now: Duration) {
        self.world.pass(now);
    }

    /// Adds an entry, or replaces the one with the same keys. If several ternary entries match, the
    /// one with the highest priority wins.
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
        let index = self.writable(table)?;
        let found = &self.program.tables[index];
        let keys = matches(found, keys)?;
        let (chosen, args) = self.chosen(found, action, args)?;
        if found.default_only.contains(&chosen) {
            let what = format!("`{action}` is for the default of `{}` only", found.name);
            return Err(Error::Values(what));
        }
        let now = self.world.now();
        match self.execute.table_mut(index).insert(now, &keys, chosen, &args, priority) {
            true => Ok(()),
            false => Err(Error::Full(found.name.to_string())),
        }
    }

    /// Removes an entry; returns true if it existed.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::insert`].
    pub fn remove(&mut self, table: &str, keys: &[Key]) -> Result<bool, Error> {
        let index = self.writable(table)?;
        let keys = matches(&self.program.tables[index], keys)?;
        Ok(self.execute.table_mut(index).remove(&keys))
    }

    /// Sets the action of a table for keys without an entry.
    ///
    /// # Errors
    ///
    /// Names or arguments are not the program's, or the default is const in the program.
    pub fn set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), Error> {
        let index = self.table(table)?;
        let found = &self.program.tables[index];
        if found.default_is_const {
            return Err(Error::Const(found.name.to_string()));
        }
        let (action, args) = self.chosen(found, action, args)?;
        self.execute.table_mut(index).set_default(action, &args);
        Ok(())
    }

    /// Number of entries of a table.
    ///
    /// # Errors
    ///
    /// There is no such table.
    pub fn entries(&self, table: &str) -> Result<usize, Error> {
        Ok(self.execute.table(self.table(table)?).count(self.world.now()))
    }

    /// A table's entries, in the order of their keys.
    ///
    /// # Errors
    ///
    /// There is no such table.
    pub fn read(&self, table: &str) -> Result<Vec<TableEntry<'p>>, Error> {
        let (index, program) = (self.table(table)?, self.program);
        let named = |Listed { keys, action, args, .. }| {
            let action = program.tables[index].actions[action];
            TableEntry { keys, action: &program.actions[action].name, args }
        };
        let entries = self.execute.table(index).list(self.world.now());
        Ok(entries.into_iter().map(named).collect())
    }

    /// Packets and bytes of a counter.
    ///
    /// # Errors
    ///
    /// There is no such counter.
    pub fn counter(&self, name: &str, index: u32) -> Result<(u64, u64), Error> {
        let object = self.object("counter", name)?;
        match self.program.objects[object].kind {
            ObjectKind::Counter { .. } => Ok(self.execute.counter(object, index)),
            _ => Err(self.unknown("counter", name)),
        }
    }

    /// The program.
    pub(crate) fn program(&self) -> &'p Program {
        self.program
    }

    /// Largest value of a counter, from which it goes on with zero.
    pub(crate) fn counter_most(&self, name: &str) -> Result<u64, Error> {
        let object = self.object("counter", name)?;
        match self.program.objects[object].kind {
            ObjectKind::Counter { width, .. } => Ok(Ty::Bit(width).mask() as u64),
            _ => Err(self.unknown("counter", name)),
        }
    }

    /// Gives a meter its rates, and full buckets.
    ///
    /// # Errors
    ///
    /// There is no such meter.
    pub fn set_meter(&mut self, name: &str, index: u32, rates: Rates) -> Result<(), Error> {
        let object = self.object("meter", name)?;
        let meter = Meter::new(rates, self.world.now());
        self.put_meter(name, object, index, Some(meter))
    }

    /// Sets the timeout of a profile's entries without a restart, in whole milliseconds and at most
    /// 24 days. The default is two minutes.
    pub fn set_profile(&mut self, profile: u8, timeout: Duration) {
        self.world.set_timeout(profile, timeout);
    }

    /// Returns the oldest message to the control plane: the name of its digest, and its fields.
    pub fn digest(&mut self) -> Option<(&'p str, Vec<(&'p str, u128)>)> {
        let (object, values) = self.world.told()?;
        let object = &self.program.objects[object];
        let ObjectKind::Digest { fields } = &object.kind else { return None };
        let names = fields.iter().map(|(name, _)| &**name);
        Some((&object.name, names.zip(values).collect()))
    }

    fn table(&self, name: &str) -> Result<usize, Error> {
        let names: Vec<&str> = self.program.tables.iter().map(|table| &*table.name).collect();
        named("table", &names, name)
    }

    /// A table whose entries are not part of the program.
    fn writable(&self, name: &str) -> Result<usize, Error> {
        let index = self.table(name)?;
        let table = &self.program.tables[index];
        match table.entries.is_empty() {
            true => Ok(index),
            false => Err(Error::Const(table.name.to_string())),
        }
    }

    fn put_meter(
        &mut self,
        name: &str,
        object: usize,
        index: u32,
        meter: Option<Meter>,
    ) -> Result<(), Error> {
        let ObjectKind::Meter { size, .. } = self.program.objects[object].kind else {
            return Err(self.unknown("meter", name));
        };
        match self.execute.set_meter(object, index, meter) {
            true => Ok(()),
            false => Err(beyond(name, size)),
        }
    }

    fn object(&self, what: &'static str, name: &str) -> Result<usize, Error> {
        let names: Vec<&str> = self.program.objects.iter().map(|object| &*object.name).collect();
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
        let names: Vec<&str> = actions.iter().map(|action| &*action.name).collect();
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

/// Index of the name that equals `name`, or ends in it after a dot.
pub(crate) fn named(what: &'static str, names: &[&str], name: &str) -> Result<usize, Error> {
    let ends = |full: &str| full.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    let exact = names.iter().position(|full| *full == name);
    let mut ending = (0..names.len()).filter(|number| ends(names[*number]));
    match (exact, ending.next(), ending.next()) {
        (Some(found), ..) | (None, Some(found), None) => Ok(found),
        _ => {
            let there: Vec<String> = names.iter().map(|full| format!("`{full}`")).collect();
            Err(Error::Name { what, name: name.to_owned(), there: there.join(", ") })
        }
    }
}

/// Keys in the form that the table compares.
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
