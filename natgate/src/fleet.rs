//! `natgate fleet`: the state of a pair of gateways, and the commands to it.

use crate::Failure;
use crate::api::{Gateway, refused, unreachable};
use crate::show::duration;
use anyhow::anyhow;
use natgate_cli::print;
use natgate_control::socket::{Response, ask};
use natgate_gateway::fleet::SliceStatus;
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
than 5 s; otherwise 1. In a drain or move it can be 0 until the owner changes; then it is 1 until
the former owner has a complete copy. So a script waits first until `status --json` has `drains`
false and `moves_to` null in each slice. A slice that rests after a take-over is no fault as soon as
the other node is back and has a complete copy. `check` names realms and gateways that a node lacks,
and keys of pools, [nat64] and [dslite] in which the nodes differ: their mappings have no copy. It
tells of hosts of NAT64 and DS-Lite for which the other node has no number.

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
    print(&match &args.what {
        _ if args.json => format!("{body}\n"),
        What::Drain { node } if is_standby(&body) => {
            format!("node {node} owns no slice: nothing to do\n")
        }
        _ => text(&body),
    })?;
    if matches!(args.what, What::Check) && body["ok"] != true {
        let why = match only_moves(&body) {
            true => "the pair is not whole: a move is not complete yet",
            false => "the pair is not whole",
        };
        return Err(anyhow!(why).into());
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

/// The slices of a state.
fn slices(body: &Value) -> &[Value] {
    body["slices"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// True if the other node owns all slices. A slice that drains still has its former owner.
fn is_standby(body: &Value) -> bool {
    slices(body).iter().all(|slice| slice["role"] == "partner")
}

/// True if all faults are those of slices that move.
fn only_moves(body: &Value) -> bool {
    slices(body).iter().all(|slice| {
        let fault = slice["moves_to"].as_str().map(SliceStatus::move_fault);
        slice["fault"].is_null() || slice["fault"].as_str() == fault.as_deref()
    })
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

fn row([slice, owner, role, assigns, complete, age, lag, addresses]: [String; 8]) -> String {
    format!(
        "{slice:<6} {owner:<10} {role:<9} {assigns:<8} {complete:<9} {age:<8} {lag:<9} \
         {addresses}\n"
    )
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

/// The row of a slice.
fn slice_text(slice: &Value) -> String {
    let is = |key: &str| if slice[key] == true { "yes" } else { "no" }.to_owned();
    let age = slice["age_s"].as_f64().map(|age| format!("{age:.1} s"));
    let lag = slice["sent"]["lag_p99_s"].as_f64().map(|lag| format!("{:.1} ms", lag * 1e3));
    let addresses: Vec<String> =
        slice["addresses"].as_array().into_iter().flatten().map(word).collect();
    row([
        slice["slice"].to_string(),
        word(&slice["owner"]),
        word(&slice["role"]),
        is("assigns"),
        is("complete"),
        age.unwrap_or("-".into()),
        lag.unwrap_or("-".into()),
        addresses.join(", "),
    ])
}

/// Changes of a slice that need no command.
fn change_text(slice: &Value) -> String {
    let (number, mut text) = (&slice["slice"], String::new());
    // Writing to a string does not fail.
    if let Some(time) = slice["rests_s"].as_f64().map(duration) {
        let _ = writeln!(
            text,
            "slice {number} rests after a take-over: new mappings get its ports in {time}"
        );
    }
    if let Some(node) = slice["moves_to"].as_str().filter(|_| slice["fault"].is_null()) {
        let _ = writeln!(text, "slice {number} moves to node {node}");
    }
    if slice["drains"] == true && slice["moves_to"].is_null() {
        let _ = writeln!(text, "slice {number} drains; it moves when the nodes are connected");
    }
    text
}

/// The state for people.
fn text(body: &Value) -> String {
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
    let _ = writeln!(text, "ports of ended mappings that rest: {}", body["resting_ports"]);
    let _ = writeln!(text, "{}", tunnel_text(&body["tunnel"]));
    let heads = ["slice", "owner", "role", "assigns", "complete", "age", "lag", "addresses"];
    text += &row(heads.map(str::to_owned));
    text.extend(slices(body).iter().map(slice_text));
    text.extend(slices(body).iter().map(change_text));
    for fault in body["faults"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{}", word(fault));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Value {
        json!({
            "node": "b", "partner": "a", "resting_ports": 7,
            "link": { "connected": true, "round_trip_s": 0.000_31 },
            "slices": [
                {
                    "slice": 0, "owner": "b", "role": "owner", "assigns": false, "complete": true,
                    "age_s": 0.62, "rests_s": 87.4, "addresses": ["203.0.113.0/29"],
                    "sent": { "lag_p99_s": 0.002_42 },
                },
                {
                    "slice": 1, "owner": "a", "role": "partner", "assigns": false, "complete": true,
                    "age_s": 0.5, "rests_s": null, "addresses": ["203.0.113.8/29"],
                },
            ],
            "faults": [],
        })
    }

    #[test]
    fn the_state_tells_the_lag_and_what_rests() {
        let text = text(&state());
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "ports of ended mappings that rest: 7",
            "slice owner role assigns complete age lag addresses",
            "0 b owner no yes 0.6 s 2.4 ms 203.0.113.0/29",
            "1 a partner no yes 0.5 s - 203.0.113.8/29",
            "slice 0 rests after a take-over: new mappings get its ports in 1m27s",
        ] {
            assert!(lines.iter().any(|known| known == line), "no {line:?} in\n{text}");
        }
        assert_eq!(text.matches("after a take-over").count(), 1, "{text}");
    }

    #[test]
    fn a_move_is_told_once() {
        let mut state = state();
        state["slices"][0]["moves_to"] = "a".into();
        assert!(text(&state).contains("\nslice 0 moves to node a\n"));
        let fault = "it moves to node a; its copy is not complete yet";
        state["slices"][0]["fault"] = fault.into();
        state["faults"] = json!([format!("slice 0: {fault}")]);
        let text = text(&state);
        assert_eq!(text.matches("moves").count(), 1, "{text}");
        assert!(text.ends_with(&format!("\nslice 0: {fault}\n")), "{text}");
        assert!(only_moves(&state));
        state["slices"][1]["fault"] = "its copy is older than 5 s".into();
        assert!(!only_moves(&state));
        state["slices"][1]["fault"] = Value::Null;
        state["slices"][0]["fault"] = "both nodes say that they own it".into();
        assert!(!only_moves(&state));
    }

    #[test]
    fn a_drain_without_the_other_node_is_told() {
        let mut state = state();
        state["slices"][0]["drains"] = true.into();
        let line = "\nslice 0 drains; it moves when the nodes are connected\n";
        assert!(text(&state).contains(line));
        state["slices"][0]["moves_to"] = "a".into();
        assert!(!text(&state).contains(line));
    }

    #[test]
    fn a_drain_has_nothing_to_do_only_if_the_other_node_owns_all() {
        let mut state = state();
        for (role, expected) in [("partner", true), ("unknown", false), ("yielding", false)] {
            state["slices"][0]["role"] = role.into();
            assert_eq!(is_standby(&state), expected, "{role}");
        }
    }
}
