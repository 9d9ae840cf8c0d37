//! Packets that the gateway makes: ICMP errors, their rate and queue, and the delayed answers to
//! TCP SYNs (RFC 5382 REQ-4).

use crate::config::{Config, SideConfig};
use crate::endpoint::AddressPort;
use crate::packet::Side;
use crate::rate::Rate;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use natgate_wire::{Icmp, Ipv4, icmp, ipv4, protocol};

//= rfc1812#section-4.3.2.3
/// Longest ICMP error, bytes (RFC 1812 section 4.3.2.3).
const ERROR_LEN: usize = 576;
/// Largest IP packet if no MTU is configured, bytes.
pub(crate) const DEFAULT_MTU: u16 = 1500;
/// Headers of an ICMP error before its quotation, bytes.
const ERROR_HEADERS: usize = ipv4::HEADER_LEN + icmp::HEADER_LEN;
/// Longest quotation, bytes.
pub(crate) const QUOTE_LEN: usize = ERROR_LEN - ERROR_HEADERS;
/// TTL of the gateway's own packets.
pub(crate) const OWN_TTL: u8 = 64;
/// Most errors that wait for `poll`.
pub(crate) const QUEUE: usize = 512;
/// Most SYNs that are remembered.
pub(crate) const PENDING_SYNS: usize = 1024;
/// Delay of the answer to an unsolicited SYN, nanoseconds.
pub(crate) const PENDING_SYN_NANOS: u64 = 6_000_000_000;

/// Contents of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    kind: u8,
    code: u8,
    /// The second word's lower half: the MTU of "fragmentation needed".
    mtu: u16,
}

impl Message {
    //= rfc1812#section-5.2.7.1
    //= rfc1812#section-5.2.7.1-unknown
    //= rfc1812#section-4.3.3.3
    //= rfc5508#REQ-10c
    pub(crate) const TTL_EXCEEDED: Self = Self::new(icmp::kind::TIME_EXCEEDED, 0);
    //= rfc1812#section-5.2.7.1-host
    pub(crate) const HOST_UNREACHABLE: Self = Self::new(icmp::kind::UNREACHABLE, 1);
    pub(crate) const PROHIBITED: Self = Self::new(icmp::kind::UNREACHABLE, 13);
    pub(crate) const PORT_UNREACHABLE: Self = Self::new(icmp::kind::UNREACHABLE, 3);

    const fn new(kind: u8, code: u8) -> Self {
        Self { kind, code, mtu: 0 }
    }

    /// The limits of a message's rate ([`Responder::rates`]).
    fn rates(self) -> usize {
        let Self { kind, code, .. } = Self::fragmentation_needed(0);
        usize::from((self.kind, self.code) == (kind, code))
    }

    /// ICMP type and code.
    pub(crate) const fn kind_and_code(self) -> (u8, u8) {
        (self.kind, self.code)
    }

    pub(crate) const fn fragmentation_needed(mtu: u16) -> Self {
        //= rfc1812#section-5.2.7.1-mtu
        Self { kind: icmp::kind::UNREACHABLE, code: 4, mtu }
    }
}

/// Addresses of an ICMP error, and the side to send it by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) side: Side,
    /// The realm of the destination, if the error leaves by the inside.
    pub(crate) realm: u16,
    pub(crate) source: u32,
    pub(crate) destination: u32,
}

/// An error that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct OwnError {
    pub(crate) time: u64,
    pub(crate) side: Side,
    /// The realm of the destination, if the error leaves by the inside.
    pub(crate) realm: u16,
    len: usize,
    bytes: [u8; ERROR_LEN],
}

impl OwnError {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Makes ICMP errors and keeps them until they are polled.
#[derive(Clone, Debug)]
pub(crate) struct Responder {
    queue: Vec<OwnError>,
    first: usize,
    len: usize,
    /// Limits of most errors, and of errors that tell of a narrow path. A scan provokes others as
    /// often as it likes; a host that does not hear of a narrow path waits for ever.
    rates: [ErrorRates; 2],
    /// The longest error for the outside, and for each realm, bytes; 0: no errors.
    longest_outside: usize,
    longest_inside: Vec<usize>,
}

impl Responder {
    pub(crate) fn new(config: &Config) -> Self {
        let slot =
            OwnError { time: 0, side: Side::Inside, realm: 0, len: 0, bytes: [0; ERROR_LEN] };
        //= rfc1812#section-4.3.2.8-configurable
        let rates = core::array::from_fn(|_| ErrorRates::new(config.limits.icmp_errors_per_second));
        Self {
            queue: vec![slot; QUEUE],
            first: 0,
            len: 0,
            rates,
            longest_outside: longest(&config.outside),
            longest_inside: longest_inside(config),
        }
    }

    /// Bytes that a responder and its pending SYNs take.
    pub(crate) fn memory() -> u64 {
        let slots = QUEUE * size_of::<OwnError>() + PENDING_SYNS * size_of::<PendingSyn>();
        (slots + 2 * REQUESTERS * size_of::<Rate>()) as u64
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == QUEUE
    }

    /// Sets the rate of errors, and their longest lengths for each realm. Returns the old lengths.
    pub(crate) fn renew(&mut self, per_second: u32, longest_inside: Vec<usize>) -> Vec<usize> {
        self.rates.iter_mut().for_each(|rates| rates.set_rate(per_second));
        core::mem::replace(&mut self.longest_inside, longest_inside)
    }

    /// Limits the length of errors on a link to its MTU, bytes, if the link gets errors at all.
    pub(crate) fn fit(&mut self, side: Side, realm: u16, mtu: u16) {
        let longest = match side {
            Side::Inside => self.longest_inside.get_mut(usize::from(realm)),
            Side::Outside => Some(&mut self.longest_outside),
        };
        if let Some(longest) = longest.filter(|longest| **longest > 0) {
            *longest = ERROR_LEN.min(usize::from(mtu));
        }
    }

    /// Queues an ICMP error about `quoted`, a packet as received. Returns `false` if the rate or
    /// the side forbids the error, or if the queue is full.
    pub(crate) fn send(
        &mut self,
        now: u64,
        message: Message,
        envelope: Envelope,
        quoted: &[u8],
    ) -> bool {
        //= rfc5508#REQ-9
        //= rfc5508#REQ-10f
        //= rfc1812#section-4.3.2.8
        let longest = match envelope.side {
            Side::Inside => {
                let realm = usize::from(envelope.realm);
                self.longest_inside.get(realm).copied().unwrap_or_default()
            }
            Side::Outside => self.longest_outside,
        };
        let requester = envelope.destination.wrapping_add(envelope.realm.into());
        let rates = &mut self.rates[message.rates()];
        if self.len == QUEUE || longest == 0 || !rates.take(now, requester) {
            return false;
        }
        let slot = &mut self.queue[(self.first + self.len) % QUEUE];
        self.len += 1;
        let quoted = &quoted[..quoted.len().min(longest - ERROR_HEADERS)];
        slot.time = now;
        slot.side = envelope.side;
        slot.realm = envelope.realm;
        slot.len = ERROR_HEADERS + quoted.len();
        write_error(&mut slot.bytes[..ERROR_HEADERS + quoted.len()], message, envelope, quoted);
        true
    }

    /// The time of the oldest error.
    pub(crate) fn next_time(&self) -> Option<u64> {
        (self.len > 0).then(|| self.queue[self.first].time)
    }

    /// The oldest error.
    pub(crate) fn poll(&mut self) -> Option<&OwnError> {
        if self.len == 0 {
            return None;
        }
        let slot = &self.queue[self.first];
        self.first = (self.first + 1) % QUEUE;
        self.len -= 1;
        Some(slot)
    }
}

/// The longest error for a side, bytes; 0: no errors.
fn longest(side: &SideConfig) -> usize {
    match side.silent {
        true => 0,
        //= rfc1812#section-4.2.3.3
        false => ERROR_LEN.min(usize::from(side.mtu.unwrap_or(DEFAULT_MTU))),
    }
}

/// The longest error for each realm, bytes; 0: no errors.
pub(crate) fn longest_inside(config: &Config) -> Vec<usize> {
    config.all_numbers().map(|realm| longest(config.inside_of(realm))).collect()
}

/// Number of classes of requesters.
const REQUESTERS: usize = 4096;

/// Rate limits of errors: one limit for all errors, and a quarter of it for one requester, so that
/// no requester uses up everything. The class of a requester is the last twelve bits of the sum of
/// address and realm. A requester without recent errors gets an error even when the rate is used
/// up, from a reserve of the same size. So the first error always goes out (RFC 1812 section
/// 4.3.2.8).
#[derive(Clone, Debug)]
pub struct ErrorRates {
    all: Rate,
    reserve: Rate,
    requesters: Vec<Rate>,
    per_second: u32,
}

impl ErrorRates {
    /// Limits by the errors in all a second.
    pub fn new(per_second: u32) -> Self {
        let requesters = vec![Rate::default(); REQUESTERS];
        Self { all: Rate::default(), reserve: Rate::default(), requesters, per_second }
    }

    /// Changes the errors in all a second.
    pub fn set_rate(&mut self, per_second: u32) {
        self.per_second = per_second;
    }

    /// Returns true, and counts an error, if a requester may be sent an error now, nanoseconds.
    pub fn take(&mut self, now: u64, requester: u32) -> bool {
        let share = (self.per_second / 4).max(1);
        let own = &mut self.requesters[requester as usize % REQUESTERS];
        let from = match self.all.permits(now, self.per_second) {
            true => &mut self.all,
            false if own.is_fresh(now) => &mut self.reserve,
            false => return false,
        };
        let permitted = own.permits(now, share) && from.permits(now, self.per_second);
        if permitted {
            own.count(now, share);
            from.count(now, self.per_second);
        }
        permitted
    }
}

fn write_error(bytes: &mut [u8], message: Message, envelope: Envelope, quoted: &[u8]) {
    const DONT_FRAGMENT: u16 = 0x4000;
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::init(bytes, ipv4::HEADER_LEN);
    packet.set_total_len(total_len);
    // The class of service of the quoted packet, without congestion marks.
    //= rfc5508#REQ-10d
    //= rfc1812#section-4.3.2.5
    packet.set_service(quoted[1] & 0xfc);
    //= rfc6864#section-4.1-any
    //= rfc1812#section-4.2.2.3-own
    packet.set_fragment_field(DONT_FRAGMENT);
    //= rfc1812#section-4.3.2.2
    packet.set_ttl(OWN_TTL);
    packet.set_protocol(protocol::ICMP);
    packet.set_source(envelope.source);
    packet.set_destination(envelope.destination);
    packet.fill_checksum();
    let payload = packet.payload_mut();
    //= rfc4884#section-4-length
    payload[..icmp::HEADER_LEN].fill(0);
    payload[6..8].copy_from_slice(&message.mtu.to_be_bytes());
    //= rfc1812#section-4.3.2.3-identical
    payload[icmp::HEADER_LEN..].copy_from_slice(quoted);
    let mut error = Icmp::new_checked(payload).expect("an error is longer than its header");
    error.set_kind(message.kind);
    error.set_code(message.code);
    error.fill_checksum();
}

/// Turns an echo request into its reply, in place.
pub(crate) fn echo_reply(bytes: &mut [u8]) {
    let mut packet = Ipv4::new_checked(bytes).expect("a parsed packet stays one");
    let (source, destination) = (packet.source(), packet.destination());
    //= rfc1812#section-4.3.2.5-reply
    //= rfc1812#section-4.3.3.6-source
    //= rfc1812#section-4.3.3.6-data
    packet.set_source(destination);
    packet.set_destination(source);
    packet.set_ttl(OWN_TTL);
    packet.fill_checksum();
    let mut message = Icmp::new_checked(packet.payload_mut()).expect("an echo request");
    message.set_kind(icmp::kind::ECHO_REPLY);
    message.fill_checksum();
}

/// A connection as seen outside: protocol, external endpoint and remote endpoint.
pub(crate) type Connection = (u8, AddressPort, AddressPort);

/// A SYN that found no mapping, or was refused.
#[derive(Clone, Debug)]
pub(crate) struct PendingSyn {
    /// Time of the answer, nanoseconds.
    pub(crate) due: u64,
    /// Addresses of the answer.
    pub(crate) envelope: Envelope,
    pub(crate) connection: Connection,
    len: usize,
    bytes: [u8; QUOTE_LEN],
}

impl PendingSyn {
    /// The start of the packet.
    pub(crate) fn quoted(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The SYNs that wait for an answer, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct PendingSyns(VecDeque<PendingSyn>);

impl PendingSyns {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(PENDING_SYNS))
    }

    /// Remembers a SYN. Returns `false` if there are too many.
    pub(crate) fn add(
        &mut self,
        due: u64,
        envelope: Envelope,
        connection: Connection,
        packet: &[u8],
    ) -> bool {
        if self.0.len() == PENDING_SYNS {
            return false;
        }
        let len = packet.len().min(QUOTE_LEN);
        let mut bytes = [0; QUOTE_LEN];
        bytes[..len].copy_from_slice(&packet[..len]);
        self.0.push_back(PendingSyn { due, envelope, connection, len, bytes });
        true
    }

    /// Time of the oldest SYN's answer, nanoseconds.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.0.front().map(|syn| syn.due)
    }

    pub(crate) fn pop(&mut self) -> Option<PendingSyn> {
        self.0.pop_front()
    }
}
