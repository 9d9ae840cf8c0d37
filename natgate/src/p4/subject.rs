//! Arguments that name a program to run, its executor, and the first entries of its tables.

use super::{failure, load, read};
use crate::Failure;
use clap::ValueEnum;
use natgate_p4::{Machine, MachineError, Program, Request, Row, Target, programs};
use std::path::{Path, PathBuf};

/// Syntax of [`Subject::entries`], for the help of commands.
pub(super) const ENTRIES_HELP: &str = "\
An entry is TABLE KEYS ACTION [ARGUMENTS]. Keys and arguments have commas between them and no
blanks: numbers, 0x..., addresses; prefixes as 10.0.0.0/8, masks as 5&&&0xf, `_` for any value.";

// A doc comment here would replace the help text of the command, because this struct is flattened
// into its arguments.
#[derive(clap::Args)]
pub(super) struct Subject {
    /// The program
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Executor of the program [default: Rust if this program was compiled with natgate, else the
    /// interpreter]
    #[arg(long, value_enum)]
    with: Option<With>,
    /// Put an entry into a table
    #[arg(long = "entry", value_name = "ENTRY")]
    entries: Vec<String>,
    /// Put a file's entries into tables, before those of --entry
    #[arg(long = "entries", value_name = "TOML")]
    file_of_entries: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum With {
    /// The reference, slow
    Interpreter,
    /// Rust that was made from the program and compiled with natgate
    Rust,
    /// DPDK's SWX pipeline
    Swx,
}

/// A program that was read.
pub(super) struct Compiled {
    /// The file's name.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) program: Program,
}

impl Subject {
    /// Files that this program reads.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&*self.file).chain(self.file_of_entries.as_deref())
    }

    pub(super) fn compile(&self) -> Result<Compiled, Failure> {
        let (name, text) = read(&self.file, "a P4 program")?;
        let program = natgate_p4::compile(&name, &text).map_err(|error| failure(&error))?;
        Ok(Compiled { name, text, program })
    }

    /// Returns the program with its first entries, ready to run, and the name of its executor.
    /// `seed` is the seed of its random numbers.
    pub(super) fn machine<'p>(
        &self,
        compiled: &'p Compiled,
        seed: u64,
    ) -> Result<(Machine<'p>, &'static str), Failure> {
        let (mut machine, with) = self.executed(compiled, seed)?;
        let program = &compiled.program;
        if let Some(path) = &self.file_of_entries {
            load(program, path, &mut machine)?;
        }
        let info = program.info();
        for text in &self.entries {
            let wrong =
                |why: MachineError| Failure::Input(vec![format!("--entry {text:?}: {why}")]);
            let row = Row::read(&info, text).map_err(wrong)?;
            machine.answer(&Request::Insert(row)).map_err(wrong)?;
        }
        Ok((machine, with))
    }

    /// Returns `count` equal copies of the program; only their random numbers differ. `workers` is
    /// the number of threads that will have queues of DPDK's ports.
    pub(super) fn machines<'p>(
        &self,
        compiled: &'p Compiled,
        seed: u64,
        count: usize,
        workers: u8,
    ) -> Result<(Vec<Machine<'p>>, &'static str), Failure> {
        if self.with == Some(With::Swx) {
            swx::reserve(&compiled.program, count, workers)?;
        }
        let (first, with) = self.machine(compiled, seed)?;
        let mut machines = vec![first];
        for number in 1..count {
            machines.push(self.machine(compiled, seed.wrapping_add(number as u64))?.0);
        }
        Ok((machines, with))
    }

    fn executed<'p>(
        &self,
        Compiled { name, program, .. }: &'p Compiled,
        seed: u64,
    ) -> Result<(Machine<'p>, &'static str), Failure> {
        if self.with == Some(With::Swx) {
            return Ok((Machine::with(program, swx::made(program, seed)?), "DPDK's SWX pipeline"));
        }
        let made = match self.with {
            Some(With::Interpreter) => None,
            _ => programs::compiled(program, seed),
        };
        match (made, self.with) {
            (Some(code), _) => Ok((Machine::with(program, code), "Rust")),
            (None, Some(With::Rust)) => Err(Failure::Input(vec![format!(
                "{name} is not among the programs compiled with this natgate ({}): put what \
                 `natgate p4 compile --emit rust {name}` prints beside them in \
                 p4/compiler/src/programs, name it there in mod.rs, and build natgate anew",
                programs::names().collect::<Vec<_>>().join(", ")
            )])),
            (None, _) => Ok((Machine::new(program, seed), "interpreter")),
        }
    }
}

#[cfg(feature = "dpdk")]
mod swx {
    use super::super::failure;
    use crate::Failure;
    use natgate_dpdk::Swx;
    use natgate_p4::Program;
    use natgate_p4::rt::Execute;
    use natgate_p4::swx::Pipeline;

    fn pipeline(program: &Program) -> Result<Pipeline, Failure> {
        program.swx().map_err(|error| failure(&error))
    }

    /// Starts DPDK with memory for `count` pipelines of the program, and buffers for workers.
    pub(super) fn reserve(program: &Program, count: usize, workers: u8) -> Result<(), Failure> {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        let pipeline = pipeline(program)?;
        Ok(Swx::reserve(&pipeline, count, workers.into()).map_err(anyhow::Error::from)?)
    }

    pub(super) fn made(program: &Program, seed: u64) -> Result<Box<dyn Execute>, Failure> {
        let made = Swx::new(&pipeline(program)?, seed).map_err(anyhow::Error::from)?;
        Ok(Box::new(made))
    }
}

#[cfg(not(feature = "dpdk"))]
mod swx {
    use super::super::WITHOUT_DPDK;
    use crate::Failure;
    use natgate_p4::Program;
    use natgate_p4::rt::Execute;

    pub(super) fn reserve(_: &Program, _: usize, _: u8) -> Result<(), Failure> {
        Err(anyhow::anyhow!(WITHOUT_DPDK).into())
    }

    pub(super) fn made(_: &Program, _: u64) -> Result<Box<dyn Execute>, Failure> {
        Err(anyhow::anyhow!(WITHOUT_DPDK).into())
    }
}
