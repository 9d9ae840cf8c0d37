//! `natgate top`: a running gateway, live in a terminal: rates, drops by reason, pools, the subscribers
//! that have most, workers.
//!
//! A thread asks the control socket once an interval ([`source`]); what it brings are [`Snapshot`]s, and
//! two of them make rates. [`App`] is what is shown and how; [`draw`] puts it on any terminal, or on a
//! page of text. Nothing here changes the gateway.

#![forbid(unsafe_code)]

mod app;
mod draw;
mod live;
pub mod source;

pub use app::{App, Snapshot, View};
pub use draw::{draw, page};
pub use live::{Failure, run};
