//! Waiting for devices.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Most descriptors to wait for at once.
const MOST: usize = 96;

/// Waits until a descriptor is readable or in error, or the time is over; a signal ends the wait
/// early. Returns true if any descriptor was in error.
///
/// # Errors
/// The system's error if it cannot wait.
///
/// # Panics
/// If there are more than 96 descriptors.
#[allow(unsafe_code)]
pub fn wait(descriptors: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<bool> {
    assert!(descriptors.len() <= MOST);
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MOST];
    for (entry, descriptor) in polled.iter_mut().zip(descriptors) {
        entry.fd = descriptor.as_raw_fd();
        entry.events = libc::POLLIN;
    }
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the array holds as many entries as are passed, the time outlives the call, and a null
    // signal mask leaves the mask as it is.
    let ready = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            &timeout,
            std::ptr::null(),
        )
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
    }
    Ok(polled.iter().any(|entry| entry.revents & !libc::POLLIN != 0))
}

/// A descriptor that is readable when any of `watched` is readable or in error.
///
/// # Errors
/// The system's error if it cannot watch them.
#[allow(unsafe_code)]
pub(crate) fn watch<'a>(watched: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let epoll = unsafe { OwnedFd::from_raw_fd(descriptor) };
    for one in watched {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let (epoll, one) = (epoll.as_raw_fd(), one.as_raw_fd());
        // SAFETY: the event outlives the call.
        if unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, one, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(epoll)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn ends_when_the_time_is_over_and_not_before() -> io::Result<()> {
        let (_writer, reader) = UnixStream::pair()?;
        let begin = Instant::now();
        assert!(!wait(&[reader.as_fd()], Duration::from_millis(20))?);
        assert!(begin.elapsed() >= Duration::from_millis(20));
        Ok(())
    }

    #[test]
    fn ends_when_something_comes() -> io::Result<()> {
        let (mut writer, reader) = UnixStream::pair()?;
        writer.write_all(b"x")?;
        let begin = Instant::now();
        assert!(!wait(&[reader.as_fd()], Duration::from_secs(60))?);
        assert!(begin.elapsed() < Duration::from_secs(30));
        Ok(())
    }

    #[test]
    fn says_when_a_descriptor_is_in_error() -> io::Result<()> {
        let (writer, reader) = UnixStream::pair()?;
        drop(writer);
        assert!(wait(&[reader.as_fd()], Duration::from_secs(60))?);
        Ok(())
    }
}
