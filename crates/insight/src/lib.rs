//! What happens to packets, told to people: `natgate trace` and `natgate capture`.
//!
//! [`packet`] reads the packet that somebody asks about; [`told`] gives the translator's explanation the
//! form that people and scripts read, and [`reasons`] says what drop counters mean; [`filter`] reads
//! what a capture is of, and [`stream`] writes it as pcapng; [`paths`] serves both at the control socket.
//! Left to others: what would happen (the engine's
//! `explain`), and copying packets (the gateway's `capture`).

#![forbid(unsafe_code)]

pub mod events;
pub mod filter;
pub mod packet;
pub mod paths;
pub mod reasons;
pub mod stream;
pub mod told;
