//! Application-level gateways: protocols that carry addresses and ports in their data.
//!
//! The crate is a state machine beside the engine, without a clock, a source of randomness, input
//! or output. [`Payloads`] gets the packets of control flows in the form that they have outside,
//! edits them, and asks the trait [`Ports`] for the ports of expected flows. A protocol is one file
//! that reads like its RFC. What all protocols have in common is the framework: the order of bytes,
//! sequence numbers, retransmissions, limits (`docs/design/payloads.md`).
//!
//! Call order, for each packet: [`Payloads::process`], then [`Payloads::poll_transmit`] and
//! [`Payloads::poll_event`] until both are empty. [`Payloads::sweep`] forgets old flows.
//!
//! ```
//! use natgate_payload::{Limits, Payloads};
//!
//! let payloads = Payloads::new(Limits { flows: 16, buffers: 4 }, [7; 32]);
//! assert_eq!(payloads.flows(), 0);
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod changes;
mod dns;
mod expectation;
mod explain;
mod flow;
mod ftp;
mod h323;
mod index;
mod irc;
mod kind;
mod lifetime;
mod message;
mod outbox;
mod payloads;
mod pptp;
mod protocols;
mod reason;
mod room;
mod rtsp;
mod saved;
mod sdp;
mod sip;
mod stream;
mod text;
mod tftp;

pub use expectation::{
    CallStep, Counterpart, Endpoints, Expectation, FurtherFlow, Ports, Uses, Wanted,
};
pub use explain::{Edit, Explanation, FlowState, Place};
pub use flow::Fate;
pub use kind::Kind;
pub use message::Opened;
pub use natgate_engine::Side;
pub use payloads::{
    ControlPacket, CopiedHost, Counters, Event, FlowKey, Limits, NewFlow, Payloads, RestoreError,
};
pub use reason::Reason;
pub use room::Room;
