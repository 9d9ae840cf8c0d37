//! The file of a TUN device: the few system calls that both halves need.
#![allow(unsafe_code)]

use crate::Error;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/net/tun";

/// Attaches to the device of this name, or creates it; with several queues, if that is wanted.
pub(super) fn open(name: &str, several: bool) -> Result<OwnedFd, Error> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['\0', '/', '%']) {
        return Err(Error::NoDevice(name.to_owned()));
    }
    let failed = |what, source: io::Error| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Error::NoTun(name.to_owned()),
        Some(libc::EPERM | libc::EACCES) => Error::TunPermission(name.to_owned()),
        Some(libc::EBUSY) => Error::TunBusy(name.to_owned()),
        Some(libc::EINVAL) if several => Error::NotTunQueues(name.to_owned()),
        Some(libc::EINVAL) => Error::NotTun(name.to_owned()),
        Some(libc::E2BIG) => Error::TunFull(name.to_owned()),
        _ => Error::System { what, device: name.to_owned(), source },
    };
    let mut options = File::options();
    let options = options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(DEVICE).map_err(|error| failed("opening /dev/net/tun", error))?;
    let file = OwnedFd::from(file);
    // SAFETY: ifreq is integers, arrays of them and a pointer, of which zero is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let queues = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | queues) as libc::c_short;
    // SAFETY: the request outlives the call, and the kernel writes only inside it.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(failed("attaching to the TUN device", io::Error::last_os_error()));
    }
    Ok(file)
}

/// True if the device of the file still exists.
pub(super) fn is_attached(file: &OwnedFd) -> bool {
    // SAFETY: as above.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // SAFETY: the request outlives the call, and the kernel writes only inside it.
    unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) == 0 }
}

/// Reads the next packet; returns its length, cut to the memory's.
pub(super) fn read(file: &OwnedFd, memory: &mut [u8]) -> Option<usize> {
    // SAFETY: the memory outlives the call, and its length is passed.
    let len = unsafe { libc::read(file.as_raw_fd(), memory.as_mut_ptr().cast(), memory.len()) };
    usize::try_from(len).ok()
}

/// Writes a packet to the kernel.
pub(super) fn write(file: &OwnedFd, packet: &[u8]) -> io::Result<()> {
    // SAFETY: the packet outlives the call, and its length is passed.
    let len = unsafe { libc::write(file.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
    if len < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A descriptor that is always readable.
pub(super) fn always_readable(device: &str) -> Result<OwnedFd, Error> {
    // SAFETY: no pointers are passed.
    let descriptor = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Error::last("making an event descriptor", device));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
