//! `natgate replay`: opens the files that the arguments name, runs the offline loop, writes the
//! counters.
//!
//! If a capture is damaged, the output, events and counters of all packets before the damage are
//! written before the command fails.

use crate::Failure;
use crate::captures::{Captures, create, input_failure};
use anyhow::Context;
use indicatif::ProgressBar;
use natgate_control::{config, json};
use natgate_engine::Event;
use natgate_gateway::AlgExpectation;
use natgate_gateway::ipv6::Translator;
use natgate_gateway::replay::{Observer, ReplayError, Report, replay};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// Translate captures offline
///
/// Translates the packets of a capture, with their timestamps as the clock, and writes the packets
/// that leave. The same capture, configuration and seed give the same bytes.
#[derive(clap::Args)]
#[command(
    override_usage = "natgate replay -c FILE --in FILE --out FILE [OPTIONS]\n       \
        natgate replay -c FILE --inside FILE --outside FILE --out FILE [OPTIONS]",
    after_help = "Example:\n\
        natgate replay -c natgate.toml --in before.pcapng --out after.pcapng --stats stats.json"
)]
pub(crate) struct Args {
    /// Configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    captures: Captures,
    /// Changes of state, one JSON object a line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Counters, one JSON object
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Seed of all random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let written = [&args.events, &args.stats].into_iter().flatten();
    args.captures.check_files([&*args.config], written.map(PathBuf::as_path))?;
    let settings = config::load(&args.config).map_err(Failure::Input)?;
    let progress = ProgressBar::no_length();
    let (input, flush) = args.captures.open_input(&progress)?;
    let output = args.captures.create_output()?;
    let names = json::Names::of_settings(&settings);
    let mut log = EventLog { output: args.events.as_deref().map(create).transpose()?, names };
    let stats = args.stats.as_deref().map(create).transpose()?;

    let seed = seed(args.seed);
    let report = replay(&settings, seed, input, output, &mut log, flush);
    progress.finish_and_clear();
    if let Some(mut stats) = stats {
        write_stats(&mut stats, &report).context("the counters cannot be written")?;
    }
    report.end.map_err(|error| args.failure(error))
}

impl Args {
    fn failure(&self, error: ReplayError) -> Failure {
        match error {
            ReplayError::Input(error) => self.captures.failure(error),
            ReplayError::Config(error) => input_failure(&self.config, error.message),
            ReplayError::Output(_) | ReplayError::Events(_) => Failure::Runtime(error.into()),
        }
    }
}

/// Converts the seed's number to the translator's form.
fn seed(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}

fn write_stats(output: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut counters = json::counters(&report.counters);
    json::add_algs(&mut counters, &report.algs);
    serde_json::to_writer_pretty(&mut *output, &counters)?;
    writeln!(output)?;
    output.flush()
}

/// Hosts behind numbers.
struct Numbered<'t>(&'t Translator);

impl json::Hosts for Numbered<'_> {
    fn address(&self, realm: u16, number: Ipv4Addr) -> Option<Ipv6Addr> {
        self.0.host(realm, number)?.address
    }

    fn subscriber(&self, realm: u16, number: Ipv4Addr) -> Option<(Ipv6Addr, u8)> {
        self.0.host(realm, number).map(|name| (name.prefix, name.len))
    }
}

/// Destination of events, if any.
struct EventLog {
    output: Option<BufWriter<File>>,
    /// Names that events mention.
    names: json::Names,
}

impl Observer for EventLog {
    fn event(&mut self, event: &Event, translator: Option<&Translator>) -> io::Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let object = json::event(event, &self.names);
        let object = match translator {
            Some(translator) => object.with_hosts(event, &Numbered(translator)),
            None => object,
        };
        serde_json::to_writer(&mut *output, &object)?;
        output.write_all(b"\n")
    }

    fn expectation(
        &mut self,
        expectation: &AlgExpectation,
        translator: Option<&Translator>,
    ) -> io::Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let object = json::expectation(expectation, &self.names);
        let object = match translator {
            Some(translator) => object.with_host_of(expectation, &Numbered(translator)),
            None => object,
        };
        serde_json::to_writer(&mut *output, &object)?;
        output.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.as_mut().map_or(Ok(()), Write::flush)
    }
}
