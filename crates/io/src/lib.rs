//! Packets in and out: one trait for every back end, and capture files.
//!
//! A [`Device`] has two halves that are used at the same time: [`Receive`] lends batches of frames
//! that lie in the device's own memory, [`Transmit`] sends frames wherever they lie. Back ends, one
//! folder each: [`packet`] (Linux packet sockets), [`memory`] (queues between tests). What the
//! frames mean is not this crate's business.

#![deny(unsafe_code)]

mod device;
mod error;
mod frame;
mod lease;
pub mod memory;
pub mod packet;
pub mod pcap;
mod wait;

pub use device::{Change, Device, LinkInfo, Lost, Receive, Statistics, Transmit};
pub use error::Error;
pub use frame::{BATCH, Batch, Frame, HEADROOM};
pub use lease::{Lease, Pool, TakenOver};
pub use wait::wait;
