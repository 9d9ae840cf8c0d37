//! The program: its subcommands, and how their failures reach the user.

mod api;
mod bench;
mod capture;
mod captures;
mod check;
mod clear;
mod conform;
mod demo;
mod export;
mod import;
mod manual;
mod memory;
mod p4;
mod reload;
mod replay;
mod run;
mod show;
mod top;
mod trace;
mod who;

use clap::{CommandFactory, Parser, Subcommand};
use natgate_hugepages::LargePages;
use std::process::ExitCode;

/// Tables of gigabytes are looked up at random: with huge pages that costs no walk through page tables.
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
    Conform(Box<conform::Args>),
    Replay(replay::Args),
    Reload(reload::Args),
    Run(run::Args),
    Show(show::Args),
    Top(top::Args),
    Trace(trace::Args),
    Demo(demo::Args),
    Export(export::Args),
    Bench(bench::Args),
    Who(who::Args),
    Import(import::Args),
    P4(p4::Args),
    Completions(manual::CompletionsArgs),
    #[command(hide = true)]
    Man(manual::ManArgs),
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The user's input is wrong (arguments, configuration, capture): exit code 2. One message a line.
    Input(Vec<String>),
    /// Something failed at run time: exit code 1.
    Runtime(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runtime(error)
    }
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Capture(args) => capture::run(&args),
        Command::Check(args) => check::run(args),
        Command::Clear(args) => clear::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Replay(args) => replay::run(args),
        Command::Reload(args) => reload::run(&args),
        Command::Run(args) => run::run(args),
        Command::Show(args) => show::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Export(args) => export::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Who(args) => who::run(&args),
        Command::Import(args) => import::run(&args),
        Command::P4(args) => p4::run(&args),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
        Command::Man(args) => manual::pages(&args, Cli::command()),
    };
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
