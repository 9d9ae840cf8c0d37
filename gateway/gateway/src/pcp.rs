//! Requests for mappings: PCP and NAT-PMP at the gateway's own inside addresses (docs/pcp.md).
//!
//! The translator drops packets to the gateway itself. Requests among them wait, within limits on
//! the queue and on each client's rate. The worker serves some of them each turn, between batches,
//! and no more in a second than the configuration permits. Senders that natgate knows are served
//! first (`queue`). So a flood costs packets no more than the same datagrams to any other port
//! would, and real clients get their answers beside it. A request is served by the worker that owns
//! the mapping's host. No packet from outside gets here. Hosts of IPv6 are served if NAT64
//! translates for them, and hosts behind tunnels of DS-Lite at the gateway's inner address.

mod announce;
mod datagram;
mod epoch;
mod operations;
mod queue;
mod service;

pub(crate) use announce::Announcer;
pub(crate) use datagram::{Datagram, RequestClass};
pub use datagram::{write as write_datagram, write_ipv6 as write_datagram_ipv6};
pub(crate) use epoch::{CommonEpoch, Told};
pub(crate) use service::{Admission, Next, PcpService, Sender};

use natgate_engine::Prefix;
use natgate_ipv6::Prefix6;
pub use natgate_pcp::{ResultCode, SERVER_PORT as PCP_PORT};
use std::time::Duration;

/// Settings of the service for requests for mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcpSettings {
    /// True if requests are answered.
    pub enabled: bool,
    /// Shortest and longest lifetime of a mapping; whole seconds.
    pub lifetime: (Duration, Duration),
    /// Clients that may request mappings for other hosts.
    pub third_party: Vec<Prefix>,
    /// Clients of IPv6 that may request mappings for other hosts of NAT64, and B4s of DS-Lite whose
    /// hosts may request mappings for others behind the same B4.
    pub third_party_ipv6: Vec<Prefix6>,
    /// True if NAT-PMP is served, too.
    pub nat_pmp: bool,
    /// True if clients are notified when mappings may have been lost.
    pub announce: bool,
    /// Most ports of one request.
    pub port_set: u16,
    /// Requests a second of one client, and of all clients. One second's worth may come at once.
    pub requests_per_second: (u32, u32),
}

impl Default for PcpSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            lifetime: (Duration::from_secs(120), Duration::from_secs(86_400)),
            third_party: Vec::new(),
            third_party_ipv6: Vec::new(),
            nat_pmp: true,
            announce: true,
            port_set: 64,
            requests_per_second: (20, 1000),
        }
    }
}

/// Counters of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpCounters {
    /// Answers, by [`ResultCode`].
    pub results: [u64; ResultCode::ALL.len()],
    /// Requests without an answer: too short, or responses.
    pub ignored: u64,
    /// Requests above the rates or without room to wait.
    pub dropped: u64,
    /// Announcements sent.
    pub announced: u64,
}
