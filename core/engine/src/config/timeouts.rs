//! Timeouts of the engine.

use core::time::Duration;

/// Idle timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP (RFC 4787 REQ-5).
    pub udp: Duration,
    /// TCP, connection established (RFC 5382 REQ-5).
    pub tcp_established: Duration,
    /// TCP, connection half open (RFC 7857 section 2.1).
    pub tcp_opening: Duration,
    /// TCP, connection closed or reset (RFC 7857 section 2.1).
    pub tcp_closing: Duration,
    /// ICMP queries (RFC 5508 REQ-2).
    pub icmp: Duration,
    /// Protocols that are translated by address alone.
    pub other: Duration,
    /// Time that a freed UDP port or ICMP query identifier stays unused (RFC 6888 REQ-8).
    pub hold_down: Duration,
    /// Time that fragments wait for the rest of their datagram.
    pub fragment: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        Self {
            //= rfc4787#REQ-5
            //= rfc4787#REQ-5c
            udp: minutes(5),
            //= rfc5382#REQ-5
            //= rfc5597#REQ-5
            tcp_established: minutes(124),
            //= rfc5382#REQ-5-transitory
            //= rfc7857#section-2.1-default
            tcp_opening: minutes(4),
            //= rfc5597#REQ-5-transitory
            tcp_closing: minutes(4),
            //= rfc5508#REQ-2a
            icmp: minutes(1),
            other: minutes(5),
            hold_down: minutes(2),
            fragment: Duration::from_secs(2),
        }
    }
}
