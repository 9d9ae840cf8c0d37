//! Packets in and out: one trait for every back end, and capture files.
//!
//! A [`Device`] has two halves that are used at the same time: [`Receive`] lends batches of frames
//! in the device's own memory, [`Transmit`] sends frames wherever they lie. Back ends, one folder
//! each: [`packet`] (Linux packet sockets), [`xdp`] (AF_XDP), [`tun`] (layer 3 devices of the
//! kernel), [`memory`] (queues between tests). [`decorate`] has devices around devices, which watch
//! frames or harm them. If several workers share a link, each has a device of its own in a group,
//! and a [`Steering`] tells the owner of a frame. [`bpf`] assembles and loads programs for the
//! kernel. This crate reads no more of a frame than that needs.
//!
//! Call order: open a device; in each turn [`Device::split`] it, [`Receive::receive`] a batch and
//! [`Transmit::transmit`] frames; about once a second [`Device::maintain`].
//!
//! ```
//! use natgate_io::{Batch, Device, memory};
//! use natgate_wire::arp::Mac;
//!
//! let (mut device, cable) = memory::pair("lan", Mac([2, 0, 0, 0, 0, 1]));
//! cable.send(&[7; 60]);
//! let (receiver, transmitter) = device.split();
//! let mut batch = Batch::new();
//! receiver.receive(&mut batch);
//! assert_eq!(transmitter.transmit(&mut batch).count(), 0);
//! assert_eq!(cable.take(), Some(vec![7; 60]));
//! ```

#![deny(unsafe_code)]

mod addresses;
pub mod bpf;
pub mod decorate;
mod device;
mod error;
mod interface;
pub mod memory;
mod monitor;
pub mod packet;
pub mod pcap;
mod steering;
pub mod tun;
mod wait;
pub mod xdp;

pub use addresses::{kernel_addresses, kernel_index};
pub use device::{
    BATCH, Batch, Change, Device, HEADROOM, LinkInfo, Lost, Receive, Statistics, Transmit,
};
pub use error::Error;
pub use interface::{Offload, kernel_address, kernel_gateway};
pub use steering::{By, Exception, MOST_STRETCHES, Share, Steering, Stretch, worker_of_source};
pub use wait::wait;

pub use natgate_wire::{Frame, Lease, Pool, TakenOver};
