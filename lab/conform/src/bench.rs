//! The surroundings of the suite: two links with a translator between them, and a clock.
//!
//! The suite needs only this trait. So it tests a device on a desk in real time, and the program's
//! own translator in simulated time.

use natgate_engine::Side;
use natgate_wire::arp::Mac;
use std::time::Duration;

/// Two links and a clock.
pub trait Bench {
    /// Time since the bench was created.
    fn now(&self) -> Duration;

    /// Hardware address for packets from a side.
    fn mac(&self, side: Side) -> Mac;

    /// Longest IP packet on a side, bytes.
    fn mtu(&self, side: Side) -> usize;

    /// Sends an Ethernet frame on a side; a link that cannot take it loses it.
    fn send(&mut self, side: Side, frame: &[u8]);

    /// Waits until `until` for the next Ethernet frame on either side; `None` if none came. An
    /// earlier time than now means no wait.
    fn receive(&mut self, until: Duration) -> Option<(Side, Vec<u8>)>;
}
