//! Packets that get somewhere: few addresses and ports, so that they meet; right lengths and
//! checksums, unless told otherwise.

use arbitrary::Arbitrary;
use natgate_wire::{Icmp, Ipv4, checksum, protocol};

/// Hosts inside: subscribers, then one that is none, the gateway, and a static mapping's.
const INSIDE: [[u8; 4]; 6] =
    [[10, 0, 0, 5], [10, 0, 0, 6], [10, 0, 0, 7], [9, 9, 9, 9], [10, 0, 0, 1], [10, 0, 0, 80]];
/// Hosts outside: remotes, then external addresses (the last a static mapping's) and the gateway.
const OUTSIDE: [[u8; 4]; 6] = [
    [198, 51, 100, 7],
    [198, 51, 100, 8],
    [203, 0, 113, 1],
    [203, 0, 113, 2],
    [203, 0, 113, 9],
    [192, 0, 2, 254],
];
/// Ports: of the pool, and some that are not.
const PORTS: [u16; 12] = [2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 80, 8080, 0, 65_535];

/// Payload of a packet.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Payload {
    /// A datagram; with or without checksum.
    Udp { checksum: bool },
    /// A segment: flag bits, and numbers near those of its opposite.
    Tcp { flags: u8, sequence: u8, acknowledgment: u8, window: u8, scale: Option<u8> },
    /// A message with an identifier.
    Icmp { kind: IcmpKind, identifier: u8 },
    /// Another protocol.
    Other { protocol: u8 },
}

/// Types of ICMP messages with identifiers.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum IcmpKind {
    /// Type 8.
    Echo,
    /// Type 0.
    EchoReply,
    /// Type 13.
    Timestamp,
    /// Any.
    Other(u8),
}

/// A packet in short.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Plan {
    /// Sender and receiver: host and port.
    from: (u8, u8),
    to: (u8, u8),
    payload: Payload,
    /// Bytes of data.
    data: u8,
    ttl: Option<u8>,
    dont_fragment: bool,
    /// Offset in units of eight bytes, more to follow, identification.
    fragment: Option<(u8, bool, u8)>,
    options: Options,
    fault: Option<(u8, u8)>,
}

/// IP options of a packet.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Options {
    None,
    Harmless,
    SourceRoute,
    Any([u8; 4]),
}

fn pick<T: Copy>(list: &[T], at: u8) -> T {
    list[usize::from(at) % list.len()]
}

impl Plan {
    /// The packet, as it is sent inside (`true`) or outside. A receiver may be of either side.
    pub fn bytes(&self, inside: bool) -> Vec<u8> {
        let (senders, receivers) = if inside { (INSIDE, OUTSIDE) } else { (OUTSIDE, OUTSIDE) };
        let to = match self.to.0 {
            0xf0.. => pick(&INSIDE, self.to.0),
            at => pick(&receivers, at),
        };
        let (source, destination) =
            (u32::from_be_bytes(pick(&senders, self.from.0)), u32::from_be_bytes(to));
        let (number, payload) = self.payload();
        let options: &[u8] = match &self.options {
            Options::None => &[],
            Options::Harmless => &[148, 4, 0, 0],
            Options::SourceRoute => &[131, 3, 4, 0],
            Options::Any(bytes) => bytes,
        };
        let header_len = 20 + options.len();
        let mut bytes = vec![0; header_len + payload.len()];
        let total_len = bytes.len() as u16;
        let mut packet = Ipv4::init(&mut bytes[..], header_len);
        packet.set_total_len(total_len);
        packet.set_ttl(self.ttl.unwrap_or(64));
        packet.set_protocol(number);
        packet.set_source(source);
        packet.set_destination(destination);
        packet.payload_mut().copy_from_slice(&payload);
        fill_transport(&mut packet, self.payload);
        if let Some((offset, more, identification)) = self.fragment {
            packet.set_fragment_field(u16::from(offset) | u16::from(more) << 13);
            packet.set_identification(u16::from(identification));
        } else {
            packet.set_fragment_field(u16::from(self.dont_fragment) << 14);
        }
        bytes[20..header_len].copy_from_slice(options);
        if let Some((at, value)) = self.fault {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
        }
        seal(&mut bytes);
        bytes
    }

    fn payload(&self) -> (u8, Vec<u8>) {
        let (from, to) = (pick(&PORTS, self.from.1), pick(&PORTS, self.to.1));
        let ports = [from.to_be_bytes(), to.to_be_bytes()].concat();
        // A few lengths, among them whole eights for fragments and one above the MTU.
        let data = match self.data {
            0xff => 1600,
            data => usize::from(data & 0x3f),
        };
        let (number, mut bytes) = match self.payload {
            Payload::Udp { .. } => {
                let length = (8 + data) as u16;
                (protocol::UDP, [&ports[..], &length.to_be_bytes(), &[0, 0]].concat())
            }
            Payload::Tcp { flags, sequence, acknowledgment, window, scale } => {
                let options = match scale {
                    Some(shift) => vec![3, 3, shift, 0],
                    None => Vec::new(),
                };
                let words = 5 + (options.len() / 4) as u8;
                let numbers = [0, 0, 0, sequence, 0, 0, 0, acknowledgment];
                let rest = [words << 4, flags, 0, window, 0, 0, 0, 0];
                (protocol::TCP, [&ports[..], &numbers, &rest, &options].concat())
            }
            Payload::Icmp { kind, identifier } => {
                let kind = match kind {
                    IcmpKind::Echo => 8,
                    IcmpKind::EchoReply => 0,
                    IcmpKind::Timestamp => 13,
                    IcmpKind::Other(kind) => kind,
                };
                let [high, low] = pick(&PORTS, identifier).to_be_bytes();
                (protocol::ICMP, vec![kind, 0, 0, 0, high, low, 0, 1])
            }
            Payload::Other { protocol } => (protocol, Vec::new()),
        };
        bytes.resize(bytes.len() + data, 0xda);
        (number, bytes)
    }
}

fn fill_transport(packet: &mut Ipv4<&mut [u8]>, payload: Payload) {
    let at = match payload {
        Payload::Udp { checksum: true } => 6,
        Payload::Tcp { .. } => 16,
        Payload::Icmp { .. } => {
            if let Some(mut message) = Icmp::new_checked(packet.payload_mut()) {
                message.fill_checksum();
            }
            return;
        }
        Payload::Udp { checksum: false } | Payload::Other { .. } => return,
    };
    let (source, destination, number) = (packet.source(), packet.destination(), packet.protocol());
    let bytes = packet.payload_mut();
    let pseudo = checksum::pseudo_header(source, destination, number, bytes.len() as u16);
    let value = match !checksum::fold(checksum::sum(bytes, pseudo)) {
        0 if number == protocol::UDP => 0xffff,
        value => value,
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sets the header checksum right, where there is a header.
pub fn seal(bytes: &mut [u8]) {
    if let Ok(mut packet) = Ipv4::new_header_checked(bytes) {
        packet.fill_checksum();
    }
}

/// Sets the checksums of header and ICMP message right, where they are.
pub fn seal_icmp(bytes: &mut [u8]) {
    if let Ok(mut packet) = Ipv4::new_checked(&mut bytes[..])
        && packet.protocol() == protocol::ICMP
        && let Some(mut message) = Icmp::new_checked(packet.payload_mut())
    {
        message.fill_checksum();
    }
    seal(bytes);
}

/// The receiver's answer to a packet: its ends exchanged, its payload kept but for TCP flags and a
/// query's type. `None`: it is no packet that is answered.
pub fn reply(received: &[u8], flags: u8) -> Option<Vec<u8>> {
    let mut bytes = received.to_vec();
    let header_len = Ipv4::new_checked(&bytes[..]).ok()?.header_len();
    let number = bytes[9];
    let (ends, transport) = (bytes[12..20].to_vec(), header_len);
    bytes[12..20].copy_from_slice(&[&ends[4..], &ends[..4]].concat());
    bytes[8] = 64;
    match number {
        protocol::UDP | protocol::TCP if bytes.len() >= transport + 8 => {
            let ports = bytes[transport..transport + 4].to_vec();
            bytes[transport..transport + 4].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
            if number == protocol::TCP && bytes.len() >= transport + 20 {
                // Exchanging the numbers answers with what is expected, or one less.
                let numbers = bytes[transport + 4..transport + 12].to_vec();
                bytes[transport + 4..transport + 12]
                    .copy_from_slice(&[&numbers[4..], &numbers[..4]].concat());
                bytes[transport + 13] = flags;
            }
        }
        protocol::ICMP if bytes.len() >= transport + 8 => {
            bytes[transport] = if bytes[transport] == 8 { 0 } else { 8 };
        }
        _ => {}
    }
    seal_icmp(&mut bytes);
    Some(bytes)
}

/// An ICMP error of a type about a packet, of which it embeds the first `quoted` bytes, from its
/// receiver or, `midway`, from a router.
pub fn error_about(received: &[u8], kind: u8, quoted: u8, midway: bool) -> Option<Vec<u8>> {
    const ROUTER: u32 = 0xc000_0201;
    let about = Ipv4::new_checked(received).ok()?;
    let (source, destination) = (about.destination(), about.source());
    let quoted = &received[..received.len().min(usize::from(quoted))];
    let mut bytes = vec![0; 28 + quoted.len()];
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::init(&mut bytes[..], 20);
    packet.set_total_len(total_len);
    packet.set_ttl(64);
    packet.set_protocol(protocol::ICMP);
    packet.set_source(if midway { ROUTER } else { source });
    packet.set_destination(destination);
    let message = packet.payload_mut();
    message[0] = kind;
    message[8..].copy_from_slice(quoted);
    seal_icmp(&mut bytes);
    Some(bytes)
}
