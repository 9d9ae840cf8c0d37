//! New files in a folder of another user, and files there that a process of root may not trust.
//!
//! An operator may run natgate by hand as root, and a service manager as another user later. That
//! user could not read the files of the first run if they belonged to root. So new files of a
//! gateway that runs as root get the owner of the folder that they are in.
//!
//! That owner could plant a link to a file of root's in the folder. So a gateway that runs as root
//! follows no link there, and changes the owner of no file that it has not created itself.

use rustix::fs::{Access, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

/// Opens or creates a file. A new file of a process that runs as root belongs to the owner of its
/// folder. `options` say how to open the file, but not to create it or to truncate it: a file of
/// another process must not change.
///
/// # Errors
/// The system's error. If this process runs as root and the folder belongs to another user: an
/// error if the path is a link, or the file has a second name or is no file.
pub fn open_or_create(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let mut options = options.clone();
    options.truncate(false);
    let Some(folder) = foreign_folder(path)? else { return options.create(true).open(path) };
    // A FIFO must not hold the process up.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.custom_flags(flags.bits().cast_signed());
    match options.clone().create_new(true).open(path) {
        Ok(file) => {
            give(&file, &folder)?;
            return Ok(file);
        }
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    // Another file may take the name at any time, so the checks are of the opened file.
    let file = options.open(path)?;
    let about = file.metadata()?;
    if !about.is_file() || about.nlink() != 1 {
        return Err(foreign_link());
    }
    Ok(file)
}

/// Checks whether [`open_or_create`] could open this file for writing. Opens and makes nothing.
///
/// # Errors
/// The error that the opening would give, as far as it is known beforehand.
pub fn check_open(path: &Path) -> io::Result<()> {
    let is_foreign = foreign_folder(path)?.is_some();
    let file = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_link = fs::symlink_metadata(path).is_ok();
            return match is_link {
                true if is_foreign => Err(Errno::LOOP.into()),
                // The target is looked at by the opening.
                true => Ok(()),
                false => check_folder(path.parent().unwrap_or(Path::new("/"))),
            };
        }
        file => file?,
    };
    if file.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if is_foreign {
        let about = fs::symlink_metadata(path)?;
        if about.is_symlink() {
            return Err(Errno::LOOP.into());
        }
        if !about.is_file() || about.nlink() != 1 {
            return Err(foreign_link());
        }
    }
    Ok(rustix::fs::access(path, Access::WRITE_OK)?)
}

/// Checks whether files can be made in a folder, after the making of the folder if it is missing.
/// Makes nothing.
///
/// # Errors
/// The error that the making would give, as far as it is known beforehand.
pub fn check_make_folder(path: &Path) -> io::Result<()> {
    let mut above = path;
    loop {
        match fs::metadata(above) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => return check_folder(above),
        }
        // A link that leads nowhere is in the place of a folder.
        if fs::symlink_metadata(above).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let parent = above.parent().filter(|parent| !parent.as_os_str().is_empty());
        above = parent.unwrap_or(Path::new("."));
    }
}

/// Checks whether a folder is there and files can be made in it.
fn check_folder(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if !fs::metadata(path)?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

fn foreign_link() -> io::Error {
    io::Error::new(
        ErrorKind::PermissionDenied,
        "it is a link in a folder of another user, and natgate runs as root",
    )
}

/// Creates a file with this mode, and removes a former file of that name. A new file of a process
/// that runs as root belongs to the owner of its folder.
///
/// # Errors
/// The system's error.
pub fn create_anew(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::options().write(true).create_new(true).mode(mode).open(path)?;
    give_to_folder_owner(&file, path)?;
    Ok(file)
}

/// Makes a folder with this mode, and the folders that it is in, unless it is there. Each folder
/// made by a process that runs as root belongs to the owner of the folder that it is in.
///
/// # Errors
/// The system's error.
pub fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut above = path;
    while !above.is_dir() {
        let Some(name) = above.file_name() else { return Ok(()) };
        missing.push(name);
        let parent = above.parent().filter(|parent| !parent.as_os_str().is_empty());
        above = parent.unwrap_or(Path::new("."));
    }
    let Some(last) = missing.first().copied() else { return Ok(()) };
    // All further steps are relative to handles: the folder's owner may put a link anywhere.
    let mut folder = open_folder(above)?;
    for name in missing.iter().skip(1).rev() {
        make_in(folder.as_fd(), name, mode)?;
        folder = openat(&folder, *name, FOLDER | OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    make_in(folder.as_fd(), last, mode)
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, FOLDER | OFlags::RDONLY, Mode::empty())?)
}

/// Makes a folder in another, and gives a new one of root to the owner of the other.
fn make_in(parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    let about = rustix::fs::fstat(parent)?;
    if !geteuid().is_root() || about.st_uid == 0 {
        return Ok(());
    }
    let folder = openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    if rustix::fs::fstat(&folder)?.st_uid == 0 {
        fchown(&folder, Some(about.st_uid), Some(about.st_gid))?;
    }
    Ok(())
}

/// Gives a new file the owner and the group of its folder, if this process runs as root and the
/// folder belongs to another user.
///
/// # Errors
/// The system's error if the change is refused.
pub fn give_to_folder_owner(file: &File, path: &Path) -> io::Result<()> {
    foreign_folder(path)?.map_or(Ok(()), |folder| give(file, &folder))
}

fn give(file: &File, folder: &Metadata) -> io::Result<()> {
    fchown(file, Some(folder.uid()), Some(folder.gid()))
}

/// Metadata of a file's folder, if it belongs to another user than root and this process runs as
/// root.
fn foreign_folder(path: &Path) -> io::Result<Option<Metadata>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let about = fs::metadata(folder.unwrap_or(Path::new(".")))?;
    Ok((about.uid() != 0).then_some(about))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::path::PathBuf;

    /// A user number that no system has.
    const NOBODY: u32 = 12_345;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            assert!(geteuid().is_root(), "this test needs root");
            let path =
                std::env::temp_dir().join(format!("natgate-owner-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("theirs")).expect("a folder");
            chown(path.join("theirs"), Some(NOBODY), Some(NOBODY)).expect("root may");
            fs::write(path.join("victim"), "root's").expect("a file");
            Self(path)
        }

        fn theirs(&self, name: &str) -> PathBuf {
            self.0.join("theirs").join(name)
        }

        /// True if the victim is unchanged.
        fn is_whole(&self) -> bool {
            let victim = self.0.join("victim");
            let about = fs::metadata(&victim).expect("it is there");
            about.uid() == 0 && fs::read_to_string(victim).expect("readable") == "root's"
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn options() -> OpenOptions {
        let mut options = File::options();
        options.read(true).write(true);
        options
    }

    /// Names in a folder.
    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn a_check_refuses_what_the_opening_refuses_and_makes_nothing() {
        let folder = Folder::new("checks");
        let own = |name: &str| folder.0.join(name);
        symlink(own("victim"), folder.theirs("link")).expect("a link");
        fs::hard_link(own("victim"), folder.theirs("hard")).expect("a second name");
        symlink(own("nowhere"), folder.theirs("dangling")).expect("a link");
        fs::write(folder.theirs("plain"), "").expect("a file");
        let paths = [
            own("new"),
            own("victim"),
            own("theirs"),
            own("missing/new"),
            own("victim/new"),
            folder.theirs("new"),
            folder.theirs("plain"),
            folder.theirs("link"),
            folder.theirs("hard"),
            folder.theirs("dangling"),
        ];
        let before = (names(&folder.0), names(&own("theirs")));
        let checked = paths.each_ref().map(|path| check_open(path).map_err(|error| error.kind()));
        assert_eq!((names(&folder.0), names(&own("theirs"))), before, "nothing is made");
        for (path, checked) in paths.iter().zip(checked) {
            let opened = open_or_create(&options(), path);
            assert_eq!(checked, opened.map(drop).map_err(|error| error.kind()), "{path:?}");
        }
    }

    #[test]
    fn a_check_of_a_folder_refuses_what_the_making_refuses_and_makes_nothing() {
        let folder = Folder::new("check-folders");
        let own = |name: &str| folder.0.join(name);
        symlink(own("nowhere"), own("dangling")).expect("a link");
        let before = names(&folder.0);
        for name in ["theirs", "theirs/new", "new/in/new"] {
            assert!(check_make_folder(&own(name)).is_ok(), "{name}");
        }
        for name in ["victim", "victim/new", "dangling", "dangling/new"] {
            assert!(check_make_folder(&own(name)).is_err(), "{name}");
            let made = fs::DirBuilder::new().recursive(true).create(own(name));
            assert!(made.is_err(), "{name}");
        }
        assert_eq!(names(&folder.0), before, "nothing is made");
    }

    #[test]
    fn root_follows_no_link_in_a_folder_of_another_user() {
        let folder = Folder::new("links");
        let (link, hard, dangling) =
            (folder.theirs("link"), folder.theirs("hard"), folder.theirs("dangling"));
        symlink(folder.0.join("victim"), &link).expect("a link");
        fs::hard_link(folder.0.join("victim"), &hard).expect("a second name");
        symlink(folder.0.join("made"), &dangling).expect("a link");
        for path in [&link, &hard, &dangling] {
            assert!(open_or_create(&options(), path).is_err(), "{}", path.display());
            assert!(folder.is_whole(), "{}", path.display());
        }
        assert!(!folder.0.join("made").exists());
        create_anew(&link, 0o600).expect("the link gives way");
        assert!(folder.is_whole() && fs::metadata(&link).expect("new").uid() == NOBODY);
    }

    #[test]
    fn new_files_belong_to_the_owner_of_the_folder_and_old_ones_to_their_owner() {
        let folder = Folder::new("files");
        let new = folder.theirs("new");
        drop(open_or_create(&options(), &new).expect("it is made"));
        assert_eq!(fs::metadata(&new).expect("it is there").uid(), NOBODY);
        let old = folder.theirs("old");
        fs::write(&old, "").expect("a file of root's");
        drop(open_or_create(&options(), &old).expect("it is there"));
        assert_eq!(fs::metadata(&old).expect("it is there").uid(), 0);
    }

    #[test]
    fn new_folders_belong_to_the_owner_of_theirs_and_no_link_is_given_away() {
        let folder = Folder::new("folders");
        let (new, link) = (folder.theirs("new"), folder.theirs("link"));
        make_folder(&new, 0o750).expect("it is made");
        let about = fs::metadata(&new).expect("it is there");
        assert_eq!((about.uid(), about.mode() & 0o777), (NOBODY, 0o750));
        let target = folder.0.join("target");
        symlink(&target, &link).expect("a link");
        make_folder(&link, 0o750).expect("a name that is taken is left alone");
        assert!(!target.exists());
        fs::create_dir(&target).expect("a folder of root's");
        make_folder(&link, 0o750).expect("it is there");
        assert_eq!(fs::metadata(&target).expect("it is there").uid(), 0);
        let deep = folder.theirs("a/b/c");
        make_folder(&deep, 0o750).expect("all three are made");
        for made in deep.ancestors().take(3) {
            let about = fs::metadata(made).expect("it is there");
            assert_eq!((about.uid(), about.mode() & 0o777), (NOBODY, 0o750));
        }
        make_folder(&link.join("x/y"), 0o750)
            .expect("a link to a folder that is there is followed");
        assert_eq!(fs::metadata(target.join("x/y")).expect("it is there").uid(), 0);
        let own = folder.0.join("a/b");
        make_folder(&own, 0o700).expect("both are made");
        assert_eq!(fs::metadata(&own).expect("it is there").uid(), 0);
    }

    #[test]
    fn links_of_root_are_followed() {
        let folder = Folder::new("own");
        let link = folder.0.join("link");
        symlink(folder.theirs("target"), &link).expect("a link");
        assert!(open_or_create(&options(), &link).is_ok(), "the target is made");
        fs::write(folder.theirs("target"), "x").expect("a file");
        assert!(open_or_create(&options(), &link).is_ok());
    }
}
