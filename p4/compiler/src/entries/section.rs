//! Tables of TOML with locations, and checks of their keys.

use super::value;
use crate::ir::MatchKind;
use crate::machine::Key;
use crate::source::{Checked, Span, problem};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A table, or an absent optional one.
#[derive(Clone, Copy)]
pub(super) struct Section<'t> {
    table: Option<&'t DeTable<'t>>,
    span: Span,
}

impl<'t> Section<'t> {
    pub(super) fn new(table: &'t DeTable<'t>, span: Span) -> Self {
        Self { table: Some(table), span }
    }

    /// Location of the table.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Location of a range of the same text.
    fn at(&self, range: Range<usize>) -> Span {
        Span { text: self.span.text, start: range.start as u32, end: range.end as u32 }
    }

    /// Refuses every key but these.
    pub(super) fn only(&self, names: &[&str]) -> Checked<()> {
        let mut keys = self.table.iter().flat_map(|table| table.keys());
        match keys.find(|key| !names.contains(&&**key.get_ref())) {
            None => Ok(()),
            Some(key) => {
                let words: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let there = match words.is_empty() {
                    true => "nothing".to_owned(),
                    false => words.join(", "),
                };
                let what =
                    format!("there is no `{}`; what can stand here is {there}", key.get_ref());
                problem(self.at(key.span()), what)
            }
        }
    }

    fn get(&self, name: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table?.get(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn wanted(&self, name: &str) -> Checked<(&'t DeValue<'t>, Span)> {
        match self.get(name) {
            Some(value) => Ok((value.get_ref(), self.at(value.span()))),
            None => problem(self.span, format!("`{name}` is missing; write `{name} = ...`")),
        }
    }

    /// Tables of an array `[[name]]`.
    pub(super) fn sections(&self, name: &str) -> Checked<Vec<Self>> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let span = self.at(value.span());
        let DeValue::Array(items) = value.get_ref() else {
            return problem(span, format!("write `[[{name}]]` above each"));
        };
        let section = |item: &'t Spanned<DeValue<'t>>| match item.get_ref() {
            DeValue::Table(table) => Ok(Self::new(table, self.at(item.span()))),
            _ => problem(self.at(item.span()), format!("write `[[{name}]]` above each")),
        };
        items.iter().map(section).collect()
    }

    /// A table within this one; an empty one if it is absent.
    pub(super) fn table(&self, name: &str) -> Checked<Self> {
        match self.get(name) {
            None => Ok(Self { table: None, span: self.span }),
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => Ok(Self::new(table, self.at(value.span()))),
                _ => problem(self.at(value.span()), format!("write `{name} = {{ NAME = VALUE }}`")),
            },
        }
    }

    pub(super) fn text(&self, name: &str) -> Checked<(&'t str, Span)> {
        match self.wanted(name)? {
            (DeValue::String(text), span) => Ok((text, span)),
            (_, span) => problem(span, format!("a name in quotes is expected: {name} = \"...\"")),
        }
    }

    /// A value of at most `bits` bits.
    pub(super) fn number(&self, name: &str, bits: u32) -> Checked<u128> {
        let (value, span) = self.wanted(name)?;
        value::number(value, bits).or_else(|what| problem(span, what))
    }

    /// Match of a key of `bits` bits.
    pub(super) fn key(&self, name: &str, kind: MatchKind, bits: u32) -> Checked<Key> {
        let (value, span) = self.wanted(name)?;
        value::key(value, kind, bits).or_else(|what| problem(span, what))
    }
}
