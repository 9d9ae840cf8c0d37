//! ICMP errors of the gateway's own, for packets that the engine has nothing to do with: their
//! contents, their rate and their queue.

use crate::convert::ErrorMessage;
use alloc::collections::VecDeque;
use natgate_engine::{ErrorRates, Side};
use natgate_wire::ipv6::{MIN_MTU, next};
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6, icmp, icmpv6, ipv4, ipv6, protocol};

/// Most errors that wait to be sent.
const QUEUE: usize = 64;
/// Longest ICMP error in IPv4, bytes (RFC 1812 section 4.3.2.3).
const LONGEST_IPV4: usize = 576;
/// The bits of explicit congestion notification in the type of service and the traffic class.
const ECN: u8 = 0b11;
const DONT_FRAGMENT: u16 = 0x4000;
/// Next header of IPv4 in IPv6.
const IPV4_IN_IPV6: u8 = 4;
/// ICMP "host unreachable" (RFC 7596 section 6.2).
pub(crate) const HOST_UNREACHABLE: ErrorMessage = ErrorMessage::new(icmp::kind::UNREACHABLE, 1, 0);
/// ICMPv6 "source address failed ingress/egress policy" (RFC 7596 section 6.2).
pub(crate) const SOURCE_POLICY: ErrorMessage = ErrorMessage::new(icmpv6::kind::UNREACHABLE, 5, 0);
/// TTL and hop limit of the gateway's own packets.
pub(crate) const OWN_HOPS: u8 = 64;

/// An error to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) side: Side,
    len: usize,
    bytes: [u8; MIN_MTU],
}

impl Waiting {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The requester of an error, for the limits: an IPv4 address, or the network of an IPv6 one.
fn requester(quoted: &[u8]) -> u32 {
    match Ipv6::new_header_checked(quoted) {
        Ok(packet) => requester_of((packet.source() >> 64) as u64),
        Err(_) => Ipv4::new_header_checked(quoted).map_or(0, |packet| packet.source()),
    }
}

/// The requester that stands for a network of 64 bits: networks may differ in any bits, and the
/// limits look at the lower twelve bits of a requester.
pub fn requester_of(network: u64) -> u32 {
    (network.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as u32
}

/// Kinds of errors with rates of their own. A scan provokes other errors as often as it likes; a
/// host that does not hear of a narrow path waits for ever.
#[derive(Clone, Copy, Debug)]
enum Kind {
    TooBig,
    Other,
}

impl Kind {
    fn of_ipv6(message: ErrorMessage) -> Self {
        match message.kind {
            icmpv6::kind::PACKET_TOO_BIG => Self::TooBig,
            _ => Self::Other,
        }
    }

    fn of_ipv4(message: ErrorMessage) -> Self {
        const NEEDED: ErrorMessage = ErrorMessage::fragmentation_needed(0);
        match (message.kind, message.code) == (NEEDED.kind, NEEDED.code) {
            true => Self::TooBig,
            false => Self::Other,
        }
    }
}

/// Makes errors, at limited rates, as the engine does.
#[derive(Clone, Debug)]
pub(crate) struct Errors {
    /// By [`Kind`].
    rates: [ErrorRates; 2],
    queue: VecDeque<Waiting>,
    /// Errors that were due and not made.
    pub(crate) suppressed: u64,
}

impl Errors {
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            rates: [ErrorRates::new(per_second), ErrorRates::new(per_second)],
            queue: VecDeque::with_capacity(QUEUE),
            suppressed: 0,
        }
    }

    pub(crate) fn set_rate(&mut self, per_second: u32) {
        self.rates.iter_mut().for_each(|rates| rates.set_rate(per_second));
    }

    /// True, and counted, if one more error of a kind for a requester may be made now.
    fn may_send(&mut self, kind: Kind, now: u64, requester: u32) -> bool {
        let may = self.has_room() && self.rates[kind as usize].take(now, requester);
        self.suppressed += u64::from(!may);
        may
    }

    /// Queues an ICMPv6 error about a packet as received, unless RFC 4443 section 2.4 forbids it.
    pub(crate) fn send_ipv6(
        &mut self,
        now: u64,
        side: Side,
        source: Option<u128>,
        message: ErrorMessage,
        quoted: &[u8],
    ) {
        if !may_answer_ipv6(quoted, message) {
            return;
        }
        let Some(source) = source else {
            self.suppressed += 1;
            return;
        };
        if self.may_send(Kind::of_ipv6(message), now, requester(quoted)) {
            let mut waiting = Waiting { side, len: 0, bytes: [0; MIN_MTU] };
            waiting.len = write_ipv6(&mut waiting.bytes, source, message, quoted);
            self.queue.push_back(waiting);
        }
    }

    /// Queues an ICMP error about an IPv4 packet as received, unless RFC 1812 section 4.3.2.7
    /// forbids it. The side comes with its MTU.
    pub(crate) fn send_ipv4(
        &mut self,
        now: u64,
        (side, mtu): (Side, u16),
        source: u32,
        message: ErrorMessage,
        quoted: &[u8],
    ) {
        if may_answer_ipv4(quoted) && self.may_send(Kind::of_ipv4(message), now, requester(quoted))
        {
            let mut waiting = Waiting { side, len: 0, bytes: [0; MIN_MTU] };
            waiting.len = write_ipv4(&mut waiting.bytes, source, message, quoted, mtu);
            self.queue.push_back(waiting);
        }
    }

    /// Queues an ICMP error about an IPv4 packet that came out of a tunnel, unless RFC 1812 section
    /// 4.3.2.7 forbids it. It goes back into the tunnel, whose ends are those of the packet.
    pub(crate) fn send_tunneled(
        &mut self,
        now: u64,
        source: u32,
        ends: (u128, u128),
        message: ErrorMessage,
        quoted: &[u8],
    ) {
        // Hosts behind different tunnels may have one inner address.
        let requester = requester_of((ends.0 >> 64) as u64);
        if !may_answer_ipv4(quoted) || !self.may_send(Kind::of_ipv4(message), now, requester) {
            return;
        }
        let mut inner = [0; MIN_MTU];
        let len = write_ipv4(&mut inner, source, message, quoted, LONGEST_IPV4 as u16);
        let mut waiting = Waiting { side: Side::Inside, len: 0, bytes: [0; MIN_MTU] };
        waiting.len = ipv6::HEADER_LEN + len;
        waiting.bytes[ipv6::HEADER_LEN..][..len].copy_from_slice(&inner[..len]);
        let mut header = Ipv6::init(&mut waiting.bytes[..ipv6::HEADER_LEN]);
        header.set_traffic_class(inner[1]);
        header.set_payload_len(len as u16);
        header.set_next_header(IPV4_IN_IPV6);
        header.set_hop_limit(OWN_HOPS);
        header.set_source(ends.1);
        header.set_destination(ends.0);
        self.queue.push_back(waiting);
    }

    /// True if one more error may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE
    }

    /// True if no error waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The oldest error that waits.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        self.queue.pop_front()
    }
}

/// True if an IPv6 packet may be answered by an error.
fn may_answer_ipv6(quoted: &[u8], message: ErrorMessage) -> bool {
    let Ok(packet) = Ipv6::new_header_checked(quoted) else { return false };
    let is_multicast = |address: u128| address >> 120 == 0xff;
    let tells_multicast = message.kind == icmpv6::kind::PACKET_TOO_BIG;
    if packet.source() == 0
        || is_multicast(packet.source())
        || is_multicast(packet.destination()) && !tells_multicast
    {
        return false;
    }
    // What cannot be read may be an error.
    let Ok(walk) = packet.walk() else { return false };
    let is_later = walk.fragment.is_some_and(|(_, fragment)| fragment.offset != 0);
    let (protocol, at) = behind_authentication(quoted, (walk.protocol, walk.transport));
    let kind = quoted.get(at).copied();
    let is_error = |kind| icmpv6::is_error(kind) || kind == icmpv6::kind::REDIRECT;
    is_later || protocol != protocol::ICMPV6 || !kind.is_some_and(is_error)
}

/// The protocol and its offset behind an authentication header, if there is one.
fn behind_authentication(bytes: &[u8], (protocol, at): (u8, usize)) -> (u8, usize) {
    match (protocol, bytes.get(at), bytes.get(at + 1)) {
        (next::AUTHENTICATION, Some(next), Some(words)) => {
            (*next, at + usize::from(*words) * 4 + 8)
        }
        _ => (protocol, at),
    }
}

/// True if an IPv4 packet may be answered by an error.
fn may_answer_ipv4(quoted: &[u8]) -> bool {
    let Ok(packet) = Ipv4::new_header_checked(quoted) else { return false };
    let is_host = |address: u32| !matches!(address >> 24, 0 | 127 | 224..=255);
    let kind = packet.payload().first().copied();
    is_host(packet.source())
        && is_host(packet.destination())
        && packet.fragment_offset() == 0
        && !(packet.protocol() == protocol::ICMP && kind.is_some_and(icmp::is_error))
}

/// Writes an ICMPv6 error to the sender of `quoted`, of at most 1,280 bytes. Returns its length.
pub(crate) fn write_ipv6(
    bytes: &mut [u8; MIN_MTU],
    source: u128,
    ErrorMessage { kind, code, word }: ErrorMessage,
    quoted: &[u8],
) -> usize {
    const HEADERS: usize = ipv6::HEADER_LEN + icmpv6::HEADER_LEN;
    let quoted = &quoted[..quoted.len().min(MIN_MTU - HEADERS)];
    let destination = Ipv6::new_header_checked(quoted).map_or(0, |packet| packet.source());
    let len = HEADERS + quoted.len();
    bytes[HEADERS..len].copy_from_slice(quoted);
    let service = Ipv6::new_header_checked(quoted).map_or(0, |packet| packet.traffic_class());
    let mut packet = Ipv6::init(&mut bytes[..len]);
    packet.set_traffic_class(service & !ECN);
    packet.set_payload_len((len - ipv6::HEADER_LEN) as u16);
    packet.set_next_header(protocol::ICMPV6);
    packet.set_hop_limit(OWN_HOPS);
    packet.set_source(source);
    packet.set_destination(destination);
    if let Some(mut error) = Icmpv6::new_checked(packet.payload_mut()) {
        error.set_kind(kind);
        error.set_code(code);
        error.set_word(word);
        error.fill_checksum(source, destination);
    }
    len
}

pub(crate) fn write_ipv4(
    bytes: &mut [u8; MIN_MTU],
    source: u32,
    ErrorMessage { kind, code, word }: ErrorMessage,
    quoted: &[u8],
    mtu: u16,
) -> usize {
    const HEADERS: usize = ipv4::HEADER_LEN + icmp::HEADER_LEN;
    let longest = LONGEST_IPV4.min(mtu.into());
    let quoted = &quoted[..quoted.len().min(longest - HEADERS)];
    let header = Ipv4::new_header_checked(quoted);
    let (destination, service) =
        header.map_or((0, 0), |packet| (packet.source(), packet.service()));
    let len = HEADERS + quoted.len();
    bytes[HEADERS..len].copy_from_slice(quoted);
    bytes[ipv4::HEADER_LEN + 4..HEADERS].copy_from_slice(&word.to_be_bytes());
    let mut packet = Ipv4::init(&mut bytes[..len], ipv4::HEADER_LEN);
    packet.set_total_len(len as u16);
    packet.set_service(service & !ECN);
    // Without this flag the identification would have to differ from error to error (RFC 6864).
    packet.set_fragment_field(DONT_FRAGMENT);
    packet.set_ttl(OWN_HOPS);
    packet.set_protocol(protocol::ICMP);
    packet.set_source(source);
    packet.set_destination(destination);
    packet.fill_checksum();
    if let Some(mut error) = Icmp::new_checked(packet.payload_mut()) {
        error.set_kind(kind);
        error.set_code(code);
        error.fill_checksum();
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    const HOST: u128 = 0x2001_0db8 << 96 | 5;
    const OWN: u128 = 0x2001_0db8 << 96 | 1;

    fn packet(next_header: u8, payload: &[u8]) -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; 40 + payload.len()];
        bytes[40..].copy_from_slice(payload);
        let mut packet = Ipv6::init(&mut bytes[..]);
        packet.set_payload_len(payload.len() as u16);
        packet.set_next_header(next_header);
        packet.set_source(HOST);
        packet.set_destination(OWN + 7);
        bytes
    }

    #[test]
    fn an_error_quotes_what_fits_and_has_a_right_checksum() {
        let mut errors = Errors::new(10);
        let message = ErrorMessage::packet_too_big(1400);
        errors.send_ipv6(0, Side::Inside, Some(OWN), message, &packet(17, &[7; 3000]));
        let error = errors.pop().unwrap();
        assert_eq!((error.side, error.bytes().len()), (Side::Inside, 1280));
        let read = Ipv6::new_checked(error.bytes()).unwrap();
        assert_eq!((read.source(), read.destination()), (OWN, HOST));
        let icmp = Icmpv6::new_checked(read.payload()).unwrap();
        assert!(icmp.checksum_valid(OWN, HOST));
        assert_eq!((icmp.kind(), icmp.code(), icmp.word()), (2, 0, 1400));
        assert_eq!(icmp.body(), &packet(17, &[7; 3000])[..1232]);
    }

    #[test]
    fn errors_are_limited_in_rate_and_the_first_is_sent() {
        let mut errors = Errors::new(40);
        let mut send = |now, network: u128| {
            let message = ErrorMessage::HOP_LIMIT_EXCEEDED;
            let mut quoted = packet(17, &[0; 8]);
            let mut header = Ipv6::new_header_checked(&mut quoted[..]).unwrap();
            header.set_source(HOST | network << 64);
            errors.send_ipv6(now, Side::Inside, Some(OWN), message, &quoted);
            errors.pop().is_some()
        };
        // A network of 64 bits gets a quarter, and others still get errors.
        assert_eq!((0..100).filter(|_| send(5, 0)).count(), 10);
        assert_eq!((0..100).filter(|_| send(5, 1)).count(), 10);
        assert_eq!((0..100).filter(|_| send(5 + SECOND / 10, 0)).count(), 1);
        assert_eq!((0..100).filter(|_| send(5 + 9 * SECOND, 0)).count(), 10);
        assert_eq!(errors.suppressed, 90 + 90 + 99 + 90);
    }

    #[test]
    fn a_scan_does_not_silence_the_discovery_of_narrow_paths() {
        let mut errors = Errors::new(40);
        let scan = |errors: &mut Errors| {
            for network in 0..200_u128 {
                let mut quoted = packet(17, &[0; 8]);
                let mut header = Ipv6::new_header_checked(&mut quoted[..]).unwrap();
                header.set_source(HOST | network << 64);
                for message in [ErrorMessage::PROHIBITED_IPV6, ErrorMessage::HOP_LIMIT_EXCEEDED] {
                    errors.send_ipv6(5, Side::Inside, Some(OWN), message, &quoted);
                    errors.pop();
                }
            }
        };
        scan(&mut errors);
        let suppressed = errors.suppressed;
        assert!(suppressed > 300);
        let quoted = packet(17, &[7; 3000]);
        for _ in 0..10 {
            let message = ErrorMessage::packet_too_big(1400);
            errors.send_ipv6(5, Side::Inside, Some(OWN), message, &quoted);
            assert!(errors.pop().is_some(), "the rate of one requester is unused");
            scan(&mut errors);
        }
        let quoted = packet_ipv4();
        let needed = ErrorMessage::fragmentation_needed(1400);
        errors.send_ipv4(5, (Side::Outside, 1500), 7, HOST_UNREACHABLE, &quoted);
        assert!(errors.pop().is_none());
        errors.send_ipv4(5, (Side::Outside, 1500), 7, needed, &quoted);
        assert!(errors.pop().is_some());
        errors.send_tunneled(5, 7, (HOST + 1, OWN), HOST_UNREACHABLE, &quoted);
        assert!(errors.pop().is_none());
        errors.send_tunneled(5, 7, ((HOST + 1) << 1, OWN), needed, &quoted);
        assert!(errors.pop().is_some());
    }

    fn packet_ipv4() -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; 60];
        let mut packet = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
        packet.set_total_len(60);
        packet.set_ttl(64);
        packet.set_protocol(protocol::UDP);
        packet.set_source(0xc633_6407);
        packet.set_destination(0xcb00_7101);
        bytes
    }

    #[test]
    fn networks_that_differ_in_any_bit_are_told_apart() {
        let network = 0x2001_0db8_0000_0000_u64;
        let one = requester_of(network) % 4096;
        let same = (0..64).filter(|bit| requester_of(network ^ 1 << bit) % 4096 == one);
        assert_eq!(same.count(), 0);
    }

    #[test]
    fn nothing_answers_an_error_that_is_hidden() {
        let mut errors = Errors::new(10);
        // Behind an authentication header, and behind more headers than are read.
        let hidden = packet(51, &[&[58, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1][..], &[1; 8]].concat());
        let options = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
        let deep = packet(60, &[&options[..], &[1; 8]].concat());
        for quoted in [hidden, deep] {
            errors.send_ipv6(0, Side::Inside, Some(OWN), ErrorMessage::PROHIBITED_IPV6, &quoted);
            assert!(errors.pop().is_none());
        }
        let echo = packet(51, &[&[58, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1][..], &[128; 8]].concat());
        errors.send_ipv6(0, Side::Inside, Some(OWN), ErrorMessage::PROHIBITED_IPV6, &echo);
        assert!(errors.pop().is_some());
    }

    #[test]
    fn nothing_answers_an_error() {
        let mut errors = Errors::new(10);
        for (kind, answers) in [(1, false), (4, false), (137, false), (128, true)] {
            let quoted = packet(58, &[kind, 0, 0, 0, 0, 0, 0, 0]);
            errors.send_ipv6(0, Side::Inside, Some(OWN), ErrorMessage::PROHIBITED_IPV6, &quoted);
            assert_eq!(errors.pop().is_some(), answers, "type {kind}");
        }
        errors.send_ipv6(0, Side::Inside, None, ErrorMessage::PROHIBITED_IPV6, &packet(17, &[]));
        assert!(errors.pop().is_none() && errors.suppressed == 1);
    }
}
