//! `natgate who`: finds the subscriber of an external endpoint from the configuration alone, and
//! the ports of a subscriber. With `--at` it finds the subscriber of that time in the event log on
//! disk. The control crate computes and the logs crate searches; this file has the arguments, the
//! streams and the exit codes.

mod past;

use crate::Failure;
use crate::api::{Filters, Gateway, protocol};
use anyhow::{Context, anyhow};
use natgate_control::config;
use natgate_control::who::{Answer, Unanswered, forward, reverse};
use natgate_engine::Timestamp;
use natgate_gateway::Settings;
use serde_json::{Value, json};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Without --config the running gateway is asked: its table tells who has the endpoint now; where no \
mapping
has it, the subscriber that has its block of ports, then the configuration; \"by\" says which. A \
port
that nobody has and that is in hold-down is said to be so, with how long it rests. With --config \
no gateway need run, and the file alone tells:
deterministic pools (RFC 7422) and static mappings tell whose an endpoint is by the configuration
that was in force at the time; of other pools, and of ports that are given out on demand, the log of
events tells. An internal address without a port is answered the other way round: which external
address and ports it has.

With --at, the log on disk ([[log]] with kind = \"spool\") is searched for whoever had the endpoint
then: by the gateway, or with --config, whether it runs or not; where the log names nobody, the
configuration answers as above. TIME is seconds since 1970, as in other logs, a date and a time \
with an offset,
now, or a time before now, such as -10m (s, m, h, d). A time that is still to come is an
error. The answer says which span of time the log covers, and the gaps in the log; with --json in
\"covered\" and \"gaps\".

The exit code is 1, with a sentence on standard error, when nobody is known to have it.

With --json, standard output has one object:
  {\"subscriber\": \"10.0.0.5\", \"external\": \"203.0.113.1\", \"ports\": \"2284-2535\",
   \"pool\": \"default\", \"kind\": \"deterministic\"}
  {\"subscriber\": null, \"reason\": \"...\"}
and with --at one object a line for each mapping, block or session:
  {\"subscriber\": \"10.0.0.5\", \"protocol\": \"udp\", \"internal\": \"10.0.0.5:4000\",
   \"external\": \"203.0.113.1\", \"ports\": \"2300\", \"since\": 1772368190.1, \"until\": null}
of a mapping that is there now with its \"protocol\", \"internal\" endpoint and \"age_s\".

Examples:
natgate who 203.0.113.1:2300 --protocol udp
natgate who -c natgate.toml 203.0.113.1:2300
natgate who -c natgate.toml 203.0.113.1:8080 --protocol tcp --json
natgate who 203.0.113.1:2300 --at 2026-03-01T12:30:00Z
natgate who -c natgate.toml 10.0.0.5";

/// Say which subscriber has an external endpoint
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Answer from this configuration alone, without a gateway
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    gateway: Gateway,
    /// The external endpoint, as 203.0.113.1:2300; or a subscriber's address
    #[arg(value_name = "EXTERNAL:PORT", value_parser = whom)]
    whom: (Ipv4Addr, Option<u16>),
    /// The endpoint's protocol: static mappings may be of one only
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,
    /// When: 2026-03-01T12:30:00Z, seconds since 1970, now, or -10m (s, m, h, d)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = natgate_logs::time,
        allow_hyphen_values = true
    )]
    at: Option<Timestamp>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Parses an address with or without a port.
fn whom(text: &str) -> Result<(Ipv4Addr, Option<u16>), String> {
    let wrong = || "must be an address and a port, such as 203.0.113.1:2300".to_owned();
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, Some(port.parse().map_err(|_| wrong())?)),
        None => (text, None),
    };
    Ok((address.parse().map_err(|_| wrong())?, port))
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(file) = &args.config else {
        return match args.at {
            Some(at) => args.ask_the_gateway_of_then(at),
            None => args.ask_the_gateway(),
        };
    };
    let settings = config::load(file).map_err(Failure::Input)?;
    if let Some(at) = args.at
        && past::answer(args, &settings, at)?
    {
        return Ok(());
    }
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
    /// Asks the gateway's table.
    fn ask_the_gateway(&self) -> Result<(), Failure> {
        let (address, Some(port)) = self.whom else {
            let message = "say which port, as 203.0.113.1:2300; --config tells what a subscriber \
                has by the configuration, `natgate show blocks --subscriber` what it has now";
            return Err(Failure::Input(vec![message.into()]));
        };
        let external = Some(format!("{address}:{port}"));
        let query = Filters { external, protocol: self.protocol, ..Filters::default() }.query(&[]);
        let body = match self.gateway.get(&format!("/v1/who?{query}")) {
            Err(Failure::Runtime(error)) if self.json => {
                print(&json!({"subscriber": null, "reason": error.to_string()}).to_string())?;
                return Err(Failure::Runtime(error));
            }
            other => other?,
        };
        for answer in body["answers"].as_array().into_iter().flatten() {
            print(&if self.json { answer.to_string() } else { live(answer) })?;
        }
        Ok(())
    }

    fn ask(&self, settings: &Settings) -> Result<Vec<Answer>, Unanswered> {
        match self.whom {
            (external, Some(port)) => {
                reverse(settings, external, port, self.protocol).map(|answer| vec![answer])
            }
            (subscriber, None) => forward(settings, subscriber),
        }
    }
}

/// One sentence about a mapping or about the configuration's answer.
fn live(answer: &Value) -> String {
    let word = |key: &str| answer[key].as_str().unwrap_or_default();
    let realm = answer["realm"].as_str().map(|realm| format!(" of realm {realm}"));
    let realm = realm.unwrap_or_default();
    let ports = match word("ports") {
        "" => "all ports".to_owned(),
        ports if ports.contains('-') => format!("ports {ports}"),
        port => format!("port {port}"),
    };
    let (subscriber, external, kind) = (word("subscriber"), word("external"), word("kind"));
    match answer["internal"].as_str() {
        Some(internal) => format!(
            "{subscriber}{realm} has {ports} of {external} ({kind}, {} of {internal})",
            word("protocol")
        ),
        None if answer["resting"].is_array() => {
            let rest = "no mapping has the port, which is in hold-down";
            format!("{subscriber}{realm} has {ports} of {external} ({kind}; {rest})")
        }
        None => format!("{subscriber}{realm} has {ports} of {external} ({kind})"),
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
