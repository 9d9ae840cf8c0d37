//! Problems of a configuration: sentence and place, and the report that collects them.
//!
//! Places are byte offsets until the report is finished; then lines and columns are counted (both
//! from 1, columns in characters). After a TOML syntax error the report suppresses missing keys and
//! further problems of that line, because the syntax error may have caused them.

use super::places::Used;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; `None`: the file as a whole.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// Path of the key, such as `pool[0].addresses[2]`; empty if no key is concerned.
    pub key: String,
    /// One sentence: the fault and the remedy.
    pub message: String,
}

impl Problem {
    /// Makes a problem of the file as a whole.
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

/// A position in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Path of the key.
    pub(super) key: String,
    /// Byte offset.
    pub(super) offset: usize,
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Collects problems while one file is read.
pub(super) struct Report<'a> {
    name: &'a str,
    text: &'a str,
    /// Byte offset of each line.
    line_starts: Vec<usize>,
    /// TOML syntax errors.
    syntax: RefCell<Vec<(usize, String)>>,
    problems: RefCell<Vec<(Place, String)>>,
    warnings: RefCell<Vec<(Place, String)>>,
    /// Problems of other files that the configuration names.
    others: RefCell<Vec<Problem>>,
    /// Folder of the file; `None`: the text is in no file.
    folder: Option<PathBuf>,
    /// Files, sockets and listeners of the configuration.
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
            others: RefCell::default(),
            folder: None,
            used: RefCell::default(),
        }
    }

    /// The report of a file in a folder, which relative paths start from.
    pub(super) fn in_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.folder = folder;
        self
    }

    /// Folder of the file; `None`: the text is in no file.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Takes problems of another file that the configuration names.
    pub(super) fn adopt(&self, problems: Vec<Problem>) {
        self.others.borrow_mut().extend(problems);
    }

    /// Reports a TOML syntax error.
    pub(super) fn syntax(&self, offset: usize, message: &str) {
        self.syntax.borrow_mut().push((offset, message.to_owned()));
    }

    /// Reports a wrong value.
    pub(super) fn wrong(&self, place: &Place, message: impl Into<String>) {
        self.problems.borrow_mut().push((place.clone(), message.into()));
    }

    /// Reports a missing key or table.
    pub(super) fn missing(&self, place: &Place, message: impl Into<String>) {
        if self.syntax.borrow().is_empty() {
            self.wrong(place, message);
        }
    }

    /// Reports a legal but unwise value.
    pub(super) fn unwise(&self, place: &Place, message: impl Into<String>) {
        self.warnings.borrow_mut().push((place.clone(), message.into()));
    }

    /// The line of a byte offset, from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// The text of the line at a byte offset, and the offset of its begin.
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

    /// Returns problems and warnings in the order of the file.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let syntax = self.syntax.take();
        let broken: HashSet<usize> = syntax.iter().map(|(offset, _)| self.line(*offset)).collect();
        let mut problems = self.problems.take();
        problems.retain(|(place, _)| !broken.contains(&self.line(place.offset)));
        problems.extend(syntax.into_iter().map(|(offset, message)| {
            (Place { key: String::new(), offset }, format!("is not TOML: {message}"))
        }));
        let mut problems = self.in_order(problems);
        problems.extend(self.others.take());
        (problems, self.in_order(self.warnings.take()))
    }

    /// Returns messages as problems, in the order of the file.
    pub(super) fn in_order(&self, mut list: Vec<(Place, String)>) -> Vec<Problem> {
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
