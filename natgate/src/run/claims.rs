//! Files that only one gateway may write: the spool of an event log, the file of ports in use.
//!
//! Two that write there would spoil what either remembers, and nobody would notice before the abuse
//! desk asks. So each is locked by a file beside it, which says by which control socket its owner
//! is asked. That the same control socket is not had twice is seen to where it is made; an owner
//! with our own is left to that, and its lock is ours when it has gone.

use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_control::socket::DEFAULT_PATH;
use natgate_gateway::{LogTo, Settings, give_to_folder_owner, open_or_create};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::Builder;

/// What control sockets are called that are read; no path is longer.
const LONGEST: u64 = 4096;

/// Locks that are held until this is dropped.
#[derive(Debug)]
pub(super) struct Claims {
    _held: Vec<File>,
}

/// Claims what the settings name.
pub(super) fn claim(settings: &Settings) -> Result<Claims, Failure> {
    let socket = settings.control.socket.as_deref().unwrap_or(Path::new(DEFAULT_PATH));
    let mut held = Vec::new();
    for (what, place, lock) in places(settings) {
        // Where no such file can be, whoever opens what it is for says why.
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
            // A file system without locks.
            Err(TryLockError::Error(_)) => {}
        }
    }
    Ok(Claims { _held: held })
}

/// What each is called, where it is, and the file that locks it.
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

/// Makes a spool's folder unless it is there. If that fails, the spool says so later.
fn make_folder(folder: &Path) {
    let is_new = !folder.exists();
    let made = DirBuilder::new().recursive(true).mode(0o750).create(folder);
    if is_new && made.is_ok() {
        let _ = File::open(folder).and_then(|file| give_to_folder_owner(&file, folder));
    }
}

/// Nobody else may open it: who can read a file can lock it.
fn open(lock: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    // Otherwise no other user can lock it after a run as root.
    open_or_create(&options, lock)
}

/// Says who has it. Should that fail, it is locked all the same.
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

/// Waits for the lock of one that has the same control socket, and so goes before this one comes.
fn inherit(file: File) -> anyhow::Result<()> {
    let wait = move || {
        if file.lock().is_ok() {
            // For as long as the process lives.
            std::mem::forget(file);
        }
    };
    Builder::new().name("lock".into()).spawn(wait).context("a thread cannot be made")?;
    Ok(())
}
