//! `natgate top`: a running gateway, live in a terminal: rates, drops by reason, pools, the
//! subscribers with the most mappings, workers, blocks of ports with their owners.
//!
//! A thread asks the control socket once an interval ([`source`]) and brings [`Snapshot`]s; two of
//! them make rates. [`App`] is the state of the screen; [`draw`] puts it on any terminal and
//! [`page`] on a page of text. Nothing here changes the gateway, and no title or cell is cut at the
//! edge of a screen: columns are shown whole or left out.

#![forbid(unsafe_code)]

mod app;
mod columns;
mod draw;
mod live;
pub mod source;
mod views;

pub use app::{App, Snapshot, View};
pub use draw::{draw, page};
pub use live::{Failure, run};
