//! The link to the partner as a worker sees it.

use super::LinkStatus;
use natgate_pair::Boot;

/// Bytes that a link adds to a datagram of the tunnel.
pub const TUNNEL_HEAD: usize = 4;

/// Carries messages to and from the partner. No call waits.
pub trait PartnerLink: Send {
    /// Sends a message of replication, which may be lost, and which may wait for
    /// [`PartnerLink::flush`]. Returns `false` if there is no connection or no room.
    fn send(&mut self, message: Vec<u8>) -> bool;
    /// As [`PartnerLink::send`]. The caller keeps the memory of the message.
    fn send_copy(&mut self, message: &[u8]) -> bool {
        self.send(message.to_vec())
    }
    /// Messages of replication that wait go now.
    fn flush(&mut self);
    /// The next message of replication that has come.
    fn receive(&mut self) -> Option<Vec<u8>>;
    /// Bytes of a message that can be sent whole.
    fn room(&self) -> usize;
    /// Sets the view that the partner is told, again and again.
    fn tell(&mut self, view: Vec<u8>);
    /// The latest view of the partner that has come since the last call.
    fn heard(&mut self) -> Option<Vec<u8>>;
    /// Sends a datagram of the tunnel, which may be lost and goes behind messages. It is
    /// [`TUNNEL_HEAD`] bytes shorter than a message of [`PartnerLink::room`] bytes. Returns `false`
    /// if there is no connection or no room.
    fn pass(&mut self, _datagram: &[u8]) -> bool {
        false
    }
    /// The next datagram of the tunnel that has come.
    fn passed(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// State of the link.
    fn status(&self) -> LinkStatus;
    /// The partner's processes up to this boot number have ended, as its guardian has said since
    /// the last call.
    fn ended(&mut self) -> Option<Boot>;
    /// Tells this node's guardian that the worker makes progress, as the process with this boot
    /// number.
    fn beat(&mut self, boot: Boot);
}
