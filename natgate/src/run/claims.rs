//! Files that only one gateway may write: the spool of an event log, the file of ports in use.
//!
//! Two gateways that write the same file would spoil it, and nobody would notice before the abuse
//! desk asks. So each file has a lock file beside it. The lock file names the control socket of its
//! owner. Another module makes sure that two gateways do not have the same control socket.
//!
//! A gateway that takes over has the control socket of its predecessor. It waits for the end of the
//! predecessor and then gets the lock. Meanwhile it has the *reservation*, the lock of a second
//! file: a third gateway that finds the lock free looks at the reservation and yields.

use super::NO_THREAD;
use crate::Failure;
use anyhow::{Context, anyhow};
use natgate_control::reload::{Claiming, Purpose};
use natgate_control::socket::DEFAULT_PATH;
use natgate_gateway::{LogTo, Settings, make_folder, open_or_create};
use nix::fcntl::OFlag;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Most bytes that are read as a control socket's path; no path is longer.
const LONGEST: u64 = 4096;

/// The locks of this process, held until all copies are dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<State>>);

/// The moment at which files are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// At the start. `takes_over`: the process with the same control socket may have the locks,
    /// and ends before this process takes its place.
    Start { takes_over: bool },
    /// At a reload.
    Reload,
    /// In a dry run of a reload: nothing is created or written.
    DryRun,
}

/// A lock file: the device and the number of the file, however its path is written.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<Key, File>,
    /// Locks that the predecessor still has; a thread waits for each.
    awaited: BTreeSet<Key>,
    /// The lock files of both, by their paths.
    paths: BTreeMap<PathBuf, Key>,
}

/// Locks for other settings. [`Change::apply`] puts them in force; dropping this frees the new
/// locks.
struct Change {
    claims: Claims,
    wanted: BTreeSet<Key>,
    paths: BTreeMap<PathBuf, Key>,
    held: BTreeMap<Key, File>,
    /// Locks of the predecessor.
    inherited: BTreeMap<Key, Inherited>,
}

/// A lock that the predecessor has.
struct Inherited {
    lock: File,
    /// The lock's reservation; `None` if its file cannot be made.
    reservation: Option<File>,
    /// The control socket of both processes.
    socket: PathBuf,
}

/// A file that only one gateway may write.
#[derive(Debug)]
struct Place<'s> {
    what: &'static str,
    path: &'s Path,
    lock: PathBuf,
}

impl Claims {
    /// Claims the files that the settings name. If this process takes over, its predecessor may
    /// have them until it ends.
    pub(super) fn take(settings: &Settings, takes_over: bool) -> Result<Self, Failure> {
        let (claims, start) = (Self::default(), Moment::Start { takes_over });
        claims.prepare(settings, start).map_err(|refusal| anyhow!(refusal))?.apply()?;
        Ok(claims)
    }

    /// Returns a function that claims, at a reload, the files of other settings beside what `first`
    /// claims.
    pub(super) fn claiming(&self, first: Claiming) -> Claiming {
        let claims = self.clone();
        Box::new(move |settings, purpose| {
            let before = first(settings, purpose)?;
            let moment = match purpose {
                Purpose::Reload => Moment::Reload,
                Purpose::DryRun => Moment::DryRun,
            };
            let change = claims.prepare(settings, moment)?;
            Ok(Box::new(move || {
                before();
                // A reload inherits no lock, so that no thread is started that could fail.
                let _ = change.apply();
            }))
        })
    }

    fn prepare(&self, settings: &Settings, moment: Moment) -> Result<Change, String> {
        let socket = settings.control.socket.as_deref().unwrap_or(Path::new(DEFAULT_PATH));
        let mut change = Change {
            claims: self.clone(),
            wanted: BTreeSet::new(),
            paths: BTreeMap::new(),
            held: BTreeMap::new(),
            inherited: BTreeMap::new(),
        };
        let state = self.state();
        let is_dry_run = moment == Moment::DryRun;
        for place in places(settings, is_dry_run) {
            // A lock that this process has stays, even if its file cannot be opened now.
            let known = state.paths.get(&place.lock).copied();
            let opened = if is_dry_run { look_at(&place.lock) } else { open(&place.lock) };
            let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
            let key = match (&opened, known) {
                (Ok((about, _)), _) => (about.dev(), about.ino()),
                (Err(_), Some(known)) => known,
                // Opening the file itself reports the reason.
                (Err(_), None) => continue,
            };
            change.wanted.insert(key);
            change.paths.insert(place.lock.clone(), key);
            if state.held.contains_key(&key) || state.awaited.contains(&key) {
                continue;
            }
            let Ok((_, mut file)) = opened else { continue };
            match file.try_lock() {
                Ok(()) => {
                    // The owner signs and then looks at the reservation, and a successor reserves
                    // and then looks at the signature: one of two that do so at a time yields.
                    if !is_dry_run {
                        sign(&mut file, socket);
                    }
                    if let Some(other) = place.reserved() {
                        return Err(place.refusal(&other, socket));
                    }
                    change.held.insert(key, file);
                }
                Err(TryLockError::WouldBlock) if moment != (Moment::Start { takes_over: true }) => {
                    return Err(place.refusal(&owner(&mut file), socket));
                }
                Err(TryLockError::WouldBlock) => {
                    let reservation = place.reserve(&mut file, socket)?;
                    let lock = Inherited { lock: file, reservation, socket: socket.to_owned() };
                    change.inherited.insert(key, lock);
                }
                // The file system has no locks.
                Err(TryLockError::Error(_)) => {}
            }
        }
        drop(state);
        Ok(change)
    }

    /// The state is valid after a panic too, because no change is left half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a lock of the process with the same control socket. That process ends before this
    /// one takes its place.
    fn wait(&self, key: Key, inherited: Inherited) -> anyhow::Result<()> {
        let claims = self.clone();
        let wait = move || {
            let Inherited { mut lock, reservation, socket } = inherited;
            let is_locked = lock.lock().is_ok();
            if is_locked {
                // A gateway that yielded to the reservation may have signed.
                sign(&mut lock, &socket);
            }
            let mut state = claims.state();
            // A reload may have made the lock unwanted.
            if state.awaited.remove(&key) && is_locked {
                state.held.insert(key, lock);
            }
            // The reservation ends after the lock has begun.
            drop(reservation);
        };
        Builder::new().name("lock".into()).spawn(wait).context(NO_THREAD)?;
        Ok(())
    }
}

impl Change {
    /// Keeps the new locks, frees locks that are no longer wanted, and waits for the predecessor's.
    fn apply(self) -> anyhow::Result<()> {
        let mut state = self.claims.state();
        state.held.retain(|key, _| self.wanted.contains(key));
        state.awaited.retain(|key| self.wanted.contains(key));
        state.paths = self.paths;
        state.held.extend(self.held);
        state.awaited.extend(self.inherited.keys());
        drop(state);
        self.inherited.into_iter().try_for_each(|(key, lock)| self.claims.wait(key, lock))
    }
}

impl Place<'_> {
    /// The path of the reservation.
    fn next(&self) -> PathBuf {
        let mut next = self.lock.as_os_str().to_owned();
        next.push(".next");
        next.into()
    }

    /// Reserves the lock for a process with this control socket. It is an error if a gateway with
    /// another control socket has the lock or the reservation.
    fn reserve(&self, lock: &mut File, socket: &Path) -> Result<Option<File>, String> {
        let of_other = |file: &mut File| match owner(file) {
            own if Path::new(&own) == socket => Ok(()),
            other => Err(self.refusal(&other, socket)),
        };
        of_other(lock)?;
        let Ok(mut next) = open(&self.next()) else { return Ok(None) };
        match next.try_lock() {
            Ok(()) => sign(&mut next, socket),
            Err(TryLockError::WouldBlock) => return Err(self.refusal(&owner(&mut next), socket)),
            Err(TryLockError::Error(_)) => return Ok(None),
        }
        of_other(lock)?;
        Ok(Some(next))
    }

    /// The control socket of the process that has reserved the lock, if there is one.
    fn reserved(&self) -> Option<String> {
        let next = self.next();
        let mut file = look_at(&next).ok()?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Some(owner(&mut file)),
            _ => None,
        }
    }

    /// Explains why this process may not have the file.
    fn refusal(&self, other: &str, own: &Path) -> String {
        let Self { what, path, .. } = self;
        if Path::new(other) == own {
            return format!(
                "natgate runs already with the control socket {other} and writes {what} {}; \
                 `natgate run --take-over` replaces it without a loss of packets",
                path.display()
            );
        }
        format!(
            "{what} {} is another natgate's, the one at {other}; name one of its own for each",
            path.display()
        )
    }
}

/// The files that the settings name. A dry run makes no folders for them.
fn places(settings: &Settings, is_dry_run: bool) -> Vec<Place<'_>> {
    let spools = settings.logs.iter().filter_map(|log| match &log.to {
        LogTo::Spool(spool) => {
            if !is_dry_run {
                // If that fails, the spool reports it later.
                let _ = make_folder(&spool.folder, 0o750);
            }
            let lock = spool.folder.join(".lock");
            Some(Place { what: "log spool", path: &spool.folder, lock })
        }
        _ => None,
    });
    let state = settings.state.iter().map(|state| {
        let mut lock = state.file.as_os_str().to_owned();
        lock.push(".lock");
        Place { what: "state.file", path: &state.file, lock: lock.into() }
    });
    spools.chain(state).collect()
}

/// Opens a lock file. No other user may open it, because a user who can read a file can lock it.
fn open(lock: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    // After a run as root, the file must still be lockable for the gateway's user.
    open_or_create(&options, lock)
}

/// Opens a lock file that is there, to see whether it is locked.
fn look_at(lock: &Path) -> io::Result<File> {
    // A FIFO must not hold the process up.
    File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(lock)
}

/// Writes the owner's control socket into the lock file. If that fails, the file is locked all the
/// same.
fn sign(file: &mut File, socket: &Path) {
    let _ = file.set_len(0);
    let _ = file.rewind();
    let _ = file.write_all(socket.as_os_str().as_encoded_bytes());
}

fn owner(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.rewind();
    match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) if !text.is_empty() => text,
        _ => "a control socket of its own".to_owned(),
    }
}
