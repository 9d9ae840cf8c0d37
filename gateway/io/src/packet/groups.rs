//! Frames to multicast groups: a network card passes only those of groups that somebody has joined.
//!
//! Neighbor Discovery sends to a group for each address. The groups change with the addresses, so
//! the device is asked for the frames of all groups. Any back end of the kernel's devices profits.

use super::socket;
use crate::{Error, kernel_index};
use std::os::fd::OwnedFd;

/// A device passes the frames of all groups as long as this value lives and the device exists.
#[derive(Debug)]
pub struct AllGroups {
    _socket: OwnedFd,
    index: u32,
}

impl AllGroups {
    /// Asks a device for the frames of all groups.
    ///
    /// # Errors
    /// [`Error`] if there is no such device, or the process may not do that.
    pub fn join(device: &str) -> Result<Self, Error> {
        let what = "asking for the frames of all groups";
        let index = kernel_index(device).ok().flatten();
        let index = index.ok_or_else(|| Error::NoDevice(device.to_owned()))?;
        let socket = socket::open(device)?;
        let request = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_ALLMULTI as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        socket::set(&socket, device, libc::PACKET_ADD_MEMBERSHIP, request, what)?;
        Ok(Self { _socket: socket, index })
    }

    /// True if the device of that name is still the one that was asked. If not, join again.
    pub fn is_of(&self, device: &str) -> bool {
        kernel_index(device).is_ok_and(|index| index == Some(self.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's flags of a device.
    fn passes_all_groups(device: &str) -> bool {
        const ALL_GROUPS: u32 = libc::IFF_ALLMULTI as u32;
        let text = std::fs::read_to_string(format!("/sys/class/net/{device}/flags"));
        let text = text.expect("a device of this machine");
        let flags = text.trim().trim_start_matches("0x");
        u32::from_str_radix(flags, 16).expect("a number") & ALL_GROUPS != 0
    }

    #[test]
    fn a_device_passes_all_groups_while_somebody_asks() {
        assert!(!passes_all_groups("lo"));
        let first = AllGroups::join("lo").expect("the tests run as root");
        let second = AllGroups::join("lo").expect("the tests run as root");
        assert!(first.is_of("lo") && !first.is_of("no-such-device"));
        assert!(passes_all_groups("lo"));
        drop(first);
        assert!(passes_all_groups("lo"));
        drop(second);
        assert!(!passes_all_groups("lo"));
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let error = AllGroups::join("no-such-device").expect_err("there is none");
        assert!(error.to_string().contains("no network device \"no-such-device\""), "{error}");
    }
}
