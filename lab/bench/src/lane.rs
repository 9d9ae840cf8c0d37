//! A device in memory, made of its two halves. It counts nothing and never changes.

use natgate_io::{Change, Device, LinkInfo, Receive, Statistics, Transmit};
use natgate_wire::arp::Mac;
use std::os::fd::BorrowedFd;

/// A device whose halves are in memory.
#[derive(Debug)]
pub(crate) struct Lane<R, T> {
    link: LinkInfo,
    source: R,
    sink: T,
}

impl<R, T> Lane<R, T> {
    /// A device with this name, hardware address and MTU, bytes.
    pub(crate) fn new(name: &str, mac: Mac, mtu: u16, (source, sink): (R, T)) -> Self {
        let link = LinkInfo { name: name.to_owned(), index: 1, mac, mtu: mtu.into(), up: true };
        Self { link, source, sink }
    }
}

impl<R: Receive + Send, T: Transmit + Send> Device for Lane<R, T> {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.source, &mut self.sink)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn maintain(&mut self) -> Option<Change> {
        None
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
