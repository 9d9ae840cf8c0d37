//! What the boot loader tells: the PVH start information (Xen's `hvm_start_info`, which QEMU's
//! `-kernel` uses too).
//!
//! It is asked before there is memory to allocate, so nothing here allocates.

/// What a start information begins with.
const MAGIC: u32 = 0x336e_c578;
/// The kind of memory that can be used.
const RAM: u32 = 1;
/// Bytes of the description of a module, and of a stretch of memory.
const MODULE_LEN: u64 = 32;
const STRETCH_LEN: u64 = 24;
/// Most entries of a list that are read.
const MOST: u32 = 128;

/// A stretch of memory: where it begins, and how many bytes it has.
pub type Stretch = (u64, u64);

/// Memory by its addresses.
pub trait Addresses {
    /// Reads as many bytes as there is room for; `false`: there is no such memory.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// What was told.
#[derive(Clone, Copy, Debug)]
pub struct Told<A> {
    addresses: A,
    command_line: u64,
    tables: u64,
    /// Where each list begins, and how many entries it has.
    modules: (u64, u32),
    memory: (u64, u32),
}

impl<A: Addresses> Told<A> {
    /// Reads the start information at an address; `None`: there is none.
    pub fn read(at: u64, addresses: A) -> Option<Self> {
        let mut bytes = [0; 56];
        if !addresses.read(at, &mut bytes) || word(&bytes, 0) != MAGIC || word(&bytes, 4) == 0 {
            return None;
        }
        Some(Self {
            addresses,
            command_line: long(&bytes, 24),
            tables: long(&bytes, 32),
            modules: (long(&bytes, 16), word(&bytes, 12).min(MOST)),
            memory: (long(&bytes, 40), word(&bytes, 48).min(MOST)),
        })
    }

    /// Where the command line is, which ends with a zero byte; `None`: there is none.
    pub fn command_line(&self) -> Option<u64> {
        (self.command_line != 0).then_some(self.command_line)
    }

    /// Where the pointer to the firmware's tables is; `None`: that is not said.
    pub fn tables(&self) -> Option<u64> {
        (self.tables != 0).then_some(self.tables)
    }

    /// The files that were loaded with the image.
    pub fn modules(&self) -> impl Iterator<Item = Stretch> + '_ {
        let (list, count) = self.modules;
        (0..count).filter_map(move |number| {
            let mut bytes = [0; MODULE_LEN as usize];
            let at = list.checked_add(u64::from(number) * MODULE_LEN)?;
            self.addresses.read(at, &mut bytes).then(|| (long(&bytes, 0), long(&bytes, 8)))
        })
    }

    /// The memory that can be used, whatever may be in it already.
    pub fn memory(&self) -> impl Iterator<Item = Stretch> + '_ {
        let (list, count) = self.memory;
        (0..count).filter_map(move |number| {
            let mut bytes = [0; STRETCH_LEN as usize];
            let at = list.checked_add(u64::from(number) * STRETCH_LEN)?;
            let is_ram = self.addresses.read(at, &mut bytes) && word(&bytes, 16) == RAM;
            is_ram.then(|| (long(&bytes, 0), long(&bytes, 8)))
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Memory that begins at this address.
    const BEGIN: u64 = 0x1000;

    impl Addresses for &[u8] {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let place = address.checked_sub(BEGIN).and_then(|place| usize::try_from(place).ok());
            let bytes = place.and_then(|place| self.get(place..)?.get(..into.len()));
            bytes.is_some_and(|bytes| {
                into.copy_from_slice(bytes);
                true
            })
        }
    }

    fn entries(entries: &[[u64; 4]]) -> Vec<u8> {
        entries.iter().flatten().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn modules_and_memory_are_read_where_they_are_said_to_be() {
        let mut bytes = Vec::new();
        for number in [MAGIC, 1, 0, 2] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [BEGIN + 56, 0x7777, 0xf_5a00, BEGIN + 120, 2] {
            bytes.extend(number.to_le_bytes());
        }
        assert_eq!(bytes.len(), 56);
        bytes.extend(entries(&[[0x10_0000, 5, 0, 0], [0x20_0000, 7, 0, 0]]));
        for (start, len, kind) in [(0, 0x9_f000, 1), (0xf_0000, 0x1_0000, 2_u64)] {
            bytes.extend([start, len, kind].iter().flat_map(|number: &u64| number.to_le_bytes()));
        }
        let told = Told::read(BEGIN, &bytes[..]).expect("it is there");
        assert_eq!((told.command_line(), told.tables()), (Some(0x7777), Some(0xf_5a00)));
        assert_eq!(told.modules().collect::<Vec<_>>(), [(0x10_0000, 5), (0x20_0000, 7)]);
        assert_eq!(told.memory().collect::<Vec<_>>(), [(0, 0x9_f000)]);
        assert!(Told::read(BEGIN + 1, &bytes[..]).is_none());
        // What lies beyond the memory is not there.
        let told = Told::read(BEGIN, &bytes[..60]).expect("it is there");
        assert_eq!((told.modules().count(), told.memory().count()), (0, 0));
    }

    proptest! {
        #[test]
        fn nothing_that_is_told_does_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 56..300),
        ) {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            if let Some(told) = Told::read(BEGIN, &bytes[..]) {
                prop_assert!(told.modules().count() <= MOST as usize);
                prop_assert!(told.memory().count() <= MOST as usize);
            }
        }
    }
}
