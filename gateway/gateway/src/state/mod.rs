//! Ports in use, saved over a restart. Remote endpoints still send to these ports, so they must not
//! go to another subscriber at once (RFC 6888 REQ-8). That holds for TCP too: after a restart the
//! translator no longer knows the connections.
//!
//! At each interval the worker's thread copies which ports of each external address are taken, a
//! few addresses a turn, so that no packet waits. Another thread writes them to a file, and once
//! more when the gateway stops. At the start all ports in the file are held for the hold-down. A
//! gateway that is killed loses what it gave out since the last write.
//!
//! The file of the previous write stays beside the file, as the generation before. If the newest
//! file is damaged, lost or unreadable, the ports are taken from the generation before.
//!
//! Each worker writes a file of its own, and at the start holds its part of the ports in all files.
//! Files of workers that no longer exist are merged into the first worker's file.
//!
//! The format of the file is in `format`, its replacement in `file`. The translator decides how a
//! port is held.

mod file;
mod format;
mod port_state_writer;
#[cfg(test)]
mod tests;

pub(crate) use port_state_writer::PortStateWriter;

use crate::limits::MOST_WORKERS;
use crate::settings::{Settings, StateSettings};
use format::{FormatError, Record};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Reason why ports cannot be saved.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file exists and cannot be read.
    #[error("state.file {} cannot be read: {error}; {}", .path.display(), readable(path, error))]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error(
        "state.file {} cannot be written: {error}; name a file in a directory that exists and may \
         be written", .path.display()
    )]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The file was not written by natgate.
    #[error(
        "state.file {} was not written by natgate; name another, or remove it", .path.display()
    )]
    Foreign {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has a later version.
    #[error(
        "state.file {} is of version {version}, this natgate reads version {}; remove it, or \
         run the natgate that wrote it", .path.display(), format::VERSION
    )]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// Version of the file.
        version: u16,
    },
    /// The thread that writes the file cannot be started.
    #[error("no thread can be started to write state.file")]
    Thread(#[source] io::Error),
}

/// Ports that were in use before a restart, and the file for ports in use from now on.
#[derive(Debug)]
pub struct SavedPorts {
    settings: StateSettings,
    records: Vec<Record>,
    damage: Option<String>,
    origin: Origin,
}

/// Ports that were in use before a restart, of a gateway with several workers.
#[derive(Debug)]
pub struct SavedTeam {
    /// For each worker the ports that were in use of all workers, and its own file.
    pub workers: Vec<SavedPorts>,
    /// Ports in the files of former workers.
    pub former: Vec<SavedPorts>,
}

/// Origin of saved ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The file, as far as it could be read.
    Newest,
    /// The generation before.
    Before,
}

/// Advice on how to make a file readable.
fn readable(path: &Path, error: &io::Error) -> String {
    let folder = path.parent().unwrap_or(Path::new("/")).display();
    match error.kind() {
        ErrorKind::PermissionDenied => format!(
            "it belongs to another user, perhaps because natgate ran as root: run \
             `chown --reference={folder} {}*` as root",
            path.display()
        ),
        _ => "make it readable, remove it, or name another".to_owned(),
    }
}

/// True if a file that cannot be read for this reason is refused. A folder is always refused. An
/// error that the operator can mend is refused if there is no generation before.
fn is_refused(error: &io::Error, has_generation_before: bool) -> bool {
    match error.kind() {
        ErrorKind::IsADirectory => true,
        ErrorKind::PermissionDenied | ErrorKind::FileTooLarge => !has_generation_before,
        _ => false,
    }
}

/// Settings of saved ports; `None` if ports are not saved.
fn remembered(settings: &Settings) -> Option<&StateSettings> {
    settings.state.as_ref().filter(|_| !settings.engine.timeouts.hold_down.is_zero())
}

/// File of one worker.
fn file_of(file: &Path, number: usize) -> PathBuf {
    match number {
        0 => file.to_owned(),
        number => {
            let mut name = file.as_os_str().to_owned();
            name.push(format!(".{number}"));
            name.into()
        }
    }
}

impl SavedPorts {
    /// Reads the file that the settings name, and makes sure that it can be written. Returns `None`
    /// if they name none, or ports are not held at all. A missing file means a first start.
    ///
    /// # Errors
    /// [`StateError`] if the file cannot be used. A damaged file can be used: see
    /// [`SavedPorts::damage`].
    pub fn open(settings: &Settings) -> Result<Option<Self>, StateError> {
        remembered(settings).map(|own| Self::open_file(own.clone())).transpose()
    }

    /// Reads the files of several workers. Each worker writes a file of its own, but holds the
    /// ports in all existing files. The second worker's file name ends in `.1`. Temporary files
    /// that killed processes have left are removed.
    ///
    /// # Errors
    /// As [`SavedPorts::open`].
    pub fn open_team(settings: &Settings) -> Result<Option<SavedTeam>, StateError> {
        let Some(own) = remembered(settings) else { return Ok(None) };
        let (mut workers, mut former) = (Vec::new(), Vec::new());
        for number in 0..MOST_WORKERS {
            let settings_of = StateSettings { file: file_of(&own.file, number), ..own.clone() };
            file::remove_strays(&settings_of.file);
            if number < settings.workers.count {
                workers.push(Self::open_file(settings_of)?);
            } else if file::is_there(&settings_of.file) {
                match Self::read(settings_of) {
                    // A file of a former worker is not written, so a stranger's file does no harm.
                    Err(StateError::Foreign { .. }) => {}
                    read => former.push(read?),
                }
            }
        }
        let records = merged(workers.iter().chain(&former).flat_map(|saved| &saved.records));
        for saved in &mut workers {
            saved.records.clone_from(&records);
        }
        Ok(Some(SavedTeam { workers, former }))
    }

    fn open_file(settings: StateSettings) -> Result<Self, StateError> {
        let saved = Self::read(settings)?;
        file::try_write(saved.path()).map_err(|error| saved.unwritable(error))?;
        Ok(saved)
    }

    /// Reads a file or, if it is of no use, the generation before.
    fn read(settings: StateSettings) -> Result<Self, StateError> {
        let path = || settings.file.clone();
        let newest = Content::read(&settings.file);
        let before = match newest {
            Content::Records(_) | Content::Version(_) => None,
            _ => Content::read(&file::generation_before(&settings.file)).records(),
        };
        let (records, damage, origin) = match (newest, before) {
            (Content::Records(records), _) => (records, None, Origin::Newest),
            (Content::Version(version), _) | (Content::OtherVersion(version), None) => {
                return Err(StateError::Version { path: path(), version });
            }
            (Content::Foreign, None) => return Err(StateError::Foreign { path: path() }),
            (Content::Unreadable(error), before) if is_refused(&error, before.is_some()) => {
                return Err(StateError::Unreadable { path: path(), error });
            }
            (useless, Some(records)) => (records, useless.damage(), Origin::Before),
            (Content::Missing, None) => (Vec::new(), None, Origin::Newest),
            (useless, None) => (Vec::new(), useless.damage(), Origin::Newest),
        };
        Ok(Self { settings, records, damage, origin })
    }

    fn unwritable(&self, error: io::Error) -> StateError {
        StateError::Unwritable { path: self.settings.file.clone(), error }
    }

    /// Prepares the file of a worker that joins; no ports were in use.
    ///
    /// # Errors
    /// As [`SavedPorts::open`].
    pub fn of_newcomer(settings: &Settings, number: usize) -> Result<Option<Self>, StateError> {
        let Some(own) = remembered(settings) else { return Ok(None) };
        let file = file_of(&own.file, number);
        Self::open_file(StateSettings { file, ..own.clone() }).map(Self::without_ports).map(Some)
    }

    /// Leaves the ports out: a gateway that takes over from another process learns them from it.
    #[must_use]
    pub fn without_ports(self) -> Self {
        Self { records: Vec::new(), damage: None, ..self }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.settings.file
    }

    /// Damage of the file; a damaged file is not used.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Path of the generation before, if the ports come from there because of the
    /// [`damage`](Self::damage).
    pub fn generation_before(&self) -> Option<PathBuf> {
        let path = || file::generation_before(&self.settings.file);
        (self.origin == Origin::Before).then(path)
    }

    /// Number of ports that were in use, over all addresses and protocols.
    pub fn ports(&self) -> u64 {
        let ports = self.records.iter().flat_map(|record| record.ports.iter());
        ports.map(|word| u64::from(word.count_ones())).sum()
    }
}

impl SavedTeam {
    /// Writes the ports of all files to the first worker's file, then removes the files of former
    /// workers, which no worker would replace.
    ///
    /// # Errors
    /// [`StateError::Unwritable`]; the files still exist then.
    pub fn adopt(&self) -> Result<(), StateError> {
        let (Some(first), false) = (self.workers.first(), self.former.is_empty()) else {
            return Ok(());
        };
        file::write(first.path(), &first.records).map_err(|error| first.unwritable(error))?;
        for former in &self.former {
            file::remove(former.path()).map_err(|error| former.unwritable(error))?;
        }
        Ok(())
    }
}

/// Merges records: one for each address and protocol.
fn merged<'r>(records: impl Iterator<Item = &'r Record>) -> Vec<Record> {
    let mut merged: BTreeMap<_, Record> = BTreeMap::new();
    for record in records {
        merged
            .entry((record.address, record.protocol))
            .and_modify(|one| one.ports.iter_mut().zip(&*record.ports).for_each(|(a, b)| *a |= b))
            .or_insert_with(|| record.clone());
    }
    merged.into_values().collect()
}

/// Content of a file.
enum Content {
    Missing,
    Records(Vec<Record>),
    Damaged(&'static str),
    /// The system gives an error instead of bytes.
    Unreadable(io::Error),
    Foreign,
    /// Another version of this program wrote it: its checksum is right.
    Version(u16),
    /// The file names another version, and its checksum is not the one that this version would
    /// write.
    OtherVersion(u16),
}

impl Content {
    fn read(path: &Path) -> Self {
        let bytes = match file::read(path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Self::Missing,
            Err(error) => return Self::Unreadable(error),
        };
        match format::read(&bytes) {
            Ok(records) => Self::Records(records),
            Err(FormatError::Damaged(what)) => Self::Damaged(what),
            Err(FormatError::Foreign) => Self::Foreign,
            Err(FormatError::Version(version)) if format::is_summed(&bytes) => {
                Self::Version(version)
            }
            Err(FormatError::Version(version)) => Self::OtherVersion(version),
        }
    }

    /// Records of a whole file.
    fn records(self) -> Option<Vec<Record>> {
        match self {
            Self::Records(records) => Some(records),
            _ => None,
        }
    }

    /// Reason why the file is of no use.
    fn damage(&self) -> Option<String> {
        match self {
            Self::Records(_) => None,
            Self::Missing => Some("it is not there".to_owned()),
            Self::Damaged(what) => Some((*what).to_owned()),
            Self::Unreadable(error) => Some(format!("it cannot be read: {error}")),
            Self::Foreign | Self::Version(_) | Self::OtherVersion(_) => {
                Some("its first bytes are wrong".to_owned())
            }
        }
    }
}
