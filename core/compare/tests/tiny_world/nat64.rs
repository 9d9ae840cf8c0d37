//! The tiny world of NAT64: two hosts in two prefixes, with the pool, the remotes and the timers of
//! the others. Translator and engine are compared with the model after each step, byte by byte.

use super::common::{REMOTE, Spec};
use super::{BEGIN, FOURTH, STRANGER, World, config, depth, explore_and_tell};
use natgate_compare::{Divergence, FamilyPair};
use natgate_engine::{Behavior, Config, Endpoint, Limits, Side, TICK};
use natgate_ipv6::{Nat64Settings, NonGlobal, Pref64, Prefix6, Settings, Side6};
use natgate_wire::checksum::{fold, pseudo_header_v6, sum};
use natgate_wire::protocol::{ICMP, ICMPV6, TCP, UDP};
use natgate_wire::tcp::flags::{ACK, RST, SYN};
use natgate_wire::{Ipv6, icmp, icmpv6};
use std::net::Ipv6Addr;

/// The well-known prefix.
const PREFIX: u128 = 0x64_ff9b << 96;

/// A host of NAT64: its subscriber and its port, which no other host has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    subscriber: u16,
    port: u16,
}

const A: Host = Host { subscriber: 1, port: 5000 };
const A_AGAIN: Host = Host { port: 5002, ..A };
const B: Host = Host { subscriber: 2, port: 5001 };

impl Host {
    fn address(self) -> u128 {
        Ipv6Addr::new(0x2001, 0xdb8, 0, self.subscriber, 0, 0, 0, 1).to_bits()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// A UDP datagram to the remote.
    Udp(Host),
    /// An echo request to the remote.
    Echo(Host),
    /// A TCP segment to the remote.
    Tcp(Host, u8),
    /// A UDP datagram from a remote to a host's external endpoint.
    UdpTo(Endpoint, Host),
    /// The remote's echo reply.
    EchoTo(Host),
    /// A TCP segment from the remote to a host's external endpoint.
    TcpTo(Host, u8),
    /// A UDP datagram of a host to another one's external endpoint.
    Hairpin(Host, Host),
    /// An error of the remote about a host's UDP datagram.
    Error(Host),
    /// An error of a host about the remote's UDP datagram.
    ErrorOf(Host),
    /// A UDP datagram with its last hop here.
    Last(Host),
    /// One tick.
    Tick,
    /// Time until the next thing is due.
    Next,
}

const OPERATIONS: &[Operation] = &[
    Operation::Udp(A),
    Operation::Udp(A_AGAIN),
    Operation::Udp(B),
    Operation::Echo(A),
    Operation::Tcp(B, SYN),
    Operation::Tcp(B, ACK),
    Operation::UdpTo(REMOTE, A),
    Operation::UdpTo(STRANGER, B),
    Operation::UdpTo(FOURTH, A),
    Operation::EchoTo(A),
    Operation::TcpTo(B, SYN),
    Operation::TcpTo(B, RST),
    Operation::Hairpin(A, B),
    Operation::Error(A),
    Operation::ErrorOf(A),
    Operation::Last(B),
    Operation::Tick,
    Operation::Next,
];

fn settings() -> Settings {
    let prefix = Prefix6 { address: Ipv6Addr::from_bits(PREFIX), len: 96 };
    let own = Ipv6Addr::new(0x2001, 0xdb8, 0xaaaa, 0, 0, 0, 0, 1);
    Settings {
        configured: true,
        inside: Side6 { address: Some((own, 64)), ..Side6::default() },
        nat64: Some(Nat64Settings {
            prefixes: vec![Pref64::new(prefix).expect("the well-known prefix")],
            subscribers: Vec::new(),
            subscriber_length: 64,
            non_global: NonGlobal::Refuse,
            static_hosts: Vec::new(),
        }),
        ..Settings::default()
    }
}

/// The tiny configuration, with small tables of hosts.
fn tiny() -> Config {
    let config = config();
    Config { limits: Limits { subscribers: Some(16), ..config.limits }, ..config }
}

/// The IPv6 packet with the payload of an IPv4 packet.
fn six(ends: (u128, u128), hop_limit: u8, spec: &Spec) -> Vec<u8> {
    let mut payload = spec.bytes()[20..].to_vec();
    let (protocol, at) = match spec.protocol {
        ICMP => (ICMPV6, 2),
        TCP => (TCP, 16),
        protocol => (protocol, 6),
    };
    if protocol == ICMPV6 {
        payload[0] = icmpv6::kind::ECHO_REQUEST;
    }
    seal(ends, protocol, at, &mut payload);
    wrap(ends, protocol, hop_limit, &payload)
}

/// Computes the checksum of a message.
fn seal(ends: (u128, u128), protocol: u8, at: usize, message: &mut [u8]) {
    message[at..at + 2].fill(0);
    let pseudo = pseudo_header_v6(ends.0, ends.1, protocol, message.len() as u32);
    let value = !fold(sum(message, pseudo));
    message[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn wrap(ends: (u128, u128), protocol: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [&[0; 40], payload].concat();
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(payload.len() as u16);
    header.set_next_header(protocol);
    header.set_hop_limit(hop_limit);
    header.set_source(ends.0);
    header.set_destination(ends.1);
    bytes
}

fn mapped(remote: Endpoint) -> u128 {
    PREFIX | u128::from(remote.address.to_bits())
}

/// A packet of a host to a remote.
fn from_host(protocol: u8, host: Host, to: Endpoint, change: impl Fn(Spec) -> Spec) -> Vec<u8> {
    let source = Endpoint { port: host.port, ..to };
    let spec = change(Spec { identifier: host.port, ..Spec::new(protocol, source, to) });
    six((host.address(), mapped(to)), spec.ttl, &spec)
}

/// The external endpoint of a host, or the first endpoint of the pool.
fn external_of(pair: &FamilyPair, protocol: u8, host: Host) -> Endpoint {
    let mappings = pair.model.ipv4.mappings();
    let mut ids = mappings.iter().map(|one| one.id);
    let found = ids.find(|id| id.protocol == protocol && id.internal.port == host.port);
    found.map_or(super::EXTERNAL, |id| id.external)
}

impl World for FamilyPair {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation) -> Result<(), Divergence> {
        let now = self.model.ipv4.now();
        let segment = |flags| {
            move |spec: Spec| {
                let sequence = if flags & SYN != 0 { 1000 } else { 1001 };
                Spec { flags, sequence, acknowledgment: 1001, ..spec }
            }
        };
        let (side, bytes) = match operation {
            Operation::Tick => return self.advance(now.plus(TICK)),
            Operation::Next => {
                let next = self.model.ipv4.next_tick().unwrap_or(now);
                return self.advance(next.max(now));
            }
            Operation::Udp(host) => (Side::Inside, from_host(UDP, host, REMOTE, |spec| spec)),
            Operation::Echo(host) => (Side::Inside, from_host(ICMP, host, REMOTE, |spec| spec)),
            Operation::Tcp(host, flags) => {
                (Side::Inside, from_host(TCP, host, REMOTE, segment(flags)))
            }
            Operation::Last(host) => {
                (Side::Inside, from_host(UDP, host, REMOTE, |spec| Spec { ttl: 1, ..spec }))
            }
            Operation::Hairpin(host, other) => {
                let to = external_of(self, UDP, other);
                (Side::Inside, from_host(UDP, host, to, |spec| spec))
            }
            Operation::UdpTo(remote, host) => {
                (Side::Outside, Spec::new(UDP, remote, external_of(self, UDP, host)).bytes())
            }
            Operation::TcpTo(host, flags) => {
                let spec = Spec::new(TCP, REMOTE, external_of(self, TCP, host));
                (Side::Outside, segment(flags)(spec).bytes())
            }
            Operation::EchoTo(host) => {
                let external = external_of(self, ICMP, host);
                let spec = Spec::new(ICMP, REMOTE, external);
                let icmp = (icmp::kind::ECHO_REPLY, 0);
                (Side::Outside, Spec { identifier: external.port, icmp, ..spec }.bytes())
            }
            Operation::Error(host) => {
                let about = Spec::new(UDP, external_of(self, UDP, host), REMOTE).bytes();
                (Side::Outside, super::common::error_about(&about, REMOTE, (3, 3), about.len()))
            }
            Operation::ErrorOf(host) => {
                let remote = Spec::new(UDP, REMOTE, Endpoint { port: host.port, ..REMOTE });
                let about = six((mapped(REMOTE), host.address()), 64, &remote);
                let ends = (host.address(), mapped(REMOTE));
                let mut message = [&[1, 4, 0, 0, 0, 0, 0, 0], &about[..]].concat();
                seal(ends, ICMPV6, 2, &mut message);
                (Side::Inside, wrap(ends, ICMPV6, 64, &message))
            }
        };
        self.take(now, side, &bytes).map(drop)
    }

    fn check(&self) -> Result<(), Divergence> {
        self.check_state()
    }

    fn digest(&self) -> u64 {
        self.model.ipv4.digest()
    }
}

#[test]
fn everything_that_can_happen_to_tiny_hosts_of_nat64() {
    // An even seed: the translator takes packets in runs.
    for (filtering, seed) in
        [(Behavior::EndpointIndependent, 7), (Behavior::AddressAndPortDependent, 8)]
    {
        let (settings, config) = (settings(), Config { filtering, ..tiny() });
        let new = || FamilyPair::new(&settings, &config, [seed; 32], BEGIN).expect("it is good");
        explore_and_tell(&format!("NAT64, {filtering:?}"), &new, OPERATIONS, depth(5));
    }
}
