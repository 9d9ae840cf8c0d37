//! Requests of controllers to a program in operation, and the answers.
//!
//! Requests and answers own their data and use the program's names, so that they can come from
//! another thread ([`crate::request_queue`]). An executor of a program answers them as a
//! [`Target`].

use super::{Error, Key, Listed, Machine, Notification, Rates, matches};
use crate::ir::{MatchKind, ObjectKind, Table};
use std::time::Duration;

/// Most rows, counters or meters in an answer.
pub const MOST_ANSWERED: usize = 1024;

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the table.
    pub table: String,
    /// Match of each key, in the table's order.
    pub keys: Vec<Key>,
    /// Priority: the highest of several matching ternary entries wins; 0 without ternary keys.
    pub priority: u32,
    /// Name of the action.
    pub action: String,
    /// Arguments of the action, in order.
    pub args: Vec<u128>,
}

/// A row of a table, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledRow {
    /// Content of the row.
    pub row: Row,
    /// True if the row is part of the program, and stays.
    pub is_const: bool,
    /// True if a packet added the row.
    pub is_learnt: bool,
    /// Time after which the row is removed unless packets match it; `None` if it stays.
    pub expires_in: Option<Duration>,
}

/// A request of a controller. A name may be given by its suffix, if only one object has that
/// suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Adds an entry with keys that the table lacks.
    Insert(Row),
    /// Replaces action and arguments of an existing entry; an entry that a packet added becomes
    /// permanent.
    Modify(Row),
    /// Removes an existing entry.
    Delete {
        /// Name of the table.
        table: String,
        /// Keys of the entry.
        keys: Vec<Key>,
        /// Priority of the entry.
        priority: u32,
    },
    /// Sets the action for keys without an entry.
    SetDefault {
        /// Name of the table.
        table: String,
        /// Action and arguments; `None` restores the program's default.
        action: Option<(String, Vec<u128>)>,
    },
    /// Reads entries in the order of their keys: [`Answer::Rows`].
    Rows {
        /// Name of the table.
        table: String,
        /// Keys of the last entry that is known already.
        after: Option<Vec<Key>>,
        /// Number of entries, at most [`MOST_ANSWERED`].
        most: usize,
    },
    /// Reads one entry: [`Answer::Rows`] with it, or none.
    Row {
        /// Name of the table.
        table: String,
        /// Keys of the entry.
        keys: Vec<Key>,
    },
    /// Reads the action for keys without an entry: [`Answer::Default`].
    Default {
        /// Name of the table.
        table: String,
    },
    /// Reads counters: [`Answer::Counters`].
    Counters {
        /// Name of the array.
        counter: String,
        /// Index of the first counter.
        from: u32,
        /// Number of counters, at most [`MOST_ANSWERED`].
        most: usize,
    },
    /// Sets a counter.
    SetCounter {
        /// Name of the array.
        counter: String,
        /// Index of the counter.
        index: u32,
        /// Packets and bytes.
        value: (u64, u64),
    },
    /// Reads the rates of meters: [`Answer::Meters`].
    Meters {
        /// Name of the array.
        meter: String,
        /// Index of the first meter.
        from: u32,
        /// Number of meters, at most [`MOST_ANSWERED`].
        most: usize,
    },
    /// Sets the rates of a meter, and fills its buckets.
    SetMeter {
        /// Name of the array.
        meter: String,
        /// Index of the meter.
        index: u32,
        /// The rates; `None` removes them, so that the meter leaves the colours of packets as they
        /// are.
        rates: Option<Rates>,
    },
    /// Sets the timeout of an expiry profile.
    SetProfile {
        /// Number of the profile.
        profile: u8,
        /// Silence after which entries are removed.
        timeout: Duration,
    },
    /// Reads messages of the program to controllers: [`Answer::Notifications`]. The asker counts as
    /// a listener for one second.
    Notifications {
        /// Most messages in the answer.
        most: usize,
    },
    /// Resets tables and arrays to their initial state; profiles stay.
    Clear,
}

/// Answer to a request of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request was executed.
    Done,
    /// Entries; fewer than requested if there are no more.
    Rows(Vec<InstalledRow>),
    /// The default.
    Default {
        /// Name of the action.
        action: String,
        /// Arguments of the action.
        args: Vec<u128>,
        /// True if the default is const in the program.
        is_const: bool,
    },
    /// Index, packets and bytes; fewer than requested if there are no more.
    Counters(Vec<(u32, u64, u64)>),
    /// Index and rates; fewer than requested if there are no more.
    Meters(Vec<(u32, Option<Rates>)>),
    /// Messages of the program, the oldest first; each is returned once.
    Notifications(Vec<Notification>),
}

/// An executor of a program that can be controlled.
pub trait Target {
    /// Executes a request.
    ///
    /// # Errors
    ///
    /// Names, keys or arguments are not the program's, or the request cannot be executed; then
    /// nothing has changed.
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
    /// Full name of a writable table, and the priority of the entry with these keys if there is
    /// one.
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

    /// Adds a new entry, or changes an existing one.
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

/// Error for an index beyond an array.
pub(super) fn beyond(array: &str, size: u32) -> Error {
    Error::Values(format!("`{array}` has the places 0 to {}", size - 1))
}
