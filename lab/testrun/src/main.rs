//! Builds the test programs of the workspace and runs them side by side.
//!
//! `cargo test` runs one test program after the other. A program that waits, or that has one long
//! test, then leaves the other processors idle. This program runs as many test programs as there
//! are processors, the longest first. A failing program prints its whole output at once, and the
//! end of its output again after all programs. Documentation tests follow. Arguments go to
//! `cargo test` (packages, features); without arguments the whole workspace is tested.

use anyhow::{Context, bail};
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// Test programs that take minutes, longest first. All others follow in the order of the build.
const LONG: [&str; 6] = ["bench", "tiny_world", "live", "boot", "random", "package"];

/// One test program.
struct Program {
    /// Package and target, such as `natgate-engine::attacks`.
    name: String,
    target: String,
    executable: PathBuf,
    /// Folder of the package, where the program runs.
    folder: PathBuf,
}

/// Result of one program's run.
struct Outcome {
    name: String,
    /// The end of the output of a program that failed.
    failure: Option<String>,
}

/// Bytes of a failing program's output that are printed again after all programs.
const END: usize = 4000;

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let options: &[String] =
        if arguments.is_empty() { &["--workspace".into()] } else { &arguments };
    let started = Instant::now();
    let mut programs = build(options)?;
    println!("built {} test programs in {} s", programs.len(), started.elapsed().as_secs());
    programs.sort_by_key(|program| {
        LONG.iter().position(|long| *long == program.target).unwrap_or(LONG.len())
    });
    programs.reverse();
    let outcomes = run_all(programs)?;
    let documents = cargo(options).arg("--doc").status().context("cargo cannot be started")?;
    let mut failed = Vec::new();
    for Outcome { name, failure } in outcomes {
        let Some(end) = failure else { continue };
        println!("\n{name}, the end of its output:\n{end}");
        failed.push(name);
    }
    if !documents.success() {
        failed.push("documentation tests".into());
    }
    println!("all tests took {} s, the build included", started.elapsed().as_secs());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn cargo(options: &[String]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(["test", "--locked"]).args(options);
    command
}

/// Builds the test programs and lists them.
fn build(options: &[String]) -> anyhow::Result<Vec<Program>> {
    let output = cargo(options)
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo cannot be started")?;
    if !output.status.success() {
        bail!("the tests cannot be built");
    }
    let text = String::from_utf8(output.stdout).context("cargo's messages")?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| program(&message)).collect())
}

/// Test program in a message of cargo.
fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = message["target"]["name"].as_str()?.to_owned();
    let package = folder.file_name()?.to_str()?;
    let kind = if message["target"]["kind"][0] == "test" { "" } else { " (unit)" };
    Some(Program { name: format!("{package}::{target}{kind}"), target, executable, folder })
}

/// Runs all programs, the last of the list first.
fn run_all(programs: Vec<Program>) -> anyhow::Result<Vec<Outcome>> {
    let places = thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(programs);
    let next = || waiting.lock().expect("no thread panics with it").pop();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..places)
            .map(|_| {
                scope.spawn(|| {
                    let mut outcomes = Vec::new();
                    while let Some(program) = next() {
                        outcomes.push(run(&program)?);
                    }
                    anyhow::Ok(outcomes)
                })
            })
            .collect();
        let mut outcomes = Vec::new();
        for worker in workers {
            outcomes.extend(worker.join().expect("a worker does not panic")?);
        }
        Ok(outcomes)
    })
}

/// Runs one program and prints its line, or its whole output if it fails.
fn run(program: &Program) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let file = program.executable.with_extension("output");
    let output = fs::File::create(&file).with_context(|| format!("{}", file.display()))?;
    let errors = output.try_clone().context("the output's file")?;
    let status = Command::new(&program.executable)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .status()
        .with_context(|| format!("{} cannot be started", program.executable.display()))?;
    let text = String::from_utf8_lossy(&fs::read(&file).context("the output")?).into_owned();
    let _ = fs::remove_file(&file);
    let seconds = started.elapsed().as_secs();
    let failure = (!status.success()).then(|| last_bytes(&text));
    if failure.is_none() {
        let counts = text.lines().rev().find(|line| line.starts_with("test result"));
        let counts = counts.and_then(|line| line.split(';').next()).unwrap_or("no tests");
        println!("{} {seconds} s: {counts}", program.name);
    } else {
        println!("{text}\n{} {seconds} s: FAILED with {status}", program.name);
    }
    Ok(Outcome { name: program.name.clone(), failure })
}

/// The last lines of a text, at most [`END`] bytes.
fn last_bytes(text: &str) -> String {
    let start = text.ceil_char_boundary(text.len().saturating_sub(END));
    text[start..].to_owned()
}
