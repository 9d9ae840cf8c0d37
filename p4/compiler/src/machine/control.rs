//! What a controller asks of a program at work, and what it is answered.
//!
//! Requests and answers own what they say and name things by their names in the program, so that
//! they can come from another thread ([`crate::request_queue`]). Whatever executes a program
//! answers them as a [`Target`].

use super::{Error, Key, Listed, Machine, Notification, Rates, matches};
use crate::ir::{MatchKind, ObjectKind, Table};
use std::time::Duration;

/// Most rows, counters or meters in an answer.
pub const MOST_ANSWERED: usize = 1024;

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The table's name.
    pub table: String,
    /// What it asks of each key, in the table's order.
    pub keys: Vec<Key>,
    /// Of several ternary entries the highest wins; 0 where there are no ternary keys.
    pub priority: u32,
    /// The action's name.
    pub action: String,
    /// The action's arguments, in order.
    pub args: Vec<u128>,
}

/// A row that is there, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledRow {
    /// The row.
    pub row: Row,
    /// Whether it is part of the program, and stays.
    pub is_const: bool,
    /// Whether a packet added it.
    pub is_learnt: bool,
    /// In what time it goes unless packets find it; nothing, if it stays.
    pub expires_in: Option<Duration>,
}

/// What a controller asks. Names may be given by their ends, if only one thing ends so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Adds an entry whose keys the table does not have.
    Insert(Row),
    /// Replaces action and arguments of an entry that is there; one that a packet added stays from
    /// then on.
    Modify(Row),
    /// Removes an entry that is there.
    Delete {
        /// The table.
        table: String,
        /// The entry's keys.
        keys: Vec<Key>,
        /// The entry's priority.
        priority: u32,
    },
    /// Sets what a table does with keys that it does not have.
    SetDefault {
        /// The table.
        table: String,
        /// The action, and arguments; nothing: as the program has it.
        action: Option<(String, Vec<u128>)>,
    },
    /// Entries in the order of their keys: [`Answer::Rows`].
    Rows {
        /// The table.
        table: String,
        /// The keys of the last that is known already.
        after: Option<Vec<Key>>,
        /// How many, [`MOST_ANSWERED`] at most.
        most: usize,
    },
    /// One entry: [`Answer::Rows`] with it, or none.
    Row {
        /// The table.
        table: String,
        /// Its keys.
        keys: Vec<Key>,
    },
    /// What a table does with keys that it does not have: [`Answer::Default`].
    Default {
        /// The table.
        table: String,
    },
    /// Counters: [`Answer::Counters`].
    Counters {
        /// The array.
        counter: String,
        /// The first of them.
        from: u32,
        /// How many, [`MOST_ANSWERED`] at most.
        most: usize,
    },
    /// Sets a counter.
    SetCounter {
        /// The array.
        counter: String,
        /// Which of them.
        index: u32,
        /// Packets and bytes.
        value: (u64, u64),
    },
    /// Meters' rates: [`Answer::Meters`].
    Meters {
        /// The array.
        meter: String,
        /// The first of them.
        from: u32,
        /// How many, [`MOST_ANSWERED`] at most.
        most: usize,
    },
    /// Gives a meter its rates, and full buckets.
    SetMeter {
        /// The array.
        meter: String,
        /// Which of them.
        index: u32,
        /// The rates; nothing: none, so that it leaves packets' colours as they are.
        rates: Option<Rates>,
    },
    /// Says how long entries of an expiry profile stay.
    SetProfile {
        /// The profile.
        profile: u8,
        /// The silence after which they go.
        timeout: Duration,
    },
    /// What the program has told controllers: [`Answer::Notifications`]. A controller that asks is
    /// taken to listen for a second.
    Notifications {
        /// How many things.
        most: usize,
    },
    /// Makes tables and arrays as they were at the start; profiles stay.
    Clear,
}

/// What a controller is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// Entries, fewer than were asked for if there are no more.
    Rows(Vec<InstalledRow>),
    /// The default.
    Default {
        /// The action's name.
        action: String,
        /// Its arguments.
        args: Vec<u128>,
        /// Whether it is the program's for good.
        is_const: bool,
    },
    /// Index, packets and bytes; fewer than were asked for if there are no more.
    Counters(Vec<(u32, u64, u64)>),
    /// Index and rates; fewer than were asked for if there are no more.
    Meters(Vec<(u32, Option<Rates>)>),
    /// What the program has told, the oldest first; it is not told again.
    Notifications(Vec<Notification>),
}

/// What executes a program and can be controlled.
pub trait Target {
    /// Does what is asked.
    ///
    /// # Errors
    ///
    /// Names, keys or arguments are not the program's, or it cannot be done; then nothing has
    /// changed.
    fn answer(&mut self, request: &Request) -> Result<Answer, Error>;
}

impl Target for Machine<'_> {
    fn answer(&mut self, request: &Request) -> Result<Answer, Error> {
        match request {
            Request::Insert(row) => self.write(row, false).map(|()| Answer::Done),
            Request::Modify(row) => self.write(row, true).map(|()| Answer::Done),
            Request::Delete { table, keys, priority } => {
                let (table_name, there) = self.asked(table, keys, *priority)?;
                match there == Some(*priority) {
                    true => self.remove(table, keys).map(|_| Answer::Done),
                    false => Err(Error::Missing(table_name)),
                }
            }
            Request::SetDefault { table, action: Some((action, args)) } => {
                self.set_default(table, action, args).map(|()| Answer::Done)
            }
            Request::SetDefault { table, action: None } => {
                let index = self.table(table)?;
                let (action, args) = &self.program.tables[index].default;
                self.execute.table_mut(index).set_default(*action, args);
                Ok(Answer::Done)
            }
            Request::Rows { table, after, most } => self.rows(table, after.as_deref(), *most),
            Request::Row { table, keys } => self.row(table, keys),
            Request::Default { table } => self.default_of(table),
            Request::Counters { counter, from, most } => self.counters(counter, *from, *most),
            Request::SetCounter { counter, index, value } => {
                self.set_counter(counter, *index, *value)
            }
            Request::Meters { meter, from, most } => self.meters(meter, *from, *most),
            Request::SetMeter { meter, index, rates: Some(rates) } => {
                self.set_meter(meter, *index, *rates).map(|()| Answer::Done)
            }
            Request::SetMeter { meter, index, rates: None } => {
                let object = self.object("meter", meter)?;
                self.put_meter(meter, object, *index, None).map(|()| Answer::Done)
            }
            Request::SetProfile { profile, timeout } => {
                self.set_profile(*profile, *timeout);
                Ok(Answer::Done)
            }
            Request::Notifications { most } => Ok(self.notifications((*most).min(MOST_ANSWERED))),
            Request::Clear => {
                self.clear();
                Ok(Answer::Done)
            }
        }
    }
}

impl Machine<'_> {
    /// The whole name of a table that can be written, and the priority of the entry with these keys
    /// if there is one.
    fn asked(
        &self,
        table: &str,
        keys: &[Key],
        priority: u32,
    ) -> Result<(String, Option<u32>), Error> {
        let index = self.writable(table)?;
        let found = &self.program.tables[index];
        let keys = matches(found, keys)?;
        if priority != 0 && found.keys.iter().all(|key| key.kind != MatchKind::Ternary) {
            let what = format!("entries of `{}` have no priority: no key is ternary", found.name);
            return Err(Error::Values(what));
        }
        let there = self.execute.table(index).get(self.world.now(), &keys);
        Ok((found.name.to_string(), there.map(|entry| entry.priority)))
    }

    /// Adds an entry that is not there, or changes one that is.
    fn write(&mut self, row: &Row, is_there: bool) -> Result<(), Error> {
        let (table, there) = self.asked(&row.table, &row.keys, row.priority)?;
        match there {
            Some(_) if !is_there => Err(Error::Exists(table)),
            there if is_there && there != Some(row.priority) => Err(Error::Missing(table)),
            _ => self.insert(&row.table, &row.keys, &row.action, &row.args, row.priority),
        }
    }

    fn rows(&self, table: &str, after: Option<&[Key]>, most: usize) -> Result<Answer, Error> {
        let index = self.table(table)?;
        let table = &self.program.tables[index];
        let after = after.map(|keys| matches(table, keys)).transpose()?;
        let (now, most) = (self.world.now(), most.min(MOST_ANSWERED));
        let page = self.execute.table(index).page(now, after.as_deref(), most);
        Ok(Answer::Rows(page.into_iter().map(|entry| self.found(table, entry)).collect()))
    }

    fn row(&self, table: &str, keys: &[Key]) -> Result<Answer, Error> {
        let index = self.table(table)?;
        let table = &self.program.tables[index];
        let keys = matches(table, keys)?;
        let entry = self.execute.table(index).get(self.world.now(), &keys);
        Ok(Answer::Rows(entry.into_iter().map(|entry| self.found(table, entry)).collect()))
    }

    fn found(&self, table: &Table, entry: Listed) -> InstalledRow {
        let pairs = table.keys.iter().zip(&entry.keys);
        let keys = pairs.map(|(key, asked)| match key.kind {
            MatchKind::Exact => Key::Exact(asked.value),
            MatchKind::Lpm => Key::Prefix(asked.value, asked.mask.count_ones()),
            MatchKind::Ternary => Key::Masked(asked.value, asked.mask),
        });
        let left = entry.deadline.map(|deadline| deadline.saturating_sub(self.world.now()));
        InstalledRow {
            row: Row {
                table: table.name.to_string(),
                keys: keys.collect(),
                priority: entry.priority,
                action: self.program.actions[table.actions[entry.action]].name.to_string(),
                args: entry.args,
            },
            is_const: !table.entries.is_empty(),
            is_learnt: entry.is_learnt,
            expires_in: left.map(Duration::from_nanos),
        }
    }

    fn default_of(&self, table: &str) -> Result<Answer, Error> {
        let index = self.table(table)?;
        let table = &self.program.tables[index];
        let (action, args) = self.execute.table(index).default();
        Ok(Answer::Default {
            action: self.program.actions[table.actions[action]].name.to_string(),
            args,
            is_const: table.default_is_const,
        })
    }

    fn counters(&self, counter: &str, from: u32, most: usize) -> Result<Answer, Error> {
        let object = self.object("counter", counter)?;
        let ObjectKind::Counter { size, .. } = self.program.objects[object].kind else {
            return Err(self.unknown("counter", counter));
        };
        let cell = |index: u32| {
            let (packets, bytes) = self.execute.counter(object, index);
            (index, packets, bytes)
        };
        Ok(Answer::Counters((from..size).take(most.min(MOST_ANSWERED)).map(cell).collect()))
    }

    fn set_counter(
        &mut self,
        counter: &str,
        index: u32,
        value: (u64, u64),
    ) -> Result<Answer, Error> {
        let object = self.object("counter", counter)?;
        let ObjectKind::Counter { size, .. } = self.program.objects[object].kind else {
            return Err(self.unknown("counter", counter));
        };
        match self.execute.set_counter(object, index, value) {
            true => Ok(Answer::Done),
            false => Err(beyond(counter, size)),
        }
    }

    fn meters(&self, meter: &str, from: u32, most: usize) -> Result<Answer, Error> {
        let object = self.object("meter", meter)?;
        let ObjectKind::Meter { size, .. } = self.program.objects[object].kind else {
            return Err(self.unknown("meter", meter));
        };
        let cell = |index: u32| (index, self.execute.meter(object, index));
        Ok(Answer::Meters((from..size).take(most.min(MOST_ANSWERED)).map(cell).collect()))
    }

    fn clear(&mut self) {
        for (index, table) in self.program.tables.iter().enumerate() {
            let store = self.execute.table_mut(index);
            store.clear();
            store.set_default(table.default.0, &table.default.1);
        }
        self.insert_own();
        self.execute.clear();
        self.world.clear();
    }
}

/// An array's place that is not there.
pub(super) fn beyond(array: &str, size: u32) -> Error {
    Error::Values(format!("`{array}` has the places 0 to {}", size - 1))
}
