//! The program: its subcommands, and how their failures are shown to the user.

mod api;
mod capture;
mod captures;
mod check;
mod clear;
mod domains;
mod export;
mod fleet;
mod guard;
mod import;
mod laboratory;
mod p4;
mod reload;
mod replay;
mod run;
mod show;
mod status;
mod top;
mod trace;
mod who;

use clap::{CommandFactory, Parser, Subcommand};
pub(crate) use natgate_cli::{Failure, manual, memory};
use natgate_hugepages::LargePages;
use std::process::ExitCode;

/// Tables have gigabytes and are read at random places. Huge pages avoid walks through page tables.
#[global_allocator]
static PAGES: LargePages = LargePages;

/// A carrier-grade network address translator.
#[derive(Parser)]
#[command(name = "natgate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Capture(capture::Args),
    Check(check::Args),
    Clear(clear::Args),
    /// Test the RFCs' requirements on a NAT, from outside
    Conform(laboratory::Args),
    Replay(replay::Args),
    Reload(reload::Args),
    Run(run::Args),
    Domains(domains::Args),
    Show(show::Args),
    Status(status::Args),
    Top(top::Args),
    Trace(trace::Args),
    /// Show the translator at work between network namespaces
    Demo(laboratory::Args),
    Export(export::Args),
    Fleet(fleet::Args),
    #[command(hide = true)]
    Guard(guard::Args),
    /// Measure natgate and repeat the measurements of the literature
    Bench(laboratory::Args),
    Who(who::Args),
    Import(import::Args),
    P4(p4::Args),
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    natgate_cli::exit(match Cli::parse().command {
        Command::Capture(args) => capture::run(&args),
        Command::Check(args) => check::run(args),
        Command::Clear(args) => clear::run(&args),
        Command::Conform(args) => laboratory::run("conform", &args),
        Command::Replay(args) => replay::run(args),
        Command::Reload(args) => reload::run(&args),
        Command::Run(args) => run::run(args),
        Command::Domains(args) => domains::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Demo(args) => laboratory::run("demo", &args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Guard(args) => guard::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Bench(args) => laboratory::run("bench", &args),
        Command::Who(args) => who::run(&args),
        Command::Import(args) => import::run(&args),
        Command::P4(args) => p4::run(&args),
        Command::Completions(args) => manual::completions(&args, "natgate", Cli::command()),
        Command::Man(args) => manual::pages(&args, Cli::command(), true, &laboratory::COMMANDS),
    })
}
