//! `natgate who`: finds the subscriber of an external endpoint from the configuration alone, and
//! the ports of a subscriber. With `--at` it finds the subscriber of that time in the event log on
//! disk. The control crate computes and the logs crate searches; this file has the arguments, the
//! streams and the exit codes.

mod past;

use crate::Failure;
use crate::api::{Filters, Gateway, protocol, refused};
use anyhow::{Context, anyhow};
use natgate_control::config;
use natgate_control::socket::Response;
use natgate_control::who::{Answer, Unanswered, forward, forward6, reverse};
use natgate_engine::Timestamp;
use natgate_gateway::Settings;
use natgate_logs::OwnersInForce;
use serde_json::{Value, json};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
Without --config the running gateway answers. Its table names the subscriber that has the endpoint
now. If no mapping has the endpoint, the subscriber that has its block of ports answers, then the
configuration; in JSON \"by\" names the source. A port without a subscriber that is in hold-down is
named as such, with the remaining time.
Of a pair, the gateway also asks the other node, whose table has the mappings that have no copy yet.
Each answer has the name of its node. If the other node was not asked, because it is away or its
natgate is too old, a sentence on standard error says so, and \"not_asked\" has its name. \"doubts\"
says if the nodes name different subscribers.

With --config the file alone answers, and no gateway is asked: its deterministic pools (RFC 7422)
and its static mappings name the subscriber. Ports of other pools, and ports that are given out on
demand, are in the log only.

For an internal address without a port, the answer is all that this subscriber has: static mappings,
ranges and blocks of ports, and up to 64 mappings. With --config it has no blocks and no mappings.

With --at, the log on disk ([[log]] with kind = \"spool\") is searched for the subscriber that had
the endpoint at that time: by the gateway, or with --config by this program. The log records which
deterministic pools and static mappings were in force, too. If the log does not cover the time, or
does not record the configuration of that time, nobody is named as the subscriber; the sentence, and
\"now\" in JSON, has the subscriber by the configuration in force now. TIME is seconds since 1970, a
date and a time with an offset, now, or a time before now, such as -10m (s, m, h, d). A time in the
future is an error. Each answer has the span of time that the log covers, and the gaps in the log,
in JSON as \"covered\" and \"gaps\".
Of a pair, the gateway also asks the other node, whose log names the subscriber if it had the
slice at that time. Each answer has the name of its node; \"slice\" has the owner of the slice
then and its epoch, if they are known, and \"nodes\" what the log of each node covers. If the
other node was not asked, because it is away or its natgate is too old, or because of --config, a
sentence on standard error says so, and \"not_asked\" has its name. \"doubts\" has what else makes
the answer doubtful: for example, that a node stopped while a subscriber had the endpoint, and the
other node may have continued its mapping.

Without --protocol there is an answer for each protocol. The exit code is 1, with a sentence on
standard error, if no subscriber is known.

With --json, standard output has one object a line:
  {\"subscriber\": \"10.0.0.5\", \"external\": \"203.0.113.1\", \"ports\": \"2284-2535\",
   \"pool\": \"default\", \"kind\": \"deterministic\"}
for a mapping also its \"protocol\", its \"internal\" endpoint and \"age_s\"; if no subscriber is
known
  {\"subscriber\": null, \"reason\": \"...\"}
and with --at for each mapping, block or session
  {\"subscriber\": \"10.0.0.5\", \"protocol\": \"udp\", \"internal\": \"10.0.0.5:4000\",
   \"external\": \"203.0.113.1\", \"ports\": \"2300\", \"since\": 1772368190.1, \"until\": null,
   \"covered\": [...], \"gaps\": [...]}

Examples:
natgate who 203.0.113.1:2300 --protocol udp
natgate who -c natgate.toml 203.0.113.1:2300
natgate who -c natgate.toml 203.0.113.1:8080 --protocol tcp --json
natgate who 203.0.113.1:2300 --at 2026-03-01T12:30:00Z
natgate who 10.0.0.5
natgate who 2001:db8:1::/64";

/// Say which subscriber has an external endpoint
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Answer from this configuration alone, without a gateway
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    gateway: Gateway,
    /// The external endpoint, as 203.0.113.1:2300; or a subscriber's address or prefix
    #[arg(value_name = "EXTERNAL:PORT", value_parser = whom)]
    whom: Whom,
    /// The endpoint's protocol; without it there is an answer for each protocol
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,
    /// Time: 2026-03-01T12:30:00Z, seconds since 1970, now, or -10m (s, m, h, d)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = natgate_logs::time,
        allow_hyphen_values = true
    )]
    at: Option<Timestamp>,
    /// Print JSON objects instead of text
    #[arg(long)]
    json: bool,
}

/// Subject of the question.
#[derive(Clone, Debug)]
enum Whom {
    /// An external address and port.
    External(Ipv4Addr, u16),
    /// A subscriber.
    Ipv4(Ipv4Addr),
    /// A host of NAT64, or a subscriber's prefix, as it was written.
    Ipv6(String),
}

/// Parses an address and a port, or a subscriber.
fn whom(text: &str) -> Result<Whom, String> {
    let (address, len) = text.split_once('/').unwrap_or((text, "128"));
    if address.parse::<Ipv6Addr>().is_ok() && len.parse::<u8>().is_ok_and(|len| len <= 128) {
        return Ok(Whom::Ipv6(text.to_owned()));
    }
    if let Ok(address) = text.parse() {
        return Ok(Whom::Ipv4(address));
    }
    match text.parse::<SocketAddrV4>() {
        Ok(external) => Ok(Whom::External(*external.ip(), external.port())),
        Err(_) => Err("must be an external address and port, such as 203.0.113.1:2300, or a \
                       subscriber, such as 10.0.0.5, 2001:db8:1::5 or 2001:db8:1::/64"
            .to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(file) = &args.config else {
        return match args.at {
            Some(at) => args.ask_the_gateway_of_then(at),
            None => args.ask_the_gateway(),
        };
    };
    let settings = config::load(file).map_err(Failure::Input)?;
    if let Some(at) = args.at {
        return past::answer(args, &settings, at);
    }
    match args.ask(&settings) {
        Ok(answers) => {
            for answer in answers {
                print(&if args.json { json!(answer).to_string() } else { answer.sentence() })?;
            }
            Ok(())
        }
        Err(Unanswered(sentence)) => {
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
        let (subscriber, external) = match &self.whom {
            Whom::External(address, port) => (None, Some(format!("{address}:{port}"))),
            Whom::Ipv4(address) => (Some(address.to_string()), None),
            Whom::Ipv6(text) => (Some(text.clone()), None),
        };
        let name = subscriber.clone().or_else(|| external.clone()).unwrap_or_default();
        let filters =
            Filters { subscriber, external, protocol: self.protocol, ..Filters::default() };
        let query = filters.query(&[]);
        let (status, body) = match self.gateway.ask(&format!("/v1/who?{query}")) {
            Ok(Response { status, body }) => (status, body),
            Err(Failure::Runtime(error)) if self.json => {
                print(&json!({"subscriber": null, "reason": error.to_string()}).to_string())?;
                return Err(Failure::Runtime(error));
            }
            Err(other) => return Err(other),
        };
        if status != 200 {
            return Err(match refused(status, &body) {
                Failure::Runtime(error) => self.nobody(error.to_string(), &body)?,
                other => other,
            });
        }
        for answer in body["answers"].as_array().into_iter().flatten() {
            print(&match self.json {
                true => past::with_facts(answer, &body).to_string(),
                false => format!("{}{}", sentence(answer, "has"), past::of_node(answer)),
            })?;
        }
        self.tell_doubts(&body);
        if body["more"] == true {
            eprintln!(
                "natgate: there are more; `natgate show mappings --subscriber {name}` lists all"
            );
        }
        Ok(())
    }

    fn ask(&self, settings: &Settings) -> Result<Vec<Answer>, Unanswered> {
        let owners = OwnersInForce::of_settings(settings);
        match &self.whom {
            Whom::External(external, port) => reverse(&owners, *external, *port, self.protocol),
            Whom::Ipv4(subscriber) => forward(&owners, *subscriber),
            Whom::Ipv6(text) => forward6(&owners, text),
        }
    }
}

/// One sentence about a mapping or about the configuration's answer. `has` is the verb.
fn sentence(answer: &Value, has: &str) -> String {
    let word = |key: &str| answer[key].as_str().unwrap_or_default();
    let realm = answer["realm"].as_str().map(|realm| format!(" of realm {realm}"));
    let realm = realm.unwrap_or_default();
    let ports = match word("ports") {
        "" => "all ports".to_owned(),
        ports if ports.contains('-') => format!("ports {ports}"),
        port => format!("port {port}"),
    };
    let (subscriber, external, kind) = (word("subscriber"), word("external"), word("kind"));
    if let Some(internal) = answer["internal"].as_str() {
        let protocol = word("protocol");
        return format!(
            "{subscriber}{realm} {has} {ports} of {external} ({kind}, {protocol} of {internal})"
        );
    }
    let protocol = answer["protocol"].as_str().map(|name| format!("{name} ")).unwrap_or_default();
    let pool = answer["pool"].as_str().map(|pool| format!(", pool {pool}")).unwrap_or_default();
    let rest = match answer["resting"].is_array() {
        true => "; no mapping has the port, which is in hold-down",
        false => "",
    };
    format!("{subscriber}{realm} {has} {protocol}{ports} of {external} ({kind}{pool}{rest})")
}

fn print(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("standard output cannot be written")
}
