//! A NAT that runs: the translator between two devices, with the router around it, or between the
//! two interfaces of a capture.

#![forbid(unsafe_code)]

mod clock;
mod command;
mod counters;
mod fragment;
mod kernel;
mod links;
mod load;
pub mod replay;
pub mod router;
mod run;
mod settings;
mod state;
mod team;
mod wiring;
mod worker;

pub use clock::Clock;
pub use command::{
    CommandError, Commander, Commands, Numbered, Prepared, Reconfigured, commands, team_commands,
};
pub use counters::{Losses, Origin};
pub use kernel::{AnnounceSettings, KernelSettings, LearnSettings};
pub use links::Link;
pub use load::{Load, LoadNow};
pub use natgate_io::Device;
pub use run::{Controls, Observer, run};
pub use settings::{
    Backend, RealmSettings, ReceiveMode, Route, Settings, SideSettings, WorkerSettings,
};
pub use state::{SavedPorts, StateError, StateSettings};
pub use team::{MOST_WORKERS, Member, steering, team};
pub use worker::{MOST_DEVICES, SideStatus, Status, Worker, WorkerError};
