//! Files of a spool: named, listed, written, and deleted when they are too many or too old.
//!
//! A run is the output of one sink, from its start to its end. Numbers of runs only grow, and so do
//! the numbers of a run's segments and frames. So the order of writing is known whatever the clock
//! did, and a missing part is visible. A process that takes over begins a run of its own: later
//! output of the other process comes before it.

use super::format::{Entry, MOST_IN_FORCE, frame, segment_header};
use super::note::Note;
use natgate_engine::Timestamp;
use natgate_gateway::give_to_folder_owner;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const EXTENSION: &str = "spool";

/// The extension of a run's note.
const NOTE_EXTENSION: &str = "run";

/// Modes of new folders and files: the owner may write, the group may read.
const FOLDER_MODE: u32 = 0o750;
pub(crate) const FILE_MODE: u32 = 0o640;

/// Bytes after which a new segment begins: a part of the whole, within bounds.
const PART: u64 = 64;
const SEGMENTS: (u64, u64) = (64 << 10, 64 << 20);

/// A segment of version 1 may be named this much earlier than one that was written before it.
const SWAPPED: Duration = Duration::from_secs(60);

/// Place of a segment in the order of writing. Segments of version 1 belong to run 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) run: u64,
    pub(crate) number: u64,
}

/// File of a segment, and the time of its first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) place: Place,
    pub(crate) from: Timestamp,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    /// Time of the last write.
    modified: SystemTime,
}

/// Content of a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Segments in the order of writing.
    pub(crate) segments: Vec<Segment>,
    /// Notes of runs, by the runs' numbers.
    pub(crate) notes: Vec<(u64, PathBuf)>,
}

impl Listing {
    /// Highest number of a run.
    fn last_run(&self) -> u64 {
        let runs = self.segments.iter().map(|segment| segment.place.run);
        runs.chain(self.notes.iter().map(|(run, _)| *run)).max().unwrap_or(0)
    }
}

/// Lists a folder.
///
/// # Errors
/// The system's error.
pub(crate) fn list(folder: &Path) -> io::Result<Listing> {
    let (mut first_version, mut listing) = (Vec::new(), Listing::default());
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension == Some(NOTE_EXTENSION) {
            if let Ok(run) = stem.parse() {
                listing.notes.push((run, path));
            }
            continue;
        }
        // A file that was deleted meanwhile is no segment.
        let (Some(EXTENSION), Ok(about)) = (extension, entry.metadata()) else { continue };
        let Some((place, from)) = parse_name(stem) else { continue };
        let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let size = about.len();
        let segment = Segment { place, from: Timestamp(from), path, size, modified };
        match place.run {
            0 => first_version.push(segment),
            _ => listing.segments.push(segment),
        }
    }
    listing.notes.sort();
    listing.segments.sort_by_key(|segment| segment.place);
    order_first_version(&mut first_version);
    listing.segments.splice(..0, first_version);
    Ok(listing)
}

/// Reads a segment's name without the extension: its place, and the time of its first entry.
fn parse_name(stem: &str) -> Option<(Place, u64)> {
    let mut parts = stem.split('-').map(|part| part.parse::<u64>().ok());
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Some(from)), None, None, None) => Some((Place { run: 0, number: 0 }, from)),
        (Some(Some(run @ 1..)), Some(Some(number)), Some(Some(from)), None) => {
            Some((Place { run, number }, from))
        }
        _ => None,
    }
}

/// Puts segments of version 1 in the order of writing. They are named after their first entry's
/// time. With realms, a segment with nothing but a start was followed by one that is named a little
/// earlier and was written later.
fn order_first_version(segments: &mut [Segment]) {
    segments.sort_by(|one, other| (one.from, &one.path).cmp(&(other.from, &other.path)));
    let mut at = 1;
    while at < segments.len() {
        let (before, this) = (&segments[at - 1], &segments[at]);
        let is_near = this.from.since(before.from) <= SWAPPED;
        if is_near && this.modified < before.modified && starts(&this.path) && !starts(&before.path)
        {
            segments.swap(at - 1, at);
        }
        at += 1;
    }
    for (number, segment) in segments.iter_mut().enumerate() {
        segment.place.number = number as u64;
    }
}

/// True if a segment's first entry is a start.
fn starts(path: &Path) -> bool {
    let first = || {
        let reader = super::reader::Reader::open(path).ok()?;
        let found = reader.frame(reader.begin()).ok()??;
        reader.entries(&found).ok()??.first().copied()
    };
    matches!(first(), Some(Entry::Start(_)))
}

/// The segment that is being written.
#[derive(Debug)]
struct Open {
    file: File,
    /// Number of valid bytes.
    len: u64,
    since: Timestamp,
}

/// Writer of new segments in a folder.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: PathBuf,
    max_size: u64,
    max_age: Duration,
    run: u64,
    /// Note of the run. While it exists, the run's number is taken.
    note: File,
    /// Numbers of segments and frames of the run.
    segments: u64,
    frames: u64,
    open: Option<Open>,
    /// Names of realms, as JSON.
    realms: Vec<u8>,
    /// Configuration in force, packed; nothing if it is not recorded.
    in_force: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(folder: &Path, max_size: u64, max_age: Duration) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
        let mut run = list(folder)?.last_run() + 1;
        let note = loop {
            let options = &mut File::options();
            match new_file(options.read(true).write(true), &note_path(folder, run)) {
                Ok(file) => break file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => run += 1,
                Err(error) => return Err(error),
            }
        };
        let (folder, realms) = (folder.to_owned(), b"[]".to_vec());
        let (segments, frames, open, in_force) = (0, 0, None, Vec::new());
        Ok(Self { folder, max_size, max_age, run, note, segments, frames, open, realms, in_force })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the names of realms; a segment has one list of them.
    pub(crate) fn name_realms(&mut self, realms: &[String]) -> io::Result<bool> {
        let realms = serde_json::to_vec(realms)?;
        let is_other = realms != self.realms;
        if is_other {
            self.realms = realms;
            self.open = None;
        }
        Ok(is_other)
    }

    /// Bytes after which a new segment begins.
    fn most(&self) -> u64 {
        (self.max_size / PART).clamp(SEGMENTS.0, SEGMENTS.1)
    }

    /// Sets the configuration in force, packed; a segment has one. It is not recorded if it has
    /// more than half the bytes of a segment. Returns true if it is another than before.
    pub(crate) fn put_in_force(&mut self, packed: &[u8]) -> bool {
        let most = MOST_IN_FORCE.min(self.most() as usize / 2);
        let packed = if packed.len() <= most { packed } else { &[] };
        let is_other = self.in_force != packed;
        if is_other {
            self.in_force = packed.to_vec();
            self.open = None;
        }
        is_other
    }

    /// Makes the next frame begin a segment.
    pub(crate) fn end_segment(&mut self) {
        self.open = None;
    }

    /// Writes a frame of these entries and synchronises it, so that it survives a failure of the
    /// machine.
    pub(crate) fn write(&mut self, entries: &[Entry], now: Timestamp) -> io::Result<()> {
        let Some(first) = entries.iter().map(Entry::time).min() else { return Ok(()) };
        let most = self.most();
        let part = self.max_age / PART as u32;
        let is_done = |open: &Open| open.len >= most || now.since(open.since) >= part;
        if self.open.as_ref().is_some_and(is_done) {
            self.open = None;
        }
        let bytes = frame(entries, self.frames)?;
        let header = if self.open.is_none() { self.in_force.len() } else { 0 };
        self.tidy(now, (bytes.len() + header) as u64)?;
        let Open { mut file, len, since } = match self.open.take() {
            Some(open) => open,
            None => self.begin(first, now)?,
        };
        match file.write_all(&bytes).and_then(|()| file.sync_data()) {
            Ok(()) => {
                self.open = Some(Open { file, len: len + bytes.len() as u64, since });
                self.frames += 1;
                Ok(())
            }
            Err(error) => {
                // A partial frame is invalid, and would end the segment.
                if file.set_len(len).is_ok() {
                    self.open = Some(Open { file, len, since });
                }
                Err(error)
            }
        }
    }

    /// Notes the time until which everything is written.
    pub(crate) fn note(&self, until: Timestamp) -> io::Result<()> {
        let note = Note { run: self.run, frames: self.frames, until };
        self.note.write_all_at(&note.bytes(), 0)
    }

    /// Begins a segment.
    fn begin(&mut self, first: Timestamp, now: Timestamp) -> io::Result<Open> {
        let (file, path) = loop {
            let (run, number, from) = (self.run, self.segments, first.0);
            let name = format!("{run:010}-{number:010}-{from:020}.{EXTENSION}");
            let path = self.folder.join(name);
            match new_file(File::options().append(true), &path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.segments += 1,
                Err(error) => return Err(error),
            }
        };
        let header = segment_header(self.run, self.segments, &self.realms, &self.in_force);
        match (&file).write_all(&header) {
            Ok(()) => {
                self.segments += 1;
                // The frame's own synchronisation does not cover the folder.
                let _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
                Ok(Open { file, len: header.len() as u64, since: now })
            }
            Err(error) => {
                // The file is empty.
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Deletes segments that are too old, and the oldest ones if there are too many bytes, with
    /// `more` bytes to come. The segment that is being written stays, and so do those of a later
    /// run.
    fn tidy(&self, now: Timestamp, more: u64) -> io::Result<()> {
        let Listing { segments, notes } = list(&self.folder)?;
        let mut size = more + segments.iter().map(|segment| segment.size).sum::<u64>();
        let written = Place { run: self.run, number: self.segments.saturating_sub(1) };
        let mut left = segments.len();
        for (at, segment) in segments.iter().enumerate() {
            // The last entries of a segment are not later than the first of the next.
            let next = segments.get(at + 1).map(|next| next.from);
            let old = next.is_some_and(|next| now.since(next) > self.max_age);
            let is_written = self.open.is_some() && segment.place == written;
            if is_written || segment.place > written || !old && size <= self.max_size {
                break;
            }
            fs::remove_file(&segment.path)?;
            size -= segment.size;
            left -= 1;
        }
        let oldest = segments.get(segments.len() - left).map_or(self.run, |one| one.place.run);
        for (run, path) in notes {
            if run < oldest.min(self.run) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.segments == 0 {
            // A run that never began leaves no file.
            let _ = fs::remove_file(note_path(&self.folder, self.run));
        }
    }
}

fn note_path(folder: &Path, run: u64) -> PathBuf {
    folder.join(format!("{run:010}.{NOTE_EXTENSION}"))
}

/// Creates a file of the spool.
fn new_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.create_new(true).mode(FILE_MODE).open(path)?;
    give_to_folder_owner(&file, path)?;
    Ok(file)
}
