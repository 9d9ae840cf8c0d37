//! What a subscriber's host asks of its NAT: PCP (RFC 6887, with port sets, RFC 7753) and, of old
//! clients on the same port, NAT-PMP (RFC 6886); the server's side.
//!
//! A state machine without input, output, clock or memory of its own. [`Server::read`] takes a
//! request's bytes and says what there is to do: nothing, send an answer that needs nobody, or
//! carry out an [`Operation`] on the translator. What came of that becomes an answer by
//! [`Request::grant`] or [`Request::refuse`], which read the request's bytes once more for what
//! they have to repeat. Whose mapping is whose, how many there may be and when they go is the
//! translator's affair; that a request comes from inside, its caller's.
//!
//! Nothing here allocates, and no bytes make it panic.

#![no_std]
#![forbid(unsafe_code)]

mod code;
mod message;
mod natpmp;
mod options;
mod server;

pub use code::ResultCode;
pub use message::{ANNOUNCE, HEADER_LEN, MAP, Nonce, PEER, VERSION, mapped};
pub use natpmp::announcement as nat_pmp_announcement;
pub use options::{Filter, Filters, MOST_FILTERS};
pub use server::{
    Granted, Map, Operation, Peer, Policy, Read, Refusal, Request, Server, Silence, Unmap,
    announcement,
};

use arrayvec::ArrayVec;
use core::net::Ipv4Addr;

/// The port that requests are sent to, and answers come from.
pub const SERVER_PORT: u16 = 5351;
/// The port that announcements to all are sent to.
pub const CLIENT_PORT: u16 = 5350;
/// Where announcements to all are sent.
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The longest message, bytes.
pub const LONGEST: usize = 1100;

/// An answer's bytes: the payload of a datagram.
pub type Answer = ArrayVec<u8, LONGEST>;
