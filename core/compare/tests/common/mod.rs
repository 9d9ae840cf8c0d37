//! Packets for tests, correct unless a test asks for an error; and the smallest configuration.

#![allow(dead_code, reason = "no test needs all of it")]

use natgate_engine::{AddressRange, Config, Endpoint, PoolConfig, Side, Timestamp};
use natgate_wire::ipv4::{self, Ipv4};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use natgate_wire::{Dccp, Icmp, Tcp, checksum, dccp};

/// A subscriber, a remote, and the first external endpoint that [`config`] has.
pub(crate) const A: Endpoint = end([10, 0, 0, 1], 5000);
pub(crate) const REMOTE: Endpoint = end([198, 51, 100, 1], 80);
pub(crate) const EXTERNAL: Endpoint = end([203, 0, 113, 1], 2000);
/// Start time of tests.
pub(crate) const START: Timestamp = Timestamp(1_000_000_000_000);

/// One pool of one address with four ports.
pub(crate) fn config() -> Config {
    let addresses = vec![AddressRange { first: EXTERNAL.address, last: EXTERNAL.address }];
    let ports = (EXTERNAL.port, EXTERNAL.port + 3);
    let name = "default".into();
    Config {
        pools: vec![PoolConfig { name, addresses, ports, ..PoolConfig::default() }],
        ..Config::default()
    }
}

/// Ways to make a transport checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sum {
    /// The right checksum.
    Right,
    /// This value in the field, right or not (UDP: 0 means none).
    Is(u16),
    /// The right checksum with this value: two bytes of payload are chosen for it.
    Aimed(u16),
}

/// Most bytes before a maximum segment size option.
const MOST_BEFORE_MSS: usize = 5;

/// Contents of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) protocol: u8,
    /// For ICMP queries the identifier is the port of the endpoint that the packet's side
    /// translates.
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    pub(crate) identifier: u16,
    pub(crate) icmp: (u8, u8),
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
    /// A maximum segment size, and the number of no-operation bytes before its option.
    pub(crate) mss: Option<(u16, usize)>,
    /// DCCP's packet type, and true for a sequence number of 48 bits.
    pub(crate) dccp: (u8, bool),
    pub(crate) service: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) ttl: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) options: Vec<u8>,
    pub(crate) sum: Sum,
}

impl Spec {
    /// Makes a packet of a protocol between two endpoints.
    pub(crate) fn new(protocol: u8, source: Endpoint, destination: Endpoint) -> Self {
        Self {
            protocol,
            source,
            destination,
            identifier: source.port,
            icmp: (8, 0),
            flags: natgate_wire::tcp::flags::SYN,
            sequence: 1000,
            acknowledgment: 0,
            window: 1000,
            scale: None,
            mss: None,
            dccp: (dccp::kind::REQUEST, true),
            service: 0,
            payload: vec![1, 2, 3, 4],
            ttl: 64,
            dont_fragment: false,
            options: Vec::new(),
            sum: Sum::Right,
        }
    }

    /// The answer to a packet: its endpoints exchanged, its identifier and payload kept.
    pub(crate) fn answer(packet: &[u8]) -> Self {
        let mut spec = Self::like(packet);
        (spec.source, spec.destination) = (spec.destination, spec.source);
        (spec.sequence, spec.acknowledgment) = (spec.acknowledgment, spec.sequence.wrapping_add(1));
        spec.icmp.0 = if spec.icmp.0 == 13 { 14 } else { 0 };
        if spec.dccp.0 == dccp::kind::REQUEST {
            spec.dccp.0 = dccp::kind::RESPONSE;
        }
        spec
    }

    /// The fields of a packet of TCP, UDP, DCCP, ICMP query or other. Of the IP header only the
    /// addresses are taken.
    pub(crate) fn like(packet: &[u8]) -> Self {
        let ip = Ipv4::new_checked(packet).expect("a packet that came out");
        let payload = ip.payload();
        let word = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
        let ports = match ip.protocol() {
            TCP | UDP | DCCP => (word(0), word(2)),
            _ => (0, 0),
        };
        let source = Endpoint::new(ip.source(), ports.0);
        let destination = Endpoint::new(ip.destination(), ports.1);
        let mut spec = Self::new(ip.protocol(), source, destination);
        let data_at = match ip.protocol() {
            TCP => {
                let tcp = Tcp::new_checked(payload).expect("a packet that came out");
                spec.flags = tcp.flags();
                (spec.sequence, spec.acknowledgment) = (tcp.sequence(), tcp.acknowledgment());
                spec.window = tcp.window();
                spec.scale = tcp.window_scale();
                let before =
                    |at: usize| (at - natgate_wire::tcp::HEADER_LEN - 2).min(MOST_BEFORE_MSS);
                spec.mss = tcp.max_segment_size().map(|(at, size)| (size, before(at)));
                tcp.header_len()
            }
            DCCP => {
                let dccp = Dccp::new_checked(payload).expect("a packet that came out");
                spec.dccp = (dccp.kind(), payload[8] & 1 != 0);
                dccp.header_len()
            }
            UDP => 8,
            ICMP => {
                spec.icmp = (payload[0], payload[1]);
                spec.identifier = word(4);
                8
            }
            _ => 0,
        };
        spec.payload = payload[data_at..].to_vec();
        spec
    }

    /// The packet's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header_len = ipv4::HEADER_LEN + self.options.len();
        let mut transport = self.transport_header();
        let aim_at = transport.len();
        transport.extend(&self.payload);
        if let Sum::Aimed(_) = self.sum
            && transport.len() < aim_at + 2
        {
            transport.resize(aim_at + 2, 0);
        }
        if self.protocol == UDP {
            let len = transport.len() as u16;
            transport[4..6].copy_from_slice(&len.to_be_bytes());
        }
        self.fill_sum(&mut transport, aim_at);
        let mut bytes = vec![0; header_len + transport.len()];
        let len = bytes.len() as u16;
        let mut ip = Ipv4::init(&mut bytes[..], header_len);
        ip.set_total_len(len);
        ip.set_service(self.service);
        ip.set_identification(self.sequence as u16);
        ip.set_fragment_field(if self.dont_fragment { 0x4000 } else { 0 });
        ip.set_ttl(self.ttl);
        ip.set_protocol(self.protocol);
        ip.set_source(self.source.address.to_bits());
        ip.set_destination(self.destination.address.to_bits());
        ip.payload_mut().copy_from_slice(&transport);
        bytes[ipv4::HEADER_LEN..header_len].copy_from_slice(&self.options);
        Ipv4::new_checked(&mut bytes[..]).expect("made so").fill_checksum();
        bytes
    }

    fn transport_header(&self) -> Vec<u8> {
        let ports = [self.source.port.to_be_bytes(), self.destination.port.to_be_bytes()].concat();
        match self.protocol {
            TCP => {
                let options = self.tcp_options();
                let mut header = ports;
                header.extend(self.sequence.to_be_bytes());
                header.extend(self.acknowledgment.to_be_bytes());
                header.extend([(5 + options.len() as u8 / 4) << 4, self.flags]);
                header.extend(self.window.to_be_bytes());
                header.extend([0; 4]);
                header.extend(options);
                header
            }
            UDP => [&ports[..], &[0; 4]].concat(),
            DCCP => {
                let (kind, long) = self.dccp;
                let words = if long { 4 } else { 3 };
                let mut header =
                    [&ports[..], &[words, 0, 0, 0, kind << 1 | u8::from(long)]].concat();
                header.resize(usize::from(words) * 4, 0);
                header
            }
            ICMP => {
                let [high, low] = self.identifier.to_be_bytes();
                // Without payload the sequence number is 0 too, so that messages of zeros occur.
                let sequence = u8::from(!self.payload.is_empty());
                vec![self.icmp.0, self.icmp.1, 0, 0, high, low, 0, sequence]
            }
            _ => Vec::new(),
        }
    }

    fn tcp_options(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some((size, before)) = self.mss {
            options.resize(before, 1);
            options.extend([2, 4]);
            options.extend(size.to_be_bytes());
        }
        if let Some(shift) = self.scale {
            options.extend([1, 3, 3, shift]);
        }
        options.resize(options.len().next_multiple_of(4), 0);
        options
    }

    fn fill_sum(&self, transport: &mut [u8], aim_at: usize) {
        let at = match self.protocol {
            TCP => 16,
            UDP | DCCP => 6,
            ICMP => 2,
            _ => return,
        };
        let (source, destination) = (self.source.address, self.destination.address);
        let pseudo = match self.protocol {
            ICMP => 0,
            protocol => checksum::pseudo_header(
                source.to_bits(),
                destination.to_bits(),
                protocol,
                transport.len() as u16,
            ),
        };
        let right = |transport: &[u8]| !checksum::fold(checksum::sum(transport, pseudo));
        if let Sum::Aimed(aim) = self.sum {
            transport[aim_at..aim_at + 2].fill(0);
            // The payload word that turns the sum into the complement of the aim.
            let word = checksum::fold(u32::from(!aim) + u32::from(right(transport)));
            transport[aim_at..aim_at + 2].copy_from_slice(&word.to_be_bytes());
        }
        let value = match self.sum {
            Sum::Is(value) => value,
            _ => match right(transport) {
                0 if self.protocol == UDP => 0xffff,
                value => value,
            },
        };
        transport[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// An ICMP error that embeds the first bytes of a packet.
pub(crate) fn error_about(
    packet: &[u8],
    source: Endpoint,
    kind: (u8, u8),
    embedded_len: usize,
) -> Vec<u8> {
    let to = Ipv4::new_checked(packet).expect("a packet that came out").source();
    let mut spec = Spec::new(ICMP, source, Endpoint::new(to, 0));
    spec.icmp = kind;
    spec.identifier = 0;
    spec.payload = packet[..embedded_len.min(packet.len())].to_vec();
    let mut bytes = spec.bytes();
    bytes[ipv4::HEADER_LEN + 6..ipv4::HEADER_LEN + 8].fill(0);
    set_icmp_sum(&mut bytes);
    bytes
}

/// Computes the checksum of an ICMP packet.
pub(crate) fn set_icmp_sum(bytes: &mut [u8]) {
    let mut ip = Ipv4::new_checked(bytes).expect("made so");
    Icmp::new_checked(ip.payload_mut()).expect("made so").fill_checksum();
}

/// The endpoint of an address written as four numbers.
pub(crate) const fn end(address: [u8; 4], port: u16) -> Endpoint {
    Endpoint::new(u32::from_be_bytes(address), port)
}

/// The side of a packet with this direction.
pub(crate) const fn side(outside: bool) -> Side {
    if outside { Side::Outside } else { Side::Inside }
}
