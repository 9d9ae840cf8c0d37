//! Packet sockets: the few system calls that both halves need.
#![allow(unsafe_code)]

use crate::Error;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Opens a packet socket that receives nothing until it is bound to a protocol.
pub(super) fn open(device: &str) -> Result<OwnedFd, Error> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers are passed.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if descriptor < 0 {
        return Err(Error::last("opening a packet socket", device));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Binds to a device and an EtherType; 0 receives nothing.
pub(super) fn bind(socket: &OwnedFd, device: &str, index: u32, protocol: u16) -> Result<(), Error> {
    // SAFETY: sockaddr_ll is plain integers, of which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as libc::c_int;
    // SAFETY: the address outlives the call, and its length is passed.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    // ENETDOWN: the device is down; the socket is bound all the same and receives once it is up.
    if result < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENETDOWN) {
        return Err(Error::last("binding a packet socket", device));
    }
    Ok(())
}

/// Index of the device that the socket is bound to; `None` if that device is gone.
pub(super) fn bound_index(socket: &OwnedFd) -> Option<u32> {
    // SAFETY: sockaddr_ll is plain integers, of which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: address and length outlive the call, and the length is the address's.
    let result =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    if result < 0 { None } else { u32::try_from(address.sll_ifindex).ok() }
}

/// Sets an option of the packet level.
pub(super) fn set<T: Copy>(
    socket: &OwnedFd,
    device: &str,
    option: libc::c_int,
    value: T,
    what: &'static str,
) -> Result<(), Error> {
    set_at(socket, libc::SOL_PACKET, option, value).map_err(|_| Error::last(what, device))
}

/// Maps a socket's ring of `len` bytes.
pub(super) fn map(
    socket: &OwnedFd,
    len: usize,
    what: &'static str,
    device: &str,
) -> Result<NonNull<u8>, Error> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choosing touches nothing that exists.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, socket.as_raw_fd(), 0) };
    let mapped = NonNull::new(memory.cast()).filter(|_| memory != libc::MAP_FAILED);
    mapped.ok_or_else(|| Error::last(what, device))
}

/// Makes the socket refuse every frame, until [`let_in`].
pub(super) fn shut(socket: &OwnedFd, device: &str) -> Result<(), Error> {
    let refuse =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    set_at(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program(&refuse))
        .map_err(|()| Error::last("attaching a filter", device))
}

/// Makes the socket take frames again.
pub(super) fn let_in(socket: &OwnedFd, device: &str) -> Result<(), Error> {
    let nothing: libc::c_int = 0;
    set_at(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, nothing)
        .map_err(|()| Error::last("detaching a filter", device))
}

/// Sets the program by which the socket's fanout group chooses among its sockets.
pub(super) fn steer(
    socket: &OwnedFd,
    device: &str,
    filter: &[libc::sock_filter],
) -> Result<(), Error> {
    let what = "steering frames to workers";
    set(socket, device, libc::PACKET_FANOUT_DATA, program(filter), what)
}

fn program(filter: &[libc::sock_filter]) -> libc::sock_fprog {
    let len = u16::try_from(filter.len()).unwrap_or(u16::MAX);
    libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() }
}

/// Number of the fanout group that the socket has joined.
pub(super) fn fanout_number(socket: &OwnedFd, device: &str) -> Result<u16, Error> {
    let mut value: u32 = 0;
    if get_at(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &mut value) {
        Ok(value as u16)
    } else {
        Err(Error::last("asking for the fanout group", device))
    }
}

/// Sets the bytes that may wait to be sent. Without the right to exceed the system's limit, sets
/// that limit.
pub(super) fn set_send_buffer(socket: &OwnedFd, bytes: libc::c_int) {
    if set_at(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes).is_err() {
        // The system's default works as well, only with a shorter queue.
        let _ = set_at(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
    }
}

/// Sets the bytes that may wait to be received beside a ring, as far as the system permits.
pub(super) fn set_receive_buffer(socket: &OwnedFd, bytes: libc::c_int) {
    if set_at(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
        // The system's default works as well, only with a shorter queue.
        let _ = set_at(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes);
    }
}

/// Receives a waiting frame to the front of a buffer; returns its length, cut to the buffer's.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the buffer outlives the call, and its length is passed.
    let len = unsafe {
        libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
    };
    usize::try_from(len).ok()
}

fn set_at<T: Copy>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> Result<(), ()> {
    // SAFETY: the value outlives the call, and its length is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(()) } else { Ok(()) }
}

/// Takes the socket's pending error, 0 if none.
pub(super) fn take_error(socket: &OwnedFd) -> libc::c_int {
    let mut error: libc::c_int = 0;
    if get_at(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error) { error } else { 0 }
}

/// Takes the number of frames that found the ring full since the last call.
pub(super) fn take_drops(socket: &OwnedFd) -> u64 {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    get_at(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut statistics);
    statistics.tp_drops.into()
}

/// Reads an option; `T` must be plain integers. Returns true if the option could be read.
fn get_at<T: Copy>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut T,
) -> bool {
    let mut len = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: value and length outlive the call; the kernel writes at most `len` bytes, and every
    // caller's type takes any bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (value as *mut T).cast(), &raw mut len)
    };
    result == 0
}
