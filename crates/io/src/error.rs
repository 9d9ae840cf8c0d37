//! What can go wrong when a device is opened. Once it is open nothing fails any more: trouble is
//! counted, and mended by [`crate::Device::maintain`].

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system has no device of that name.
    #[error("there is no network device {0:?}; `ip link` lists those that exist")]
    NoDevice(String),
    /// It is not Ethernet.
    #[error(
        "device {device:?} is not Ethernet (its type is {kind}); natgate needs Ethernet devices"
    )]
    NotEthernet {
        /// Its name.
        device: String,
        /// Its hardware type (ARPHRD_...).
        kind: u16,
    },
    /// The process may not open packet sockets.
    #[error(
        "opening a packet socket on {0:?} is not permitted; run as root or with CAP_NET_RAW and \
         CAP_NET_ADMIN"
    )]
    Permission(String),
    /// A system call failed.
    #[error("{what} on device {device:?} failed: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The device's name.
        device: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// The error that the latest system call left behind.
    pub(crate) fn last(what: &'static str, device: &str) -> Self {
        let source = std::io::Error::last_os_error();
        let device = device.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission(device),
            Some(libc::ENODEV | libc::ENXIO) => Self::NoDevice(device),
            _ => Self::System { what, device, source },
        }
    }
}
