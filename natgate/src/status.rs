//! `natgate status`: health and occupation of the running gateway on one screen.

use crate::Failure;
use crate::api::Gateway;
use crate::show::health;
use anyhow::anyhow;
use natgate_cli::print;
use serde_json::Value;

const AFTER_HELP: &str = "\
The exit code is 0 if the gateway is well, and 1 if a link, next hop, log, route or worker needs
attention. A node of a pair needs attention, too, if it does not hear the other node, or if a slice
has no complete copy or no owner. It is well as standby, when it owns no slice, and while a slice
rests or moves.

With --json, standard output has one object: that of GET /v1/status, with that of GET /v1/health as
\"health\".

Examples:
natgate status
natgate status --json";

/// Show health and occupation
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    gateway: Gateway,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut status = args.gateway.get("/v1/status")?;
    let condition = args.gateway.get("/v1/health")?;
    let is_well = condition["ok"] == true;
    let text = match args.json {
        true => {
            status["health"] = condition;
            format!("{status}\n")
        }
        false => health(&condition) + &occupation(&status),
    };
    print(&text)?;
    match is_well {
        true => Ok(()),
        false => Err(anyhow!("the gateway needs attention").into()),
    }
}

/// Present number and limit of each table.
fn occupation(status: &Value) -> String {
    let row = |key: &str, name: &str| {
        let [now, most] = ["now", "most"].map(|which| status[key][which].as_u64());
        let most = most.map_or("-".to_owned(), |most| most.to_string());
        let state = format!("{} of {most}", now.unwrap_or_default());
        format!("{:<9} {name:<40} {state}\n", "table")
    };
    row("mappings", "mappings")
        + &row("subscribers", "subscribers")
        + &row("further_sessions", "further sessions")
}
