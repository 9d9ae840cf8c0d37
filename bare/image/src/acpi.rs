//! Processors of the machine, from the firmware's tables (ACPI 6.5, sections 5.2.5 to 5.2.12).
//!
//! Checksums do not make the content of the tables trustworthy. Lengths are limited, and unreadable
//! parts count as missing.

use crate::boot::Addresses;

/// Area in which a BIOS leaves the pointer to the tables.
const AREA: std::ops::Range<u64> = 0xe_0000..0x10_0000;
const STEP: usize = 16;

/// Bytes of the pointer that its first checksum covers, and bytes of a table's header.
const POINTER: usize = 20;
const HEADER: usize = 36;

/// Largest length of a table, bytes.
const MOST: usize = 1 << 16;

/// Interrupt controller ids of the usable processors; empty if the tables do not list them. `root`
/// is the address of the pointer, if the boot loader has given it.
pub fn processors(memory: &impl Addresses, root: Option<u64>) -> Vec<u32> {
    let table = pointer_near(memory, root).and_then(|(list, width)| {
        let list = table(memory, list, if width == 8 { b"XSDT" } else { b"RSDT" })?;
        let mut places = list[HEADER..].chunks_exact(width).map(number);
        places.find_map(|place| table(memory, place, b"APIC"))
    });
    table.map(|table| ids(&table)).unwrap_or_default()
}

/// Finds the pointer at `root`, or in the BIOS's area.
fn pointer_near(memory: &impl Addresses, root: Option<u64>) -> Option<(u64, usize)> {
    root.and_then(|root| pointer(memory, root))
        .or_else(|| AREA.step_by(STEP).find_map(|place| pointer(memory, place)))
}

/// Reads the pointer at `place`: the address of the list of tables, and the bytes of each entry.
fn pointer(memory: &impl Addresses, place: u64) -> Option<(u64, usize)> {
    let mut bytes = [0; HEADER];
    let is_there = memory.read(place, &mut bytes[..POINTER])
        && bytes.starts_with(b"RSD PTR ")
        && is_intact(&bytes[..POINTER]);
    if !is_there {
        return None;
    }
    let is_later = bytes[15] >= 2 && memory.read(place, &mut bytes) && is_intact(&bytes);
    let long = number(&bytes[24..32]);
    if is_later && long != 0 { Some((long, 8)) } else { Some((number(&bytes[16..20]), 4)) }
}

/// Reads the table at `place`, if it has this name and a correct checksum.
fn table(memory: &impl Addresses, place: u64, name: &[u8; 4]) -> Option<Vec<u8>> {
    let mut header = [0; HEADER];
    if !memory.read(place, &mut header) || !header.starts_with(name) {
        return None;
    }
    let len = number(&header[4..8]) as usize;
    if !(HEADER..=MOST).contains(&len) {
        return None;
    }
    let mut bytes = vec![0; len];
    (memory.read(place, &mut bytes) && is_intact(&bytes)).then_some(bytes)
}

/// Ids of the usable processors in a table of interrupt controllers.
fn ids(table: &[u8]) -> Vec<u32> {
    const LOCAL: u8 = 0;
    const LOCAL_LATER: u8 = 9;
    let mut rest = table.get(HEADER + 8..).unwrap_or_default();
    let mut ids = Vec::new();
    while let [kind, len, ..] = *rest {
        let Some((entry, after)) = rest.split_at_checked(len.into()).filter(|_| len >= 2) else {
            break;
        };
        let (id, flags) = match kind {
            LOCAL => (entry.get(3..4), entry.get(4)),
            LOCAL_LATER => (entry.get(4..8), entry.get(8)),
            _ => (None, None),
        };
        let id = id.filter(|_| flags.is_some_and(|flags| flags & 1 != 0));
        // Some firmware lists a processor in both forms.
        ids.extend(id.map(|id| number(id) as u32).filter(|id| !ids.contains(id)));
        rest = after;
    }
    ids
}

fn is_intact(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) == 0
}

/// Reads a little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Memory from the BIOS's area on.
    struct Memory(Vec<u8>);

    impl Addresses for Memory {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let place =
                address.checked_sub(AREA.start).and_then(|place| usize::try_from(place).ok());
            let bytes = place.and_then(|place| self.0.get(place..)?.get(..into.len()));
            bytes.is_some_and(|bytes| {
                into.copy_from_slice(bytes);
                true
            })
        }
    }

    fn seal(bytes: &mut [u8], place: usize) {
        let sum = bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        bytes[place] = bytes[place].wrapping_sub(sum);
    }

    fn a_table(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(name);
        bytes[4..8].copy_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
        bytes.extend(body);
        seal(&mut bytes, 9);
        bytes
    }

    /// Memory with the pointer at byte 64, the list at 256, another table at 512, and the table of
    /// processors at 1024.
    fn memory(is_later: bool) -> Memory {
        let mut bytes = vec![0; 2048];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        let mut pointer = [0; HEADER];
        pointer[..8].copy_from_slice(b"RSD PTR ");
        let list = AREA.start + 256;
        if is_later {
            pointer[15] = 2;
            pointer[24..32].copy_from_slice(&list.to_le_bytes());
        } else {
            pointer[16..20].copy_from_slice(&(list as u32).to_le_bytes());
        }
        seal(&mut pointer[..POINTER], 8);
        seal(&mut pointer, 32);
        put(64, &pointer);
        let places = [512, 1024].map(|at| AREA.start + at);
        let width = if is_later { 8 } else { 4 };
        let entries: Vec<u8> =
            places.iter().flat_map(|place| place.to_le_bytes()[..width].to_vec()).collect();
        put(256, &a_table(if is_later { b"XSDT" } else { b"RSDT" }, &entries));
        put(512, &a_table(b"FACP", &[7; 80]));
        let mut body = vec![0; 8];
        // Two usable entries, one unusable, another kind of controller, and one entry of the newer
        // form.
        for (kind, len, flags_at, flags) in
            [(0, 8, 4, 1), (0, 8, 4, 1), (0, 8, 4, 2), (1, 12, 4, 1), (9, 16, 8, 1)]
        {
            let begin = body.len();
            body.resize(begin + len, 0);
            (body[begin], body[begin + 1]) = (kind, len as u8);
            body[begin + flags_at] = flags;
            // The id in the newer form has four bytes; this is the second byte.
            body[begin + if kind == 9 { 5 } else { 3 }] = begin as u8;
        }
        put(1024, &a_table(b"APIC", &body));
        Memory(bytes)
    }

    #[test]
    fn processors_are_found_by_either_list() {
        let all = vec![8, 16, 44 << 8];
        for is_later in [false, true] {
            let memory = memory(is_later);
            assert_eq!(processors(&memory, None), all, "found");
            assert_eq!(processors(&memory, Some(AREA.start + 64)), all, "told");
            assert_eq!(processors(&memory, Some(AREA.start + 65)), all, "told wrong");
        }
        assert_eq!(processors(&Memory(vec![0; 2048]), None), [0; 0]);
        for damaged in [70, 290, 1100] {
            let mut memory = memory(false);
            memory.0[damaged] ^= 1;
            assert_eq!(processors(&memory, None), [0; 0], "byte {damaged}");
        }
    }

    proptest! {
        #[test]
        fn no_table_does_harm(
            body in proptest::collection::vec(any::<u8>(), 0..200),
            noise in proptest::collection::vec((256..2048_usize, any::<u8>()), 0..4),
        ) {
            let mut memory = memory(true);
            let table = a_table(b"APIC", &body);
            memory.0[1024..1024 + table.len()].copy_from_slice(&table);
            noise.into_iter().for_each(|(place, byte)| memory.0[place] = byte);
            prop_assert!(processors(&memory, None).len() <= 100);
        }
    }
}
