//! The configuration file: from TOML text to [`Settings`], or to every problem that it has.
//!
//! The way of a file: `toml` makes a tree in which everything knows its place; [`sections`] and
//! [`rules`] turn it into a draft, value by value; [`checks`] looks at what no single value shows;
//! then the draft becomes settings. A problem never stops the reading, so that one run tells all of
//! them, each with line, column and key. What is legal and yet unwise becomes a warning.
//!
//! Nothing is looked up outside the file: no device, no name, no clock.

mod checks;
mod draft;
mod problem;
mod reader;
mod rules;
mod schema;
mod sections;
mod shares;
mod values;

pub use problem::Problem;
pub use schema::SECTIONS;
pub use values::duration;
pub(crate) use values::{show_duration, show_prefix, show_range};

use natgate_gateway::Settings;
use std::io::Read;
use std::path::Path;

/// Bytes that a configuration file may have.
const MAX_FILE: u64 = 64 << 20;

/// A configuration that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// What the gateway is told.
    pub settings: Settings,
    /// What is legal and yet unwise, in the file's order.
    pub warnings: Vec<Problem>,
}

/// Reads a configuration file.
///
/// # Errors
/// Every problem, one sentence each: `FILE:LINE:COLUMN: key: what is wrong; what would be right`.
pub fn load(path: &Path) -> Result<Settings, Vec<String>> {
    sentences(read(path))
}

/// Reads a configuration from its text; `name` is what problems call the file.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, name: &str) -> Result<Settings, Vec<String>> {
    sentences(read_text(text, name))
}

/// Reads a configuration file and keeps problems and warnings as data.
///
/// # Errors
/// Every problem, in the file's order.
pub fn read(path: &Path) -> Result<Configuration, Vec<Problem>> {
    let name = path.display().to_string();
    let unreadable = |message: String| vec![Problem::of_file(&name, message)];
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            unreadable(format!("cannot be read: {error}; name a configuration file you may read"))
        })?;
    if bytes.len() as u64 > MAX_FILE {
        let limit = MAX_FILE >> 20;
        return Err(unreadable(format!("is longer than {limit} MiB; name a configuration file")));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => read_text(text, &name),
        Err(error) => {
            let text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let report = problem::Report::new(&name, &text);
            report.syntax(text.len(), "a byte here is not UTF-8; save the file as UTF-8");
            Err(report.finish().0)
        }
    }
}

/// Reads a configuration from its text and keeps problems and warnings as data.
///
/// # Errors
/// Every problem, in the file's order.
pub fn read_text(text: &str, name: &str) -> Result<Configuration, Vec<Problem>> {
    let (tree, syntax) = toml::de::DeTable::parse_recoverable(text);
    let report = problem::Report::new(name, text);
    for error in &syntax {
        let offset = error.span().map_or(0, |span| span.start);
        report.syntax(offset, error.message());
    }
    let draft = sections::read(reader::Section::root(&report, &tree));
    checks::check(&draft, &report);
    let (problems, warnings) = report.finish();
    if problems.is_empty() {
        Ok(Configuration { settings: draft.into_settings(), warnings })
    } else {
        Err(problems)
    }
}

fn sentences(result: Result<Configuration, Vec<Problem>>) -> Result<Settings, Vec<String>> {
    result
        .map(|configuration| configuration.settings)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}
