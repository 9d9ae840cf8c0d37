//! Parts that natgate's programs share at the command line.
//!
//! A command returns a [`Failure`]; [`exit`] prints it and gives the exit code. [`manual`] writes
//! man pages and shell completions from the description that `--help` prints. [`memory`] compares
//! the memory that a command needs with the memory of the machine. [`beside`] finds the other
//! program.

pub mod manual;
pub mod memory;

use std::path::PathBuf;
use std::process::ExitCode;

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

/// Prints a failure on standard error and gives the exit code of the program.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Input(messages)) => {
            for message in messages {
                natgate_service::complain(&message);
            }
            ExitCode::from(2)
        }
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
