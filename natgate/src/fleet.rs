//! `natgate fleet`: the state of a pair of gateways, and the commands to it.

use crate::Failure;
use crate::api::{Gateway, refused, unreachable};
use anyhow::anyhow;
use natgate_cli::print;
use natgate_control::socket::{Response, ask};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

const AFTER_HELP: &str = "\
The gateway that answers is the node whose socket is asked. `drain` and `move` are commands to the
owner of the slices. They return at once; `status` shows when the slices have moved.

`forget` says that the process of the other node has ended, and that it does not run anywhere. The
node then takes the slices of the other one, and assigns their ports after the hold-down. If the
other node lives, two subscribers can get one port. So `forget` needs --yes-it-has-ended, and it is
refused while the nodes are connected. A restart of the other node says the same by itself, and so
does its guardian after the end of its process.

The exit code of `check` is 0 if every slice has one owner, and its copy is complete and younger
than 5 s; otherwise 1. It names realms and gateways that a node lacks, and keys of pools, [nat64]
and [dslite] in which the nodes differ: their mappings have no copy. It tells of hosts of NAT64 and
DS-Lite for which the other node has no number.

Examples:
natgate fleet status
natgate fleet check --json
natgate fleet drain a
natgate fleet move 0 b
natgate fleet forget a --yes-it-has-ended";

/// Show and command a pair of gateways
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    gateway: Gateway,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum What {
    /// Show nodes, link and slices
    #[command(after_help = "Example:\nnatgate fleet status")]
    Status,
    /// Check that every slice has one owner and a present copy
    #[command(after_help = "Example:\nnatgate fleet check --json")]
    Check,
    /// Give all slices of a node to the other one
    #[command(after_help = "Example:\nnatgate fleet drain a")]
    Drain {
        /// Name of the node
        node: String,
    },
    /// Give a slice to a node
    #[command(after_help = "Example:\nnatgate fleet move 0 b")]
    Move {
        /// Number of the slice
        slice: usize,
        /// Name of the node
        node: String,
    },
    /// Say that a node has ended and does not run anywhere
    #[command(after_help = "Example:\nnatgate fleet forget a --yes-it-has-ended")]
    Forget {
        /// Name of the node
        node: String,
        /// Confirm it
        #[arg(long)]
        yes_it_has_ended: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let command = match &args.what {
        What::Status | What::Check => None,
        What::Drain { node } => Some(json!({ "do": "drain", "node": node })),
        What::Move { slice, node } => Some(json!({ "do": "move", "slice": slice, "node": node })),
        What::Forget { node, yes_it_has_ended: false } => {
            return Err(Failure::Input(vec![format!(
                "if node {node} runs, two subscribers can get one port; make sure that it has \
                 ended and cannot start, and add --yes-it-has-ended"
            )]));
        }
        What::Forget { node, .. } => Some(json!({ "do": "forget", "node": node })),
    };
    let body = match command {
        None => args.gateway.get("/v1/fleet")?,
        Some(command) => args.command(&command)?,
    };
    print(&if args.json { format!("{body}\n") } else { text(&body) })?;
    if matches!(args.what, What::Check) && body["ok"] != true {
        return Err(anyhow!("the pair is not whole").into());
    }
    Ok(())
}

impl Args {
    fn command(&self, command: &Value) -> Result<Value, Failure> {
        let answer = ask(&self.gateway.socket, "POST", "/v1/fleet", command, PATIENCE);
        let Response { status, body } = answer.map_err(unreachable)?;
        if status == 200 { Ok(body) } else { Err(refused(status, &body)) }
    }
}

/// The tunnel for people.
fn tunnel_text(tunnel: &Value) -> String {
    let sum = |key: &str| {
        let counts = tunnel[key].as_object().into_iter().flatten();
        counts.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
    };
    let lost = sum("dropped") + sum("refused");
    format!(
        "packets passed on to the other node: {}, taken from it: {}, not passed on or refused: \
         {lost}",
        sum("passed"),
        sum("taken"),
    )
}

/// The state for people.
fn text(body: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let link = &body["link"];
    let mut text = match link["connected"] == true {
        true => format!(
            "node {}, partner {}: connected, round trip {:.1} ms\n",
            word(&body["node"]),
            word(&body["partner"]),
            link["round_trip_s"].as_f64().unwrap_or_default() * 1e3
        ),
        false if body["partner_ended"] == true => format!(
            "node {}, partner {}: its process has ended\n",
            word(&body["node"]),
            word(&body["partner"])
        ),
        false => format!(
            "node {}, partner {}: not connected ({})\n",
            word(&body["node"]),
            word(&body["partner"]),
            word(&link["reason"])
        ),
    };
    // Writing to a string does not fail.
    if let Some(fault) = link["clock_fault"].as_str() {
        let _ = writeln!(text, "{fault}: so do the times in their logs");
    }
    if let Some(fault) = link["flows_fault"].as_str() {
        let _ = writeln!(text, "{fault}");
    }
    let _ = writeln!(text, "ports that rest: {}", body["resting_ports"]);
    let _ = writeln!(text, "{}", tunnel_text(&body["tunnel"]));
    let heads = ["slice", "owner", "role", "assigns", "complete", "age", "addresses"];
    let [slice, owner, role, assigns, complete, age, addresses] = heads;
    let _ = writeln!(
        text,
        "{slice:<6} {owner:<10} {role:<9} {assigns:<8} {complete:<9} {age:<8} {addresses}"
    );
    for slice in body["slices"].as_array().into_iter().flatten() {
        let age = slice["age_s"].as_f64().map_or("-".into(), |age| format!("{age:.1} s"));
        let is = |key: &str| if slice[key] == true { "yes" } else { "no" };
        let addresses: Vec<String> =
            slice["addresses"].as_array().into_iter().flatten().map(word).collect();
        let _ = writeln!(
            text,
            "{:<6} {:<10} {:<9} {:<8} {:<9} {age:<8} {}",
            slice["slice"].to_string(),
            word(&slice["owner"]),
            word(&slice["role"]),
            is("assigns"),
            is("complete"),
            addresses.join(", ")
        );
    }
    for fault in body["faults"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{}", word(fault));
    }
    text
}
