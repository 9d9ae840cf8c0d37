//! `natgate show`: asks the running gateway.

use crate::Failure;
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use natgate_control::socket::{self, Response, ask};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks, of which the difference is shown.
const INTERVAL: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
show workers looks twice, a second apart, and says for each worker: its mappings; frames a second that
came from devices; the share of time that it was busy with packets, looking for some, and asleep; packets
that came together on average, and at most since the start; packets a second that it handed over to
others, that it took over, and that were lost because the other had no room (over all since the start);
external ports that it borrowed and lent since the start.

With --json, it is what each has done since the start: {\"workers\": [{\"worker\", \"age_ns\", \"busy_ns\",
\"asleep_ns\", \"bursts\", \"frames\", \"largest_burst\", \"handed_over\", \"hand_over_full\",
\"taken_over\", \"ports_borrowed\", \"ports_lent\", \"mappings\"}]}

Examples:
natgate show workers
natgate show workers --json --socket /run/natgate/second.sock";

/// Ask the running gateway
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to show
    #[arg(value_enum)]
    what: What,
    /// The gateway's control socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    socket: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// What the workers do: load, bursts, packets handed over, idle time
    Workers,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let What::Workers = args.what;
    let first = look(args)?;
    let text = if args.json {
        format!("{first}\n")
    } else {
        thread::sleep(INTERVAL);
        table(&first, &look(args)?)
    };
    Ok(std::io::stdout().write_all(text.as_bytes()).context("standard output cannot be written")?)
}

fn look(args: &Args) -> Result<Value, Failure> {
    let Response { status, body } = ask(&args.socket, "GET", "/v1/workers", &json!({}), PATIENCE)
        .map_err(anyhow::Error::from)?;
    match status {
        200 => Ok(body),
        _ => {
            let message = body["message"].as_str().unwrap_or("the gateway failed without a word");
            Err(Failure::Runtime(anyhow!("{message}")))
        }
    }
}

/// The difference between two looks.
fn table(before: &Value, now: &Value) -> String {
    let mut text = format!(
        "{:>6} {:>10} {:>10} {:>6} {:>6} {:>6} {:>6} {:>5} {:>10} {:>10} {:>8} {:>9} {:>9}\n",
        "worker",
        "mappings",
        "frames/s",
        "busy",
        "looks",
        "asleep",
        "burst",
        "most",
        "handed/s",
        "taken/s",
        "full",
        "borrowed",
        "lent",
    );
    let workers = |value: &Value| value["workers"].as_array().cloned().unwrap_or_default();
    for (before, now) in workers(before).iter().zip(&workers(now)) {
        let count = |key: &str| now[key].as_u64().unwrap_or_default();
        let more =
            |key: &str| count(key).saturating_sub(before[key].as_u64().unwrap_or_default()) as f64;
        let age = more("age_ns").max(1.0);
        let rate = |key: &str| format!("{:.0}", more(key) / (age / 1e9));
        let share = |part: f64| format!("{:.0} %", 100.0 * (part / age).clamp(0.0, 1.0));
        let (busy, asleep) = (more("busy_ns"), more("asleep_ns"));
        text += &format!(
            "{:>6} {:>10} {:>10} {:>6} {:>6} {:>6} {:>6.1} {:>5} {:>10} {:>10} {:>8} {:>9} {:>9}\n",
            count("worker"),
            count("mappings"),
            rate("frames"),
            share(busy),
            share(age - busy - asleep),
            share(asleep),
            more("frames") / more("bursts").max(1.0),
            count("largest_burst"),
            rate("handed_over"),
            rate("taken_over"),
            count("hand_over_full"),
            count("ports_borrowed"),
            count("ports_lent"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_what_was_done_between_two_looks() {
        let look = |frames: u64| {
            json!({ "workers": [{
                "worker": 0, "mappings": 7, "age_ns": frames * 1000, "busy_ns": frames * 250,
                "asleep_ns": frames * 500, "frames": frames, "bursts": frames / 10,
                "largest_burst": 64, "handed_over": 3 * frames, "taken_over": 0,
                "hand_over_full": 0, "ports_borrowed": 64, "ports_lent": 0,
            }] })
        };
        let text = table(&look(1_000_000), &look(2_000_000));
        let shown: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        let expected = "0 7 1000000 25 % 25 % 50 % 10.0 64 3000000 0 0 64 0";
        assert_eq!(shown.join(" "), expected);
    }
}
