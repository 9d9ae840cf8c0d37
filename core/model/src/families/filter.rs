//! The filter of routed packets (specification, 19.24; RFC 6092).

use super::Families;
use super::headers::{Six, address};
use super::words::word;
use natgate_engine::{DropReason, Timestamp};
use natgate_ipv6::Filter;
use natgate_wire::protocol::{DCCP, ICMPV6, SCTP, TCP, UDP, UDP_LITE};
use std::collections::BTreeMap;

/// A protocol, and an address and port inside. The port of an echo message is its identifier, and
/// that of protocols without ports is 0.
type Inside = (u8, u128, u16);

/// The endpoints that have sent packets: the end of the time without packets, and true for an
/// established TCP connection.
pub(crate) type Endpoints = BTreeMap<Inside, (u64, bool)>;

const SECOND: u64 = 1_000_000_000;
/// Most endpoints. The model has no more: a full table is not compared, because what makes room
/// in it depends on the order of the table.
const MOST: usize = 65_536;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Time without packets after which an endpoint is forgotten, nanoseconds.
fn life(protocol: u8, is_established: bool) -> u64 {
    match (protocol, is_established) {
        (TCP, true) => 7440 * SECOND,
        (TCP, false) => 240 * SECOND,
        _ => 300 * SECOND,
    }
}

/// Source or destination port of a packet.
fn port(six: &Six, is_source: bool) -> u16 {
    let at = match six.transport.protocol {
        TCP | UDP | DCCP | SCTP | UDP_LITE => {
            if is_source {
                0
            } else {
                2
            }
        }
        ICMPV6 => 4,
        _ => return 0,
    };
    let bytes = six.transport.bytes;
    if bytes.len() >= at + 2 { word(bytes, at) } else { 0 }
}

/// Flags of a TCP segment.
fn flags(six: &Six) -> u8 {
    let flags = six.transport.bytes.get(13).copied();
    flags.filter(|_| six.transport.protocol == TCP).unwrap_or(0)
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

impl Families {
    pub(super) fn has_filter(&self) -> bool {
        self.settings.filter == Filter::OutboundOnly
    }

    /// Forgets endpoints whose time is over.
    fn forget_endpoints(&mut self, now: Timestamp) {
        self.endpoints.retain(|_, (until, _)| *until > now.0);
        self.senders.retain(|_, until| *until > now.0);
    }

    /// Records the sender of a packet from inside.
    pub(crate) fn note_sender(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), DropReason> {
        if !self.has_filter() {
            return Ok(());
        }
        let six = Six::read(bytes, false)?;
        let kind = six.transport.bytes.first();
        let is_other_icmp = six.transport.protocol == ICMPV6 && kind != Some(&ECHO_REQUEST);
        if six.transport.offset > 0 || is_other_icmp {
            return Ok(());
        }
        self.forget_endpoints(now);
        let inside = (six.transport.protocol, six.source, port(&six, true));
        let is_new = !self.endpoints.contains_key(&inside);
        if is_new && self.endpoints.len() >= MOST {
            return Err(DropReason::SessionTableFull);
        }
        let (until, is_established) = self.endpoints.entry(inside).or_default();
        *is_established &= flags(&six) & SYN == 0;
        *until = now.0 + life(inside.0, *is_established);
        if self.senders.len() < MOST || self.senders.contains_key(&six.source) {
            self.senders.insert(six.source, now.0 + life(UDP, false));
        }
        Ok(())
    }

    /// Checks that a packet from outside may come in.
    pub(crate) fn check_asked_for(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        if !self.has_filter() {
            return Ok(());
        }
        let six = Six::read(bytes, false)?;
        self.forget_endpoints(now);
        if self.is_asked_for(now, &six) { Ok(()) } else { Err(DropReason::Filtered) }
    }

    fn is_asked_for(&mut self, now: Timestamp, six: &Six) -> bool {
        let protocol = six.transport.protocol;
        let is_ike = protocol == UDP && port(six, false) == 500;
        if six.transport.offset > 0 {
            let sender = self.senders.get_mut(&six.destination);
            return sender.map(|until| *until = now.0 + life(UDP, false)).is_some();
        }
        // ESP, AH, mobility headers, HIP.
        if [50, 51, 135, 139].contains(&protocol) || is_ike {
            return true;
        }
        if six.is_error() {
            return self.is_about_endpoint(six);
        }
        if protocol == ICMPV6 && six.transport.bytes.first() != Some(&ECHO_REPLY) {
            return false;
        }
        let inside = (protocol, six.destination, port(six, false));
        let Some((until, is_established)) = self.endpoints.get_mut(&inside) else { return false };
        if protocol == TCP {
            let flags = flags(six);
            *is_established = (*is_established || flags & ACK != 0) && flags & (FIN | RST) == 0;
        }
        *until = now.0 + life(protocol, *is_established);
        true
    }

    /// True if an ICMPv6 error quotes a packet of its own receiver, which is recorded.
    fn is_about_endpoint(&self, six: &Six) -> bool {
        let quote = six.transport.bytes.get(8..).unwrap_or_default();
        let Ok(quoted) = Six::read(quote, true) else { return false };
        let inside = (quoted.transport.protocol, quoted.source, port(&quoted, true));
        let is_first = quoted.transport.offset == 0;
        is_first && address(six.bytes, 24) == quoted.source && self.endpoints.contains_key(&inside)
    }
}
