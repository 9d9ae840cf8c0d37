//! The way out by a link, for packets whose neighbor was used recently.

use super::destination;
use super::header::LinkHeader;
use super::learnt::Table;
use super::port::Port;
use super::routes::{Hop, Run};
use natgate_io::Frame;
use std::net::Ipv4Addr;

/// The way out by a link, for the packets of a batch. The run of addresses that the latest packet
/// went to is remembered, with the header of its next hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit<'r> {
    port: &'r Port,
    learnt: Option<&'r Table>,
    /// Addresses with the same way.
    run: Run,
    /// Header of the run's next hop; `None` if the run has no next hop with a known header.
    header: Option<LinkHeader>,
}

impl<'r> Exit<'r> {
    /// The way out by a link, with these learnt routes.
    #[inline]
    pub(super) fn new(port: &'r Port, learnt: Option<&'r Table>) -> Self {
        let run = port.routes.latest(learnt);
        Self { port, learnt, run, header: run.via().and_then(|via| port.neighbors.header(via)) }
    }

    /// Writes the header of a packet that fits the link, if its neighbor was used recently; then
    /// returns true. Most packets need nothing else of [`super::Router::send`].
    ///
    /// # Panics
    /// As [`super::Router::send`].
    #[inline(always)]
    pub(crate) fn send(&mut self, frame: &mut Frame<'_>) -> bool {
        if frame.len() > self.port.mtu {
            return false;
        }
        let Some(to) = destination(frame.bytes()) else { return false };
        let header = match self.run.contains(to) {
            true if self.header.is_some() => self.header,
            true if self.run.is_on_link() => self.port.neighbors.header(to),
            _ => self.find(to),
        };
        match header {
            Some(header) => header.write(frame, self.port.header_len),
            None => return false,
        }
        true
    }

    /// Finds the header for a destination outside the run, whose run is remembered then.
    #[inline(never)]
    fn find(&mut self, to: Ipv4Addr) -> Option<LinkHeader> {
        let Self { port, learnt, .. } = *self;
        let Hop::Neighbor(hop) = port.routes.next_hop(to, learnt) else { return None };
        let header = port.neighbors.header(hop);
        *self = Self::new(port, learnt);
        header
    }
}
