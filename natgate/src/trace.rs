//! `natgate trace`: explains step by step what would happen to a packet.
//!
//! The running gateway explains by its present state. With a configuration file, a gateway without
//! state is made for it. Nothing is sent and nothing changes.

use crate::Failure;
use anyhow::anyhow;
use natgate_cli::print;
use natgate_control::config;
use natgate_control::socket::{self, Response, ask};
use natgate_engine::{DropReason, Engine, Explanation, Packet};
use natgate_gateway::{Clock, WorkerTrace};
use natgate_insight::packet::PacketDescription;
use natgate_insight::{explanation, reasons};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an answer. Several workers may be asked one after the other.
const PATIENCE: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
A packet is a protocol, its ends and, after them, its other properties:

  udp 10.0.0.5:4000 > 198.51.100.10:53
  tcp 10.0.0.5:4000 > 198.51.100.10:80 syn       flags: syn, ack, fin, rst, psh, urg; default: syn
  icmp 10.0.0.5 > 198.51.100.10 id 7             an echo request; with `reply` an echo reply
  ttl N, length N, df                        time to live 64, the shortest length, may be fragmented
  from inside|outside, realm NAME            by default the source decides the side

or an IP packet or an Ethernet frame in hexadecimal, from inside or outside. The steps are in the
order of the packet's way: rule, mapping, session, filter, limits with how much is used, pool,
timer, verdict, next hop. Random choices are not predicted.

With --json, standard output has one object: {\"verdict\": \"forward|reply|drop|held|hand_over\",
\"by\": side, \"reason\", \"direction\", \"becomes\": {\"source\", \"destination\"}, \"certain\",
\"worker\", \"steps\": [{\"step\", \"text\", ...}]}. Names of steps and fields stay; texts may
change.

Examples:
natgate trace udp 10.0.0.5:4000 '>' 198.51.100.10:53
natgate trace 'tcp 198.51.100.10:80 > 203.0.113.1:2000 syn+ack' --json
natgate trace -c natgate.toml 'icmp 10.0.0.5 > 198.51.100.10 id 7 ttl 1'
natgate trace --reason port_quota";

/// Explain what would happen to a packet, without sending it
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The packet
    #[arg(value_name = "PACKET", required_unless_present = "reason")]
    packet: Vec<String>,
    /// Explain with this configuration, without a running gateway and its state
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Explain this drop reason; counters have its name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["packet", "config", "json"])]
    reason: Option<String>,
    /// The gateway's control socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    socket: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(name) = &args.reason {
        let names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        let unknown = || {
            let message =
                format!("there is no drop reason {name:?}; there are: {}", names.join(", "));
            Failure::Input(vec![message])
        };
        return Ok(print(&reasons::explanation(name).ok_or_else(unknown)?)?);
    }
    let text = args.packet.join(" ");
    let object = match &args.config {
        Some(file) => offline(file, &text)?,
        None => online(&args.socket, &text)?,
    };
    Ok(print(&if args.json { format!("{object}\n") } else { explanation::text(&object) })?)
}

fn input(message: String) -> Failure {
    Failure::Input(vec![message])
}

fn online(socket: &Path, packet: &str) -> Result<Value, Failure> {
    // A packet that cannot be read is the user's error, with or without a running gateway.
    packet.parse::<PacketDescription>().map_err(input)?;
    let asked = json!({ "packet": packet });
    let Response { status, body } =
        ask(socket, "POST", "/v1/trace", &asked, PATIENCE).map_err(crate::api::unreachable)?;
    let message =
        || body["message"].as_str().unwrap_or("the gateway failed without a word").to_owned();
    match status {
        200 => Ok(body),
        400 => Err(input(message())),
        _ => Err(Failure::Runtime(anyhow!("{}", message()))),
    }
}

fn offline(file: &Path, packet: &str) -> Result<Value, Failure> {
    let config = config::load(file).map_err(Failure::Input)?.engine;
    let probe = packet.parse::<PacketDescription>().and_then(|written| written.probe(&config));
    let mut probe = probe.map_err(input)?;
    let asked = probe.packet.clone();
    let now = Clock::new().now();
    let engine = Engine::new(&config, [0; 32], now)
        .map_err(|error| input(format!("{}: {}", file.display(), error.message)))?;
    let mut explanation = Explanation::new();
    let view = Packet::new(&mut probe.packet, 0).in_realm(probe.link.realm);
    engine.explain(now, probe.link.side, &view, &mut explanation);
    let traced = [WorkerTrace { worker: 0, explanation, onward: None }];
    Ok(explanation::object((probe.link, &asked), &traced, now, &config, 1))
}
