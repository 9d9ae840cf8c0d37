//! Types that H.225.0 and H.245 have in common.

use super::per::Type;

pub(super) const OCTET: Type = Type::Number(256);
pub(super) const WORD: Type = Type::Number(65_536);
pub(super) const LONG: Type = Type::Number(1 << 32);
pub(super) const NULL: &Type = &Type::Null;
pub(super) const FLAG: &Type = &Type::Boolean;

/// OCTET STRING of a fixed length.
pub(super) const fn fixed(octets: u16) -> Type {
    Type::Text(8, octets, octets)
}

/// Dialled digits: 13 characters, four bits each.
pub(super) const DIGITS: Type = Type::Text(4, 1, 128);
