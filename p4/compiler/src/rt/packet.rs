//! Packets on input, and arithmetic that Rust lacks.

use crate::ir::MOST_STEPS;
use crate::machine::bits::Cursor;

/// Reason why a part of a program ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A control exits.
    Exit,
    /// The parser rejects with this error.
    Reject(u32),
    /// The next data is being fetched.
    Ahead {
        /// True if there may be more to fetch behind it.
        more: bool,
    },
}

/// Numbers of the errors that parsers raise by themselves.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// The packet is too short.
    pub too_short: u32,
    /// The parser has too many steps.
    pub timeout: u32,
}

/// Position up to which a packet was read.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadPosition(usize);

/// A packet that is being parsed.
///
/// All its functions are inlined into the program's one function: then neither this value nor its
/// neighbours need memory.
#[derive(Clone, Copy, Debug)]
pub struct Input<'p> {
    packet: &'p [u8],
    /// Number of bits that were read.
    at: usize,
    steps: usize,
    errors: Errors,
}

impl<'p> Input<'p> {
    /// Starts at the beginning of a packet.
    #[inline(always)]
    pub fn new(packet: &'p [u8], errors: Errors) -> Self {
        Self { packet, at: 0, steps: 0, errors }
    }

    /// Length of the packet, bytes.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.packet.len()
    }

    /// Position up to which the packet was read.
    #[inline(always)]
    pub fn so_far(&self) -> ReadPosition {
        ReadPosition(self.at)
    }

    /// Continues at a position.
    #[inline(always)]
    pub fn resume(&mut self, taken: ReadPosition) {
        self.at = taken.0;
    }

    /// Number of bytes that were read, including a partial one.
    #[inline(always)]
    pub fn taken(&self) -> usize {
        self.at.div_ceil(8)
    }

    /// Counts another state of a parser.
    ///
    /// # Errors
    ///
    /// There were too many states.
    #[inline(always)]
    pub fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        match self.steps > MOST_STEPS {
            true => Err(Stop::Reject(self.errors.timeout)),
            false => Ok(()),
        }
    }

    /// Reads the next bytes, and advances.
    ///
    /// # Errors
    ///
    /// The packet is too short.
    #[inline(always)]
    pub fn extract<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.peek(N * 8)?;
        self.at += N * 8;
        Ok(bytes)
    }

    /// Reads the next `bits` bits, at most those of `N` bytes, to the front of the result; the bits
    /// behind them are undefined.
    ///
    /// # Errors
    ///
    /// The packet is too short.
    #[inline(always)]
    pub fn peek<const N: usize>(&self, bits: usize) -> Result<[u8; N], Stop> {
        self.require(bits)?;
        let rest = self.packet.get(self.at / 8..).unwrap_or_default();
        match (self.at % 8, rest.first_chunk()) {
            (0, Some(bytes)) => Ok(*bytes),
            (shift, _) => Ok(shifted(rest, shift)),
        }
    }

    /// Skips `bits` bits.
    ///
    /// # Errors
    ///
    /// The packet is too short.
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

/// Bytes from bit `shift` on; zero beyond the end.
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
    // A hardware address is read as two numbers instead of six.
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

/// Reads `width` bits, at most 128, from bit `at` on.
pub fn bits(bytes: &[u8], at: usize, width: u32) -> u128 {
    Cursor { at }.take(bytes, width)
}

/// Writes `width` bits, at most 128, from bit `at` on, where the bits are zero.
pub fn put_bits(bytes: &mut [u8], at: usize, width: u32, value: u128) {
    for (place, shift) in (at..).zip((0..width).rev()) {
        bytes[place / 8] |= ((value >> shift & 1) as u8) << (7 - place % 8);
    }
}

/// Adds words to a ones' complement sum.
#[inline]
pub fn checksum<const N: usize>(sum: u16, words: [u16; N]) -> u16 {
    let total = words.iter().fold(u64::from(sum), |total, word| total + u64::from(*word));
    // Carries are as random as the words, so the code does not branch on them: folding twice is
    // enough for so few words, and a needless fold changes nothing.
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

/// Extends the sign bit of a value of `width` bits to all higher bits.
#[inline]
pub fn signed(width: u32, value: u128) -> i128 {
    match width {
        0 => 0,
        _ => (value << (128 - width)) as i128 >> (128 - width),
    }
}

/// Shifts to the left; a shift beyond the width gives zero.
#[inline]
pub fn shift_left(value: u128, by: u128) -> u128 {
    u32::try_from(by).ok().and_then(|by| value.checked_shl(by)).unwrap_or(0)
}

/// Shifts to the right; a shift beyond the width gives zero.
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
