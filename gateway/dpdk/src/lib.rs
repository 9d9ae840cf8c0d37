//! Packets by DPDK: any port that a stock libdpdk drives, behind the trait of every back end.
//!
//! A port is a network card that was given to DPDK, or a virtual device: shared memory with another
//! process (`net_memif`), a virtual machine's card (`net_vhost`), a packet socket
//! (`net_af_packet`), and so on. [`start`] starts DPDK's environment, once a process. [`Eal::open`]
//! opens a port, with a device for each of its queues, so that each worker has its own.
//!
//! A received frame is lent from where the driver put it. If a port of the same process sends it,
//! its buffer changes the owner ([`natgate_io::Lease`]); other frames are copied. Ports have no
//! descriptor to wait for: they are polled, every [`POLL_INTERVAL`] while no frame comes.
//!
//! [`Swx`] executes P4 programs by DPDK's SWX pipeline, which takes its packets from memory.
//!
//! The crate builds without libdpdk, too. Then [`start`] returns an error.
//!
//! ```no_run
//! let environment = natgate_dpdk::start(None, 1500)?;
//! // A device for each of two workers.
//! let devices = environment.open("net_memif0,role=server", 1500, 2)?;
//! assert_eq!(devices.len(), 2);
//! # Ok::<(), natgate_dpdk::Error>(())
//! ```

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

/// Longest time for which a port is not polled while no frame comes.
pub const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// A port's name without the arguments that make it.
pub fn port_name(device: &str) -> &str {
    device.split_once(',').map_or(device, |(name, _)| name)
}
