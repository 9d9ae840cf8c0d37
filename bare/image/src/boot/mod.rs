//! What the boot loader tells: by PVH (QEMU's `-kernel`) or by Multiboot2 (GRUB, from a USB stick).
//!
//! It is asked before there is memory to allocate, so nothing here allocates. What is told is
//! bounded, not believed.

mod multiboot;
mod pvh;

pub use multiboot::LOADER as MULTIBOOT;

use crate::picture::Format;
use arrayvec::ArrayVec;

/// Most files that are kept, and most stretches of memory.
const MOST_MODULES: usize = 8;
const MOST_STRETCHES: usize = 128;

/// A stretch of memory: where it begins, and how many bytes it has.
pub type Stretch = (u64, u64);

/// Memory by its addresses.
pub trait Addresses {
    /// Reads as many bytes as there is room for; `false`: there is no such memory.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// The screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Display {
    /// A PC's text, where every PC has it.
    #[default]
    Text,
    /// A picture.
    Picture(Format),
    /// None, or one of a kind that is not known here.
    None,
}

/// What was told.
#[derive(Clone, Debug, Default)]
pub struct BootInfo {
    /// Where the command line is, which ends with a zero byte; `None`: there is none.
    pub command_line: Option<u64>,
    /// Where the pointer to the firmware's tables is; `None`: that is not said.
    pub tables: Option<u64>,
    /// The files that were loaded with the image.
    pub modules: ArrayVec<Stretch, MOST_MODULES>,
    /// The memory that can be used, whatever may be in it already.
    pub memory: ArrayVec<Stretch, MOST_STRETCHES>,
    /// Where all this was told: in memory that can be used once nobody reads there any more.
    pub letter: Stretch,
    /// The screen.
    pub display: Display,
}

impl BootInfo {
    /// Reads what a boot loader has left at an address; `loader` is what the processor's EAX held
    /// when a Multiboot2 loader started the image, and 0 when another did. `None`: nothing is
    /// there.
    pub fn read(loader: u32, at: u64, addresses: &impl Addresses) -> Option<Self> {
        if loader == MULTIBOOT { multiboot::read(at, addresses) } else { pvh::read(at, addresses) }
    }

    /// Keeps a file, as far as there is room: only the first is ever read.
    fn add_module(&mut self, module: Stretch) {
        let _ = self.modules.try_push(module);
    }

    /// Keeps a stretch of memory, as far as there is room; what has none is not used.
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

    /// The tests' memory begins at this address.
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
