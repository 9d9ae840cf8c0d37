//! The link between the two gateways of a pair: QUIC with certificates on both sides, in a thread
//! of its own.
//!
//! The link carries three kinds of bytes and reads none. **Messages** of replication may be lost,
//! and come in any order: a lost one delays no other. A **view** is the newest word of a node about
//! its slices: it arrives, or a newer one does. Their meaning is in `core/pair`, the reasons are in
//! `docs/design/pair.md`. **Packets of the tunnel** go behind messages, and may be lost as well.
//!
//! - **Roles:** the first node by name dials, with pauses from 100 ms to 2 s; the other listens.
//!   While there is no connection, the other knocks (protocol `natgate-knock/1`), and the first
//!   dials at once. A packet is sent every 500 ms. After 2 s without a packet the connection has
//!   ended.
//! - **Trust:** TLS 1.3. Each side checks that an authority of the file has signed the other's
//!   certificate, and that the certificate names the partner as a DNS name (a wildcard may match).
//!   There is no resumption of sessions and no data before the handshake (0-RTT). If a certificate
//!   limits its usage, it must allow both servers and clients. Lists of revoked certificates are
//!   not read: replace the authority instead. An expired certificate is refused at the next
//!   connection.
//! - **One partner:** the newest connection that has proved itself is in use. The one before is
//!   read for three more seconds and closed. Messages that are on their way then are not lost.
//! - **Versions:** the name of the protocol in the handshake (ALPN), from `natgate-pair/3` to
//!   `natgate-pair/6`. The greatest common one is used; without one, the connection is refused. The
//!   caller sends no control flows in records before version 5 ([`FLOWS`]), and no records without
//!   their keys and no sums over the settings of gateways before version 6 ([`KEYS`]).
//! - **Questions** ([`Link::ask`]), from version 4 on: each node asks one at a time and answers one
//!   at a time, within ten seconds. A question has at most 1 KiB, its answer 1 MiB.
//! - **Clocks:** every 30 s each node asks for the other one's time, by a question. The status has
//!   the difference.
//! - **Limits:** 8,192 messages and 32 MiB wait in each direction, 1,024 packets of the tunnel,
//!   each of which fits a datagram, and 64 words of it. A message has at most 16 MiB, a view 1 MiB.
//!   Eight handshakes are in progress with the partner's address and eight with others, and an
//!   address must be proved before anything is kept. What exceeds a limit is refused and counted.
//!
//! The **guardian** of a node is another process. After the node's process has ended, it tells the
//! partner so by a connection of its own ([`tell_end`], protocol `natgate-guardian/1`), with the
//! node's certificate. Both nodes hear it, whichever dials.
//!
//! Workers call [`Link::send`], [`Link::receive`], [`Link::tell`] and [`Link::heard`] while they
//! process packets: these calls do not wait for the network.
//!
//! ```no_run
//! use natgate_partner::{LinkError, Settings, start};
//!
//! fn run() -> Result<(), LinkError> {
//!     let link = start(&Settings {
//!         node: "nat-a".into(),
//!         listen: "192.0.2.1:4870".parse().expect("an address"),
//!         certificate: "/etc/natgate/pair.pem".into(),
//!         key: "/etc/natgate/pair.key".into(),
//!         authorities: "/etc/natgate/pair-authority.pem".into(),
//!         partner: "nat-b".into(),
//!         address: "192.0.2.2:4870".parse().expect("an address"),
//!     })?;
//!     let is_taken = link.tell(b"my view".to_vec());
//!     let is_queued = link.send(b"a record".to_vec());
//!     println!("{is_taken} {is_queued} {:?}", link.status());
//!     while let Some(message) = link.receive() {
//!         println!("{} bytes", message.len());
//!     }
//!     link.stop();
//!     Ok(())
//! }
//! ```

#![forbid(unsafe_code)]

mod budget;
mod clock;
mod congestion;
mod dialer;
mod error;
mod farewell;
mod frame;
mod guardian;
mod identity;
mod inbound;
mod knock;
mod lead;
mod limits;
mod link;
mod listener;
mod memory;
mod outbound;
mod question;
mod questions;
mod shared;
mod status;
#[cfg(test)]
mod tests;
mod transport;

pub use error::LinkError;
pub use farewell::tell_end;
pub use limits::{
    FLOWS, KEYS, MAX_ANSWER, MAX_MESSAGE, MAX_QUESTION, MAX_VIEW, MIN_DATAGRAM_ROOM, QUEUE_BYTES,
    QUEUE_MESSAGES, TUNNEL_HEAD, TUNNEL_PACKETS,
};
pub use link::{Link, Settings, faults, start};
pub use memory::Memory;
pub use question::AskError;
pub use questions::Answerer;
pub use shared::Wake;
pub use status::LinkStatus;
