//! Limits as explanations name them: the thing that is counted, its owner, and the present count.

/// What is counted and limited.
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
    /// Its name in JSON.
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
    /// Of what.
    pub limit: Limit,
    /// How much there is.
    pub used: u64,
    /// How much there may be; `None`: there is no limit.
    pub most: Option<u64>,
}

/// The owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOwner {
    /// The subscriber's.
    Subscriber,
    /// That of all subscribers of a class together, by its place in the configuration.
    Class(usize),
    /// The mapping's.
    Mapping,
    /// The static mapping's of a whole address.
    Static,
    /// Everybody's.
    Gateway,
}
