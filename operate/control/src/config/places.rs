//! Files, folders, sockets and listeners of a configuration, compared with each other.
//!
//! [`schema::PLACES`] lists every key that names such a place, with the kind of use. The reader
//! registers each value, and each default in force, in the report. The comparison uses the resolved
//! path: it follows symbolic links, identifies hard links by inode, and resolves an absent path as
//! far as its parents exist. Nothing else is read from the file system.

use super::problem::{Place, Report};
use super::schema::{PlaceKey, PlaceKind};
use super::values::quoted;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Most symbolic links in one path, as in the kernel.
const MOST_LINKS: usize = 40;

/// The place that a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Path(PathBuf),
    Address(SocketAddr),
}

/// A place that the configuration uses.
pub(super) struct Used {
    /// Path of the key, or another name.
    pub(super) name: String,
    /// Byte offset of the value; `None`: the file does not contain it.
    pub(super) offset: Option<usize>,
    pub(super) kind: PlaceKind,
    /// Suffixes of files that natgate makes beside a path.
    pub(super) beside: &'static [&'static str],
    pub(super) target: Target,
}

impl Used {
    /// A place from the file, or a default if `offset` is absent.
    pub(super) fn of_key(
        key: &PlaceKey,
        name: &str,
        offset: Option<usize>,
        target: Target,
    ) -> Self {
        Self { name: name.to_owned(), offset, kind: key.kind, beside: key.beside, target }
    }

    /// The configuration file itself.
    pub(super) fn configuration(path: &Path) -> Self {
        Self {
            name: "the configuration file".to_owned(),
            offset: None,
            kind: PlaceKind::Read,
            beside: &[],
            target: Target::Path(path.to_owned()),
        }
    }

    /// Formats the place for messages, with line and column if the file has it.
    fn show(&self, report: &Report<'_>) -> String {
        let value = match &self.target {
            Target::Path(path) => quoted(&path.display().to_string()),
            Target::Address(address) => address.to_string(),
        };
        match self.offset {
            Some(offset) => {
                let (line, column) = report.position(offset);
                format!("{} ({value}, line {line}, column {column})", self.name)
            }
            None if self.name.contains(' ') => format!("{} ({value})", self.name),
            None => format!("the default of {} ({value})", self.name),
        }
    }
}

/// A path and the resolved path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolved {
    path: PathBuf,
    identity: Option<Identity>,
    /// True for all paths that are this one with a digit and any further characters.
    is_numbered: bool,
}

/// Identifies an existing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// True for a terminal, /dev/null and the like, which several logs may share.
    is_shared: bool,
}

impl Resolved {
    fn new(path: &Path) -> Self {
        let path = resolve(path, MOST_LINKS);
        let identity = fs::metadata(&path).ok().map(|file| Identity {
            device: file.dev(),
            inode: file.ino(),
            is_shared: file.file_type().is_char_device(),
        });
        Self { path, identity, is_numbered: false }
    }

    /// All paths that begin with this one and a digit.
    fn numbered(path: &Path) -> Self {
        Self { path: resolve(path, 0), identity: None, is_numbered: true }
    }

    /// True if another path is one of the numbered ones.
    fn has_number(&self, other: &Self) -> bool {
        let (own, other) = (self.path.as_os_str().as_bytes(), other.path.as_os_str().as_bytes());
        self.is_numbered
            && other.strip_prefix(own).is_some_and(|rest| {
                rest.first().is_some_and(u8::is_ascii_digit) && !rest.contains(&b'/')
            })
    }

    fn relation(&self, other: &Self) -> Option<Relation> {
        if self.is_numbered || other.is_numbered {
            let is_one = self.has_number(other) || other.has_number(self);
            return is_one.then_some(Relation::Same);
        }
        let is_one = self.identity.is_some() && self.identity == other.identity;
        if is_one && self.identity.is_some_and(|identity| identity.is_shared) {
            None
        } else if is_one || self.path == other.path {
            Some(Relation::Same)
        } else if self.path.starts_with(&other.path) {
            Some(Relation::Inside)
        } else if other.path.starts_with(&self.path) {
            Some(Relation::Around)
        } else {
            None
        }
    }
}

/// The relation of one path to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Same,
    Inside,
    Around,
}

/// Resolves all links of a path. The last parts may not exist.
fn resolve(path: &Path, links: usize) -> PathBuf {
    if let Ok(found) = fs::canonicalize(path) {
        return found;
    }
    let Some(parent) = path.parent() else { return path.to_owned() };
    if let (Ok(target), true) = (fs::read_link(path), links > 0) {
        return resolve(&parent.join(target), links - 1);
    }
    let parent = resolve(parent, links);
    match path.components().next_back() {
        Some(Component::ParentDir) => parent.parent().unwrap_or(&parent).to_owned(),
        Some(Component::Normal(name)) => parent.join(name),
        _ => parent,
    }
}

/// A place with all that a comparison needs.
struct Compared<'a> {
    used: &'a Used,
    /// The path itself, then the files beside it.
    paths: Vec<Resolved>,
}

impl<'a> Compared<'a> {
    fn new(used: &'a Used) -> Self {
        let paths = match &used.target {
            Target::Path(path) => with_files_beside(path, used.beside),
            Target::Address(_) => Vec::new(),
        };
        Self { used, paths }
    }
}

fn with_files_beside(path: &Path, endings: &[&str]) -> Vec<Resolved> {
    let beside = |ending: &&str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending.trim_end_matches('#'));
        match ending.ends_with('#') {
            true => Resolved::numbered(Path::new(&name)),
            false => Resolved::new(Path::new(&name)),
        }
    };
    let itself = Resolved::new(path);
    // natgate makes no file beside a terminal or /dev/null.
    let is_shared = itself.identity.is_some_and(|identity| identity.is_shared);
    let endings = if is_shared { &[] } else { endings };
    std::iter::once(itself).chain(endings.iter().map(beside)).collect()
}

/// Reports every pair of places that exclude each other, at the later one in the file.
pub(super) fn check(report: &Report<'_>) {
    let all = report.used.take();
    let mut compared: Vec<Compared<'_>> = all.iter().map(Compared::new).collect();
    compared.sort_by_key(|one| one.used.offset);
    for (at, later) in compared.iter().enumerate() {
        let Some(offset) = later.used.offset else { continue };
        let place = Place { key: later.used.name.clone(), offset };
        for earlier in &compared[..at] {
            if let Some(message) = exclusion(later, earlier, report) {
                report.wrong(&place, message);
            }
        }
    }
    drop(compared);
    report.used.replace(all);
}

/// The reason why two places exclude each other, if they do.
fn exclusion(later: &Compared<'_>, earlier: &Compared<'_>, report: &Report<'_>) -> Option<String> {
    let (one, other) = (later.used, earlier.used);
    if !one.kind.excludes(other.kind) {
        return None;
    }
    if let (Target::Address(address), Target::Address(taken)) = (&one.target, &other.target) {
        let shown = other.show(report);
        let remedy = "write another port or address";
        return overlap(*address, *taken)
            .then(|| format!("{address} is taken by {shown} too; {remedy}"));
    }
    let relation = relation(&later.paths, &earlier.paths)?;
    let Target::Path(path) = &one.target else { return None };
    let path = quoted(&path.display().to_string());
    Some(sentence(&path, relation, &other.show(report)))
}

/// The relation of two paths, or of the files beside them.
fn relation(ones: &[Resolved], others: &[Resolved]) -> Option<(Relation, bool)> {
    let pairs = ones.iter().enumerate().flat_map(|(at, one)| {
        others.iter().enumerate().map(move |(place, other)| (one, other, at + place > 0))
    });
    let mut found = pairs.filter_map(|(one, other, is_beside)| {
        one.relation(other).map(|relation| (relation, is_beside))
    });
    found.next()
}

fn sentence(path: &str, (relation, is_beside): (Relation, bool), other: &str) -> String {
    match relation {
        Relation::Same if is_beside => format!(
            "{path} meets a file that natgate makes beside {other}; each needs a path of its own"
        ),
        Relation::Same => {
            format!("{path} is the place of {other} too; each needs a path of its own")
        }
        Relation::Inside => {
            format!("{path} is inside the place of {other}; write a path outside of it")
        }
        Relation::Around => {
            format!("{path} contains the place of {other}; write a path that holds nothing else")
        }
    }
}

/// True if two listeners conflict, or a connection to one address ends at the other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    // A listener at [::] accepts IPv4 connections, too.
    let covers = |wide: IpAddr, narrow: IpAddr| {
        wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (a == b || covers(a, b) || covers(b, a))
}

/// The places of a configuration, to compare command-line arguments with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(Vec<Named>);

/// A command-line argument that names a file which natgate writes.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// Name of the argument, such as `--events`.
    pub name: &'a str,
    /// Value of the argument, if present.
    pub path: Option<&'a Path>,
    /// Suffixes of files that natgate makes beside the path.
    pub beside: &'a [&'a str],
}

/// A path of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    /// Description for messages.
    shown: String,
    kind: PlaceKind,
    paths: Vec<Resolved>,
}

impl Places {
    /// Collects the paths that a report has registered.
    pub(super) fn of(report: &Report<'_>) -> Self {
        let used = report.used.borrow();
        let named = |used: &Used| {
            let compared = Compared::new(used);
            let shown = used.show(report);
            Named { shown, kind: used.kind, paths: compared.paths }
        };
        Self(used.iter().filter(|one| matches!(one.target, Target::Path(_))).map(named).collect())
    }

    /// Adds files that command-line arguments name.
    ///
    /// # Errors
    /// One sentence for each file that conflicts with another place.
    pub fn add_arguments(&mut self, arguments: &[Argument<'_>]) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        for Argument { name, path, beside } in arguments {
            let Some(path) = path else { continue };
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            let paths = with_files_beside(&absolute, beside);
            let shown = quoted(&path.display().to_string());
            let conflicts = self.0.iter().filter(|place| place.kind.excludes(PlaceKind::Written));
            problems.extend(conflicts.filter_map(|place| {
                let relation = relation(&paths, &place.paths)?;
                // A folder in place of a file is reported, with the remedy, when it is opened.
                if relation.0 == Relation::Around {
                    return None;
                }
                Some(format!("{name}: {}", sentence(&shown, relation, &place.shown)))
            }));
            let shown = format!("{name} ({shown})");
            self.0.push(Named { shown, kind: PlaceKind::Written, paths });
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Checks that a path is neither one of the places, nor contains one, nor is inside one.
    ///
    /// # Errors
    /// One sentence that names both.
    pub fn accepts(&self, path: &Path) -> Result<(), String> {
        let paths = with_files_beside(path, &[]);
        let shown = quoted(&path.display().to_string());
        let found = self.0.iter().find_map(|place| {
            let relation = relation(&paths, &place.paths)?;
            Some(sentence(&shown, relation, &place.shown))
        });
        found.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn wildcards_cover_their_family_and_mapped_addresses_are_ipv4() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.2:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("[::]:1", "[::1]:1", true),
            ("[::]:1", "127.0.0.1:1", true),
            ("[::]:1", "0.0.0.0:1", true),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
            ("0.0.0.0:0", "127.0.0.1:0", false),
        ] {
            assert_eq!(overlap(at(one), at(other)), expected, "{one} {other}");
            assert_eq!(overlap(at(other), at(one)), expected, "{other} {one}");
        }
    }

    #[test]
    fn a_path_that_does_not_exist_is_resolved_as_far_as_possible() {
        let none = Path::new("/there/is/../no/./such//file");
        assert_eq!(resolve(none, MOST_LINKS), Path::new("/there/no/such/file"));
        assert_eq!(resolve(Path::new("/.."), MOST_LINKS), Path::new("/"));
    }

    #[test]
    fn a_link_that_leads_to_itself_ends() {
        let folder = std::env::temp_dir().join(format!("natgate-loop-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let link = folder.join("link");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("link", &link).expect("a link");
        let resolved = resolve(&link, MOST_LINKS);
        fs::remove_dir_all(&folder).expect("it is there");
        assert!(resolved.ends_with("link"), "{}", resolved.display());
    }
}
