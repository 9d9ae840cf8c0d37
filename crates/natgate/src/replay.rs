//! `natgate replay`: opens what the arguments name, runs the offline loop, writes the counters.
//!
//! When a capture turns out damaged, output, events and counters of all that precedes the damage
//! are there before the command fails. Files are written in large pieces; if any input is a stream,
//! each packet's results go out before the next packet is read.

use crate::Failure;
use anyhow::Context;
use clap::ArgGroup;
use indicatif::{ProgressBar, ProgressStyle};
use natgate_control::{config, json};
use natgate_engine::{Counters, Event, Side};
use natgate_gateway::replay::{Flush, Input, InputError, Observer, ReplayError, replay};
use natgate_io::pcap::{Capture, ReadError};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they are written to a file.
const WRITE_BUFFER: usize = 256 << 10;

/// Translate captures offline
///
/// Takes the packets of a capture through the translator, with their timestamps as its clock, and
/// writes what leaves it. The same capture, configuration and seed give the same bytes.
#[derive(clap::Args)]
#[command(
    group(ArgGroup::new("capture").required(true).args(["input", "inside"])),
    override_usage = "natgate replay -c FILE --in FILE --out FILE [OPTIONS]\n       \
        natgate replay -c FILE --inside FILE --outside FILE --out FILE [OPTIONS]",
    after_help = "Example:\n\
        natgate replay -c natgate.toml --in before.pcapng --out after.pcapng --stats stats.json"
)]
pub(crate) struct Args {
    /// Configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Capture (pcapng) with two interfaces: the first, or the one named `inside`, is the inside;
    /// `-` for standard input
    #[arg(long = "in", value_name = "FILE")]
    input: Option<PathBuf>,
    /// Capture (pcap or pcapng) of the inside, to be merged with that of the outside by time
    #[arg(long, value_name = "FILE", requires = "outside", conflicts_with = "input")]
    inside: Option<PathBuf>,
    /// Capture (pcap or pcapng) of the outside
    #[arg(long, value_name = "FILE", requires = "inside", conflicts_with = "input")]
    outside: Option<PathBuf>,
    /// Translated capture (pcapng): a packet on an interface left by it; `-` for standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Changes of state, one JSON object a line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Counters, one JSON object
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// Decides every choice that is random
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.check_files()?;
    let settings = config::load(&args.config).map_err(Failure::Input)?;
    let progress = ProgressBar::no_length();
    let (input, flush) = args.open_input(&progress)?;
    let output = create(&args.out)?;
    let names = json::Names::of(&settings.engine);
    let mut log = EventLog { output: args.events.as_deref().map(create).transpose()?, names };
    let stats = args.stats.as_deref().map(create).transpose()?;

    let seed = seed(args.seed);
    let report = replay(&settings, seed, input, output, &mut log, flush);
    progress.finish_and_clear();
    if let Some(mut stats) = stats {
        write_stats(&mut stats, &report.counters).context("the counters cannot be written")?;
    }
    report.end.map_err(|error| args.failure(error))
}

impl Args {
    /// The captures to read, with where they are from.
    fn inputs(&self) -> impl Iterator<Item = &Path> {
        [&self.input, &self.inside, &self.outside].into_iter().filter_map(Option::as_deref)
    }

    /// The files to write.
    fn outputs(&self) -> impl Iterator<Item = &Path> {
        [Some(&self.out), self.events.as_ref(), self.stats.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
    }

    /// No file may be written that is also read or written as something else.
    fn check_files(&self) -> Result<(), Failure> {
        if self.inputs().all(is_stream) && self.inputs().count() > 1 {
            let sentence = "-: cannot be both --inside and --outside; use files or named pipes";
            return Err(Failure::Input(vec![sentence.into()]));
        }
        let mut taken: Vec<&Path> = self.inputs().chain([self.config.as_path()]).collect();
        taken.retain(|path| !is_stream(path));
        for output in self.outputs() {
            if taken.iter().any(|other| same_file(other, output)) {
                let sentence = "is to be written, but is named for something else too; give each \
                                its own file";
                return Err(input_failure(output, sentence));
            }
            taken.push(output);
        }
        Ok(())
    }

    fn open_input(&self, progress: &ProgressBar) -> Result<(Input<impl Read>, Flush), Failure> {
        let (mut len, mut flush) = (0, Flush::AtEnd);
        let mut captures = Vec::new();
        for path in self.inputs() {
            let unopened = |error| input_failure(path, format!("cannot be opened: {error}"));
            let file = open(path).map_err(unopened)?;
            let metadata = file.metadata().map_err(unopened)?;
            if metadata.is_dir() {
                return Err(input_failure(path, "is a directory; a capture file is needed"));
            }
            len += metadata.len();
            if !metadata.is_file() {
                flush = Flush::EachPacket;
            }
            captures.push(Capture::new(progress.wrap_read(file)));
        }
        if flush == Flush::AtEnd {
            let style = "{percent}% {wide_bar} {binary_bytes_per_sec} {eta}";
            progress.set_style(ProgressStyle::with_template(style).context("progress")?);
            progress.set_length(len);
        } else {
            progress.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let mut captures = captures.into_iter();
        let input = match (captures.next(), captures.next()) {
            (Some(inside), Some(outside)) => Input::pair(inside, outside),
            (Some(both), None) => Input::single(both),
            (None, _) => unreachable!("an input is required"),
        };
        Ok((input, flush))
    }

    fn failure(&self, error: ReplayError) -> Failure {
        let InputError { side, error } = match error {
            ReplayError::Input(error) => error,
            ReplayError::Config(error) => return input_failure(&self.config, error.message),
            ReplayError::Output(_) | ReplayError::Events(_) => {
                return Failure::Runtime(error.into());
            }
        };
        let path = match side {
            None => &self.input,
            Some(Side::Inside) => &self.inside,
            Some(Side::Outside) => &self.outside,
        };
        let path = path.as_deref().unwrap_or(Path::new("-"));
        match error {
            ReadError::Damaged { .. } | ReadError::Unsupported { .. } => input_failure(path, error),
            ReadError::Io(_) => Failure::Runtime(anyhow::anyhow!("{}: {error}", path.display())),
        }
    }
}

fn input_failure(path: &Path, sentence: impl std::fmt::Display) -> Failure {
    Failure::Input(vec![format!("{}: {sentence}", path.display())])
}

/// The seed's number, as the translator takes it.
fn seed(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}

fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// Whether both are the same: one regular file, or standard output twice.
fn same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
    };
    if is_stream(one) || is_stream(other) || identity(one).is_none() {
        return one == other && !one.starts_with("/dev");
    }
    identity(one) == identity(other)
}

fn open(path: &Path) -> io::Result<File> {
    if is_stream(path) {
        Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
    } else {
        File::open(path)
    }
}

fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = if is_stream(path) {
        io::stdout().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::create(path)
    };
    let file = file.with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(BufWriter::with_capacity(WRITE_BUFFER, file))
}

fn write_stats(output: &mut impl Write, counters: &Counters) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *output, &json::counters(counters))?;
    writeln!(output)?;
    output.flush()
}

/// Where events go, if anywhere.
struct EventLog {
    output: Option<BufWriter<File>>,
    /// Names that events mention.
    names: json::Names,
}

impl Observer for EventLog {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        serde_json::to_writer(&mut *output, &json::event(event, &self.names))?;
        output.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.as_mut().map_or(Ok(()), Write::flush)
    }
}
