//! Who had an external endpoint, by the event logs on disk that the configuration names.

use crate::who::{Unanswered, reverse};
use natgate_engine::Timestamp;
use natgate_gateway::{LogTo, Settings};
use natgate_logs::{Coverage, Holders, SearchError, holders};
use std::net::Ipv4Addr;

/// Why nobody is named.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// There is no log to look in.
    #[error(
        "no log on disk to look in; add [[log]] with kind = \"spool\" and a folder, which then tells \
         of what happens from now on"
    )]
    NoLog,
    /// A log cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The logs name nobody, nor does the configuration.
    #[error("{reason}; {}", .coverage.sentence())]
    Nobody {
        /// Why, in one sentence without its full stop.
        reason: String,
        /// What the logs cover about the time.
        coverage: Coverage,
    },
}

/// The holders at that time. No holder: the logs name nobody, but the configuration does (see [`reverse`]).
///
/// # Errors
/// [`Unknown`].
pub fn had(
    settings: &Settings,
    external: (Ipv4Addr, u16),
    protocol: Option<u8>,
    at: Timestamp,
) -> Result<Holders, Unknown> {
    let folders = settings.logs.iter().filter_map(|log| match &log.to {
        LogTo::Spool(spool) => Some(spool.folder.as_path()),
        _ => None,
    });
    let (mut nobody, mut coverage) = (None, Coverage::default());
    for folder in folders {
        match holders(folder, external, protocol, at, &|| true) {
            Ok(found) => return Ok(found),
            Err(error @ SearchError::Io { .. }) => {
                return Err(Unknown::Unreadable(error.to_string()));
            }
            Err(error) => {
                coverage.add(error.coverage().cloned().unwrap_or_default());
                nobody = Some(error.to_string());
            }
        }
    }
    let reason = nobody.ok_or(Unknown::NoLog)?;
    let (address, port) = external;
    match reverse(settings, address, port, protocol) {
        Err(Unanswered::Nobody(_)) => {
            let reason = format!("{address}:{port}: {reason}");
            Err(Unknown::Nobody { reason, coverage })
        }
        _ => Ok(Holders { holders: Vec::new(), coverage }),
    }
}
