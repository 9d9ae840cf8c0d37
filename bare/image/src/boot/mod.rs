//! Information of the boot loader, by PVH (QEMU's `-kernel`) or by Multiboot2 (GRUB, from a USB
//! stick).
//!
//! The image reads it before memory can be allocated, so this module does not allocate. It limits
//! all numbers and trusts none.

mod multiboot;
mod pvh;

pub use multiboot::LOADER as MULTIBOOT;

use crate::picture::Format;
use arrayvec::ArrayVec;

/// Most files, and most ranges of memory.
const MOST_MODULES: usize = 8;
const MOST_STRETCHES: usize = 128;

/// A range of memory: its first address and its length in bytes.
pub type Stretch = (u64, u64);

/// Memory, accessed by address.
pub trait Addresses {
    /// Fills `into` from an address; returns false if there is no such memory.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// Kind of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Display {
    /// Text mode of a PC at its usual address.
    #[default]
    Text,
    /// A frame buffer.
    Picture(Format),
    /// No screen, or an unknown kind.
    None,
}

/// Information of the boot loader.
#[derive(Clone, Debug, Default)]
pub struct BootInfo {
    /// Address of the command line, which ends with a zero byte; `None` if there is none.
    pub command_line: Option<u64>,
    /// Address of the pointer to the firmware's tables; `None` if it is unknown.
    pub tables: Option<u64>,
    /// Files that were loaded with the image.
    pub modules: ArrayVec<Stretch, MOST_MODULES>,
    /// Usable memory, with or without content.
    pub memory: ArrayVec<Stretch, MOST_STRETCHES>,
    /// Range of the boot loader's information. The memory is usable after the last read of the
    /// information.
    pub letter: Stretch,
    /// The screen.
    pub display: Display,
}

impl BootInfo {
    /// Reads the information at an address. `loader` is the content of the processor's EAX if a
    /// Multiboot2 loader started the image, and otherwise 0. Returns `None` if there is no
    /// information.
    pub fn read(loader: u32, at: u64, addresses: &impl Addresses) -> Option<Self> {
        if loader == MULTIBOOT { multiboot::read(at, addresses) } else { pvh::read(at, addresses) }
    }

    /// Adds a file if there is room. Only the first file is ever read.
    fn add_module(&mut self, module: Stretch) {
        let _ = self.modules.try_push(module);
    }

    /// Adds a range of memory if there is room. A range without room is not used.
    fn add_memory(&mut self, stretch: Stretch) {
        let _ = self.memory.try_push(stretch);
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

    /// First address of the tests' memory.
    pub(super) const BEGIN: u64 = 0x1000;

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

    #[test]
    fn who_has_started_the_image_says_how_it_tells() {
        let mut bytes = [0; 64];
        bytes[0] = 16;
        assert!(BootInfo::read(MULTIBOOT, BEGIN, &&bytes[..]).is_some());
        assert!(BootInfo::read(0, BEGIN, &&bytes[..]).is_none());
        bytes[..8].copy_from_slice(&[0x78, 0xc5, 0x6e, 0x33, 1, 0, 0, 0]);
        assert!(BootInfo::read(MULTIBOOT, BEGIN, &&bytes[..]).is_none());
        assert!(BootInfo::read(0, BEGIN, &&bytes[..]).is_some());
    }
}
