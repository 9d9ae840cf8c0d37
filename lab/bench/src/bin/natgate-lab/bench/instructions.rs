//! `natgate bench instructions`: instructions and cache lines a packet, counted by valgrind.

use super::engine::read;
use super::{Output, command};
use crate::Failure;
use anyhow::Context;
use natgate_cli::NO_OUTPUT;
use natgate_lab::instructions::{self, Count, Error, against, counted, page, table};
use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
This needs valgrind. It writes files only if --out names a directory. The counts depend on the
program alone, not on the machine or its load.

Example:
natgate bench instructions --compare docs/results/instructions.json

lab/bench/src/instructions/README.md describes the counts.";

/// Count instructions and cold cache lines a packet, by valgrind
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Show the change since this report was made
    #[arg(long, value_name = "JSON")]
    compare: Option<PathBuf>,
    /// Run the code that valgrind counts
    #[arg(long, hide = true)]
    counted: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.counted {
        counted(args.output.quick);
        return Ok(());
    }
    let earlier = args.compare.as_deref().map(read).transpose()?;
    let counts = count(args.output.quick).map_err(anyhow::Error::from)?;
    if args.output.json || args.output.out.is_some() {
        args.output.deliver("instructions", &page(&counts, &command()))?;
    }
    if args.output.json {
        return Ok(());
    }
    let mut text = table(&counts).to_string();
    if let Some(earlier) = earlier {
        text.push('\n');
        for change in against(&counts, &earlier) {
            text.push_str(&format!("{change}\n"));
        }
    }
    let mut output = std::io::stdout();
    Ok(output.write_all(text.as_bytes()).context(NO_OUTPUT)?)
}

/// Starts this program under valgrind, and returns the counts.
pub(super) fn count(quick: bool) -> Result<Vec<Count>, Error> {
    let failed = |error: std::io::Error| Error::Failed(error.to_string());
    let program = std::env::current_exe().map_err(failed)?;
    let directory = std::env::temp_dir().join(format!("natgate-{}", std::process::id()));
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let mut arguments: Vec<&OsStr> =
        ["bench", "instructions", "--counted"].map(OsStr::new).to_vec();
    if quick {
        arguments.push(OsStr::new("--quick"));
    }
    let counts = instructions::count(&program, &arguments, &directory, quick);
    // The output of callgrind has been read. A directory that stays is harmless.
    let _ = std::fs::remove_dir_all(&directory);
    counts
}
