//! What is wrong with a configuration, and where: the sentences, their places, and the report that
//! collects them while a file is read.
//!
//! Places are kept as byte offsets; lines and columns (both from 1, columns in characters) are
//! counted when the report is finished. Where TOML itself could not be read, the report keeps quiet
//! about what is missing and about the rest of that line: it would blame the user for the reader's
//! confusion.

use super::places::Used;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

/// One thing that is wrong, or unwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Line, from 1; `None`: the file as a whole.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// The key's path, such as `pool[0].addresses[2]`; empty where no key is to blame.
    pub key: String,
    /// What is wrong and what would be right, one sentence.
    pub message: String,
}

impl Problem {
    /// A problem of the file as a whole.
    pub fn of_file(file: &str, message: String) -> Self {
        Self { file: file.to_owned(), line: None, column: None, key: String::new(), message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column}:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for Problem {}

/// Where something stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The key's path.
    pub(super) key: String,
    /// Byte offset.
    pub(super) offset: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Collects problems while one file is read.
pub(super) struct Report<'a> {
    name: &'a str,
    text: &'a str,
    /// Where each line begins.
    line_starts: Vec<usize>,
    /// What is not TOML.
    syntax: RefCell<Vec<(usize, String)>>,
    problems: RefCell<Vec<(Place, String)>>,
    warnings: RefCell<Vec<(Place, String)>>,
    /// Files, sockets and listeners that the configuration uses.
    pub(super) used: RefCell<Vec<Used>>,
}

impl<'a> Report<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            name,
            text,
            line_starts: std::iter::once(0).chain(after_newlines).collect(),
            syntax: RefCell::default(),
            problems: RefCell::default(),
            warnings: RefCell::default(),
            used: RefCell::default(),
        }
    }

    /// The text is not TOML at this offset.
    pub(super) fn syntax(&self, offset: usize, message: &str) {
        self.syntax.borrow_mut().push((offset, message.to_owned()));
    }

    /// A value is wrong.
    pub(super) fn wrong(&self, place: &Place, message: impl Into<String>) {
        self.problems.borrow_mut().push((place.clone(), message.into()));
    }

    /// A key or table that must be there is not.
    pub(super) fn missing(&self, place: &Place, message: impl Into<String>) {
        if self.syntax.borrow().is_empty() {
            self.wrong(place, message);
        }
    }

    /// Something is legal and yet unwise.
    pub(super) fn unwise(&self, place: &Place, message: impl Into<String>) {
        self.warnings.borrow_mut().push((place.clone(), message.into()));
    }

    /// The line of a byte offset, from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// The text of the line of a byte offset, and the offset where the line begins.
    pub(super) fn line_at(&self, offset: usize) -> (&'a str, usize) {
        let start = self.line_starts[self.line(offset) - 1];
        let rest = self.text.get(start..).unwrap_or_default();
        (rest.lines().next().unwrap_or_default(), start)
    }

    /// Line and column of a byte offset, both from 1; the column in characters.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line(offset);
        let before = self.text.get(self.line_starts[line - 1]..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// Problems and warnings, in the file's order.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let syntax = self.syntax.take();
        let broken: HashSet<usize> = syntax.iter().map(|(offset, _)| self.line(*offset)).collect();
        let mut problems = self.problems.take();
        problems.retain(|(place, _)| !broken.contains(&self.line(place.offset)));
        problems.extend(syntax.into_iter().map(|(offset, message)| {
            (Place { key: String::new(), offset }, format!("is not TOML: {message}"))
        }));
        (self.in_order(problems), self.in_order(self.warnings.take()))
    }

    fn in_order(&self, mut list: Vec<(Place, String)>) -> Vec<Problem> {
        list.sort_by_key(|(place, _)| place.offset);
        let problem = |(place, message): (Place, String)| {
            let (line, column) = self.position(place.offset);
            Problem {
                line: Some(line),
                column: Some(column),
                key: place.key,
                ..Problem::of_file(self.name, message)
            }
        };
        list.into_iter().map(problem).collect()
    }
}
