//! Sequence numbers: 32 bits that wrap around (RFC 9293 section 3.4).
//!
//! Two numbers are compared by their distance, which is right while they are less than 2^31 apart.

/// The distance from `b` to `a`; negative if `a` is before `b`.
pub(crate) fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// True if `a` is before `b`.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    distance(a, b) < 0
}

/// The later of two numbers.
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if is_before(a, b) { b } else { a }
}

/// The earlier of two numbers.
pub(crate) fn earlier(a: u32, b: u32) -> u32 {
    if is_before(a, b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_around() {
        assert!(is_before(u32::MAX, 0) && !is_before(0, u32::MAX) && !is_before(7, 7));
        assert_eq!(later(u32::MAX - 1, 3), 3);
        assert_eq!(earlier(u32::MAX - 1, 3), u32::MAX - 1);
        assert_eq!(distance(2, u32::MAX), 3);
    }
}
