//! The search for cards: PCI's configuration space.

use std::fmt::{self, Display, Formatter};

/// Where a function of a card is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Its bus.
    pub bus: u8,
    /// Its slot there, below 32.
    pub slot: u8,
    /// Its number within the card, below 8.
    pub function: u8,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.slot, self.function)
    }
}

/// Configuration space.
pub trait ConfigSpace {
    /// Reads 32 bits; where there is nothing all are ones.
    fn read(&mut self, place: Place, at: u8) -> u32;
    /// Writes 32 bits.
    fn write(&mut self, place: Place, at: u8, value: u32);
}

/// A card's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where it is.
    pub place: Place,
    /// Who made it.
    pub vendor: u16,
    /// What it is, by the maker's counting.
    pub device: u16,
    /// Its class and subclass.
    pub class: u16,
}

/// A stretch of memory that is a card's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

const COMMAND: u8 = 0x04;
const CLASS: u8 = 0x08;
const HEADER: u8 = 0x0c;
const FIRST_WINDOW: u8 = 0x10;
const CAPABILITIES: u8 = 0x34;
const MEMORY_AND_MASTER: u32 = 0b110;
const NO_INTERRUPTS: u32 = 1 << 10;
const HAS_CAPABILITIES: u32 = 1 << 20;
const SEVERAL_FUNCTIONS: u32 = 1 << 23;
const WINDOWS: u8 = 6;
/// Most capabilities that are followed, so that a list in a circle ends.
const MOST_CAPABILITIES: usize = 48;

/// All functions that there are, in order of place.
pub fn functions(space: &mut dyn ConfigSpace) -> Vec<Function> {
    let mut found = Vec::new();
    for bus in 0..=255 {
        for slot in 0..32 {
            let mut count = 1;
            let mut function = 0;
            while function < count {
                let place = Place { bus, slot, function };
                if let Some(known) = read_function(space, place) {
                    let several = space.read(place, HEADER) & SEVERAL_FUNCTIONS != 0;
                    count = if function == 0 && several { 8 } else { count };
                    found.push(known);
                }
                function += 1;
            }
        }
    }
    found
}

fn read_function(space: &mut dyn ConfigSpace, place: Place) -> Option<Function> {
    let id = space.read(place, 0);
    let (vendor, device) = (id as u16, (id >> 16) as u16);
    let class = (space.read(place, CLASS) >> 16) as u16;
    (vendor != 0xffff && vendor != 0).then_some(Function { place, vendor, device, class })
}

/// Lets a card use memory and be used by memory; its interrupts stay off.
pub fn enable(space: &mut dyn ConfigSpace, place: Place) {
    let command = space.read(place, COMMAND) & 0xffff;
    space.write(place, COMMAND, command | MEMORY_AND_MASTER | NO_INTERRUPTS);
}

/// One of a card's stretches of memory, by its number; `None`: that is none, or it is of ports.
pub fn window(space: &mut dyn ConfigSpace, place: Place, number: u8) -> Option<Window> {
    const PORTS: u32 = 1;
    const WIDTH: u32 = 0b110;
    const WIDE: u32 = 0b100;
    if number >= WINDOWS {
        return None;
    }
    let at = FIRST_WINDOW + 4 * number;
    let low = space.read(place, at);
    let is_wide = low & WIDTH == WIDE;
    if low & PORTS != 0 || (is_wide && number + 1 == WINDOWS) {
        return None;
    }
    let high = if is_wide { space.read(place, at + 4) } else { 0 };
    // The card does not answer at its address while that is all ones.
    let command = space.read(place, COMMAND) & 0xffff;
    space.write(place, COMMAND, command & !MEMORY_AND_MASTER);
    space.write(place, at, u32::MAX);
    let mask_low = space.read(place, at);
    space.write(place, at, low);
    let mask_high = if is_wide {
        space.write(place, at + 4, u32::MAX);
        let mask = space.read(place, at + 4);
        space.write(place, at + 4, high);
        mask
    } else {
        u32::MAX
    };
    space.write(place, COMMAND, command);
    let mask = u64::from(mask_high) << 32 | u64::from(mask_low & !0xf);
    let address = u64::from(high) << 32 | u64::from(low & !0xf);
    let len = (!mask).wrapping_add(1);
    (mask_low & !0xf != 0 && address != 0 && address.checked_add(len).is_some())
        .then_some(Window { address, len })
}

/// Where a function's capabilities of one kind begin, in order.
pub fn capabilities(space: &mut dyn ConfigSpace, place: Place, kind: u8) -> Vec<u8> {
    let mut found = Vec::new();
    if space.read(place, COMMAND) & HAS_CAPABILITIES == 0 {
        return found;
    }
    let mut at = space.read(place, CAPABILITIES) as u8 & !3;
    for _ in 0..MOST_CAPABILITIES {
        if at < 0x40 {
            break;
        }
        let header = space.read(place, at);
        if header as u8 == kind {
            found.push(at);
        }
        at = (header >> 8) as u8 & !3;
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Cards as they are seen through configuration space.
    #[derive(Default)]
    pub(crate) struct Cards {
        pub(crate) words: BTreeMap<(Place, u8), u32>,
        /// Which bits of a word can be written.
        pub(crate) masks: BTreeMap<(Place, u8), u32>,
    }

    impl ConfigSpace for Cards {
        fn read(&mut self, place: Place, at: u8) -> u32 {
            assert!(at.is_multiple_of(4));
            let is_there = self.words.contains_key(&(place, 0));
            self.words.get(&(place, at)).copied().unwrap_or(if is_there { 0 } else { u32::MAX })
        }

        fn write(&mut self, place: Place, at: u8, value: u32) {
            let mask = self.masks.get(&(place, at)).copied().unwrap_or(u32::MAX);
            let word = self.words.entry((place, at)).or_default();
            *word = *word & !mask | value & mask;
        }
    }

    pub(crate) const PLACE: Place = Place { bus: 0, slot: 3, function: 0 };

    impl Cards {
        /// One card with a stretch of memory of 128 KiB.
        pub(crate) fn one(id: u32) -> Self {
            let mut cards = Self::default();
            cards.words.insert((PLACE, 0), id);
            cards.words.insert((PLACE, CLASS), 0x0200_0000);
            cards.words.insert((PLACE, 0x10), 0xfeb8_0000);
            cards.masks.insert((PLACE, 0x10), 0xfffe_0000);
            cards
        }
    }

    #[test]
    fn functions_are_found_in_order() {
        let mut cards = Cards::one(0x100e_8086);
        let other = |function| Place { bus: 1, slot: 31, function };
        cards.words.insert((other(0), 0), 0x1041_1af4);
        cards.words.insert((other(0), HEADER), SEVERAL_FUNCTIONS);
        cards.words.insert((other(5), 0), 0x10d3_8086);
        // Not looked at, for function 0 says that it is alone.
        cards.words.insert((Place { function: 1, ..PLACE }, 0), 0x10d3_8086);
        let found = functions(&mut cards);
        assert_eq!(
            found.iter().map(|one| one.place).collect::<Vec<_>>(),
            [PLACE, other(0), other(5)]
        );
        let class = 0x0200;
        assert_eq!(found[0], Function { place: PLACE, vendor: 0x8086, device: 0x100e, class });
        assert_eq!(PLACE.to_string(), "00:03.0");
    }

    #[test]
    fn windows_are_measured_and_left_as_they_were() {
        let mut cards = Cards::one(0x100e_8086);
        cards.words.insert((PLACE, 0x14), 0xc001);
        cards.words.insert((PLACE, 0x20), 0x4000_000c);
        cards.masks.insert((PLACE, 0x20), 0xffff_c000);
        cards.words.insert((PLACE, 0x24), 0x38);
        let before = cards.words.clone();
        let first = Window { address: 0xfeb8_0000, len: 128 << 10 };
        assert_eq!(window(&mut cards, PLACE, 0), Some(first));
        assert_eq!(window(&mut cards, PLACE, 1), None);
        let wide = Window { address: 0x38_4000_0000, len: 16 << 10 };
        assert_eq!(window(&mut cards, PLACE, 4), Some(wide));
        assert_eq!((window(&mut cards, PLACE, 2), window(&mut cards, PLACE, 6)), (None, None));
        cards.words.retain(|_, word| *word != 0);
        assert_eq!(cards.words, before);
    }

    #[test]
    fn capabilities_in_a_circle_end() {
        let mut cards = Cards::one(0x1041_1af4);
        assert!(capabilities(&mut cards, PLACE, 9).is_empty());
        cards.words.insert((PLACE, COMMAND), HAS_CAPABILITIES);
        cards.words.insert((PLACE, CAPABILITIES), 0x40);
        cards.words.insert((PLACE, 0x40), 0x5009);
        cards.words.insert((PLACE, 0x50), 0x6011);
        cards.words.insert((PLACE, 0x60), 0x0009);
        assert_eq!(capabilities(&mut cards, PLACE, 9), [0x40, 0x60]);
        cards.words.insert((PLACE, 0x60), 0x4009);
        assert!(capabilities(&mut cards, PLACE, 9).len() <= MOST_CAPABILITIES);
    }

    #[test]
    fn a_card_is_enabled_without_interrupts() {
        let mut cards = Cards::one(0x100e_8086);
        enable(&mut cards, PLACE);
        assert_eq!(cards.words[&(PLACE, COMMAND)], 0x406);
    }
}
