//! Content of a log: events, and gaps where events are missing.

use crate::damping::Summary;
use natgate_engine::{Change, Event, Timestamp};
use natgate_gateway::LogWhat;

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

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A change of the translator's state.
    Event(Event),
    /// Events are missing here.
    Gap(Gap),
    /// The clock was set here.
    ClockSet(ClockSet),
    /// A series of events about a limit has ended here.
    Summary(Summary),
}

/// Records are no larger than events, because rings and queues hold many.
const _: () = assert!(size_of::<Record>() == size_of::<Event>());

impl Record {
    /// Time of the record; for a gap, its end.
    pub fn time(&self) -> Timestamp {
        match self {
            Self::Event(event) => event.time,
            Self::Gap(gap) => gap.to,
            Self::ClockSet(set) => set.to,
            Self::Summary(summary) => summary.time,
        }
    }

    /// The gap that remains without the record.
    pub(crate) fn missing(&self) -> Gap {
        match self {
            Self::Event(event) => Gap::of(event),
            Self::Gap(gap) => *gap,
            Self::ClockSet(set) => Gap { lost: 0, from: set.to, to: set.to },
            Self::Summary(summary) => Gap { lost: 1, from: summary.time, to: summary.time },
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
}
