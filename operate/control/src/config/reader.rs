//! Access to the TOML tree: tables that know their keys, values that know their place.
//!
//! Opening a table reports every unknown key. Asking a value for a wrong type reports that and
//! returns `None`. So the reader of a section only lists the values that it wants, and uses the
//! default for `None`.

use super::places::{Target, Used};
use super::problem::{Located, Place, Report};
use super::schema::{self, PlaceKind};
use super::values::{self, quoted};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table, or an absent optional table.
#[derive(Clone)]
pub(super) struct Section<'a> {
    pub(super) report: &'a Report<'a>,
    /// Name of the table in the schema.
    name: &'static str,
    /// Path of the table, such as `pool[0]`, and its offset.
    pub(super) place: Place,
    origin: Origin,
    table: Option<&'a DeTable<'a>>,
}

/// The source of a tree: the file, or a piece of it.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin {
    /// Byte offset of the piece.
    pub(super) offset: usize,
    /// Number of tables of an array before the first one of the piece.
    pub(super) tables: usize,
}

impl<'a> Section<'a> {
    /// The root of the whole file, or of a piece.
    pub(super) fn root(
        report: &'a Report<'a>,
        tree: &'a Spanned<DeTable<'a>>,
        origin: Origin,
    ) -> Self {
        Self::open(report, "", Place::default(), origin, tree.get_ref())
    }

    fn open(
        report: &'a Report<'a>,
        name: &'static str,
        place: Place,
        origin: Origin,
        table: &'a DeTable<'a>,
    ) -> Self {
        let section = Self { report, name, place, origin, table: Some(table) };
        for key in table.keys().filter(|key| !schema::keys(name).contains(&key.get_ref().as_ref()))
        {
            let unknown = key.get_ref().as_ref();
            let place = section.place_of(unknown, origin.offset + key.span().start);
            report.wrong(&place, schema::refusal(name, unknown));
        }
        section
    }

    /// True if the file has the table.
    pub(super) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// True if the table has no key.
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_none_or(|table| table.is_empty())
    }

    /// Returns the value of a key, if present.
    pub(super) fn get(&self, key: &'static str) -> Option<Value<'a>> {
        debug_assert!(schema::keys(self.name).contains(&key), "{key} is missing in the schema");
        let (name, value) = self.table?.get_key_value(key)?;
        let span = if value.span().is_empty() { name.span() } else { value.span() };
        let place = self.place_of(key, self.origin.offset + span.start);
        let (report, origin) = (self.report, self.origin);
        Some(Value { report, place, origin, value: value.get_ref() })
    }

    /// Returns the value of a required key.
    pub(super) fn require(&self, key: &'static str, example: &str) -> Option<Value<'a>> {
        let value = self.get(key);
        if value.is_none() {
            let missing = self.place_of(key, self.place.offset);
            self.report.missing(&missing, format!("is missing; write {key} = {example}"));
        }
        value
    }

    /// Reads a path and registers it for comparison with all other places.
    pub(super) fn path(&self, key: &'static str) -> Option<Located<PathBuf>> {
        let Some(value) = self.get(key) else {
            self.registers_default(key);
            return None;
        };
        let place = schema::place_key(self.name, key);
        let parse = match place.kind {
            PlaceKind::Folder => values::absolute_folder,
            _ => values::absolute_path,
        };
        let path = value.parsed("a path in quotes", |text| parse(text, place.example))?;
        self.registers(key, &path.place, Target::Path(path.value.clone()));
        Some(path)
    }

    /// Reads the path of a required key, as [`Self::path`].
    pub(super) fn required_path(&self, key: &'static str) -> Option<PathBuf> {
        let example = schema::place_key(self.name, key).example;
        self.require(key, &format!("\"{example}\""))?;
        self.path(key).map(|path| path.value)
    }

    /// Registers a place that a key names.
    pub(super) fn registers(&self, key: &'static str, place: &Place, target: Target) {
        let used =
            Used::of_key(schema::place_key(self.name, key), &place.key, Some(place.offset), target);
        self.report.used.borrow_mut().push(used);
    }

    /// Registers the default place of an absent key.
    pub(super) fn registers_default(&self, key: &'static str) {
        let spec = schema::place_key(self.name, key);
        let Some(default) = spec.default else { return };
        let target = match default.parse() {
            Ok(address) => Target::Address(address),
            Err(_) => Target::Path(default.into()),
        };
        let name = self.place_of(key, 0).key;
        self.report.used.borrow_mut().push(Used::of_key(spec, &name, None, target));
    }

    /// A subtable; `name` is its name in the schema.
    pub(super) fn section(&self, key: &'static str, name: &'static str) -> Self {
        let found = self.get(key).and_then(|value| match value.value {
            DeValue::Table(table) => {
                Some(Self::open(self.report, name, value.place.clone(), self.origin, table))
            }
            DeValue::Array(_) if self.name.is_empty() => {
                value.wrong(format!("is there more than once; write one [{key}]"));
                None
            }
            _ => {
                value.wrong_type(&format!("a table [{name}]"));
                None
            }
        });
        let place = self.place_of(key, self.place.offset);
        let (report, origin) = (self.report, self.origin);
        found.unwrap_or(Self { report, name, place, origin, table: None })
    }

    /// A key that is `true`, `false` or a subtable; `name` is the subtable's name in the schema.
    /// `true` gives a table without keys. `None`: the key is absent, `false` or wrong.
    pub(super) fn switch(&self, key: &'static str, name: &'static str) -> Option<Self> {
        let Value { report, place, origin, value } = self.get(key)?;
        match value {
            DeValue::Boolean(is_on) => {
                is_on.then_some(Self { report, name, place, origin, table: None })
            }
            DeValue::Table(table) => Some(Self::open(report, name, place, origin, table)),
            _ => {
                let wanted = format!("true, or a table [{name}]");
                Value { report, place, origin, value }.wrong_type(&wanted);
                None
            }
        }
    }

    /// The tables of an array of tables, `[[key]]`, of the file's root.
    pub(super) fn sections(&self, key: &'static str) -> Vec<Self> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let DeValue::Array(items) = value.value else {
            value.wrong_type(&format!("an array of tables; write [[{key}]]"));
            return Vec::new();
        };
        let open = |(index, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let (report, origin) = (self.report, self.origin);
            let index = origin.tables + index;
            let offset = origin.offset + item.span().start;
            let place = Place { key: format!("{key}[{index}]"), offset };
            match item.get_ref() {
                DeValue::Table(table) => Some(Self::open(report, key, place, origin, table)),
                other => {
                    Value { report, place, origin, value: other }
                        .wrong_type(&format!("a table; write [[{key}]]"));
                    None
                }
            }
        };
        items.iter().enumerate().filter_map(open).collect()
    }

    /// The tables of an array inside this table; `name` is their name in the schema.
    pub(super) fn tables(&self, key: &'static str, name: &'static str) -> Vec<Self> {
        let Some(items) = self.get(key).and_then(|value| value.items("an array of tables")) else {
            return Vec::new();
        };
        let open = |item: &Value<'a>| match item.value {
            DeValue::Table(table) => {
                Some(Self::open(self.report, name, item.place.clone(), self.origin, table))
            }
            _ => {
                item.wrong_type("a table");
                None
            }
        };
        items.iter().filter_map(open).collect()
    }

    /// Number of tables in an array of tables.
    pub(super) fn count(&self, key: &'static str) -> usize {
        self.get(key).and_then(|value| value.value.as_array()).map_or(0, |tables| tables.len())
    }

    /// The place of a key of this table, or where it would be.
    fn place_of(&self, key: &str, offset: usize) -> Place {
        let dot = if self.place.key.is_empty() { "" } else { "." };
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_bare = !key.is_empty() && key.chars().all(bare);
        let key = if is_bare { key.to_owned() } else { quoted(key) };
        Place { key: format!("{}{dot}{key}", self.place.key), offset }
    }
}

/// A value.
#[derive(Clone)]
pub(super) struct Value<'a> {
    report: &'a Report<'a>,
    pub(super) place: Place,
    origin: Origin,
    value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    /// Reports the value as wrong.
    pub(super) fn wrong(&self, message: impl Into<String>) {
        self.report.wrong(&self.place, message);
    }

    fn wrong_type(&self, wanted: &str) {
        let found = match self.value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.wrong(format!("is {found}; it must be {wanted}"));
    }

    /// Reads a string; `wanted` describes it in the message.
    pub(super) fn string(&self, wanted: &str) -> Option<&'a str> {
        if let DeValue::String(text) = self.value {
            return Some(text);
        }
        self.wrong_type(wanted);
        None
    }

    /// Reads a string and parses it.
    pub(super) fn parsed<T>(
        &self,
        wanted: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Located<T>> {
        match parse(self.string(wanted)?) {
            Ok(value) => Some(Located { value, place: self.place.clone() }),
            Err(message) => {
                self.wrong(message);
                None
            }
        }
    }

    /// Reads one of several words. A word whose meaning is an error is refused with that message.
    pub(super) fn word<T: Clone>(&self, words: &[(&str, Result<T, &str>)]) -> Option<T> {
        let usable = words.iter().filter(|(_, meaning)| meaning.is_ok());
        let list: Vec<String> = usable.map(|(word, _)| format!("\"{word}\"")).collect();
        let text = self.string(&format!("one of {}", list.join(", ")))?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, Ok(meaning))) => return Some(meaning.clone()),
            Some((_, Err(message))) => self.wrong(format!("\"{text}\" {message}")),
            None => {
                let remedy = match schema::nearest(words.iter().map(|(word, _)| *word), text) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("it must be one of {}", list.join(", ")),
                };
                self.wrong(format!("{} is unknown; {remedy}", quoted(text)));
            }
        }
        None
    }

    /// Reads a boolean.
    pub(super) fn boolean(&self) -> Option<bool> {
        if let DeValue::Boolean(value) = self.value {
            return Some(*value);
        }
        self.wrong_type("true or false");
        None
    }

    /// True if the value is an integer.
    pub(super) fn is_integer(&self) -> bool {
        self.value.is_integer()
    }

    /// True if the value is a string that fulfils a condition.
    pub(super) fn has_text(&self, condition: impl FnOnce(&str) -> bool) -> bool {
        matches!(self.value, DeValue::String(text) if condition(text))
    }

    /// Reads an integer within bounds.
    pub(super) fn integer(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let (low, high) = (bounds.start(), bounds.end());
        let DeValue::Integer(digits) = self.value else {
            self.wrong_type(&format!("an integer from {low} to {high}"));
            return None;
        };
        let value = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        if let Some(value) = value.filter(|value| bounds.contains(value)) {
            return Some(value);
        }
        self.wrong(format!("{} is out of bounds; it must be from {low} to {high}", digits));
        None
    }

    /// Reads a signed integer within bounds.
    pub(super) fn signed(&self, bounds: RangeInclusive<i64>) -> Option<i64> {
        let (low, high) = (bounds.start(), bounds.end());
        let DeValue::Integer(digits) = self.value else {
            self.wrong_type(&format!("an integer from {low} to {high}"));
            return None;
        };
        let value = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        if let Some(value) = value.filter(|value| bounds.contains(value)) {
            return Some(value);
        }
        self.wrong(format!("{} is out of bounds; it must be from {low} to {high}", digits));
        None
    }

    /// Reads the elements of an array.
    pub(super) fn items(&self, wanted: &str) -> Option<Vec<Self>> {
        let DeValue::Array(items) = self.value else {
            self.wrong_type(wanted);
            return None;
        };
        let item = |(index, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let key = format!("{}[{index}]", self.place.key);
            let place = Place { key, offset: self.origin.offset + item.span().start };
            Self { report: self.report, place, origin: self.origin, value: item.get_ref() }
        };
        Some(items.iter().enumerate().map(item).collect())
    }
}
