//! `natgate reload`: makes the running gateway read its configuration anew, or report the effects
//! of a reload.
//!
//! The gateway does the work. This file has the arguments, the messages and the exit codes.

use crate::Failure;
use crate::api::unreachable;
use crate::show::b4;
use anyhow::anyhow;
use natgate_cli::print;
use natgate_control::config;
use natgate_control::reload::sentence;
use natgate_control::socket::{self, Response, ask};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reading a million rules takes seconds, and each mapping is checked alone.
const PATIENCE: Duration = Duration::from_secs(600);

const AFTER_HELP: &str = "\
The gateway reads the file that it was started with. It refuses a file that is wrong, or that
changes what only a restart can change: then the whole configuration in force stays, the exit code
is 2, and standard error has every problem as `natgate check` prints it. The exit code is 1 if the
gateway cannot be reached. SIGHUP to `natgate run` starts a reload, too, but gives no answer.

A dry run refuses what a reload refuses, except what shows only when natgate opens a device or a
log: a device's MTU or permissions, a full disk, and workers that cannot be added.

Mappings go if the new configuration does not permit them, for these reasons:
  not_subscriber  their host is no subscriber, and no rule translates its packets
  pool            their external endpoint is in no pool, or another subscriber has it
  displaced       a static mapping has their internal or external endpoint
  static          they are static, and the configuration no longer has them

With --json, standard output has one object:
  {\"ok\": true, \"dry_run\": false, \"changed\": [\"rule\"], \"bindings\": {\"before\": N,
   \"after\": N}, \"mappings\": {\"stay\": N, \"go\": N, \"by_reason\": {...}}, \"named\": [...],
   \"warnings\": [...]}
  {\"ok\": false, \"errors\": [{\"file\", \"line\", \"column\", \"key\", \"message\"}]}

Examples:
natgate reload
natgate reload --dry-run --json
natgate reload -c /etc/natgate/natgate.toml
natgate reload --socket /run/natgate/second.sock";

/// Let the running gateway read its configuration again
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Change nothing; list mappings that would go
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run, most mappings to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// The gateway's control socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    socket: PathBuf,
    /// Use the control socket that this configuration names
    #[arg(short, long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let asked = json!({ "dry_run": args.dry_run, "most": args.limit });
    let socket = match &args.config {
        Some(file) => config::load(file).map_err(Failure::Input)?.control.socket,
        None => Some(args.socket.clone()),
    };
    let socket = socket.as_deref().unwrap_or(Path::new(socket::DEFAULT_PATH));
    let answer = ask(socket, "POST", "/v1/reload", &asked, PATIENCE);
    let Response { status, body } = answer.map_err(unreachable)?;
    match status {
        200 => {
            let text = if args.json { format!("{body}\n") } else { text(&body) };
            Ok(print(&text)?)
        }
        422 => {
            if args.json {
                print(&format!("{body}\n"))?;
            }
            Err(Failure::Input(problems(&body)))
        }
        _ => {
            let message = body["message"].as_str().unwrap_or("the gateway failed without a word");
            Err(Failure::Runtime(anyhow!("{message}")))
        }
    }
}

/// The problems of a refused configuration, as `natgate check` prints them.
fn problems(body: &Value) -> Vec<String> {
    let errors = body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |error: &Value| {
        let word = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let place = match (error["line"].as_u64(), error["column"].as_u64()) {
            (Some(line), Some(column)) => format!("{line}:{column}:"),
            _ => String::new(),
        };
        let key = match &word("key")[..] {
            "" => String::new(),
            key => format!(" {key}:"),
        };
        format!("{}:{place}{key} {}", word("file"), word("message"))
    };
    errors.iter().map(text).collect()
}

fn text(body: &Value) -> String {
    let mut text = format!("{}\n", sentence(body));
    let named = body["named"].as_array().map(Vec::as_slice).unwrap_or_default();
    for mapping in named {
        let word = |key: &str| mapping[key].as_str().unwrap_or_default();
        let (protocol, internal, external) = (word("protocol"), word("internal"), word("external"));
        let realm = match word("realm") {
            "" => String::new(),
            realm => format!(" (realm {realm})"),
        };
        let b4 = b4(mapping).map_or(String::new(), |b4| format!(" (b4 {b4})"));
        text += &format!("  {protocol} {internal}{b4}{realm} {external}: {}\n", word("reason"));
    }
    let go = body["mappings"]["go"].as_u64().unwrap_or_default();
    let unnamed = go.saturating_sub(named.len() as u64);
    if body["dry_run"] == true && unnamed > 0 {
        text += &format!("  and {unnamed} more\n");
    }
    for warning in body["warnings"].as_array().into_iter().flatten() {
        let problem = problems(&json!({ "errors": [warning] }));
        text += &format!("warning: {}\n", problem.concat());
    }
    text
}
