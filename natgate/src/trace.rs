//! `natgate trace`: explains step by step what would happen to a packet.
//!
//! The running gateway explains by its present state. With a configuration file, a gateway without
//! state is made for it. Nothing is sent and nothing changes.

use crate::Failure;
use anyhow::anyhow;
use natgate_cli::print;
use natgate_control::config;
use natgate_control::socket::{self, Response, ask};
use natgate_engine::DropReason;
use natgate_gateway::{Clock, WorkerTrace};
use natgate_insight::packet::PacketDescription;
use natgate_insight::{explanation, reasons};
use natgate_io::pcap::{Capture, Item};
use natgate_wire::link::ethertype;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an answer. Several workers may be asked one after the other.
const PATIENCE: Duration = Duration::from_secs(10);

const AFTER_HELP: &str = "\
A packet is a protocol, its ends and, after them, its other properties:

  udp 10.0.0.5:4000 > 198.51.100.10:53
  tcp 10.0.0.5:4000 > 198.51.100.10:80 syn       flags: syn, ack, fin, rst, psh, urg; default: syn
  icmp 10.0.0.5 > 198.51.100.10 id 7             an echo request; with `reply` an echo reply
  udp [2001:db8::5]:4000 > [64:ff9b::1]:53   IPv6; tcp and icmp likewise
  ttl N, length N, df                        time to live 64, the shortest length, may be fragmented
  from inside|outside, realm NAME            by default the source decides the side
  b4 ADDRESS, aftr ADDRESS                   in the tunnel of a customer of DS-Lite, lw4o6 or MAP-E;
                                             aftr, the gateway's end, is by default the configured

or an IP packet or an Ethernet frame in hexadecimal, from inside or outside. With --read, each
packet of a capture (pcap or pcapng) is explained by itself; of two interfaces the first is the
inside. The steps are in the order of the packet's way: tunnel, table and entry, rule, mapping,
session, filter, limits with how much is used, pool, timer, verdict, payload, next hop. Random
choices are not predicted.

With --json, standard output has one object: {\"verdict\": \"forward|reply|drop|held|hand_over\",
\"by\": side, \"reason\", \"direction\", \"becomes\": {\"source\", \"destination\", \"tunnel\"},
\"certain\", \"worker\", \"steps\": [{\"step\", \"text\", ...}]}. Names of steps and fields stay;
texts may change.

Examples:
natgate trace udp 10.0.0.5:4000 '>' 198.51.100.10:53
natgate trace 'tcp 198.51.100.10:80 > 203.0.113.1:2000 syn+ack' --json
natgate trace 'udp [2001:db8::5]:4000 > [64:ff9b::c633:640a]:53'
natgate trace 'udp 192.168.1.2:4000 > 198.51.100.10:53 b4 2001:db8:b4::1'
natgate trace --read calls.pcapng --json
natgate trace -c natgate.toml 'icmp 10.0.0.5 > 198.51.100.10 id 7 ttl 1'
natgate trace --reason port_quota";

/// Explain what would happen to a packet, without sending it
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The packet
    #[arg(value_name = "PACKET", required_unless_present_any = ["reason", "read"])]
    packet: Vec<String>,
    /// Explain each packet of this capture
    #[arg(long, value_name = "FILE", conflicts_with_all = ["packet", "reason"])]
    read: Option<PathBuf>,
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
    let Some(file) = &args.read else {
        let object = explained(args, &args.packet.join(" "))?;
        return Ok(print(&if args.json {
            format!("{object}\n")
        } else {
            explanation::text(&object)
        })?);
    };
    let mut number = 0_u64;
    each_packet(file, |packet| {
        let mut object = explained(args, packet)?;
        number += 1;
        object["number"] = number.into();
        let text = || format!("packet {number}\n{}\n", explanation::text(&object));
        Ok(print(&if args.json { format!("{object}\n") } else { text() })?)
    })
}

fn explained(args: &Args, packet: &str) -> Result<Value, Failure> {
    match &args.config {
        Some(file) => offline(file, packet),
        None => online(&args.socket, packet),
    }
}

/// Describes each packet of a capture. Of two interfaces the first is the inside; with one
/// interface the source decides.
fn each_packet(
    file: &Path,
    mut take: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let wrong = |why: &dyn Display| input(format!("{}: {why}", file.display()));
    let mut capture = Capture::new(File::open(file).map_err(|error| wrong(&error))?);
    while let Some(item) = capture.next_item().map_err(|error| wrong(&error))? {
        let Item::Packet(record) = item else { continue };
        let interfaces = capture.interfaces();
        let (link, side) = match (interfaces.get(record.interface), interfaces.len()) {
            (Some(interface), 2) => {
                (interface.link, [" from inside", " from outside"][record.interface])
            }
            (Some(interface), _) => (interface.link, ""),
            (None, _) => continue,
        };
        let frame = capture.frame();
        let Some(network) = link.locate(frame) else { continue };
        if matches!(network.ethertype, ethertype::IPV4 | ethertype::IPV6) {
            let packet = &frame[network.offset..];
            let digits: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
            take(&format!("{digits}{side}"))?;
        }
    }
    Ok(())
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
    let settings = config::load(file).map_err(Failure::Input)?;
    let config = &settings.engine;
    let probe = packet.parse::<PacketDescription>();
    let probe = probe.and_then(|written| written.probe(config, &settings.ipv6));
    let (probe, now) = (probe.map_err(input)?, Clock::new().now());
    let traced = WorkerTrace::without_state(&settings, &probe, now)
        .map_err(|error| input(format!("{}: {}", file.display(), error.message)))?;
    Ok(explanation::object((probe.link, &probe.packet), &[traced], now, config, 1))
}
