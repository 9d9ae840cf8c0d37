//! Values as byte strings: the bytes of a number, the highest first, as few as possible.

use tonic::Status;

/// The fewest bytes of a number; one byte for zero.
pub(crate) fn bytes(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
    bytes[first..].to_vec()
}

/// Number of a byte string; leading zero bytes are accepted.
pub(crate) fn number(bytes: &[u8], bits: u32) -> Result<u128, Status> {
    if bytes.is_empty() {
        return Err(Status::invalid_argument("a value has no bytes; zero is one byte"));
    }
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let significant = &bytes[first..];
    let value = significant.iter().take(16).fold(0, |all, byte| all << 8 | u128::from(*byte));
    match significant.len() <= 16 && (bits >= 128 || value >> bits == 0) {
        true => Ok(value),
        false => Err(Status::out_of_range(format!("a value does not fit {bits} bits"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn numbers_take_as_few_bytes_as_they_can() {
        for (value, expected) in [
            (0, vec![0]),
            (1, vec![1]),
            (256, vec![1, 0]),
            (0x0a00_0001, vec![10, 0, 0, 1]),
            (u128::MAX, vec![255; 16]),
        ] {
            assert_eq!(bytes(value), expected);
            assert_eq!(number(&expected, 128).expect("it fits"), value);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(number(&[0, 0, 1], 1).expect("zeros in front say nothing"), 1);
        let code = |bytes: &[u8], bits| number(bytes, bits).expect_err("refused").code();
        assert_eq!(code(&[], 8), Code::InvalidArgument);
        assert_eq!(code(&[2], 1), Code::OutOfRange);
        assert_eq!(code(&[1; 17], 128), Code::OutOfRange);
    }
}
