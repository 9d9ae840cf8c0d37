//! Replacement of the file with the saved ports.
//!
//! A write replaces the file as a whole: the new file is written under another name beside the old
//! one, synchronised to the disk, and renamed. The old file stays as the generation before, under a
//! third name, for the case that the disk spoils the newest file. A damaged file never becomes the
//! generation before. At every moment the path names either the old file or the new one.
//!
//! The temporary name has the number of the process, because at a take-over two processes write
//! beside the same file. A process that is killed leaves such files; `remove_strays` removes them.
//! Only the gateway's user may read the files: they show which ports are open.

use super::format::{self, Record, Writer};
use crate::folder_owner::create_anew;
use rustix::fs::OFlags;
use rustix::process::{Pid, geteuid, test_kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bound of the file's size, bytes: all ports of all addresses that can be configured.
const MOST: u64 = 2 << 30;

/// End of the temporary names.
const BESIDE: &str = ".new";

/// Reads the file; `None` if there is none.
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

/// True if the file or the generation before exists.
pub(super) fn is_there(path: &Path) -> bool {
    let has_name = |path: &Path| fs::symlink_metadata(path).is_ok();
    has_name(path) || has_name(&generation_before(path))
}

/// Replaces the file by one with these records.
pub(super) fn write(path: &Path, records: &[Record]) -> io::Result<()> {
    let mut replacement = Replacement::begin(path)?;
    records.iter().try_for_each(|record| replacement.record(record))?;
    replacement.finish()
}

/// Removes the file and the generation before. The file itself goes last, because it counts.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    for path in [&generation_before(path), path] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Makes sure that the file could be written, without changing it.
pub(super) fn try_write(path: &Path) -> io::Result<()> {
    create(&Beside::new(path).0).map(drop)
}

/// A file in progress that will replace another. Dropping it unfinished removes it.
#[derive(Debug)]
pub(super) struct Replacement<'a> {
    path: &'a Path,
    beside: Beside,
    writer: Writer<BufWriter<File>>,
}

impl<'a> Replacement<'a> {
    pub(super) fn begin(path: &'a Path) -> io::Result<Self> {
        let beside = Beside::new(path);
        let file = create(&beside.0)?;
        Ok(Self { path, beside, writer: Writer::new(BufWriter::new(file))? })
    }

    pub(super) fn record(&mut self, record: &Record) -> io::Result<()> {
        self.writer.record(record)
    }

    /// Synchronises the new file to the disk and puts it in its place. If the generation before
    /// cannot be kept, that is an error, but the new file is in its place.
    pub(super) fn finish(self) -> io::Result<()> {
        let Self { path, beside, writer } = self;
        let file = writer.finish()?.into_inner()?;
        file.sync_all()?;
        let kept = keep_generation(path);
        fs::rename(&beside.0, path)?;
        // The rename must survive a loss of power, too.
        File::open(folder(path))?.sync_all()?;
        kept
    }
}

/// Makes the file the generation before, if it exists and is whole. A file that cannot be read is
/// not whole. The file keeps its own name, so that the name exists at every moment.
pub(super) fn keep_generation(path: &Path) -> io::Result<()> {
    let Ok(mut file) = open_itself(path) else { return Ok(()) };
    if !format::is_whole(&file).unwrap_or(false) {
        return Ok(());
    }
    let second = Beside::new(path);
    // Some file systems permit only one name for a file.
    fs::hard_link(path, &second.0).or_else(|_| copy(&mut file, &second.0))?;
    fs::rename(&second.0, generation_before(path))
}

/// Opens the file of this name without following a link. A FIFO does not block the call.
fn open_itself(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Writes all of a file to a new one.
pub(super) fn copy(file: &mut File, path: &Path) -> io::Result<()> {
    let mut copy = create(path)?;
    file.rewind()?;
    io::copy(file, &mut copy)?;
    copy.sync_all()
}

/// Creates a file that only this user may read. Its lock tells that it is being written.
fn create(path: &Path) -> io::Result<File> {
    const OWNER_ONLY: u32 = 0o600;
    let file = create_anew(path, OWNER_ONLY)?;
    // Some file systems have no locks: the number of the process alone counts there.
    let _ = file.try_lock();
    Ok(file)
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

/// The folder of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A unique name beside a file: `FILE.PROCESS-NUMBER.new`. Dropping it removes the file of that
/// name.
#[derive(Debug)]
struct Beside(PathBuf);

impl Beside {
    fn new(path: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(with_suffix(path, &format!(".{process}-{number}{BESIDE}")))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // A renamed file no longer has this name.
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes files that killed processes have left beside a file: regular files of this user with
/// such a name, whose process has ended and which no process writes.
pub(super) fn remove_strays(path: &Path) {
    let folder = folder(path);
    let (Some(name), Ok(entries)) = (path.file_name(), fs::read_dir(folder)) else { return };
    for entry in entries.flatten() {
        let process = process_of(name, &entry.file_name());
        if process.is_some_and(has_ended) && is_ours(&entry.path(), folder) {
            // The next start tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Process number in a [`Beside`] name of this file.
fn process_of(file: &OsStr, name: &OsStr) -> Option<Pid> {
    let (file, name) = (file.as_encoded_bytes(), name.as_encoded_bytes());
    let between = name.strip_prefix(file)?.strip_suffix(BESIDE.as_bytes())?;
    let between = std::str::from_utf8(between.strip_prefix(b".")?).ok()?;
    let (process, number) = between.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(process) || !is_number(number) {
        return None;
    }
    Pid::from_raw(process.parse().ok()?)
}

/// True if no such process runs, or it is this one. A former process may have had this one's
/// number; locks show which files this process still writes.
fn has_ended(process: Pid) -> bool {
    let is_this = i64::from(Pid::as_raw(Some(process))) == i64::from(process::id());
    is_this || test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

/// True if the file is a regular file without a lock and belongs to this user. If this process runs
/// as root, the file may also belong to the owner of the folder.
fn is_ours(path: &Path, folder: &Path) -> bool {
    let (Ok(about), user) = (fs::symlink_metadata(path), geteuid()) else { return false };
    let has_folder = || fs::metadata(folder).is_ok_and(|folder| folder.uid() == about.uid());
    let is_owned = about.uid() == user.as_raw() || user.is_root() && has_folder();
    let is_locked = || match open_itself(path).map(|file| file.try_lock()) {
        Ok(Err(TryLockError::WouldBlock)) | Err(_) => true,
        Ok(Ok(()) | Err(TryLockError::Error(_))) => false,
    };
    about.is_file() && is_owned && !is_locked()
}
