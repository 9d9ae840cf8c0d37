//! A NAT that runs: the translator between two devices, with the router around it, or between the
//! two interfaces of a capture.

mod settings;

pub use settings::{Backend, Route, Settings, SideSettings};
