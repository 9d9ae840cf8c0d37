//! UDP packets of both families with the same payload, in buffers with the headroom that a
//! conversion to IPv6 needs. The packet of IPv4 fills the smallest Ethernet frame.

use crate::frame::{self, End, Frame};
use natgate_engine::Packet;
use natgate_ipv6::convert::HEADROOM;
use natgate_wire::checksum::{fold, pseudo_header_v6, sum};
use natgate_wire::{Ipv6, ipv4, ipv6, protocol, udp};

/// Length of the UDP datagram, bytes.
const DATAGRAM: usize = frame::LEN - ipv4::HEADER_LEN;
/// Length of the packet of IPv6, bytes.
pub(super) const LEN_IPV6: usize = ipv6::HEADER_LEN + DATAGRAM;

/// An endpoint of IPv6: address and port.
pub(super) type End6 = (u128, u16);

/// An aligned buffer for one packet behind headroom.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Buffer([u8; 128]);

impl Buffer {
    pub(super) const EMPTY: Self = Self([0; 128]);

    /// Writes a datagram over IPv4.
    pub(super) fn write_ipv4(&mut self, source: End, destination: End) {
        let mut frame = Frame([0; 64]);
        frame::udp(&mut frame, source, destination);
        self.0[HEADROOM..][..frame::LEN].copy_from_slice(&frame.0[..frame::LEN]);
    }

    /// Writes a datagram over IPv6.
    pub(super) fn write_ipv6(&mut self, source: End6, destination: End6) {
        let bytes = &mut self.0[HEADROOM..][..LEN_IPV6];
        bytes.fill(0);
        let mut packet = Ipv6::init(&mut *bytes);
        packet.set_payload_len(DATAGRAM as u16);
        packet.set_next_header(protocol::UDP);
        packet.set_hop_limit(64);
        packet.set_source(source.0);
        packet.set_destination(destination.0);
        let datagram = packet.payload_mut();
        datagram[..2].copy_from_slice(&source.1.to_be_bytes());
        datagram[2..4].copy_from_slice(&destination.1.to_be_bytes());
        datagram[4..6].copy_from_slice(&(DATAGRAM as u16).to_be_bytes());
        let pseudo = pseudo_header_v6(source.0, destination.0, protocol::UDP, DATAGRAM as u32);
        let checksum = !fold(sum(datagram, pseudo));
        datagram[udp::CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The packet that was written last.
    pub(super) fn packet(&mut self) -> Packet<'_> {
        let len = if self.0[HEADROOM] >> 4 == 6 { LEN_IPV6 } else { frame::LEN };
        Packet::new(&mut self.0[..HEADROOM + len], HEADROOM)
    }

    /// The source of the packet of IPv4 that the packet of IPv6 has become.
    pub(super) fn converted_source(&self) -> End {
        let bytes = &self.0[HEADROOM + ipv6::HEADER_LEN - ipv4::HEADER_LEN..];
        let [a, b, c, d] = [12, 13, 14, 15].map(|at| bytes[at]);
        (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([bytes[20], bytes[21]]))
    }
}
