//! The PVH start information, Xen's `hvm_start_info`, which QEMU's `-kernel` uses, too. It has
//! lists of entries of fixed length, each list at an address of its own.

use super::{Addresses, BootInfo, long, word};

/// First number of a start information.
const MAGIC: u32 = 0x336e_c578;
/// Kind of usable memory.
const RAM: u32 = 1;
/// Bytes of the start information, of an entry for a module, and of an entry for memory.
const LEN: usize = 56;
const MODULE_LEN: usize = 32;
const STRETCH_LEN: usize = 24;
/// Most entries of a list that are read.
const MOST: u32 = 128;

/// Reads the start information at an address; `None` if there is none.
pub(super) fn read(at: u64, addresses: &impl Addresses) -> Option<BootInfo> {
    let mut bytes = [0; LEN];
    if !addresses.read(at, &mut bytes) || word(&bytes, 0) != MAGIC || word(&bytes, 4) == 0 {
        return None;
    }
    let command_line = Some(long(&bytes, 24)).filter(|address| *address != 0);
    let tables = Some(long(&bytes, 32)).filter(|address| *address != 0);
    let mut told =
        BootInfo { command_line, tables, letter: (at, LEN as u64), ..BootInfo::default() };
    for module in entries::<MODULE_LEN>(long(&bytes, 16), word(&bytes, 12), addresses) {
        told.add_module((long(&module, 0), long(&module, 8)));
    }
    for stretch in entries::<STRETCH_LEN>(long(&bytes, 40), word(&bytes, 48), addresses) {
        if word(&stretch, 16) == RAM {
            told.add_memory((long(&stretch, 0), long(&stretch, 8)));
        }
    }
    Some(told)
}

/// Readable entries of a list.
fn entries<const LEN: usize>(
    list: u64,
    count: u32,
    addresses: &impl Addresses,
) -> impl Iterator<Item = [u8; LEN]> {
    (0..count.min(MOST)).filter_map(move |number| {
        let mut bytes = [0; LEN];
        let at = list.checked_add(u64::from(number) * LEN as u64)?;
        addresses.read(at, &mut bytes).then_some(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::BEGIN;
    use super::*;
    use crate::boot::Display;
    use proptest::prelude::*;

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
        assert_eq!(bytes.len(), LEN);
        bytes.extend(entries(&[[0x10_0000, 5, 0, 0], [0x20_0000, 7, 0, 0]]));
        for (start, len, kind) in [(0, 0x9_f000, 1), (0xf_0000, 0x1_0000, 2_u64)] {
            bytes.extend([start, len, kind].iter().flat_map(|number: &u64| number.to_le_bytes()));
        }
        let told = read(BEGIN, &&bytes[..]).expect("it is there");
        assert_eq!((told.command_line, told.tables), (Some(0x7777), Some(0xf_5a00)));
        assert_eq!(told.modules[..], [(0x10_0000, 5), (0x20_0000, 7)]);
        assert_eq!(told.memory[..], [(0, 0x9_f000)]);
        assert_eq!((told.letter, told.display), ((BEGIN, 56), Display::Text));
        assert!(read(BEGIN + 1, &&bytes[..]).is_none());
        // Entries beyond the memory do not exist.
        let told = read(BEGIN, &&bytes[..60]).expect("it is there");
        assert_eq!((told.modules.len(), told.memory.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn nothing_that_is_told_does_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 56..300),
        ) {
            bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
            // Very large counts.
            bytes[12..16].fill(0xff);
            bytes[40..48].copy_from_slice(&BEGIN.to_le_bytes());
            let told = read(BEGIN, &&bytes[..]);
            prop_assert!(told.is_none_or(|told| told.memory.len() <= bytes.len() / STRETCH_LEN));
        }
    }
}
