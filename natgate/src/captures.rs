//! Captures as arguments: which files are read and written, the check that no file is both, and
//! error messages about captures.
//!
//! Files are written in large pieces. If any input is a stream, the results of each packet are
//! written before the next packet is read.

use crate::Failure;
use anyhow::Context;
use clap::ArgGroup;
use indicatif::{ProgressBar, ProgressStyle};
use natgate_engine::Side;
use natgate_gateway::replay::{Flush, Input, InputError};
use natgate_io::pcap::{Capture, ReadError};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they are written to a file.
const WRITE_BUFFER: usize = 256 << 10;

// A doc comment here would replace the help text of the command, because this struct is flattened
// into its arguments.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("capture").required(true).args(["input", "inside"])))]
pub(crate) struct Captures {
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
    /// Capture of the packets that leave (pcapng), each on the interface that it leaves by; `-` for
    /// standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Captures {
    /// Paths of the captures to read.
    fn inputs(&self) -> impl Iterator<Item = &Path> {
        [&self.input, &self.inside, &self.outside].into_iter().filter_map(Option::as_deref)
    }

    /// Checks that no output file is also an input or another output. `read` and `written` are the
    /// files besides the captures.
    pub(crate) fn check_files<'a>(
        &'a self,
        read: impl IntoIterator<Item = &'a Path>,
        written: impl IntoIterator<Item = &'a Path>,
    ) -> Result<(), Failure> {
        if self.inputs().all(is_stream) && self.inputs().count() > 1 {
            let sentence = "-: cannot be both --inside and --outside; use files or named pipes";
            return Err(Failure::Input(vec![sentence.into()]));
        }
        let mut taken: Vec<&Path> = self.inputs().chain(read).collect();
        taken.retain(|path| !is_stream(path));
        for output in std::iter::once(&*self.out).chain(written) {
            if taken.iter().any(|other| same_file(other, output)) {
                let sentence = "is to be written, but is named for something else too; give each \
                                its own file";
                return Err(input_failure(output, sentence));
            }
            taken.push(output);
        }
        Ok(())
    }

    /// Opens the captures to read, and says when results are to be flushed.
    pub(crate) fn open_input(
        &self,
        progress: &ProgressBar,
    ) -> Result<(Input<impl Read>, Flush), Failure> {
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

    /// Creates the output capture.
    pub(crate) fn create_output(&self) -> anyhow::Result<BufWriter<File>> {
        create(&self.out)
    }

    /// Describes an error in a capture, with the capture's name.
    pub(crate) fn failure(&self, error: InputError) -> Failure {
        let InputError { side, error } = error;
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

/// Describes an error in a file, with the file's name.
pub(crate) fn input_failure(path: &Path, sentence: impl std::fmt::Display) -> Failure {
    Failure::Input(vec![format!("{}: {sentence}", path.display())])
}

fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// True if both paths are the same regular file, or both are standard output.
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

/// Creates a file, or returns standard output for `-`.
pub(crate) fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = if is_stream(path) {
        io::stdout().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::create(path)
    };
    let file = file.with_context(|| format!("{}: cannot be written", path.display()))?;
    Ok(BufWriter::with_capacity(WRITE_BUFFER, file))
}
