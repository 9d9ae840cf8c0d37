//! Reasons why a DPDK port cannot be used.

use std::fmt::{self, Display, Formatter};
use std::io;

/// Reason of a refusal by DPDK.
#[derive(Debug)]
pub struct Refusal(i32);

impl Refusal {
    /// Creates a refusal from an error number.
    #[cfg(libdpdk)]
    pub(crate) fn new(errno: i32) -> Self {
        Self(errno)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Drivers return -1 for errors without a reason; it does not mean that a permission is
        // missing.
        match self.0 {
            1 => write!(f, "the driver refuses, without a reason"),
            errno => write!(f, "{}", io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Error of starting DPDK or opening a port.
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
        /// Kind of the argument.
        what: &'static str,
        /// Text of the argument.
        text: String,
    },
    /// DPDK's environment refuses to start.
    #[error(
        "DPDK does not start with dpdk.eal = {arguments:?}: {reason}; what it wrote before this \
         says why"
    )]
    Start {
        /// Arguments of the environment.
        arguments: Vec<String>,
        /// Error of DPDK.
        reason: Refusal,
    },
    /// DPDK was started in this process before, and cannot be started a second time.
    #[error(
        "DPDK runs in this process already, with other arguments or for smaller packets, or it \
         failed to start; it starts once only, so restart the program"
    )]
    Once,
    /// There is not enough memory for packets.
    #[error(
        "DPDK has no memory for {count} buffers of {bytes} bytes; raise the MiB after \"-m\" in \
         dpdk.eal, or reserve more huge pages"
    )]
    Memory {
        /// Number of buffers.
        count: u32,
        /// Bytes of each buffer.
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
        /// Name and arguments of the device.
        device: String,
        /// Error of DPDK.
        reason: Refusal,
    },
    /// The port is open already.
    #[error("DPDK port {0:?} is in use by this process already; give each side its own")]
    InUse(String),
    /// The port does not carry packets of the required length.
    #[error("DPDK port {device:?} carries packets of up to {most} bytes; set mtu = {most} there")]
    Mtu {
        /// Name of the port.
        device: String,
        /// Longest packet of the port, bytes.
        most: u16,
    },
    /// The port has fewer queues.
    #[error(
        "DPDK port {device:?} has {most} queues, not {asked}; use no more workers than that, or \
         give it more queues where it can have them (net_af_packet by the argument qpairs={asked})"
    )]
    Queues {
        /// Name of the port.
        device: String,
        /// Number of queues that were requested.
        asked: u16,
        /// Number of queues of the port.
        most: u16,
    },
    /// A pipeline cannot be made.
    #[error(
        "DPDK makes no SWX pipeline of the program, because of {what}: {reason}; if it lacks \
         memory, give registers and counters fewer places, or reserve huge pages"
    )]
    Pipeline {
        /// Part that is refused.
        what: String,
        /// Error of DPDK.
        reason: Refusal,
    },
    /// A call failed.
    #[error("{what} DPDK port {device:?} failed: {reason}; is what it leads to there, and ready?")]
    System {
        /// Operation that was tried.
        what: &'static str,
        /// Name of the port.
        device: String,
        /// Error of DPDK.
        reason: Refusal,
    },
}
