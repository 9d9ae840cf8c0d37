//! `natgate conform`: checks the requirements of the RFCs on a translator from outside. The
//! translator is any device between two interfaces, the program's own translator in simulated time,
//! or one of two translators in a laboratory of network namespaces.
//!
//! The conform crate has the suite and its reports. This file has the arguments, the bench and the
//! output files.

mod lab;

use crate::Failure;
use anyhow::{Context, anyhow};
use clap::{ArgGroup, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use natgate_cli::NO_OUTPUT;
use natgate_conform::{Bench, Families, Hosts, Live, LiveError, Options, Report, Requirement};
use natgate_conform::{
    Setup, Siit, Simulated, Timers, catalogue, comparison, requirements, surround,
};
use natgate_control::config;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const AFTER_HELP: &str = "\
The two devices must have no addresses of the kernel. The suite plays the hosts on both sides: it
answers ARP for them, finds the translator's inside address by ARP, and learns its outside address
from its packets. Inside, the hosts are in the network of the translator's inside address; outside,
they are in the network of its outside address, or behind a router that the suite plays
(--outside-gateway). Name what only the operator knows: --quota, --untranslated.

For a translator between the families, --inside-gateway6 names its IPv6 address inside. A host's
IPv6 address has the first 64 bits of this address, and ends with the host's IPv4 address. Name what
the translator does: --nat64, --siit and --siit-hosts.

The suite waits for timers only, for all of them at the same time: a full run takes as long as the
longest timer, two hours and four minutes. --quick leaves timers out; --patience 10m leaves out
timers that take longer.

Exit codes: 0 every MUST that was tried is met or allowed to fail, 1 some are not, or nothing could
be tried, 2 the arguments, the devices or the configuration are wrong.

Examples:
natgate conform --inside eth1 --outside eth2 --quick
natgate conform --inside eth1 --outside eth2 --inside-gateway 192.168.1.1 \\
    --inside-hosts 192.168.1.16-192.168.1.250 --html report.html
natgate conform -c /etc/natgate/natgate.toml
natgate conform --inside eth1 --outside eth2 --inside-gateway6 2001:db8::1 --nat64 64:ff9b::
natgate conform --lab linux --patience 10m --json linux.json
natgate conform --compare ours.json theirs.json";

/// Test the RFCs' requirements on a NAT, from outside
///
/// Sends packets into both sides of a translator, and checks the packets that come out of either
/// side. Reports for each requirement of RFC 4787, 5382, 5508, 5597, 6056, 6864, 6888, 7857, 4884
/// and 1812, and between the families of RFC 6146, 7915 and 7757, if it is met, with the packets as
/// evidence.
#[derive(clap::Args)]
#[command(
    group(ArgGroup::new("families").multiple(true)),
    group(
        ArgGroup::new("what").required(true).args(["inside", "config", "lab", "list", "compare"])
    ),
    override_usage = "natgate conform --inside DEVICE --outside DEVICE [OPTIONS]\n       \
        natgate conform -c FILE [OPTIONS]\n       \
        natgate conform --lab linux|natgate [OPTIONS]\n       \
        natgate conform --list\n       \
        natgate conform --compare FILE...",
    after_help = AFTER_HELP
)]
pub(crate) struct Args {
    /// The device on the translator's inside
    #[arg(long, value_name = "DEVICE", requires = "outside")]
    inside: Option<String>,
    /// The device on the translator's outside
    #[arg(long, value_name = "DEVICE", requires = "inside")]
    outside: Option<String>,
    /// Try natgate itself with this configuration, in simulated time: no device, no root, seconds
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Try one of these translators between network namespaces of this command's own (needs root)
    #[arg(long, value_enum)]
    lab: Option<Lab>,
    /// With --lab natgate: its packet I/O
    #[arg(long, value_enum, requires = "lab", default_value_t = LabBackend::AfPacket)]
    backend: LabBackend,
    /// List every requirement with the conditions of its trial
    #[arg(long)]
    list: bool,
    /// Compare reports in JSON, as a table in Markdown
    #[arg(long, value_name = "FILE", num_args = 1..=8)]
    compare: Option<Vec<PathBuf>>,

    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    output: Output,

    /// Try only requirements whose names begin with these (rfc4787, rfc5508#REQ-4), separated by
    /// commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Allow the requirements whose names begin with these to fail
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allow: Vec<String>,
    /// Mappings of one protocol that the translator grants one subscriber
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    quota: Option<u32>,
    /// With -c: seed of all random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

/// Translator in a laboratory.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lab {
    /// The Linux kernel with `nft` masquerading and default settings
    Linux,
    /// `natgate run`
    Natgate,
}

/// Back ends of natgate in a laboratory.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LabBackend {
    /// Packet sockets
    AfPacket,
    /// AF_XDP sockets
    AfXdp,
}

/// Addresses of the hosts.
#[derive(clap::Args)]
#[command(next_help_heading = "Hosts")]
struct Place {
    /// Address of the translator on the inside
    #[arg(long, value_name = "ADDRESS", default_value = "10.77.0.1")]
    inside_gateway: Ipv4Addr,
    /// Addresses for hosts on the inside
    #[arg(long, value_name = "FIRST-LAST", value_parser = hosts)]
    #[arg(default_value = "10.77.0.16-10.77.0.250")]
    inside_hosts: Hosts,
    /// Addresses for hosts on the outside
    #[arg(long, value_name = "FIRST-LAST", value_parser = hosts)]
    #[arg(default_value = "198.51.100.16-198.51.100.250")]
    outside_hosts: Hosts,
    /// Next router of the translator on the outside [default: the hosts are neighbors]
    #[arg(long, value_name = "ADDRESS")]
    outside_gateway: Option<Ipv4Addr>,
    /// Outside address whose packets are not translated
    #[arg(long, value_name = "ADDRESS")]
    untranslated: Option<Ipv4Addr>,
    /// IPv6 address of the translator on the inside, if it translates between the families
    #[arg(long, value_name = "ADDRESS", requires = "families")]
    inside_gateway6: Option<Ipv6Addr>,
    /// The 96-bit prefix of stateful translation (NAT64)
    #[arg(long, value_name = "PREFIX", group = "families", value_parser = prefix)]
    #[arg(requires = "inside_gateway6")]
    nat64: Option<Ipv6Addr>,
    /// The 96-bit prefix in which a stateless translator has the outside hosts
    #[arg(long, value_name = "PREFIX", group = "families", value_parser = prefix)]
    #[arg(requires_all = ["inside_gateway6", "siit_hosts"])]
    siit: Option<Ipv6Addr>,
    /// IPv4 address that a stateless translator has for the first inside host; the others follow
    #[arg(long, value_name = "ADDRESS", requires = "siit")]
    siit_hosts: Option<Ipv4Addr>,
}

/// Waiting times.
#[derive(clap::Args)]
#[command(next_help_heading = "Waiting")]
struct Timing {
    /// Wait for no timers
    #[arg(long, conflicts_with = "patience")]
    quick: bool,
    /// Leave out requirements whose trial waits for longer than this
    #[arg(long, value_name = "DURATION", value_parser = config::duration)]
    patience: Option<Duration>,
    /// Longest time of a packet through the translator
    #[arg(long, value_name = "DURATION", value_parser = transit, default_value = "300ms")]
    transit: Duration,
    /// Translator's timer for UDP, if it was set below 5m
    #[arg(long, value_name = "DURATION", value_parser = timer)]
    udp: Option<Duration>,
    /// Translator's timer for established TCP connections, if below 2h4m
    #[arg(long, value_name = "DURATION", value_parser = timer)]
    tcp_established: Option<Duration>,
    /// Translator's timer for TCP connections that open, if below 4m
    #[arg(long, value_name = "DURATION", value_parser = timer)]
    tcp_opening: Option<Duration>,
    /// Translator's timer for TCP connections that close, if below 4m
    #[arg(long, value_name = "DURATION", value_parser = timer)]
    tcp_closing: Option<Duration>,
    /// Translator's timer for ICMP queries, if below 60s
    #[arg(long, value_name = "DURATION", value_parser = timer)]
    icmp: Option<Duration>,
}

/// Destination of the report.
#[derive(clap::Args)]
#[command(next_help_heading = "Report")]
struct Output {
    /// Write the report as JSON to a file, or instead of text to standard output (-)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the report as one page of HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Name of the tested translator in the report
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Show the sent and received packets of failed requirements in the text
    #[arg(long)]
    evidence: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(files) = &args.compare {
        return say(&comparison(&read_reports(files)?));
    }
    let options = args.options();
    check_names("--only", &args.only)?;
    check_names("--allow", &args.allow)?;
    if args.list {
        return say(&list(&options));
    }
    let (mut report, subject) = match (args.lab, &args.config) {
        (Some(Lab::Linux), _) if args.backend != LabBackend::AfPacket => {
            let message = "--backend is natgate's: use it with --lab natgate, or leave it out";
            return Err(Failure::Input(vec![message.to_owned()]));
        }
        (Some(lab), _) => (lab::run(lab, args.backend, &options)?, lab.subject().to_owned()),
        (None, Some(path)) => args.simulate(path, options)?,
        (None, None) => args.live(options)?,
    };
    report.subject = args.output.subject.clone().unwrap_or(subject);
    args.output.write(&report)?;
    match report.failed_musts(&args.allow).count() {
        0 => Ok(()),
        count => Err(anyhow!("MUSTs that are not met: {count}").into()),
    }
}

/// Reports names that match no requirement.
fn check_names(option: &str, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let single = Options { only: vec![name.clone()], ..Options::default() };
        if !requirements().any(|one| single.wants(&one.id)) {
            let message = format!(
                "{option} {name}: no requirement's name is that or begins so; --list has them"
            );
            return Err(Failure::Input(vec![message]));
        }
    }
    Ok(())
}

impl Args {
    fn options(&self) -> Options {
        let timing = &self.timing;
        let patience = if timing.quick { Duration::ZERO } else { Duration::MAX };
        Options {
            transit: timing.transit,
            patience: timing.patience.unwrap_or(patience),
            timers: Timers {
                udp: timing.udp,
                tcp_established: timing.tcp_established,
                tcp_opening: timing.tcp_opening,
                tcp_closing: timing.tcp_closing,
                icmp: timing.icmp,
            },
            quota: self.quota,
            only: self.only.clone(),
        }
    }

    /// Tries the program's own gateway in simulated time.
    fn simulate(&self, path: &Path, mut options: Options) -> Result<(Report, String), Failure> {
        let wrong = |error: String| Failure::Input(vec![format!("{}: {error}", path.display())]);
        let mut settings = config::load(path).map_err(Failure::Input)?;
        let setup = surround(&mut settings).map_err(|error| wrong(error.to_string()))?;
        options.quota = options.quota.or(Some(settings.engine.limits.udp_ports));
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        let bench = Simulated::new(&settings, seed).map_err(|error| wrong(error.to_string()))?;
        let report = try_all(Box::new(bench), setup, options)?;
        Ok((report, format!("natgate with {}, simulated", path.display())))
    }

    /// Tries the translator between two devices.
    fn live(&self, options: Options) -> Result<(Report, String), Failure> {
        let (inside, outside) = (self.inside.as_deref(), self.outside.as_deref());
        let (inside, outside) = (inside.unwrap_or_default(), outside.unwrap_or_default());
        let live = Live::open(inside, outside).map_err(|error| match error {
            LiveError::Device(natgate_io::Error::System { .. }) => {
                Failure::Runtime(anyhow::Error::from(error))
            }
            error => Failure::Input(vec![error.to_string()]),
        })?;
        let report = try_all(Box::new(live), self.place.setup(), options)?;
        Ok((report, format!("what is between {inside} and {outside}")))
    }
}

impl Place {
    fn setup(&self) -> Setup {
        let last = self.outside_hosts.last;
        Setup {
            inside_gateway: self.inside_gateway,
            inside_hosts: self.inside_hosts,
            outside_hosts: self.outside_hosts,
            outside_gateway: self.outside_gateway,
            nobody: match self.outside_gateway {
                None => Some(Ipv4Addr::from_bits(last.to_bits().saturating_add(1))),
                Some(_) => None,
            },
            untranslated: self.untranslated,
            families: self.inside_gateway6.map(|gateway| self.families(gateway)),
        }
    }

    fn families(&self, gateway: Ipv6Addr) -> Families {
        let prefix = Ipv6Addr::from_bits(gateway.to_bits() >> 64 << 64);
        let families = Families { gateway, prefix, nat64: self.nat64, siit: None };
        let siit = self.siit.zip(self.siit_hosts).map(|(prefix, ipv4)| Siit {
            prefix,
            ipv6: families.host(self.inside_hosts.first),
            ipv4,
        });
        Families { siit, ..families }
    }
}

/// Runs the suite with a progress bar.
fn try_all(bench: Box<dyn Bench>, setup: Setup, options: Options) -> Result<Report, Failure> {
    let count = catalogue(&options).into_iter().filter(|(one, needs)| {
        options.wants(&one.id) && needs.is_some_and(|needs| needs <= options.patience)
    });
    let bar = ProgressBar::new(count.count() as u64);
    bar.set_style(
        ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg}").context("progress")?,
    );
    let report = natgate_conform::run(bench, setup, options, &mut |item| {
        bar.set_message(item.id.clone());
        bar.inc(1);
    });
    bar.finish_and_clear();
    report.map_err(|error| Failure::Runtime(error.into()))
}

impl Output {
    fn write(&self, report: &Report) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(report).context("the report")? + "\n";
        if let Some(path) = &self.html {
            write_file(path, &report.html())?;
        }
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => say(&json),
            Some(path) => {
                write_file(path, &json)?;
                say(&report.text(self.evidence))
            }
            None => say(&report.text(self.evidence)),
        }
    }
}

fn say(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    Ok(written.context(NO_OUTPUT)?)
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let written = fs::write(path, text);
    Ok(written.with_context(|| format!("{}: cannot be written", path.display()))?)
}

fn read_reports(files: &[PathBuf]) -> Result<Vec<Report>, Failure> {
    let read = |path: &PathBuf| {
        let wrong = |error: &dyn std::fmt::Display| {
            let advice = "name a report made by natgate conform --json";
            Failure::Input(vec![format!("{}: {error}; {advice}", path.display())])
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        serde_json::from_str(&text).map_err(|error| wrong(&error))
    };
    files.iter().map(read).collect()
}

fn list(options: &Options) -> String {
    let wanted = catalogue(options).into_iter().filter(|(one, _)| options.wants(&one.id));
    let line = |(one, needs): (&Requirement, Option<Duration>)| {
        let needs = match needs {
            None => "not visible".to_owned(),
            Some(Duration::ZERO) => String::new(),
            Some(needs) => format!("{} s", needs.as_secs()),
        };
        format!("{:<42} {:<11} {needs:>11}  {}\n", one.id, one.level, one.text)
    };
    wanted.map(line).collect()
}

/// Parses a range of addresses, `FIRST-LAST`.
fn hosts(text: &str) -> Result<Hosts, String> {
    let range = text.split_once('-').and_then(|(first, last)| {
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(Hosts { first, last })
    });
    let fewest = Hosts::FEWEST;
    let advice = format!("write at least {fewest} addresses, such as 10.77.0.16-10.77.0.250");
    match range {
        Some(hosts) if hosts.count() >= fewest => Ok(hosts),
        Some(hosts) => Err(format!("these are only {} addresses; {advice}", hosts.count())),
        None => Err(format!("that is no range of IPv4 addresses; {advice}")),
    }
}

/// Parses a prefix of 96 bits, `64:ff9b::` or `64:ff9b::/96`.
fn prefix(text: &str) -> Result<Ipv6Addr, String> {
    let address = text.strip_suffix("/96").unwrap_or(text);
    let prefix: Ipv6Addr = address.parse().map_err(|error| format!("{error}"))?;
    match prefix.to_bits() as u32 {
        0 => Ok(prefix),
        _ => Err("that is no prefix of 96 bits; write one, such as 64:ff9b::/96".to_owned()),
    }
}

fn transit(text: &str) -> Result<Duration, String> {
    let time = config::duration(text)?;
    let range = Duration::from_millis(1)..=Duration::from_secs(10);
    if range.contains(&time) { Ok(time) } else { Err("that is not 1ms to 10s".to_owned()) }
}

fn timer(text: &str) -> Result<Duration, String> {
    let time = config::duration(text)?;
    let long = time >= Duration::from_secs(2);
    if long {
        Ok(time)
    } else {
        Err("a timer that can be told from the network's delay is 2s or more".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn families(more: &[&str]) -> Option<Families> {
        let devices = ["conform", "--inside", "a", "--outside", "b"];
        let arguments = devices.iter().chain(more);
        Command::try_parse_from(arguments).expect("good arguments").args.place.setup().families
    }

    #[test]
    fn hosts_have_the_prefix_of_the_gateway_and_their_ipv4_addresses() {
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        assert_eq!(families(&[]), None);
        let gateway = ["--inside-gateway6", "2001:db8:77::1"];
        let nat64 = families(&[&gateway[..], &["--nat64", "64:ff9b::/96"]].concat());
        let expected = Families {
            gateway: address("2001:db8:77::1"),
            prefix: address("2001:db8:77::"),
            nat64: Some(address("64:ff9b::")),
            siit: None,
        };
        assert_eq!(nat64, Some(expected));
        let options = ["--siit", "2001:db8:64::", "--siit-hosts", "192.0.2.1"];
        let siit = families(&[&gateway[..], &options].concat()).expect("IPv6");
        let mapping = siit.siit.expect("a stateless translation");
        assert_eq!(mapping.prefix, address("2001:db8:64::"));
        let second = siit.host(Ipv4Addr::new(10, 77, 0, 17));
        assert_eq!(second, address("2001:db8:77::10.77.0.17"));
        assert_eq!(mapping.external(second), Ipv4Addr::new(192, 0, 2, 2));
        let both = families(&[&gateway[..], &["--nat64", "64:ff9b::"], &options].concat());
        assert!(both.is_some_and(|both| both.nat64.is_some() && both.siit.is_some()));
    }
}
