//! Files that only one gateway may write: the spool of an event log, the file of ports in use.
//!
//! Two gateways that write the same file would spoil it, and nobody would notice before the abuse
//! desk asks. So each file has a lock file beside it. The lock file names the control socket of its
//! owner. Another module makes sure that two gateways do not have the same control socket. If a
//! lock's owner has our control socket, we wait for its end and then get the lock.

use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_control::socket::DEFAULT_PATH;
use natgate_gateway::{LogTo, Settings, give_to_folder_owner, open_or_create};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::Builder;

/// Most bytes that are read as a control socket's path; no path is longer.
const LONGEST: u64 = 4096;

/// Locks, held until this is dropped.
#[derive(Debug)]
pub(super) struct Claims {
    _held: Vec<File>,
}

/// Claims the files that the settings name.
pub(super) fn claim(settings: &Settings) -> Result<Claims, Failure> {
    let socket = settings.control.socket.as_deref().unwrap_or(Path::new(DEFAULT_PATH));
    let mut held = Vec::new();
    for (what, place, lock) in places(settings) {
        // If the lock file cannot be made, opening the file itself reports the reason.
        let Ok(mut file) = open(&lock) else { continue };
        match file.try_lock() {
            Ok(()) => {
                sign(&mut file, socket);
                held.push(file);
            }
            Err(TryLockError::WouldBlock) => match owner(&mut file) {
                own if Path::new(&own) == socket => inherit(file)?,
                other => {
                    return Err(anyhow!(
                        "{what} {} is another natgate's, the one at {other}; name one of its own for each",
                        place.display()
                    )
                    .into());
                }
            },
            // The file system has no locks.
            Err(TryLockError::Error(_)) => {}
        }
    }
    Ok(Claims { _held: held })
}

/// Each file's description, its path, and the path of its lock file.
fn places(settings: &Settings) -> Vec<(&'static str, &Path, PathBuf)> {
    let spools = settings.logs.iter().filter_map(|log| match &log.to {
        LogTo::Spool(spool) => {
            make_folder(&spool.folder);
            Some(("log spool", &*spool.folder, spool.folder.join(".lock")))
        }
        _ => None,
    });
    let state = settings.state.iter().map(|state| {
        let mut lock = state.file.as_os_str().to_owned();
        lock.push(".lock");
        ("state.file", &*state.file, lock.into())
    });
    spools.chain(state).collect()
}

/// Makes a spool's folder if it is missing. If that fails, the spool reports it later.
fn make_folder(folder: &Path) {
    let is_new = !folder.exists();
    let made = DirBuilder::new().recursive(true).mode(0o750).create(folder);
    if is_new && made.is_ok() {
        let _ = File::open(folder).and_then(|file| give_to_folder_owner(&file, folder));
    }
}

/// Opens a lock file. No other user may open it, because a user who can read a file can lock it.
fn open(lock: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    // After a run as root, the file must still be lockable for the gateway's user.
    open_or_create(&options, lock)
}

/// Writes the owner's control socket into the lock file. If that fails, the file is locked all the
/// same.
fn sign(file: &mut File, socket: &Path) {
    let _ = file.set_len(0);
    let _ = file.write_all(socket.as_os_str().as_encoded_bytes());
}

fn owner(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) if !text.is_empty() => text,
        _ => "a control socket of its own".to_owned(),
    }
}

/// Waits for the lock of a process with the same control socket. That process ends before this one
/// takes its place.
fn inherit(file: File) -> anyhow::Result<()> {
    let wait = move || {
        if file.lock().is_ok() {
            // The lock is held until this process ends.
            std::mem::forget(file);
        }
    };
    Builder::new().name("lock".into()).spawn(wait).context("a thread cannot be made")?;
    Ok(())
}
