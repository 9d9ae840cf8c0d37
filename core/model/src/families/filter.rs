//! The filter of routed packets (specification, 19.24; RFC 6092).

use super::headers::{Six, address};
use super::words::word;
use super::{Families, message};
use natgate_engine::{DropReason, Side, Timestamp};
use natgate_ipv6::{Filter, requester_of};
use natgate_wire::protocol::{DCCP, ICMPV6, SCTP, TCP, UDP, UDP_LITE};
use std::collections::{BTreeMap, VecDeque};

/// A protocol, and an address and port inside. The port of an echo message is its identifier, and
/// that of protocols without ports is 0.
type Inside = (u8, u128, u16);

/// The endpoints that have sent packets: the end of the time without packets, and true for an
/// established connection.
pub(crate) type Endpoints = BTreeMap<Inside, (u64, bool)>;

/// Requests from outside that were refused: the time of the answer, the receiver, and the packet as
/// received.
pub(crate) type Refused = VecDeque<(u64, Inside, Vec<u8>)>;

/// Most refused requests that are remembered, and most of a class of networks.
const MOST_REFUSED: (usize, usize) = (1024, 64);
const SECOND: u64 = 1_000_000_000;
/// Most endpoints, if there may not be more sessions. The model has no more: a full table is not
/// compared, because what makes room in it depends on the order of the table.
const MOST: usize = 65_536;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Time without packets after which an endpoint is forgotten, nanoseconds.
fn life(protocol: u8, is_established: bool) -> u64 {
    match (protocol, is_established) {
        (TCP | SCTP | DCCP, true) => 7440 * SECOND,
        (TCP | SCTP, false) => 240 * SECOND,
        (DCCP, false) => 480 * SECOND,
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

/// The meaning of a packet for a connection.
#[derive(PartialEq)]
enum Step {
    Request,
    Progress,
    End,
}

/// Reads a packet of TCP (flags), SCTP (type of the first chunk) or DCCP (type).
fn step(six: &Six) -> Option<Step> {
    let byte = |at: usize| six.transport.bytes.get(at).copied();
    let (request, end, progress) = match six.transport.protocol {
        TCP => {
            let flags = byte(13)?;
            let has = |bits| flags & bits != 0;
            (!has(FIN | RST | ACK) && has(SYN), has(FIN | RST), has(ACK))
        }
        SCTP => {
            let chunk = byte(12)?;
            (chunk == 1, matches!(chunk, 6..=8 | 14), true)
        }
        DCCP => {
            let kind = byte(8)? >> 1 & 15;
            (kind == 0, matches!(kind, 5..=7), kind < 10)
        }
        _ => return None,
    };
    let steps = [(request, Step::Request), (end, Step::End), (progress, Step::Progress)];
    steps.into_iter().find_map(|(is, step)| is.then_some(step))
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
        if is_new && self.is_full(self.endpoints.len()) {
            return Err(DropReason::SessionTableFull);
        }
        let (until, is_established) = self.endpoints.entry(inside).or_default();
        *is_established &= inside.0 == SCTP || step(&six) != Some(Step::Request);
        *until = now.0 + life(inside.0, *is_established);
        if !self.is_full(self.senders.len()) || self.senders.contains_key(&six.source) {
            self.senders.insert(six.source, now.0 + life(UDP, false));
        }
        Ok(())
    }

    /// True if there is no room beside so many records.
    fn is_full(&self, records: usize) -> bool {
        records >= MOST && records as u64 >= self.config.session_room()
    }

    /// Checks that a packet from outside may come in.
    pub(crate) fn check_asked_for(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        received: &[u8],
    ) -> Result<(), DropReason> {
        if !self.has_filter() {
            return Ok(());
        }
        let six = Six::read(bytes, false)?;
        self.forget_endpoints(now);
        if self.is_asked_for(now, &six) {
            return Ok(());
        }
        let is_request = six.transport.offset == 0 && step(&six) == Some(Step::Request);
        if is_request && self.config.answer_unsolicited_syn {
            let inside = (six.transport.protocol, six.destination, port(&six, false));
            let class = |bytes: &[u8]| requester_of((address(bytes, 8) >> 64) as u64) % 256;
            let own = class(received);
            let of_class = self.refused.iter().filter(|(.., one)| class(one) == own).count();
            match self.refused.len() < MOST_REFUSED.0 && of_class < MOST_REFUSED.1 {
                true => self.refused.push_back((now.0 + 6 * SECOND, inside, received.to_vec())),
                false => self.counters.errors_suppressed += 1,
            }
        }
        Err(DropReason::Filtered)
    }

    /// Answers the refused requests whose receivers have sent nothing for six seconds.
    pub(crate) fn answer_refused(&mut self, now: Timestamp) {
        while let Some((due, inside, received)) = self.refused.pop_front_if(|one| one.0 <= now.0) {
            let has_sent = self.endpoints.get(&inside).is_some_and(|(until, _)| *until > due);
            if !has_sent {
                self.answer(now, Side::Outside, &received, message(1, 1));
            }
        }
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
        match step(six) {
            Some(Step::Progress) => *is_established = true,
            Some(Step::End) if protocol != SCTP => *is_established = false,
            _ => {}
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
