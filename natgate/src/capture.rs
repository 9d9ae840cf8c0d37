//! `natgate capture`: packets of the running gateway, before and after translation, as pcapng.

use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_control::socket::{self, open};
use natgate_insight::filter::CaptureRequest;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Longest pause between two pieces of a capture. Packets may be rare, so this is the longest
/// duration of a capture.
const PATIENCE: Duration = natgate_insight::filter::LONGEST;

const AFTER_HELP: &str = "\
The file has two interfaces, inside and outside. Its packets are IP, without a link header. It has
each matching packet as it came and, if the gateway sent it on, as it left. The packet's direction
tells which; a comment tells the verdict: forwarded, or dropped and why. Without a filter, the file
has all packets that the translator gets. Later fragments have no ports, so filters by port leave
them out. Filters by subscriber leave out packets from outside that are refused. The gateway's own
packets are in the file (ICMP errors, answers to PCP), except ARP, which is not IP. An ICMP error
matches if the packet that it is about does.

Addresses are of IPv4 or IPv6. A packet that changes its family, or enters or leaves a tunnel,
matches by either form. Hosts in a tunnel match by the inner address, or by the tunnel's end.

A capture ends with --count or --seconds, after a day, or when it is interrupted. Packets are
missing if they come faster than the gateway can write them: the next packet's comment and the
interface statistics at the end have their number. Forwarding does not wait. Up to four captures
run at a time.

Examples:
natgate capture --subscriber 10.0.0.5 -w flow.pcapng --seconds 30
natgate capture --subscriber 2001:db8:1::/64 -w nat64.pcapng --seconds 30
natgate capture --external 203.0.113.1:2000 --protocol udp --count 100 -w - | tshark -r - -V
natgate capture --remote 192.0.2.0/24 --port 53 -w dns.pcapng";

/// Capture packets of the running gateway, before and after translation
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Internal address or prefix
    #[arg(long, value_name = "A[/N]")]
    subscriber: Option<String>,
    /// Remote address or prefix, and port
    #[arg(long, value_name = "A[/N][:P]")]
    remote: Option<String>,
    /// External address or prefix, and port
    #[arg(long, value_name = "A[/N][:P]")]
    external: Option<String>,
    /// Protocol, by name or number
    #[arg(long, value_name = "P")]
    protocol: Option<String>,
    /// Port of either end
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// End after this many packets, counted before and after translation
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this time
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// File to write; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    write: PathBuf,
    /// The gateway's control socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT_PATH)]
    socket: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let input = |message: String| Failure::Input(vec![message]);
    let asked = CaptureRequest {
        subscriber: args.subscriber.clone(),
        remote: args.remote.clone(),
        external: args.external.clone(),
        protocol: args.protocol.clone(),
        port: args.port,
        count: args.count,
        seconds: args.seconds,
    };
    asked.filter().map_err(input)?;
    asked.duration().map_err(input)?;
    let to_standard_output = args.write.as_os_str() == "-";
    if to_standard_output && io::stdout().is_terminal() {
        let message =
            "a capture is no text; write it to a file with -w FILE, or pipe it to another program";
        return Err(input(message.to_owned()));
    }
    let mut reply = open(&args.socket, "GET", &path(&asked), &[], &Value::Null, PATIENCE)
        .map_err(crate::api::unreachable)?;
    if reply.status() != 200 {
        let body = reply.object().unwrap_or_else(|_| json!({}));
        let message = body["message"].as_str().unwrap_or("the gateway failed without a word");
        return Err(Failure::Runtime(anyhow!("{message}")));
    }
    let unwritable = |error: io::Error| {
        let why = natgate_service::explain(&args.write, &error);
        anyhow!("{} cannot be written: {why}", args.write.display())
    };
    let mut output: Box<dyn Write> = match to_standard_output {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(&args.write).map_err(unwritable)?),
    };
    let mut piece = vec![0; 1 << 16];
    loop {
        let length =
            reply.read(&mut piece).context("the capture ended early: the gateway has gone")?;
        if length == 0 {
            return Ok(());
        }
        let written = output.write_all(&piece[..length]).and_then(|()| output.flush());
        match written {
            // The reader has closed the pipe: it has enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(unwritable)?,
        }
    }
}

/// The path with its query. Only `/`, `:` and brackets need an escape in these values.
fn path(asked: &CaptureRequest) -> String {
    let fields = serde_json::to_value(asked).unwrap_or_default();
    let pairs = fields.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", escaped(&value))
    });
    format!("/v1/capture?{}", pairs.collect::<Vec<_>>().join("&"))
}

fn escaped(value: &str) -> String {
    [("/", "%2F"), (":", "%3A"), ("[", "%5B"), ("]", "%5D")]
        .iter()
        .fold(value.to_owned(), |text, (sign, escape)| text.replace(sign, escape))
}
