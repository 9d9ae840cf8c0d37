//! The control of a gateway: the configuration file, its effects, and the interface for commands.
//!
//! [`config`] reads the file that an operator writes. [`meaning`] describes its effects in words
//! and numbers. [`who`] finds the owner of an external endpoint, [`past`] the owner at an earlier
//! time. [`json`] gives events, counters, mappings and sessions the form that scripts rely on.
//! [`interface`] has the commands for a running gateway; they come by [`socket`] (HTTP). [`reload`]
//! replaces the configuration of a running gateway. Nothing here touches a packet.
//!
//! ```
//! use natgate_control::config;
//!
//! let text = r#"
//! [inside]
//! device = "eth1"
//! address = "10.0.0.1/8"
//! [outside]
//! device = "eth0"
//! address = "192.0.2.2/30"
//! gateway = "192.0.2.1"
//! [[pool]]
//! addresses = ["203.0.113.0/28"]
//! "#;
//! let settings = config::parse(text, "natgate.toml").expect("the text has no problem");
//! assert_eq!(settings.engine.pools[0].count(), 16);
//!
//! let problems = config::parse("[insode]", "natgate.toml").unwrap_err();
//! assert!(problems[0].starts_with("natgate.toml:1:"), "{problems:?}");
//! ```

#![forbid(unsafe_code)]

pub mod config;
mod host_names;
pub mod interface;
pub mod json;
pub mod meaning;
pub mod partner_log;
pub mod past;
pub mod refresh;
pub mod reload;
pub mod routes;
pub mod who;

pub use natgate_http as socket;
