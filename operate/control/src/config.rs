//! The configuration file: from TOML text to [`Settings`], or to every problem that it has.
//!
//! The stages of a file: `toml` makes a tree that keeps the position of every value; [`sections`]
//! and [`rules`] turn the tree into a draft, value by value; [`checks`] compares the values with
//! each other; the draft becomes settings. A problem never stops the reading: one run reports all
//! problems, each with line, column and key. A value that is legal but unwise becomes a warning.
//!
//! The reader follows the links of paths ([`places`]), and reads the file of lw4o6's bindings. It
//! reads nothing else outside the file: no device, no name, no clock.

mod admission;
mod alg;
mod bindings;
mod checks;
mod control;
mod devices;
mod difference;
mod dnat_checks;
mod draft;
mod dslite;
mod fleet;
mod health;
mod ipv6;
mod ipv6_checks;
mod kernel;
mod logs;
mod monitoring;
mod neighbors;
mod page;
mod pcp;
mod pieces;
mod places;
mod policy;
mod pools;
mod problem;
mod reader;
mod realms;
mod restart;
mod rivals;
mod router6;
mod rule_checks;
mod rules;
mod schema;
mod sections;
mod shares;
mod softwires;
mod static_checks;
mod statics;
mod statics6;
mod unquoted;
mod values;
mod values6;
mod whole;

pub use bindings::{parse_binding, parse_bindings, read_bindings};
pub(crate) use difference::{MOST_TEXT, difference};
pub use places::{Argument, Places};
pub use problem::Problem;
pub(crate) use realms::DEFAULT as DEFAULT_REALM;
pub use rivals::Rivals;
pub use schema::{PLACES, PlaceKey, PlaceKind, SECTIONS};
pub use values::duration;
pub(crate) use values::{show_duration, show_prefix, show_range};

use natgate_engine::BlockConflict;
use natgate_gateway::Settings;
use reader::{Origin, Section};
use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::DeTable;

/// Largest size of a configuration file, bytes.
const MAX_FILE: u64 = 256 << 20;

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The gateway's settings.
    pub settings: Settings,
    /// Warnings: legal but unwise values, in the order of the file.
    pub warnings: Vec<Problem>,
    /// Files and sockets of the configuration, defaults included.
    pub places: Places,
}

/// Reads a configuration file.
///
/// # Errors
/// Every problem, one sentence each: `FILE:LINE:COLUMN: key: what is wrong; what would be right`.
pub fn load(path: &Path) -> Result<Settings, Vec<String>> {
    settings(read(path))
}

/// Reads a configuration from its text. Problems call the file `name`.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, name: &str) -> Result<Settings, Vec<String>> {
    settings(read_text(text, name))
}

/// Reads a configuration file and keeps problems and warnings as data.
///
/// # Errors
/// Every problem, in the file's order.
pub fn read(path: &Path) -> Result<Configuration, Vec<Problem>> {
    let text = read_file(path)?;
    read_in_pieces(&text, &path.display().to_string(), pieces::RULES, Some(path))
}

/// Reads a configuration file that is to replace the settings in force. `in_force` has the settings
/// as the file gave them.
///
/// # Errors
/// Every problem, in the file's order; if there is none, every key that only a restart can change.
pub fn reread(path: &Path, in_force: &Settings) -> Result<Configuration, Vec<Problem>> {
    reread_text(&read_file(path)?, path, in_force)
}

/// Reads the text of a configuration that is to replace the settings in force. `in_force` has the
/// settings as the file gave them.
///
/// # Errors
/// Every problem, in the file's order; if there is none, every key that only a restart can change.
pub(crate) fn reread_text(
    text: &str,
    path: &Path,
    in_force: &Settings,
) -> Result<Configuration, Vec<Problem>> {
    let name = path.display().to_string();
    let new = read_in_pieces(text, &name, pieces::RULES, Some(path))?;
    let problems = restart::problems(text, &name, in_force, &new);
    if problems.is_empty() { Ok(new) } else { Err(problems) }
}

/// The problem of a forwarded port in a block that its host cannot have while the gateway runs.
/// `settings` are the new ones, read from `text`.
pub(crate) fn block_conflict(
    text: &str,
    path: &Path,
    conflict: &BlockConflict,
    settings: &Settings,
) -> Problem {
    restart::block_conflict(text, &path.display().to_string(), conflict, settings)
}

/// Reads the text of a configuration file.
pub(crate) fn read_file(path: &Path) -> Result<String, Vec<Problem>> {
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
    text_of(bytes, &name).map_err(|mut problems| {
        problems.iter_mut().for_each(|problem| problem.message.insert_str(0, "is not TOML: "));
        problems
    })
}

/// Converts the bytes of a file to text. Problems call the file `name`.
///
/// # Errors
/// The position of the first byte that is not UTF-8.
pub fn text_of(bytes: Vec<u8>, name: &str) -> Result<String, Vec<Problem>> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]);
        let report = problem::Report::new(name, &text);
        let place = problem::Place { key: String::new(), offset: text.len() };
        report.wrong(&place, "a byte here is not UTF-8; save the file as UTF-8");
        report.finish().0
    })
}

/// Reads a configuration from its text and keeps problems and warnings as data.
///
/// # Errors
/// Every problem, in the file's order.
pub fn read_text(text: &str, name: &str) -> Result<Configuration, Vec<Problem>> {
    read_in_pieces(text, name, pieces::RULES, None)
}

/// Reads a text; the rules at its end are read `rules` at a time. `path` is the path of the file.
fn read_in_pieces(
    text: &str,
    name: &str,
    rules: usize,
    path: Option<&Path>,
) -> Result<Configuration, Vec<Problem>> {
    let folder = path.and_then(Path::parent).map(Path::to_owned);
    let report = problem::Report::new(name, text).in_folder(folder);
    report.used.borrow_mut().extend(path.map(places::Used::configuration));
    let (head, pieces) = pieces::cut(text, rules);
    let mut origin = Origin::default();
    let tree = parse_piece(text, 0..head, &report);
    let root = Section::root(&report, &tree, origin);
    let mut draft = sections::read(&root);
    origin.tables = root.count("rule");
    for piece in pieces {
        origin.offset = piece.range.start;
        let tree = parse_piece(text, piece.range, &report);
        draft.rules.extend(sections::read_rules(&Section::root(&report, &tree, origin)));
        origin.tables += piece.rules;
    }
    whole::give_all_ports(&mut draft);
    checks::check(&draft, &report);
    places::check(&report);
    let places = Places::of(&report);
    let (problems, warnings) = report.finish();
    if problems.is_empty() {
        Ok(Configuration { settings: draft.into_settings(), warnings, places })
    } else {
        Err(problems)
    }
}

/// Parses a piece of a text as a tree.
fn parse_piece<'a>(
    text: &'a str,
    range: Range<usize>,
    report: &problem::Report<'_>,
) -> Spanned<DeTable<'a>> {
    let start = range.start;
    let (tree, syntax) = DeTable::parse_recoverable(&text[range]);
    let offset = |error: &toml::de::Error| start + error.span().map_or(0, |span| span.start);
    let mut explained = HashSet::new();
    for error in &syntax {
        let (line, place) = report.line_at(offset(error));
        // One sentence about a value without quotes replaces the other errors of its line.
        match unquoted::find(line) {
            Some(value) if explained.insert(place) => {
                report.syntax(place + value.offset, &value.message);
            }
            Some(_) => {}
            None => report.syntax(offset(error), error.message()),
        }
    }
    tree
}

fn settings(result: Result<Configuration, Vec<Problem>>) -> Result<Settings, Vec<String>> {
    result.map(|configuration| configuration.settings).map_err(sentences)
}

/// Formats problems as sentences.
pub fn sentences(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Twelve rules; `odd` is a line of one of them.
    fn text(odd: &str) -> String {
        let mut text = String::from(
            "[inside]\ndevice = \"a\"\n[outside]\ndevice = \"b\"\n\
             [[pool]]\naddresses = [\"192.0.2.1\"]\n",
        );
        for number in 0..12 {
            let line = if number == 7 { odd } else { "" };
            let matches = format!("match = {{ source = \"10.0.0.{number}\" }}");
            writeln!(
                text,
                "[[rule]] # {number}\nkind = \"snat\"\n{matches}\n{line}\npool = \"default\""
            )
            .expect("a string takes all");
        }
        text
    }

    #[test]
    fn a_file_in_pieces_says_what_it_says_as_a_whole() {
        let wrong = [
            "",
            "priority = 3",
            "priority = \"x\"",
            "kint = 1",
            "pool = 5",
            "match = 5",
            "address = \"1.2.3.4\"",
            "[rule.match]",
            "[[rule]]",
            "[nat]",
            "[nat]\nmapping = 1\n[[rule]]",
        ];
        for odd in wrong {
            let text = text(odd);
            let whole = read_in_pieces(&text, "t", usize::MAX, None);
            for rules in [1, 2, 5, 11, 12] {
                assert_eq!(
                    read_in_pieces(&text, "t", rules, None),
                    whole,
                    "{rules} rules of {text}"
                );
            }
        }
        assert_eq!(read_text(&text(""), "t").map(|read| read.settings.engine.rules.len()), Ok(12));
    }
}
