//! Content of a log: events, and gaps where events are missing.

use crate::damping::Summary;
use natgate_engine::{Change, Event, Timestamp};
use natgate_gateway::fleet::SliceChange;
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{AlgExpectation, LogWhat};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Events that are missing in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Number of missing events.
    pub lost: u64,
    /// Time of the first of them.
    pub from: Timestamp,
    /// Time of the last of them.
    pub to: Timestamp,
}

impl Gap {
    /// A gap of one event.
    pub fn of(event: &Event) -> Self {
        Self { lost: 1, from: event.time, to: event.time }
    }

    /// Adds another gap to this one.
    pub fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
    }
}

/// The machine's clock was set: times in logs are by the new one from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSet {
    /// Time that the clock would have shown.
    pub from: Timestamp,
    /// Time that it showed instead.
    pub to: Timestamp,
}

/// Host of NAT64 or DS-Lite that the event after this record is about. The two records stay
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Time of the event.
    pub time: Timestamp,
    /// The host's address, or only the prefix if no host had the number any more. Behind a tunnel,
    /// the tunnel's end.
    pub(crate) octets: [u8; 16],
    pub(crate) is_host: bool,
    /// Length of the prefix that is the subscriber, bits.
    pub(crate) len: u8,
    /// The host's address behind its tunnel; zero: it has no tunnel.
    pub(crate) inner: [u8; 4],
}

impl Host {
    /// The name of the host that an event at a time is about.
    pub fn new(time: Timestamp, name: &HostName) -> Self {
        let inner = name.inner();
        let address = name.address.filter(|_| inner.is_none()).unwrap_or(name.prefix);
        Self {
            time,
            octets: address.octets(),
            is_host: name.address.is_some(),
            len: name.len,
            inner: inner.map_or([0; 4], |inner| inner.octets()),
        }
    }

    /// The name of the host.
    pub(crate) fn name(&self) -> HostName {
        let (prefix, len) = self.subscriber();
        HostName { address: self.address(), prefix, len }
    }

    /// Address of the host, if it is known.
    pub fn address(&self) -> Option<Ipv6Addr> {
        let address = match self.inner {
            [0, 0, 0, 0] => Ipv6Addr::from(self.octets),
            inner => Ipv4Addr::from(inner).to_ipv6_mapped(),
        };
        self.is_host.then_some(address)
    }

    /// Prefix that is the subscriber, and its length.
    pub fn subscriber(&self) -> (Ipv6Addr, u8) {
        let address = u128::from_be_bytes(self.octets);
        let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or_default();
        (Ipv6Addr::from_bits(address & mask), self.len)
    }
}

/// The host that the record at a place is about, if the record before names one.
pub fn host_before(records: &[Record], place: usize) -> Option<&Host> {
    match records.get(place.checked_sub(1)?)? {
        Record::Host(host) => Some(host),
        _ => None,
    }
}

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A change of the translator's state.
    Event(Event),
    /// Host of NAT64 that the next record is about.
    Host(Host),
    /// Events are missing here.
    Gap(Gap),
    /// The clock was set here.
    ClockSet(ClockSet),
    /// A series of events about a limit has ended here.
    Summary(Summary),
    /// An application-level gateway has made an expectation.
    Expectation(AlgExpectation),
    /// A slice of a pair has another owner.
    Slice(SliceChange),
}

/// Records are no larger than events, because rings and queues hold many.
const _: () = assert!(size_of::<Record>() == size_of::<Event>());

impl Record {
    /// Time of the record; for a gap, its end.
    pub fn time(&self) -> Timestamp {
        match self {
            Self::Event(event) => event.time,
            Self::Host(host) => host.time,
            Self::Gap(gap) => gap.to,
            Self::ClockSet(set) => set.to,
            Self::Summary(summary) => summary.time,
            Self::Expectation(expectation) => expectation.time,
            Self::Slice(change) => change.time,
        }
    }

    /// The gap that remains without the record.
    pub(crate) fn missing(&self) -> Gap {
        match self {
            Self::Event(event) => Gap::of(event),
            Self::Host(host) => Gap { lost: 0, from: host.time, to: host.time },
            Self::Gap(gap) => *gap,
            Self::ClockSet(set) => Gap { lost: 0, from: set.to, to: set.to },
            Self::Summary(summary) => Gap { lost: 1, from: summary.time, to: summary.time },
            Self::Expectation(made) => Gap { lost: 1, from: made.time, to: made.time },
            Self::Slice(change) => Gap { lost: 1, from: change.time, to: change.time },
        }
    }
}

/// True if a log of this kind contains such a change. Blocks and limits are in every log: they are
/// few, and without blocks no subscriber could be found in a pool that uses them.
pub fn wants(what: LogWhat, change: &Change) -> bool {
    match change {
        //= rfc8158#section-4.6.1-both
        Change::MappingCreated(_) | Change::MappingRemoved(_) => what == LogWhat::Mappings,
        Change::SessionCreated(_) | Change::SessionRemoved(_) => what == LogWhat::Sessions,
        Change::BlockAssigned(_)
        | Change::BlockReleased(_)
        | Change::QuotaReached { .. }
        | Change::ClassQuotaReached { .. }
        | Change::ThresholdReached { .. }
        | Change::ClassThresholdReached { .. }
        | Change::PoolThresholdReached { .. }
        | Change::PoolExhausted { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::tests::created;
    use natgate_engine::{Endpoint, SessionId};

    //= test rfc8158#section-4.6.1-both
    //= test rfc6888#REQ-12
    #[test]
    fn a_log_has_mappings_or_sessions_and_blocks_and_limits_anyhow() {
        let Record::Event(Event { change, .. }) = created(1) else { unreachable!("it is one") };
        let Change::MappingCreated(mapping) = change else { unreachable!("it is one") };
        let remote = Endpoint::new(1, 1);
        let session = SessionId { mapping, remote, remote_inside: remote };
        let changes = [
            change,
            Change::SessionRemoved(session),
            Change::PoolExhausted { pool: 0, protocol: 6 },
        ];
        for (what, expected) in [
            (LogWhat::Mappings, [true, false, true]),
            (LogWhat::Sessions, [false, true, true]),
            (LogWhat::Blocks, [false, false, true]),
        ] {
            assert_eq!(changes.map(|change| wants(what, &change)), expected);
        }
    }

    #[test]
    fn a_host_is_named_by_its_address_or_by_its_subscriber_alone() {
        let ip = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let known = HostName {
            address: Some(ip("2001:db8:1:0:ff::5")),
            prefix: ip("2001:db8:1::"),
            len: 64,
        };
        let host = Host::new(Timestamp(7), &known);
        assert_eq!((host.time, host.address()), (Timestamp(7), known.address));
        assert_eq!(host.subscriber(), (ip("2001:db8:1::"), 64));
        let gone = Host::new(Timestamp(7), &HostName { address: None, ..known });
        assert_eq!((gone.address(), gone.subscriber()), (None, (ip("2001:db8:1::"), 64)));
        let single = HostName { prefix: ip("2001:db8:1:0:ff::5"), len: 128, ..known };
        assert_eq!(Host::new(Timestamp(7), &single).subscriber(), (single.prefix, 128));
    }

    #[test]
    fn only_the_record_right_behind_is_the_hosts() {
        let name = HostName { address: None, prefix: Ipv6Addr::UNSPECIFIED, len: 64 };
        let host = Host::new(Timestamp(1), &name);
        let records = [Record::Host(host), created(1), created(1)];
        let found = [0, 1, 2, 3].map(|place| host_before(&records, place));
        assert_eq!(found, [None, Some(&host), None, None]);
    }
}
