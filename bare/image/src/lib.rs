//! The gateway on a machine without an operating system.
//!
//! The image is an ordinary Rust program with the standard library and the gateway of the other
//! crates. It runs on the bare processor. The modules of this library depend on no particular
//! machine and are tested on any: drivers for Ethernet cards ([`e1000`], [`virtio`]) on given
//! registers and memory, the search for cards ([`pci`]), information of the boot loader ([`boot`])
//! and of the firmware ([`acpi`]), the request for interrupts ([`alarm`]), system calls of the
//! standard library and their results ([`calls`], [`memory`]), the arithmetic of the clock
//! ([`time`]), event logs ([`log`]), the status page ([`status`]), and the user interface
//! ([`screen`], [`picture`], [`keys`], [`menu`], [`text`]). The program beside it (`main.rs`,
//! `machine/`) has the instructions that only the bare processor permits.
//!
//! ```
//! use natgate_bare::keys::Keyboard;
//! use natgate_bare::memory::Memory;
//!
//! let mut memory = Memory::new();
//! memory.give(0x10_0000, 1 << 20);
//! memory.withhold(0x10_0000, 4096);
//! assert_eq!(memory.take(8192), Some(0x10_1000));
//!
//! let mut keyboard = Keyboard::new();
//! assert_eq!(keyboard.key(0x1f), Some(b's'));
//! ```

#![deny(unsafe_code)]

pub mod acpi;
pub mod alarm;
pub mod boot;
pub mod calls;
pub mod dma;
pub mod e1000;
pub mod keys;
pub mod log;
pub mod memory;
pub mod menu;
pub mod options;
pub mod pci;
pub mod picture;
pub mod registers;
pub mod screen;
pub mod settings;
pub mod sharing;
pub mod status;
pub mod text;
pub mod time;
pub mod virtio;
