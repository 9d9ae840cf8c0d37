//! Observation of a device in use: its existence and its state.
//!
//! The socket for the questions is opened with the device and stays open, so that a process without
//! free descriptors can still ask. Only ENODEV and ENXIO mean that the device is gone. Any other
//! error (no memory, no descriptor, an interrupted call) tells nothing about the device: its last
//! known state stays, the error is reported once, and the next look asks again.

use crate::interface::Query;
use crate::{Change, Error, LinkInfo};
use std::mem;

/// Result of a look at a device in use.
#[derive(Debug)]
pub(crate) enum Look {
    /// A device of that name exists.
    There(LinkInfo),
    /// No device of that name exists, or one of another kind.
    Gone,
    /// The system did not answer; the first time there is a change to report.
    Unknown(Option<Change>),
}

/// Asks about one device, again and again.
#[derive(Debug)]
pub(crate) struct Monitor {
    query: Query,
    /// True if only Ethernet devices count.
    ethernet: bool,
    /// True if the latest question had no answer.
    failing: bool,
    /// Last reported reason why a device that came back could not be opened.
    refused: Option<String>,
}

impl Monitor {
    /// Opens the socket to ask about an Ethernet device.
    pub(crate) fn ethernet(name: &str) -> Result<Self, Error> {
        Self::new(name, true)
    }

    /// Opens the socket to ask about a device of any kind.
    pub(crate) fn any(name: &str) -> Result<Self, Error> {
        Self::new(name, false)
    }

    fn new(name: &str, ethernet: bool) -> Result<Self, Error> {
        Ok(Self { query: Query::new(name)?, ethernet, failing: false, refused: None })
    }

    /// Reads the state of the device.
    pub(crate) fn read(&self) -> Result<LinkInfo, Error> {
        match self.ethernet {
            true => self.query.read(),
            false => self.query.read_any().map(|(link, _)| link),
        }
    }

    /// Looks at the device.
    pub(crate) fn look(&mut self) -> Look {
        let read = self.read();
        let failed_before = mem::replace(&mut self.failing, false);
        match read {
            Ok(link) => Look::There(link),
            Err(Error::NoDevice(_) | Error::NotEthernet { .. }) => Look::Gone,
            Err(error) => {
                self.failing = true;
                Look::Unknown((!failed_before).then_some(Change::Unknown(error)))
            }
        }
    }

    /// State of a device that had gone; `None` if it is not back yet, as far as known.
    pub(crate) fn back(&self) -> Option<Result<LinkInfo, Error>> {
        match self.read() {
            Ok(link) => Some(Ok(link)),
            Err(error @ Error::NotEthernet { .. }) => Some(Err(error)),
            Err(_) => None,
        }
    }

    /// Records the result of opening a device that came back. The same obstacle is reported once.
    pub(crate) fn reopened(&mut self, opened: Result<(), Error>) -> Option<Change> {
        let obstacle = opened.as_ref().err().map(ToString::to_string);
        let is_known = obstacle.is_some() && obstacle == self.refused;
        self.refused = obstacle;
        (!is_known).then_some(Change::Back(opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> Monitor {
        Monitor::any("lo").expect("there is a loopback device")
    }

    #[test]
    fn errors_that_say_nothing_about_the_device_leave_it_and_are_told_once() {
        let errors = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EINTR, libc::EPERM];
        for error in errors {
            let mut monitor = loopback();
            assert!(matches!(monitor.look(), Look::There(link) if link.index == 1));
            for _ in 0..2 {
                monitor.query.fault.set(Some(error));
                assert!(matches!(monitor.look(), Look::Unknown(Some(Change::Unknown(_)))));
                assert!(matches!(monitor.look(), Look::Unknown(None)), "told once: {error}");
                assert!(monitor.back().is_none());
                monitor.query.fault.set(None);
                assert!(matches!(monitor.look(), Look::There(_)), "it is tried again");
            }
        }
    }

    #[test]
    fn errors_that_say_that_there_is_no_such_device_mean_it_is_gone() {
        for error in [libc::ENODEV, libc::ENXIO] {
            let mut monitor = loopback();
            monitor.query.fault.set(Some(error));
            assert!(matches!(monitor.look(), Look::Gone), "{error}");
            assert!(monitor.back().is_none());
        }
        let mut other = Monitor::ethernet("lo").expect("a socket");
        assert!(matches!(other.look(), Look::Gone), "a device of another kind has the name");
        assert!(matches!(other.back(), Some(Err(Error::NotEthernet { .. }))));
    }

    #[test]
    fn an_obstacle_is_told_once() {
        let mut monitor = loopback();
        let refused = || Err(Error::OccupiedXdp("lo".to_owned()));
        assert!(matches!(monitor.reopened(refused()), Some(Change::Back(Err(_)))));
        assert!(monitor.reopened(refused()).is_none());
        let other = Err(Error::NoTun("lo".to_owned()));
        assert!(matches!(monitor.reopened(other), Some(Change::Back(Err(_)))));
        assert!(matches!(monitor.reopened(Ok(())), Some(Change::Back(Ok(())))));
        assert!(matches!(monitor.reopened(refused()), Some(Change::Back(Err(_)))));
    }
}
