//! Number of the starts of a node: a counter on disk, and a random number that tells apart starts
//! with the same counter.

use crate::folder_owner::create_anew;
use natgate_pair::Boot;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// Most starts that a file may tell.
const MOST: u64 = u32::MAX as u64 - 1;

/// Counts a start in a file, and returns its boot number. The counter becomes greater than `least`.
/// `random` tells apart starts with the same counter, after a disk was lost.
///
/// # Errors
/// The file can be neither read nor replaced. A file without a number counts as damaged.
pub(super) fn count(path: &Path, (least, random): (u64, u32)) -> io::Result<Boot> {
    let before = match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().ok().filter(|starts| *starts < MOST).ok_or_else(|| {
            let message = "it has no number of starts; remove it only if the partner runs";
            io::Error::new(ErrorKind::InvalidData, message)
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let starts = before.max(least.min(MOST - 1)) + 1;
    let beside = path.with_added_extension("new");
    let mut file = create_anew(&beside, 0o600)?;
    writeln!(file, "{starts}")?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(starts << 32 | u64::from(random))
}

/// Number of the start in a boot number.
pub(super) fn starts(boot: Boot) -> u64 {
    boot >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_has_a_greater_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("starts");
        let first = count(&path, (0, 9)).expect("a number");
        assert_eq!(starts(first), 1);
        let second = count(&path, (0, 9)).expect("a number");
        assert!(second > first);
        assert_eq!(starts(count(&path, (40, 9)).expect("a number")), 41, "the partner knows of 40");
        assert_eq!(starts(count(&path, (7, 9)).expect("a number")), 42);
        fs::write(&path, "forty\n").expect("written");
        assert_eq!(count(&path, (0, 9)).map_err(|error| error.kind()), Err(ErrorKind::InvalidData));
    }
}
