//! A laboratory for the engine's tests: packets from short texts, an engine with a clock.

#![allow(dead_code, unreachable_pub, missing_docs)]

use natgate_engine::{
    AddressRange, Change, Config, Copied, Copies, CopyChange, DropReason, Duty, Engine, Event,
    MappingId, NoNumbers, Packet, PairPort, PoolConfig, Prefix, Reconfiguration, ReconfigureError,
    Side, SideConfig, Timestamp, Verdict,
};
use natgate_wire::{Dccp, Icmp, Ipv4, Tcp, Udp, checksum, protocol};
use std::net::Ipv4Addr;
use std::time::Duration;

pub const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
pub const REMOTE: &str = "198.51.100.7:80";

/// What an engine does with a slice's addresses if its node is the slice's owner, or the partner.
pub const OWNER: Duty = Duty { assigns: true, keeps: false, owns: true };
pub const PARTNER: Duty = Duty { assigns: false, keeps: true, owns: false };

/// The range of one address.
pub fn range(address: &str) -> AddressRange {
    AddressRange { first: address.parse().unwrap(), last: address.parse().unwrap() }
}

pub fn pool(first: &str, last: &str, ports: (u16, u16)) -> PoolConfig {
    let range = AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() };
    PoolConfig { name: "default".into(), addresses: vec![range], ports, ..PoolConfig::default() }
}

/// One external address, both sides with addresses.
pub fn config() -> Config {
    Config {
        inside: SideConfig {
            address: Some(INSIDE),
            network: Some(Prefix::new(INSIDE, 24)),
            ..SideConfig::default()
        },
        outside: SideConfig {
            address: Some(OUTSIDE),
            network: Some(Prefix::new(OUTSIDE, 24)),
            ..SideConfig::default()
        },
        pools: vec![pool("203.0.113.1", "203.0.113.1", (1024, 65535))],
        ..Config::default()
    }
}

pub fn endpoint(text: &str) -> (u32, u16) {
    match text.split_once(':') {
        Some((address, port)) => {
            (address.parse::<Ipv4Addr>().unwrap().to_bits(), port.parse().unwrap())
        }
        None => (text.parse::<Ipv4Addr>().unwrap().to_bits(), 0),
    }
}

pub fn ip(protocol: u8, source: u32, destination: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20 + payload.len()];
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::init(&mut bytes[..], 20);
    packet.set_total_len(total_len);
    packet.set_ttl(64);
    packet.set_protocol(protocol);
    packet.set_source(source);
    packet.set_destination(destination);
    packet.payload_mut().copy_from_slice(payload);
    packet.fill_checksum();
    bytes
}

fn fill_transport_checksum(bytes: &mut [u8], at: usize, protocol: u8) {
    let packet = Ipv4::new_checked(&bytes[..]).unwrap();
    let (source, destination) = (packet.source(), packet.destination());
    let payload = &mut bytes[20..];
    payload[at..at + 2].fill(0);
    let pseudo = checksum::pseudo_header(source, destination, protocol, payload.len() as u16);
    let value = !checksum::fold(checksum::sum(payload, pseudo));
    payload[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub fn udp(source: &str, destination: &str) -> Vec<u8> {
    udp_with(source, destination, b"hello")
}

pub fn udp_with(source: &str, destination: &str, data: &[u8]) -> Vec<u8> {
    let (from, to) = (endpoint(source), endpoint(destination));
    let mut payload = vec![0; 8];
    payload.extend_from_slice(data);
    let length = payload.len() as u16;
    let mut datagram = Udp::new_checked(&mut payload[..]).unwrap();
    datagram.set_source_port(from.1);
    datagram.set_destination_port(to.1);
    datagram.set_length(length);
    let mut bytes = ip(protocol::UDP, from.0, to.0, &payload);
    fill_transport_checksum(&mut bytes, 6, protocol::UDP);
    bytes
}

/// A TCP segment, with flags as letters: S, A, F, R, P.
pub fn tcp(source: &str, destination: &str, flags: &str, seq: u32, ack: u32) -> Vec<u8> {
    let (from, to) = (endpoint(source), endpoint(destination));
    let mut payload = [0; 20];
    payload[12] = 5 << 4;
    payload[13] = flags.bytes().fold(0, |bits, flag| {
        bits | match flag {
            b'F' => 1,
            b'S' => 2,
            b'R' => 4,
            b'P' => 8,
            b'A' => 16,
            _ => panic!("no such flag"),
        }
    });
    payload[4..8].copy_from_slice(&seq.to_be_bytes());
    payload[8..12].copy_from_slice(&ack.to_be_bytes());
    payload[14..16].copy_from_slice(&1000_u16.to_be_bytes());
    let mut header = Tcp::new_checked(&mut payload[..]).unwrap();
    header.set_source_port(from.1);
    header.set_destination_port(to.1);
    let mut bytes = ip(protocol::TCP, from.0, to.0, &payload);
    fill_transport_checksum(&mut bytes, 16, protocol::TCP);
    bytes
}

/// A DCCP packet of a type, with long sequence numbers and checksum coverage of everything.
pub fn dccp(source: &str, destination: &str, kind: u8) -> Vec<u8> {
    let (from, to) = (endpoint(source), endpoint(destination));
    let mut payload = [0; 24];
    payload[4] = 6;
    payload[8] = kind << 1 | 1;
    payload[20..24].copy_from_slice(b"TEST");
    let mut header = Dccp::new_checked(&mut payload[..]).unwrap();
    header.set_source_port(from.1);
    header.set_destination_port(to.1);
    let mut bytes = ip(protocol::DCCP, from.0, to.0, &payload);
    fill_transport_checksum(&mut bytes, 6, protocol::DCCP);
    bytes
}

/// A SYN with these options, padded to whole words by the caller.
pub fn syn_with(source: &str, destination: &str, options: &[u8]) -> Vec<u8> {
    let plain = tcp(source, destination, "S", 1, 0);
    let mut payload = [&plain[20..], options].concat();
    payload[12] = ((payload.len() / 4) << 4) as u8;
    let mut bytes = ip(protocol::TCP, endpoint(source).0, endpoint(destination).0, &payload);
    fill_transport_checksum(&mut bytes, 16, protocol::TCP);
    bytes
}

pub fn icmp(source: &str, destination: &str, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut payload = vec![kind, code, 0, 0];
    payload.extend_from_slice(rest);
    Icmp::new_checked(&mut payload[..]).unwrap().fill_checksum();
    ip(protocol::ICMP, endpoint(source).0, endpoint(destination).0, &payload)
}

pub fn ping(source: &str, destination: &str, identifier: u16) -> Vec<u8> {
    let [high, low] = identifier.to_be_bytes();
    icmp(source, destination, 8, 0, &[high, low, 0, 1, b'x'])
}

/// An ICMP error that embeds a packet.
pub fn error(source: &str, destination: &str, kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    let mut rest = vec![0; 4];
    rest.extend_from_slice(about);
    icmp(source, destination, kind, code, &rest)
}

pub fn set_ttl(bytes: &mut [u8], ttl: u8) {
    let mut packet = Ipv4::new_checked(bytes).unwrap();
    packet.set_ttl(ttl);
    packet.fill_checksum();
}

pub fn fill_header_checksum(bytes: &mut [u8]) {
    Ipv4::new_checked(bytes).unwrap().fill_checksum();
}

/// The endpoints of a packet, for comparison. Checksums must be right.
pub fn ends(bytes: &[u8]) -> (String, String) {
    let packet = Ipv4::new_checked(bytes).unwrap();
    assert!(packet.checksum_valid(), "IP checksum");
    let (source, destination) =
        (Ipv4Addr::from_bits(packet.source()), Ipv4Addr::from_bits(packet.destination()));
    match packet.protocol() {
        protocol::TCP | protocol::UDP | protocol::DCCP => {
            let ports = Udp::new_checked(packet.payload()).unwrap();
            let length = packet.payload().len() as u16;
            let pseudo = checksum::pseudo_header(
                packet.source(),
                packet.destination(),
                packet.protocol(),
                length,
            );
            let sum = checksum::fold(checksum::sum(packet.payload(), pseudo));
            assert_eq!(sum, 0xffff, "transport checksum");
            (
                format!("{source}:{}", ports.source_port()),
                format!("{destination}:{}", ports.destination_port()),
            )
        }
        protocol::ICMP => {
            assert!(Icmp::new_checked(packet.payload()).unwrap().checksum_valid(), "ICMP checksum");
            (source.to_string(), destination.to_string())
        }
        _ => (source.to_string(), destination.to_string()),
    }
}

/// An engine with a clock, and its events and packets.
pub struct Lab {
    pub engine: Engine,
    pub now: Timestamp,
    pub events: Vec<Event>,
    pub sent: Vec<(Timestamp, Side, Vec<u8>)>,
}

impl Lab {
    pub fn new(config: &Config) -> Self {
        Self::seeded(config, 0)
    }

    pub fn seeded(config: &Config, seed: u8) -> Self {
        let now = Timestamp(1_700_000_000_000_000_000);
        let engine = Engine::new(config, [seed; 32], now).unwrap();
        Self { engine, now, events: Vec::new(), sent: Vec::new() }
    }

    fn drain(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.events.push(event);
        }
        let mut buffer = [0; 65_535];
        while let Some((time, side, len)) = self.engine.poll_transmit(&mut buffer) {
            self.sent.push((time, side, buffer[..len].to_vec()));
        }
    }

    pub fn wait(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
        loop {
            let more = self.engine.advance(self.now);
            self.drain();
            if !more {
                break;
            }
        }
    }

    pub fn wait_s(&mut self, seconds: f64) {
        self.wait(Duration::from_secs_f64(seconds));
    }

    /// Passes one packet. Returns the verdict and the bytes after it.
    pub fn pass(&mut self, from: Side, bytes: &[u8]) -> (Verdict, Vec<u8>) {
        let mut buffer = bytes.to_vec();
        let mut packets = [Packet::new(&mut buffer, 0)];
        let mut verdicts = [Verdict::Held];
        self.engine.process(self.now, from, &mut packets, &mut verdicts);
        let bytes = packets[0].bytes().to_vec();
        self.drain();
        (verdicts[0], bytes)
    }

    /// Passes a packet from inside that must be forwarded outside. Returns its new bytes.
    pub fn out(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (verdict, bytes) = self.pass(Side::Inside, bytes);
        assert_eq!(verdict, Verdict::Forward(Side::Outside));
        bytes
    }

    /// Passes a packet from outside that must be let in. Returns its new bytes.
    pub fn inward(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (verdict, bytes) = self.pass(Side::Outside, bytes);
        assert_eq!(verdict, Verdict::Forward(Side::Inside));
        bytes
    }

    /// Passes a packet that must be dropped, unchanged. Returns the reason.
    pub fn refused(&mut self, from: Side, bytes: &[u8]) -> DropReason {
        let before = self.engine.counters().clone();
        let (verdict, after) = self.pass(from, bytes);
        let Verdict::Drop(reason) = verdict else { panic!("{verdict:?} instead of a drop") };
        assert_eq!(after, bytes[..after.len()], "a dropped packet is not changed");
        let counters = self.engine.counters();
        assert_eq!(counters.drops[reason as usize], before.drops[reason as usize] + 1);
        reason
    }

    /// The external endpoint of a UDP or TCP packet from inside.
    pub fn external_of(&mut self, bytes: &[u8]) -> String {
        ends(&self.out(bytes)).0
    }

    pub fn created(&mut self) -> Vec<MappingId> {
        self.take_events(|change| match change {
            Change::MappingCreated(id) => Some(id),
            _ => None,
        })
    }

    pub fn removed(&mut self) -> Vec<MappingId> {
        self.take_events(|change| match change {
            Change::MappingRemoved(id) => Some(id),
            _ => None,
        })
    }

    fn take_events(&mut self, pick: impl Fn(Change) -> Option<MappingId>) -> Vec<MappingId> {
        let mut taken = Vec::new();
        self.events.retain(|event| match pick(event.change) {
            Some(id) => {
                taken.push(id);
                false
            }
            None => true,
        });
        taken
    }
}

// ---- headers with options and other fields ----

/// Puts another configuration in force, before the check of the mappings.
pub fn force(engine: &mut Engine, now: Timestamp, config: &Config) -> Result<(), ReconfigureError> {
    let mut change = Reconfiguration::new(engine.config(), config).expect("it is right");
    engine.prepare_configuration(&mut change)?;
    while !engine.is_prepared() {
        engine.advance(now);
    }
    engine.reconfigure(change);
    Ok(())
}

/// Puts another configuration in force, and has all mappings checked.
pub fn try_reload(lab: &mut Lab, config: &Config) -> Result<(), ReconfigureError> {
    force(&mut lab.engine, lab.now, config)?;
    lab.wait_s(0.0);
    assert!(lab.engine.is_settled());
    Ok(())
}

/// [`try_reload`], which finds room.
pub fn reload(lab: &mut Lab, config: &Config) {
    try_reload(lab, config).expect("there is room");
}

/// The packet with IP options, of whole words, behind its header.
pub fn with_options(bytes: &[u8], options: &[u8]) -> Vec<u8> {
    let mut long = [&bytes[..20], options, &bytes[20..]].concat();
    long[0] += (options.len() / 4) as u8;
    let total_len = long.len() as u16;
    long[2..4].copy_from_slice(&total_len.to_be_bytes());
    fill_header_checksum(&mut long);
    long
}

/// The packet with another type-of-service byte.
pub fn with_service(bytes: &[u8], service: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[1] = service;
    fill_header_checksum(&mut changed);
    changed
}

pub fn with_ttl(bytes: &[u8], ttl: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    set_ttl(&mut changed, ttl);
    changed
}

/// The packet with another identification, and flags and fragment offset as one field.
pub fn with_fragment_field(bytes: &[u8], identification: u16, field: u16) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let mut packet = Ipv4::new_checked(&mut changed[..]).unwrap();
    packet.set_identification(identification);
    packet.set_fragment_field(field);
    packet.fill_checksum();
    changed
}

/// The flag that forbids fragmentation, in the fragment field.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// An ICMP error with this second word.
pub fn error_with(
    (source, destination): (&str, &str),
    (kind, code): (u8, u8),
    word: [u8; 4],
    about: &[u8],
) -> Vec<u8> {
    icmp(source, destination, kind, code, &[&word[..], about].concat())
}

// ---- TCP with data, fragments, and scenes of many packets ----

/// [`tcp`] with data.
pub fn tcp_with(source: &str, destination: &str, flags: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = tcp(source, destination, flags, 1, 1);
    bytes.extend_from_slice(data);
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
    packet.set_total_len(total_len);
    packet.fill_checksum();
    fill_transport_checksum(&mut bytes, 16, protocol::TCP);
    bytes
}

/// A datagram in fragments with this much payload each.
pub fn cut(datagram: &[u8], identification: u16, size: usize) -> Vec<Vec<u8>> {
    assert!(size.is_multiple_of(8), "fragments carry multiples of eight bytes");
    let payload = &datagram[20..];
    let parts = payload.chunks(size).enumerate().map(|(n, part)| {
        let more = (n + 1) * size < payload.len();
        let field = u16::from(more) << 13 | (n * size / 8) as u16;
        let mut bytes = [&datagram[..20], part].concat();
        let total_len = bytes.len() as u16;
        Ipv4::new_header_checked(&mut bytes[..]).unwrap().set_total_len(total_len);
        with_fragment_field(&bytes, identification, field)
    });
    parts.collect()
}

/// The datagram of these fragments, in any order.
pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut sorted = parts.to_vec();
    sorted.sort_by_key(|part| Ipv4::new_checked(&part[..]).unwrap().fragment_offset());
    let mut bytes = sorted[0][..20].to_vec();
    for part in &sorted {
        let offset = Ipv4::new_checked(&part[..]).unwrap().fragment_offset();
        assert_eq!(offset, bytes.len() - 20, "fragments follow each other");
        bytes.extend_from_slice(&part[20..]);
    }
    let total_len = bytes.len() as u16;
    Ipv4::new_header_checked(&mut bytes[..]).unwrap().set_total_len(total_len);
    with_fragment_field(&bytes, 0, 0)
}

pub fn address_of(external: &str) -> &str {
    external.split_once(':').unwrap().0
}

pub fn port_of(external: &str) -> u16 {
    external.split_once(':').unwrap().1.parse().unwrap()
}

impl Lab {
    /// Passes a packet from inside that must be hairpinned. Returns its new bytes.
    pub fn hairpin(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (verdict, bytes) = self.pass(Side::Inside, bytes);
        assert_eq!(verdict, Verdict::Forward(Side::Inside));
        bytes
    }

    /// True if a packet is forwarded.
    pub fn passes(&mut self, from: Side, bytes: &[u8]) -> bool {
        matches!(self.pass(from, bytes).0, Verdict::Forward(_))
    }

    /// Lets time pass until all mappings are gone. Returns the seconds that the last lived.
    pub fn lives_on(&mut self) -> f64 {
        let start = self.now;
        self.events.clear();
        self.wait_s(1_000_000.0);
        let last = self.events.last().expect("there was a mapping").time;
        assert_eq!(self.engine.mappings().count(), 0, "the mapping goes");
        last.since(start).as_secs_f64()
    }
}

/// The last numbers of the addresses of those who got blocks or whole addresses since the last
/// call, and of those who have them no more.
pub fn told(lab: &mut Lab) -> (Vec<u8>, Vec<u8>) {
    lab.wait_s(0.0);
    let mut told = (Vec::new(), Vec::new());
    for event in lab.events.drain(..) {
        match event.change {
            Change::BlockAssigned(id) => told.0.push(id.subscriber.octets()[3]),
            Change::BlockReleased(id) => told.1.push(id.subscriber.octets()[3]),
            _ => {}
        }
    }
    told
}

/// Begins the copy of an engine's mappings.
pub fn begin(from: &Lab, to: &mut Lab) -> Copies {
    let mut origin = Vec::new();
    from.engine.copy_origin(&mut origin);
    to.engine.begin_copies(&origin).expect("an origin")
}

/// Copies what has changed. Returns what became of the records, and the ports of ended mappings.
pub fn follow(from: &mut Lab, to: &mut Lab, copies: &mut Copies) -> (Vec<Copied>, Vec<PairPort>) {
    let (mut changes, mut copied, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    from.engine.take_changes(&mut changes);
    for change in changes {
        let (CopyChange::Changed(key)
        | CopyChange::Ended(key, _)
        | CopyChange::StaticEnded(key, _)) = change;
        let mut record = Vec::new();
        match from.engine.copy_record(key, &NoNumbers, &mut record) {
            Some(_) => {
                let made = to.engine.copy(copies, &mut NoNumbers, (key, &record));
                copied.push(made.expect("a whole record"));
            }
            None => to.engine.end_copy(copies, key),
        }
        if let CopyChange::Ended(_, port) = change {
            ended.push(port);
        }
    }
    (copied, ended)
}
