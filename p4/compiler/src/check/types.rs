//! Types after names have been looked up, and the slots of their values.

use crate::ir::Ty;
use num_bigint::BigInt;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    Void,
    Scalar(Ty),
    /// `int`: a number with a value known at compile time.
    Integer,
    Text,
    Error,
    MatchKind,
    Enum(Arc<Enum>),
    /// A struct or a header.
    Struct(Arc<Struct>),
    /// A type with a name of its own, and its representation.
    New(Arc<str>, Arc<Type>),
    Tuple(Arc<[Type]>),
    /// An extern, and its type arguments.
    Extern(Arc<str>, Arc<[Type]>),
    /// A type parameter.
    Variable(Arc<str>),
    /// Parsers, controls and packages: name and type arguments.
    Block(Arc<str>, Arc<[Type]>),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) name: Arc<str>,
    /// Representation, if the program gives one.
    pub(crate) representation: Option<Ty>,
    pub(crate) members: Vec<(Arc<str>, u128)>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Struct {
    pub(crate) name: Arc<str>,
    pub(crate) is_header: bool,
    pub(crate) fields: Vec<(Arc<str>, Type)>,
    /// Number of slots of a value.
    pub(crate) size: usize,
}

/// Representation of errors, and of enums without one in the program.
pub(crate) const NUMBERED: Ty = Ty::Bit(32);

impl Type {
    pub(crate) const BOOL: Self = Self::Scalar(Ty::Bool);

    pub(crate) fn bits(width: u32) -> Self {
        Self::Scalar(Ty::Bit(width))
    }

    /// Type of the single slot of a value, if it has one slot.
    pub(crate) fn scalar(&self) -> Option<Ty> {
        match self {
            Self::Scalar(ty) => Some(*ty),
            Self::Error => Some(NUMBERED),
            Self::Enum(one) => Some(one.representation.unwrap_or(NUMBERED)),
            Self::New(_, inner) => inner.scalar(),
            _ => None,
        }
    }

    /// Number of slots of a value; `None` for types without values at run time.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::Struct(one) => Some(one.size),
            Self::Tuple(items) => items.iter().map(Self::size).sum(),
            _ => self.scalar().map(|_| 1),
        }
    }

    /// Slots of a value named `name`, in order.
    pub(crate) fn leaves(&self, name: &str, found: &mut Vec<(String, Ty)>) {
        match self {
            Self::Struct(one) => {
                if one.is_header {
                    found.push((format!("{name}.$valid"), Ty::Bool));
                }
                for (field, ty) in &one.fields {
                    ty.leaves(&format!("{name}.{field}"), found);
                }
            }
            Self::Tuple(items) => {
                for (number, ty) in items.iter().enumerate() {
                    ty.leaves(&format!("{name}.{number}"), found);
                }
            }
            _ => found.extend(self.scalar().map(|ty| (name.to_owned(), ty))),
        }
    }

    /// Parts of a value, by their names within it.
    pub(crate) fn members(&self) -> Vec<(String, Ty)> {
        let mut leaves = Vec::new();
        self.leaves("", &mut leaves);
        let bare = |(name, ty): (String, Ty)| (name.trim_start_matches('.').to_owned(), ty);
        leaves.into_iter().map(bare).collect()
    }

    /// Types of a value's slots.
    pub(crate) fn tys(&self) -> Vec<Ty> {
        let mut leaves = Vec::new();
        self.leaves("", &mut leaves);
        leaves.into_iter().map(|(_, ty)| ty).collect()
    }

    /// Type of a field, and the offset of its first slot in the struct.
    pub(crate) fn field(&self, name: &str) -> Option<(&Type, usize)> {
        let Self::Struct(one) = self else { return None };
        let mut offset = usize::from(one.is_header);
        for (field, ty) in &one.fields {
            if &**field == name {
                return Some((ty, offset));
            }
            offset += ty.size().unwrap_or(0);
        }
        None
    }

    pub(crate) fn is_header(&self) -> bool {
        matches!(self, Self::Struct(one) if one.is_header)
    }

    /// Replaces type parameters.
    pub(crate) fn substitute(&self, bindings: &[(Arc<str>, Type)]) -> Self {
        let all = |types: &[Self]| types.iter().map(|ty| ty.substitute(bindings)).collect();
        match self {
            Self::Variable(name) => {
                let found = bindings.iter().find(|(bound, _)| bound == name);
                found.map_or_else(|| self.clone(), |(_, ty)| ty.clone())
            }
            Self::Tuple(items) => Self::Tuple(all(items)),
            Self::Extern(name, types) => Self::Extern(name.clone(), all(types)),
            Self::Block(name, types) => Self::Block(name.clone(), all(types)),
            _ => self.clone(),
        }
    }

    /// Representation of values; it differs from the type for new types and for enums with a
    /// representation.
    pub(crate) fn representation(&self) -> Self {
        match self {
            Self::New(_, inner) => inner.representation(),
            Self::Enum(one) => one.representation.map_or_else(|| self.clone(), Self::Scalar),
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Bit(width) => write!(f, "bit<{width}>"),
            Self::Int(width) => write!(f, "int<{width}>"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, types: &[Self]| {
            let words: Vec<_> = types.iter().map(Self::to_string).collect();
            match words.is_empty() {
                true => Ok(()),
                false => write!(f, "<{}>", words.join(", ")),
            }
        };
        match self {
            Self::Void => f.write_str("void"),
            Self::Scalar(ty) => ty.fmt(f),
            Self::Integer => f.write_str("int"),
            Self::Text => f.write_str("string"),
            Self::Error => f.write_str("error"),
            Self::MatchKind => f.write_str("match_kind"),
            Self::Enum(one) => f.write_str(&one.name),
            Self::Struct(one) => f.write_str(&one.name),
            Self::New(name, _) | Self::Variable(name) => f.write_str(name),
            Self::Tuple(items) => {
                f.write_str("tuple")?;
                list(f, items)
            }
            Self::Extern(name, types) | Self::Block(name, types) => {
                f.write_str(name)?;
                list(f, types)
            }
        }
    }
}

/// True if a number fits a type.
pub(crate) fn fits(value: &BigInt, ty: Ty) -> bool {
    let one = BigInt::from(1);
    let (least, most) = match ty {
        Ty::Bool => return false,
        Ty::Bit(width) => (BigInt::from(0), (&one << width) - 1),
        Ty::Int(width) => (-(&one << (width - 1)), (&one << (width - 1)) - 1),
    };
    *value >= least && *value <= most
}

/// Lowest bits of a number.
pub(crate) fn cut(value: &BigInt, ty: Ty) -> u128 {
    let modulus = BigInt::from(1) << ty.width();
    let rest = ((value % &modulus) + &modulus) % &modulus;
    u128::try_from(rest).unwrap_or(0)
}
