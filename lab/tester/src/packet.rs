//! UDP packets that differ only in endpoints and in a stamp in the payload, which identifies the
//! packet.
//!
//! A template has all constant bytes. Only the variable ones are written and added to the checksum
//! for each packet.

use natgate_wire::arp::{Mac, write_ethernet};
use natgate_wire::checksum::{fold, pseudo_header, sum};
use natgate_wire::link::{ETHERNET_LEN, ethertype};

/// Bytes of a frame on the wire that devices hide.
pub(crate) const CHECK_SEQUENCE: usize = 4;

const IP: usize = ETHERNET_LEN;
const UDP: usize = IP + 20;
const PAYLOAD: usize = UDP + 8;
const STAMP_LEN: usize = 18;
const MAGIC: [u8; 2] = *b"ng";
const UDP_PROTOCOL: u8 = 17;

/// An address and a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Address as a number.
    pub address: u32,
    /// Port.
    pub port: u16,
}

/// Identity of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) flow: u32,
    pub(crate) number: u32,
    /// Time of sending, nanoseconds.
    pub(crate) time: u64,
}

/// Common part of all packets of one kind, for generators beside the tester.
///
/// A packet has its addresses at bytes 26 and 30, its ports at 34 and 36, and its flow at 44.
#[derive(Clone, Debug)]
pub struct Template {
    /// Frame with zeros in place of variable bytes.
    pub bytes: Vec<u8>,
    /// Sum of the constant part of the IPv4 header.
    pub header_sum: u32,
    /// Sum of the constant part of pseudo-header, UDP header and payload.
    pub payload_sum: u32,
}

impl Template {
    /// Creates a template of `len` bytes, at least 60.
    pub(crate) fn new(len: usize, from: Mac, to: Mac, ttl: u8) -> Self {
        let mut bytes: Vec<u8> = (0..len).map(|index| index as u8).collect();
        if let Some(header) = bytes.first_chunk_mut() {
            write_ethernet(header, to, from, ethertype::IPV4);
        }
        let (ip_len, udp_len) = ((len - IP) as u16, (len - UDP) as u16);
        bytes[IP..UDP].fill(0);
        bytes[IP] = 0x45;
        bytes[IP + 2..IP + 4].copy_from_slice(&ip_len.to_be_bytes());
        bytes[IP + 8..IP + 10].copy_from_slice(&[ttl, UDP_PROTOCOL]);
        bytes[UDP..PAYLOAD + STAMP_LEN].fill(0);
        bytes[UDP + 4..UDP + 6].copy_from_slice(&udp_len.to_be_bytes());
        bytes[PAYLOAD..PAYLOAD + 2].copy_from_slice(&MAGIC);
        let header_sum = sum(&bytes[IP..UDP], 0);
        let payload_sum = sum(&bytes[UDP..], pseudo_header(0, 0, UDP_PROTOCOL, udp_len));
        Self { bytes, header_sum, payload_sum }
    }

    /// Replaces the content of `out` by a packet.
    pub(crate) fn write(&self, out: &mut Vec<u8>, from: Endpoint, to: Endpoint, stamp: Stamp) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        self.fill(out, from, to, stamp);
    }

    fn fill(&self, out: &mut [u8], from: Endpoint, to: Endpoint, stamp: Stamp) {
        let addresses = halves(from.address) + halves(to.address);
        let header = !fold(self.header_sum.wrapping_add(addresses));
        out[IP + 10..IP + 12].copy_from_slice(&header.to_be_bytes());
        out[IP + 12..IP + 16].copy_from_slice(&from.address.to_be_bytes());
        out[IP + 16..IP + 20].copy_from_slice(&to.address.to_be_bytes());
        let (high, low) = ((stamp.time >> 32) as u32, stamp.time as u32);
        let stamped = halves(stamp.flow) + halves(stamp.number) + halves(high) + halves(low);
        let ports = u32::from(from.port) + u32::from(to.port);
        let constant = u32::from(fold(self.payload_sum));
        // RFC 768: a checksum of zero is sent as all ones.
        let checksum = match !fold(constant + addresses + ports + stamped) {
            0 => 0xffff,
            other => other,
        };
        out[UDP..UDP + 2].copy_from_slice(&from.port.to_be_bytes());
        out[UDP + 2..UDP + 4].copy_from_slice(&to.port.to_be_bytes());
        out[UDP + 6..UDP + 8].copy_from_slice(&checksum.to_be_bytes());
        let payload = &mut out[PAYLOAD..];
        payload[2..6].copy_from_slice(&stamp.flow.to_be_bytes());
        payload[6..10].copy_from_slice(&stamp.number.to_be_bytes());
        payload[10..18].copy_from_slice(&stamp.time.to_be_bytes());
    }

    /// Stamp of a frame that may be one of these packets.
    pub(crate) fn stamp(&self, frame: &[u8]) -> Option<Stamp> {
        if frame.len() != self.bytes.len() || frame[PAYLOAD..PAYLOAD + 2] != MAGIC {
            return None;
        }
        let payload = &frame[PAYLOAD..];
        Some(Stamp {
            flow: u32::from_be_bytes(payload[2..6].try_into().ok()?),
            number: u32::from_be_bytes(payload[6..10].try_into().ok()?),
            time: u64::from_be_bytes(payload[10..18].try_into().ok()?),
        })
    }

    /// Returns true if a frame equals the packet between these endpoints.
    pub(crate) fn matches(&self, frame: &[u8], from: Endpoint, to: Endpoint, stamp: Stamp) -> bool {
        let mut expected = [0; 1518];
        let Some(expected) = expected.get_mut(..self.bytes.len()) else { return false };
        expected.copy_from_slice(&self.bytes);
        self.fill(expected, from, to, stamp);
        expected == frame
    }
}

/// Source endpoint of a frame with UDP.
pub(crate) fn source(frame: &[u8]) -> Endpoint {
    let address = [frame[IP + 12], frame[IP + 13], frame[IP + 14], frame[IP + 15]];
    let port = u16::from_be_bytes([frame[UDP], frame[UDP + 1]]);
    Endpoint { address: u32::from_be_bytes(address), port }
}

fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_wire::checksum::checksum;

    const FROM: Endpoint = Endpoint { address: 0x6440_0001, port: 10_001 };
    const TO: Endpoint = Endpoint { address: 0xc633_6401, port: 53 };
    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn packets_are_whole_with_right_checksums() {
        for len in [60, 61, 124, 1514] {
            let template = Template::new(len, A, B, 64);
            for number in 0..1000 {
                let stamp =
                    Stamp { flow: number * 7, number, time: u64::from(number) << 33 | 0xffff_fff0 };
                let mut frame = Vec::new();
                template.write(&mut frame, FROM, TO, stamp);
                assert_eq!(checksum(&frame[IP..UDP]), 0);
                let udp_len = (len - UDP) as u16;
                let pseudo = pseudo_header(FROM.address, TO.address, UDP_PROTOCOL, udp_len);
                assert_eq!(!fold(sum(&frame[UDP..], pseudo)), 0);
                assert_eq!(template.stamp(&frame), Some(stamp));
                assert_eq!(source(&frame), FROM);
            }
        }
    }

    #[test]
    fn any_other_byte_is_noticed() {
        let template = Template::new(80, A, B, 64);
        let stamp = Stamp { flow: 1, number: 2, time: 3 };
        let mut frame = Vec::new();
        template.write(&mut frame, FROM, TO, stamp);
        assert!(template.matches(&frame, FROM, TO, stamp));
        for at in 0..80 {
            frame[at] ^= 1;
            assert!(!template.matches(&frame, FROM, TO, stamp), "byte {at}");
            frame[at] ^= 1;
        }
        assert_eq!(template.stamp(&frame[..79]), None);
    }
}
