//! A compiler for P4-16 programs of the Portable NIC Architecture in the variant of DPDK, and an
//! interpreter of its output.
//!
//! A program goes through stages; each is a module that knows only the one before: `lexer` (text to
//! tokens), `parse` (tokens to the syntax tree, `ast`), `check` (names, types, constants and
//! instances resolved: the typed intermediate form, `ir`). The interpreter executes that form and
//! is the reference for all other executors. `emit` converts it to Rust source, which uses [`rt`];
//! [`programs`] are those that were compiled with this crate. [`Machine`] is a program in operation
//! with any executor: it processes packet by packet, with tables that a control plane fills.
//! [`Switch`] connects it to two devices; in a [`Team`] several threads execute one program.
//!
//! Unsupported parts of the language are refused at their location, with a message that names them.
//! Any text may come in: sizes, depths and the results of instances are limited.
//!
//! ```
//! use natgate_p4::{Machine, Outcome, compile, programs};
//! use std::time::Duration;
//!
//! let text = programs::text("nat").expect("a program of this crate");
//! let program = compile("nat.p4", text).expect("it compiles");
//! let mut machine = Machine::new(&program, 1);
//! // Its tables are empty.
//! assert!(matches!(machine.process(Duration::ZERO, 1, &[0; 60]), Outcome::Dropped));
//!
//! let error = compile("empty.p4", "").err().expect("a program has a main package");
//! assert!(error.rendered().contains("empty.p4"));
//! ```

// Generated code names this crate, wherever it is compiled.
extern crate self as natgate_p4;

mod ast;
mod check;
mod dump;
mod emit;
mod entries;
mod fold;
mod info;
mod ir;
mod lexer;
mod machine;
mod parse;
mod prelude;
pub mod programs;
mod request_queue;
pub mod rt;
mod source;
mod switch;
pub mod swx;
mod team;
mod unsupported;

pub use entries::Entries;
pub use info::{
    ActionInfo, ArrayInfo, ChoiceInfo, DataInfo, FieldInfo, Info, ParamInfo, Preamble, TableInfo,
};
pub use ir::{MatchKind, Program, Unit};
pub use machine::{
    Answer, CONTROLLER_PORT, Error as MachineError, Fate, InstalledRow, Key, MOST_ANSWERED,
    Machine, Notification, Outcome, Rates, Request, Row, TableEntry, Target,
};
pub use request_queue::{Controller, MOST_REQUESTS, Message, RequestQueue, request_queue};
pub use source::Error;
pub use switch::{Counts, FIRST_PORT, Switch};
pub use team::{Held, Team};

use ir::{Object, ObjectKind, Table};
use source::{Sources, Span};

/// Compiles a program; `name` is its file's name, for messages.
///
/// # Errors
///
/// Description and location of an error or an unsupported feature.
pub fn compile(name: &str, text: &str) -> Result<Program, Error> {
    let mut sources = Sources::default();
    let end = Span { text: 0, start: text.len() as u32, end: text.len() as u32 };
    let checked =
        parse::program(&mut sources, name, text).and_then(|decls| check::check(&decls, end));
    match checked {
        Ok(mut program) => {
            program.places.sources = sources;
            Ok(program)
        }
        Err(problem) => Err(sources.locate(problem)),
    }
}

impl Program {
    /// Numbers of the program's parts, by their names in the plural.
    pub fn summary(&self) -> [(&'static str, usize); 5] {
        [
            ("tables", self.tables.len()),
            ("actions", self.actions.len()),
            ("parsers", self.parsers.len()),
            ("externs", self.objects.len()),
            ("slots", self.slots.len()),
        ]
    }

    /// Names of the tables and objects in which packets leave what later packets read: tables that
    /// packets add entries to, registers and meters. Counters are not among them, because packets
    /// do not read them.
    pub fn packet_state(&self) -> Vec<&str> {
        let tables = self.tables.iter().filter(|table| table.add_on_miss);
        let is_read = |object: &&Object| {
            matches!(object.kind, ObjectKind::Meter { .. } | ObjectKind::Register { .. })
        };
        let objects = self.objects.iter().filter(is_read);
        tables.map(|table| &*table.name).chain(objects.map(|object| &*object.name)).collect()
    }

    /// Most bytes that compiled Rust allocates: counters and registers from the start, and tables
    /// that packets fill. Entries that controllers insert into other tables come in addition.
    pub fn memory(&self) -> u64 {
        let bytes = |width: u32| u64::from(width.div_ceil(8).next_power_of_two());
        let of = |kind: &ObjectKind| match kind {
            ObjectKind::Counter { size, .. } => u64::from(*size) * 2 * bytes(64),
            ObjectKind::Register { size, initial } => {
                let cell: u64 = initial.iter().map(|(ty, _)| bytes(ty.width())).sum();
                u64::from(*size) * cell
            }
            _ => 0,
        };
        let objects: u64 = self.objects.iter().map(|object| of(&object.kind)).sum();
        let tables = self.tables.iter().filter(|table| table.add_on_miss);
        let tables: Vec<u64> = tables.map(|table| self.table_memory(table)).collect();
        // A table that removes expired entries exists twice meanwhile.
        objects + tables.iter().sum::<u64>() + tables.iter().max().unwrap_or(&0)
    }

    /// Bytes of an exact table with as many entries as it has room for.
    fn table_memory(&self, table: &Table) -> u64 {
        let key = match table.keys.iter().map(|key| key.expr.ty.width()).sum() {
            0..=64_u32 => 8,
            65..=128 => 16,
            _ => table.keys.len() * 16,
        };
        let actions = table.actions.iter().map(|number| {
            let params = self.actions[*number].params.iter();
            let bytes =
                params.map(|(_, _, ty)| (ty.width().div_ceil(8) as usize).next_power_of_two());
            let (all, widest) =
                bytes.fold((0, 1), |(all, widest), one| (all + one, one.max(widest)));
            // The number of the action needs room, too.
            ((all + 1_usize).next_multiple_of(widest), widest)
        });
        let (action, widest) = actions.max().unwrap_or((1, 1));
        // So do the deadline of the entry and its timer.
        let entry = (action + 12).next_multiple_of(widest.max(8));
        rt::lines::memory(table.size, (key + entry).next_multiple_of(widest.max(8)))
    }
}

/// Tokens of a program, one a line: location and kind.
///
/// # Errors
///
/// Description and location of bytes that are no token.
pub fn tokens(name: &str, text: &str) -> Result<Vec<String>, Error> {
    let mut sources = Sources::default();
    let number = sources.add(name, text);
    let tokens = lexer::tokens(number, text).map_err(|problem| sources.locate(problem))?;
    Ok(dump::tokens(&tokens, text))
}

/// The syntax tree of a program: a line for each of its own declarations, statements and fields,
/// with its location; inner parts follow on the lines below, indented.
///
/// # Errors
///
/// Description and location of a syntax error. Names and types are not checked.
pub fn tree(name: &str, text: &str) -> Result<String, Error> {
    let mut sources = Sources::default();
    let decls = parse::program(&mut sources, name, text);
    Ok(dump::tree(&decls.map_err(|problem| sources.locate(problem))?, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nat_keeps_what_packets_leave() {
        let text = programs::text("nat").expect("it is there");
        let nat = compile("nat", text).unwrap_or_else(|error| panic!("{error}"));
        let kept = ["stations", "upload", "download", "subscriber_rate"];
        assert_eq!(nat.packet_state(), kept.map(|name| format!("NatMain.{name}")));
    }

    #[test]
    fn memory_is_that_of_full_tables() {
        let text = programs::text("nat").expect("it is there");
        let nat = compile("nat", text).unwrap_or_else(|error| panic!("{error}"));
        // Stations, upload, download, one of these twice; drops and subscribers.
        let lines = 4096 + 3 * (1 << 20);
        assert_eq!(nat.memory(), lines * 64 + (256 + 65_536) * 16);
    }
}
