//! `natgate who`: which subscriber has an external endpoint, from the configuration alone, and what a
//! subscriber has. The control crate does the arithmetic; here are arguments, streams and exit codes.

use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_control::config;
use natgate_control::who::{Answer, Unanswered, forward, reverse};
use natgate_gateway::Settings;
use serde_json::json;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Deterministic pools (RFC 7422) and static mappings tell whose an endpoint is by the configuration
that was in force at the time; of other pools, and of ports that are given out on demand, the log of
events tells. An internal address without a port is answered the other way round: which external
address and ports it has.

The exit code is 1, with a sentence on standard error, when nobody is known to have it.

With --json, standard output has one object:
  {\"subscriber\": \"10.0.0.5\", \"external\": \"203.0.113.1\", \"ports\": \"2284-2535\",
   \"pool\": \"default\", \"kind\": \"deterministic\"}
  {\"subscriber\": null, \"reason\": \"...\"}

Examples:
natgate who -c natgate.toml 203.0.113.1:2300
natgate who -c natgate.toml 203.0.113.1:8080 --protocol tcp --json
natgate who -c natgate.toml 10.0.0.5";

/// Say which subscriber has an external endpoint
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// The external endpoint, as 203.0.113.1:2300; or a subscriber's address
    #[arg(value_name = "EXTERNAL:PORT", value_parser = whom)]
    whom: (Ipv4Addr, Option<u16>),
    /// The endpoint's protocol: static mappings may be of one only
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// An address with a port, or without.
fn whom(text: &str) -> Result<(Ipv4Addr, Option<u16>), String> {
    let wrong = || "must be an address and a port, such as 203.0.113.1:2300".to_owned();
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, Some(port.parse().map_err(|_| wrong())?)),
        None => (text, None),
    };
    Ok((address.parse().map_err(|_| wrong())?, port))
}

fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "dccp" => Ok(33),
        _ => Err("must be tcp, udp, icmp or dccp".into()),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let settings = config::load(&args.config).map_err(Failure::Input)?;
    match args.ask(&settings) {
        Ok(answers) => {
            for answer in answers {
                print(&if args.json { json!(answer).to_string() } else { sentence(&answer) })?;
            }
            Ok(())
        }
        Err(Unanswered::Ambiguous(sentence)) => Err(Failure::Input(vec![sentence])),
        Err(Unanswered::Nobody(sentence)) => {
            if args.json {
                print(&json!({"subscriber": null, "reason": sentence}).to_string())?;
            }
            Err(Failure::Runtime(anyhow!(sentence)))
        }
    }
}

impl Args {
    fn ask(&self, settings: &Settings) -> Result<Vec<Answer>, Unanswered> {
        match self.whom {
            (external, Some(port)) => {
                reverse(settings, external, port, self.protocol).map(|answer| vec![answer])
            }
            (subscriber, None) => forward(settings, subscriber),
        }
    }
}

fn sentence(answer: &Answer) -> String {
    let Answer { subscriber, realm, external, ports, pool, kind } = answer;
    let of = realm.as_ref().map(|realm| format!(" of realm {realm}")).unwrap_or_default();
    let ports = match ports {
        Some(ports) => format!("ports {ports}"),
        None => "all ports".to_owned(),
    };
    let whence = match pool {
        Some(pool) => format!("{kind}, pool {pool}"),
        None => (*kind).to_owned(),
    };
    format!("{subscriber}{of} has {ports} of {external} ({whence})")
}

fn print(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("standard output cannot be written")
}
