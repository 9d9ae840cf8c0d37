//! Packets for tests, and addresses by a prefix of 96 bits.

use natgate_engine::{DropReason, Packet};
use natgate_ipv6::convert::{
    Addresses, ConvertSettings, Converted, Converter, Cut, ErrorMessage, HEADROOM, Place, Refusal,
};
use natgate_wire::checksum::{fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::ipv6::Fragment;
use natgate_wire::{Ipv4, Ipv6};

pub(crate) const PREFIX: u128 = 0x2001_0db8_0001_0000_abcd_0000 << 32;
pub(crate) const CLIENT: u32 = 0xc000_0205;
pub(crate) const SERVER: u32 = 0xc633_6407;
pub(crate) const ROUTER: u32 = 0x0808_0808;
/// An IPv6 router without an IPv4 address.
pub(crate) const STRANGER: u128 = 0x2001_0db8_0bad << 80 | 1;
/// Its address in ICMP errors (RFC 6791).
pub(crate) const ERROR_SOURCE: u32 = 0xcb00_7108;

/// The IPv6 form of an IPv4 address.
pub(crate) fn embed(address: u32) -> u128 {
    PREFIX | u128::from(address)
}

/// Addresses by the prefix. Records the places of the questions.
#[derive(Default)]
pub(crate) struct ByPrefix {
    pub(crate) places: Vec<Place>,
}

impl Addresses for ByPrefix {
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        self.places.push(place);
        let strip = |address: u128| (address >> 32 == PREFIX >> 32).then_some(address as u32);
        let refusal = Refusal::with(DropReason::Untranslatable, ErrorMessage::PROHIBITED_IPV6);
        let stand_in = (place == Place::Error).then_some(ERROR_SOURCE);
        let source = strip(source).or(stand_in).ok_or(refusal)?;
        Ok((source, strip(destination).ok_or(refusal)?))
    }

    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        self.places.push(place);
        if destination >> 24 == 10 {
            let error = ErrorMessage::PROHIBITED;
            return Err(Refusal::with(DropReason::Untranslatable, error));
        }
        Ok((embed(source), embed(destination)))
    }
}

/// An IPv4 packet to build.
#[derive(Clone, Debug)]
pub(crate) struct Four {
    pub(crate) service: u8,
    pub(crate) identification: u16,
    /// Flags and offset.
    pub(crate) fragment_field: u16,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Four {
    pub(crate) fn new(protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            service: 0x2e,
            identification: 0x1234,
            fragment_field: 0x4000,
            ttl: 64,
            protocol,
            source: CLIENT,
            destination: SERVER,
            options: Vec::new(),
            payload,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header_len = 20 + self.options.len().next_multiple_of(4);
        let mut bytes = vec![0; header_len];
        let mut header = Ipv4::init(&mut bytes[..], header_len);
        header.set_total_len((header_len + self.payload.len()) as u16);
        header.set_service(self.service);
        header.set_identification(self.identification);
        header.set_fragment_field(self.fragment_field);
        header.set_ttl(self.ttl);
        header.set_protocol(self.protocol);
        header.set_source(self.source);
        header.set_destination(self.destination);
        bytes[20..20 + self.options.len()].copy_from_slice(&self.options);
        Ipv4::new_header_checked(&mut bytes[..]).map(|mut header| header.fill_checksum()).ok();
        bytes.extend(&self.payload);
        bytes
    }
}

/// An IPv6 packet to build.
#[derive(Clone, Debug)]
pub(crate) struct Six {
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) source: u128,
    pub(crate) destination: u128,
    /// Extension headers: type and length in bytes.
    pub(crate) extensions: Vec<(u8, usize)>,
    pub(crate) fragment: Option<Fragment>,
    pub(crate) next_header: u8,
    pub(crate) payload: Vec<u8>,
}

impl Six {
    pub(crate) fn new(next_header: u8, payload: Vec<u8>) -> Self {
        Self {
            traffic_class: 0x2e,
            flow_label: 0,
            hop_limit: 64,
            source: embed(CLIENT),
            destination: embed(SERVER),
            extensions: Vec::new(),
            fragment: None,
            next_header,
            payload,
        }
    }

    pub(crate) fn fragment(mut self, offset: usize, more: bool, identification: u32) -> Self {
        let next_header = self.next_header;
        self.fragment = Some(Fragment { next_header, offset, more, identification });
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let last = self.fragment.map_or(self.next_header, |_| 44);
        let mut kinds = self.extensions.iter().map(|&(kind, _)| kind).chain([last]);
        let first = kinds.next().unwrap_or(last);
        let mut rest = Vec::new();
        for (&(_, len), next) in self.extensions.iter().zip(kinds) {
            rest.extend([next, (len / 8 - 1) as u8]);
            rest.resize(rest.len() + len - 2, 0);
        }
        if let Some(fragment) = self.fragment {
            let mut bytes = [0; 8];
            fragment.write(&mut bytes);
            rest.extend(bytes);
        }
        rest.extend(&self.payload);
        let mut bytes = vec![0; 40];
        let mut header = Ipv6::init(&mut bytes[..]);
        header.set_traffic_class(self.traffic_class);
        header.set_flow_label(self.flow_label);
        header.set_payload_len(rest.len() as u16);
        header.set_next_header(first);
        header.set_hop_limit(self.hop_limit);
        header.set_source(self.source);
        header.set_destination(self.destination);
        bytes.extend(rest);
        bytes
    }
}

/// The checksum field of a transport header; `None`: no pseudo header is covered.
pub(crate) fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(16),
        17 | 33 | 136 => Some(6),
        _ => None,
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Fills in the checksum of a transport header in IPv4.
pub(crate) fn seal4(protocol: u8, source: u32, destination: u32, mut payload: Vec<u8>) -> Vec<u8> {
    let len = payload.len() as u16;
    let (at, start) = match protocol {
        1 => (2, 0),
        _ => match checksum_at(protocol) {
            Some(at) => (at, pseudo_header(source, destination, protocol, len)),
            None => return payload,
        },
    };
    put(&mut payload, at, 0);
    let value = match !fold(sum(&payload, start)) {
        0 if matches!(protocol, 17 | 136) => 0xffff,
        value => value,
    };
    put(&mut payload, at, value);
    payload
}

/// Fills in the checksum of a transport header in IPv6.
pub(crate) fn seal6(
    protocol: u8,
    source: u128,
    destination: u128,
    mut payload: Vec<u8>,
) -> Vec<u8> {
    let at = match protocol {
        58 => 2,
        _ => match checksum_at(protocol) {
            Some(at) => at,
            None => return payload,
        },
    };
    put(&mut payload, at, 0);
    let start = pseudo_header_v6(source, destination, protocol, payload.len() as u32);
    let value = match !fold(sum(&payload, start)) {
        0 if matches!(protocol, 17 | 136) => 0xffff,
        value => value,
    };
    put(&mut payload, at, value);
    payload
}

/// A transport header with `len` bytes in all, from client to server, without checksum.
pub(crate) fn raw(protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + 3) as u8).collect();
    if protocol == 17 {
        put(&mut bytes, 4, len as u16);
    }
    bytes
}

/// An IPv4 packet from client to server with a correct checksum.
pub(crate) fn four(protocol: u8, len: usize) -> Four {
    Four::new(protocol, seal4(protocol, CLIENT, SERVER, raw(protocol, len)))
}

/// An IPv6 packet from client to server with a correct checksum.
pub(crate) fn six(protocol: u8, len: usize) -> Six {
    let payload = seal6(protocol, embed(CLIENT), embed(SERVER), raw(protocol, len));
    Six::new(protocol, payload)
}

/// An ICMP message with its checksum.
pub(crate) fn icmp(kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
    let message = [&[kind, code, 0, 0][..], &word.to_be_bytes(), body].concat();
    seal4(1, 0, 0, message)
}

/// An ICMPv6 message with its checksum, between these addresses.
pub(crate) fn icmp6(ends: (u128, u128), kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
    let message = [&[kind, code, 0, 0][..], &word.to_be_bytes(), body].concat();
    seal6(58, ends.0, ends.1, message)
}

/// An ICMP error from a router to the client about a packet.
pub(crate) fn error4(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Four {
    let payload = icmp(kind, code, word, quoted);
    Four { source: ROUTER, destination: CLIENT, ..Four::new(1, payload) }
}

/// An ICMPv6 error from a router to the client about a packet.
pub(crate) fn error6(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Six {
    let ends = (embed(ROUTER), embed(CLIENT));
    let payload = icmp6(ends, kind, code, word, quoted);
    Six { source: ends.0, destination: ends.1, ..Six::new(58, payload) }
}

/// Result of a conversion: the packet, and how to cut it.
pub(crate) type Done = Result<(Vec<u8>, Option<Cut>), Refusal>;

/// Converts an IPv4 packet. Asserts that a refused one is unchanged.
pub(crate) fn to_ipv6_with(
    settings: ConvertSettings,
    bytes: &[u8],
    addresses: &mut ByPrefix,
) -> Done {
    let converter = Converter::new(settings, [7; 32]);
    convert(bytes, |packet| converter.to_ipv6(packet, addresses))
}

/// Converts an IPv6 packet. Asserts that a refused one is unchanged.
pub(crate) fn to_ipv4_with(
    settings: ConvertSettings,
    bytes: &[u8],
    addresses: &mut ByPrefix,
) -> Done {
    let mut converter = Converter::new(settings, [7; 32]);
    convert(bytes, |packet| converter.to_ipv4(packet, addresses))
}

fn convert(bytes: &[u8], by: impl FnOnce(&mut Packet<'_>) -> Result<Converted, Refusal>) -> Done {
    let mut buffer = vec![0xee; HEADROOM];
    buffer.extend(bytes);
    let mut packet = Packet::new(&mut buffer, HEADROOM);
    match by(&mut packet) {
        Ok(Converted::Whole) => Ok((packet.bytes().to_vec(), None)),
        Ok(Converted::Cut(cut)) => Ok((packet.bytes().to_vec(), Some(cut))),
        Err(refusal) => {
            assert_eq!((packet.start(), packet.bytes()), (HEADROOM, bytes), "unchanged");
            assert!(buffer[..HEADROOM].iter().all(|&byte| byte == 0xee), "headroom unchanged");
            Err(refusal)
        }
    }
}

/// Converts with the default settings to IPv6.
pub(crate) fn to_ipv6(bytes: &[u8]) -> Done {
    to_ipv6_with(ConvertSettings::default(), bytes, &mut ByPrefix::default())
}

/// Converts with the default settings to IPv4.
pub(crate) fn to_ipv4(bytes: &[u8]) -> Done {
    to_ipv4_with(ConvertSettings::default(), bytes, &mut ByPrefix::default())
}

/// The packet of a conversion that leaves it whole.
#[track_caller]
pub(crate) fn whole(done: Done) -> Vec<u8> {
    let (bytes, cut) = done.expect("a packet that is converted");
    assert_eq!(cut, None);
    bytes
}

/// Reason and error of a refusal.
#[track_caller]
pub(crate) fn refused(done: Done) -> (DropReason, Option<ErrorMessage>) {
    let refusal = done.expect_err("a packet that is refused");
    (refusal.reason, refusal.error)
}

/// Asserts equal bytes, with a readable message.
#[track_caller]
pub(crate) fn same(name: &str, left: &[u8], right: &[u8]) {
    let at = left.iter().zip(right).position(|(left, right)| left != right);
    assert!(left == right, "{name}: differs at {at:?}\n left {left:02x?}\nright {right:02x?}");
}

/// The fragments of a packet.
pub(crate) fn cut(bytes: &[u8], cut: Cut) -> Vec<Vec<u8>> {
    let mut fragments = cut.fragments(bytes);
    let expected = fragments.len();
    let mut buffer = vec![0xaa; cut.limit];
    let mut all = Vec::new();
    while let Some(len) = fragments.write_next(&mut buffer) {
        all.push(buffer[..len].to_vec());
    }
    assert_eq!(all.len(), expected);
    all
}
