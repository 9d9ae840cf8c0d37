//! AF_XDP sockets: the few system calls that both halves need.
#![allow(unsafe_code)]

use super::area::Area;
use super::program::{BETWEEN_TRIES, TRIES};
use crate::{Error, LinkInfo};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;

/// Bytes of frames that may be on their way in the kernel.
const SEND_BUFFER: libc::c_int = 16 << 20;

/// Opens a socket.
pub(super) fn open(device: &str) -> Result<OwnedFd, Error> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let descriptor = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    if descriptor < 0 {
        return Err(Error::last_xdp("opening an AF_XDP socket", device));
    }
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // Without this permission, fewer frames can be on their way.
    let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER);
    Ok(socket)
}

/// Registers an area. Each socket registers it again, so that no socket depends on another.
pub(super) fn register(socket: &OwnedFd, area: &Area, device: &str) -> Result<(), Error> {
    let registration = libc::xdp_umem_reg_v1 {
        addr: area.address(),
        len: area.len() as u64,
        chunk_size: area.chunk_len() as u32,
        headroom: 0,
    };
    set(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, registration)
        .map_err(|_| Error::last_xdp("registering memory for frames", device))
}

/// Sets the number of a ring's entries.
pub(super) fn size_ring(
    socket: &OwnedFd,
    ring: libc::c_int,
    entries: u32,
    device: &str,
) -> Result<(), Error> {
    set(socket, libc::SOL_XDP, ring, entries).map_err(|_| Error::last_xdp("making a ring", device))
}

/// Offsets in the mappings of the rings.
pub(super) fn ring_offsets(
    socket: &OwnedFd,
    device: &str,
) -> Result<libc::xdp_mmap_offsets, Error> {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    if get(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets) {
        Ok(offsets)
    } else {
        Err(Error::last_xdp("asking for the rings' layout", device))
    }
}

/// Binds to a device's queue; waits a little for its former owner. The kernel uses zero copy if the
/// driver has it, unless `copy` is set.
pub(super) fn bind(socket: &OwnedFd, link: &LinkInfo, queue: u32, copy: bool) -> Result<(), Error> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | if copy { libc::XDP_COPY } else { 0 },
        sxdp_ifindex: link.index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let mut tries = 0;
    loop {
        // SAFETY: the address outlives the call, and its length is passed.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of_val(&address) as libc::socklen_t,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        tries += 1;
        match error.raw_os_error() {
            Some(libc::EBUSY) if tries < TRIES => thread::sleep(BETWEEN_TRIES),
            Some(libc::EBUSY) => return Err(Error::OccupiedXdp(link.name.clone())),
            _ => return Err(Error::of_xdp("binding an AF_XDP socket", &link.name, error)),
        }
    }
}

/// True if the driver writes frames into the area itself.
pub(super) fn is_zero_copy(socket: &OwnedFd) -> bool {
    let mut options = libc::xdp_options { flags: 0 };
    get(socket, libc::SOL_XDP, libc::XDP_OPTIONS, &mut options)
        && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

/// Sets the least number of frames that one call may send, if the kernel has that option.
pub(super) fn set_send_budget(socket: &OwnedFd, frames: u32) {
    const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
    // Linux before 6.17 sends 32 frames a call, and is called more often.
    let _ = set(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, frames);
}

/// Takes the socket's pending error; the socket has one when its device is gone.
pub(super) fn take_error(socket: &OwnedFd) -> bool {
    let mut error: libc::c_int = 0;
    get(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error) && error != 0
}

/// Frames that the kernel could not put into the area.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overruns {
    /// Frames without an empty chunk.
    pub(super) no_buffer: u64,
    /// Frames that found the receive ring full.
    pub(super) ring_full: u64,
}

impl Overruns {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            no_buffer: self.no_buffer + other.no_buffer,
            ring_full: self.ring_full + other.ring_full,
        }
    }
}

/// Frames that the kernel could not put into the area, since the socket was opened.
pub(super) fn overruns(socket: &OwnedFd) -> Overruns {
    let mut statistics = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    get(socket, libc::SOL_XDP, libc::XDP_STATISTICS, &mut statistics);
    Overruns { no_buffer: statistics.rx_dropped, ring_full: statistics.rx_ring_full }
}

/// Makes the kernel send the entries of the transmit ring.
pub(super) fn send(socket: &OwnedFd) -> io::Result<()> {
    let (none, no_address) = (std::ptr::null(), std::ptr::null());
    // SAFETY: nothing is read from the null pointers, since the lengths are zero.
    let result =
        unsafe { libc::sendto(socket.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, no_address, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the driver look at the fill ring.
pub(super) fn wake_receiver(socket: &OwnedFd) {
    let null = std::ptr::null_mut();
    // SAFETY: nothing is written to the null pointer, since the length is zero. An error needs no
    // treatment: the next call tries again.
    unsafe { libc::recv(socket.as_raw_fd(), null, 0, libc::MSG_DONTWAIT) };
}

fn set<T: Copy>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> Result<(), ()> {
    let len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the value outlives the call, and its length is passed.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if result < 0 { Err(()) } else { Ok(()) }
}

/// Reads an option; `T` must be plain integers. Returns true if the option could be read.
fn get<T: Copy>(socket: &OwnedFd, level: libc::c_int, option: libc::c_int, value: &mut T) -> bool {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: value and length outlive the call; the kernel writes at most `len` bytes, and every
    // caller's type takes any bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (value as *mut T).cast(), &raw mut len)
    };
    result == 0
}
