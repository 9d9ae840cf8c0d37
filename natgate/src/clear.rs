//! `natgate clear`: removes mappings or sessions of the running gateway.

use crate::Failure;
use crate::api::{Filters, Gateway};
use clap::ValueEnum;
use natgate_cli::print;

const AFTER_HELP: &str = "\
Without a filter, the command removes all of them. Static mappings stay, because the configuration
defines them. A subscriber that lost a mapping gets another with its next packet, most likely with
another external port. The log of events has each removal. A session goes without its mapping; a
mapping goes with its last session. The command needs the role operate, which the control socket
gives.

With --json, standard output has one object: {\"ok\": true, \"what\": \"mappings\", \"cleared\": N}

Examples:
natgate clear mappings --subscriber 10.0.0.5
natgate clear sessions --external 203.0.113.1:2300 --protocol udp
natgate clear sessions --subscriber 10.1.0.0/16 --remote 198.51.100.0/24
natgate clear mappings --external 203.0.113.7 --json";

/// Remove mappings or sessions
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to remove
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    gateway: Gateway,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Dynamic mappings, with their sessions
    Mappings,
    /// Sessions
    Sessions,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let what = match args.what {
        What::Mappings => "mappings",
        What::Sessions => "sessions",
    };
    let query = args.filters.query(&[("what", what.to_owned())]);
    let body = args.gateway.call("POST", &format!("/v1/clear?{query}"))?;
    let text = match (args.json, body["cleared"].as_u64().unwrap_or_default()) {
        (true, _) => format!("{body}\n"),
        (false, 0) => format!("no {what}{} to clear\n", args.filters.words()),
        (false, 1) => {
            format!("1 {}{} cleared\n", what.trim_end_matches('s'), args.filters.words())
        }
        (false, count) => format!("{count} {what}{} cleared\n", args.filters.words()),
    };
    Ok(print(&text)?)
}
