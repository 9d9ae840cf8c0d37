//! The note of a run, in bytes: how far the run has come.

use super::format::{SEGMENT, u32_at, u64_at};
use natgate_engine::Timestamp;

/// Bytes of a run's note.
pub(crate) const NOTE: usize = 36;

/// Progress of a run: the file beside its segments, overwritten once a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) run: u64,
    /// Number of frames written.
    pub(crate) frames: u64,
    /// Time until which all entries are in them.
    pub(crate) until: Timestamp,
}

impl Note {
    pub(crate) fn bytes(&self) -> [u8; NOTE] {
        let mut bytes = [0; NOTE];
        bytes[..8].copy_from_slice(&SEGMENT);
        bytes[8..16].copy_from_slice(&self.run.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.frames.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.until.0.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a note; `None` if it is damaged, or nothing was noted.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.len() == NOTE
            && bytes.starts_with(&SEGMENT)
            && u32_at(bytes, 32)? == crc32fast::hash(&bytes[..32]);
        let note = Self {
            run: u64_at(bytes, 8)?,
            frames: u64_at(bytes, 16)?,
            until: Timestamp(u64_at(bytes, 24)?),
        };
        whole.then_some(note)
    }
}
