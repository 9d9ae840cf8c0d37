//! Multiboot2 information of GRUB: a sequence of tags with kind and length, at multiples of 8
//! bytes.

use super::{Addresses, BootInfo, Display, long, word};
use crate::picture::Format;

/// Value in the processor's EAX when a Multiboot2 loader starts the image.
pub const LOADER: u32 = 0x36d7_6289;

/// Bytes before the first tag, and bytes of a tag's header.
const HEADER_LEN: u64 = 8;
/// Most bytes of all tags together. The limit bounds the number of tags, too.
const MOST_LEN: u32 = 1 << 20;

/// Kinds of tags that are read.
const END: u32 = 0;
const COMMAND_LINE: u32 = 1;
const MODULE: u32 = 3;
const MEMORY: u32 = 6;
const DISPLAY: u32 = 8;
/// Tags with a copy of the pointer to the firmware's tables, of the older and of the newer form.
const TABLES: [u32; 2] = [14, 15];

/// Kind of usable memory, and the known bytes of an entry.
const RAM: u32 = 1;
const STRETCH_LEN: u64 = 24;

/// Reads the tags at an address; `None` if there are none.
pub(super) fn read(at: u64, addresses: &impl Addresses) -> Option<BootInfo> {
    let len = header(at, addresses)?.0;
    if len > MOST_LEN || u64::from(len) < 2 * HEADER_LEN {
        return None;
    }
    let end = at.checked_add(u64::from(len))?;
    let letter = (at, u64::from(len));
    let mut told = BootInfo { letter, display: Display::None, ..BootInfo::default() };
    let mut place = at + HEADER_LEN;
    while place + HEADER_LEN <= end {
        let Some((kind, len)) = header(place, addresses) else { break };
        let len = u64::from(len);
        if kind == END || len < HEADER_LEN || len > end - place {
            break;
        }
        read_tag(kind, (place, len), addresses, &mut told);
        place += len.next_multiple_of(8);
    }
    Some(told)
}

/// Reads two numbers: the header of the information, or of a tag.
fn header(at: u64, addresses: &impl Addresses) -> Option<(u32, u32)> {
    let mut bytes = [0; HEADER_LEN as usize];
    addresses.read(at, &mut bytes).then(|| (word(&bytes, 0), word(&bytes, 4)))
}

fn read_tag(kind: u32, (at, len): (u64, u64), addresses: &impl Addresses, told: &mut BootInfo) {
    match kind {
        COMMAND_LINE if len > HEADER_LEN => told.command_line = Some(at + HEADER_LEN),
        MODULE => {
            if let Some((start, end)) = header(at + HEADER_LEN, addresses)
                && start <= end
            {
                told.add_module((start.into(), (end - start).into()));
            }
        }
        MEMORY => read_memory((at, len), addresses, told),
        DISPLAY => told.display = display(at, addresses),
        kind if kind == TABLES[1] || kind == TABLES[0] && told.tables.is_none() => {
            told.tables = Some(at + HEADER_LEN);
        }
        _ => {}
    }
}

fn read_memory((at, len): (u64, u64), addresses: &impl Addresses, told: &mut BootInfo) {
    const FIRST: u64 = 16;
    let Some((entry_len, _)) = header(at + HEADER_LEN, addresses) else { return };
    let entry_len = u64::from(entry_len);
    if entry_len < STRETCH_LEN {
        return;
    }
    for number in 0..len.saturating_sub(FIRST) / entry_len {
        let mut bytes = [0; STRETCH_LEN as usize];
        let is_there = addresses.read(at + FIRST + number * entry_len, &mut bytes);
        if is_there && word(&bytes, 16) == RAM {
            told.add_memory((long(&bytes, 0), long(&bytes, 8)));
        }
    }
}

/// Kind of the screen: text, or a frame buffer with pixels of 32 bits.
fn display(at: u64, addresses: &impl Addresses) -> Display {
    const PICTURE: u8 = 1;
    const TEXT: u8 = 2;
    const BITS: u8 = 32;
    let mut bytes = [0; 32];
    if !addresses.read(at, &mut bytes) {
        return Display::None;
    }
    let [pitch, width, height] = [16, 20, 24].map(|at| word(&bytes, at));
    match (bytes[29], bytes[28]) {
        (TEXT, _) => Display::Text,
        (PICTURE, BITS) => Format::new(long(&bytes, 8), pitch, width, height)
            .map_or(Display::None, Display::Picture),
        _ => Display::None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::BEGIN;
    use super::*;
    use proptest::prelude::*;

    /// Builds information from tags; each is a kind and the content behind the length.
    fn letter(tags: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        for (kind, content) in tags.iter().chain([&(END, Vec::new())]) {
            bytes.extend(kind.to_le_bytes());
            bytes.extend((8 + content.len() as u32).to_le_bytes());
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(8), 0xee);
        }
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn told(bytes: &[u8]) -> BootInfo {
        read(BEGIN, &bytes).expect("it is there")
    }

    #[test]
    fn tags_are_read_wherever_they_are() {
        // Two ranges, one of them not usable, in entries of 32 bytes.
        let memory =
            [[32, 0, 0x10_0000, 0, 0x700_0000, 1, 1, 0, 0, 0], [0, 8, 0x1000, 0, 3, 0, 0, 0, 0, 0]];
        let bytes = letter(&[
            (99, vec![1, 2, 3]),
            (MODULE, [words(&[0x20_0000, 0x20_0005]), b"natgate.toml\0".to_vec()].concat()),
            (COMMAND_LINE, b"start\0".to_vec()),
            (MEMORY, words(memory.as_flattened())[..8 + 64].to_vec()),
            (TABLES[1], b"RSD PTR newer".to_vec()),
            (TABLES[0], b"RSD PTR older".to_vec()),
            (MODULE, words(&[9, 8])),
        ]);
        let told = told(&bytes);
        let tables = (told.tables.expect("they are there") - BEGIN) as usize;
        assert_eq!(&bytes[tables..][..13], b"RSD PTR newer");
        assert_eq!(told.modules[..], [(0x20_0000, 5)]);
        assert_eq!(told.memory[..], [(0x10_0000, 0x1_0700_0000)]);
        assert_eq!(told.letter, (BEGIN, bytes.len() as u64));
        let line = (told.command_line.expect("there is one") - BEGIN) as usize;
        assert_eq!(&bytes[line..][..6], b"start\0");
        assert_eq!(told.display, Display::None);
    }

    #[test]
    fn a_screen_is_text_or_a_picture_or_none() {
        let shown = |bits, kind, pitch| {
            let numbers =
                words(&[0x8000_0000, 0, pitch, 1280, 800, u32::from_le_bytes([bits, kind, 0, 0])]);
            told(&letter(&[(DISPLAY, numbers)])).display
        };
        let format = Format::new(0x8000_0000, 5120, 1280, 800).expect("it is one");
        assert_eq!(shown(32, 1, 5120), Display::Picture(format));
        assert_eq!(shown(16, 2, 160), Display::Text);
        // Another depth, lines shorter than their pixels, a palette.
        for none in [shown(24, 1, 5120), shown(32, 1, 5116), shown(32, 0, 5120)] {
            assert_eq!(none, Display::None);
        }
    }

    #[test]
    fn what_is_cut_off_is_not_there() {
        let bytes = letter(&[(MODULE, words(&[1, 2])), (MODULE, words(&[3, 5]))]);
        for end in 0..bytes.len() {
            let told = read(BEGIN, &&bytes[..end]);
            let count = told.map_or(0, |told| told.modules.len());
            // The header, and two tags of 16 bytes.
            assert_eq!(count, end.saturating_sub(8) / 16, "{end}");
        }
        assert!(read(BEGIN, &&[0xff; 64][..]).is_none());
        assert!(read(u64::MAX - 4, &&bytes[..]).is_none());
    }

    proptest! {
        #[test]
        fn nothing_that_is_told_does_harm(
            tags in proptest::collection::vec(
                (0..10_u32, proptest::collection::vec(any::<u8>(), 0..200)),
                0..20,
            ),
            harm in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut bytes = letter(&tags);
            for (place, byte) in harm {
                *place.get_mut(&mut bytes) = byte;
            }
            let told = read(BEGIN, &&bytes[..]);
            let most = bytes.len() as u64;
            let is_bounded = told.is_none_or(|told| {
                told.command_line.is_none_or(|line| line < BEGIN + most)
                    && told.memory.len() as u64 <= most / STRETCH_LEN
            });
            prop_assert!(is_bounded);
        }
    }
}
