//! `natgate top`: a running gateway, live in a terminal: rates, drops by reason, pools, the
//! subscribers with the most mappings, workers, blocks of ports with their owners.
//!
//! A thread asks the control socket once an interval ([`source`]) and sends [`Snapshot`]s. Rates
//! are the differences of two snapshots. [`App`] is the state of the screen. [`draw`] shows it on
//! any terminal, [`page`] writes it as text. Nothing here changes the gateway. No title or cell is
//! cut at the edge of a screen: columns are shown whole or left out.
//!
//! ```
//! use natgate_top::{App, Snapshot, View, page};
//!
//! let mut app = App::new(View::Rates);
//! assert!(page(&app).starts_with("natgate: waiting"));
//! app.take(Snapshot { status: serde_json::json!({ "version": "1.0" }), ..Snapshot::default() });
//! assert!(page(&app).contains("natgate 1.0"));
//! ```

#![forbid(unsafe_code)]

mod app;
mod columns;
mod draw;
mod live;
pub mod source;
mod views;

pub use app::{App, Owners, Snapshot, View};
pub use draw::{draw, page};
pub use live::{Failure, run};
