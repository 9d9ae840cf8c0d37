//! The gateway on a machine without an operating system.
//!
//! The image is an ordinary Rust program, with the standard library and the gateway of the other
//! crates, which happens to run on the bare processor. What is here knows no particular machine and
//! is tested on any: drivers for Ethernet cards ([`e1000`], [`virtio`]) on registers and memory
//! that are given to them, the search for cards ([`pci`]), what a boot loader tells ([`boot`]) and
//! the firmware ([`acpi`]), when cards interrupt ([`alarm`]), what the standard library asks of a
//! kernel and gets from us ([`calls`], [`memory`]), the clock's arithmetic ([`time`]), event logs
//! ([`log`]), the status page ([`status`]), and what a person sees ([`screen`], [`picture`],
//! [`keys`], [`menu`], [`text`]). The program beside it (`main.rs`, `machine/`) has the
//! instructions that only the bare processor permits.

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
