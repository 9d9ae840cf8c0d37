//! Prints the code and tests of each requirement, and writes docs/conformance.md or compares with
//! it.

use clap::Parser;
use natgate_requirements::{Matrix, PAGE};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Trace each requirement of the RFCs to the code that decides it and the test that shows it.
///
/// Prints the matrix and writes docs/conformance.md. Exit code 1: a required item lacks code or
/// test, or a citation names no requirement; 2: the tree cannot be read.
#[derive(Parser)]
#[command(after_help = "Example: natgate-requirements --check .")]
struct Arguments {
    /// Compare with docs/conformance.md instead of writing it
    #[arg(long)]
    check: bool,
    /// Root of the tree
    #[arg(default_value = ".")]
    root: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let matrix = match Matrix::trace(&arguments.root) {
        Ok(matrix) => matrix,
        Err(error) => {
            eprintln!("natgate-requirements: {error}");
            return ExitCode::from(2);
        }
    };
    print!("{matrix}");
    let mut problems: Vec<String> = matrix.problems.iter().map(ToString::to_string).collect();
    let page = arguments.root.join(PAGE);
    if !arguments.check {
        if let Err(error) = fs::write(&page, matrix.page()) {
            problems.push(format!("{}: {error}", page.display()));
        }
    } else if fs::read_to_string(&page).ok() != Some(matrix.page()) {
        problems.push(format!("{PAGE}: is out of date; run `make requirements`"));
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        eprintln!("natgate-requirements: {} problems to correct", problems.len());
        ExitCode::FAILURE
    }
}
