//! The sending half: a batch of frames by one system call, copied by the kernel.
#![allow(unsafe_code)]

use super::{Config, socket};
use crate::{BATCH, Error, Frame, LinkInfo, Lost};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Frames counted on the way out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) full: u64,
    pub(crate) refused: u64,
}

/// A socket that only sends.
#[derive(Debug)]
pub(super) struct Sender {
    socket: OwnedFd,
}

/// A packet socket that only sends, for other back ends.
#[derive(Debug)]
pub(crate) struct Outlet(Sender);

impl Outlet {
    pub(crate) fn open(link: &LinkInfo) -> Result<Self, Error> {
        Sender::open(link, &Config::default()).map(Self)
    }

    /// Sends frames; returns the lost frames, and the counts of this call.
    pub(crate) fn transmit(&self, frames: &[Frame<'_>]) -> (Lost, Counts) {
        let mut counts = Counts::default();
        (self.0.transmit(frames, &mut counts), counts)
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }

    /// True if the device has been taken away.
    pub(crate) fn is_cut_off(&self) -> bool {
        socket::bound_index(&self.0.socket).is_none()
    }
}

/// Consequence of a failed send for the frames after it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    /// No consequence: the call was interrupted.
    Again,
    /// The device's queue is full; the next frame may fit.
    Full,
    /// This socket's buffer is full; the other frames would not fit either.
    AllFull,
    /// This frame is refused, perhaps because it is too long.
    Refused,
    /// The link is down or gone.
    AllRefused,
}

impl Sender {
    pub(super) fn open(link: &LinkInfo, config: &Config) -> Result<Self, Error> {
        let socket = socket::open(&link.name)?;
        socket::set_send_buffer(&socket, config.send_buffer_bytes());
        socket::bind(&socket, &link.name, link.index, 0)?;
        Ok(Self { socket })
    }

    pub(super) fn transmit(&self, frames: &[Frame<'_>], counts: &mut Counts) -> Lost {
        assert!(frames.len() <= BATCH);
        let mut lost = Lost::NONE;
        let mut next = 0;
        while next < frames.len() {
            let rest = frames.len() - next;
            let trouble = match self.send(&frames[next..]) {
                Ok(sent) => {
                    counts.sent += sent as u64;
                    next += sent;
                    continue;
                }
                Err(error) => diagnose(&error),
            };
            let (count, counter) = match trouble {
                Trouble::Again => continue,
                Trouble::Full => (1, &mut counts.full),
                Trouble::AllFull => (rest, &mut counts.full),
                Trouble::Refused => (1, &mut counts.refused),
                Trouble::AllRefused => (rest, &mut counts.refused),
            };
            *counter += count as u64;
            (next..next + count).for_each(|index| lost.mark(index));
            next += count;
        }
        lost
    }

    /// Sends frames up to the first that fails, at least one.
    fn send(&self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: mmsghdr is integers and pointers, of which zero is a value.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for ((part, message), frame) in parts.iter_mut().zip(&mut messages).zip(frames) {
            let bytes = frame.bytes();
            part.iov_base = bytes.as_ptr().cast_mut().cast();
            part.iov_len = bytes.len();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: as many messages are filled in as are passed; parts and frames outlive the call,
        // which only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                frames.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
            )
        };
        if sent > 0 { Ok(sent as usize) } else { Err(io::Error::last_os_error()) }
    }
}

/// Consequence of an error of sending.
pub(super) fn diagnose(error: &io::Error) -> Trouble {
    match error.raw_os_error() {
        Some(libc::EINTR) => Trouble::Again,
        Some(libc::EAGAIN) => Trouble::AllFull,
        Some(libc::ENOBUFS | libc::ENOMEM) => Trouble::Full,
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Trouble::AllRefused,
        _ => Trouble::Refused,
    }
}
