//! Locks of devices and external addresses: two gateways of one network namespace never share them.
//!
//! Two gateways on one device send each packet twice, and two gateways that announce the same
//! addresses, or announce with the same protocol in the same table, remove each other's routes.
//! Therefore each device, each range of external addresses and each such protocol has a lock: an
//! abstract Unix socket. The kernel keeps such names for each network namespace, gives a name to
//! one socket only, and frees it at any end of the process. `ss -xlp` shows the locks as
//! `@natgate/...`.
//!
//! A gateway that takes over from another waits for the locks of its predecessor. Meanwhile it has
//! the *reservation* of each, a second name: a third gateway that finds a lock free looks at the
//! reservation and yields.
//!
//! Always true: a process of another user cannot keep the gateway from its start, although every
//! process may take every name; the operator is told of such a process.

use super::{NO_THREAD, say};
use anyhow::{Context, anyhow};
use natgate_control::reload::Claiming;
use natgate_control::socket;
use natgate_gateway::{Settings, panics};
use nix::unistd::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Most ranges of external addresses that are locked: each lock is an open file.
const MOST_RANGES: usize = 256;

/// Time to try locks that seem to become free, and the pause between. Meanwhile a killed process
/// closes its files.
const CLOSING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Time that locks of the process before may stay taken until the operator is told.
const PATIENCE: Duration = Duration::from_secs(60);

const DEVICE: &str = "natgate/device/";
const ADDRESSES: &str = "natgate/addresses/";
const ROUTES: &str = "natgate/routes/";

/// Name prefix of a reservation.
const RESERVATION: &str = "natgate/next/";

/// The subject of a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Device(String),
    Addresses {
        first: Ipv4Addr,
        last: Ipv4Addr,
    },
    /// Announced routes of one protocol in one table.
    Routes {
        table: u32,
        protocol: u8,
    },
}

/// The process that has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// This process.
    Own,
    /// Another gateway, and its process if known.
    Gateway(Option<i32>),
    /// A process of a user that runs no gateway here.
    Stranger,
    /// No process can have it: the name is too long, or the system has no such sockets.
    Impossible,
}

/// The locks of this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<Subject, UnixListener>,
    /// Locks that the process before still has, with this process's reservations. `None`: a process
    /// of another user has the reservation's name.
    awaited: BTreeMap<Subject, Option<UnixListener>>,
    /// The process that this one takes over from.
    predecessor: Option<i32>,
}

/// Locks for other settings. [`Change::apply`] puts them in force; dropping this frees the new
/// locks.
struct Change {
    locks: Locks,
    wanted: BTreeSet<Subject>,
    held: BTreeMap<Subject, UnixListener>,
    awaited: BTreeMap<Subject, Option<UnixListener>>,
}

impl Locks {
    /// Takes the locks that the settings need. If `predecessor`, the process that this one takes
    /// over from, has a lock, the lock becomes this process's when `predecessor` has ended.
    ///
    /// # Errors
    /// If another gateway has one of the locks.
    pub(super) fn take(settings: &Settings, predecessor: Option<i32>) -> anyhow::Result<Self> {
        let locks = Self::default();
        locks.state().predecessor = predecessor;
        locks.prepare(subjects(settings)).map_err(|refusal| anyhow!("{refusal}"))?.apply();
        if locks.state().awaited.is_empty() {
            locks.state().predecessor = None;
        } else {
            let waiting = locks.clone();
            let wait = move || panics::contain(|| waiting.wait());
            Builder::new().name("locks".into()).spawn(wait).context(NO_THREAD)?;
        }
        Ok(locks)
    }

    /// Returns a function that takes the locks of other settings at a reload.
    pub(super) fn claiming(&self) -> Claiming {
        let locks = self.clone();
        Box::new(move |settings, _| {
            let change = locks.prepare(subjects(settings))?;
            Ok(Box::new(move || change.apply()))
        })
    }

    /// Takes the locks that are wanted and not held yet.
    fn prepare(&self, wanted: BTreeSet<Subject>) -> Result<Change, String> {
        let (mut held, mut awaited) = (BTreeMap::new(), BTreeMap::new());
        let deadline = Instant::now() + CLOSING;
        let state = self.state();
        let is_there =
            |one: &Subject| state.held.contains_key(one) || state.awaited.contains_key(one);
        for subject in wanted.iter().filter(|subject| !is_there(subject)) {
            match subject.lock(deadline) {
                Ok(lock) => {
                    if let Some(Holder::Gateway(process)) = Name::Reservation(subject).holder() {
                        return Err(refusal(subject, process));
                    }
                    held.insert(subject.clone(), lock);
                }
                Err(Holder::Gateway(process)) => match process {
                    Some(_) if process == state.predecessor => {
                        let reservation = Name::Reservation(subject).bind().ok();
                        if reservation.is_none()
                            && let Some(Holder::Gateway(process)) =
                                Name::Reservation(subject).holder()
                        {
                            return Err(refusal(subject, process));
                        }
                        awaited.insert(subject.clone(), reservation);
                    }
                    _ => return Err(refusal(subject, process)),
                },
                Err(Holder::Stranger) => say(format!(
                    "warning: {subject} cannot be locked against a second natgate: a process of \
                     another user has the name; `ss -xlp | grep {}` shows the process",
                    subject.name()
                )),
                Err(Holder::Own | Holder::Impossible) => {}
            }
        }
        // Here two gateways that start at the same time see each other.
        for other in others(held.keys()) {
            match other.holder() {
                Some(Holder::Gateway(process))
                    if process.is_none() || process != state.predecessor =>
                {
                    return Err(refusal(&other, process));
                }
                _ => {}
            }
        }
        drop(state);
        Ok(Change { locks: self.clone(), wanted, held, awaited })
    }

    /// Waits until the process before has ended, and takes its locks.
    fn wait(&self) {
        let (began, mut is_told) = (Instant::now(), false);
        while !self.state().take_awaited() {
            if began.elapsed() > PATIENCE && !is_told {
                is_told = true;
                say("warning: the locks of the process before are still taken, so a second natgate \
                     may start on the same devices; `ss -xlp | grep natgate/` shows the processes"
                    .to_owned());
            }
            thread::sleep(PAUSE);
        }
    }

    /// The lock's state is valid after a panic too, because no change is left half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the locks that have become free. Returns true if no lock is awaited any more.
    fn take_awaited(&mut self) -> bool {
        for (subject, reservation) in std::mem::take(&mut self.awaited) {
            match subject.bind() {
                Ok(lock) => {
                    // The reservation ends after the lock has begun.
                    self.held.insert(subject, lock);
                    drop(reservation);
                }
                Err(_) => {
                    self.awaited.insert(subject, reservation);
                }
            }
        }
        if self.awaited.is_empty() {
            self.predecessor = None;
        }
        self.awaited.is_empty()
    }
}

impl Change {
    /// Keeps the new locks, and frees locks that are no longer wanted.
    fn apply(self) {
        let mut state = self.locks.state();
        state.held.retain(|subject, _| self.wanted.contains(subject));
        state.awaited.retain(|subject, _| self.wanted.contains(subject));
        state.held.extend(self.held);
        state.awaited.extend(self.awaited);
    }
}

impl Subject {
    /// The name of the lock in the kernel.
    fn name(&self) -> String {
        match self {
            Self::Device(device) => format!("{DEVICE}{device}"),
            Self::Addresses { first, last } => format!("{ADDRESSES}{first}-{last}"),
            Self::Routes { table, protocol } => format!("{ROUTES}{table}-{protocol}"),
        }
    }

    /// Returns the subject of a lock with this name, or `None` if the name is no lock's.
    fn of_name(name: &str) -> Option<Self> {
        if let Some(device) = name.strip_prefix(DEVICE) {
            return Some(Self::Device(device.to_owned()));
        }
        if let Some((table, protocol)) = name.strip_prefix(ROUTES).and_then(|it| it.split_once('-'))
        {
            return Some(Self::Routes {
                table: table.parse().ok()?,
                protocol: protocol.parse().ok()?,
            });
        }
        let (first, last) = name.strip_prefix(ADDRESSES)?.split_once('-')?;
        Some(Self::Addresses { first: first.parse().ok()?, last: last.parse().ok()? })
    }

    /// True if two ranges of addresses have addresses in common.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Addresses { first, last },
                Self::Addresses { first: other_first, last: other_last },
            ) => first <= other_last && other_first <= last,
            _ => false,
        }
    }

    fn bind(&self) -> io::Result<UnixListener> {
        Name::Lock(self).bind()
    }

    /// Takes the lock, or returns the process that has it. A lock that seems to become free is
    /// tried until the deadline.
    fn lock(&self, deadline: Instant) -> Result<UnixListener, Holder> {
        loop {
            match self.bind() {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => return bound.map_err(|_| Holder::Impossible),
            }
            if let Some(holder) = self.holder() {
                return Err(holder);
            }
            // The name became free meanwhile, or its owner does not listen yet.
            if Instant::now() >= deadline {
                // A gateway listens at once, so this is no gateway.
                return Err(Holder::Stranger);
            }
            thread::sleep(PAUSE);
        }
    }

    /// The process that has the lock, if a process listens.
    fn holder(&self) -> Option<Holder> {
        Name::Lock(self).holder()
    }
}

/// A name in the kernel.
#[derive(Clone, Copy, Debug)]
enum Name<'s> {
    /// A lock.
    Lock(&'s Subject),
    /// The reservation of a lock.
    Reservation(&'s Subject),
}

impl Name<'_> {
    fn text(self) -> String {
        match self {
            Self::Lock(subject) => subject.name(),
            Self::Reservation(subject) => subject.name().replacen("natgate/", RESERVATION, 1),
        }
    }

    fn bind(self) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(self.text())?)
    }

    /// The process that has the name, if a process listens.
    fn holder(self) -> Option<Holder> {
        let path = [b"\0", self.text().as_bytes()].concat();
        let owner = match socket::owner(Path::new(OsStr::from_bytes(&path))) {
            Ok(owner) => owner,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return None,
            // A process of unknown user is not trusted to be a gateway: a gateway's queue is full
            // only if a local user filled it.
            Err(_) => return Some(Holder::Stranger),
        };
        let is_trusted = owner.user == 0 || owner.user == Uid::effective().as_raw();
        Some(match owner.process {
            Some(process) if u32::try_from(process) == Ok(process::id()) => Holder::Own,
            Some(process) if is_ending(process) => return None,
            process if is_trusted => Holder::Gateway(process),
            _ => Holder::Stranger,
        })
    }
}

/// True if a process has been killed and is about to close its files.
fn is_ending(process: i32) -> bool {
    // The state is the field after the name, which ends with the last parenthesis.
    let line = fs::read_to_string(format!("/proc/{process}/stat"));
    line.is_ok_and(|line| {
        line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "device {device}"),
            Self::Addresses { first, last } if first == last => {
                write!(f, "external address {first}")
            }
            Self::Addresses { first, last } => write!(f, "external addresses {first} to {last}"),
            Self::Routes { table, protocol } => {
                write!(f, "the announced routes of table {table} with protocol {protocol}")
            }
        }
    }
}

/// The subjects of the locks that the settings need.
fn subjects(settings: &Settings) -> BTreeSet<Subject> {
    let devices = settings.devices().into_iter().map(|name| Subject::Device(name.to_owned()));
    let ranges = settings.engine.external_ranges();
    if ranges.len() > MOST_RANGES {
        say(format!(
            "note: the external addresses are {} ranges; the first {MOST_RANGES} are locked \
             against a second natgate",
            ranges.len()
        ));
    }
    let ranges = ranges.into_iter().take(MOST_RANGES);
    let ranges = ranges.map(|range| Subject::Addresses { first: range.first, last: range.last });
    let routes = settings.kernel.announce.as_ref();
    let routes = routes.map(|own| Subject::Routes { table: own.table, protocol: own.protocol });
    devices.chain(ranges).chain(routes).collect()
}

/// Locks in this network namespace that are not in `own` and share addresses with it.
fn others<'a>(own: impl Iterator<Item = &'a Subject> + Clone) -> BTreeSet<Subject> {
    // Without the list, only equal ranges are found.
    let text = fs::read("/proc/net/unix").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let names = text.lines().filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'));
    let is_other = |other: &Subject| {
        own.clone().any(|one| one.overlaps(other)) && own.clone().all(|one| one != other)
    };
    names.filter_map(Subject::of_name).filter(is_other).collect()
}

/// Explains why this process may not have the lock.
fn refusal(subject: &Subject, process: Option<i32>) -> String {
    let process = process.map_or_else(
        || format!("`ss -xlp | grep {}` shows its process", subject.name()),
        |process| format!("process {process}"),
    );
    format!(
        "another natgate ({process}) has {subject} in this network already; stop that one, or give \
         each devices, external addresses and a protocol of announced routes of its own"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(first: [u8; 4], last: [u8; 4]) -> Subject {
        Subject::Addresses { first: first.into(), last: last.into() }
    }

    /// A device that no other test and no gateway has.
    fn device(name: &str) -> Subject {
        Subject::Device(format!("{name}-{}", process::id()))
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        let routes = Subject::Routes { table: 254, protocol: 78 };
        for subject in [device("eth0.5"), addresses([203, 0, 113, 1], [203, 0, 113, 4]), routes] {
            assert_eq!(Subject::of_name(&subject.name()), Some(subject));
        }
        for name in ["", "natgate", "natgate/addresses/1.2.3.4", "natgate/addresses/a-b"] {
            assert_eq!(Subject::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn ranges_overlap_where_they_have_an_address_in_common() {
        let one = addresses([203, 0, 113, 4], [203, 0, 113, 7]);
        for (first, last, expected) in
            [(0, 3, false), (0, 4, true), (5, 6, true), (7, 9, true), (8, 9, false), (0, 255, true)]
        {
            let other = addresses([203, 0, 113, first], [203, 0, 113, last]);
            assert_eq!(one.overlaps(&other), expected, "{other}");
            assert_eq!(other.overlaps(&one), expected, "{other}");
        }
        assert!(!one.overlaps(&device("eth0")));
    }

    #[test]
    fn a_change_takes_effect_whole_or_not_at_all() {
        let [old, new] = ["old", "new"].map(device);
        let locks = Locks::default();
        let prepare = |wanted: &Subject| locks.prepare(BTreeSet::from([wanted.clone()])).unwrap();
        let is_free = |subject: &Subject| subject.bind().is_ok();
        prepare(&old).apply();
        assert!(!is_free(&old));
        let change = prepare(&new);
        assert!(!is_free(&old) && !is_free(&new));
        drop(change);
        assert!(!is_free(&old) && is_free(&new), "nothing has changed");
        prepare(&new).apply();
        assert!(is_free(&old) && !is_free(&new));
        assert_eq!(new.holder(), Some(Holder::Own));
        drop(locks);
        assert!(is_free(&new));
        assert_eq!(new.holder(), None);
    }

    #[test]
    fn ranges_of_others_are_found_by_their_names() {
        // Documentation addresses that no other test locks.
        let theirs = addresses([192, 0, 2, 200], [192, 0, 2, 203]);
        let _lock = theirs.bind().unwrap();
        let mine = addresses([192, 0, 2, 203], [192, 0, 2, 210]);
        assert_eq!(others([&mine].into_iter()), BTreeSet::from([theirs.clone()]));
        assert_eq!(others([&theirs].into_iter()), BTreeSet::new());
    }

    #[test]
    fn locks_of_the_process_before_are_taken_when_they_come_free() {
        let (subject, locks) = (device("before"), Locks::default());
        let before = subject.bind().unwrap();
        let reservation = Name::Reservation(&subject).bind().unwrap();
        locks.state().awaited.insert(subject.clone(), Some(reservation));
        assert!(!locks.state().take_awaited());
        assert!(Name::Reservation(&subject).bind().is_err(), "reserved");
        drop(before);
        assert!(locks.state().take_awaited());
        assert_eq!(subject.holder(), Some(Holder::Own));
        assert!(Name::Reservation(&subject).bind().is_ok(), "reserved no more");
    }
}
