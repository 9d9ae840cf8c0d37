//! The bindings of lw4o6 in force: one table, which a worker reads and other threads change.
//!
//! Single changes go into the table at once. A new table, made of the file or of a change that the
//! old one cannot have, is left here; the worker takes it before its next packets, and leaves the
//! old one to be freed by the thread that comes next. A worker never waits: if another thread is
//! here, it asks again later.

use natgate_ipv6::Translator;
use natgate_ipv6::softwire::{Binding, BindingTable, Conflict, Refused};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tables that wait to be freed at most, before the list is allocated anew.
const FORMER: usize = 16;

/// A change of one binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingChange {
    /// The binding is added, or takes the place of one with the same address and port set.
    Set(Binding),
    /// The binding of an address and a port set is removed.
    Remove(Ipv4Addr, u16),
}

/// Numbers of changes that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindingChanges {
    /// New bindings.
    pub added: u64,
    /// Bindings with another B4.
    pub replaced: u64,
    /// Bindings that were removed.
    pub removed: u64,
    /// Bindings that were to be removed and did not exist.
    pub absent: u64,
}

/// A version of a file: device and inode, length, and the times of the last change of its content
/// and of its inode. The default is that of a file that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion(Option<(u64, u64, u64, [i64; 4])>);

impl FileVersion {
    /// The present version of a file.
    pub fn of(path: &Path) -> Self {
        let times = |file: &fs::Metadata| {
            [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()]
        };
        let file = fs::metadata(path).ok();
        Self(file.map(|file| (file.dev(), file.ino(), file.len(), times(&file))))
    }

    /// True if the file exists.
    pub fn exists(&self) -> bool {
        self.0.is_some()
    }
}

/// The bindings in force, and their file. Clones share the bindings.
#[derive(Clone, Debug)]
pub struct Bindings {
    path: PathBuf,
    shelf: Arc<Shelf>,
}

/// Settings are compared by the file, not by what the gateway makes of it.
impl PartialEq for Bindings {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Bindings {}

#[derive(Debug)]
struct Shelf {
    /// Counts the tables that have been left here.
    version: AtomicU64,
    state: Mutex<State>,
    /// Locked by a thread that changes bindings.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct State {
    table: Arc<BindingTable>,
    /// The version of the file that was read last, or an earlier version.
    file: FileVersion,
    /// The fault of a later version of the file, which is not in force.
    fault: Option<String>,
    former: Vec<Arc<BindingTable>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bindings {
    /// The bindings of a file, whose version was noted before the file was read.
    pub fn new(path: PathBuf, table: Arc<BindingTable>, file: FileVersion) -> Self {
        let state =
            Mutex::new(State { table, file, fault: None, former: Vec::with_capacity(FORMER) });
        let shelf = Shelf { version: AtomicU64::new(0), state, changing: Mutex::default() };
        Self { path, shelf: Arc::new(shelf) }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The table in force.
    pub fn table(&self) -> Arc<BindingTable> {
        Arc::clone(&lock(&self.shelf.state).table)
    }

    /// The version of the file that was read last, or an earlier version.
    pub fn file(&self) -> FileVersion {
        lock(&self.shelf.state).file
    }

    /// Puts the table of a file in force, whose version was noted before the file was read.
    pub fn put(&self, table: Arc<BindingTable>, file: FileVersion) {
        let _alone = lock(&self.shelf.changing);
        self.leave(table);
        let mut state = lock(&self.shelf.state);
        (state.file, state.fault) = (file, None);
    }

    /// The fault of a later version of the file, which is not in force, as a sentence without its
    /// full stop.
    pub fn fault(&self) -> Option<String> {
        lock(&self.shelf.state).fault.clone()
    }

    /// Notes the fault of a later version of the file, until a version is put in force.
    pub fn note_fault(&self, sentence: String) {
        lock(&self.shelf.state).fault = Some(sentence);
    }

    fn leave(&self, table: Arc<BindingTable>) {
        let mut state = lock(&self.shelf.state);
        let former = std::mem::take(&mut state.former);
        state.former.reserve(FORMER);
        let old = std::mem::replace(&mut state.table, table);
        self.shelf.version.fetch_add(1, Ordering::Release);
        drop(state);
        drop((former, old));
    }

    /// Makes changes, in their order. A change that the table in force cannot have makes a new one.
    ///
    /// # Errors
    /// The first binding that contradicts others; then nothing has changed.
    pub fn change(
        &self,
        changes: &[BindingChange],
        default_br: Ipv6Addr,
    ) -> Result<BindingChanges, Binding> {
        let _alone = lock(&self.shelf.changing);
        let table = self.table();
        // A table without room for all is found before the first change.
        let fits = |change: &BindingChange| match change {
            BindingChange::Set(binding) => table.could_have(*binding),
            BindingChange::Remove(..) => Ok(()),
        };
        if changes.iter().all(|change| fits(change).is_ok()) {
            let mut done = BindingChanges::default();
            let mut rest = changes;
            while let [change, others @ ..] = rest {
                match done.make(&table, *change) {
                    Ok(()) => rest = others,
                    Err(_) => break,
                }
            }
            return if rest.is_empty() {
                Ok(done)
            } else {
                self.rebuild(&table, rest, done, default_br)
            };
        }
        self.rebuild(&table, changes, BindingChanges::default(), default_br)
    }

    /// Makes a table with changes.
    fn rebuild(
        &self,
        table: &BindingTable,
        changes: &[BindingChange],
        mut done: BindingChanges,
        default_br: Ipv6Addr,
    ) -> Result<BindingChanges, Binding> {
        let key = |binding: &Binding| (binding.ipv4, binding.psid);
        let mut all: std::collections::BTreeMap<_, _> =
            table.iter().map(|binding| (key(&binding), binding)).collect();
        for change in changes {
            match *change {
                BindingChange::Set(binding) => match all.insert(key(&binding), binding) {
                    None => done.added += 1,
                    Some(_) => done.replaced += 1,
                },
                BindingChange::Remove(ipv4, psid) => match all.remove(&(ipv4, psid)) {
                    Some(_) => done.removed += 1,
                    None => done.absent += 1,
                },
            }
        }
        let all: Vec<Binding> = all.into_values().collect();
        match BindingTable::new(&all, default_br, 1) {
            Ok(table) => {
                self.leave(Arc::new(table));
                Ok(done)
            }
            Err(conflicts) => {
                let place = match conflicts[0] {
                    Conflict::Same(_, later) | Conflict::Divided(_, later) => later,
                    Conflict::Brs(place) => place,
                };
                Err(all[place])
            }
        }
    }
}

impl BindingChanges {
    /// Makes a change in a table.
    fn make(&mut self, table: &BindingTable, change: BindingChange) -> Result<(), Refused> {
        match change {
            BindingChange::Set(binding) => match table.set(binding)? {
                true => self.added += 1,
                false => self.replaced += 1,
            },
            BindingChange::Remove(ipv4, psid) => match table.remove(ipv4, psid) {
                true => self.removed += 1,
                false => self.absent += 1,
            },
        }
        Ok(())
    }
}

/// A worker's view of the bindings: it takes tables that were left.
#[derive(Debug)]
pub(crate) struct BindingTaker {
    bindings: Bindings,
    seen: u64,
}

impl BindingTaker {
    pub(crate) fn new(bindings: Bindings) -> Self {
        Self { bindings, seen: 0 }
    }

    /// Gives the translator a table that was left since the last call.
    #[inline]
    pub(crate) fn take(&mut self, translator: &mut Translator) {
        if self.bindings.shelf.version.load(Ordering::Acquire) != self.seen {
            self.take_new(translator);
        }
    }

    #[cold]
    fn take_new(&mut self, translator: &mut Translator) {
        let Ok(mut state) = self.bindings.shelf.state.try_lock() else { return };
        self.seen = self.bindings.shelf.version.load(Ordering::Acquire);
        if let Some(former) = translator.exchange_bindings(Arc::clone(&state.table)) {
            state.former.push(former);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_ipv6::softwire::PortSets;

    const BR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2);

    fn binding(ipv4: u32, len: u8, psid: u16, b4: u128) -> Binding {
        let sets = PortSets::new(0, len).expect("at most 16 bits");
        let (ipv4, b4) = (Ipv4Addr::from_bits(ipv4), Ipv6Addr::from_bits(b4));
        Binding { ipv4, sets, psid, b4, br: BR }
    }

    fn bindings(all: &[Binding]) -> Bindings {
        let table = BindingTable::new(all, BR, 1).expect("bindings that agree");
        Bindings::new("bindings.csv".into(), Arc::new(table), FileVersion::default())
    }

    #[test]
    fn changes_go_into_the_table_or_make_a_new_one() {
        let shared = bindings(&[binding(7, 4, 1, 1), binding(9, 4, 1, 1)]);
        let first = shared.table();
        let set = |one| BindingChange::Set(one);
        let done = shared.change(&[set(binding(8, 4, 2, 5)), set(binding(7, 4, 1, 6))], BR);
        assert_eq!(done.map(|done| (done.added, done.replaced)), Ok((1, 1)));
        assert!(Arc::ptr_eq(&first, &shared.table()));
        // An address outside of the table's range, and a division of its own.
        let all = [
            set(binding(100, 2, 3, 5)),
            BindingChange::Remove(Ipv4Addr::from_bits(9), 1),
            BindingChange::Remove(Ipv4Addr::from_bits(9), 1),
        ];
        let done = shared.change(&all, BR).expect("changes that agree");
        assert_eq!((done.added, done.removed, done.absent), (1, 1, 1));
        let table = shared.table();
        assert!(!Arc::ptr_eq(&first, &table) && table.len() == 3);
        let wrong = [set(binding(50, 2, 3, 5)), set(binding(7, 5, 3, 5))];
        assert_eq!(shared.change(&wrong, BR), Err(binding(7, 5, 3, 5)));
        assert_eq!(shared.table().len(), 3);
        for number in 0..200 {
            let one = set(binding(100 + number / 4, 2, (number % 4) as u16, 5));
            shared.change(&[one], BR).expect("a new binding");
        }
        assert_eq!(shared.table().len(), 202);
    }
}
