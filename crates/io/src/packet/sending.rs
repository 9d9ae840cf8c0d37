//! A device that only sends: what a worker has that joins others on a link whose frames they receive.

use super::{Config, Transmitter, Way};
use crate::{Batch, Change, Device, Error, LinkInfo, Receive, Statistics, Transmit, interface};
use std::os::fd::BorrowedFd;

/// A device by which frames leave and none come.
#[derive(Debug)]
pub struct SendingDevice {
    link: LinkInfo,
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
    /// [`Error`] when there is no such device, it is not Ethernet, or the system does not let us.
    pub fn open(name: &str, config: Config) -> Result<Self, Error> {
        let link = interface::read(name)?;
        let sender = Some(Way::open(&link, &config)?);
        let transmitter = Transmitter { sender, ..Transmitter::default() };
        Ok(Self { link, config, nothing: Nothing, transmitter })
    }

    fn reopen(&mut self, link: LinkInfo) -> Change {
        let opened = Way::open(&link, &self.config);
        self.link = link;
        Change::Back(opened.map(|sender| self.transmitter.sender = Some(sender)))
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
        match interface::read(&self.link.name) {
            Err(_) if self.transmitter.sender.is_some() => {
                self.transmitter.sender = None;
                self.link.up = false;
                Some(Change::Gone)
            }
            Err(_) => None,
            Ok(link) if self.transmitter.sender.is_none() || link.index != self.link.index => {
                Some(self.reopen(link))
            }
            Ok(link) => {
                let before = std::mem::replace(&mut self.link, link);
                if before.mtu != self.link.mtu
                    && let Ok(sender) = Way::open(&self.link, &self.config)
                {
                    self.transmitter.sender = Some(sender);
                }
                match (before.up, self.link.up) {
                    (true, false) => Some(Change::Down),
                    (false, true) => Some(Change::Up),
                    _ => (before != self.link).then_some(Change::Altered),
                }
            }
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
