//! `natgate top`: shows the running gateway live in a terminal, or prints one page of text.

use crate::Failure;
use anyhow::anyhow;
use natgate_cli::print;
use natgate_control::socket;
use natgate_top::source::Lists;
use natgate_top::{App, View, page, source};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

const AFTER_HELP: &str = "\
Views: rates by direction and verdict, drops by reason, pools, the 100 subscribers with the most
mappings, workers, blocks of ports with their owners. Keys: tab and left, right change the view;
up, down scroll; s changes the order; p or space pauses; / finds the owner of an address or of an
external endpoint, with or without a mapping; q ends. Rates are averages since the previous
snapshot. Every fifth snapshot has new lists. A pool's share in use counts ports as alerts do:
ports in hold-down and reserved ports are not in use. Columns without room on the screen are left
out. With --once, or if standard output is no terminal, all views are printed once.

Examples:
natgate top
natgate top --once --interval 5";

/// Show the running gateway live: rates, drops, pools, subscribers, workers
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Print all views once and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(
        long,
        value_name = "S",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    interval: u64,
    /// The gateway's control socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    socket: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let interval = Duration::from_secs(args.interval);
    if !args.once && std::io::stdout().is_terminal() {
        return Ok(natgate_top::run(&args.socket, interval).map_err(|error| anyhow!("{error}"))?);
    }
    let mut app = App::new(View::Rates);
    app.take(source::look(&args.socket, None).map_err(crate::api::unreachable)?);
    thread::sleep(interval);
    let lists = Some(Lists { search: "" });
    app.take(source::look(&args.socket, lists).map_err(crate::api::unreachable)?);
    let text = page(&app);
    Ok(print(&text)?)
}
