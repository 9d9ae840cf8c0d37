//! Completion of frames that never meet hardware: the kernel leaves the transport checksum
//! unfinished, and keeps the VLAN tag beside the frame.
//!
//! The sender on a virtual device writes only the pseudo header's sum into the checksum field and
//! names the field in the virtio network header. The code that lets the frame out must finish the
//! checksum.

use natgate_wire::checksum;
use natgate_wire::link::ETHERNET_LEN;
use natgate_wire::protocol::{SCTP, TCP, UDP};

/// The virtio network header that precedes a received frame: `struct virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct VirtioHeader {
    flags: u8,
    segmentation: u8,
    segment_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

/// Length of the header, bytes.
pub(super) const VIRTIO_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;

impl VirtioHeader {
    /// Reads the header, which is in this machine's byte order.
    pub(super) fn read(bytes: &[u8; VIRTIO_LEN]) -> Self {
        let field = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            segmentation: bytes[1],
            segment_size: field(4),
            checksum_start: field(6),
            checksum_offset: field(8),
        }
    }

    /// True if the frame holds several segments that were merged, or were never cut.
    pub(super) fn merged(self) -> bool {
        self.segmentation != 0
    }

    /// Protocol of the merged segments, if it is known here, over IPv4.
    pub(super) fn segmented_protocol(self) -> Option<u8> {
        const TCP_OVER_IPV4: u8 = 1;
        const UDP_DATAGRAMS: u8 = 5;
        const CONGESTION_MARK: u8 = 0x80;
        match self.segmentation & !CONGESTION_MARK {
            TCP_OVER_IPV4 => Some(TCP),
            UDP_DATAGRAMS => Some(UDP),
            _ => None,
        }
    }

    /// Bytes of payload in every merged segment but the last.
    pub(super) fn segment_size(self) -> usize {
        self.segment_size.into()
    }

    /// Finishes the frame's checksum if needed; returns true if the checksum is right now.
    pub(super) fn finish_checksum(self, frame: &mut [u8]) -> bool {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return true;
        }
        let start = usize::from(self.checksum_start);
        let field = start + usize::from(self.checksum_offset);
        if field + 2 > frame.len() || carries_sctp(frame, start) {
            return false;
        }
        // The field holds the pseudo header's sum, so the sum is part of the total. Zero would mean
        // that there is no checksum (RFC 768); all ones means the same number to TCP.
        let sum = match checksum::checksum(&frame[start..]) {
            0 => 0xffff,
            sum => sum,
        };
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        true
    }
}

/// True if the protocol whose header begins at `start` is SCTP, whose checksum is of another kind.
fn carries_sctp(frame: &[u8], start: usize) -> bool {
    start >= ETHERNET_LEN + 20 && frame[ETHERNET_LEN] >> 4 == 4 && frame[ETHERNET_LEN + 9] == SCTP
}

/// Inserts a VLAN tag behind the hardware addresses. `with_room` begins four free bytes before the
/// frame; the frame begins there afterwards.
pub(super) fn insert_vlan_tag(with_room: &mut [u8], protocol: u16, control: u16) {
    const ADDRESSES: usize = 12;
    with_room.copy_within(4..4 + ADDRESSES, 0);
    with_room[ADDRESSES..ADDRESSES + 2].copy_from_slice(&protocol.to_be_bytes());
    with_room[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&control.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 and UDP with the pseudo header's sum in the checksum field.
    fn unfinished(payload: &[u8]) -> Vec<u8> {
        let udp_len = (8 + payload.len()) as u16;
        let mut frame = vec![0; ETHERNET_LEN + 20 + 8];
        frame[ETHERNET_LEN] = 0x45;
        frame[ETHERNET_LEN + 9] = UDP;
        frame[38..40].copy_from_slice(&udp_len.to_be_bytes());
        let sum = checksum::fold(checksum::pseudo_header(0, 0, UDP, udp_len));
        frame[40..42].copy_from_slice(&sum.to_be_bytes());
        frame.extend(payload);
        frame
    }

    const UDP_HEADER: VirtioHeader = VirtioHeader {
        flags: NEEDS_CHECKSUM,
        segmentation: 0,
        segment_size: 0,
        checksum_start: 34,
        checksum_offset: 6,
    };

    fn verifies(frame: &[u8]) -> bool {
        let datagram = &frame[34..];
        let pseudo = checksum::pseudo_header(0, 0, UDP, datagram.len() as u16);
        checksum::fold(checksum::sum(datagram, pseudo)) == 0xffff
    }

    #[test]
    fn a_finished_checksum_verifies_for_even_and_odd_lengths() {
        for payload in [&b"even"[..], b"odd", b""] {
            let mut frame = unfinished(payload);
            assert!(!verifies(&frame));
            assert!(UDP_HEADER.finish_checksum(&mut frame));
            assert!(verifies(&frame));
        }
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_all_ones() {
        let mut frame = unfinished(&[0, 0]);
        assert!(UDP_HEADER.finish_checksum(&mut frame));
        let sum = u16::from_be_bytes([frame[40], frame[41]]);
        let mut frame = unfinished(&sum.to_be_bytes());
        assert!(UDP_HEADER.finish_checksum(&mut frame));
        assert_eq!(frame[40..42], [0xff, 0xff]);
        assert!(verifies(&frame));
    }

    #[test]
    fn a_finished_frame_stays_as_it_is() {
        let mut frame = unfinished(b"x");
        let before = frame.clone();
        assert!(VirtioHeader::default().finish_checksum(&mut frame));
        assert_eq!(frame, before);
    }

    #[test]
    fn what_cannot_be_finished_is_refused() {
        let mut frame = unfinished(b"x");
        frame[ETHERNET_LEN + 9] = SCTP;
        assert!(!UDP_HEADER.finish_checksum(&mut frame));
        assert!(!UDP_HEADER.finish_checksum(&mut frame[..41]));
        let far =
            VirtioHeader { checksum_start: u16::MAX, checksum_offset: u16::MAX, ..UDP_HEADER };
        assert!(!far.finish_checksum(&mut frame));
    }

    #[test]
    fn the_kernels_layout_is_read() {
        let mut bytes = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        bytes[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        let header = VirtioHeader::read(&bytes);
        assert!(header.merged());
        assert_eq!((header.flags, header.checksum_start, header.checksum_offset), (1, 34, 16));
    }

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let mut buffer = *b"....DDDDDDSSSSSS\x08\x00payload";
        insert_vlan_tag(&mut buffer, 0x8100, 0x2005);
        assert_eq!(&buffer, b"DDDDDDSSSSSS\x81\x00\x20\x05\x08\x00payload");
    }
}
