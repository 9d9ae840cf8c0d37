//! The laboratory: experiments, conformance tests and the demonstration.
//!
//! `natgate bench`, `natgate conform` and `natgate demo` start this program. It runs gateways with
//! the program natgate in the same directory.

mod bench;
mod conform;
mod demo;

use clap::{CommandFactory, Parser, Subcommand};
pub(crate) use natgate_cli::{Failure, manual, memory};
use natgate_hugepages::LargePages;
use std::path::PathBuf;
use std::process::ExitCode;

/// Huge pages save random lookups in tables of gigabytes the walk through page tables.
#[global_allocator]
static PAGES: LargePages = LargePages;

/// The laboratory of natgate: benchmarks, conformance tests and a demonstration
#[derive(Parser)]
#[command(name = "natgate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Args),
    Conform(Box<conform::Args>),
    Demo(demo::Args),
    #[command(hide = true)]
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    natgate_cli::exit(match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
        Command::Conform(args) => conform::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Completions(args) => {
            manual::completions(&args, "natgate-lab", Cli::command().name("natgate-lab"))
        }
        Command::Man(args) => {
            let own = Cli::command().name("natgate-lab").bin_name("natgate-lab");
            let pages = manual::pages(&args, Cli::command(), false, &["completions", "man"]);
            pages.and_then(|()| manual::overview(&args, own, "natgate"))
        }
    })
}

/// Path of the gateway's program.
fn gateway() -> anyhow::Result<PathBuf> {
    natgate_cli::beside("natgate", "make build makes it, and the Debian package natgate has it")
}
