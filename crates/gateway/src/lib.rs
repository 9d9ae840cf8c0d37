//! A NAT that runs: the translator between two devices, with the router around it, or between the
//! two interfaces of a capture.

#![forbid(unsafe_code)]

mod clock;
mod command;
mod counters;
mod fragment;
mod links;
pub mod replay;
pub mod router;
mod run;
mod settings;
mod state;
mod wiring;
mod worker;

pub use clock::Clock;
pub use command::{CommandError, Commander, Commands, Prepared, Reconfigured, commands};
pub use counters::{Losses, Origin};
pub use links::Link;
pub use natgate_io::Device;
pub use run::{Controls, Observer, run};
pub use settings::{Backend, RealmSettings, ReceiveMode, Route, Settings, SideSettings};
pub use state::{SavedPorts, StateError, StateSettings};
pub use worker::{MOST_DEVICES, SideStatus, Status, Worker, WorkerError};
