//! State and counters of a link, for reports.

use std::time::{Duration, Instant};

/// State and counters since the start. A message is one of replication; views are not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// False if the thread of the link has ended: it was stopped, or its socket has failed. Then
    /// only another start helps.
    pub is_running: bool,
    /// There has been a connection without interruption since then.
    pub connected_since: Option<Instant>,
    /// Version of the messages that both nodes have agreed on.
    pub version: Option<u16>,
    /// Round trip as QUIC estimates it.
    pub round_trip: Option<Duration>,
    /// Lead of the partner's clock over this node's, nanoseconds; wrong by a quarter of a second
    /// at most. `None`: it is not known.
    pub clock_lead: Option<i64>,
    /// Connections so far.
    pub connections: u64,
    /// Messages that were sent. A datagram among them may be lost.
    pub sent: u64,
    /// Messages that have arrived and were queued.
    pub received: u64,
    /// Packets of QUIC that were lost on the way to the partner.
    pub lost_packets: u64,
    /// Messages that were queued and then not sent, because the connection had ended.
    pub abandoned: u64,
    /// Messages that were not queued: the queue was full, or the message is too long.
    pub send_overflow: u64,
    /// Messages of the partner that were dropped, because the queue was full.
    pub receive_overflow: u64,
    /// Streams of the partner that were refused: an unknown kind, too long, or not complete.
    pub malformed: u64,
    /// Packets of the tunnel that were queued and then not sent: they had waited too long, or the
    /// connection had ended.
    pub unpassed: u64,
    /// Packets of the tunnel that have come and were dropped, because the queue was full.
    pub passed_overflow: u64,
    /// Connections that were refused, by this node or the other side: certificate, name, version.
    pub refused: u64,
    /// Address and reason of the last of them.
    pub last_refusal: Option<String>,
    /// Attempts that were ignored, because too many handshakes were in progress.
    pub turned_away: u64,
    /// Why the last connection ended, or the last attempt failed.
    pub last_failure: Option<String>,
    /// Why changed files of certificates are not in use. `None`: the files are in use.
    pub certificate_error: Option<String>,
}
