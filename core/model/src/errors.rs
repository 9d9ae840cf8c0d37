//! The ICMP errors that the translator makes (specification, section 8): the packets with errors,
//! the contents of errors, and their number. A chapter makes errors about unsolicited SYNs (4.21).

use crate::allocation::addresses;
use crate::bytes::{icmp_kind, ip};
use crate::{Model, Packet, Transmit};
use natgate_engine::{Refusal, Side, SideConfig, Timestamp};
use natgate_wire::icmp::{self, Icmp, kind::UNREACHABLE};
use natgate_wire::ipv4::{self, Ipv4};
use natgate_wire::protocol::ICMP;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

const SECOND: u64 = 1_000_000_000;

/// GCRA: true if one more event is within the rate. `due` is the time of the next event if events
/// come evenly.
pub(crate) fn conforms(due: u64, now: Timestamp, per_second: u32) -> bool {
    per_second > 0 && due <= now.0.saturating_add(SECOND - SECOND / u64::from(per_second))
}

/// GCRA: `due` after one more event.
pub(crate) fn spend(due: u64, now: Timestamp, per_second: u32) -> u64 {
    due.max(now.0).saturating_add(SECOND / u64::from(per_second))
}

/// Longest ICMP error (8.1), bytes.
const MOST_ERROR: u16 = 576;

/// Type, code, and the MTU of "fragmentation needed" (otherwise 0).
pub(crate) type Message = (u8, u8, u16);

/// 8.6: the limits of "fragmentation needed", and of all other errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllRates {
    pub(crate) too_big: ErrorRates,
    pub(crate) others: ErrorRates,
}

impl AllRates {
    fn of(&mut self, (kind, code, _): Message) -> &mut ErrorRates {
        match (kind, code) {
            (UNREACHABLE, 4) => &mut self.too_big,
            _ => &mut self.others,
        }
    }
}

/// For each limit of one kind of errors, the time of the next error if errors come evenly.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorRates {
    pub(crate) all: u64,
    pub(crate) reserve: u64,
    /// Due times by the last 12 bits of the errors' destination address.
    pub(crate) requesters: BTreeMap<u32, u64>,
}

impl ErrorRates {
    /// Returns true, and counts an error, if an error may go to an address now.
    pub(crate) fn take(&mut self, now: Timestamp, to: u32, rate: u32) -> bool {
        let share = (rate / 4).max(1);
        let own = self.requesters.entry(to & 0xfff).or_default();
        let at_rest = *own <= now.0;
        let common = match conforms(self.all, now, rate) {
            true => &mut self.all,
            false if at_rest => &mut self.reserve,
            false => return false,
        };
        if !conforms(*own, now, share) || !conforms(*common, now, rate) {
            return false;
        }
        *own = spend(*own, now, share);
        *common = spend(*common, now, rate);
        true
    }
}

impl Model {
    /// 3.28: refuses a packet that found no room, by the configured answer.
    pub(crate) fn refuse(&mut self, packet: &Packet) {
        match self.config.refusal {
            Refusal::HostUnreachable => self.answer(packet, (UNREACHABLE, 1, 0)),
            Refusal::Prohibited => self.answer(packet, (UNREACHABLE, 13, 0)),
            Refusal::Silent => {}
        }
    }

    /// Answers a packet with an ICMP error from this gateway's address on its side.
    pub(crate) fn answer(&mut self, packet: &Packet, message: Message) {
        if !matches!(icmp_kind(&packet.received), None | Some(0 | 8 | 13 | 14)) {
            return; // 8.5
        }
        let source = match packet.from {
            Side::Inside => {
                let own = self.config.inside_of(packet.realm).address;
                own.unwrap_or(Ipv4Addr::new(192, 0, 0, 8))
            }
            Side::Outside => self.config.outside.address.unwrap_or_else(|| {
                let mut all = self.config.pools.iter().flat_map(addresses);
                all.next().expect("a packet from outside had an external destination")
            }),
        };
        let back = (packet.from, packet.realm);
        self.send(self.now, back, source, message, &packet.received);
    }

    /// Makes the ICMP error about a packet, unless its side gets no errors or the rate is exceeded.
    pub(crate) fn send(
        &mut self,
        time: Timestamp,
        (side, realm): (Side, u16),
        source: Ipv4Addr,
        message: Message,
        about: &[u8],
    ) {
        let to = ip(about).source();
        let rate = self.config.limits.icmp_errors_per_second;
        let requester = to.wrapping_add(realm.into()); // 15.17
        let SideConfig { silent, mtu, .. } = *self.side(side, realm);
        if silent || !self.errors.of(message).take(time, requester, rate) {
            self.counters.errors_suppressed += 1;
            return;
        }
        self.counters.generated += 1;
        let longest = usize::from(mtu.unwrap_or(MOST_ERROR).min(MOST_ERROR));
        let quote = &about[..about.len().min(longest - ipv4::HEADER_LEN - icmp::HEADER_LEN)];
        let bytes = write(source, to, message, quote);
        self.made.transmits.push(Transmit { time, side, realm, bytes });
    }
}

/// 8.1: the bytes of an error that quotes the start of a packet.
fn write(source: Ipv4Addr, to: u32, (kind, code, mtu): Message, quote: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::HEADER_LEN + icmp::HEADER_LEN + quote.len()];
    let len = bytes.len() as u16;
    let mut error = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
    error.set_total_len(len);
    error.set_service(quote[1] & !0b11); // without ECN
    error.set_fragment_field(0x4000);
    error.set_ttl(64);
    error.set_protocol(ICMP);
    error.set_source(source.to_bits());
    error.set_destination(to);
    error.fill_checksum();
    let body = error.payload_mut();
    body[6..8].copy_from_slice(&mtu.to_be_bytes());
    let mut message = Icmp::new_checked(body).expect("long enough");
    message.set_kind(kind);
    message.set_code(code);
    message.body_mut().copy_from_slice(quote);
    message.fill_checksum();
    bytes
}
