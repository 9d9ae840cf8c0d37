//! The owner of new files.
//!
//! An operator may run natgate by hand as root, and a service manager as another user later. That
//! user could not read the files of the first run if they belonged to root. So new files of a
//! gateway that runs as root get the owner of the folder that they are in.

use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

/// Gives a new file the owner and the group of its folder, if this process runs as root and the
/// folder belongs to another user.
///
/// # Errors
/// The system's error if it refuses that.
pub fn give_to_folder_owner(file: &File, path: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let owner = fs::metadata(folder.unwrap_or(Path::new(".")))?;
    if owner.uid() == 0 { Ok(()) } else { fchown(file, Some(owner.uid()), Some(owner.gid())) }
}
