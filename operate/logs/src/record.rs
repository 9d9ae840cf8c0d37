//! What a log consists of: events, and gaps where events are missing.

use crate::damping::Summary;
use natgate_engine::{Change, Event, Timestamp};
use natgate_gateway::LogWhat;

/// Events that are missing in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How many.
    pub lost: u64,
    /// The time of the first of them.
    pub from: Timestamp,
    /// The time of the last of them.
    pub to: Timestamp,
}

impl Gap {
    /// A gap of one event.
    pub fn of(event: &Event) -> Self {
        Self { lost: 1, from: event.time, to: event.time }
    }

    /// Makes it one with another.
    pub fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
    }
}

/// The machine's clock was set: times in logs are by the new one from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSet {
    /// What the clock would have said.
    pub from: Timestamp,
    /// What it said instead.
    pub to: Timestamp,
}

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Something happened.
    Event(Event),
    /// Something is missing here.
    Gap(Gap),
    /// The clock was set here.
    ClockSet(ClockSet),
    /// Events about a limit have ended here.
    Summary(Summary),
}

/// Rings and queues hold many records.
const _: () = assert!(size_of::<Record>() == size_of::<Event>());

impl Record {
    /// When it happened; of a gap, until when.
    pub fn time(&self) -> Timestamp {
        match self {
            Self::Event(event) => event.time,
            Self::Gap(gap) => gap.to,
            Self::ClockSet(set) => set.to,
            Self::Summary(summary) => summary.time,
        }
    }

    /// The same as a gap: what is missing without it.
    pub(crate) fn missing(&self) -> Gap {
        match self {
            Self::Event(event) => Gap::of(event),
            Self::Gap(gap) => *gap,
            Self::ClockSet(set) => Gap { lost: 0, from: set.to, to: set.to },
            Self::Summary(summary) => Gap { lost: 1, from: summary.time, to: summary.time },
        }
    }
}

/// Whether a log of this kind has such a change in it. Blocks and limits are in every log: there
/// are few of them, and without blocks nobody could be found in a pool that has them.
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
