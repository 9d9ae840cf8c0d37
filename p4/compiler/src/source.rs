//! Locations in a program's text, and messages about errors there.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::fmt;

/// A range of bytes in one of the texts of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Index of the text in [`Sources`].
    pub(crate) text: u8,
    /// Offset of the first byte.
    pub(crate) start: u32,
    /// Offset of the byte after the last.
    pub(crate) end: u32,
}

impl Span {
    /// Range from the beginning of this one to the end of the other.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.end), ..self }
    }
}

/// A problem of a program, without its text.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// Result of a step that may find a problem.
pub(crate) type Checked<T> = Result<T, Problem>;

/// A problem as a result.
pub(crate) fn problem<T>(span: Span, message: impl Into<String>) -> Checked<T> {
    Err(Problem { span, message: message.into() })
}

/// Texts of a program: its own, and those that it includes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sources {
    texts: Vec<(String, String)>,
}

impl Sources {
    /// Adds a text; returns its number.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> u8 {
        self.texts.push((name.to_owned(), text.to_owned()));
        u8::try_from(self.texts.len() - 1).expect("a program includes two texts at most")
    }

    /// Line and column of a range's begin, from 1.
    pub(crate) fn position(&self, span: Span) -> (usize, usize) {
        let text = &self.texts[usize::from(span.text)].1;
        let before = &text.as_bytes()[..(span.start as usize).min(text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
    }

    /// Converts a problem to an error with its location.
    pub(crate) fn locate(&self, problem: Problem) -> Error {
        let Problem { span, message } = problem;
        let (line, column) = self.position(span);
        let (file, text) = self.texts[usize::from(span.text)].clone();
        let start = (span.start as usize).min(text.len());
        let range = start..(span.end as usize).clamp(start, text.len());
        Error { file, line, column, message, text, range }
    }
}

/// Offsets of a text's lines, for many look-ups of positions.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let behind = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(behind).collect() }
    }

    /// Line and column of a range's begin, from 1.
    pub(crate) fn position(&self, span: Span) -> (usize, usize) {
        let at = span.start as usize;
        let line = self.starts.partition_point(|start| *start <= at);
        (line, self.text[self.starts[line - 1]..at].chars().count() + 1)
    }
}

/// An error in a program: description, location, and what would be right.
#[derive(Clone, Debug)]
pub struct Error {
    file: String,
    line: usize,
    column: usize,
    message: String,
    text: String,
    range: std::ops::Range<usize>,
}

impl Error {
    /// Number of the line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Number of the column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Description of the error, and of what would be right.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The message with the lines of the program that it is about.
    pub fn rendered(&self) -> String {
        let mark = AnnotationKind::Primary.span(self.range.clone());
        let snippet = Snippet::source(&*self.text).path(&*self.file).annotation(mark);
        let report =
            [Group::with_title(Level::ERROR.primary_title(&*self.message)).element(snippet)];
        Renderer::plain().render(&report)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, .. } = self;
        write!(f, "{file}:{line}:{column}: {message}")
    }
}

impl std::error::Error for Error {}
