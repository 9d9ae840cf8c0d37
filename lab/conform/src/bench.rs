//! What the suite stands on: two links with a translator between them, and a clock.
//!
//! The suite never asks more of the world than this trait: so it runs against a box on a desk, in
//! real time, and against the program's own translator in simulated time.

use natgate_engine::Side;
use natgate_wire::arp::Mac;
use std::time::Duration;

/// Two links and a clock.
pub trait Bench {
    /// The time since the bench was made.
    fn now(&self) -> Duration;

    /// The hardware address to send from on a side.
    fn mac(&self, side: Side) -> Mac;

    /// The longest IP packet that may be sent on a side, bytes.
    fn mtu(&self, side: Side) -> usize;

    /// Sends an Ethernet frame on a side; a link that cannot take it loses it.
    fn send(&mut self, side: Side, frame: &[u8]);

    /// The next Ethernet frame that comes in on either side, waiting for it until that time;
    /// `None` when none came. An earlier time than now means not to wait.
    fn receive(&mut self, until: Duration) -> Option<(Side, Vec<u8>)>;
}
