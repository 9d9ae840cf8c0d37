//! A file of JSON lines.
//!
//! Lines are written whole or not at all: a line that a full disk has cut is removed before it is
//! tried again. If the path has another file, or none, or a reopening is requested, the file is
//! opened again.

use crate::drive::Sink;
use crate::json::{self, Names};
use crate::record::Record;
use natgate_engine::Timestamp;
use natgate_gateway::open_or_create;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Mode of new files: the owner may write, the group may read. An existing file keeps its mode.
const MODE: u32 = 0o640;

/// Appends JSON lines to a file.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    remotes: bool,
    /// The file, with its device and inode if it is a file that can be rotated.
    file: Option<(File, Option<(u64, u64)>)>,
    lines: Vec<u8>,
}

impl FileSink {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(path: &Path, remotes: bool) -> io::Result<Self> {
        let mut sink = Self { path: path.to_owned(), remotes, file: None, lines: Vec::new() };
        sink.connect(Timestamp(0))?;
        Ok(sink)
    }

    /// True if the path leads to another file now.
    fn is_elsewhere(&self) -> bool {
        let Some((_, Some(identity))) = self.file else { return false };
        fs::metadata(&self.path).ok().is_none_or(|now| (now.dev(), now.ino()) != identity)
    }
}

impl Sink for FileSink {
    fn connect(&mut self, _: Timestamp) -> io::Result<()> {
        if self.file.is_some() && !self.is_elsewhere() {
            return Ok(());
        }
        let mut options = File::options();
        options.append(true).mode(MODE);
        let file = open_or_create(&options, &self.path)?;
        let about = file.metadata()?;
        self.file = Some((file, about.is_file().then(|| (about.dev(), about.ino()))));
        Ok(())
    }

    fn write(
        &mut self,
        records: &[Record],
        names: &Names,
        now: Timestamp,
    ) -> (usize, io::Result<()>) {
        if let Err(error) = self.connect(now) {
            return (0, Err(error));
        }
        self.lines.clear();
        for place in 0..records.len() {
            let Some(object) = json::record(records, place, names, self.remotes) else { continue };
            if let Err(error) = serde_json::to_writer(&mut self.lines, &object) {
                return (0, Err(error.into()));
            }
            self.lines.push(b'\n');
        }
        let Some((file, identity)) = &mut self.file else { return (0, Ok(())) };
        let before = identity.and_then(|_| file.metadata().ok()).map(|about| about.len());
        match file.write_all(&self.lines) {
            Ok(()) => (records.len(), Ok(())),
            Err(error) => {
                // A partial line would spoil the next one, too.
                if let Some(len) = before {
                    let _ = file.set_len(len);
                }
                (0, Err(error))
            }
        }
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        self.connect(now)
    }

    fn reopen(&mut self) {
        self.file = None;
        // If this fails, the next write reports the error.
        let _ = self.connect(Timestamp(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::created;
    use std::os::unix::fs::PermissionsExt;

    fn lines(path: &Path) -> usize {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        for line in text.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
        }
        text.lines().count()
    }

    #[test]
    fn a_file_that_is_put_aside_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut sink = FileSink::open(&path, false).unwrap();
        let names = Names::default();
        assert_eq!(sink.write(&[created(1), created(2)], &names, Timestamp(0)).0, 2);
        let aside = folder.path().join("events.jsonl.1");
        fs::rename(&path, &aside).unwrap();
        assert_eq!(sink.write(&[created(3)], &names, Timestamp(0)).0, 1);
        assert_eq!((lines(&aside), lines(&path)), (2, 1));
        fs::remove_file(&path).unwrap();
        sink.reopen();
        assert_eq!(lines(&path), 0, "it is there again before anything happens");
    }

    #[test]
    fn a_file_is_for_its_owner_and_the_group_alone_unless_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        drop(FileSink::open(&path, false).unwrap());
        assert_eq!(mode() & 0o137, 0, "{:o}", mode());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        drop(FileSink::open(&path, false).unwrap());
        assert_eq!(mode(), 0o604);
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_half_a_line() {
        // This file has no room for any byte.
        let path = Path::new("/dev/full");
        let mut sink = FileSink::open(path, false).unwrap();
        let (written, result) = sink.write(&[created(1)], &Names::default(), Timestamp(0));
        assert_eq!((written, result.unwrap_err().kind()), (0, io::ErrorKind::StorageFull));
    }
}
