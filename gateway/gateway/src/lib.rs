//! A NAT that runs: the translator between two devices, with the router around it, or between the
//! two interfaces of a capture.

#![forbid(unsafe_code)]

pub mod capture;
mod clock;
mod command;
mod counters;
mod door;
mod folder_owner;
mod fragment;
mod handover;
mod inside_routes;
mod kernel;
mod links;
mod load;
mod logs;
mod monitoring;
mod ordered;
pub mod panics;
mod pcp;
pub mod replay;
pub mod router;
mod run;
mod settings;
mod state;
mod survey;
mod team;
mod timing;
mod trace;
mod wiring;
mod worker;

pub use clock::Clock;
pub use command::{
    CommandError, Commander, Commands, Numbered, Prepared, Reconfigured, commands, team_commands,
};
pub use counters::{Losses, Origin};
pub use folder_owner::{create_anew, give_to_folder_owner, open_or_create};
pub use handover::{Division, KnownNeighbor, Legacy, Writing, Written};
pub use inside_routes::InsideRoutes;
pub use kernel::{AnnounceSettings, AnnouncedRoutes, KernelSettings, LearnSettings};
pub use links::Link;
pub use load::{Load, LoadNow};
pub use logs::{
    Collector, IpfixSettings, LogSettings, LogTo, LogWhat, SpoolSettings, SyslogSettings,
    TlsSettings, Transport,
};
pub use monitoring::{Master, MetricsPlace, MonitoringSettings, SnmpSettings};
pub use natgate_io::Device;
pub use ordered::{MappingPlace, Page, SubscriberPlace};
pub use pcp::{PCP_PORT, PcpCounters, PcpSettings, ResultCode, write_datagram};
pub use run::{Controls, Observer, run};
pub use settings::{
    Backend, ControlSettings, PagePlace, PageSettings, RealmSettings, ReceiveMode, RemoteSettings,
    Route, Settings, SideSettings, StaticNeighbor, WorkerSettings,
};
pub use state::{SavedPorts, StateError, StateSettings};
pub use survey::{Figures, LinkFigures, List, Listed, PoolFigures};
pub use team::{MOST_WORKERS, Member, Wake, steering, team, team_memory};
pub use timing::{Durations, TimingNow};
pub use trace::{Probe, WorkerTrace};
pub use worker::{MOST_DEVICES, SideStatus, Status, Worker, WorkerError};
