//! What happens by itself: sessions and hold-downs run out, unsolicited SYNs are answered, and the
//! ICMP errors that the translator makes (specification, sections 1, 4.7, 8 and 9.1).

use crate::allocation::{addresses, conforms, spend};
use crate::bytes::ip;
use crate::tcp::State;
use crate::{Key, Made, Model, Packet, Syn, Transmit};
use natgate_engine::{Change, Endpoint, Side, TICK, Timestamp};
use natgate_wire::icmp::{self, Icmp, kind::UNREACHABLE};
use natgate_wire::ipv4::{self, Ipv4};
use natgate_wire::protocol::{ICMP, TCP, UDP};
use std::net::Ipv4Addr;
use std::time::Duration;

/// How long an unsolicited SYN waits for its answer (4.7).
const SYN_DELAY: Duration = Duration::from_secs(6);
/// How many may wait.
const MOST_SYNS: usize = 1024;
/// Longest ICMP error (8.1), bytes.
const MOST_ERROR: usize = 576;

/// The first tick that is not before a time (1.2).
pub(crate) fn tick(time: Timestamp) -> Timestamp {
    Timestamp(time.0.div_ceil(TICK.as_nanos() as u64).saturating_mul(TICK.as_nanos() as u64))
}

impl Model {
    /// Lets time pass: what is due until `now` happens, each at its own tick.
    pub fn advance(&mut self, now: Timestamp) -> Made {
        self.see(now);
        while let Some(time) = self.next_tick().filter(|time| *time <= self.now) {
            // Of what is due at one time sessions go first: they no longer explain a SYN.
            self.expire_sessions(time);
            self.answer_syns(time);
            self.held.retain(|_, until| tick(*until) > time);
        }
        std::mem::take(&mut self.made)
    }

    /// When something is due next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let sessions = self.mappings.values().flat_map(|mapping| mapping.sessions.values());
        let sessions = sessions.map(|session| session.expires);
        let ticks = sessions.chain(self.held.values().copied()).map(tick);
        ticks.chain(self.syns.iter().map(|syn| syn.due)).min()
    }

    /// Sessions whose time has run out go, and with the last of them their mapping (9.1).
    fn expire_sessions(&mut self, time: Timestamp) {
        let closing = self.config.timeouts.tcp_closing;
        for mapping in self.mappings.values_mut() {
            mapping.sessions.retain(|_, session| {
                let due = tick(session.expires) <= time;
                if due && session.connection.state == Some(State::Established) {
                    session.connection.state = Some(State::Transitory); // 9.3
                    session.expires = time.plus(closing);
                    return true;
                }
                !due
            });
        }
        let gone = self.dynamic().filter(|(_, mapping)| mapping.sessions.is_empty());
        let gone: Vec<Key> = gone.map(|(key, _)| *key).collect();
        for key in gone {
            let mapping = self.mappings.remove(&key).expect("just seen");
            if matches!(key.protocol, UDP | ICMP) {
                let until = time.plus(self.config.timeouts.hold_down); // 5.6
                self.held.insert((key.protocol, mapping.external), until);
            }
            self.raise(time, Change::MappingRemoved(mapping.id(key)));
            let subscriber = key.internal.address;
            if !self.dynamic().any(|(other, _)| other.internal.address == subscriber) {
                self.quota_reported.remove(&subscriber.to_bits());
            }
        }
    }

    /// 4.7: remembers a SYN that was refused; `external` is what it was sent to.
    pub(crate) fn remember(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) {
        if packet.is_syn() && self.syns.len() == MOST_SYNS {
            self.counters.errors_suppressed += 1;
        } else if packet.is_syn() {
            let due = self.now.plus(SYN_DELAY);
            let (back_to, quote) = (packet.from, packet.received.clone());
            self.syns.push(Syn { due, external, remote, back_to, quote });
        }
    }

    /// 4.7, to the nanosecond: answers the SYNs that nothing has explained by now.
    fn answer_syns(&mut self, time: Timestamp) {
        let (due, later) = self.syns.drain(..).partition(|syn: &Syn| syn.due <= time);
        self.syns = later;
        let due: Vec<Syn> = due;
        for syn in due {
            let explained = self.mappings.iter().any(|(key, mapping)| {
                key.protocol == TCP
                    && mapping.external == syn.external
                    && mapping.sessions.contains_key(&syn.remote)
            });
            if !explained {
                let port_unreachable = (UNREACHABLE, 3, 0);
                self.send(time, syn.back_to, syn.external.address, port_unreachable, &syn.quote);
            }
        }
    }

    /// Section 8: answers a packet with an ICMP error from this gateway's address on its side.
    pub(crate) fn answer(&mut self, packet: &Packet, kind: u8, code: u8, mtu: u16) {
        if packet.is_error() {
            return; // 8.2
        }
        let source = match packet.from {
            Side::Inside => self.config.inside.address.unwrap_or(Ipv4Addr::new(192, 0, 0, 8)),
            Side::Outside => self.config.outside.address.unwrap_or_else(|| {
                let mut all = self.config.pools.iter().flat_map(addresses);
                all.next().expect("a packet from outside had an external destination")
            }),
        };
        self.send(self.now, packet.from, source, (kind, code, mtu), &packet.received);
    }

    /// Makes the ICMP error about a packet, within the rate (8.3).
    fn send(
        &mut self,
        time: Timestamp,
        side: Side,
        source: Ipv4Addr,
        (kind, code, mtu): (u8, u8, u16),
        about: &[u8],
    ) {
        let rate = self.config.limits.icmp_errors_per_second;
        if !conforms(self.error_rate, time, rate) {
            self.counters.errors_suppressed += 1;
            return;
        }
        self.error_rate = spend(self.error_rate, time, rate);
        self.counters.generated += 1;
        let quote = &about[..about.len().min(MOST_ERROR - ipv4::HEADER_LEN - icmp::HEADER_LEN)];
        let mut bytes = vec![0; ipv4::HEADER_LEN + icmp::HEADER_LEN + quote.len()];
        let len = bytes.len() as u16;
        let mut error = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
        error.set_total_len(len);
        error.set_ttl(64);
        error.set_protocol(ICMP);
        error.set_source(source.to_bits());
        error.set_destination(ip(about).source());
        error.fill_checksum();
        let mut message = Icmp::new_checked(error.payload_mut()).expect("long enough");
        message.set_kind(kind);
        message.set_code(code);
        message.body_mut().copy_from_slice(quote);
        let body = error.payload_mut();
        body[6..8].copy_from_slice(&mtu.to_be_bytes());
        Icmp::new_checked(body).expect("long enough").fill_checksum();
        self.made.transmits.push(Transmit { time, side, bytes });
    }
}
