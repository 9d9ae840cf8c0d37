//! Commands of the laboratory. `natgate bench`, `conform` and `demo` start the program natgate-lab,
//! which is installed beside this program. natgate-lab has the same commands and gets the arguments
//! unchanged.

use crate::Failure;
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Commands of natgate-lab.
pub(crate) const COMMANDS: [&str; 3] = ["bench", "conform", "demo"];

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments of natgate-lab's command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Replaces this process by natgate-lab. Returns only on failure.
pub(crate) fn run(command: &str, args: &Args) -> Result<(), Failure> {
    let how = "make build makes it, and the Debian package natgate-lab has it";
    let program = natgate_cli::beside("natgate-lab", how)?;
    let error = Command::new(&program).arg0("natgate").arg(command).args(&args.arguments).exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))?
}
