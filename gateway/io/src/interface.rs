//! State of a device in the kernel: index, hardware address, MTU, link state, queues. Also the
//! kernel's own treatment of received frames: merging, and removal of VLAN tags.
#![allow(unsafe_code)]

use crate::{Error, LinkInfo};
use natgate_wire::arp::Mac;
use std::fmt;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An offload that merges received frames into ones longer than the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Generic receive offload: the kernel merges.
    Gro,
    /// Large receive offload: the hardware merges.
    Lro,
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gro => "generic-receive-offload",
            Self::Lro => "large-receive-offload",
        })
    }
}

/// Reads the state of an Ethernet device.
pub(crate) fn read(name: &str) -> Result<LinkInfo, Error> {
    Query::new(name)?.read()
}

/// Number of receive queues of a device; one if the device does not tell.
pub(crate) fn receive_queues(name: &str) -> Result<u32, Error> {
    const GET_CHANNELS: u32 = 0x3c;
    // Largest and present numbers of receive, transmit, other and combined channels.
    let mut channels = [0_u32; 9];
    channels[0] = GET_CHANNELS;
    let asked = Query::new(name)?.ethtool(&mut channels);
    let [_, _, _, _, _, receive, _, _, combined] = channels;
    Ok(if asked { receive.saturating_add(combined).max(1) } else { 1 })
}

/// The kernel's own IPv4 address of a device and its prefix length; `None` if it has none.
///
/// # Errors
/// [`Error`] if there is no such device.
pub fn kernel_address(name: &str) -> Result<Option<(Ipv4Addr, u8)>, Error> {
    let query = Query::new(name)?;
    query.ask(libc::SIOCGIFINDEX, "reading the index")?;
    let ask = |request| {
        let answer = query.ask(request, "reading the address").ok()?;
        // SAFETY: both requests fill in an address, which is plain bytes.
        let address = unsafe { answer.ifru_addr };
        // An IPv4 address follows the two bytes of the port.
        let octets = [2, 3, 4, 5].map(|at| address.sa_data[at] as u8);
        Some(Ipv4Addr::from(octets))
    };
    let address = ask(libc::SIOCGIFADDR);
    let mask = ask(libc::SIOCGIFNETMASK);
    Ok(address.zip(mask).map(|(address, mask)| (address, mask.to_bits().count_ones() as u8)))
}

/// Next hop of the kernel's own default route by a device; `None` if there is none.
pub fn kernel_gateway(name: &str) -> Option<Ipv4Addr> {
    default_gateway(&std::fs::read_to_string("/proc/net/route").ok()?, name)
}

/// Finds a device's default gateway in the kernel's table. Each line is a route with the fields
/// device, destination, gateway, flags and others; the eighth field is the mask. Addresses are
/// hexadecimal numbers, as they lie in memory.
fn default_gateway(table: &str, name: &str) -> Option<Ipv4Addr> {
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [device, "00000000", gateway, _, _, _, _, "00000000", ..] = fields[..] else {
            return None;
        };
        let gateway = Ipv4Addr::from(u32::from_str_radix(gateway, 16).ok()?.to_ne_bytes());
        (device == name && !gateway.is_unspecified()).then_some(gateway)
    })
}

/// Switches off offloads that merge received frames; returns the offloads that were on.
pub(crate) fn stop_merging(name: &str) -> Result<Vec<Offload>, Error> {
    const GET_GRO: u32 = 0x2b;
    const SET_GRO: u32 = 0x2c;
    const LRO_FLAG: u32 = 1 << 15;
    let query = Query::new(name)?;
    let mut stopped = Vec::new();
    // A device that does not answer has no such offload.
    if query.get(GET_GRO).is_some_and(|on| on != 0) {
        query.set(SET_GRO, 0)?;
        stopped.push(Offload::Gro);
    }
    if query.clear_flag(LRO_FLAG)? {
        stopped.push(Offload::Lro);
    }
    Ok(stopped)
}

/// True if a device is one end of a veth pair: a cable between parts of this machine.
pub(crate) fn is_veth(name: &str) -> bool {
    const GET_DRIVER: u32 = 0x03;
    // The driver's name is the first string in the structure, 32 bytes long.
    let mut driver = [0_u32; 49];
    driver[0] = GET_DRIVER;
    let asked = Query::new(name).is_ok_and(|query| query.ethtool(&mut driver));
    asked && driver[1].to_ne_bytes() == *b"veth" && driver[2] == 0
}

/// Makes the device leave VLAN tags in received frames; returns true if it removed them before.
///
/// # Errors
/// [`Error`] if the device cannot leave them in.
pub(crate) fn keep_vlan_tags(name: &str) -> Result<bool, Error> {
    const RECEIVE_VLAN_FLAG: u32 = 1 << 8;
    Query::new(name)?.clear_flag(RECEIVE_VLAN_FLAG)
}

/// A socket for questions about one device. The device need not exist when the socket is opened.
#[derive(Debug)]
pub(crate) struct Query {
    socket: OwnedFd,
    name: String,
    /// System error with which each question fails.
    #[cfg(test)]
    pub(crate) fault: std::cell::Cell<Option<libc::c_int>>,
}

impl Query {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        // The kernel cuts longer names, and would answer for another device.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/']) {
            return Err(Error::NoDevice(name.to_owned()));
        }
        Ok(Self {
            socket: open_for_queries(name)?,
            name: name.to_owned(),
            #[cfg(test)]
            fault: std::cell::Cell::default(),
        })
    }

    /// Reads the state of an Ethernet device.
    pub(crate) fn read(&self) -> Result<LinkInfo, Error> {
        match self.read_any()? {
            (link, libc::ARPHRD_ETHER) => Ok(link),
            (link, kind) => Err(Error::NotEthernet { device: link.name, kind }),
        }
    }

    /// Reads the state of a device, and its hardware type (ARPHRD_...). Without Ethernet the
    /// hardware address has no meaning.
    pub(crate) fn read_any(&self) -> Result<(LinkInfo, u16), Error> {
        let index = self.ask(libc::SIOCGIFINDEX, "reading the index")?;
        let hardware = self.ask(libc::SIOCGIFHWADDR, "reading the hardware address")?;
        let mtu = self.ask(libc::SIOCGIFMTU, "reading the MTU")?;
        let flags = self.ask(libc::SIOCGIFFLAGS, "reading the flags")?;
        // SAFETY: each request has filled in its own member of the union; all are plain integers.
        let (index, hardware, mtu, flags) = unsafe {
            (
                index.ifru_ifindex,
                hardware.ifru_hwaddr,
                mtu.ifru_mtu,
                libc::c_int::from(flags.ifru_flags),
            )
        };
        let mut mac = [0; 6];
        for (octet, value) in mac.iter_mut().zip(hardware.sa_data) {
            *octet = value as u8;
        }
        let link = LinkInfo {
            name: self.name.clone(),
            index: index as u32,
            mac: Mac(mac),
            mtu: u32::try_from(mtu).unwrap_or(0),
            up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
        };
        Ok((link, hardware.sa_family))
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: ifreq is integers, arrays of them and a pointer, of which zero is a value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    /// Makes a request that fills in its answer.
    fn ask(
        &self,
        code: libc::c_ulong,
        what: &'static str,
    ) -> Result<libc::__c_anonymous_ifr_ifru, Error> {
        #[cfg(test)]
        if let Some(code) = self.fault.get() {
            return Err(Error::of(what, &self.name, std::io::Error::from_raw_os_error(code)));
        }
        let mut request = self.request();
        // SAFETY: the request outlives the call, and the kernel writes only inside it.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut request) } < 0 {
            return Err(Error::last(what, &self.name));
        }
        Ok(request.ifr_ifru)
    }

    /// Reads a value by an ethtool command; `None` if the device does not know it.
    fn get(&self, command: u32) -> Option<u32> {
        let mut value = [command, 0];
        self.ethtool(&mut value).then_some(value[1])
    }

    /// Sets a value by an ethtool command.
    fn set(&self, command: u32, value: u32) -> Result<(), Error> {
        if self.ethtool(&mut [command, value]) {
            return Ok(());
        }
        Err(Error::last("switching off receive offload", &self.name))
    }

    /// Clears one of the device's legacy flags; returns true if it was set. A device that does not
    /// answer does not have the flag.
    fn clear_flag(&self, flag: u32) -> Result<bool, Error> {
        const GET_FLAGS: u32 = 0x25;
        const SET_FLAGS: u32 = 0x26;
        let Some(flags) = self.get(GET_FLAGS).filter(|flags| flags & flag != 0) else {
            return Ok(false);
        };
        self.set(SET_FLAGS, flags & !flag).map(|()| true)
    }

    /// Makes an ethtool request: a command, then the value that it reads or writes. Returns true if
    /// the device accepted it.
    fn ethtool<const N: usize>(&self, command: &mut [u32; N]) -> bool {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        // SAFETY: request and command outlive the call; every caller passes the structure of its
        // command, whose fields are all such integers.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        result == 0
    }
}

/// Opens a socket that only serves for questions about devices.
fn open_for_queries(device: &str) -> Result<OwnedFd, Error> {
    // SAFETY: no pointers are passed.
    let descriptor =
        unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(Error::last("opening a socket to ask", device));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_not_ethernet() {
        assert!(matches!(read("lo"), Err(Error::NotEthernet { kind: libc::ARPHRD_LOOPBACK, .. })));
    }

    #[test]
    fn the_default_gateway_is_found_by_device() {
        let number = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |device: &str, destination, gateway, mask| {
            let [destination, gateway, mask] = [destination, gateway, mask].map(number);
            format!("{device}\t{destination}\t{gateway}\t0003\t0\t0\t0\t{mask}\t0\t0\t0\n")
        };
        let table = [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n".to_owned(),
            line("eth0", [10, 0, 0, 0], [10, 1, 1, 1], [255, 0, 0, 0]),
            line("eth0", [0; 4], [0; 4], [0; 4]),
            line("eth1", [0; 4], [192, 0, 2, 7], [0; 4]),
            line("eth0", [0; 4], [192, 0, 2, 254], [0; 4]),
        ]
        .concat();
        let found = |name| default_gateway(&table, name).map(|gateway| gateway.octets());
        assert_eq!(found("eth0"), Some([192, 0, 2, 254]));
        assert_eq!(found("eth1"), Some([192, 0, 2, 7]));
        assert_eq!(found("eth2"), None);
        assert_eq!(default_gateway("", "eth0"), None);
    }

    #[test]
    fn devices_that_do_not_exist_are_named() {
        for name in ["", "nosuchdevice0", "lo-and-much-too-long", "lo\0", "../lo"] {
            assert!(matches!(read(name), Err(Error::NoDevice(n)) if n == name), "{name:?}");
        }
    }
}
