//! Where things stand in a program's text, and what is said about them when they are wrong.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::fmt;

/// A stretch of bytes in one of the texts that a program consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Which text: an index into [`Sources`].
    pub(crate) text: u8,
    /// The first byte.
    pub(crate) start: u32,
    /// The byte after the last.
    pub(crate) end: u32,
}

impl Span {
    /// From the beginning of this one to the end of the other.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.end), ..self }
    }
}

/// What is wrong with a program, before its texts are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// The result of a step that a program may fail.
pub(crate) type Checked<T> = Result<T, Problem>;

/// A problem, as a result.
pub(crate) fn problem<T>(span: Span, message: impl Into<String>) -> Checked<T> {
    Err(Problem { span, message: message.into() })
}

/// The texts that a program consists of: its own, and those that it includes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sources {
    texts: Vec<(String, String)>,
}

impl Sources {
    /// Adds a text; its number.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> u8 {
        self.texts.push((name.to_owned(), text.to_owned()));
        u8::try_from(self.texts.len() - 1).expect("a program includes two texts at most")
    }

    /// The line and column at which a stretch begins, from 1.
    pub(crate) fn position(&self, span: Span) -> (usize, usize) {
        let text = &self.texts[usize::from(span.text)].1;
        let before = &text.as_bytes()[..(span.start as usize).min(text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        (line, String::from_utf8_lossy(&before[line_start..]).chars().count() + 1)
    }

    /// Says where a problem is.
    pub(crate) fn locate(&self, problem: Problem) -> Error {
        let Problem { span, message } = problem;
        let (line, column) = self.position(span);
        let (file, text) = self.texts[usize::from(span.text)].clone();
        let start = (span.start as usize).min(text.len());
        let range = start..(span.end as usize).clamp(start, text.len());
        Error { file, line, column, message, text, range }
    }
}

/// Where a text's lines begin, for who asks the positions of many stretches.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let behind = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(behind).collect() }
    }

    /// The line and column at which a stretch of the text begins, from 1.
    pub(crate) fn position(&self, span: Span) -> (usize, usize) {
        let at = span.start as usize;
        let line = self.starts.partition_point(|start| *start <= at);
        (line, self.text[self.starts[line - 1]..at].chars().count() + 1)
    }
}

/// What is wrong with a program, where, and what would be right.
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
    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, and what would be right.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The sentence, and the lines of the program that it is about, for a person to read.
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
