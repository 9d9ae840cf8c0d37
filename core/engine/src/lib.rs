//! The translator: mappings, sessions, pools, filtering, timers.
//!
//! The engine is a state machine without a clock, a source of randomness or input and output: time,
//! seed and packets come in by calls, verdicts, events and packets of its own go out. The same
//! calls give the same bytes. After [`Engine::new`] nothing is allocated.
//!
//! The order of calls, for each batch:
//!
//! 1. [`Engine::advance`] until it returns `false`, with 3. after each call;
//! 2. [`Engine::process`], which rewrites the packets in place and gives each a verdict;
//! 3. [`Engine::poll_event`] and [`Engine::poll_transmit`] until both are empty.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod blocks;
mod calendar;
mod class;
mod config;
mod deterministic;
mod division;
mod drop_reason;
mod endpoint;
mod engine;
mod event;
mod explicit;
mod external;
mod fragments;
mod handover;
mod host;
mod identification;
mod index;
mod limits;
mod packet;
mod parse;
mod pools;
mod prefetch;
mod protocols;
mod random;
mod rate;
mod realms;
mod reclaim;
mod reconfigure;
mod respond;
mod rewrite;
mod rules;
mod services;
mod session;
mod sizes;
mod statics;
mod subscriber;
mod survey;
mod table;
mod threshold;
mod time;
mod timeouts;
mod translate;
mod twice;
mod whole;

pub use blocks::Blocking;
pub use config::{
    AddressRange, Affinity, Allocation, Begun, Behavior, BlockConfig, Class, ClassLimits, Config,
    DeterministicConfig, Limits, Match, PoolConfig, Pooling, PortTimeout, Prefix, RealmConfig,
    Refusal, Rule, RuleAction, Server, Service, SideConfig, StaticMapping, Thresholds, TimeoutSet,
    Timeouts, Totals,
};
pub use deterministic::{Plan, PlanError};
pub use drop_reason::DropReason;
pub use endpoint::AddressPort;
pub use engine::Engine;
pub use event::{BlockId, Change, Endpoint, Event, MappingId, MappingKind, Resource, SessionId};
pub use explicit::{
    Explicit, ExplicitError, MapRequest, Nonce, PeerRequest, RemoteFilter, WantedEndpoint,
};
pub use external::{Draining, PoolChange};
pub use handover::{
    Export, Exported, Restoration, RestoreError, Restored, VERSION as HANDOVER_VERSION,
};
pub use host::bucket;
pub use limits::{Limit, LimitOwner, Standing};
pub use packet::{Counters, Direction, Outcome, Packet, Side, Verdict};
pub use reconfigure::{
    Departure, Leaving, Reconfiguration, ReconfigureError, Review, Superseded, restart_keys,
};
pub use rules::{RuleBatch, RuleSet, Ruling, Snat};
pub use survey::{
    AddressUsage, BlockInfo, BlockKind, ByEndpoint, Cursor, Filter, HeldPort, SubscriberInfo,
    Totals as TableTotals,
};
pub use time::{TICK, Timestamp};
pub use translate::{AddressChoice, Becomes, End, Explanation, Step};

/// Why a configuration cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// One sentence: what is wrong and what would be right.
    pub message: alloc::string::String,
}

/// A mapping as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingInfo {
    /// Protocol, endpoints, kind.
    pub id: MappingId,
    /// Sessions it has.
    pub sessions: u32,
    /// When it was made, to the tick before.
    pub created: Timestamp,
    /// When it will go unless refreshed; `None`: never.
    pub expires: Option<Timestamp>,
    /// Packets sent out by its present sessions.
    pub packets_out: u64,
    /// Packets let in by its present sessions.
    pub packets_in: u64,
}

/// A session as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its mapping.
    pub mapping: MappingId,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// The remote endpoint as seen from inside: another, if the destination is translated too.
    pub remote_inside: Endpoint,
    /// Its state's name.
    pub state: &'static str,
    /// When it will go unless refreshed.
    pub expires: Timestamp,
    /// Packets sent out by it.
    pub packets_out: u64,
    /// Packets let in by it.
    pub packets_in: u64,
}

/// What a pool holds, summed over its addresses, for one protocol: free + used + held + reserved is
/// all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Ports that a new mapping may take.
    pub free: u64,
    /// Ports of live dynamic mappings.
    pub used: u64,
    /// Ports in hold-down.
    pub held: u64,
    /// Ports kept for static mappings, or given to nobody: excluded, in no block or share, or of an
    /// address that drains.
    pub reserved: u64,
}
