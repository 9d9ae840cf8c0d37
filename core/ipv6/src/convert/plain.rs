//! Plain packets: a whole UDP datagram with a checksum, or a whole TCP segment, right behind a
//! header without options or extensions. Most packets are such.
//!
//! A plain packet becomes the same as by the complete conversion, only sooner. The complete
//! conversion takes a packet that is not plain, or that its length or its hop limit may stop.

use super::headers::{DONT_FRAGMENT, MAY_FRAGMENT, after_hop, expires};
use super::{ConvertSettings, Converter};
use natgate_engine::{Packet, Side};
use natgate_wire::checksum::fold;
use natgate_wire::{Delta, ipv4, ipv6, protocol, tcp, udp};

/// Bytes by which the fixed headers of both families differ.
const GROWTH: usize = ipv6::HEADER_LEN - ipv4::HEADER_LEN;
/// First byte of an IPv4 header without options.
const FIRST_IPV4: u8 = 0x45;
/// Bits of the flags and the offset that only fragments have.
const FRAGMENT: u16 = 0x3fff;

/// The header of a plain packet of IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain6 {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    payload_len: u16,
    class: u8,
    protocol: u8,
    pub(crate) hop_limit: u8,
}

/// The header of a plain packet of IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain4 {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    total_len: u16,
    pub(crate) service: u8,
    protocol: u8,
    pub(crate) ttl: u8,
    dont_fragment: bool,
}

/// Offset of the checksum in the transport header of a plain packet, and the header's least length.
#[inline(always)]
fn transport(protocol: u8) -> Option<(usize, usize)> {
    match protocol {
        protocol::UDP => Some((udp::CHECKSUM, udp::HEADER_LEN)),
        protocol::TCP => Some((tcp::CHECKSUM, tcp::HEADER_LEN)),
        _ => None,
    }
}

/// True if the TCP header at an offset has SYN.
#[inline(always)]
fn has_syn(bytes: &[u8], at: usize) -> bool {
    bytes.get(at + 13).is_some_and(|flags| flags & tcp::flags::SYN != 0)
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The 16 bytes at an offset.
#[inline(always)]
fn u128_at<const N: usize>(bytes: &[u8; N], at: usize) -> u128 {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    u128::from_be_bytes(octets)
}

/// True if a transport checksum says that there is none.
#[inline(always)]
fn has_no_checksum<const N: usize>(head: &[u8; N], protocol: u8, header_len: usize) -> bool {
    protocol == protocol::UDP && u16_at(head, header_len + udp::CHECKSUM) == 0
}

impl Plain6 {
    /// True if the packet, which has these bytes, is a TCP segment that opens a connection.
    #[inline(always)]
    pub(crate) fn is_syn(&self, bytes: &[u8]) -> bool {
        self.protocol == protocol::TCP && has_syn(bytes, ipv6::HEADER_LEN)
    }

    /// Reads the header of a packet; `None`: the packet is not plain.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<{ ipv6::HEADER_LEN + udp::HEADER_LEN }>()?;
        let protocol = head[ipv6::NEXT_HEADER];
        let (_, least) = transport(protocol)?;
        let payload_len = u16_at(head, 4);
        let len = usize::from(payload_len);
        let is_plain = head[0] >> 4 == 6
            && len >= least
            && len <= bytes.len() - ipv6::HEADER_LEN
            && len <= usize::from(u16::MAX) - ipv4::HEADER_LEN
            && !has_no_checksum(head, protocol, ipv6::HEADER_LEN);
        is_plain.then(|| Self {
            source: u128_at(head, 8),
            destination: u128_at(head, 24),
            payload_len,
            class: head[0] << 4 | head[1] >> 4,
            protocol,
            hop_limit: head[7],
        })
    }

    /// True if the packet passes whatever its addresses are.
    #[inline(always)]
    pub(super) fn passes(&self, settings: &ConvertSettings) -> bool {
        let total_len = ipv4::HEADER_LEN + usize::from(self.payload_len);
        !expires(self.hop_limit, settings) && total_len <= usize::from(settings.mtu_ipv4)
    }

    /// Length of the packet, bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        ipv6::HEADER_LEN + usize::from(self.payload_len)
    }

    /// Counts the hop of a packet of IPv6 that is routed, and writes the address that takes the
    /// place of its source or, from outside, of its destination.
    #[inline(always)]
    pub(crate) fn route(&self, bytes: &mut [u8], from: Side, change: Option<u128>) {
        let Some(header) = bytes.first_chunk_mut::<{ ipv6::HEADER_LEN }>() else { return };
        header[7] = self.hop_limit - 1;
        match (change, from) {
            (None, _) => {}
            (Some(source), Side::Inside) => header[8..24].copy_from_slice(&source.to_be_bytes()),
            (Some(destination), Side::Outside) => {
                header[24..40].copy_from_slice(&destination.to_be_bytes());
            }
        }
    }

    /// The source port of the packet with these bytes.
    #[inline(always)]
    pub(crate) fn source_port(&self, bytes: &[u8]) -> u16 {
        u16_at(bytes, ipv6::HEADER_LEN)
    }

    /// The transport checksum, which the conversion of the packet overwrites.
    #[inline(always)]
    pub(crate) fn checksum(&self, bytes: &[u8]) -> u16 {
        transport(self.protocol).map_or(0, |(at, _)| u16_at(bytes, ipv6::HEADER_LEN + at))
    }

    /// Makes the IPv4 packet that this packet has become this packet again, with its checksum. The
    /// conversion has overwritten the end of the source and the destination.
    pub(crate) fn restore(&self, packet: &mut Packet<'_>, checksum: u16) {
        packet.set_start(packet.start() - GROWTH);
        let bytes = packet.bytes_mut();
        bytes[8..24].copy_from_slice(&self.source.to_be_bytes());
        bytes[24..40].copy_from_slice(&self.destination.to_be_bytes());
        if let Some((at, _)) = transport(self.protocol) {
            let at = ipv6::HEADER_LEN + at;
            bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

impl Plain4 {
    /// True if the packet, which has these bytes, is a TCP segment that opens a connection.
    #[inline(always)]
    pub(crate) fn is_syn(&self, bytes: &[u8]) -> bool {
        self.protocol == protocol::TCP && has_syn(bytes, ipv4::HEADER_LEN)
    }

    /// The source port of the packet with these bytes.
    #[inline(always)]
    pub(crate) fn source_port(&self, bytes: &[u8]) -> u16 {
        u16_at(bytes, ipv4::HEADER_LEN)
    }

    /// The destination port of the packet with these bytes.
    #[inline(always)]
    pub(crate) fn destination_port(&self, bytes: &[u8]) -> u16 {
        u16_at(bytes, ipv4::HEADER_LEN + 2)
    }

    /// Length of the packet, bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.total_len.into()
    }

    /// Counts the hop of the packet with these bytes.
    #[inline(always)]
    pub(crate) fn count_hop(&self, bytes: &mut [u8]) {
        let Some(head) = bytes.first_chunk_mut::<{ ipv4::HEADER_LEN }>() else { return };
        let old = u16_at(head, 8);
        head[8] = self.ttl.saturating_sub(1);
        let delta = Delta::NONE.replace_u16(old, u16_at(head, 8));
        let header = delta.apply(u16_at(head, 10));
        head[10..12].copy_from_slice(&header.to_be_bytes());
    }

    /// Gives the packet with these bytes another source. The checksums change by the difference.
    #[inline(always)]
    pub(crate) fn replace_source(&self, bytes: &mut [u8], source: u32) {
        let Some(head) = bytes.first_chunk_mut::<{ ipv4::HEADER_LEN + udp::HEADER_LEN }>() else {
            return;
        };
        head[12..16].copy_from_slice(&source.to_be_bytes());
        let delta = Delta::NONE.replace_u32(self.source, source);
        let header = delta.apply(u16_at(head, 10));
        head[10..12].copy_from_slice(&header.to_be_bytes());
        let Some((at, _)) = transport(self.protocol) else { return };
        let at = ipv4::HEADER_LEN + at;
        let Some(field) = bytes.get_mut(at..at + 2) else { return };
        let sum = match delta.apply(u16::from_be_bytes([field[0], field[1]])) {
            // UDP without checksum has zero.
            0 if self.protocol == protocol::UDP => u16::MAX,
            sum => sum,
        };
        field.copy_from_slice(&sum.to_be_bytes());
    }

    /// Reads the header of a packet; `None`: the packet is not plain.
    #[inline(always)]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<{ ipv4::HEADER_LEN + udp::HEADER_LEN }>()?;
        let protocol = head[9];
        let (_, least) = transport(protocol)?;
        let (total_len, fragment) = (u16_at(head, 2), u16_at(head, 6));
        let is_plain = head[0] == FIRST_IPV4
            && usize::from(total_len) >= ipv4::HEADER_LEN + least
            && usize::from(total_len) <= bytes.len()
            && fragment & FRAGMENT == 0
            && !has_no_checksum(head, protocol, ipv4::HEADER_LEN)
            && is_header_right(head);
        is_plain.then(|| Self {
            source: u32_at(head, 12),
            destination: u32_at(head, 16),
            total_len,
            service: head[1],
            protocol,
            ttl: head[8],
            dont_fragment: fragment & DONT_FRAGMENT != 0,
        })
    }

    /// True if the packet passes whatever its addresses are.
    #[inline(always)]
    pub(super) fn passes(&self, settings: &ConvertSettings) -> bool {
        let limit = match self.dont_fragment {
            true => settings.mtu_ipv6,
            false => settings.lowest_mtu.min(settings.mtu_ipv6),
        };
        let len = usize::from(self.total_len) + GROWTH;
        !expires(self.ttl, settings) && len <= usize::from(limit)
    }
}

/// True if the checksum of an IPv4 header without options is right.
#[inline(always)]
fn is_header_right<const N: usize>(head: &[u8; N]) -> bool {
    // A sum modulo 0xffff is the same in each order of bytes (RFC 1071 section 2).
    let word = |at: usize| {
        let mut octets = [0; 8];
        octets.copy_from_slice(&head[at..at + 8]);
        u64::from_ne_bytes(octets)
    };
    let last = u32::from_ne_bytes([head[16], head[17], head[18], head[19]]);
    let (sum, over) = word(0).overflowing_add(word(8));
    let (sum, over_again) = sum.overflowing_add(u64::from(last) + u64::from(over));
    // Not all words are zero, so all bits of the folded sum are ones if and only if 0xffff divides
    // the sum.
    (sum + u64::from(over_again)).is_multiple_of(0xffff)
}

/// The ones' complement sum of an address's words, 16 bits.
#[inline(always)]
fn sum_of(address: u128) -> u16 {
    let (sum, carry) = (address as u64).overflowing_add((address >> 64) as u64);
    let sum = sum + u64::from(carry);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    fold(sum as u32)
}

#[inline(always)]
fn sum_of_ipv4((source, destination): (u32, u32)) -> u32 {
    let halves = |address: u32| (address >> 16) + (address & 0xffff);
    halves(source) + halves(destination)
}

/// The transport checksum after the change from one pair of addresses to another.
#[inline(always)]
fn changed(protocol: u8, checksum: u16, old: u32, new: u32) -> u16 {
    match Delta::NONE.replace_sum(old, new).apply(checksum) {
        0 if protocol == protocol::UDP => 0xffff,
        checksum => checksum,
    }
}

impl Converter {
    /// True if a plain packet of IPv6 passes whatever its addresses are.
    #[inline(always)]
    pub(crate) fn passes_to_ipv4(&self, plain: &Plain6) -> bool {
        plain.passes(&self.settings)
    }

    /// True if a plain packet of IPv4 passes whatever its addresses are.
    #[inline(always)]
    pub(crate) fn passes_to_ipv6(&self, plain: &Plain4) -> bool {
        plain.passes(&self.settings)
    }

    /// Converts a plain packet that passes to IPv4.
    #[inline(always)]
    pub(crate) fn plain_to_ipv4(
        &mut self,
        packet: &mut Packet<'_>,
        plain: &Plain6,
        (source, destination): (u32, u32),
    ) {
        let identification = self.identifications.next(source, destination);
        let total_len = plain.payload_len + ipv4::HEADER_LEN as u16;
        //= rfc7915#section-5-df-clear
        //= rfc7915#section-5-df-set
        let fragment = if usize::from(total_len) <= MAY_FRAGMENT { 0 } else { DONT_FRAGMENT };
        let service = self.settings.service.unwrap_or(plain.class);
        let first = u16::from_be_bytes([FIRST_IPV4, service]);
        let fourth =
            u16::from_be_bytes([after_hop(plain.hop_limit, &self.settings), plain.protocol]);
        let ends = sum_of_ipv4((source, destination));
        let words = u32::from(first) + u32::from(total_len) + u32::from(identification);
        let header_checksum = !fold(words + u32::from(fragment) + u32::from(fourth) + ends);
        packet.truncate(plain.len());
        packet.set_start(packet.start() + GROWTH);
        let bytes = packet.bytes_mut();
        let Some((header, payload)) = bytes.split_first_chunk_mut::<{ ipv4::HEADER_LEN }>() else {
            return;
        };
        let old = u32::from(sum_of(plain.source)) + u32::from(sum_of(plain.destination));
        change_checksum(payload, plain.protocol, old, ends);
        let put = |header: &mut [u8; ipv4::HEADER_LEN], at: usize, word: u16| {
            header[at..at + 2].copy_from_slice(&word.to_be_bytes());
        };
        for (at, word) in [(0, first), (2, total_len), (4, identification), (6, fragment)] {
            put(header, at, word);
        }
        put(header, 8, fourth);
        put(header, 10, header_checksum);
        header[12..16].copy_from_slice(&source.to_be_bytes());
        header[16..20].copy_from_slice(&destination.to_be_bytes());
    }

    /// Converts a plain packet that passes to IPv6.
    #[inline(always)]
    pub(crate) fn plain_to_ipv6(
        &self,
        packet: &mut Packet<'_>,
        plain: &Plain4,
        (source, destination): (u128, u128),
    ) {
        packet.truncate(plain.total_len.into());
        packet.set_start(packet.start() - GROWTH);
        let bytes = packet.bytes_mut();
        let Some((header, payload)) = bytes.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>() else {
            return;
        };
        let old = sum_of_ipv4((plain.source, plain.destination));
        let new = u32::from(sum_of(source)) + u32::from(sum_of(destination));
        change_checksum(payload, plain.protocol, old, new);
        let class = self.settings.traffic_class.unwrap_or(plain.service);
        let payload_len = plain.total_len - ipv4::HEADER_LEN as u16;
        let first = 6 << 28 | u32::from(class) << 20;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        (header[6], header[7]) = (plain.protocol, after_hop(plain.ttl, &self.settings));
        header[8..24].copy_from_slice(&source.to_be_bytes());
        header[24..40].copy_from_slice(&destination.to_be_bytes());
    }
}

/// Changes the checksum of a plain packet's transport header.
//= rfc7915#section-4.5-update
//= rfc7915#section-5-checksum
//= rfc7915#section-5.5-update
#[inline(always)]
fn change_checksum(payload: &mut [u8], protocol: u8, old: u32, new: u32) {
    let Some((at, _)) = transport(protocol) else { return };
    let Some(field) = payload.get_mut(at..at + 2) else { return };
    let checksum = changed(protocol, u16_at(field, 0), old, new);
    field.copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::{Addresses, Converted, Hops, Place, Refusal};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use natgate_wire::{Ipv4, Ipv6};
    use proptest::prelude::*;

    /// Bytes before a packet.
    const ROOM: usize = 48;

    /// Any packet gets these addresses.
    #[derive(Clone, Copy, Debug)]
    struct Ends {
        ipv4: (u32, u32),
        ipv6: (u128, u128),
    }

    impl Addresses for Ends {
        fn to_ipv4(&mut self, _: Place, _: u128, _: u128) -> Result<(u32, u32), Refusal> {
            Ok(self.ipv4)
        }

        fn to_ipv6(&mut self, _: Place, _: u32, _: u32) -> Result<(u128, u128), Refusal> {
            Ok(self.ipv6)
        }
    }

    /// A transport header and its payload, of few different bytes, so that sums meet their limits.
    fn payload() -> impl Strategy<Value = (u8, Vec<u8>)> {
        let len = prop_oneof![0_usize..80, 1200_usize..1300, 1400_usize..1500];
        let byte = prop_oneof![Just(0_u8), Just(0xff_u8), any::<u8>()];
        let protocol = prop_oneof![Just(protocol::UDP), Just(protocol::TCP), any::<u8>()];
        (protocol, len.prop_flat_map(move |len| prop::collection::vec(byte.clone(), len)))
    }

    fn address() -> impl Strategy<Value = u128> {
        prop_oneof![any::<u128>(), Just(0), Just(u128::MAX), any::<u32>().prop_map(u128::from)]
    }

    fn ends() -> impl Strategy<Value = Ends> {
        (any::<(u32, u32)>(), (address(), address())).prop_map(|(ipv4, ipv6)| Ends { ipv4, ipv6 })
    }

    fn settings() -> impl Strategy<Value = ConvertSettings> {
        let hops = prop_oneof![Just(Hops::Decrement), Just(Hops::Keep)];
        let mtu = || prop_oneof![Just(1280_u16), Just(1320), Just(1500), Just(u16::MAX)];
        (hops, mtu(), mtu(), any::<(Option<u8>, Option<u8>)>()).prop_map(
            |(hops, mtu_ipv6, mtu_ipv4, (traffic_class, service))| ConvertSettings {
                hops,
                mtu_ipv6,
                mtu_ipv4,
                traffic_class,
                service,
                ..ConvertSettings::default()
            },
        )
    }

    /// The bytes of a buffer's packet after its conversion.
    type Outcome = Result<(Converted, Vec<u8>), Refusal>;

    fn outcome(packet: &Packet<'_>, result: Result<Converted, Refusal>) -> Outcome {
        result.map(|converted| (converted, packet.bytes().to_vec()))
    }

    fn both(
        bytes: &[u8],
        convert: impl Fn(&mut Packet<'_>) -> Result<Converted, Refusal>,
        convert_any: impl Fn(&mut Packet<'_>) -> Result<Converted, Refusal>,
    ) -> [Outcome; 2] {
        let mut one = [&[0; ROOM][..], bytes].concat();
        let mut other = one.clone();
        let mut packets = [Packet::new(&mut one, ROOM), Packet::new(&mut other, ROOM)];
        let results = [convert(&mut packets[0]), convert_any(&mut packets[1])];
        [outcome(&packets[0], results[0]), outcome(&packets[1], results[1])]
    }

    proptest! {
        #[test]
        fn ipv6_becomes_what_the_complete_conversion_makes(
            (protocol, payload) in payload(), ends in ends(), settings in settings(),
            head in any::<[u8; 4]>(), hop_limit in 0_u8..4, more in 0_usize..9, cut in 0_usize..3,
        ) {
            let mut bytes = vec![0; ipv6::HEADER_LEN];
            bytes[..4].copy_from_slice(&head);
            bytes[0] = 0x60 | head[0] & 0xf;
            let mut header = Ipv6::new_header_checked(&mut bytes[..]).expect("a header");
            header.set_payload_len((payload.len() + cut / 2) as u16);
            header.set_next_header(protocol);
            header.set_hop_limit(hop_limit);
            header.set_source(ends.ipv6.0);
            header.set_destination(ends.ipv6.1);
            bytes.extend(&payload);
            bytes.extend(vec![7; more]);
            let converter = Converter::new(settings, [3; 32]);
            let [plain, any] = both(
                &bytes,
                |packet| converter.clone().to_ipv4(packet, &mut { ends }),
                |packet| converter.clone().any_to_ipv4(packet, &mut { ends }),
            );
            prop_assert_eq!(plain, any);
        }

        #[test]
        fn ipv4_becomes_what_the_complete_conversion_makes(
            (protocol, payload) in payload(), ends in ends(), settings in settings(),
            service in any::<u8>(), ttl in 0_u8..4, more in 0_usize..9, wrong in 0_u8..8,
            field in prop_oneof![Just(0_u16), Just(0x4000), Just(0x8000), Just(0x2000), Just(3)],
        ) {
            let mut bytes = vec![0; ipv4::HEADER_LEN];
            let mut header = Ipv4::init(&mut bytes[..], ipv4::HEADER_LEN);
            header.set_service(service);
            header.set_total_len((ipv4::HEADER_LEN + payload.len()) as u16);
            header.set_fragment_field(field);
            header.set_ttl(ttl);
            header.set_protocol(protocol);
            header.set_source(ends.ipv4.0);
            header.set_destination(ends.ipv4.1);
            header.fill_checksum();
            bytes[11] ^= u8::from(wrong == 0);
            bytes.extend(&payload);
            bytes.extend(vec![7; more]);
            let converter = Converter::new(settings, [3; 32]);
            let [plain, any] = both(
                &bytes,
                |packet| converter.to_ipv6(packet, &mut { ends }),
                |packet| converter.any_to_ipv6(packet, &mut { ends }),
            );
            prop_assert_eq!(plain, any);
        }

        #[test]
        fn a_packet_can_be_put_together_again(
            (protocol, payload) in payload(), ends in ends(), head in any::<[u8; 8]>(),
        ) {
            let mut bytes = vec![0; ipv6::HEADER_LEN];
            bytes[..8].copy_from_slice(&head);
            bytes[0] = 0x60 | head[0] & 0xf;
            let mut header = Ipv6::new_header_checked(&mut bytes[..]).expect("a header");
            header.set_payload_len(payload.len() as u16);
            header.set_next_header(protocol);
            header.set_source(ends.ipv6.0);
            header.set_destination(ends.ipv6.1);
            bytes.extend(&payload);
            let mut buffer = bytes.clone();
            let mut packet = Packet::new(&mut buffer, 0);
            if let Some(plain) = Plain6::read(packet.bytes()) {
                let checksum = plain.checksum(packet.bytes());
                let mut converter = Converter::new(ConvertSettings::default(), [3; 32]);
                converter.plain_to_ipv4(&mut packet, &plain, ends.ipv4);
                plain.restore(&mut packet, checksum);
                prop_assert_eq!(packet.bytes(), &bytes[..]);
            }
        }
    }
}
