//! AgentX's messages (RFC 2741 sections 5 and 6), as far as a subagent needs them: bytes in, bytes
//! out.
//!
//! Received messages are in the byte order that their header names; sent messages are in network
//! byte order. A message that cannot be read is [`Malformed`] and ends the session.

use super::tables::{Oid, Value};

/// Length of a header, bytes.
pub(super) const HEADER: usize = 20;

/// Longest payload that is accepted, bytes.
pub(super) const MOST_PAYLOAD: usize = 1 << 16;

const VERSION: u8 = 1;
const CONTEXT: u8 = 1 << 3;
const NETWORK_ORDER: u8 = 1 << 4;

/// The meaning of a prefix of one octet: `1.3.6.1` and that octet.
const INTERNET: [u32; 4] = [1, 3, 6, 1];

/// Kinds of messages.
pub(super) mod kind {
    pub(crate) const OPEN: u8 = 1;
    pub(crate) const CLOSE: u8 = 2;
    pub(crate) const REGISTER: u8 = 3;
    pub(crate) const GET: u8 = 5;
    pub(crate) const GET_NEXT: u8 = 6;
    pub(crate) const GET_BULK: u8 = 7;
    pub(crate) const TEST_SET: u8 = 8;
    pub(crate) const COMMIT_SET: u8 = 9;
    pub(crate) const UNDO_SET: u8 = 10;
    pub(crate) const CLEANUP_SET: u8 = 11;
    pub(crate) const NOTIFY: u8 = 12;
    pub(crate) const RESPONSE: u8 = 18;
}

/// Errors of responses.
pub(super) mod error {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const GENERAL: u16 = 5;
    pub(crate) const NOT_WRITABLE: u16 = 17;
    pub(crate) const REQUEST_DENIED: u16 = 267;
}

/// A message that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    flags: u8,
    pub(super) session: u32,
    pub(super) transaction: u32,
    pub(super) packet: u32,
    /// Bytes after the header.
    pub(super) payload: usize,
}

impl Header {
    /// The header of a message of this kind.
    pub(super) fn new(kind: u8, session: u32, transaction: u32, packet: u32) -> Self {
        Self { kind, flags: NETWORK_ORDER, session, transaction, packet, payload: 0 }
    }

    pub(super) fn read(bytes: &[u8; HEADER]) -> Result<Self, Malformed> {
        let [version, kind, flags, _, ..] = *bytes;
        let mut reader = Reader { bytes: &bytes[4..], big: flags & NETWORK_ORDER != 0 };
        let (session, transaction, packet) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let payload = reader.u32()? as usize;
        if version != VERSION || payload > MOST_PAYLOAD || !payload.is_multiple_of(4) {
            return Err(Malformed);
        }
        Ok(Self { kind, flags, session, transaction, packet, payload })
    }

    /// The message with this payload.
    pub(super) fn message(self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.kind, self.flags, 0];
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        for number in [self.session, self.transaction, self.packet, length] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(payload);
        bytes
    }
}

/// A range of names: from `start`, itself included or not, to before `end` unless that is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: Oid,
    pub(super) included: bool,
    pub(super) end: Oid,
}

/// A request for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Get(Vec<Range>),
    GetNext(Vec<Range>),
    GetBulk { once: u16, most: u16, ranges: Vec<Range> },
}

impl Request {
    /// The request of a payload; `None`: the message is no request for values.
    pub(super) fn read(header: &Header, payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader { bytes: payload, big: header.flags & NETWORK_ORDER != 0 };
        if header.flags & CONTEXT != 0 {
            reader.octets()?;
        }
        Ok(Some(match header.kind {
            kind::GET => Self::Get(reader.ranges()?),
            kind::GET_NEXT => Self::GetNext(reader.ranges()?),
            kind::GET_BULK => {
                let (once, most) = (reader.u16()?, reader.u16()?);
                Self::GetBulk { once, most, ranges: reader.ranges()? }
            }
            _ => return Ok(None),
        }))
    }
}

/// The beginning of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The master's uptime, hundredths of a second.
    pub(super) uptime: u32,
    pub(super) error: u16,
}

impl Outcome {
    pub(super) fn read(header: &Header, payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader { bytes: payload, big: header.flags & NETWORK_ORDER != 0 };
        Ok(Self { uptime: reader.u32()?, error: reader.u16()? })
    }
}

/// A reader of a payload.
struct Reader<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?.try_into().map_err(|_| Malformed)?;
        Ok(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn octets(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let padded = length.checked_next_multiple_of(4).ok_or(Malformed)?;
        Ok(&self.take(padded)?[..length])
    }

    /// An object identifier, and whether it is itself meant.
    fn oid(&mut self) -> Result<(Oid, bool), Malformed> {
        let head = self.take(4)?;
        let (count, prefix, included) = (head[0], head[1], head[2] != 0);
        let mut oid = Oid::new();
        if prefix != 0 {
            oid.extend(INTERNET);
            oid.push(prefix.into());
        }
        for _ in 0..count {
            oid.push(self.u32()?);
        }
        Ok((oid, included))
    }

    fn ranges(&mut self) -> Result<Vec<Range>, Malformed> {
        let mut ranges = Vec::new();
        while !self.bytes.is_empty() {
            let ((start, included), (end, _)) = (self.oid()?, self.oid()?);
            ranges.push(Range { start, included, end });
        }
        Ok(ranges)
    }
}

/// Puts a payload together.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8s(mut self, bytes: [u8; 4]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(super) fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn octets(mut self, octets: &[u8]) -> Self {
        self = self.u32(u32::try_from(octets.len()).unwrap_or(u32::MAX));
        self.0.extend(octets);
        let padded = self.0.len().next_multiple_of(4);
        self.0.resize(padded, 0);
        self
    }

    pub(super) fn oid(mut self, oid: &[u32]) -> Self {
        // None that we have is longer than an octet can say.
        let count = u8::try_from(oid.len()).unwrap_or(u8::MAX);
        self = self.u8s([count, 0, 0, 0]);
        for part in &oid[..count.into()] {
            self = self.u32(*part);
        }
        self
    }

    /// A name and its value.
    pub(super) fn binding(self, name: &[u32], value: &Value) -> Self {
        let tag = |tag: u16| self.u16(tag).u16(0).oid(name);
        match value {
            Value::Integer(number) => tag(2).u32(number.cast_unsigned()),
            Value::Octets(octets) => tag(4).octets(octets),
            Value::Oid(oid) => tag(6).oid(oid),
            Value::Unsigned(number) => tag(66).u32(*number),
            Value::Ticks(number) => tag(67).u32(*number),
            Value::Counter(number) => {
                let mut writer = tag(70);
                writer.0.extend(number.to_be_bytes());
                writer
            }
            Value::NoSuchObject => tag(128),
            Value::NoSuchInstance => tag(129),
            Value::EndOfView => tag(130),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_ranges_are_read_in_either_byte_order() {
        let payload = |number: fn(u32) -> [u8; 4]| {
            let mut bytes = vec![2, 2, 1, 0];
            bytes.extend(number(1));
            bytes.extend(number(234));
            bytes.extend([0; 4]);
            bytes
        };
        for (flags, number) in
            [(NETWORK_ORDER, u32::to_be_bytes as fn(u32) -> [u8; 4]), (0, u32::to_le_bytes)]
        {
            let mut bytes = vec![1, kind::GET_NEXT, flags, 0];
            for part in [7, 8, 9, 16] {
                bytes.extend(number(part));
            }
            let header = Header::read(&bytes.try_into().expect("20 bytes")).expect("a header");
            assert_eq!((header.session, header.transaction, header.packet), (7, 8, 9));
            assert_eq!(header.payload, 16);
            let asked = Request::read(&header, &payload(number)).expect("it is read");
            let range =
                Range { start: vec![1, 3, 6, 1, 2, 1, 234], included: true, end: Oid::new() };
            assert_eq!(asked, Some(Request::GetNext(vec![range])));
        }
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_malformed() {
        let header = Header::new(kind::GET, 1, 1, 1);
        let payload = Writer::default().oid(&[1, 3, 6, 1]).oid(&[]).0;
        for end in 1..payload.len() {
            assert_eq!(Request::read(&header, &payload[..end]), Err(Malformed), "{end}");
        }
        let mut bytes: [u8; HEADER] =
            header.message(&[]).try_into().expect("a header and nothing else");
        bytes[16] = 0xff;
        assert_eq!(Header::read(&bytes), Err(Malformed));
        bytes[16] = 0;
        bytes[0] = 2;
        assert_eq!(Header::read(&bytes), Err(Malformed));
    }

    #[test]
    fn octets_are_padded_and_not_taken_for_text() {
        let bytes = Writer::default().binding(&[1], &Value::Octets(vec![203, 0, 113, 1, 255])).0;
        let expected = [
            [0, 4, 0, 0],
            [1, 0, 0, 0],
            [0, 0, 0, 1],
            [0, 0, 0, 5],
            [203, 0, 113, 1],
            [255, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }
}
