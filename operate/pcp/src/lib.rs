//! The server's side of the protocols by which a host requests mappings of its NAT: PCP (RFC 6887,
//! with port sets, RFC 7753, and the prefixes of NAT64, RFC 7225) and, for old clients on the same
//! port, NAT-PMP (RFC 6886).
//!
//! A state machine without input, output, clock or memory of its own. [`Server::read`] reads the
//! bytes of a request. It returns nothing to do, an answer to send, or an [`Operation`] for the
//! translator. [`Request::grant`] and [`Request::refuse`] make the answer from the result of the
//! operation and from the bytes of the request, parts of which the answer repeats. The translator
//! decides about owners, quotas and lifetimes of mappings. The caller passes requests from inside
//! only.
//!
//! Nothing here allocates, and no bytes make it panic.
//!
//! ```
//! use natgate_pcp::{Client, MAP, Policy, Read, Refusal, ResultCode, Server, VERSION, mapped};
//! use std::net::Ipv4Addr;
//!
//! let server = Server::new(Policy { lifetime: (120, 86_400), nat_pmp: true, port_set: 1 });
//! let address = Ipv4Addr::new(10, 0, 0, 5);
//! let client =
//!     Client { address: address.into(), may_speak_for_others: false, prefixes: &[] };
//! // A mapping for UDP port 5000, for an hour, any external endpoint.
//! let head = [&[VERSION, MAP, 0, 0, 0, 0, 0x0e, 0x10][..], &mapped(address)].concat();
//! let map = [&[9; 12][..], &[17, 0, 0, 0, 0x13, 0x88, 0, 0], &mapped([0; 4].into())].concat();
//! let bytes = [head, map].concat();
//! let Read::Ask(request) = server.read(&bytes, client, 7) else { panic!("it is right") };
//! assert_eq!(request.host, address);
//! let answer = request.refuse(&bytes, Refusal::new(ResultCode::NoResources), 7);
//! assert_eq!(answer[..4], [VERSION, MAP | 0x80, 0, ResultCode::NoResources as u8]);
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod code;
mod message;
mod natpmp;
mod options;
mod prefix64;
mod request;
mod server;

pub use code::ResultCode;
pub use message::{ANNOUNCE, HEADER_LEN, MAP, Nonce, PEER, VERSION, mapped};
pub use natpmp::announcement as nat_pmp_announcement;
pub use options::{Filter, Filters, MOST_FILTERS};
pub use prefix64::Prefix64;
pub use request::{
    Client, Granted, Map, Operation, Peer, Policy, Read, Refusal, Request, Silence, Unmap,
};
pub use server::{Server, announcement};

use arrayvec::ArrayVec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// The port that requests are sent to, and answers come from.
pub const SERVER_PORT: u16 = 5351;
/// The port that announcements to all are sent to.
pub const CLIENT_PORT: u16 = 5350;
/// Destination of announcements to all.
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Destination of announcements to all hosts of IPv6.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The longest message, bytes.
pub const LONGEST: usize = 1100;

/// An answer's bytes: the payload of a datagram.
pub type Answer = ArrayVec<u8, LONGEST>;
