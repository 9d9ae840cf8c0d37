//! The file that remembers ports, as the file system sees it.
//!
//! It is replaced as a whole: written under another name beside it, brought to the disk, renamed.
//! So whatever happens there is either the old one or the new one. What an unfinished writing
//! leaves behind is overwritten by the next. The generation before stays beside the file under a
//! third name, for the case that the disk spoils the newest; a damaged file never takes its place.
//! Nobody but the gateway's user may read the files: they tell which ports are open.

use super::format::{self, Record, Writer};
use crate::folder_owner::create_anew;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// More than the file can be, bytes: all ports of all addresses that can be configured.
const MOST: u64 = 2 << 30;

/// The file's bytes; `None` when there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    if file.take(MOST + 1).read_to_end(&mut bytes)? as u64 > MOST {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "it is too long"));
    }
    Ok(Some(bytes))
}

/// Makes sure that the file could be written, without changing it.
pub(super) fn try_write(path: &Path) -> io::Result<()> {
    let beside = beside(path);
    create(&beside)?;
    fs::remove_file(beside)
}

/// A file that is being written and will take another's place.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    path: &'a Path,
    writer: Writer<BufWriter<File>>,
}

impl<'a> Replacement<'a> {
    pub(super) fn begin(path: &'a Path) -> io::Result<Self> {
        let file = create(&beside(path))?;
        Ok(Self { path, writer: Writer::new(BufWriter::new(file))? })
    }

    pub(super) fn record(&mut self, record: &Record) -> io::Result<()> {
        self.writer.record(record)
    }

    /// Puts it in its place, once all of it is on the disk.
    pub(super) fn finish(self) -> io::Result<()> {
        let file = self.writer.finish()?.into_inner()?;
        file.sync_all()?;
        keep_generation(self.path)?;
        fs::rename(beside(self.path), self.path)?;
        match self.path.parent() {
            // So that the name, too, is there after a loss of power.
            Some(directory) if !directory.as_os_str().is_empty() => {
                File::open(directory)?.sync_all()
            }
            _ => Ok(()),
        }
    }
}

/// Removes what an unfinished replacement has left.
pub(super) fn discard(path: &Path) {
    // There may be none, and the next replacement overwrites it anyway.
    let _ = fs::remove_file(beside(path));
}

/// Makes the file the generation before, if there is one and it is whole.
fn keep_generation(path: &Path) -> io::Result<()> {
    match File::open(path).and_then(|file| format::is_whole(&file)) {
        Ok(true) => fs::rename(path, generation_before(path)),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// A new file that nobody but this user may read.
fn create(path: &Path) -> io::Result<File> {
    const OWNER_ONLY: u32 = 0o600;
    create_anew(path, OWNER_ONLY)
}

/// The name under which the next file is written.
fn beside(path: &Path) -> PathBuf {
    with_suffix(path, ".new")
}

/// The name of the generation before.
pub(super) fn generation_before(path: &Path) -> PathBuf {
    with_suffix(path, ".old")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
