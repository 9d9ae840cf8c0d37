//! What the kernel knows of a device: index, hardware address, MTU, state; and the receive offloads
//! that merge frames.
#![allow(unsafe_code)]

use super::socket;
use crate::{Error, LinkInfo};
use natgate_wire::arp::Mac;
use std::fmt;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// Something that merges received frames into ones longer than the MTU.
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

/// Reads what a device is.
pub(super) fn read(name: &str) -> Result<LinkInfo, Error> {
    let query = Query::new(name)?;
    let index = query.ask(libc::SIOCGIFINDEX, "reading the index")?;
    let hardware = query.ask(libc::SIOCGIFHWADDR, "reading the hardware address")?;
    let mtu = query.ask(libc::SIOCGIFMTU, "reading the MTU")?;
    let flags = query.ask(libc::SIOCGIFFLAGS, "reading the flags")?;
    // SAFETY: each request has filled in the member that belongs to it; all are plain integers.
    let (index, hardware, mtu, flags) = unsafe {
        (
            index.ifru_ifindex,
            hardware.ifru_hwaddr,
            mtu.ifru_mtu,
            libc::c_int::from(flags.ifru_flags),
        )
    };
    if hardware.sa_family != libc::ARPHRD_ETHER {
        return Err(Error::NotEthernet { device: name.to_owned(), kind: hardware.sa_family });
    }
    let mut mac = [0; 6];
    for (octet, value) in mac.iter_mut().zip(hardware.sa_data) {
        *octet = value as u8;
    }
    Ok(LinkInfo {
        name: name.to_owned(),
        index: index as u32,
        mac: Mac(mac),
        mtu: u32::try_from(mtu).unwrap_or(0),
        up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
    })
}

/// The kernel's own IPv4 address of a device and its prefix length; `None` when it has none.
///
/// # Errors
/// [`Error`] when there is no such device.
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

/// The next hop of the kernel's own default route by a device; `None` when it has none.
pub fn kernel_gateway(name: &str) -> Option<Ipv4Addr> {
    default_gateway(&std::fs::read_to_string("/proc/net/route").ok()?, name)
}

/// Finds a device's default gateway in the kernel's table: a line a route, the fields being device,
/// destination, gateway, flags and others, of which the eighth is the mask; addresses are numbers
/// in hexadecimal, as they lie in memory.
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

/// Switches off what merges received frames; returns what was on.
pub(super) fn stop_merging(name: &str) -> Result<Vec<Offload>, Error> {
    const GET_FLAGS: u32 = 0x25;
    const SET_FLAGS: u32 = 0x26;
    const GET_GRO: u32 = 0x2b;
    const SET_GRO: u32 = 0x2c;
    const LRO_FLAG: u32 = 1 << 15;
    let query = Query::new(name)?;
    let mut stopped = Vec::new();
    // A device that cannot be asked has no such offload.
    if query.ethtool(GET_GRO, 0).is_ok_and(|on| on != 0) {
        query.ethtool(SET_GRO, 0)?;
        stopped.push(Offload::Gro);
    }
    if let Ok(flags) = query.ethtool(GET_FLAGS, 0)
        && flags & LRO_FLAG != 0
    {
        query.ethtool(SET_FLAGS, flags & !LRO_FLAG)?;
        stopped.push(Offload::Lro);
    }
    Ok(stopped)
}

/// A socket to ask about one device by.
struct Query<'a> {
    socket: OwnedFd,
    name: &'a str,
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

impl<'a> Query<'a> {
    fn new(name: &'a str) -> Result<Self, Error> {
        // The kernel cuts longer names off, and would answer for another device.
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/']) {
            return Err(Error::NoDevice(name.to_owned()));
        }
        Ok(Self { socket: socket::open_for_queries(name)?, name })
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
        let mut request = self.request();
        // SAFETY: the request outlives the call, and the kernel writes only inside it.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut request) } < 0 {
            return Err(Error::last(what, self.name));
        }
        Ok(request.ifr_ifru)
    }

    /// Makes a request of the kind that ethtool makes; returns its answer.
    fn ethtool(&self, command: u32, data: u32) -> Result<u32, Error> {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        let mut value = EthtoolValue { command, data };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: request and value outlive the call; the commands used read and write one value.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } < 0 {
            return Err(Error::last("switching off receive offload", self.name));
        }
        Ok(value.data)
    }
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
