//! Ports in use, remembered over a restart: whoever had one is still being sent to, so it must not
//! go to somebody else at once (RFC 6888 REQ-8). That is true of TCP too, whose connections the
//! translator no longer knows after it.
//!
//! Every so often the loop's thread copies which ports of each external address are taken, a few
//! addresses a turn, so that no packet waits for it; another thread writes them to a file, and does
//! so once more when the gateway stops. At the start all that the file names are held for the
//! hold-down. A gateway that is killed forgets what it gave out since the last writing.
//!
//! The file of the writing before stays beside it. If the newest one is damaged or lost, the ports
//! are taken from there.
//!
//! The file's form is in `format`, how it is replaced in `file`. What a port is held for is the
//! translator's business.

mod file;
mod format;
mod keeper;
#[cfg(test)]
mod tests;

pub(crate) use keeper::PortStateWriter;

use crate::limits::MOST_WORKERS;
use crate::settings::{Settings, StateSettings};
use format::{FormatError, Record};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why ports cannot be remembered.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is there and cannot be read.
    #[error("state.file {} cannot be read: {error}; {}", .path.display(), readable(path, error))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file cannot be written.
    #[error(
        "state.file {} cannot be written: {error}; name a file in a directory that exists and may \
         be written", .path.display()
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The file is somebody else's.
    #[error(
        "state.file {} was not written by natgate; name another, or remove it", .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a version to come.
    #[error(
        "state.file {} is of version {version}, this natgate reads version {}; remove it, or \
         run the natgate that wrote it", .path.display(), format::VERSION
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// No thread can be made to write it.
    #[error("no thread can be started to write state.file")]
    Thread(#[source] io::Error),
}

/// Ports that were in use before a restart, and where to write those in use from now on.
#[derive(Debug)]
pub struct SavedPorts {
    settings: StateSettings,
    records: Vec<Record>,
    damage: Option<&'static str>,
    origin: Origin,
}

/// Where remembered ports come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// From the file, as far as it could be read.
    Newest,
    /// From the generation before.
    Before,
}

/// What makes a file readable.
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

/// The file of a worker.
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
    /// Reads the file that the settings name, and makes sure that it can be written; `None` when
    /// they name none, or ports are not held at all. A file that is not there is a first start.
    ///
    /// # Errors
    /// [`StateError`] when the file cannot be used. A damaged one can: see
    /// [`SavedPorts::damage`].
    pub fn open(settings: &Settings) -> Result<Option<Self>, StateError> {
        let Some(own) = &settings.state else { return Ok(None) };
        if settings.engine.timeouts.hold_down.is_zero() {
            return Ok(None);
        }
        let path = || own.file.clone();
        let newest = Content::read(&own.file)?;
        // Only if the newest one is of no use, the generation before is looked at.
        let before = match newest {
            Content::Records(_) | Content::Version(_) => Content::Missing,
            _ => Content::read(&file::generation_before(&own.file)).unwrap_or(Content::Missing),
        };
        let (records, damage, origin) = match (newest, before) {
            (Content::Missing, Content::Records(records)) => {
                (records, Some("it is not there"), Origin::Before)
            }
            (Content::Foreign | Content::OtherVersion(_), Content::Records(records)) => {
                (records, Some("its first bytes are wrong"), Origin::Before)
            }
            (Content::Damaged(what), Content::Records(records)) => {
                (records, Some(what), Origin::Before)
            }
            (Content::Missing, _) => (Vec::new(), None, Origin::Newest),
            (Content::Records(records), _) => (records, None, Origin::Newest),
            (Content::Damaged(what), _) => (Vec::new(), Some(what), Origin::Newest),
            (Content::Foreign, _) => return Err(StateError::Foreign { path: path() }),
            (Content::Version(version) | Content::OtherVersion(version), _) => {
                return Err(StateError::Version { path: path(), version });
            }
        };
        file::try_write(&own.file)
            .map_err(|error| StateError::Unwritable { path: path(), error })?;
        Ok(Some(Self { settings: own.clone(), records, damage, origin }))
    }

    /// The same for each of several workers, each of which writes a file of its own, but reads all
    /// that there are: a second one's name ends in `.1`.
    ///
    /// # Errors
    /// As [`SavedPorts::open`].
    pub fn open_team(settings: &Settings) -> Result<Option<Vec<Self>>, StateError> {
        let Some(own) = &settings.state else { return Ok(None) };
        let mut all = Vec::new();
        for number in 0..MOST_WORKERS {
            let file = file_of(&own.file, number);
            let is_there = file.exists() || file::generation_before(&file).exists();
            if number >= settings.workers.count && !is_there {
                continue;
            }
            let state = StateSettings { file, ..own.clone() };
            let Some(saved) = Self::open(&Settings { state: Some(state), ..settings.clone() })?
            else {
                return Ok(None);
            };
            all.push(saved);
        }
        let records: Vec<Record> = all.iter().flat_map(|saved| saved.records.clone()).collect();
        all.truncate(settings.workers.count);
        for saved in &mut all {
            saved.records.clone_from(&records);
        }
        Ok(Some(all))
    }

    /// For a worker that joins: it writes a file of its own, and nothing was in use of it.
    ///
    /// # Errors
    /// As [`SavedPorts::open`].
    pub fn of_newcomer(settings: &Settings, number: usize) -> Result<Option<Self>, StateError> {
        let Some(own) = &settings.state else { return Ok(None) };
        let file = file_of(&own.file, number);
        let state = StateSettings { file, ..own.clone() };
        let saved = Self::open(&Settings { state: Some(state), ..settings.clone() })?;
        Ok(saved.map(|saved| Self { records: Vec::new(), damage: None, ..saved }))
    }

    /// For a gateway that takes over from another, which knows itself which ports are in use.
    #[must_use]
    pub fn without_ports(self) -> Self {
        Self { records: Vec::new(), damage: None, ..self }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.settings.file
    }

    /// What is wrong with the file's content; it is not used then.
    pub fn damage(&self) -> Option<&'static str> {
        self.damage
    }

    /// The file of the writing before, if the ports come from there because of the
    /// [`damage`](Self::damage).
    pub fn generation_before(&self) -> Option<PathBuf> {
        let path = || file::generation_before(&self.settings.file);
        (self.origin == Origin::Before).then(path)
    }

    /// Ports that were in use, over all addresses and protocols.
    pub fn ports(&self) -> u64 {
        let ports = self.records.iter().flat_map(|record| record.ports.iter());
        ports.map(|word| u64::from(word.count_ones())).sum()
    }
}

/// What a file holds.
enum Content {
    Missing,
    Records(Vec<Record>),
    Damaged(&'static str),
    Foreign,
    /// Another version of this program wrote it: its checksum is right.
    Version(u16),
    /// It names another version, and its checksum is not the one that this version would write.
    OtherVersion(u16),
}

impl Content {
    fn read(path: &Path) -> Result<Self, StateError> {
        let bytes = file::read(path)
            .map_err(|error| StateError::Unreadable { path: path.to_owned(), error })?;
        let Some(bytes) = bytes else { return Ok(Self::Missing) };
        Ok(match format::read(&bytes) {
            Ok(records) => Self::Records(records),
            Err(FormatError::Damaged(what)) => Self::Damaged(what),
            Err(FormatError::Foreign) => Self::Foreign,
            Err(FormatError::Version(version)) if format::is_summed(&bytes) => {
                Self::Version(version)
            }
            Err(FormatError::Version(version)) => Self::OtherVersion(version),
        })
    }
}
