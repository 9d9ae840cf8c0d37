//! The file that remembers ports, as the file system sees it.
//!
//! It is replaced as a whole: written under another name beside it, brought to the disk, renamed.
//! So whatever happens there is either the old one or the new one. What an unfinished writing
//! leaves behind is overwritten by the next. Nobody but the gateway's user may read it: it tells
//! which ports are open.

use super::format::{Record, Writer};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
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

fn create(path: &Path) -> io::Result<File> {
    const OWNER_ONLY: u32 = 0o600;
    let file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    Ok(file)
}

/// The name under which the next file is written.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}
