//! Event logs: changes of the translator's state with their times, written to the operator's
//! destinations.
//!
//! A worker adds its [`Event`](natgate_engine::Event)s to a [`Feed`], a bounded ring that never
//! makes it wait. One thread orders the events of all workers by time and distributes them to the
//! sinks' queues. Each sink is a thread of its own that takes from its queue, formats and writes.
//! All memory is bounded. Events without room are counted, and the log itself has a [`Gap`] in
//! their place: their number, and the times of the first and the last.
//!
//! | module | does |
//! |---|---|
//! | `feed`, `merge` | from workers, in order of time |
//! | `damping` | events about limits that repeat: few of them, and a summary |
//! | `queue` | what a sink has not written yet, and what it has missed |
//! | `drive` | a sink's work at a time that is passed in: writing, trying again, telling |
//! | `hub` | the threads around all that |
//! | `in_force` | owners by the configuration, which the spool records |
//! | `json`, `sinks` | formats: JSON lines, syslog (RFC 5424), IPFIX (RFC 7011, 8158), the spool |
//! | `spool` | the spool's files: written, kept within bounds, searched |
//! | `wall` | times by the machine's clock, which may be set |
//!
//! ```
//! use natgate_engine::Timestamp;
//! use natgate_gateway::LogWhat;
//! use natgate_logs::{Gap, Queue, Record, shown};
//!
//! let queue = Queue::new(100, LogWhat::Mappings);
//! let time = Timestamp(1_700_000_000_000_000_000);
//! queue.offer(&[Record::Gap(Gap { lost: 3, from: time, to: time })]);
//! let mut records = Vec::new();
//! queue.take(10, &mut records);
//! assert_eq!(records[0].time(), time);
//! assert_eq!(shown(time), "2023-11-14T22:13:20.000Z");
//! ```

mod damping;
mod drive;
mod feed;
mod hub;
mod in_force;
mod json;
mod merge;
mod queue;
mod record;
mod sinks;
mod spool;
mod wall;

pub use damping::{Damping, Summary};
pub use drive::{Drive, Pause, Sink, SinkMetrics, Tell};
pub use feed::Feed;
pub use hub::{CatchUp, Changer, Exchange, Joining, Logs, OpenError, Subscribers, Subscription};
pub use in_force::{
    InForce, OwnersInForce, PoolInForce, ServiceInForce, SharesInForce, StaticInForce,
};
pub use json::{
    DEFAULT_REALM, EventObject, Hosts, Names, endpoint, event, expectation, host_endpoint, prefix,
    protocol, record, remote, seconds, shown, time,
};
pub use queue::Queue;
pub use record::{ClockSet, Gap, Host, Record, host_before, wants};
pub use sinks::file::FileSink;
pub use sinks::ipfix::IpfixSink;
pub use sinks::spool::SpoolSink;
pub use sinks::syslog::{Messages, SyslogSink};
pub use spool::outline::{
    Coverage, InForceThen, LogGap, Reason, Span, sentence as coverage_sentence,
};
pub use spool::search::{Holder, Holders, SearchError, Tenure, Traces, holders, holders_of};
pub use wall::WallClock;
