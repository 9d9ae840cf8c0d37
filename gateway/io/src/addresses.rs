//! The kernel's own IPv4 addresses on a device, as `getifaddrs` lists them.
#![allow(unsafe_code)]

use crate::Error;
use std::ffi::{CStr, CString};
use std::io;
use std::net::Ipv4Addr;

/// All IPv4 addresses that the kernel has on a device, in the kernel's order; none if there is no
/// such device.
///
/// # Errors
/// [`Error`] if the system cannot list the addresses.
pub fn kernel_addresses(device: &str) -> Result<Vec<Ipv4Addr>, Error> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the place for the list outlives the call.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return Err(Error::last("reading the addresses", device));
    }
    let mut addresses = Vec::new();
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: the list is whole until it is freed below, and only this function has it.
        let one = unsafe { &*entry };
        // SAFETY: an entry's name is a string.
        let name = unsafe { CStr::from_ptr(one.ifa_name) };
        if name.to_bytes() == device.as_bytes() && !one.ifa_addr.is_null() {
            // SAFETY: an address names its family; an address of IPv4 is such a structure, aligned
            // by the system.
            let address = unsafe {
                let is_ipv4 = libc::c_int::from((*one.ifa_addr).sa_family) == libc::AF_INET;
                is_ipv4.then(|| (*one.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr)
            };
            addresses.extend(address.map(|bits| Ipv4Addr::from(bits.to_ne_bytes())));
        }
        entry = one.ifa_next;
    }
    // SAFETY: the list came from the system and is freed once.
    unsafe { libc::freeifaddrs(list) };
    Ok(addresses)
}

/// Index that the kernel has for a device; `None` if there is no such device.
///
/// # Errors
/// The system's error if no descriptor or no memory is free.
pub fn kernel_index(device: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(device) else { return Ok(None) };
    // SAFETY: the name is a string that outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index != 0 {
        return Ok(Some(index));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_what_is_not_there_has_none() {
        let loopback = kernel_addresses("lo").expect("the system tells");
        assert!(loopback.contains(&Ipv4Addr::LOCALHOST), "{loopback:?}");
        assert!(kernel_addresses("nosuchdevice0").expect("the system tells").is_empty());
        let index = |name| kernel_index(name).expect("the system tells");
        assert_eq!((index("lo"), index("nosuchdevice0")), (Some(1), None));
        assert_eq!(index("l\0o"), None);
    }
}
