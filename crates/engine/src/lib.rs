//! The translator: mappings, sessions, pools, filtering, timers.
//!
//! The engine is a state machine without a clock, a source of randomness or input and output: time,
//! seed and packets come in by calls, verdicts, events and packets of its own go out. The same calls
//! give the same bytes. After [`Engine::new`] nothing is allocated.
//!
//! The order of calls, for each batch:
//!
//! 1. [`Engine::advance`] until it returns `false`, with 3. after each call;
//! 2. [`Engine::process`], which rewrites the packets in place and gives each a verdict;
//! 3. [`Engine::poll_event`] and [`Engine::poll_transmit`] until both are empty.

#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod config;
mod drop_reason;
mod event;
mod packet;
mod time;

pub use config::{
    AddressRange, Allocation, Behavior, Config, Limits, Match, PoolConfig, Pooling, Prefix, Rule,
    RuleAction, SideConfig, StaticMapping, Timeouts,
};
pub use drop_reason::DropReason;
pub use event::{Change, Endpoint, Event, MappingId, MappingKind};
pub use packet::{Counters, Direction, Outcome, Packet, Side, Verdict};
pub use time::{TICK, Timestamp};

/// The translator.
#[derive(Debug)]
pub struct Engine {}

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
    /// When it was made.
    pub created: Timestamp,
    /// When it will go unless refreshed; `None`: never.
    pub expires: Option<Timestamp>,
    /// Packets sent out by it.
    pub packets_out: u64,
    /// Packets let in by it.
    pub packets_in: u64,
}

/// A session as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its mapping.
    pub mapping: MappingId,
    /// Remote endpoint.
    pub remote: Endpoint,
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
    /// Ports kept for static mappings.
    pub reserved: u64,
}

impl Engine {
    /// Most packets that one call of [`Engine::process`] takes.
    pub const MAX_BATCH: usize = 256;

    /// An engine that starts empty at time `now`. The seed decides every choice that must not be
    /// guessed: take it from the operating system, or from the user to repeat a run.
    ///
    /// # Errors
    /// [`ConfigError`] names what the configuration contradicts.
    pub fn new(_config: &Config, _seed: [u8; 32], _now: Timestamp) -> Result<Self, ConfigError> {
        Ok(Self {})
    }

    /// Bytes that an engine of this configuration takes.
    pub fn memory(_config: &Config) -> u64 {
        0
    }

    /// Lets time pass: what is due until `now` happens, in order, each at its own time, but only so
    /// much that events and packets made fit their queues. Returns whether there is more to do:
    /// drain the queues and call again. A `now` before the latest seen counts as the latest.
    pub fn advance(&mut self, _now: Timestamp) -> bool {
        false
    }

    /// The time of the next thing that is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// Translates a batch that came in on one side, in order: rewrites each packet in place and says
    /// what to do with it.
    ///
    /// # Panics
    /// When the slices differ in length or hold more than [`Engine::MAX_BATCH`].
    pub fn process(
        &mut self,
        _now: Timestamp,
        _from: Side,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        assert!(packets.len() == verdicts.len() && packets.len() <= Self::MAX_BATCH);
        verdicts.fill(Verdict::Drop(DropReason::NotIpv4));
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// The next packet of the engine's own making, oldest first: written to the front of `buffer`,
    /// with the time it was made, the side to send it by and its length. A buffer of 65,535 bytes
    /// holds any.
    pub fn poll_transmit(&mut self, _buffer: &mut [u8]) -> Option<(Timestamp, Side, usize)> {
        None
    }

    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        todo!()
    }

    /// Counts a frame that came in on `from` and cannot be given to [`Engine::process`] because it
    /// does not carry IPv4.
    pub fn count_foreign(&mut self, _from: Side, _len: usize) {}

    /// Every mapping, in no order that means anything.
    pub fn mappings(&self) -> impl Iterator<Item = MappingInfo> + '_ {
        core::iter::empty()
    }

    /// Every session, in no order that means anything.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        core::iter::empty()
    }

    /// What a pool holds for a protocol (TCP, UDP or ICMP).
    pub fn pool_usage(&self, _pool: usize, _protocol: u8) -> PoolUsage {
        PoolUsage::default()
    }
}
