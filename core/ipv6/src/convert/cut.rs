//! Fragments of a packet that is larger than its way allows: IPv6 as RFC 7915 section 4.1 wants it,
//! IPv4 as RFC 791 section 2.3 wants it.
//!
//! [`Cut`] is what a conversion says about such a packet. [`Cut::fragments`] writes the fragments,
//! one after the other, into buffers of the caller. Every fragment but the last has a payload of a
//! multiple of eight bytes, and no fragment is longer than the limit. A packet that is a fragment
//! already is cut further.

use natgate_wire::ipv6::{Fragment, next};
use natgate_wire::{Ipv4, Ipv6, ipv4, ipv6};

/// A converted packet is too large, and this is how to cut it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Longest fragment with all of its headers, bytes.
    pub limit: usize,
    /// Identification of a packet that is no fragment yet. An IPv4 packet has its own.
    pub identification: u32,
}

impl Cut {
    /// The fragments of a packet that a conversion wrote: its headers are those of this crate,
    /// without IPv4 options and without extension headers other than a fragment header.
    ///
    /// # Panics
    /// When the bytes are no such packet, or the limit leaves no room for eight bytes of payload.
    pub fn fragments(self, packet: &[u8]) -> Fragments<'_> {
        let (headers, piece, payload) = match packet.first().map(|first| first >> 4) {
            Some(4) => self.of_ipv4(packet),
            _ => self.of_ipv6(packet),
        };
        let step = (self.limit.saturating_sub(headers.len())) / 8 * 8;
        assert!(step > 0, "a limit of {} bytes leaves no room for payload", self.limit);
        Fragments { headers, piece, payload, step }
    }

    fn of_ipv4(self, packet: &[u8]) -> (Headers<'_>, Fragment, &[u8]) {
        let header = Ipv4::new_checked(packet).expect("a converted packet");
        let piece = Fragment {
            next_header: header.protocol(),
            offset: header.fragment_offset(),
            more: header.more_fragments(),
            identification: header.identification().into(),
        };
        let (fixed, rest) = packet[..usize::from(header.total_len())].split_at(ipv4::HEADER_LEN);
        (Headers::Ipv4(fixed), piece, rest)
    }

    fn of_ipv6(self, packet: &[u8]) -> (Headers<'_>, Fragment, &[u8]) {
        let header = Ipv6::new_checked(packet).expect("a converted packet");
        let (fixed, rest) = packet[..header.total_len()].split_at(ipv6::HEADER_LEN);
        let (piece, rest) = match header.next_header() {
            next::FRAGMENT => {
                let piece = Fragment::read(rest).expect("a converted packet");
                (piece, &rest[ipv6::FRAGMENT_LEN..])
            }
            next_header => {
                let identification = self.identification;
                (Fragment { next_header, offset: 0, more: false, identification }, rest)
            }
        };
        (Headers::Ipv6(fixed), piece, rest)
    }
}

/// The fixed header that every fragment repeats.
#[derive(Clone, Copy, Debug)]
enum Headers<'p> {
    Ipv4(&'p [u8]),
    Ipv6(&'p [u8]),
}

impl Headers<'_> {
    /// Length of the headers of a fragment, bytes.
    fn len(self) -> usize {
        match self {
            Self::Ipv4(fixed) => fixed.len(),
            Self::Ipv6(fixed) => fixed.len() + ipv6::FRAGMENT_LEN,
        }
    }

    /// Writes the headers of a fragment with `payload_len` bytes of payload.
    fn write(self, piece: Fragment, payload_len: usize, buffer: &mut [u8]) {
        match self {
            Self::Ipv4(fixed) => {
                buffer[..fixed.len()].copy_from_slice(fixed);
                let more = u16::from(piece.more) << 13;
                buffer[2..4].copy_from_slice(&((fixed.len() + payload_len) as u16).to_be_bytes());
                let mut header = Ipv4::new_header_checked(&mut *buffer).expect("just written");
                header.set_fragment_field(more | (piece.offset / 8) as u16);
                header.fill_checksum();
            }
            Self::Ipv6(fixed) => {
                buffer[..fixed.len()].copy_from_slice(fixed);
                piece.write(&mut buffer[fixed.len()..]);
                let mut header = Ipv6::new_header_checked(buffer).expect("just written");
                header.set_next_header(next::FRAGMENT);
                header.set_payload_len((ipv6::FRAGMENT_LEN + payload_len) as u16);
            }
        }
    }
}

/// The fragments that are still to be written.
#[derive(Clone, Copy, Debug)]
pub struct Fragments<'p> {
    headers: Headers<'p>,
    /// The fragment header of the rest.
    piece: Fragment,
    payload: &'p [u8],
    /// Payload of a fragment, bytes.
    step: usize,
}

impl Fragments<'_> {
    /// Writes the next fragment to the front of `buffer` and returns its length; `None`: there is
    /// none left.
    ///
    /// # Panics
    /// When `buffer` is shorter than the fragment, which is no longer than the limit.
    pub fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.payload.is_empty() {
            return None;
        }
        let (now, later) = self.payload.split_at(self.step.min(self.payload.len()));
        let more = self.piece.more || !later.is_empty();
        let len = self.headers.len();
        self.headers.write(Fragment { more, ..self.piece }, now.len(), buffer);
        buffer[len..len + now.len()].copy_from_slice(now);
        self.piece.offset += now.len();
        self.payload = later;
        Some(len + now.len())
    }

    /// Number of fragments that are left.
    pub fn len(&self) -> usize {
        self.payload.len().div_ceil(self.step)
    }

    /// True if no fragment is left.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }
}
