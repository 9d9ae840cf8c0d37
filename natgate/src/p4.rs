//! `natgate p4`: compiles P4-16 programs, prints stages and results of the compiler, and runs
//! programs.
//!
//! The crate natgate-p4 compiles. This file has the arguments, the streams and the exit codes.

mod queues;
mod replay;
mod run;
mod subject;
mod workers;

use crate::Failure;
use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use natgate_cli::print;
use natgate_p4::{Entries, Machine, Program};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

#[cfg(not(feature = "dpdk"))]
const WITHOUT_DPDK: &str = "this natgate was built without DPDK; build it with `cargo build \
    --release -p natgate --features dpdk`";

const AFTER_HELP: &str = "\
Programs are for the Portable NIC Architecture in DPDK's flavour: they include <core.p4> and
<dpdk/pna.p4>. The compiler refuses what it does not support by name and place, as
FILE:LINE:COLUMN: MESSAGE, with exit code 2.

Examples:
natgate p4 compile p4/nat.p4
natgate p4 dump --stage ir p4/nat.p4
natgate p4 run p4/nat.p4 --inside eth1 --outside eth0
natgate p4 replay p4/nat.p4 --in before.pcapng --out after.pcapng";

/// Compile P4-16 programs
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compile(CompileArgs),
    Dump(DumpArgs),
    Run(run::Args),
    Replay(replay::Args),
}

/// Check a program, and print its size or another form of it
#[derive(clap::Args)]
#[command(after_help = "With --json, standard output has one object:\n  \
    {\"ok\": true, \"tables\": N, \"actions\": N, \"parsers\": N, \"externs\": N, \"slots\": N}\n  \
    {\"ok\": false, \"errors\": [{\"file\", \"line\", \"column\", \"message\"}]}\n\n\
    The output of --emit rust uses the crate natgate-p4, module rt. The output of --emit spec\n\
    requires the ports, tables and extern objects that `natgate p4 run --with swx` has.\n\n\
    Examples:\nnatgate p4 compile p4/nat.p4\nnatgate p4 compile p4/nat.p4 --emit rust > nat.rs\n\
    natgate p4 compile --p4info nat.p4info.txtpb --entries p4/nat.toml p4/nat.p4")]
struct CompileArgs {
    /// The program
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Print the program in this form
    #[arg(long, value_enum, conflicts_with = "json")]
    emit: Option<Emit>,
    /// Write the P4Info of the program for P4Runtime's clients: as text, or as bytes if the name
    /// ends in .bin or .binpb
    #[arg(long, value_name = "OUT")]
    p4info: Option<PathBuf>,
    /// Check a file of entries for the program's tables
    #[arg(long, value_name = "TOML")]
    entries: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Emit {
    /// Rust source
    Rust,
    /// A pipeline specification (.spec) for DPDK's SWX
    Spec,
}

/// Show a stage of the compiler
#[derive(clap::Args)]
#[command(
    after_help = "The check resolves names and types and makes the typed intermediate form in one \
    step, so ir is the\nchecked program.\n\nExamples:\nnatgate p4 dump --stage tokens p4/nat.p4\n\
    natgate p4 dump --stage ast p4/nat.p4"
)]
struct DumpArgs {
    /// The program
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Stage of the compiler
    #[arg(long, value_enum, default_value = "ir")]
    stage: Stage,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stage {
    /// The tokens, one a line
    Tokens,
    /// The syntax tree, with brackets around operators
    Ast,
    /// The typed intermediate form of the checked program
    Ir,
    /// Rust source
    Rust,
    /// A pipeline specification (.spec) for DPDK's SWX
    Spec,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Compile(args) => compile(args),
        Command::Dump(args) => dump(args),
        Command::Run(args) => run::run(args),
        Command::Replay(args) => replay::run(args),
    }
}

fn compile(args: &CompileArgs) -> Result<(), Failure> {
    let (name, text) = read(&args.file, "a P4 program")?;
    let compiled = natgate_p4::compile(&name, &text);
    let shown = match &compiled {
        Ok(program) if matches!(args.emit, Some(Emit::Rust)) => rust(program, &args.file),
        Ok(program) if matches!(args.emit, Some(Emit::Spec)) => spec(program)?,
        Ok(program) if args.json => {
            let mut object = json!({ "ok": true });
            for (what, count) in program.summary() {
                object[what] = count.into();
            }
            format!("{object}\n")
        }
        Ok(program) => {
            let counts = program.summary().map(|(what, count)| format!("{count} {what}"));
            format!("{name}: {}\n", counts.join(", "))
        }
        Err(error) if args.json => {
            format!("{}\n", json!({ "ok": false, "errors": [told(&name, error)] }))
        }
        Err(_) => String::new(),
    };
    print(&shown)?;
    let program = compiled.map_err(|error| failure(&error))?;
    if let Some(path) = &args.p4info {
        write_info(&program, path)?;
    }
    if let Some(path) = &args.entries {
        load(&program, path, &mut Machine::new(&program, 0))?;
    }
    Ok(())
}

fn write_info(program: &Program, path: &Path) -> anyhow::Result<()> {
    let info = program.info();
    let is_binary = path.extension().is_some_and(|end| end == "bin" || end == "binpb");
    let bytes = if is_binary { info.to_bytes() } else { info.to_text().into_bytes() };
    fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}

/// Puts a file's entries into tables.
fn load(program: &Program, path: &Path, machine: &mut Machine<'_>) -> Result<(), Failure> {
    let (name, text) = read(path, "a file of entries")?;
    let entries = Entries::read(program, &name, &text).map_err(|error| failure(&error))?;
    entries.load(machine).map_err(|error| failure(&error))
}

fn told(name: &str, error: &natgate_p4::Error) -> Value {
    json!({
        "file": name,
        "line": error.line(),
        "column": error.column(),
        "message": error.message(),
    })
}

fn dump(args: &DumpArgs) -> Result<(), Failure> {
    let (name, text) = read(&args.file, "a P4 program")?;
    let shown = match args.stage {
        Stage::Tokens => natgate_p4::tokens(&name, &text).map(|lines| lines.join("\n") + "\n"),
        Stage::Ast => natgate_p4::tree(&name, &text),
        Stage::Ir => natgate_p4::compile(&name, &text).map(|program| program.to_string()),
        Stage::Rust => natgate_p4::compile(&name, &text).map(|program| rust(&program, &args.file)),
        Stage::Spec => natgate_p4::compile(&name, &text)
            .and_then(|program| program.swx())
            .map(|pipeline| pipeline.to_string()),
    };
    Ok(print(&shown.map_err(|error| failure(&error))?)?)
}

/// The program as Rust source. Its name is the file's stem.
fn rust(program: &natgate_p4::Program, file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default();
    program.rust(&stem.to_string_lossy())
}

/// The program as a pipeline specification.
fn spec(program: &natgate_p4::Program) -> Result<String, Failure> {
    program.swx().map(|pipeline| pipeline.to_string()).map_err(|error| failure(&error))
}

/// Converts a compiler error to a failure. On a terminal the message shows the source lines too.
fn failure(error: &natgate_p4::Error) -> Failure {
    Failure::Input(vec![match io::stderr().is_terminal() {
        true => error.rendered(),
        false => error.to_string(),
    }])
}

/// Returns the file's name and text.
fn read(path: &Path, expected: &str) -> Result<(String, String), Failure> {
    let name = path.display().to_string();
    let wrong = |error: io::Error| {
        Failure::Input(vec![format!("{name}: it cannot be read: {error}; {expected} is expected")])
    };
    let text = fs::read_to_string(path).map_err(wrong)?;
    Ok((name, text))
}
