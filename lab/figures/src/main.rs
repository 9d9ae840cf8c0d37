//! Writes the figures of README.md from the result files, and the list of result files.

use clap::Parser;
use natgate_figures::provenance::{self, PAGE};
use natgate_figures::{bare_figures, figures, updated};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the measured figures of README.md from docs/results, and docs/results/README.md
///
/// Exit code 1: a figure has no file, or with --check a text and its file differ.
#[derive(Parser)]
#[command(after_help = "Example: natgate-figures --check .")]
struct Arguments {
    /// Compare instead of writing
    #[arg(long)]
    check: bool,
    /// Root of the tree
    #[arg(default_value = ".")]
    root: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { check, root } = Arguments::parse();
    match run(&root, check) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("natgate-figures: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the problems that need a correction by hand.
fn run(root: &Path, check: bool) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let path = root.join("README.md");
    let text = fs::read_to_string(&path)?;
    let mut problems: Vec<String> = bare_figures(&text)
        .iter()
        .map(|bare| format!("README.md:{}: {:?} has no result file", bare.line, bare.text))
        .collect();
    let origins = provenance::origins(root)?;
    for origin in &origins {
        if let Some(commit) = &origin.commit
            && commit.changes_since > 0
        {
            let (file, count) = (&origin.file, commit.changes_since);
            eprintln!("warning: {file} is {count} commits older than the code that it measures");
        }
    }
    if check {
        for figure in figures(&text, root)? {
            if figure.text != figure.wanted {
                let (is, wanted, from) = (figure.text, figure.wanted, figure.target);
                problems.push(format!("README.md says {is:?}, {from} has {wanted:?}"));
            }
        }
    } else {
        fs::write(&path, updated(&text, root)?)?;
        fs::write(root.join(PAGE), provenance::page(&origins))?;
    }
    Ok(problems)
}
