//! Limits as explanations name them: the thing that is counted, its owner, and the present count.

/// A number of things, and the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled<N> {
    pub(crate) used: N,
    pub(crate) most: N,
}

/// A thing that is counted and limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// New mappings within a second.
    NewMappings,
    /// Mappings of the protocol.
    Mappings,
    /// Sessions.
    Sessions,
    /// Sessions beyond the first of each mapping.
    FurtherSessions,
    /// Blocks of the pool.
    Blocks,
    /// Subscribers.
    Subscribers,
}

impl Limit {
    /// The limit's name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewMappings => "new_mappings_per_second",
            Self::Mappings => "mappings",
            Self::Sessions => "sessions",
            Self::FurtherSessions => "further_sessions",
            Self::Blocks => "blocks",
            Self::Subscribers => "subscribers",
        }
    }
}

/// The present count of a limited thing, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The limited thing.
    pub limit: Limit,
    /// Present number.
    pub used: u64,
    /// Largest number; `None`: there is no limit.
    pub most: Option<u64>,
}

/// The owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOwner {
    /// The subscriber.
    Subscriber,
    /// All subscribers of a class together, by the class's place in the configuration.
    Class(usize),
    /// The mapping.
    Mapping,
    /// The static mapping of a whole address.
    Static,
    /// The gateway.
    Gateway,
}
