//! Requests for mappings: PCP and NAT-PMP at the gateway's own inside addresses (docs/pcp.md).
//!
//! The translator drops what is addressed to the gateway itself. Of that, requests wait, as many as
//! there is room for and as each client may send a second; the worker serves some of them each
//! turn, between batches, and no more in a second than the configuration says. Senders that natgate
//! knows are served first (`queue`). So a flood costs packets no more than the same datagrams to
//! any other port would, and real clients get their answers beside it. The worker of the host whose
//! mapping it is to be serves a request. Nothing that came from outside gets here.

mod announce;
mod datagram;
mod queue;
mod service;

pub(crate) use announce::Announcer;
pub use datagram::write as write_datagram;
pub(crate) use datagram::{Datagram, RequestClass};
pub(crate) use service::{Admission, Next, PcpService, Sender};

use natgate_engine::Prefix;
pub use natgate_pcp::{ResultCode, SERVER_PORT as PCP_PORT};
use std::time::Duration;

/// What the operator says of requests for mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcpSettings {
    /// Whether they are answered at all.
    pub enabled: bool,
    /// The shortest and the longest lifetime that a mapping gets; whole seconds.
    pub lifetime: (Duration, Duration),
    /// Who may ask for mappings of others.
    pub third_party: Vec<Prefix>,
    /// Whether NAT-PMP is spoken, too.
    pub nat_pmp: bool,
    /// Whether clients are told when mappings may have been lost.
    pub announce: bool,
    /// Most ports that one request gets.
    pub port_set: u16,
    /// Requests of one client, and of all, that are served a second; one second's worth may come at
    /// once.
    pub requests_per_second: (u32, u32),
}

impl Default for PcpSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            lifetime: (Duration::from_secs(120), Duration::from_secs(86_400)),
            third_party: Vec::new(),
            nat_pmp: true,
            announce: true,
            port_set: 64,
            requests_per_second: (20, 1000),
        }
    }
}

/// What has become of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcpCounters {
    /// Answers, by [`ResultCode`].
    pub results: [u64; ResultCode::ALL.len()],
    /// Those that get no answer: too short, or responses.
    pub ignored: u64,
    /// Those that came faster than they are served.
    pub dropped: u64,
    /// Announcements sent.
    pub announced: u64,
}
