//! Values in text form: numbers, addresses, prefixes, masks.

use crate::ir::{MatchKind, Ty};
use crate::machine::Key;
use std::net::{Ipv4Addr, Ipv6Addr};
use toml::de::DeValue;

/// A number of at most `bits` bits: `5`, `true`, `"0x1f"`, and depending on its width `"192.0.2.1"`
/// (32 bits), `"02:00:00:00:00:01"` (48) or `"2001:db8::1"` (128).
pub(super) fn number(value: &DeValue<'_>, bits: u32) -> Result<u128, String> {
    match value {
        DeValue::Boolean(value) if bits == 1 => Ok((*value).into()),
        DeValue::Integer(digits) => {
            fitting(u128::from_str_radix(digits.as_str(), digits.radix()).ok(), bits)
        }
        DeValue::String(text) => parsed(text, bits),
        _ => Err(expected(bits)),
    }
}

/// Match of a key: a value; a prefix `"10.0.0.0/8"`; masked bits `"0x1200 &&& 0xff00"`.
pub(super) fn key(value: &DeValue<'_>, kind: MatchKind, bits: u32) -> Result<Key, String> {
    match value {
        DeValue::String(text) => key_of_text(text, kind, bits),
        _ => number(value, bits).map(Key::Exact),
    }
}

/// Match of a key from the text of a string.
pub(super) fn key_of_text(text: &str, kind: MatchKind, bits: u32) -> Result<Key, String> {
    let all = Ty::Bit(bits).mask();
    match (kind, text.split_once('/'), text.split_once("&&&")) {
        (MatchKind::Lpm, Some((first, length)), _) => {
            let first = parsed(first, bits)?;
            let length = length.trim().parse().ok().filter(|length| *length <= bits);
            let Some(length) = length else {
                return Err(format!("a prefix is from 0 to {bits} bits long: \"VALUE/LENGTH\""));
            };
            let rest = all.checked_shr(length).unwrap_or(0);
            match first & rest {
                0 => Ok(Key::Prefix(first, length)),
                _ => Err("the value has bits behind its prefix; make them zero".to_owned()),
            }
        }
        (MatchKind::Ternary, _, Some((value, mask))) => {
            let (value, mask) = (parsed(value, bits)?, parsed(mask, bits)?);
            match value & !mask {
                0 => Ok(Key::Masked(value, mask)),
                _ => Err("the value has bits where the mask has none; make them zero".to_owned()),
            }
        }
        _ => parsed(text, bits).map(Key::Exact),
    }
}

/// Match of every value, if the kind has one.
pub(super) fn any(kind: MatchKind) -> Option<Key> {
    match kind {
        MatchKind::Exact => None,
        MatchKind::Lpm => Some(Key::Prefix(0, 0)),
        MatchKind::Ternary => Some(Key::Masked(0, 0)),
    }
}

/// A number of at most `bits` bits, from the text of a string.
pub(super) fn parsed(text: &str, bits: u32) -> Result<u128, String> {
    let text = text.trim();
    let address = match bits {
        32 => text.parse::<Ipv4Addr>().ok().map(|address| u128::from(address.to_bits())),
        48 => hardware_address(text),
        128 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
        _ => None,
    };
    let is_number = text.starts_with(|one: char| one.is_ascii_digit());
    let number = || match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16).ok(),
        _ => text.parse().ok().filter(|_| is_number),
    };
    fitting(address.or_else(number), bits)
}

fn hardware_address(text: &str) -> Option<u128> {
    let parts: Option<Vec<u128>> = text
        .split(':')
        .map(|part| {
            let is_byte = part.len() == 2 && part.bytes().all(|one| one.is_ascii_hexdigit());
            u128::from_str_radix(part, 16).ok().filter(|_| is_byte)
        })
        .collect();
    let parts = parts.filter(|parts| parts.len() == 6)?;
    Some(parts.into_iter().fold(0, |all, part| all << 8 | part))
}

fn fitting(value: Option<u128>, bits: u32) -> Result<u128, String> {
    value.filter(|value| *value <= Ty::Bit(bits).mask()).ok_or_else(|| expected(bits))
}

fn expected(bits: u32) -> String {
    let example = match bits {
        1 => "true, or 1",
        32 => "\"192.0.2.1\", or 5",
        48 => "\"02:00:00:00:00:01\", or 5",
        128 => "\"2001:db8::1\", or 5",
        _ => "5, or \"0x5\"",
    };
    format!("a value of {bits} bits is expected here, such as {example}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, kind: MatchKind, bits: u32) -> Result<Key, String> {
        key(&DeValue::String(text.into()), kind, bits)
    }

    #[test]
    fn values_are_read_as_people_write_them() {
        let exact = |one, bits| text(one, MatchKind::Exact, bits);
        assert_eq!(exact("192.0.2.1", 32), Ok(Key::Exact(0xc000_0201)));
        assert_eq!(exact("02:00:00:00:00:0a", 48), Ok(Key::Exact(0x0200_0000_000a)));
        assert_eq!(exact("::1", 128), Ok(Key::Exact(1)));
        assert_eq!(exact("0xff", 8), Ok(Key::Exact(255)));
        assert_eq!(exact("255", 8), Ok(Key::Exact(255)));
        let wrong = Err("a value of 8 bits is expected here, such as 5, or \"0x5\"".to_owned());
        for one in ["256", "0x100", "", "0x", "0x+1", "+1", "-1", "192.0.2.1", "1/8", "1 &&& 1"] {
            assert_eq!(exact(one, 8), wrong, "{one}");
        }
        for one in ["2:0:0:0:0:a", "02:00:00:00:00", "02:00:00:00:00:0g", "02:00:00:00:00:00:00"] {
            assert!(exact(one, 48).is_err(), "{one}");
        }
    }

    #[test]
    fn prefixes_and_masks_have_nothing_behind_them() {
        let lpm = |one| text(one, MatchKind::Lpm, 32);
        assert_eq!(lpm("10.0.0.0/8"), Ok(Key::Prefix(0x0a00_0000, 8)));
        assert_eq!(lpm("0.0.0.0/0"), Ok(Key::Prefix(0, 0)));
        assert_eq!(lpm("10.0.0.1/32"), Ok(Key::Prefix(0x0a00_0001, 32)));
        assert_eq!(lpm("10.0.0.1"), Ok(Key::Exact(0x0a00_0001)));
        assert!(lpm("10.0.0.1/8").is_err() && lpm("10.0.0.0/33").is_err());
        assert_eq!(text("::/0", MatchKind::Lpm, 128), Ok(Key::Prefix(0, 0)));
        let ternary = |one| text(one, MatchKind::Ternary, 16);
        assert_eq!(ternary("0x1200 &&& 0xff00"), Ok(Key::Masked(0x1200, 0xff00)));
        assert!(ternary("0x1201 &&& 0xff00").is_err());
    }
}
