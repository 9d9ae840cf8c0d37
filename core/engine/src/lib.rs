//! The translator: mappings, sessions, pools, filtering, timers.
//!
//! The engine is a state machine without a clock, a source of randomness, input or output. Time,
//! seed and packets come in by calls; verdicts, events and packets of the engine's own go out.
//! Equal calls give equal bytes. [`Engine::new`] makes every allocation.
//!
//! The order of calls, for each batch:
//!
//! 1. [`Engine::advance`] until it returns `false`, with step 3 after each call;
//! 2. [`Engine::process`], which rewrites the packets in place and gives each a verdict;
//! 3. [`Engine::poll_event`] and [`Engine::poll_transmit`] until both are empty.
//!
//! ```
//! use natgate_engine::{
//!     AddressRange, Config, Engine, Packet, PoolConfig, Side, Timestamp, Verdict,
//! };
//! use natgate_wire::{Ipv4, protocol};
//!
//! let external = [203, 0, 113, 1].into();
//! let addresses = vec![AddressRange { first: external, last: external }];
//! let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
//! let now = Timestamp(1_700_000_000_000_000_000);
//! let config = Config { pools, ..Config::default() };
//! let mut engine = Engine::new(&config, [7; 32], now).expect("a valid configuration");
//!
//! let mut bytes = [0; 28];
//! let mut packet = Ipv4::init(&mut bytes[..], 20);
//! packet.set_total_len(28);
//! packet.set_ttl(64);
//! packet.set_protocol(protocol::UDP);
//! packet.set_source(0x0a00_0001);
//! packet.set_destination(0xc633_6401);
//! packet.payload_mut().copy_from_slice(&[0x14, 0xe9, 0, 53, 0, 8, 0, 0]);
//! packet.fill_checksum();
//!
//! while engine.advance(now) {}
//! let mut verdicts = [Verdict::Held];
//! engine.process(now, Side::Inside, &mut [Packet::new(&mut bytes, 0)], &mut verdicts);
//! assert_eq!(verdicts, [Verdict::Forward(Side::Outside)]);
//! assert_eq!(bytes[12..16], [203, 0, 113, 1]);
//! assert!(engine.poll_event().is_some(), "a mapping was created");
//! ```

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod arithmetic;
mod blocks;
mod calendar;
mod class;
mod config;
mod controls;
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
mod near;
mod packet;
mod pair;
mod parse;
mod pools;
mod prefetch;
mod protocols;
mod random;
mod ranges;
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

pub use arithmetic::Arithmetic;
pub use blocks::Blocking;
pub use config::{
    AddressRange, Affinity, Allocation, Begun, Behavior, BlockConfig, Class, ClassLimits, Config,
    DeterministicConfig, Limits, Match, PoolConfig, Pooling, PortTimeout, Prefix, RealmConfig,
    Refusal, Rule, RuleAction, Server, Service, SideConfig, StaticMapping, Thresholds, TimeoutSet,
    Timeouts, Totals,
};
pub use controls::ControlPorts;
pub use deterministic::{Plan, PlanError};
pub use drop_reason::DropReason;
pub use endpoint::AddressPort;
pub use engine::Engine;
pub use event::{BlockId, Change, Endpoint, Event, MappingId, MappingKind, Resource, SessionId};
pub use explicit::{
    Explicit, ExplicitError, Keeper, MapRequest, Nonce, PeerRequest, RemoteFilter, WantedEndpoint,
};
pub use external::{BlockConflict, ConflictReason, Draining, PoolChange};
pub use handover::{
    Copied, Copies, CopyEnds, Export, Exported, HostIdentity, HostNumbers, NoNumber, NoNumbers,
    RealmNumber, RecordHost, Restoration, RestoreError, Restored, VERSION as HANDOVER_VERSION,
    fingerprint,
};
pub use host::bucket;
pub use limits::{Limit, LimitOwner, Standing};
pub use packet::{Counters, Direction, Outcome, Packet, Side, Verdict};
pub use pair::{CopyChange, CopyFacts, Duty, PairPort};
pub use parse::is_martian;
pub use prefetch::prefetch;
pub use random::HashKey;
pub use ranges::Ranges;
pub use reconfigure::{
    Departure, Leaving, Reconfiguration, ReconfigureError, Review, Superseded, restart_keys,
};
pub use respond::ErrorRates;
pub use rules::{RuleBatch, RuleSet, Ruling, Snat};
pub use survey::{
    AddressUsage, BlockInfo, BlockKind, ByEndpoint, Cursor, Filter, HeldPort, SubscriberInfo,
    Totals as TableTotals,
};
pub use time::{TICK, Timestamp};
pub use translate::{AddressChoice, Becomes, End, Explanation, NumberedSender, Serving, Step};

/// Error of a configuration that the engine cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// One sentence with the error and the remedy.
    pub message: alloc::string::String,
}

/// The present state of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingInfo {
    /// Protocol, endpoints, kind.
    pub id: MappingId,
    /// Number of its sessions.
    pub sessions: u32,
    /// Time of creation, rounded down to a tick.
    pub created: Timestamp,
    /// Time of removal unless the mapping is refreshed; `None`: never.
    pub expires: Option<Timestamp>,
    /// Packets that the present sessions sent out.
    pub packets_out: u64,
    /// Packets that the present sessions let in.
    pub packets_in: u64,
}

/// The present state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session's mapping.
    pub mapping: MappingId,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// The remote endpoint as seen from inside. It differs from `remote` if the destination is
    /// translated too.
    pub remote_inside: Endpoint,
    /// Name of the session's state.
    pub state: &'static str,
    /// Time of removal unless the session is refreshed.
    pub expires: Timestamp,
    /// Packets that the session sent out.
    pub packets_out: u64,
    /// Packets that the session let in.
    pub packets_in: u64,
}

/// Use of a pool's ports for one protocol, summed over its addresses: free + used + held + reserved
/// is the number of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Ports that a new mapping may take.
    pub free: u64,
    /// Ports of live dynamic mappings.
    pub used: u64,
    /// Ports in hold-down.
    pub held: u64,
    /// Ports that nobody can take dynamically: ports of static mappings, excluded ports, ports in
    /// no block or share, and ports of an address that drains.
    pub reserved: u64,
}
