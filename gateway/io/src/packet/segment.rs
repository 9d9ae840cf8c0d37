//! Cutting of merged frames: receive offload has merged segments, or their sender has left the
//! cutting to hardware that does not exist.
//!
//! TCP and UDP over IPv4 are supported; every other merged frame is refused. Each segment is a
//! whole frame with finished checksums, as if the sender had made it.

use super::finish::VirtioHeader;
use natgate_wire::arp;
use natgate_wire::checksum;
use natgate_wire::ipv4::Ipv4;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol::{TCP, UDP};

/// Longest merged frame, bytes.
pub(super) const LONGEST: usize = ETHERNET_LEN + 65_535;

const UDP_LEN: usize = 8;

/// A merged frame, and the progress of cutting it.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// The frame; the caller fills it.
    pub(super) frame: Vec<u8>,
    /// `None` if there is no frame to cut.
    layout: Option<Layout>,
    /// Segments written so far.
    written: usize,
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    protocol: u8,
    /// Offsets of the TCP or UDP header, and of the payload.
    transport: usize,
    payload: usize,
    /// Bytes of payload in every segment but the last.
    size: usize,
}

impl Merged {
    /// Begins with the frame that has been filled in. Its segments may have `longest` bytes.
    /// Returns true if its kind is supported.
    pub(super) fn begin(&mut self, header: VirtioHeader, longest: usize) -> bool {
        self.layout = Layout::of(header, &self.frame, longest);
        self.written = 0;
        self.layout.is_some()
    }

    /// True if there are segments to write.
    pub(super) fn is_busy(&self) -> bool {
        self.layout.is_some()
    }

    /// Writes the next segment to the front of `out`, which must hold the longest. Returns its
    /// length, or `None` if there are no more.
    pub(super) fn write_next(&mut self, out: &mut [u8]) -> Option<usize> {
        let layout = self.layout?;
        let (headers, payload) = self.frame.split_at(layout.payload);
        let offset = self.written * layout.size;
        let rest = &payload[offset..];
        let chunk = &rest[..rest.len().min(layout.size)];
        let last = chunk.len() == rest.len();
        let out = &mut out[..headers.len() + chunk.len()];
        out[..headers.len()].copy_from_slice(headers);
        out[headers.len()..].copy_from_slice(chunk);
        self.write_ip(&mut out[ETHERNET_LEN..]);
        self.write_transport(layout, out, offset, last);
        self.written += 1;
        if last {
            self.layout = None;
        }
        Some(out.len())
    }

    /// Writes the IP header of the next segment.
    fn write_ip(&self, packet: &mut [u8]) {
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        if let Ok(mut packet) = Ipv4::new_checked(packet) {
            packet.set_identification(packet.identification().wrapping_add(self.written as u16));
            packet.fill_checksum();
        }
    }

    /// Writes the TCP or UDP header of the segment with the payload from `offset`.
    fn write_transport(&self, layout: Layout, frame: &mut [u8], offset: usize, last: bool) {
        const FIN_AND_PSH: u8 = 0x09;
        const CWR: u8 = 0x80;
        let address = |at| {
            let at: usize = ETHERNET_LEN + at;
            u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
        };
        let (source, destination) = (address(12), address(16));
        let segment = &mut frame[layout.transport..];
        let len = segment.len() as u16;
        let field = if layout.protocol == TCP { 16 } else { 6 };
        if layout.protocol == TCP {
            let first = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
            let sequence = first.wrapping_add(offset as u32);
            segment[4..8].copy_from_slice(&sequence.to_be_bytes());
            // FIN and PSH are set in the last segment only; CWR is set in the first only (RFC
            // 3168).
            segment[13] &= if last { 0xff } else { !FIN_AND_PSH };
            segment[13] &= if self.written == 0 { 0xff } else { !CWR };
        } else {
            segment[4..6].copy_from_slice(&len.to_be_bytes());
        }
        segment[field..field + 2].fill(0);
        let pseudo = checksum::pseudo_header(source, destination, layout.protocol, len);
        let sum = match !checksum::fold(checksum::sum(segment, pseudo)) {
            0 => 0xffff,
            sum => sum,
        };
        segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Layout {
    /// Layout of a merged frame; `None` if its kind is not supported, or it is malformed.
    fn of(header: VirtioHeader, frame: &[u8], longest: usize) -> Option<Self> {
        let (_, _, kind) = arp::read_ethernet(frame)?;
        let packet = Ipv4::new_checked(frame.get(ETHERNET_LEN..)?).ok()?;
        let whole = kind == ethertype::IPV4
            && frame.len() == ETHERNET_LEN + usize::from(packet.total_len())
            && !packet.more_fragments()
            && packet.fragment_offset() == 0;
        let protocol = packet.protocol();
        let transport = ETHERNET_LEN + packet.header_len();
        let (header_len, minimum) = match header.segmented_protocol()? {
            TCP if protocol == TCP => (usize::from(frame.get(transport + 12)? >> 4) * 4, 20),
            UDP if protocol == UDP => (UDP_LEN, UDP_LEN),
            _ => return None,
        };
        let (payload, size) = (transport + header_len, header.segment_size());
        let fits = header_len >= minimum
            && payload <= frame.len()
            && size > 0
            && payload + size <= longest;
        (whole && fits).then_some(Self { protocol, transport, payload, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: usize = ETHERNET_LEN + 20;

    /// A frame with this transport header and `payload` bytes of payload.
    fn frame(protocol: u8, transport: &[u8], payload: usize) -> Vec<u8> {
        let mut frame = vec![0; HEADERS];
        frame[12] = 0x08;
        frame.extend(transport);
        frame.extend((0..payload).map(|n| (n % 251) as u8));
        let len = (frame.len() - ETHERNET_LEN) as u16;
        let mut packet = Ipv4::init(&mut frame[ETHERNET_LEN..], 20);
        packet.set_total_len(len);
        packet.set_identification(0xffff);
        packet.set_ttl(64);
        packet.set_protocol(protocol);
        packet.set_source(0x0a00_0005);
        packet.set_destination(0xc000_0201);
        frame
    }

    /// A TCP header with four bytes of options, sequence number 2^32 - 1000 and every flag.
    fn tcp() -> [u8; 24] {
        let mut header = [0; 24];
        header[4..8].copy_from_slice(&(u32::MAX - 999).to_be_bytes());
        (header[12], header[13]) = (0x60, 0xff);
        header
    }

    fn virtio(kind: u8, size: u16) -> VirtioHeader {
        let mut bytes = [1, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        VirtioHeader::read(&bytes)
    }

    const KIND_TCP: u8 = 1;
    const KIND_UDP: u8 = 5;

    /// Segments of a frame; `None` if the frame is refused.
    fn segments(header: VirtioHeader, frame: Vec<u8>) -> Option<Vec<Vec<u8>>> {
        let mut merged = Merged { frame, ..Merged::default() };
        let mut out = vec![0xee; 1514];
        if !merged.begin(header, 1514) {
            return None;
        }
        let next = || merged.write_next(&mut out).map(|len| out[..len].to_vec());
        Some(std::iter::from_fn(next).collect())
    }

    /// Checks lengths and checksums.
    fn assert_whole(segment: &[u8], protocol: u8) {
        let packet = Ipv4::new_checked(&segment[ETHERNET_LEN..]).expect("a packet");
        assert!(packet.checksum_valid());
        assert_eq!(usize::from(packet.total_len()) + ETHERNET_LEN, segment.len());
        let (source, destination) = (packet.source(), packet.destination());
        let payload = packet.payload();
        let pseudo = checksum::pseudo_header(source, destination, protocol, payload.len() as u16);
        assert_eq!(checksum::fold(checksum::sum(payload, pseudo)), 0xffff);
    }

    #[test]
    fn tcp_is_cut_with_sequence_numbers_and_flags_as_the_sender_would() {
        let whole = frame(TCP, &tcp(), 3500);
        let segments = segments(virtio(KIND_TCP, 1400), whole.clone()).expect("known");
        assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [1458, 1458, 758]);
        let mut payload: Vec<u8> = Vec::new();
        for (number, segment) in segments.iter().enumerate() {
            assert_whole(segment, TCP);
            let id = u16::from_be_bytes([segment[18], segment[19]]);
            assert_eq!(id, 0xffff_u16.wrapping_add(number as u16));
            let sequence = u32::from_be_bytes(segment[38..42].try_into().expect("four bytes"));
            assert_eq!(sequence, (u32::MAX - 999).wrapping_add(payload.len() as u32));
            payload.extend(&segment[HEADERS + 24..]);
        }
        assert_eq!(payload, whole[HEADERS + 24..]);
        // CWR is in the first segment only, FIN and PSH are in the last only.
        assert_eq!(segments.iter().map(|s| s[47]).collect::<Vec<_>>(), [0xf6, 0x76, 0x7f]);
    }

    #[test]
    fn udp_is_cut_into_datagrams() {
        let whole = frame(UDP, &[0x0f, 0xa0, 0, 53, 0, 0, 0, 0], 2000);
        let segments = segments(virtio(KIND_UDP, 1000), whole.clone()).expect("known");
        assert_eq!(segments.len(), 2);
        for segment in &segments {
            assert_whole(segment, UDP);
            assert_eq!(segment[38..40], 1008_u16.to_be_bytes());
        }
        assert_eq!(segments[1][42..], whole[1042..]);
    }

    #[test]
    fn a_frame_without_payload_is_one_segment() {
        let segments = segments(virtio(KIND_TCP, 1400), frame(TCP, &tcp(), 0)).expect("known");
        assert_eq!(segments.len(), 1);
    }

    #[test]
    fn what_is_unknown_or_malformed_is_refused() {
        let good = || frame(TCP, &tcp(), 3000);
        let refused = |header, frame| segments(header, frame).is_none();
        assert!(!refused(virtio(KIND_TCP, 1400), good()));
        // The mark of ECN beside the kind changes nothing.
        assert!(!refused(virtio(KIND_TCP | 0x80, 1400), good()));
        for (kind, size) in [(KIND_UDP, 1400), (4, 1400), (3, 1400), (KIND_TCP, 0)] {
            assert!(refused(virtio(kind, size), good()), "{kind} {size}");
        }
        assert!(refused(virtio(KIND_TCP, 1457), good()), "segments longer than the link takes");
        for len in 0..HEADERS + 24 {
            assert!(refused(virtio(KIND_TCP, 1400), good()[..len].to_vec()), "{len} bytes");
        }
        let changed = |at: usize, value| {
            let mut frame = good();
            frame[at] = value;
            frame
        };
        for (at, value) in [(12, 0x86), (14, 0x65), (16, 0), (20, 0x20), (46, 0x40), (46, 0xff)] {
            let refused = refused(virtio(KIND_TCP, 1400), changed(at, value));
            // A header of 60 bytes is legal: some of the payload is taken for options.
            assert_eq!(refused, (at, value) != (46, 0xff), "byte {at}");
        }
    }
}
