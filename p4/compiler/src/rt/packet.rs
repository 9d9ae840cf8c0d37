//! Packets on their way in, and arithmetic that Rust does not have.

use crate::ir::MOST_STEPS;
use crate::machine::bits::Cursor;

/// Why a part of a program ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A control has had enough.
    Exit,
    /// The parser has failed, with this error.
    Reject(u32),
    /// What is read next is being fetched; whether there may be more to fetch behind it.
    Ahead {
        /// Whether there may be.
        more: bool,
    },
}

/// The numbers of the errors that parsers end with by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// There is less of the packet than is asked for.
    pub too_short: u32,
    /// It goes on for too long.
    pub timeout: u32,
}

/// How far a packet was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadPosition(usize);

/// A packet that is read.
///
/// All that is done with it becomes part of the program's one function: then neither it nor what is
/// beside it needs memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'p> {
    packet: &'p [u8],
    /// Bits that were read.
    at: usize,
    steps: usize,
    errors: Errors,
}

impl<'p> Input<'p> {
    /// A packet from its beginning.
    #[inline(always)]
    pub fn new(packet: &'p [u8], errors: Errors) -> Self {
        Self { packet, at: 0, steps: 0, errors }
    }

    /// The packet's length, bytes.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.packet.len()
    }

    /// How far it was read.
    #[inline(always)]
    pub fn so_far(&self) -> ReadPosition {
        ReadPosition(self.at)
    }

    /// Goes on from there.
    #[inline(always)]
    pub fn resume(&mut self, taken: ReadPosition) {
        self.at = taken.0;
    }

    /// Bytes that were read, or begun.
    #[inline(always)]
    pub fn taken(&self) -> usize {
        self.at.div_ceil(8)
    }

    /// Another state of a parser.
    ///
    /// # Errors
    ///
    /// There were too many.
    #[inline(always)]
    pub fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        match self.steps > MOST_STEPS {
            true => Err(Stop::Reject(self.errors.timeout)),
            false => Ok(()),
        }
    }

    /// The next bytes, and moves on.
    ///
    /// # Errors
    ///
    /// The packet has less.
    #[inline(always)]
    pub fn extract<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.peek(N * 8)?;
        self.at += N * 8;
        Ok(bytes)
    }

    /// The next so many bits, at most those of `N` bytes, in front; those after them may be
    /// anything.
    ///
    /// # Errors
    ///
    /// The packet has less.
    #[inline(always)]
    pub fn peek<const N: usize>(&self, bits: usize) -> Result<[u8; N], Stop> {
        self.require(bits)?;
        let rest = self.packet.get(self.at / 8..).unwrap_or_default();
        match (self.at % 8, rest.first_chunk()) {
            (0, Some(bytes)) => Ok(*bytes),
            (shift, _) => Ok(shifted(rest, shift)),
        }
    }

    /// Skips so many bits.
    ///
    /// # Errors
    ///
    /// The packet has less.
    #[inline(always)]
    pub fn advance(&mut self, bits: u128) -> Result<(), Stop> {
        self.require(bits as usize)?;
        self.at += bits as usize;
        Ok(())
    }

    #[inline(always)]
    fn require(&self, bits: usize) -> Result<(), Stop> {
        match self.at.checked_add(bits).is_some_and(|end| end <= self.packet.len() * 8) {
            true => Ok(()),
            false => Err(Stop::Reject(self.errors.too_short)),
        }
    }
}

/// Bytes from so many bits on; zero where there are none.
#[cold]
fn shifted<const N: usize>(bytes: &[u8], shift: usize) -> [u8; N] {
    let byte = |place: usize| u16::from(bytes.get(place).copied().unwrap_or(0));
    let mut result = [0; N];
    for (place, target) in result.iter_mut().enumerate() {
        *target = ((byte(place) << 8 | byte(place + 1)) << shift >> 8) as u8;
    }
    result
}

/// At most eight bytes as a number, the first the highest.
#[inline(always)]
pub fn be64(bytes: &[u8]) -> u64 {
    // A hardware address is two numbers, not six.
    if let &[a, b, c, d, e, f] = bytes {
        let (high, low) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        return u64::from(high) << 16 | u64::from(low);
    }
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// At most sixteen bytes as a number, the first the highest.
#[inline(always)]
pub fn be128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// So many bits, 128 at most, from a place on, in bits.
pub fn bits(bytes: &[u8], at: usize, width: u32) -> u128 {
    Cursor { at }.take(bytes, width)
}

/// Puts so many bits, 128 at most, to a place, in bits, where there are zeros.
pub fn put_bits(bytes: &mut [u8], at: usize, width: u32, value: u128) {
    for (place, shift) in (at..).zip((0..width).rev()) {
        bytes[place / 8] |= ((value >> shift & 1) as u8) << (7 - place % 8);
    }
}

/// Adds words to a sum in ones' complement.
#[inline]
pub fn checksum<const N: usize>(sum: u16, words: [u16; N]) -> u16 {
    let total = words.iter().fold(u64::from(sum), |total, word| total + u64::from(*word));
    // How often the carry comes round is as random as the words, so nothing is branched on: twice
    // is enough for so few words, and once more changes nothing.
    let mut total = carried(carried(total));
    while N >= 0x8000 && total > 0xffff {
        total = carried(total);
    }
    total as u16
}

#[inline]
fn carried(total: u64) -> u64 {
    (total & 0xffff) + (total >> 16)
}

/// A value's sign bit, of so many bits, carried to all above.
#[inline]
pub fn signed(width: u32, value: u128) -> i128 {
    match width {
        0 => 0,
        _ => (value << (128 - width)) as i128 >> (128 - width),
    }
}

/// A shift to the left; by more than there is, nothing is left.
#[inline]
pub fn shift_left(value: u128, by: u128) -> u128 {
    u32::try_from(by).ok().and_then(|by| value.checked_shl(by)).unwrap_or(0)
}

/// A shift to the right; by more than there is, nothing is left.
#[inline]
pub fn shift_right(value: u128, by: u128) -> u128 {
    u32::try_from(by).ok().and_then(|by| value.checked_shr(by)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRORS: Errors = Errors { too_short: 1, timeout: 2 };

    #[test]
    fn bytes_are_read_from_any_bit() {
        let mut input = Input::new(&[0x12, 0x34, 0x56], ERRORS);
        assert_eq!(input.peek::<2>(12), Ok([0x12, 0x34]));
        assert_eq!(input.advance(4), Ok(()));
        assert_eq!(input.extract::<1>(), Ok([0x23]));
        assert_eq!((input.peek::<2>(12), input.taken()), (Ok([0x45, 0x60]), 2));
        assert_eq!(input.extract::<2>(), Err(Stop::Reject(1)));
        assert_eq!(input.advance(u128::from(u64::MAX)), Err(Stop::Reject(1)));
    }

    #[test]
    fn sums_have_a_carry_that_comes_round() {
        assert_eq!(checksum(0, []), 0);
        assert_eq!(checksum(0xffff, [0xffff, 0]), 0xffff);
        assert_eq!(checksum(1, [0xffff, 0xffff, 0xffff]), 1);
        assert_eq!(checksum(0xffff, [0xffff; 0x7fff]), 0xffff);
        assert_eq!(checksum(1, [0xffff; 0x7fff]), 1);
        assert_eq!(checksum(0x8000, [0xfffe; 0x10000]), 0x7fff);
    }
}
