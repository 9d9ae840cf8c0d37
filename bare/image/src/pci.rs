//! The search for cards: PCI's configuration space.

use crate::registers::Registers;
use std::fmt::{self, Display, Formatter};

/// Place of a function of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the bus.
    pub bus: u8,
    /// Slot on the bus, below 32.
    pub slot: u8,
    /// Function within the card, below 8.
    pub function: u8,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.slot, self.function)
    }
}

/// Configuration space.
pub trait ConfigSpace {
    /// Reads 32 bits; all are ones if there is no card.
    fn read(&mut self, place: Place, at: u8) -> u32;
    /// Writes 32 bits.
    fn write(&mut self, place: Place, at: u8, value: u32);
}

/// A function of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its place.
    pub place: Place,
    /// Number of the vendor.
    pub vendor: u16,
    /// Number of the device, assigned by the vendor.
    pub device: u16,
    /// Class and subclass.
    pub class: u16,
}

/// A range of memory that belongs to a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First address.
    pub address: u64,
    /// Length, bytes.
    pub len: u64,
}

const COMMAND: u8 = 0x04;
const CLASS: u8 = 0x08;
const HEADER: u8 = 0x0c;
const FIRST_WINDOW: u8 = 0x10;
const CAPABILITIES: u8 = 0x34;
const WIRE: u8 = 0x3c;
const MEMORY_AND_MASTER: u32 = 0b110;
const NO_INTERRUPTS: u32 = 1 << 10;
const HAS_CAPABILITIES: u32 = 1 << 20;
const SEVERAL_FUNCTIONS: u32 = 1 << 23;
const WINDOWS: u8 = 6;
/// Most capabilities that are read, so that a circular list ends.
const MOST_CAPABILITIES: usize = 48;

/// All functions, in the order of their places.
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

/// Lets a card respond to memory accesses and access memory; its wire interrupts stay off.
pub fn enable(space: &mut dyn ConfigSpace, place: Place) {
    let command = space.read(place, COMMAND) & 0xffff;
    space.write(place, COMMAND, command | MEMORY_AND_MASTER | NO_INTERRUPTS);
}

/// Input of the interrupt controllers for a card's wire, as reported by the firmware; `None` if the
/// card has no wire or the firmware reports none.
pub fn wire(space: &mut dyn ConfigSpace, place: Place) -> Option<u8> {
    const INPUTS: u8 = 16;
    let [input, pin, ..] = space.read(place, WIRE).to_le_bytes();
    (pin != 0 && input != 0 && input < INPUTS).then_some(input)
}

/// Permits or forbids a card to use its wire.
pub fn enable_wire(space: &mut dyn ConfigSpace, place: Place, may_use: bool) {
    let command = space.read(place, COMMAND) & 0xffff;
    let others = command & !NO_INTERRUPTS;
    space.write(place, COMMAND, if may_use { others } else { others | NO_INTERRUPTS });
}

/// Memory range of a card by its number; `None` if there is no such range, or if it consists of
/// ports.
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
    // The card must not respond at its address while the address is all ones.
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

/// Offsets of a function's capabilities of one kind, in order.
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

/// A card's table of interrupt messages (MSI-X). Each entry has an address, the value for that
/// address, and a mask bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messages {
    capability: u8,
    /// Number of the memory range with the table.
    pub window: u8,
    /// Offset of the table in that range.
    pub at: u32,
}

impl Messages {
    /// Length of an entry, bytes.
    pub const ENTRY: u32 = 16;

    /// Finds a card's table; `None` if the card has none.
    pub fn find(space: &mut dyn ConfigSpace, place: Place) -> Option<Self> {
        const KIND: u8 = 0x11;
        const WINDOW: u32 = 0b111;
        let capability = *capabilities(space, place, KIND).first()?;
        let table = space.read(place, capability.checked_add(4)?);
        Some(Self { capability, window: (table & WINDOW) as u8, at: table & !WINDOW })
    }

    /// Makes the card send its first message for each event with number 0; `table` begins with the
    /// table.
    pub fn enable(
        self,
        space: &mut dyn ConfigSpace,
        place: Place,
        table: &mut impl Registers,
        (address, message): (u64, u32),
    ) {
        const ENABLED: u32 = 1 << 31;
        const ALL_WITHHELD: u32 = 1 << 30;
        let control = space.read(place, self.capability);
        // Entries can be written only while messages are on, and no message is sent before they are
        // complete.
        space.write(place, self.capability, control | ENABLED | ALL_WITHHELD);
        let words = [address as u32, (address >> 32) as u32, message, 0];
        for (number, word) in (0..).zip(words) {
            table.write32(4 * number, word);
        }
        space.write(place, self.capability, control & !ALL_WITHHELD | ENABLED);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    /// Cards as seen through configuration space.
    #[derive(Default)]
    pub(crate) struct Cards {
        pub(crate) words: BTreeMap<(Place, u8), u32>,
        /// Writable bits of a word.
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
        /// One card with a memory range of 128 KiB.
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
        // This function is not read, because function 0 reports that it is alone.
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
    fn a_wire_is_where_the_firmware_says() {
        let mut cards = Cards::one(0x100e_8086);
        for (word, input) in [(0x010b, Some(11)), (0x000b, None), (0x0100, None), (0x01ff, None)] {
            cards.words.insert((PLACE, WIRE), word);
            assert_eq!(wire(&mut cards, PLACE), input, "{word:#x}");
        }
        enable(&mut cards, PLACE);
        enable_wire(&mut cards, PLACE, true);
        assert_eq!(cards.words[&(PLACE, COMMAND)], 0x006);
        enable_wire(&mut cards, PLACE, false);
        assert_eq!(cards.words[&(PLACE, COMMAND)], 0x406);
    }

    #[test]
    fn messages_are_set_up_while_none_is_sent() {
        let mut cards = Cards::one(0x1041_1af4);
        assert_eq!(Messages::find(&mut cards, PLACE), None);
        cards.words.insert((PLACE, COMMAND), HAS_CAPABILITIES);
        cards.words.insert((PLACE, CAPABILITIES), 0x98);
        cards.words.insert((PLACE, 0x98), 0x0003_0011);
        cards.words.insert((PLACE, 0x9c), 0x0000_0801);
        let messages = Messages::find(&mut cards, PLACE).expect("there is one");
        assert_eq!((messages.window, messages.at), (1, 0x800));
        let mut table = Table::default();
        messages.enable(&mut cards, PLACE, &mut table, (0x1_fee0_3000, 34));
        assert_eq!(*table.0.lock().unwrap(), [0xfee0_3000, 1, 34, 0]);
        assert_eq!(cards.words[&(PLACE, 0x98)], 0x8003_0011);
    }

    /// One entry of a table of messages.
    #[derive(Clone, Debug, Default)]
    struct Table(Arc<Mutex<[u32; 4]>>);

    impl Registers for Table {
        fn read8(&self, at: u32) -> u8 {
            unreachable!("{at} is nothing to be read")
        }
        fn read16(&self, at: u32) -> u16 {
            unreachable!("{at} is nothing to be read")
        }
        fn read32(&self, at: u32) -> u32 {
            unreachable!("{at} is nothing to be read")
        }
        fn write8(&mut self, at: u32, _: u8) {
            unreachable!("{at} has 32 bits")
        }
        fn write16(&mut self, at: u32, _: u16) {
            unreachable!("{at} has 32 bits")
        }
        fn write32(&mut self, at: u32, value: u32) {
            self.0.lock().unwrap()[at as usize / 4] = value;
        }
    }

    #[test]
    fn a_card_is_enabled_without_interrupts() {
        let mut cards = Cards::one(0x100e_8086);
        enable(&mut cards, PLACE);
        assert_eq!(cards.words[&(PLACE, COMMAND)], 0x406);
    }
}
