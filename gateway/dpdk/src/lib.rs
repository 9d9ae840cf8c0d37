//! Packets by DPDK: any port that a stock libdpdk drives, behind the trait of every back end.
//!
//! A port is a network card that was given to DPDK, or a virtual device: shared memory with another
//! process (`net_memif`), a virtual machine's card (`net_vhost`), a packet socket
//! (`net_af_packet`), and so on. [`start`] starts DPDK's environment, once a process, and
//! [`Eal::open`] opens a port: a device for each of its queues, so that each worker has its own.
//!
//! A received frame is lent where the driver put it. Sent through any port of the process, its
//! buffer goes along ([`natgate_io::Lease`]); frames that lie elsewhere are copied. Ports have no
//! descriptor to wait for: they are asked, every [`POLL_INTERVAL`] when nothing comes.
//!
//! [`Swx`] executes P4 programs by DPDK's SWX pipeline, which takes its packets from memory.
//!
//! The crate builds without libdpdk, too. Then [`start`] says so.

#[cfg(not(libdpdk))]
mod absent;
#[cfg(libdpdk)]
mod device;
#[cfg(libdpdk)]
mod eal;
mod error;
#[cfg(libdpdk)]
mod port;
#[cfg(libdpdk)]
mod swx;
#[cfg(libdpdk)]
mod sys;

#[cfg(not(libdpdk))]
pub use absent::{DpdkDevice, Eal, Swx, start, start_for};
#[cfg(libdpdk)]
pub use device::DpdkDevice;
#[cfg(libdpdk)]
pub use eal::{Eal, start, start_for};
pub use error::{Error, Refusal};
#[cfg(libdpdk)]
pub use swx::Swx;

use std::time::Duration;

/// How long a port is left unasked at most when no frame comes.
pub const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A port's name without the arguments that make it.
pub fn port_name(device: &str) -> &str {
    device.split_once(',').map_or(device, |(name, _)| name)
}
