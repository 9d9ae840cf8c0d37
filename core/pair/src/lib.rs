//! Two gateways that act as one: which of them may assign an external port, and how the state of
//! one reaches the other.
//!
//! This crate decides; it has no clock and does no I/O. [`Ownership`] says who owns a slice of the
//! external ports. [`Port`] models, for the checker, when a port may be used again although the
//! partner has copied its mapping. [`Sender`] and [`Receiver`] are the two sides of a stream of
//! records, over a link that loses, repeats and reorders. The reasons are in `docs/design/pair.md`.
//!
//! What always holds, whatever messages are lost, repeated or late, and however long a process
//! stands still: an external port leads to one subscriber.
//!
//! Call order of a node:
//!
//! ```
//! use natgate_pair::{Node, Ownership};
//!
//! // Two slices, the first at home on this node. The boot number is greater than all before.
//! let mut a = Ownership::start(Node::A, 7, &[Node::A, Node::B]);
//! let mut b = Ownership::start(Node::B, 3, &[Node::A, Node::B]);
//! // Views are sent a few times a second, and after every change.
//! for _ in 0..3 {
//!     let _ = b.receive(&a.view());
//!     let _ = a.receive(&b.view());
//! }
//! // A hold-down follows, as remote hosts may remember ports of an earlier run.
//! assert!(a.owns(0) && !a.may_assign(0));
//! a.end_rest(0, a.epoch(0));
//! assert!(a.may_assign(0) && !b.may_assign(0));
//! assert_eq!(b.source(0).map(|stream| stream.epoch), Some(a.epoch(0)));
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod awaited;
mod digest;
mod keys;
mod ownership;
mod packet;
mod port;
mod receiver;
mod sender;
mod sent;
mod time;
mod view;

pub use digest::{BUCKETS, Digests};
pub use ownership::{Boot, Claim, Epoch, Holding, Node, Ownership, Refusal, Role, Stream, View};
pub use packet::{
    Confirmation, Message, PACKET_HEAD, Packet, PacketRecord, RECORD_HEAD, Recipient, StreamId,
    WINDOW, read, recipient, write_ask_refused, write_opinion, write_refused, write_state,
};
pub use port::{Port, Record};
pub use receiver::{ReceivedCounters, Receiver};
pub use sender::{Present, Sender, Written};
pub use sent::Sent;
pub use time::Translation;
pub use view::MOST_SLICES;
