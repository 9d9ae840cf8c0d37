//! Explanations and captures of packets: `natgate trace`, `natgate capture`, and the stream of
//! events.
//!
//! [`packet`] reads the description of a packet; [`explanation`] gives the translator's explanation
//! a form for people and scripts, and [`reasons`] explains drop counters; [`filter`] reads the
//! filter of a capture, and [`pcapng`] writes the capture; [`api`] serves both at the control
//! socket, [`events`] the stream of events. The decision about a packet is the engine's
//! (`explain`), and copying packets is the gateway's (`capture`).

#![forbid(unsafe_code)]

pub mod api;
pub mod events;
pub mod explanation;
pub mod filter;
pub mod packet;
pub mod pcapng;
pub mod reasons;
