//! The packed encoding of ASN.1 (ITU-T X.691, aligned variant), as far as H.323 needs it.
//!
//! A message is walked by a table of types. The walk notes where endpoints are, and what they are
//! for. It makes no copy and changes nothing. An extension that the table does not know is passed
//! over by its length. What the table cannot pass over ends the walk with an error, and so does an
//! encoding whose parts do not fill their whole exactly. Depth and work have limits.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

/// Most types within each other.
const DEEPEST: u8 = 40;

/// Most parts of one message.
const MOST_PARTS: u32 = 8192;

/// Most endpoints of one message.
const MOST_FOUND: usize = 32;

/// The purpose of an endpoint in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Connection of call signalling (H.225.0).
    Signalling,
    /// Connection of H.245.
    Control,
    /// Datagrams of a registration (RAS).
    Ras,
    /// RTP.
    Media,
    /// RTCP.
    MediaControl,
}

/// A number that the reader wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Number of a request of RAS, counted from 0.
    Sequence,
    /// Lifetime of a registration, seconds, counted from 0.
    TimeToLive,
    /// Number of the alternative of the outermost choice.
    Message,
}

/// Number of the kinds of [`Value`].
const VALUES: usize = 3;

/// A type of ASN.1.
#[derive(Debug)]
pub(super) enum Type {
    /// NULL.
    Null,
    /// BOOLEAN.
    Boolean,
    /// INTEGER with so many values, counted from the least one.
    Number(u64),
    /// A string: bits of one character, least and largest number of characters.
    Text(u8, u16, u16),
    /// A string of any number of octets, or an OBJECT IDENTIFIER.
    Octets,
    /// An OBJECT IDENTIFIER whose value begins with these octets and has one more.
    Identifier(&'static [u8]),
    /// SEQUENCE OF, of any length.
    List(&'static Type),
    /// SEQUENCE without an extension marker.
    Closed(&'static [Field]),
    /// SEQUENCE with an extension marker. Of its extensions, those with these numbers are read.
    Open(&'static [Field], &'static [(u8, &'static Type)]),
    /// CHOICE without an extension marker.
    ClosedChoice(&'static [&'static Type]),
    /// CHOICE with an extension marker. Of its extensions, those with these numbers are read.
    Choice(&'static [&'static Type], &'static [(u8, &'static Type)]),
    /// A string of octets that is an encoding of its own.
    Encoded(&'static Type),
    /// Four octets of an address, and two of a port.
    Endpoint,
    /// Endpoints within have this purpose.
    For(Role, &'static Type),
    /// Endpoints within belong together.
    Together(&'static Type),
    /// A number to note.
    Noted(Value, &'static Type),
    /// Bytes up to the end of the innermost encoding, which nobody reads.
    Rest,
    /// What natgate does not read.
    Beyond,
}

/// A field of a SEQUENCE.
#[derive(Debug)]
pub(super) struct Field {
    is_optional: bool,
    of: &'static Type,
}

/// A field that is always there.
pub(super) const fn must(of: &'static Type) -> Field {
    Field { is_optional: false, of }
}

/// A field that may be left out.
pub(super) const fn may(of: &'static Type) -> Field {
    Field { is_optional: true, of }
}

/// Reason why a message is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bytes are no encoding of the type.
    Malformed,
    /// The message has parts that natgate does not read, or too many.
    Beyond,
}

/// An endpoint in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Offset of its six octets.
    pub(super) at: usize,
    /// The purpose.
    pub(super) role: Role,
    /// Endpoints with an equal number belong together.
    pub(super) group: u16,
    /// The endpoint.
    pub(super) endpoint: SocketAddrV4,
}

/// What a walk has noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// Endpoints, in the order of their octets.
    pub(super) found: Vec<Found>,
    values: [Option<u32>; VALUES],
    groups: u16,
}

impl Notes {
    /// A number that was noted.
    pub(super) fn value(&self, of: Value) -> Option<u32> {
        self.values[of as usize]
    }
}

/// Walks an encoding that fills `bytes[start..end]`. Offsets count from the start of `bytes`.
///
/// # Errors
/// The cause, if the encoding is not wholly read.
pub(super) fn walk(
    bytes: &[u8],
    (start, end): (usize, usize),
    of: &'static Type,
) -> Result<Notes, Fault> {
    let mut walk = Walk::new(bytes, (start, end))?;
    walk.whole(end, of, 0)?;
    Ok(walk.notes)
}

/// Walks encodings of a type, one behind the other, that fill `bytes[start..end]`. Only the first
/// one may end with bytes that nobody reads: those are the rest.
///
/// # Errors
/// The cause, if the encodings are not wholly read.
pub(super) fn walk_each(
    bytes: &[u8],
    (start, end): (usize, usize),
    of: &'static Type,
) -> Result<Notes, Fault> {
    let mut walk = Walk::new(bytes, (start, end))?;
    loop {
        let start = walk.at;
        walk.read(of, 0)?;
        walk.at = walk.at.max(start + 1);
        walk.align();
        if walk.at == end * 8 {
            return Ok(walk.notes);
        }
        walk.is_later = true;
    }
}

/// Bits of a number below `count`.
fn width(count: u64) -> u32 {
    u64::BITS - count.saturating_sub(1).leading_zeros()
}

/// A walk: the bytes up to the end of the innermost encoding, and the next bit.
struct Walk<'b> {
    bytes: &'b [u8],
    at: usize,
    parts: u32,
    role: Option<Role>,
    group: u16,
    notes: Notes,
    /// True behind the first encoding.
    is_later: bool,
}

impl<'b> Walk<'b> {
    fn new(bytes: &'b [u8], (start, end): (usize, usize)) -> Result<Self, Fault> {
        let bytes = bytes.get(..end).ok_or(Fault::Malformed)?;
        let (at, notes) = (start * 8, Notes::default());
        Ok(Self { bytes, at, parts: 0, role: None, group: 0, notes, is_later: false })
    }

    /// Reads an encoding that ends before the octet `end`.
    fn whole(&mut self, end: usize, of: &'static Type, depth: u8) -> Result<(), Fault> {
        let outer = self.bytes;
        self.bytes = outer.get(..end).ok_or(Fault::Malformed)?;
        let start = self.at;
        self.read(of, depth)?;
        // An encoding without bits is one octet long.
        let is_empty = self.at == start && end == start / 8 + 1;
        let is_whole = self.at.div_ceil(8) == end || is_empty;
        self.bytes = outer;
        self.at = end * 8;
        if is_whole { Ok(()) } else { Err(Fault::Malformed) }
    }

    fn bits(&mut self, count: u32) -> Result<u64, Fault> {
        let mut value = 0;
        for _ in 0..count {
            let octet = *self.bytes.get(self.at / 8).ok_or(Fault::Malformed)?;
            value = value << 1 | u64::from(octet >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(value)
    }

    fn flag(&mut self) -> Result<bool, Fault> {
        Ok(self.bits(1)? == 1)
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(8);
    }

    /// Passes over bits.
    fn skip(&mut self, bits: usize) -> Result<(), Fault> {
        self.at += bits;
        if self.at <= self.bytes.len() * 8 { Ok(()) } else { Err(Fault::Malformed) }
    }

    /// A whole number below `count` (X.691 clause 10.5).
    fn number(&mut self, count: u64) -> Result<u64, Fault> {
        const OCTET: u64 = 256;
        const TWO_OCTETS: u64 = 65_536;
        if count < OCTET {
            return self.below(count, width(count));
        }
        let octets = if count == OCTET {
            1
        } else if count <= TWO_OCTETS {
            2
        } else {
            let most = u64::from(width(count).div_ceil(8));
            1 + self.below(most, width(most))?
        };
        self.align();
        self.below(count, octets as u32 * 8)
    }

    fn below(&mut self, count: u64, bits: u32) -> Result<u64, Fault> {
        let value = self.bits(bits)?;
        if value < count { Ok(value) } else { Err(Fault::Malformed) }
    }

    /// A length without a bound (X.691 clause 10.9.3.6). Fragments are not read.
    fn length(&mut self) -> Result<usize, Fault> {
        self.align();
        if !self.flag()? {
            return Ok(self.bits(7)? as usize);
        }
        if self.flag()? {
            return Err(Fault::Beyond);
        }
        Ok(self.bits(14)? as usize)
    }

    /// A number that is usually small (X.691 clause 10.6). Larger ones are not read.
    fn small(&mut self) -> Result<u8, Fault> {
        if self.flag()? { Err(Fault::Beyond) } else { Ok(self.bits(6)? as u8) }
    }

    fn read(&mut self, of: &'static Type, depth: u8) -> Result<(), Fault> {
        self.parts += 1;
        if depth > DEEPEST || self.parts > MOST_PARTS {
            return Err(Fault::Beyond);
        }
        let depth = depth + 1;
        match of {
            Type::Null => Ok(()),
            Type::Boolean => self.skip(1),
            Type::Number(count) => self.number(*count).map(|_| ()),
            Type::Text(bits, least, most) => self.text(*bits, *least, *most),
            Type::Octets => {
                let len = self.length()?;
                self.skip(len * 8)
            }
            Type::Identifier(first) => {
                let len = self.length()?;
                let start = self.at / 8;
                let value = self.bytes.get(start..start + len).ok_or(Fault::Malformed)?;
                let is_it = len == first.len() + 1 && value.starts_with(first);
                if is_it { self.skip(len * 8) } else { Err(Fault::Malformed) }
            }
            Type::List(of) => {
                let count = self.length()?;
                (0..count).try_for_each(|_| self.read(of, depth))
            }
            Type::Closed(fields) => self.fields(fields, depth),
            Type::Open(fields, further) => {
                let is_extended = self.flag()?;
                self.fields(fields, depth)?;
                if is_extended { self.extensions(further, depth) } else { Ok(()) }
            }
            Type::ClosedChoice(all) => self.alternative(all, depth),
            Type::Choice(all, further) => {
                if !self.flag()? {
                    return self.alternative(all, depth);
                }
                let number = self.small()?;
                self.note_first(all.len() as u32 + u32::from(number));
                self.extension(number, further, depth)
            }
            Type::Encoded(of) => {
                let len = self.length()?;
                self.whole(self.at / 8 + len, of, depth)
            }
            Type::Endpoint => self.endpoint(),
            Type::For(role, of) => {
                let outer = self.role.replace(*role);
                self.read(of, depth)?;
                self.role = outer;
                Ok(())
            }
            Type::Together(of) => {
                let outer = self.group;
                self.notes.groups += 1;
                self.group = self.notes.groups;
                self.read(of, depth)?;
                self.group = outer;
                Ok(())
            }
            Type::Noted(value, of) => self.note(*value, of, depth),
            Type::Rest if self.is_later => Err(Fault::Beyond),
            Type::Rest => {
                self.at = self.bytes.len() * 8;
                Ok(())
            }
            Type::Beyond => Err(Fault::Beyond),
        }
    }

    fn note(&mut self, value: Value, of: &'static Type, depth: u8) -> Result<(), Fault> {
        match of {
            Type::Number(count) => {
                let number = self.number(*count)?;
                self.notes.values[value as usize] = u32::try_from(number).ok();
                Ok(())
            }
            _ => self.read(of, depth),
        }
    }

    /// Notes the number of the outermost alternative.
    fn note_first(&mut self, number: u32) {
        self.notes.values[Value::Message as usize].get_or_insert(number);
    }

    /// A string (X.691 clauses 16 and 27).
    fn text(&mut self, bits: u8, least: u16, most: u16) -> Result<(), Fault> {
        let range = u64::from(most - least) + 1;
        let count = usize::from(least) + self.number(range)? as usize;
        let bits = usize::from(bits);
        if bits * usize::from(most) > 16 {
            self.align();
        }
        self.skip(count * bits)
    }

    fn fields(&mut self, fields: &'static [Field], depth: u8) -> Result<(), Fault> {
        let optional = fields.iter().filter(|field| field.is_optional).count() as u32;
        let present = self.bits(optional)?;
        let mut left = optional;
        for field in fields {
            let is_present = !field.is_optional || {
                left -= 1;
                present >> left & 1 == 1
            };
            if is_present {
                self.read(field.of, depth)?;
            }
        }
        Ok(())
    }

    fn alternative(&mut self, all: &'static [&'static Type], depth: u8) -> Result<(), Fault> {
        let number = self.number(all.len() as u64)?;
        self.note_first(number as u32);
        self.read(all.get(number as usize).ok_or(Fault::Malformed)?, depth)
    }

    /// Extensions of a SEQUENCE (X.691 clause 18.7).
    fn extensions(
        &mut self,
        further: &'static [(u8, &'static Type)],
        depth: u8,
    ) -> Result<(), Fault> {
        let count = self.small()? + 1;
        let present = self.bits(count.into())?;
        for number in 0..count {
            if present >> (count - 1 - number) & 1 == 1 {
                self.extension(number, further, depth)?;
            }
        }
        Ok(())
    }

    /// One extension, which has a length.
    fn extension(
        &mut self,
        number: u8,
        further: &'static [(u8, &'static Type)],
        depth: u8,
    ) -> Result<(), Fault> {
        let len = self.length()?;
        match further.iter().find(|(of, _)| *of == number) {
            Some((_, of)) => self.whole(self.at / 8 + len, of, depth),
            None => self.skip(len * 8),
        }
    }

    fn endpoint(&mut self) -> Result<(), Fault> {
        self.align();
        let at = self.at / 8;
        let octets = self.bytes.get(at..at + 6).ok_or(Fault::Malformed)?;
        let &[a, b, c, d, high, low] = octets else { return Err(Fault::Malformed) };
        self.at += 48;
        let Some(role) = self.role else { return Ok(()) };
        if self.notes.found.len() == MOST_FOUND {
            return Err(Fault::Beyond);
        }
        let port = u16::from_be_bytes([high, low]);
        let endpoint = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port);
        self.notes.found.push(Found { at, role, group: self.group, endpoint });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], of: &'static Type) -> Result<Notes, Fault> {
        walk(bytes, (0, bytes.len()), of)
    }

    #[test]
    fn numbers_have_the_lengths_of_the_recommendation() {
        const SMALL: Type = Type::Closed(&[must(&Type::Number(5)), must(&Type::Number(17))]);
        assert_eq!(read(&[0b100_10000], &SMALL), Ok(Notes::default()));
        assert_eq!(read(&[0b101_10000], &SMALL), Err(Fault::Malformed));
        assert_eq!(read(&[0b100_10001], &SMALL), Err(Fault::Malformed));
        const OCTET: Type = Type::Closed(&[must(&Type::Boolean), must(&Type::Number(256))]);
        assert_eq!(read(&[0x80, 7], &OCTET), Ok(Notes::default()));
        assert_eq!(read(&[0x80], &OCTET), Err(Fault::Malformed));
        const TTL: Type = Type::Noted(Value::TimeToLive, &Type::Number(u32::MAX as u64));
        for (bytes, wanted) in [
            (&[0x00, 59][..], 59),
            (&[0x40, 0x0e, 0x0f], 3599),
            (&[0x80, 1, 0, 0], 0x1_0000),
            (&[0xc0, 1, 0, 0, 0], 0x100_0000),
        ] {
            assert_eq!(read(bytes, &TTL).unwrap().value(Value::TimeToLive), Some(wanted));
        }
        assert_eq!(read(&[0x40, 0x0e], &TTL), Err(Fault::Malformed));
        assert_eq!(read(&[0xc0, 0xff, 0xff, 0xff, 0xff], &TTL), Err(Fault::Malformed));
    }

    #[test]
    fn unknown_extensions_are_passed_over_and_known_ones_are_read() {
        const OPEN: Type = Type::Open(
            &[must(&Type::Boolean), may(&Type::Boolean)],
            &[(1, &Type::For(Role::Media, &Type::Endpoint))],
        );
        // No extension: the bit of the extensions, that of the field, and the fields.
        assert_eq!(read(&[0b0110_0000], &OPEN), Ok(Notes::default()));
        // Two extensions, which are both there: 2 octets, and an endpoint.
        let bits = [0b1000_0000, 0b0111_0000];
        let with = |lens: &[u8]| [&bits[..], lens].concat();
        let notes = read(&with(&[2, 9, 9, 6, 10, 0, 0, 5, 0x13, 0x88]), &OPEN).unwrap();
        let endpoint = "10.0.0.5:5000".parse().unwrap();
        assert_eq!(notes.found, [Found { at: 6, role: Role::Media, group: 0, endpoint }]);
        // The known one is too long, or too short.
        assert_eq!(read(&with(&[2, 9, 9, 7, 10, 0, 0, 5, 1, 2, 3]), &OPEN), Err(Fault::Malformed));
        assert_eq!(read(&with(&[2, 9, 9, 5, 10, 0, 0, 5, 1]), &OPEN), Err(Fault::Malformed));
        // An octet is left.
        assert_eq!(
            read(&with(&[2, 9, 9, 6, 10, 0, 0, 5, 0x13, 0x88, 0]), &OPEN),
            Err(Fault::Malformed)
        );
    }

    #[test]
    fn depth_and_number_of_parts_have_limits() {
        static NEST: Type = Type::Choice(&[&Type::Null, &NEST], &[]);
        assert_eq!(read(&[0b0101_0101; 20], &NEST), Err(Fault::Beyond));
        const MANY: Type = Type::List(&Type::Null);
        assert_eq!(read(&[0xbf, 0xff], &MANY), Err(Fault::Beyond));
        assert_eq!(read(&[0xc1, 0], &MANY), Err(Fault::Beyond));
        assert_eq!(read(&[0x90, 0], &MANY), Ok(Notes::default()));
    }
}
