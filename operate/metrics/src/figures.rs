//! Figures of a gateway at one time: sums over its workers, and each worker's load.

mod gather;

use natgate_engine::Counters;
use natgate_gateway::fleet::FleetStatus;
use natgate_gateway::ipv6::softwire::DomainCounters;
use natgate_gateway::router::RouterCounters;
use natgate_gateway::router6::Router6Counters;
use natgate_gateway::{AlgCounters, AlgKind, AnnouncedRoutes, LoadNow, TimingNow};
use natgate_io::Statistics;
use std::net::SocketAddrV4;
use std::time::SystemTime;

/// All figures of a gateway.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Start of the gateway.
    pub began: SystemTime,
    /// Packets and bytes; packets lost after translation count as dropped.
    pub counters: Counters,
    /// Counters of the routers.
    pub router: RouterCounters,
    /// Counters of the router of IPv6, if IPv6 is configured.
    pub router6: Option<Router6Counters>,
    /// lw4o6, each rule of MAP, and DS-Lite, as far as they are configured.
    pub domains: Vec<DomainFigures>,
    /// Bindings of lw4o6, if there is lw4o6.
    pub bindings: Option<u64>,
    /// Counters of the application-level gateways that are on.
    pub algs: Vec<(AlgKind, AlgCounters)>,
    /// Servers that are checked.
    pub servers: Vec<ServerFigures>,
    /// Lost packets that the gateway made itself.
    pub own_lost: u64,
    /// Frames that were not sent to the gateway.
    pub not_addressed: u64,
    /// Mappings and their limit.
    pub mappings: Filled,
    /// Sessions and their limit.
    pub sessions: Filled,
    /// Subscribers with mappings and their limit.
    pub subscribers: Filled,
    /// Subscribers of which nobody has answered a packet yet.
    pub unanswered: u64,
    /// Dynamic mappings made so far: TCP, UDP, all other protocols.
    pub made: [u64; 3],
    /// Dynamic mappings that have ended, by protocol as `made`.
    pub gone: [u64; 3],
    /// Times that a subscriber without mappings made one.
    pub subscribers_made: u64,
    /// Pools in the order of the configuration.
    pub pools: Vec<PoolFigures>,
    /// Devices.
    pub devices: Vec<DeviceFigures>,
    /// Workers.
    pub workers: Vec<WorkerFigures>,
    /// Event logs.
    pub sinks: Vec<SinkFigures>,
    /// TCP ports that limit their connections.
    pub listeners: Vec<ListenerFigures>,
    /// Reloads of the configuration.
    pub reloads: Reloads,
    /// Panics of the control plane that were contained.
    pub control_panics: u64,
    /// Routes to the external addresses, if they are announced.
    pub announced: Option<AnnouncedRoutes>,
    /// The pair, if the gateway is one of two.
    pub fleet: Option<FleetStatus>,
}

/// Packets in tunnels, or of a domain of MAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainFigures {
    /// Its kind: `lw4o6`, `map-e`, `map-t` or `dslite`.
    pub kind: &'static str,
    /// The IPv6 prefix of a rule of MAP; the kind, of others.
    pub name: String,
    /// Its packets.
    pub counters: DomainCounters,
}

/// A count and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The count.
    pub used: u64,
    /// The most that there may be.
    pub limit: u64,
}

/// Figures of a pool.
#[derive(Clone, Debug)]
pub struct PoolFigures {
    /// The name of the pool.
    pub name: String,
    /// Number of addresses.
    pub addresses: u64,
    /// Ports by protocol.
    pub ports: Vec<(&'static str, PortFigures)>,
    /// Blocks of ports with an owner, of all blocks, if ports are given out in blocks.
    pub blocks: Option<Filled>,
}

/// Ports of a pool for a protocol, over all its addresses, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortFigures {
    /// Ports that a new mapping may take.
    pub free: u64,
    /// Ports of dynamic mappings.
    pub used: u64,
    /// Ports in hold-down: their mappings have ended, and no mapping may take them yet.
    pub held: u64,
    /// All other ports: reserved for static mappings, of an address that drains, or in no block.
    pub reserved: u64,
}

/// Figures of a device over all workers.
#[derive(Clone, Debug)]
pub struct DeviceFigures {
    /// `inside`, `outside`, or the name of the realm on the inside of which the device is.
    pub side: String,
    /// Its name.
    pub name: String,
    /// Largest payload of a frame, bytes.
    pub mtu: u32,
    /// True if the device is switched on and has a carrier.
    pub up: bool,
    /// Frames.
    pub frames: Statistics,
}

/// Figures of a worker.
#[derive(Clone, Debug)]
pub struct WorkerFigures {
    /// Its load.
    pub load: LoadNow,
    /// Its durations.
    pub timing: TimingNow,
}

/// Figures of an event log.
#[derive(Clone, Debug, Default)]
pub struct SinkFigures {
    /// Its name.
    pub name: String,
    /// Events written.
    pub written: u64,
    /// Events lost.
    pub lost: u64,
    /// Gaps: runs of lost events.
    pub gaps: u64,
    /// Events that wait to be written.
    pub waiting: u64,
    /// True if the log can be written.
    pub up: bool,
}

/// A TCP port that limits its connections.
#[derive(Clone, Copy, Debug)]
pub struct ListenerFigures {
    /// The server at the port.
    pub name: &'static str,
    /// Connections that were closed at once because there were too many.
    pub refused: u64,
}

/// Reloads of the configuration since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reloads {
    /// Reloads that came into force.
    pub succeeded: u64,
    /// Reloads that were refused.
    pub failed: u64,
    /// Time at which the configuration in force was read.
    pub last_success: Option<SystemTime>,
}

/// A server of a static mapping, and its health checks.
#[derive(Clone, Debug)]
pub struct ServerFigures {
    /// External endpoint of the static mapping.
    pub external: SocketAddrV4,
    /// Internal endpoint.
    pub internal: SocketAddrV4,
    /// Name of the realm of the internal endpoint.
    pub realm: String,
    /// False if the server gets no new sessions because its checks fail.
    pub up: bool,
    /// Checks that succeeded.
    pub succeeded: u64,
    /// Checks that failed.
    pub failed: u64,
}

impl Figures {
    /// Figures of a gateway that has just started.
    pub fn new(began: SystemTime) -> Self {
        Self {
            began,
            counters: Counters::default(),
            router: RouterCounters::default(),
            router6: None,
            domains: Vec::new(),
            bindings: None,
            algs: Vec::new(),
            servers: Vec::new(),
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
            listeners: Vec::new(),
            reloads: Reloads::default(),
            control_panics: 0,
            announced: None,
            fleet: None,
        }
    }
}
