//! A device that only sends, for a worker that joins others on a link and does not receive on it.

use super::{Config, Transmitter, Way};
use crate::monitor::{Look, Monitor};
use crate::{Batch, Change, Device, Error, LinkInfo, Receive, Statistics, Transmit};
use std::os::fd::BorrowedFd;

/// A device that sends frames and receives none.
#[derive(Debug)]
pub struct SendingDevice {
    link: LinkInfo,
    monitor: Monitor,
    config: Config,
    nothing: Nothing,
    transmitter: Transmitter,
}

/// The half that never receives.
#[derive(Debug)]
struct Nothing;

impl Receive for Nothing {
    fn receive<'d>(&'d mut self, _: &mut Batch<'d>) {}
}

impl SendingDevice {
    /// Opens a device; it may be down.
    ///
    /// # Errors
    /// [`Error`] if there is no such device, it is not Ethernet, or the system does not permit it.
    pub fn open(name: &str, config: Config) -> Result<Self, Error> {
        let monitor = Monitor::ethernet(name)?;
        let link = monitor.read()?;
        let mut transmitter = Transmitter::default();
        transmitter.set_sender(Way::open(&link, &config)?, link.mtu);
        Ok(Self { link, monitor, config, nothing: Nothing, transmitter })
    }

    fn reopen(&mut self, link: LinkInfo) -> Option<Change> {
        let mtu = link.mtu;
        let opened = Way::open(&link, &self.config);
        self.link = link;
        let opened = opened.map(|sender| self.transmitter.set_sender(sender, mtu));
        self.monitor.reopened(opened)
    }

    fn refresh(&mut self, now: LinkInfo) -> Option<Change> {
        let before = std::mem::replace(&mut self.link, now);
        self.transmitter.follow(&self.link, &self.config);
        match (before.up, self.link.up) {
            (true, false) => Some(Change::Down),
            (false, true) => Some(Change::Up),
            _ => (before != self.link).then_some(Change::Altered),
        }
    }
}

impl Device for SendingDevice {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.nothing, &mut self.transmitter)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        let counts = &self.transmitter.counts;
        Statistics {
            transmitted: counts.sent,
            transmit_full: counts.full,
            transmit_refused: counts.refused,
            ..Statistics::default()
        }
    }

    fn maintain(&mut self) -> Option<Change> {
        match self.monitor.look() {
            Look::Gone if self.transmitter.sender.is_some() => {
                self.transmitter.sender = None;
                self.link.up = false;
                Some(Change::Gone)
            }
            Look::Gone => None,
            Look::Unknown(change) => change,
            Look::There(link)
                if self.transmitter.sender.is_none() || link.index != self.link.index =>
            {
                self.reopen(link)
            }
            Look::There(link) => self.refresh(link),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
