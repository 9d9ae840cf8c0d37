//! The TCP header (RFC 9293).

use crate::{get_u16, get_u32, put_u16};

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;

/// Offset of the checksum, bytes.
pub const CHECKSUM: usize = 16;

/// Flag bits of the header's fourteenth byte.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field is valid.
    pub const ACK: u8 = 0x10;
}

/// A view of a complete TCP header.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T>(T);

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Wraps bytes. `None`: the header is not complete by its data offset, or the data offset is
    /// too small.
    pub fn new_checked(bytes: T) -> Option<Self> {
        let data = bytes.as_ref();
        if data.len() < HEADER_LEN {
            return None;
        }
        let header_len = usize::from(data[12] >> 4) * 4;
        (HEADER_LEN..=data.len()).contains(&header_len).then_some(Self(bytes))
    }

    /// Wraps bytes whose options may be incomplete, as in a first fragment. `None`: the bytes are
    /// shorter than a header without options.
    pub fn new_prefix_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_LEN).then_some(Self(bytes))
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        get_u16(self.0.as_ref(), 0)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        get_u16(self.0.as_ref(), 2)
    }

    /// Sequence number.
    pub fn sequence(&self) -> u32 {
        get_u32(self.0.as_ref(), 4)
    }

    /// Acknowledgment number.
    pub fn acknowledgment(&self) -> u32 {
        get_u32(self.0.as_ref(), 8)
    }

    /// Header length with options, bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[12] >> 4) * 4
    }

    /// The flag bits (see [`flags`]).
    pub fn flags(&self) -> u8 {
        self.0.as_ref()[13]
    }

    /// The window field, unscaled.
    pub fn window(&self) -> u16 {
        get_u16(self.0.as_ref(), 14)
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        get_u16(self.0.as_ref(), CHECKSUM)
    }

    /// The shift count of the window scale option (RFC 7323), at most 14. `None`: there is no such
    /// option.
    pub fn window_scale(&self) -> Option<u8> {
        const WINDOW_SCALE: u8 = 3;
        let at = self.find_option(WINDOW_SCALE, 3)?;
        Some(self.0.as_ref()[at + 2].min(14))
    }

    /// Offset from the header's start, and value, of the maximum segment size option (RFC 9293
    /// section 3.7.1). `None`: there is no such option.
    pub fn max_segment_size(&self) -> Option<(usize, u16)> {
        const MAX_SEGMENT_SIZE: u8 = 2;
        let at = self.find_option(MAX_SEGMENT_SIZE, 4)? + 2;
        Some((at, get_u16(self.0.as_ref(), at)))
    }

    /// Offset of the first option with a kind and length. A malformed option ends the search.
    fn find_option(&self, kind: u8, len: usize) -> Option<usize> {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        let bytes = self.0.as_ref();
        let end = self.header_len().min(bytes.len());
        let mut at = HEADER_LEN;
        while at < end && bytes[at] != END {
            if bytes[at] == NO_OPERATION {
                at += 1;
                continue;
            }
            let option_len = usize::from(*bytes[..end].get(at + 1)?);
            if option_len < 2 || at + option_len > end {
                return None;
            }
            if bytes[at] == kind && option_len == len {
                return Some(at);
            }
            at += option_len;
        }
        None
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Sets the source port.
    pub fn set_source_port(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 0, value);
    }

    /// Sets the destination port.
    pub fn set_destination_port(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 2, value);
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.0.as_mut(), CHECKSUM, value);
    }
}
