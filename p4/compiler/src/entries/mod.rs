//! Files of entries: table entries, as a controller would insert them, in TOML.
//!
//! A file is checked against its program, and every mistake is reported with its line and column:
//! unknown names, values that are too wide, missing keys. The result is a list of requests like
//! those of a controller. A [`Target`] answers them in the order of the file, section by section:
//! profiles, defaults, entries, meters.

mod line;
mod section;
mod value;

use crate::info::{ActionInfo, FieldInfo, Info, TableInfo};
use crate::ir::Program;
use crate::machine::{Key, Rates, Request, Row, Target, named};
use crate::source::{Checked, Error, Problem, Sources, Span, problem};
use section::Section;
use std::time::Duration;
use toml::de::DeTable;

/// Most bytes of a file.
const MOST_BYTES: usize = 16 << 20;

/// A file of entries that fits its program.
#[derive(Debug)]
pub struct Entries {
    sources: Sources,
    requests: Vec<(Span, Request)>,
}

impl Entries {
    /// Reads a file's text; `name` is the file's name, for messages.
    ///
    /// # Errors
    ///
    /// Description and location of the error, and what would be right.
    pub fn read(program: &Program, name: &str, text: &str) -> Result<Self, Error> {
        let mut sources = Sources::default();
        let number = sources.add(name, text);
        match requests(&program.info(), number, text) {
            Ok(requests) => Ok(Self { sources, requests }),
            Err(problem) => Err(sources.locate(problem)),
        }
    }

    /// Number of requests in the file.
    pub fn count(&self) -> usize {
        self.requests.len()
    }

    /// Sends all requests, up to the first that is refused.
    ///
    /// # Errors
    ///
    /// The target's refusal, with the location in the file: duplicate keys, or a full table.
    pub fn load(&self, target: &mut impl Target) -> Result<(), Error> {
        for (span, request) in &self.requests {
            if let Err(error) = target.answer(request) {
                return Err(self
                    .sources
                    .locate(Problem { span: *span, message: error.to_string() }));
            }
        }
        Ok(())
    }
}

fn requests(info: &Info, number: u8, text: &str) -> Checked<Vec<(Span, Request)>> {
    let all = Span { text: number, start: 0, end: 0 };
    if text.len() > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return problem(all, format!("the file has more than {most} MiB; use P4Runtime instead"));
    }
    let tree = DeTable::parse(text).map_err(|error| {
        let range = error.span().unwrap_or_default();
        let span = Span { text: number, start: range.start as u32, end: range.end as u32 };
        let message = format!("this is not TOML: {}", error.message().trim_end());
        Problem { span, message }
    })?;
    let root = Section::new(tree.get_ref(), Span { end: text.len() as u32, ..all });
    root.only(&["profile", "default", "entry", "meter"])?;
    let mut requests = Vec::new();
    for (name, read) in [
        ("profile", profile as fn(&Info, &Section<'_>) -> Checked<Request>),
        ("default", default),
        ("entry", entry),
        ("meter", meter),
    ] {
        for section in root.sections(name)? {
            requests.push((section.span(), read(info, &section)?));
        }
    }
    Ok(requests)
}

fn profile(_: &Info, section: &Section<'_>) -> Checked<Request> {
    section.only(&["number", "seconds"])?;
    let profile = section.number("number", 8)? as u8;
    let timeout = Duration::from_secs(section.number("seconds", 21)? as u64);
    Ok(Request::SetProfile { profile, timeout })
}

fn default(info: &Info, section: &Section<'_>) -> Checked<Request> {
    section.only(&["table", "action", "arguments"])?;
    let table = table(info, section)?;
    let (action, args) = action(info, table, section)?;
    let action = Some((action.preamble.name.clone(), args));
    Ok(Request::SetDefault { table: table.preamble.name.clone(), action })
}

fn entry(info: &Info, section: &Section<'_>) -> Checked<Request> {
    section.only(&["table", "keys", "action", "arguments", "priority"])?;
    let table = table(info, section)?;
    let keys = keys(table, section)?;
    let (action, args) = action(info, table, section)?;
    let priority = match section.has("priority") {
        true => section.number("priority", 31)? as u32,
        false => 0,
    };
    Ok(Request::Insert(Row {
        table: table.preamble.name.clone(),
        keys,
        priority,
        action: action.preamble.name.clone(),
        args,
    }))
}

fn meter(info: &Info, section: &Section<'_>) -> Checked<Request> {
    section.only(&["meter", "index", "committed", "committed_burst", "peak", "peak_burst"])?;
    let names: Vec<&str> = info.meters.iter().map(|meter| &*meter.preamble.name).collect();
    let meter = &info.meters[chosen("meter", &names, section)?];
    let index = section.number("index", 32)? as u32;
    let rate = |name| section.number(name, 63).map(|rate| rate as u64);
    let rates = Rates {
        committed: rate("committed")?,
        committed_burst: rate("committed_burst")?,
        peak: rate("peak")?,
        peak_burst: rate("peak_burst")?,
    };
    let meter = meter.preamble.name.clone();
    Ok(Request::SetMeter { meter, index, rates: Some(rates) })
}

/// Index of the name that a section gives, among `names`.
fn chosen(what: &'static str, names: &[&str], section: &Section<'_>) -> Checked<usize> {
    let (given, span) = section.text(what)?;
    named(what, names, given).or_else(|error| problem(span, error.to_string()))
}

fn table<'i>(info: &'i Info, section: &Section<'_>) -> Checked<&'i TableInfo> {
    let names: Vec<&str> = info.tables.iter().map(|table| &*table.preamble.name).collect();
    Ok(&info.tables[chosen("table", &names, section)?])
}

/// Actions that a table lists.
fn listed<'i>(info: &'i Info, table: &TableInfo) -> Vec<&'i ActionInfo> {
    let is_listed =
        |action: &&ActionInfo| table.actions.iter().any(|one| one.id == action.preamble.id);
    info.actions.iter().filter(is_listed).collect()
}

/// Action that a section names, among those of the table, and its arguments.
fn action<'i>(
    info: &'i Info,
    table: &TableInfo,
    section: &Section<'_>,
) -> Checked<(&'i ActionInfo, Vec<u128>)> {
    let listed = listed(info, table);
    let names: Vec<&str> = listed.iter().map(|action| &*action.preamble.name).collect();
    let action = listed[chosen("action", &names, section)?];
    let names: Vec<&str> = action.params.iter().map(|param| &*param.name).collect();
    let arguments = section.table("arguments")?;
    arguments.only(&names)?;
    let args: Checked<Vec<u128>> =
        action.params.iter().map(|param| arguments.number(&param.name, param.bits)).collect();
    Ok((action, args?))
}

/// Keys of a section. Keys that are not exact may be left out: then any value matches.
fn keys(table: &TableInfo, section: &Section<'_>) -> Checked<Vec<Key>> {
    let names: Vec<&str> = table.fields.iter().map(|field| &*field.name).collect();
    let keys = section.table("keys")?;
    keys.only(&names)?;
    let key = |field: &FieldInfo| match value::any(field.kind) {
        Some(any) if !keys.has(&field.name) => Ok(any),
        _ => keys.key(&field.name, field.kind, field.bits),
    };
    table.fields.iter().map(key).collect()
}
