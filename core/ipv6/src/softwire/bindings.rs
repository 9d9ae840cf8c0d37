//! Bindings of lw4o6 (RFC 7596 section 6.1): an IPv4 address and a port set belong to one B4.
//!
//! The table is a hash table in two arrays. A key has 8 bytes: the address, the port-set
//! identifier, the number of the BR, and a version. Eight keys fill a cache line, and a search
//! begins in a line and nearly always ends there. A value has 16 bytes: the address of the B4, at
//! the same place as its key. So a lookup touches two cache lines, and with three quarters of the
//! places in use a binding takes 32 bytes. The division into port sets is kept once for a range of
//! addresses.
//!
//! Any number of threads may read while one changes bindings. A change writes the value first, then
//! the key with a new version; a reader that sees the key change reads again. A binding with a new
//! B4 gets a new place before its old one is removed, so no reader misses it. The table does not
//! grow: [`BindingTable::set`] says that it is full, and a new table takes its place as a unit.

mod shared;

use super::halves::FirstHalves;
use super::ports::PortSets;
use alloc::vec::Vec;
use core::fmt::{self, Debug, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use natgate_engine::prefetch;
use shared::SharedAddresses;

/// Keys of a line.
const LINE: usize = 8;
/// Keys of a line that are in use when a table is made: three quarters.
const FILLED: usize = 6;
/// A table refuses a new binding if fewer than one place in this number would be free.
const SPARE: usize = 16;
/// Most BR addresses: their numbers have eight bits.
pub const MOST_BRS: usize = 256;

/// A place that has never had a key.
const FREE: u64 = 0;
/// Bits that hold the BR's number, and a step of the version below them.
const BR_SHIFT: u32 = 8;
const VERSION: u64 = 0xff;
/// What is left of a key that was removed, above the version. No binding has the address 0.0.0.0.
const REMOVED: u64 = 0xff << BR_SHIFT;

/// One binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The IPv4 address.
    pub ipv4: Ipv4Addr,
    /// The division of the address's ports.
    pub sets: PortSets,
    /// The identifier of the port set.
    pub psid: u16,
    /// The B4's address.
    pub b4: Ipv6Addr,
    /// The gateway's address of the tunnel.
    pub br: Ipv6Addr,
}

/// Two bindings contradict each other. Bindings are named by their places in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The two have one address and one port set.
    Same(usize, usize),
    /// The two divide one address in different ways.
    Divided(usize, usize),
    /// The binding is the first that has more BR addresses before it than there may be.
    Brs(usize),
}

/// A change cannot be made in the table; a new table can have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room.
    Full,
    /// The table has no such BR address.
    Br,
    /// The address has another division of ports.
    Divided,
}

impl Display for Refused {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the table of bindings is full",
            Self::Br => "no other binding has this BR address",
            Self::Divided => "the address has another division of ports",
        })
    }
}

/// What a lookup finds: the two ends of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// The gateway's end.
    pub br: u128,
    /// The customer's end.
    pub customer: u128,
}

/// Eight keys.
#[repr(align(64))]
struct Keys([AtomicU64; LINE]);

/// The address of a B4, high half first.
#[repr(align(16))]
struct Value([AtomicU64; 2]);

const _: () = assert!(size_of::<Keys>() == 64 && size_of::<Value>() == 16);

/// A range of addresses that are divided alike, by its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    sets: PortSets,
}

/// A place where a binding may be: the result of the first step of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Address and identifier, as in a key without BR and version.
    key: u64,
    /// Place at which the search begins.
    at: usize,
}

/// A table of bindings.
pub struct BindingTable {
    keys: Vec<Keys>,
    values: Vec<Value>,
    /// Ranges of addresses, ascending.
    runs: Vec<Run>,
    brs: Vec<u128>,
    len: AtomicUsize,
    /// Places that have had a key.
    used: AtomicUsize,
    /// Number of keys that were removed.
    removals: AtomicUsize,
    /// First halves of the addresses that bindings have or have had.
    halves: FirstHalves,
    shared: SharedAddresses,
}

impl BindingTable {
    /// A table of bindings. `default_br` need not have a binding.
    ///
    /// # Errors
    /// All [`Conflict`]s, but at most `most`.
    pub fn new(
        bindings: &[Binding],
        default_br: Ipv6Addr,
        most: usize,
    ) -> Result<Self, Vec<Conflict>> {
        let mut conflicts = Vec::new();
        let runs = runs(bindings, &mut conflicts, most);
        let lines = (bindings.len().div_ceil(FILLED)).max(1) + 1;
        let mut table = Self {
            keys: (0..lines).map(|_| Keys(Default::default())).collect(),
            values: (0..lines * LINE).map(|_| Value(Default::default())).collect(),
            runs,
            brs: alloc::vec![default_br.to_bits()],
            len: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            removals: AtomicUsize::new(0),
            halves: FirstHalves::none(),
            shared: SharedAddresses::room_for(bindings),
        };
        for (place, binding) in bindings.iter().enumerate() {
            if conflicts.len() >= most {
                break;
            }
            let Some(br) = table.number_of(binding.br.to_bits()) else {
                conflicts.push(Conflict::Brs(place));
                break;
            };
            if !table.insert(*binding, br) {
                let is_same =
                    |other: &Binding| (other.ipv4, other.psid) == (binding.ipv4, binding.psid);
                let earlier = bindings[..place].iter().position(is_same).unwrap_or(place);
                conflicts.push(Conflict::Same(earlier, place));
            }
        }
        if conflicts.is_empty() { Ok(table) } else { Err(conflicts) }
    }

    /// The number of a BR address, new or known; `None`: there are too many.
    fn number_of(&mut self, br: u128) -> Option<u8> {
        let known = self.brs.iter().position(|known| *known == br);
        let number = known.unwrap_or(self.brs.len());
        if number >= MOST_BRS {
            return None;
        }
        if known.is_none() {
            self.brs.push(br);
        }
        Some(number as u8)
    }

    /// Number of bindings.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// True if there is no binding.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of the table, bytes.
    pub fn memory(&self) -> usize {
        let lists = size_of_val(&self.values[..]) + size_of_val(&self.runs[..]);
        size_of_val(&self.keys[..]) + lists + self.shared.memory()
    }

    /// The gateway's addresses of tunnels.
    pub fn brs(&self) -> &[u128] {
        &self.brs
    }

    /// False if certainly no binding has an address.
    #[inline]
    pub(crate) fn may_have(&self, ipv4: u32) -> bool {
        self.halves.may_have(ipv4)
    }

    /// True if a binding has an address.
    #[inline]
    pub fn has_address(&self, ipv4: u32) -> bool {
        self.may_have(ipv4)
            && match self.sets(ipv4).is_whole() {
                true => self.tunnel(self.wanted(ipv4, 0)).is_some(),
                false => self.shared.has(ipv4),
            }
    }

    /// The division of an address's ports, if the address has a binding.
    #[inline]
    pub fn sets(&self, ipv4: u32) -> PortSets {
        match &self.runs[..] {
            [] => PortSets::WHOLE,
            [one] => one.sets,
            runs => {
                let after = runs.partition_point(|run| run.first <= ipv4);
                runs[after.saturating_sub(1)].sets
            }
        }
    }

    /// The tunnel of an address and a port. `None`: there is no binding.
    pub fn find(&self, ipv4: u32, port: u16) -> Option<Tunnel> {
        let psid = self.sets(ipv4).set_of(port)?;
        self.tunnel(self.wanted(ipv4, psid))
    }

    /// The binding of an address and a port.
    pub fn binding(&self, ipv4: Ipv4Addr, port: u16) -> Option<Binding> {
        let sets = self.sets(ipv4.to_bits());
        let psid = sets.set_of(port)?;
        let tunnel = self.tunnel(self.wanted(ipv4.to_bits(), psid))?;
        let (b4, br) = (Ipv6Addr::from_bits(tunnel.customer), Ipv6Addr::from_bits(tunnel.br));
        Some(Binding { ipv4, sets, psid, b4, br })
    }

    /// The first step of a lookup.
    #[inline]
    pub(crate) fn wanted(&self, ipv4: u32, psid: u16) -> Wanted {
        let key = u64::from(ipv4) << 32 | u64::from(psid) << 16;
        let hash = hash(key);
        let line = (u128::from(hash) * self.keys.len() as u128) >> 64;
        Wanted { key, at: line as usize * LINE + (hash as usize & (LINE - 1)) }
    }

    /// Starts to fetch the line of keys of a lookup.
    #[inline]
    pub(crate) fn prefetch_key(&self, wanted: Wanted) {
        prefetch(&self.keys, wanted.at / LINE);
    }

    /// Finds the place of a binding and starts to fetch its value.
    #[inline]
    pub(crate) fn prefetch_value(&self, wanted: Wanted) {
        if let Some((place, _)) = self.search(wanted) {
            prefetch(&self.values, place);
        }
    }

    /// The last step of a lookup.
    #[inline]
    pub(crate) fn tunnel(&self, wanted: Wanted) -> Option<Tunnel> {
        loop {
            let removals = self.removals.load(Ordering::Acquire);
            let Some((place, key)) = self.search(wanted) else {
                // A binding that moved meanwhile may have passed the search.
                if self.removals.load(Ordering::Acquire) == removals {
                    return None;
                }
                continue;
            };
            let [high, low] = [0, 1].map(|half| self.values[place].0[half].load(Ordering::Relaxed));
            // The value belongs to the key if the key has not changed meanwhile.
            fence(Ordering::Acquire);
            if self.key(place).load(Ordering::Relaxed) == key {
                let br = self.brs[(key >> BR_SHIFT & 0xff) as usize % self.brs.len()];
                return Some(Tunnel { br, customer: u128::from(high) << 64 | u128::from(low) });
            }
        }
    }

    #[inline]
    fn key(&self, place: usize) -> &AtomicU64 {
        &self.keys[place / LINE].0[place % LINE]
    }

    /// The place and the key of a binding.
    #[inline]
    fn search(&self, wanted: Wanted) -> Option<(usize, u64)> {
        let mut line = wanted.at / LINE;
        for _ in 0..self.keys.len() {
            let keys = self.keys[line].0.each_ref().map(|key| key.load(Ordering::Acquire));
            // All keys of the line are compared, without a branch that depends on one of them.
            let (found, free) =
                keys.iter().enumerate().fold((0_u8, false), |(found, free), (at, key)| {
                    let is_it = (key ^ wanted.key) >> 16 == 0;
                    (found | u8::from(is_it) << at, free | (*key == FREE))
                });
            if found != 0 {
                let at = found.trailing_zeros() as usize;
                return Some((line * LINE + at, keys[at]));
            }
            if free {
                return None;
            }
            line = if line + 1 == self.keys.len() { 0 } else { line + 1 };
        }
        None
    }

    /// The first place for a new key: one that is free, or one whose key was removed.
    fn place_for(&self, wanted: Wanted) -> Option<usize> {
        let first = wanted.at / LINE;
        let lines = (first..self.keys.len()).chain(0..first);
        let places = lines
            .flat_map(|line| (0..LINE).map(move |step| line * LINE + (wanted.at + step) % LINE));
        places.into_iter().find(|place| self.key(*place).load(Ordering::Relaxed) >> 32 == 0)
    }

    /// Adds a binding; `false`: the address and the port set have one.
    fn insert(&self, binding: Binding, br: u8) -> bool {
        let wanted = self.wanted(binding.ipv4.to_bits(), binding.psid);
        if self.search(wanted).is_some() {
            return false;
        }
        let Some(place) = self.place_for(wanted) else { return false };
        let ipv4 = binding.ipv4.to_bits();
        if !binding.sets.is_whole() && !self.shared.add(ipv4) {
            return false;
        }
        self.halves.add(ipv4, ipv4);
        self.write(place, wanted.key, binding.b4.to_bits(), br);
        self.len.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Writes a value and its key to a place without a key.
    fn write(&self, place: usize, key: u64, b4: u128, br: u8) {
        let old = self.key(place).load(Ordering::Relaxed);
        if old == FREE {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        // A reader of the place's former key sees that the key is gone, and discards the value.
        fence(Ordering::Release);
        self.values[place].0[0].store((b4 >> 64) as u64, Ordering::Relaxed);
        self.values[place].0[1].store(b4 as u64, Ordering::Relaxed);
        let version = old.wrapping_add(1) & VERSION;
        let new = key | u64::from(br) << BR_SHIFT | version;
        self.key(place).store(new, Ordering::Release);
    }

    /// Removes the key of a place.
    fn clear(&self, place: usize) {
        let version = self.key(place).load(Ordering::Relaxed).wrapping_add(1) & VERSION;
        // A reader that sees the removal sees a new number too, and reads again. A reader that
        // began with the new number sees the place that the binding has moved to.
        self.removals.fetch_add(1, Ordering::Release);
        self.key(place).store(REMOVED | version, Ordering::Release);
    }

    /// True if searches would become long with one more place in use.
    fn is_full(&self) -> bool {
        let places = self.values.len();
        self.used.load(Ordering::Relaxed) + places / SPARE >= places
    }

    /// Says whether [`BindingTable::set`] can have a binding, apart from room.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn could_have(&self, binding: Binding) -> Result<(), Refused> {
        let ipv4 = binding.ipv4.to_bits();
        if self.sets(ipv4) != binding.sets {
            return Err(Refused::Divided);
        }
        let has_br = self.brs.contains(&binding.br.to_bits());
        if has_br { Ok(()) } else { Err(Refused::Br) }
    }

    /// Adds a binding, or gives another B4 to an address and a port set. Returns true if the
    /// binding is new. One thread at a time may change a table.
    ///
    /// # Errors
    /// [`Refused`]: a new table can have the binding.
    pub fn set(&self, binding: Binding) -> Result<bool, Refused> {
        let ipv4 = binding.ipv4.to_bits();
        if self.sets(ipv4) != binding.sets {
            return Err(Refused::Divided);
        }
        let br = self.brs.iter().position(|br| *br == binding.br.to_bits()).ok_or(Refused::Br)?;
        let wanted = self.wanted(ipv4, binding.psid);
        if let Some((old, _)) = self.search(wanted) {
            // The new binding is there before the old one goes, so that readers find one of them.
            let place = self.place_for(wanted).ok_or(Refused::Full)?;
            if self.key(place).load(Ordering::Relaxed) == FREE && self.is_full() {
                return Err(Refused::Full);
            }
            self.write(place, wanted.key, binding.b4.to_bits(), br as u8);
            self.clear(old);
            return Ok(false);
        }
        if self.is_full() {
            return Err(Refused::Full);
        }
        if self.insert(binding, br as u8) { Ok(true) } else { Err(Refused::Full) }
    }

    /// Removes the binding of an address and a port set; `false`: there was none.
    pub fn remove(&self, ipv4: Ipv4Addr, psid: u16) -> bool {
        let Some((place, _)) = self.search(self.wanted(ipv4.to_bits(), psid)) else {
            return false;
        };
        self.clear(place);
        if !self.sets(ipv4.to_bits()).is_whole() {
            self.shared.remove(ipv4.to_bits());
        }
        self.len.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// All bindings, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = Binding> + '_ {
        self.iter_from(0).map(|(_, binding)| binding)
    }

    /// The bindings from a place on, each with the next place. A list may be read in parts.
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = (usize, Binding)> + '_ {
        (place..self.values.len()).filter_map(|place| {
            let key = self.key(place).load(Ordering::Acquire);
            let (ipv4, psid) = ((key >> 32) as u32, (key >> 16) as u16);
            if ipv4 == 0 {
                return None;
            }
            let Tunnel { br, customer } =
                self.tunnel(Wanted { key: key >> 16 << 16, at: place })?;
            let (b4, br) = (Ipv6Addr::from_bits(customer), Ipv6Addr::from_bits(br));
            let (sets, ipv4) = (self.sets(ipv4), Ipv4Addr::from_bits(ipv4));
            Some((place + 1, Binding { ipv4, sets, psid, b4, br }))
        })
    }
}

impl Debug for BindingTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "BindingTable of {} bindings", self.len())
    }
}

/// Two tables are equal if they have the same bindings.
impl PartialEq for BindingTable {
    fn eq(&self, other: &Self) -> bool {
        let has = |one: Binding| {
            let first = one.sets.ranges(one.psid).next();
            first.is_some_and(|(port, _)| other.binding(one.ipv4, port) == Some(one))
        };
        core::ptr::eq(self, other) || self.len() == other.len() && self.iter().all(has)
    }
}

impl Eq for BindingTable {}

#[inline]
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 32).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Divides all addresses into ranges with one division of ports each.
fn runs(bindings: &[Binding], conflicts: &mut Vec<Conflict>, most: usize) -> Vec<Run> {
    let mut all: Vec<(u32, PortSets)> =
        bindings.iter().map(|binding| (binding.ipv4.to_bits(), binding.sets)).collect();
    all.sort_unstable();
    all.dedup();
    let mut runs: Vec<Run> = Vec::new();
    let mut before = None;
    for (first, sets) in all {
        if before == Some(first) && conflicts.len() < most {
            let of_address = |binding: &&Binding| binding.ipv4.to_bits() == first;
            let sets = bindings.iter().find(of_address).map(|binding| binding.sets);
            let place = |differs: bool| {
                let is_it = |other: &Binding| {
                    other.ipv4.to_bits() == first && (Some(other.sets) != sets) == differs
                };
                bindings.iter().position(is_it).unwrap_or(0)
            };
            conflicts.push(Conflict::Divided(place(false), place(true)));
        }
        before = Some(first);
        if runs.last().is_none_or(|run| run.sets != sets) {
            runs.push(Run { first, sets });
        }
    }
    runs
}

#[cfg(test)]
mod tests;
