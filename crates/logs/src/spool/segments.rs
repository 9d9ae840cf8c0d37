//! The files of a spool: named, written to, thrown away when there are too many or they are too old.

use super::format::{Entry, SEGMENT, frame};
use natgate_engine::Timestamp;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXTENSION: &str = "spool";

/// Bytes after which a segment is followed by the next: a part of all, within bounds.
const PART: u64 = 64;
const SEGMENTS: (u64, u64) = (64 << 10, 64 << 20);

/// A segment's file and the time from which on it has entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Segment {
    pub(crate) from: Timestamp,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
}

/// The segments of a folder, oldest first.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let is_one = path.extension().is_some_and(|extension| extension == EXTENSION);
        let from = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        // One that has been thrown away since is none.
        if let (true, Some(from), Ok(about)) = (is_one, from, entry.metadata()) {
            segments.push(Segment { from: Timestamp(from), path, size: about.len() });
        }
    }
    segments.sort();
    Ok(segments)
}

/// What is written at the end of a folder's segments.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: PathBuf,
    max_size: u64,
    max_age: Duration,
    /// The segment that is written, how many bytes of it are good, and since when it is.
    open: Option<(File, u64, Timestamp)>,
    /// What realms are called, as JSON.
    realms: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(folder: &Path, max_size: u64, max_age: Duration) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        // Whoever cannot write here learns of it at the start.
        let probe = folder.join(".probe");
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        let folder = folder.to_owned();
        Ok(Self { folder, max_size, max_age, open: None, realms: b"[]".to_vec() })
    }

    /// Says what realms are called from now on.
    pub(crate) fn name_realms(&mut self, realms: &[String]) -> io::Result<()> {
        let realms = serde_json::to_vec(realms)?;
        if realms != self.realms {
            self.realms = realms;
            self.open = None;
        }
        Ok(())
    }

    /// Writes a frame of these entries, which is there then even if the machine fails.
    pub(crate) fn write(&mut self, entries: &[Entry], now: Timestamp) -> io::Result<()> {
        let Some(first) = entries.iter().map(Entry::time).min() else { return Ok(()) };
        let most = (self.max_size / PART).clamp(SEGMENTS.0, SEGMENTS.1);
        let part = self.max_age / PART as u32;
        if self
            .open
            .as_ref()
            .is_some_and(|(_, len, since)| *len >= most || now.since(*since) >= part)
        {
            self.open = None;
        }
        let bytes = frame(entries)?;
        self.tidy(now, bytes.len() as u64)?;
        let (mut file, len, since) = match self.open.take() {
            Some(open) => open,
            None => self.begin(first, now)?,
        };
        match file.write_all(&bytes).and_then(|()| file.sync_data()) {
            Ok(()) => {
                self.open = Some((file, len + bytes.len() as u64, since));
                Ok(())
            }
            Err(error) => {
                // A frame in half is none, and would end the segment.
                if file.set_len(len).is_ok() {
                    self.open = Some((file, len, since));
                }
                Err(error)
            }
        }
    }

    /// Begins a segment.
    fn begin(&self, first: Timestamp, now: Timestamp) -> io::Result<(File, u64, Timestamp)> {
        let mut from = first;
        let (file, path) = loop {
            let path = self.folder.join(format!("{:020}.{EXTENSION}", from.0));
            match File::options().append(true).create_new(true).open(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => from.0 += 1,
                Err(error) => return Err(error),
            }
        };
        let len = (self.realms.len() as u32).to_le_bytes();
        let header = [&SEGMENT[..], &len, &self.realms].concat();
        match (&file).write_all(&header) {
            Ok(()) => Ok((file, header.len() as u64, now)),
            Err(error) => {
                // Nothing is in it.
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Throws away what is too old, and the oldest of what is too much with so many bytes more.
    fn tidy(&self, now: Timestamp, more: u64) -> io::Result<()> {
        let segments = list(&self.folder)?;
        let mut size = more + segments.iter().map(|segment| segment.size).sum::<u64>();
        let kept = usize::from(self.open.is_some());
        for (at, segment) in segments.iter().enumerate() {
            // What it has last is not older than the next's first.
            let next = segments.get(at + 1).map(|next| next.from);
            let old = next.is_some_and(|next| now.since(next) > self.max_age);
            if at + kept >= segments.len() || !old && size <= self.max_size {
                break;
            }
            fs::remove_file(&segment.path)?;
            size -= segment.size;
        }
        Ok(())
    }
}
