//! Reading: entities as requests, and the answers as entities, piece by piece.

use crate::digest::Digests;
use crate::entry::{array, entity, keys, place, priority, status, table, unsupported};
use crate::proto::{
    Action, ActionType, CounterData, CounterEntry, Entity, Exact, FieldMatch, Index, Lpm,
    MatchType, MeterConfig, MeterEntry, Of, Param, ReadResponse, TableAction, TableEntry, Ternary,
};
use crate::value::bytes;
use natgate_p4::{
    Answer, ArrayInfo, Controller, FieldInfo, Info, InstalledRow, Key, MatchKind, Rates, Request,
    Row, TableInfo,
};
use std::collections::VecDeque;
use tonic::Status;

/// Most entities in a piece.
const MOST_AT_ONCE: usize = 512;

/// Most parts of one Read.
const MOST_PARTS: usize = 1024;

/// A part of a Read: requests, each of which continues where the one before ended.
enum Part {
    Rows {
        table: String,
        after: Option<Vec<Key>>,
    },
    /// One row with this priority.
    Row {
        table: String,
        keys: Vec<Key>,
        priority: u32,
    },
    Default {
        table: String,
    },
    Counters {
        counter: String,
        from: u32,
        to: u32,
    },
    Meters {
        meter: String,
        from: u32,
        to: u32,
    },
}

/// Remaining parts of a Read.
pub(crate) struct Reading {
    /// Entities that are known without asking the program.
    known: Vec<Of>,
    parts: VecDeque<Part>,
}

impl Reading {
    /// Parts for all entities. An entity without a name stands for all of its kind.
    pub(crate) fn new(info: &Info, digests: &Digests, entities: &[Entity]) -> Result<Self, Status> {
        let (mut known, mut parts) = (Vec::new(), VecDeque::new());
        for one in entities {
            match entity(Some(one))? {
                Of::Table(entry) => tables(info, entry, &mut parts)?,
                Of::Counter(entry) => {
                    let asked = (entry.counter_id, entry.index.as_ref());
                    for (counter, from, to) in places(&info.counters, "counter", asked)? {
                        parts.push_back(Part::Counters { counter, from, to });
                    }
                }
                Of::Meter(entry) => {
                    let asked = (entry.meter_id, entry.index.as_ref());
                    for (meter, from, to) in places(&info.meters, "meter", asked)? {
                        parts.push_back(Part::Meters { meter, from, to });
                    }
                }
                Of::Digest(entry) => {
                    known.extend(digests.read(info, entry.digest_id)?.into_iter().map(Of::Digest));
                }
                other => return Err(unsupported(other)),
            }
            if parts.len().max(known.len()) > MOST_PARTS {
                let what = format!("a Read asks for at most {MOST_PARTS} things; ask again");
                return Err(Status::resource_exhausted(what));
            }
        }
        Ok(Self { known, parts })
    }

    /// Next piece; `None` when everything is read.
    pub(crate) fn next(
        &mut self,
        info: &Info,
        controller: &Controller,
    ) -> Result<Option<ReadResponse>, Status> {
        if !self.known.is_empty() {
            return Ok(Some(piece(std::mem::take(&mut self.known))));
        }
        while let Some(part) = self.parts.pop_front() {
            let answer = controller.ask(part.request()).map_err(|error| status(&error))?;
            let (entities, rest) = part.answered(info, answer)?;
            if let Some(rest) = rest {
                self.parts.push_front(rest);
            }
            if !entities.is_empty() {
                return Ok(Some(piece(entities)));
            }
        }
        Ok(None)
    }
}

fn piece(entities: Vec<Of>) -> ReadResponse {
    let of = |of| Entity { of: Some(of) };
    ReadResponse { entities: entities.into_iter().map(of).collect() }
}

impl Part {
    fn request(&self) -> Request {
        match self {
            Self::Rows { table, after } => {
                let (table, after) = (table.clone(), after.clone());
                Request::Rows { table, after, most: MOST_AT_ONCE }
            }
            Self::Row { table, keys, .. } => {
                Request::Row { table: table.clone(), keys: keys.clone() }
            }
            Self::Default { table } => Request::Default { table: table.clone() },
            Self::Counters { counter, from, to } => {
                let (counter, from) = (counter.clone(), *from);
                Request::Counters { counter, from, most: at_once(from, *to) }
            }
            Self::Meters { meter, from, to } => {
                let (meter, from) = (meter.clone(), *from);
                Request::Meters { meter, from, most: at_once(from, *to) }
            }
        }
    }

    /// Entities of an answer, and the rest of the part.
    fn answered(self, info: &Info, answer: Answer) -> Result<(Vec<Of>, Option<Self>), Status> {
        Ok(match (self, answer) {
            (Self::Rows { table, .. }, Answer::Rows(rows)) => {
                let last = rows.last().filter(|_| rows.len() == MOST_AT_ONCE);
                let after = last.map(|last| last.row.keys.clone());
                let rest = after.map(|after| Self::Rows { table, after: Some(after) });
                (rows.iter().filter_map(|found| row(info, found)).map(Of::Table).collect(), rest)
            }
            (Self::Row { priority, .. }, Answer::Rows(rows)) => {
                let all = rows.iter().filter_map(|found| row(info, found));
                let wanted = all.filter(|entry| u32::try_from(entry.priority) == Ok(priority));
                (wanted.map(Of::Table).collect(), None)
            }
            (Self::Default { table }, Answer::Default { action, args, .. }) => {
                let (table_id, action) = (table_id(info, &table), called(info, &action, &args));
                let default = TableEntry { is_default_action: true, ..Default::default() };
                (vec![Of::Table(TableEntry { table_id, action, ..default })], None)
            }
            (Self::Counters { counter, from, to }, Answer::Counters(cells)) => {
                let counter_id = array_id(&info.counters, &counter);
                let next = from.saturating_add(cells.len() as u32);
                let rest = (next < to && next > from).then_some(Self::Counters {
                    counter,
                    from: next,
                    to,
                });
                let entry = |(index, packets, bytes): (u32, u64, u64)| {
                    let (byte_count, packet_count) = (bytes as i64, packets as i64);
                    let data = Some(CounterData { byte_count, packet_count });
                    Of::Counter(CounterEntry { counter_id, index: Some(at(index)), data })
                };
                (cells.into_iter().map(entry).collect(), rest)
            }
            (Self::Meters { meter, from, to }, Answer::Meters(cells)) => {
                let meter_id = array_id(&info.meters, &meter);
                let next = from.saturating_add(cells.len() as u32);
                let rest =
                    (next < to && next > from).then_some(Self::Meters { meter, from: next, to });
                let entry = |(index, rates): (u32, Option<Rates>)| {
                    let config = rates.map(|rates| MeterConfig {
                        cir: rates.committed as i64,
                        cburst: rates.committed_burst as i64,
                        pir: rates.peak as i64,
                        pburst: rates.peak_burst as i64,
                    });
                    let index = Some(at(index));
                    Of::Meter(MeterEntry { meter_id, index, config, counter_data: None })
                };
                (cells.into_iter().map(entry).collect(), rest)
            }
            _ => return Err(Status::internal("the answer is about something else")),
        })
    }
}

fn at_once(from: u32, to: u32) -> usize {
    (to.saturating_sub(from) as usize).min(MOST_AT_ONCE)
}

fn at(index: u32) -> Index {
    Index { index: index.into() }
}

fn tables(info: &Info, entry: &TableEntry, parts: &mut VecDeque<Part>) -> Result<(), Status> {
    let name = |table: &TableInfo| table.preamble.name.clone();
    let is_about_all = entry.matches.is_empty() && entry.priority == 0;
    let asked: Vec<&TableInfo> = match entry.table_id {
        0 if !is_about_all => {
            return Err(Status::invalid_argument("say of which table the entry is"));
        }
        0 => info.tables.iter().collect(),
        id => vec![table(info, id)?],
    };
    if !is_about_all && !entry.is_default_action {
        let keys = keys(asked[0], &entry.matches)?;
        let priority = priority(asked[0], entry.priority)?;
        parts.push_back(Part::Row { table: name(asked[0]), keys, priority });
        return Ok(());
    }
    parts.extend(asked.into_iter().map(|table| match entry.is_default_action {
        true => Part::Default { table: name(table) },
        false => Part::Rows { table: name(table), after: None },
    }));
    Ok(())
}

/// Arrays and ranges of their elements for a number (0 means all) and an index (`None` means all).
fn places(
    arrays: &[ArrayInfo],
    what: &str,
    (id, index): (u32, Option<&Index>),
) -> Result<Vec<(String, u32, u32)>, Status> {
    let all = |array: &ArrayInfo| (array.preamble.name.clone(), 0, array.size);
    if id == 0 {
        return match index {
            None => Ok(arrays.iter().map(all).collect()),
            Some(_) => Err(Status::invalid_argument(format!("say of which {what} the index is"))),
        };
    }
    let array = array(arrays, id, what)?;
    Ok(vec![match place(array, index)? {
        Some(index) => (array.preamble.name.clone(), index, index + 1),
        None => all(array),
    }])
}

fn table_id(info: &Info, name: &str) -> u32 {
    let found = info.tables.iter().find(|table| table.preamble.name == name);
    found.map_or(0, |table| table.preamble.id)
}

fn array_id(arrays: &[ArrayInfo], name: &str) -> u32 {
    let found = arrays.iter().find(|array| array.preamble.name == name);
    found.map_or(0, |array| array.preamble.id)
}

/// An action with its arguments.
fn called(info: &Info, name: &str, args: &[u128]) -> Option<TableAction> {
    let action = info.actions.iter().find(|action| action.preamble.name == name)?;
    let param = |(id, value): (u32, &u128)| Param { param_id: id, value: bytes(*value) };
    let params = action.params.iter().map(|param| param.id).zip(args).map(param).collect();
    let action = Action { action_id: action.preamble.id, params };
    Some(TableAction { of: Some(ActionType::Action(action)) })
}

/// A table entry of a found row.
fn row(info: &Info, found: &InstalledRow) -> Option<TableEntry> {
    let Row { table, keys, priority, action, args } = &found.row;
    let table = info.tables.iter().find(|one| one.preamble.name == *table)?;
    let is_ternary = table.fields.iter().any(|field| field.kind == MatchKind::Ternary);
    // The program's own entries have the highest priorities, of 32 bits; the message has 31.
    let priority = (*priority & i32::MAX as u32) as i32;
    Some(TableEntry {
        table_id: table.preamble.id,
        matches: table.fields.iter().zip(keys).filter_map(field_match).collect(),
        action: called(info, action, args),
        priority: if is_ternary { priority } else { 0 },
        ..TableEntry::default()
    })
}

/// Match of a key; `None` if any value matches.
fn field_match((field, key): (&FieldInfo, &Key)) -> Option<FieldMatch> {
    let of = match *key {
        Key::Exact(value) => MatchType::Exact(Exact { value: bytes(value) }),
        Key::Prefix(_, 0) | Key::Masked(_, 0) => return None,
        Key::Prefix(value, length) => {
            MatchType::Lpm(Lpm { value: bytes(value), prefix_len: length as i32 })
        }
        Key::Masked(value, mask) => {
            MatchType::Ternary(Ternary { value: bytes(value), mask: bytes(mask) })
        }
    };
    Some(FieldMatch { field_id: field.id, of: Some(of) })
}
