//! A NAT gateway at work: engine and router between network devices, and the control of both.
//!
//! One [`Worker`] is one thread's gateway: devices, router and engine. Several workers form a team
//! ([`team()`]); each owns some subscribers and external ports, and hands other packets over.
//! [`replay`] runs the engine offline on captures.
//!
//! Call order: build [`Settings`], open the devices, make a worker by [`Worker::new`] (in a team
//! [`Worker::of_team`]), give it its commands by [`Worker::obey`], and call [`run()`]. Another
//! thread changes and reads the running gateway through the [`Commander`] of [`commands`].
//! A program with a loop of its own calls [`Worker::turn`] instead of [`run()`], and again at
//! [`Worker::next_deadline`] at the latest.
//!
//! ```
//! use natgate_engine::{AddressRange, Config, PoolConfig, Timestamp};
//! use natgate_gateway::{Device, Settings, SideSettings, Worker};
//! use natgate_io::memory;
//! use natgate_wire::arp::Mac;
//! use std::net::Ipv4Addr;
//!
//! let side = |device: &str, address: [u8; 4]| SideSettings {
//!     address: Some((Ipv4Addr::from(address), 24)),
//!     ..SideSettings::new(device)
//! };
//! let (inside, outside) = (side("lan", [10, 0, 0, 1]), side("wan", [192, 0, 2, 1]));
//! let external = Ipv4Addr::new(203, 0, 113, 1);
//! let addresses = vec![AddressRange { first: external, last: external }];
//! let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
//! let engine = Config { pools, ..Config::default() };
//! let settings = Settings::new(engine, inside, outside);
//! let devices = [1, 2].map(|last| -> Box<dyn Device> {
//!     Box::new(memory::pair("device", Mac([2, 0, 0, 0, 0, last])).0)
//! });
//! let now = Timestamp(1_000_000_000);
//! let mut worker = Worker::new(&settings, [0; 32], devices, now)?;
//! // The unit type ignores all that an `Observer` is told.
//! assert_eq!(worker.turn(now, &mut ()), 0, "no frame has arrived");
//! # Ok::<(), natgate_gateway::WorkerError>(())
//! ```

#![forbid(unsafe_code)]

mod alg;
mod bindings;
pub mod capture;
mod clock;
mod command;
mod counters;
pub mod fleet;
mod fleet_settings;
mod folder_owner;
mod fragment;
mod handover;
mod health;
mod inside_routes;
mod kernel;
mod limits;
mod link;
mod links;
mod lists;
mod load;
mod local_tcp_port;
mod logs;
mod monitoring;
mod observer;
mod ordered;
mod pace;
pub mod panics;
mod pcp;
pub mod replay;
pub mod router;
pub mod router6;
mod run;
mod settings;
mod settings6;
mod single_writer;
mod state;
mod survey;
mod takeover;
mod tap;
mod team;
mod timing;
mod trace;
mod wiring;
mod worker;
mod worker_error;

pub use alg::{
    AlgCounters, AlgExpectation, AlgSettings, Kind as AlgKind, OpenExpectation, RuleAlgs,
};
pub use bindings::{BindingChange, BindingChanges, Bindings, FileVersion};
pub use clock::Clock;
pub use command::{
    CommandError, Commander, Commands, Numbered, Prepared, Reconfigured, commands, team_commands,
};
pub use counters::{Losses, Origin};
pub use folder_owner::{
    check_make_folder, check_open, create_anew, give_to_folder_owner, make_folder, open_or_create,
};
pub use handover::{Legacy, Writing, Written};
pub use health::{
    CheckFailure, CheckKind, HealthSettings, LONGEST_REQUEST, MOST_CHECKED, ServerChange,
    ServerHealth, ServerState,
};
pub use kernel::{AnnounceSettings, AnnouncedRoutes, KernelSettings, LearnSettings};
pub use limits::{MOST_DEVICES, MOST_WORKERS};
pub use link::Link;
pub use lists::List;
pub use load::{Load, LoadNow};
pub use logs::{
    Collector, IpfixSettings, LogSettings, LogTo, LogWhat, SpoolSettings, SyslogSettings,
    TlsSettings, Transport,
};
pub use monitoring::{Master, MetricsPlace, MonitoringSettings, SnmpSettings};
pub use natgate_io::Device;
pub use natgate_ipv6 as ipv6;
pub use natgate_payload::{
    Explanation as AlgExplained, FlowState as AlgFlowState, Place as AlgPlace, Reason as AlgReason,
    Uses as AlgUses,
};
pub use observer::{Observer, SideStatus, SideStatus6, Status, Status6};
pub use ordered::{MappingPlace, Page, SubscriberPlace};
pub use pcp::{
    PCP_PORT, PcpCounters, PcpSettings, ResultCode, write_datagram, write_datagram_ipv6,
};
pub use router::KnownNeighbor;
pub use run::{Controls, run};
pub use settings::{
    Backend, ControlSettings, InsideRoutes, PagePlace, PageSettings, RealmSettings, ReceiveMode,
    RemoteSettings, Route, Settings, SideSettings, StateSettings, StaticNeighbor, WorkerSettings,
};
pub use settings6::{AdvertiseSettings, Route6, Settings6, StaticNeighbor6};
pub use state::{SavedPorts, SavedTeam, StateError};
pub use survey::{Figures, LinkFigures, Listed, NumberedHost, PoolFigures};
pub use team::{Division, Member, Wake, steering, team, team_memory};
pub use timing::{Durations, TimingNow};
pub use trace::{Probe, WorkerTrace};
pub use worker::Worker;
pub use worker_error::{NarrowDevice, WorkerError};
