//! Errors of opening a device. An open device does not fail any more: problems are counted, and
//! [`crate::Device::maintain`] recovers from them.

/// Reason why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system has no device of that name.
    #[error("there is no network device {0:?}; `ip link` lists those that exist")]
    NoDevice(String),
    /// The device is not Ethernet.
    #[error(
        "device {device:?} is not Ethernet (its type is {kind}); natgate needs Ethernet devices"
    )]
    NotEthernet {
        /// Name of the device.
        device: String,
        /// Hardware type of the device (ARPHRD_...).
        kind: u16,
    },
    /// The process may not open packet sockets.
    #[error(
        "opening a packet socket on {0:?} is not permitted; run as root or with CAP_NET_RAW and \
         CAP_NET_ADMIN"
    )]
    Permission(String),
    /// The process may not use XDP.
    #[error(
        "using AF_XDP on device {0:?} is not permitted; run as root or with CAP_NET_ADMIN, \
         CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK"
    )]
    XdpPermission(String),
    /// The kernel or the device's driver lacks AF_XDP.
    #[error(
        "{what} for device {device:?} failed: {source}; this kernel or driver does not know \
         AF_XDP, so use backend = \"af-packet\""
    )]
    XdpUnsupported {
        /// Operation that was tried.
        what: &'static str,
        /// Name of the device.
        device: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Another program has the device.
    #[error(
        "device {0:?} has another XDP program or AF_XDP socket; stop who uses it, or take the \
         program off with `ip link set dev {0} xdp off`"
    )]
    OccupiedXdp(String),
    /// Frames of that length do not fit the memory for them.
    #[error(
        "device {device:?} has an MTU of {mtu}, and AF_XDP carries at most {most} here; lower it \
         with `ip link set dev {device} mtu {most}`, or use backend = \"af-packet\""
    )]
    MtuTooLarge {
        /// Name of the device.
        device: String,
        /// MTU of the device, bytes.
        mtu: u32,
        /// Largest MTU that works, bytes.
        most: u32,
    },
    /// The device has fewer receive queues than are to be served.
    #[error(
        "device {device:?} has {there} receive queues and {wanted} are wanted; `ethtool -L \
         {device} combined {wanted}` (or rx {wanted}) sets their number where the device can"
    )]
    TooFewQueues {
        /// Name of the device.
        device: String,
        /// Queues that the device has.
        there: u32,
        /// Queues that are wanted.
        wanted: u32,
    },
    /// The system has no TUN devices.
    #[error(
        "TUN device {0:?} cannot be opened because there is no /dev/net/tun; load the kernel's \
         module (`modprobe tun`), or let the container have the file"
    )]
    NoTun(String),
    /// The process may not attach to the TUN device.
    #[error(
        "attaching to TUN device {0:?} is not permitted; run as root or with CAP_NET_ADMIN, or \
         make it yours with `ip tuntap add dev {0} mode tun user NAME`"
    )]
    TunPermission(String),
    /// Another process has the TUN device.
    #[error("TUN device {0:?} is in use by another process; stop it, or use another device")]
    TunBusy(String),
    /// The device is of another kind.
    #[error(
        "device {0:?} exists and is no TUN device with one queue; use another name, or \
         backend = \"af-packet\" for a device that exists"
    )]
    NotTun(String),
    /// The device is of another kind, or cannot have several queues.
    #[error(
        "device {0:?} exists and is no TUN device for several workers; make it anew with `ip \
         tuntap add dev {0} mode tun multi_queue`, or use one worker"
    )]
    NotTunQueues(String),
    /// The device has as many queues as it can have.
    #[error("TUN device {0:?} has no more queues; use fewer workers")]
    TunFull(String),
    /// A system call failed.
    #[error("{what} on device {device:?} failed: {source}")]
    System {
        /// Operation that was tried.
        what: &'static str,
        /// Name of the device.
        device: String,
        /// Error of the system.
        source: std::io::Error,
    },
}

impl Error {
    /// The error of the latest system call.
    pub(crate) fn last(what: &'static str, device: &str) -> Self {
        let source = std::io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission(device.to_owned()),
            _ => Self::of(what, device, source),
        }
    }

    /// The error of the latest system call, if AF_XDP needs that call.
    pub(crate) fn last_xdp(what: &'static str, device: &str) -> Self {
        Self::of_xdp(what, device, std::io::Error::last_os_error())
    }

    /// Converts the error of a call that AF_XDP needs.
    pub(crate) fn of_xdp(what: &'static str, device: &str, source: std::io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::XdpPermission(device.to_owned()),
            Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => {
                Self::XdpUnsupported { what, device: device.to_owned(), source }
            }
            _ => Self::of(what, device, source),
        }
    }

    /// Converts the error of a system call.
    pub(crate) fn of(what: &'static str, device: &str, source: std::io::Error) -> Self {
        let device = device.to_owned();
        match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::NoDevice(device),
            _ => Self::System { what, device, source },
        }
    }
}
