//! A gateway's figures at one time: sums over its workers, and each worker's load.

mod gather;

use natgate_engine::Counters;
use natgate_gateway::router::RouterCounters;
use natgate_gateway::{LoadNow, TimingNow};
use natgate_io::Statistics;
use std::time::SystemTime;

/// Everything that is shown.
#[derive(Clone, Debug)]
pub struct Figures {
    /// When the gateway began.
    pub began: SystemTime,
    /// Packets and bytes, what was lost after translation counted as dropped.
    pub counters: Counters,
    /// What the routers have counted.
    pub router: RouterCounters,
    /// Packets of the gateway's own making that were lost.
    pub own_lost: u64,
    /// Frames that were not sent to the gateway.
    pub not_addressed: u64,
    /// Mappings, and how many there may be.
    pub mappings: Filled,
    /// Sessions, and how many there may be.
    pub sessions: Filled,
    /// Subscribers that have mappings, and how many may.
    pub subscribers: Filled,
    /// Subscribers of which nobody has answered a packet yet.
    pub unanswered: u64,
    /// Dynamic mappings made so far: TCP, UDP, and those of all other protocols.
    pub made: [u64; 3],
    /// Of those, how many have gone.
    pub gone: [u64; 3],
    /// How often somebody who had no mapping made one.
    pub subscribers_made: u64,
    /// Of each pool, in the order of the configuration.
    pub pools: Vec<PoolFigures>,
    /// Of each device.
    pub devices: Vec<DeviceFigures>,
    /// Of each worker.
    pub workers: Vec<WorkerFigures>,
    /// Of each event log.
    pub sinks: Vec<SinkFigures>,
    /// Readings of the configuration.
    pub reloads: Reloads,
    /// Panics of the control plane, after each of which it went on.
    pub control_panics: u64,
}

/// How much of something there is, and may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// What there is.
    pub used: u64,
    /// What there may be.
    pub limit: u64,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Addresses that it has.
    pub addresses: u64,
    /// Its ports by protocol.
    pub ports: Vec<(&'static str, PortFigures)>,
    /// Its blocks that somebody has, of all, if ports are given out in blocks.
    pub blocks: Option<Filled>,
}

/// A pool's ports for a protocol, over all its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortFigures {
    /// Ports that a new mapping may take.
    pub free: u64,
    /// Dynamic mappings that have one.
    pub used: u64,
    /// In hold-down: their mappings have gone, and nobody gets them yet.
    pub held: u64,
    /// The rest: kept for static mappings, of an address that drains, or in no block.
    pub reserved: u64,
}

/// A device, as all workers together have it.
#[derive(Clone, Debug)]
pub struct DeviceFigures {
    /// `inside`, `outside`, or the name of the realm that it is the inside of.
    pub side: String,
    /// Its name.
    pub name: String,
    /// Largest payload of a frame, bytes.
    pub mtu: u32,
    /// Whether it is switched on and has a carrier.
    pub up: bool,
    /// Frames.
    pub frames: Statistics,
}

/// A worker.
#[derive(Clone, Debug)]
pub struct WorkerFigures {
    /// What it has done.
    pub load: LoadNow,
    /// How long that took.
    pub timing: TimingNow,
}

/// A log of events.
#[derive(Clone, Debug, Default)]
pub struct SinkFigures {
    /// Its name.
    pub name: String,
    /// Events written.
    pub written: u64,
    /// Events lost.
    pub lost: u64,
    /// Times that events were lost in a row.
    pub gaps: u64,
    /// Events that wait.
    pub waiting: u64,
    /// Whether what it writes to takes events.
    pub up: bool,
}

/// Readings of the configuration since the gateway began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reloads {
    /// Those that came into force.
    pub succeeded: u64,
    /// Those that were refused.
    pub failed: u64,
    /// When the configuration in force was read.
    pub last_success: Option<SystemTime>,
}

impl Figures {
    /// Of a gateway that has just begun, and has nothing.
    pub fn new(began: SystemTime) -> Self {
        Self {
            began,
            counters: Counters::default(),
            router: RouterCounters::default(),
            own_lost: 0,
            not_addressed: 0,
            mappings: Filled::default(),
            sessions: Filled::default(),
            subscribers: Filled::default(),
            unanswered: 0,
            made: [0; 3],
            gone: [0; 3],
            subscribers_made: 0,
            pools: Vec::new(),
            devices: Vec::new(),
            workers: Vec::new(),
            sinks: Vec::new(),
            reloads: Reloads::default(),
            control_panics: 0,
        }
    }
}
