//! The way out by a link, for packets whose neighbor was used recently.

use super::destination;
use super::learnt::Table;
use super::port::Port;
use super::routes::Hop;
use natgate_io::Frame;

/// The way out by a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exit<'r> {
    pub(super) port: &'r Port,
    pub(super) learnt: Option<&'r Table>,
}

impl Exit<'_> {
    /// Writes the header of a packet that fits the link, if its neighbor was used recently; then
    /// returns true. Most packets need nothing else of [`super::Router::send`].
    ///
    /// # Panics
    /// As [`super::Router::send`].
    #[inline(always)]
    pub(crate) fn send(&self, frame: &mut Frame<'_>) -> bool {
        let port = self.port;
        if frame.len() <= port.mtu
            && let Some(to) = destination(frame.bytes())
            && let Hop::Neighbor(hop) = port.routes.next_hop(to, self.learnt)
            && let Some(header) = port.neighbors.header(hop)
        {
            header.write(frame, port.header_len);
            return true;
        }
        false
    }
}
