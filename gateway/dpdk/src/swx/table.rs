//! Tables for look-ups by the pipeline: keys are read from headers or metadata, and each argument
//! has eight bytes.
//!
//! The entries are in the tables that programs compiled to Rust have, so that both find the same
//! entry.

use super::ports::Shared;
use natgate_p4::MatchKind;
use natgate_p4::rt::{Action, Exact, Listed, Lpm, Match, Packed, Place, Scan, Store, Tick};
use natgate_p4::swx::{self, KeyField};
use std::ffi::{c_int, c_void};
use std::fmt::Debug;

/// Most arguments of an action.
const MOST_ARGS: usize = 8;

/// Number of an action in the table's list, and its arguments.
#[derive(Clone, Copy, Debug)]
struct Words<const N: usize> {
    number: usize,
    args: [u64; N],
}

impl<const N: usize> Words<N> {
    fn new(number: usize, args: &[u64]) -> Self {
        let mut words = [0; N];
        words.iter_mut().zip(args).for_each(|(word, arg)| *word = *arg);
        Self { number, args: words }
    }
}

impl<const N: usize> Action for Words<N> {
    fn of(number: usize, args: &[u128]) -> Self {
        let args: Vec<u64> = args.iter().map(|arg| *arg as u64).collect();
        Self::new(number, &args)
    }

    fn number(&self) -> usize {
        self.number
    }

    fn args(&self) -> Vec<u128> {
        self.args.iter().map(|arg| (*arg).into()).collect()
    }
}

/// Location of a key field.
#[derive(Clone, Copy, Debug)]
struct Part {
    offset: usize,
    /// Bits by which the field is shifted down after it was read as eight bytes from its first
    /// byte.
    unused: u32,
    is_big_endian: bool,
    width: u32,
}

impl Part {
    fn of(key: &KeyField) -> Self {
        let (offset, bytes) = key.place;
        let unused = 64 - 8 * bytes as u32;
        Self { offset, unused, is_big_endian: key.is_big_endian, width: key.width }
    }

    /// # Safety
    ///
    /// Eight bytes can be read from the field's offset.
    #[inline]
    unsafe fn read(&self, base: *const u8) -> u64 {
        // SAFETY: the caller promises it.
        let word = unsafe { base.add(self.offset).cast::<u64>().read_unaligned() };
        match self.is_big_endian {
            true => u64::from_be(word) >> self.unused,
            false => u64::from_le(word) << self.unused >> self.unused,
        }
    }
}

/// Result of a look-up, and the places where it is written.
#[derive(Debug, Default)]
pub(super) struct Current {
    number: usize,
    args: [u64; MOST_ARGS],
}

impl Current {
    #[inline]
    fn take<const N: usize>(&mut self, words: &Words<N>) {
        self.number = words.number;
        self.args[..N].copy_from_slice(&words.args);
    }
}

/// Entries of one kind of keys.
trait Entries: Debug {
    /// Looks up the key in the struct at `base`; returns true if there is an entry.
    ///
    /// # Safety
    ///
    /// The struct has the fields of the keys, and eight bytes can be read from each.
    unsafe fn find(&mut self, tick: Tick, base: *const u8, current: &mut Current) -> bool;

    /// Adds an entry for the key that was looked up last; returns true if there was room.
    fn add(&mut self, now: u64, number: usize, args: &[u64], timeout: u32) -> bool;

    /// Changes the timeout of the entry that was found or added last.
    fn set_timeout(&mut self, timeout: u32);

    /// Restarts the timer of that entry.
    fn restart(&mut self, now: u64);

    fn store(&self) -> &dyn Store;

    fn store_mut(&mut self) -> &mut dyn Store;
}

#[derive(Debug)]
struct ExactEntries<K, const N: usize> {
    parts: Box<[Part]>,
    table: Exact<K, Words<N>>,
    key: K,
    place: Place,
}

/// Keys of a fixed width, read from their struct.
trait Key: Packed {
    /// # Safety
    ///
    /// The conditions of [`Part::read`] for each part.
    unsafe fn read(parts: &[Part], base: *const u8) -> Self;
}

impl Key for u64 {
    #[inline]
    unsafe fn read(parts: &[Part], base: *const u8) -> Self {
        // SAFETY: the caller promises it.
        let read = |part: &Part| unsafe { part.read(base) };
        match parts {
            [one] => read(one),
            parts => parts.iter().fold(0, |key, part| key << part.width | read(part)),
        }
    }
}

impl Key for u128 {
    #[inline]
    unsafe fn read(parts: &[Part], base: *const u8) -> Self {
        // SAFETY: the caller promises it.
        let read = |part: &Part| Self::from(unsafe { part.read(base) });
        parts.iter().fold(0, |key, part| key << part.width | read(part))
    }
}

impl<const M: usize> Key for [u128; M] {
    unsafe fn read(parts: &[Part], base: *const u8) -> Self {
        let mut key = [0; M];
        for (place, part) in key.iter_mut().zip(parts) {
            // SAFETY: the caller promises it.
            *place = unsafe { part.read(base) }.into();
        }
        key
    }
}

impl<K: Key, const N: usize> Entries for ExactEntries<K, N> {
    unsafe fn find(&mut self, tick: Tick, base: *const u8, current: &mut Current) -> bool {
        // SAFETY: the caller promises it.
        self.key = unsafe { K::read(&self.parts, base) };
        let (found, place) = self.table.find(tick, self.key);
        self.place = place;
        if found.hit {
            current.take(&found.action);
        }
        found.hit
    }

    fn add(&mut self, now: u64, number: usize, args: &[u64], timeout: u32) -> bool {
        self.place = self.table.add(now, self.key, Words::new(number, args), timeout);
        self.place.is_some()
    }

    fn set_timeout(&mut self, timeout: u32) {
        self.table.set_timeout(self.place, timeout);
    }

    fn restart(&mut self, now: u64) {
        self.table.restart(now, self.place);
    }

    fn store(&self) -> &dyn Store {
        &self.table
    }

    fn store_mut(&mut self) -> &mut dyn Store {
        self.place = None;
        &mut self.table
    }
}

/// Methods of tables to which packets add no entries.
macro_rules! fixed {
    () => {
        fn add(&mut self, _: u64, _: usize, _: &[u64], _: u32) -> bool {
            false
        }

        fn set_timeout(&mut self, _: u32) {}

        fn restart(&mut self, _: u64) {}

        fn store(&self) -> &dyn Store {
            &self.table
        }

        fn store_mut(&mut self) -> &mut dyn Store {
            &mut self.table
        }
    };
}

#[derive(Debug)]
struct LpmEntries<K, const N: usize> {
    parts: Box<[Part]>,
    table: Lpm<K, Words<N>>,
}

impl<K: Key + std::ops::BitAnd<Output = K>, const N: usize> Entries for LpmEntries<K, N> {
    unsafe fn find(&mut self, _: Tick, base: *const u8, current: &mut Current) -> bool {
        // SAFETY: the caller promises it.
        let found = self.table.find(unsafe { K::read(&self.parts, base) });
        if found.hit {
            current.take(&found.action);
        }
        found.hit
    }

    fixed!();
}

#[derive(Debug)]
struct ScanEntries<const N: usize> {
    parts: Box<[Part]>,
    keys: Vec<u128>,
    table: Scan<Words<N>>,
}

impl<const N: usize> Entries for ScanEntries<N> {
    unsafe fn find(&mut self, _: Tick, base: *const u8, current: &mut Current) -> bool {
        self.keys.clear();
        // SAFETY: the caller promises it.
        let keys = self.parts.iter().map(|part| u128::from(unsafe { part.read(base) }));
        self.keys.extend(keys);
        let found = self.table.find(&self.keys);
        if found.hit {
            current.take(&found.action);
        }
        found.hit
    }

    fixed!();
}

/// Creates the entries for a table's keys and actions.
fn entries<const N: usize>(table: &swx::Table) -> Box<dyn Entries> {
    let parts: Box<[Part]> = table.keys.iter().map(Part::of).collect();
    let widths: Vec<u32> = table.keys.iter().map(|key| key.width).collect();
    // The number of leaked lists is that of the program's tables, and they are used until the
    // process ends.
    let widths: &'static [u32] = widths.leak();
    let default = Words::<N>::new(0, &[]);
    let kind = |kind| table.keys.iter().filter(|key| key.kind == kind).count();
    let prefix = table.keys.iter().position(|key| key.kind == MatchKind::Lpm);
    let others_are_exact = kind(MatchKind::Ternary) == 0;
    let (size, bits) = (table.size, widths.iter().sum::<u32>());
    match (prefix, others_are_exact, bits) {
        (None, true, 0..=64) => exact::<u64, N>(parts, widths, table, 0),
        (None, true, 65..=128) => exact::<u128, N>(parts, widths, table, 0),
        (None, true, _) => exact::<[u128; 64], N>(parts, widths, table, [0; 64]),
        (Some(_), true, 0..=64) => {
            Box::new(LpmEntries { parts, table: Lpm::<u64, _>::new(widths, size, default) })
        }
        (Some(_), true, 65..=128) => {
            Box::new(LpmEntries { parts, table: Lpm::<u128, _>::new(widths, size, default) })
        }
        _ => {
            let table = Scan::new(prefix, size, default);
            Box::new(ScanEntries { parts, keys: Vec::new(), table })
        }
    }
}

fn exact<K: Key + 'static, const N: usize>(
    parts: Box<[Part]>,
    widths: &'static [u32],
    table: &swx::Table,
    key: K,
) -> Box<dyn Entries> {
    let default = Words::<N>::new(0, &[]);
    let table = Exact::new(widths, table.size, table.expires, default);
    Box::new(ExactEntries { parts, table, key, place: None })
}

/// A table of the pipeline.
#[derive(Debug)]
pub(super) struct Table {
    shared: *mut Shared,
    entries: Box<dyn Entries>,
    /// Number of keys.
    keys: usize,
    /// For each action of the table's list, its number in the pipeline and its number of arguments.
    actions: Vec<(usize, usize)>,
    default: (usize, Vec<u128>),
    /// True if the pipeline knows the present default.
    pub(super) is_default_told: bool,
    current: Current,
}

impl Table {
    pub(super) fn new(table: &swx::Table, shared: *mut Shared) -> Self {
        let most = table.actions.iter().map(|(_, args)| *args).max().unwrap_or(0);
        let entries = match most {
            0..=2 => entries::<2>(table),
            3..=4 => entries::<4>(table),
            _ => entries::<MOST_ARGS>(table),
        };
        Self {
            shared,
            entries,
            keys: table.keys.len(),
            actions: table.actions.clone(),
            default: table.default.clone(),
            is_default_told: true,
            current: Current::default(),
        }
    }

    /// Default action: its number in the pipeline, and its arguments.
    pub(super) fn default_action(&self) -> (usize, Vec<u64>) {
        let (number, args) = &self.default;
        (self.actions[*number].0, args.iter().map(|arg| *arg as u64).collect())
    }

    /// Adds an entry for the key that was looked up last; returns true if there was room.
    pub(super) fn add(&mut self, now: u64, number: usize, args: &[u64], timeout: u32) -> bool {
        self.entries.add(now, number, args, timeout)
    }

    pub(super) fn set_timeout(&mut self, timeout: u32) {
        self.entries.set_timeout(timeout);
    }

    pub(super) fn restart(&mut self, now: u64) {
        self.entries.restart(now);
    }

    /// Cuts keys and arguments of an entry to their real number.
    fn trimmed(&self, mut entry: Listed) -> Listed {
        entry.keys.truncate(self.keys);
        entry.args.truncate(self.actions[entry.action].1);
        entry
    }
}

/// Looks a key up for the pipeline.
///
/// # Safety
///
/// The table is a [`Table`] that no other code accesses meanwhile, the struct has the fields of the
/// table's keys, and the other pointers can be written.
pub(super) unsafe extern "C" fn lookup(
    table: *mut c_void,
    _: *mut c_void,
    key: *mut *mut u8,
    action: *mut u64,
    args: *mut *mut u8,
    entry: *mut usize,
    hit: *mut c_int,
) -> c_int {
    // SAFETY: the caller promises it; fields have eight bytes behind their first, because the
    // pipeline reads them the same way.
    unsafe {
        let table = &mut *table.cast::<Table>();
        let tick = (*table.shared).tick;
        let is_there = table.entries.find(tick, *key, &mut table.current);
        *hit = is_there.into();
        if is_there {
            *action = table.actions[table.current.number].0 as u64;
            *args = table.current.args.as_mut_ptr().cast();
            *entry = 0;
        }
    }
    1
}

impl Store for Table {
    fn insert(
        &mut self,
        now: u64,
        keys: &[Match],
        action: usize,
        args: &[u128],
        priority: u32,
    ) -> bool {
        self.entries.store_mut().insert(now, keys, action, args, priority)
    }

    fn remove(&mut self, keys: &[Match]) -> bool {
        self.entries.store_mut().remove(keys)
    }

    fn count(&self, now: u64) -> usize {
        self.entries.store().count(now)
    }

    fn list(&self, now: u64) -> Vec<Listed> {
        let entries = self.entries.store().list(now).into_iter();
        entries.map(|entry| self.trimmed(entry)).collect()
    }

    fn get(&self, now: u64, keys: &[Match]) -> Option<Listed> {
        self.entries.store().get(now, keys).map(|entry| self.trimmed(entry))
    }

    fn page(&self, now: u64, after: Option<&[Match]>, most: usize) -> Vec<Listed> {
        let entries = self.entries.store().page(now, after, most).into_iter();
        entries.map(|entry| self.trimmed(entry)).collect()
    }

    fn clear(&mut self) {
        self.entries.store_mut().clear();
    }

    fn default(&self) -> (usize, Vec<u128>) {
        self.default.clone()
    }

    fn set_default(&mut self, action: usize, args: &[u128]) {
        self.default = (action, args.to_vec());
        self.is_default_told = false;
    }
}
