//! Why a DPDK port cannot be used.

use std::fmt::{self, Display, Formatter};
use std::io;

/// Why DPDK refused something.
#[derive(Debug)]
pub struct Refusal(i32);

impl Refusal {
    /// By the number of an error.
    #[cfg(libdpdk)]
    pub(crate) fn new(errno: i32) -> Self {
        Self(errno)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Drivers say -1 when they mean nothing in particular, not that permission is missing.
        match self.0 {
            1 => write!(f, "the driver refuses, without a reason"),
            errno => write!(f, "{}", io::Error::from_raw_os_error(errno)),
        }
    }
}

/// What can go wrong when DPDK is started or a port opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program was built on a machine without libdpdk.
    #[error(
        "the dpdk back end can open nothing, because libdpdk was missing when natgate was built; \
         install libdpdk-dev and pkg-config, and build again with `cargo build --features dpdk`"
    )]
    Absent,
    /// An argument cannot be passed on.
    #[error("{what} {text:?} has a zero byte; take it out")]
    Text {
        /// What it is.
        what: &'static str,
        /// What was written.
        text: String,
    },
    /// DPDK's environment refuses to start.
    #[error(
        "DPDK does not start with dpdk.eal = {arguments:?}: {reason}; what it wrote before this \
         says why"
    )]
    Start {
        /// Its arguments.
        arguments: Vec<String>,
        /// What it said.
        reason: Refusal,
    },
    /// DPDK was started in this process before, and cannot be started a second time.
    #[error(
        "DPDK runs in this process already, with other arguments or for smaller packets, or it \
         failed to start; it starts once only, so restart the program"
    )]
    Once,
    /// Not enough memory for packets.
    #[error(
        "DPDK has no memory for {count} buffers of {bytes} bytes; raise the MiB after \"-m\" in \
         dpdk.eal, or reserve more huge pages"
    )]
    Memory {
        /// How many there should be.
        count: u32,
        /// Of how many bytes.
        bytes: u32,
    },
    /// There is no such port.
    #[error(
        "DPDK has no port {0:?}; write a virtual device with its arguments, such as \
         \"net_memif0,role=server\", or allow a PCI device by dpdk.eal = [\"-a\", \"0000:03:00.0\"]"
    )]
    NoPort(String),
    /// A virtual device cannot be made.
    #[error(
        "DPDK cannot make the device {device:?}: {reason}; are its driver and arguments right, and \
         does what they name exist?"
    )]
    Make {
        /// The device and its arguments.
        device: String,
        /// What DPDK said.
        reason: Refusal,
    },
    /// The port is open already.
    #[error("DPDK port {0:?} is in use by this process already; give each side its own")]
    InUse(String),
    /// The port does not carry packets that long.
    #[error("DPDK port {device:?} carries packets of up to {most} bytes; set mtu = {most} there")]
    Mtu {
        /// The port.
        device: String,
        /// The longest that it carries, bytes.
        most: u16,
    },
    /// The port has fewer queues.
    #[error(
        "DPDK port {device:?} has {most} queues, not {asked}; use no more workers than that, or give \
         it more queues where it can have them (net_af_packet by the argument qpairs={asked})"
    )]
    Queues {
        /// The port.
        device: String,
        /// How many were asked for.
        asked: u16,
        /// How many it has.
        most: u16,
    },
    /// A pipeline cannot be made.
    #[error(
        "DPDK makes no SWX pipeline of the program, because of {what}: {reason}; if it lacks memory, give \
         registers and counters fewer places, or reserve huge pages"
    )]
    Pipeline {
        /// What is refused.
        what: String,
        /// What DPDK said.
        reason: Refusal,
    },
    /// A call failed.
    #[error("{what} DPDK port {device:?} failed: {reason}; is what it leads to there, and ready?")]
    System {
        /// What was tried.
        what: &'static str,
        /// The port.
        device: String,
        /// What DPDK said.
        reason: Refusal,
    },
}
