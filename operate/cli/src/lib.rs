//! Parts that natgate's programs share at the command line.
//!
//! A command returns a [`Failure`]; [`exit`] prints it and gives the exit code. [`manual`] writes
//! man pages and shell completions from the description that `--help` prints. [`memory`] compares
//! the memory that a command needs with the memory of the machine. [`beside`] finds the other
//! program.
//!
//! ```
//! use natgate_cli::{Failure, exit, print};
//!
//! fn greet(name: &str) -> Result<(), Failure> {
//!     if name.is_empty() {
//!         return Err(Failure::Input(vec!["the name is empty; write one".to_owned()]));
//!     }
//!     Ok(print(&format!("natgate {name}\n"))?)
//! }
//!
//! // A program returns this code.
//! let _code = exit(greet("check"));
//! assert!(matches!(greet(""), Err(Failure::Input(messages)) if messages.len() == 1));
//! ```

pub mod manual;
pub mod memory;

use anyhow::Context;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Message if standard output cannot be written.
pub const NO_OUTPUT: &str = "standard output cannot be written";

/// Reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The user's input is wrong (arguments, configuration, capture): exit code 2. One message a
    /// line.
    Input(Vec<String>),
    /// An operation failed at run time: exit code 1.
    Runtime(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runtime(error)
    }
}

/// Writes to standard output.
///
/// # Errors
/// [`NO_OUTPUT`] with the system's error. [`exit`] takes a closed pipe for success.
pub fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context(NO_OUTPUT)
}

/// True if the reader of standard output has closed the pipe: it has all that it wants.
fn has_no_reader(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    error.to_string() == NO_OUTPUT
        && cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a failure on standard error and gives the exit code of the program. A closed pipe at
/// standard output is no failure.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Input(messages)) => {
            for message in messages {
                natgate_service::complain(&message);
            }
            ExitCode::from(2)
        }
        Err(Failure::Runtime(error)) if has_no_reader(&error) => ExitCode::SUCCESS,
        Err(Failure::Runtime(error)) => {
            natgate_service::complain(&format!("{error:#}"));
            ExitCode::from(1)
        }
    }
}

/// Path of another of natgate's programs: in the folder of the running program, or else in PATH.
///
/// # Errors
/// The program is in neither place. The message says how to install it.
pub fn beside(name: &str, how_to_install: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().ok();
    let neighbor = own.map(|path| path.with_file_name(name));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    neighbor
        .into_iter()
        .chain(in_path)
        .find(|path| path.is_file())
        .ok_or_else(|| anyhow::anyhow!("the program {name} is not installed; {how_to_install}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_at_standard_output_is_no_failure() {
        let failed = |kind: io::ErrorKind, what: &'static str| {
            let result: Result<(), anyhow::Error> = Err(io::Error::from(kind)).context(what);
            exit(result.map_err(Failure::from))
        };
        assert_eq!(failed(io::ErrorKind::BrokenPipe, NO_OUTPUT), ExitCode::SUCCESS);
        assert_eq!(failed(io::ErrorKind::StorageFull, NO_OUTPUT), ExitCode::from(1));
        assert_eq!(failed(io::ErrorKind::BrokenPipe, "the log"), ExitCode::from(1));
    }
}
