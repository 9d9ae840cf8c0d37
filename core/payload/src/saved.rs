//! Flows as bytes, for another process that goes on with them.
//!
//! The format belongs to one version of the framework: numbers in little-endian order, the fields
//! of each part in order. The reader believes nothing: bytes that mean nothing give no flow.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Parts of a flow that are saved.
pub(crate) trait Saved: Sized {
    /// Appends the bytes of the part.
    fn save(&self, to: &mut Vec<u8>);
    /// Reads the part from the front of the bytes. `None`: they mean nothing.
    fn restore(from: &mut &[u8]) -> Option<Self>;
}

/// Implements [`Saved`] for a struct by its fields, and for an enum without values by its variants.
macro_rules! saved {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::saved::Saved for $type {
            fn save(&self, to: &mut alloc::vec::Vec<u8>) {
                $($crate::saved::Saved::save(&self.$field, to);)*
            }

            fn restore(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::saved::Saved::restore(from)?),* })
            }
        }
    };
    ($type:ident [ $($variant:ident),* $(,)? ]) => {
        impl $crate::saved::Saved for $type {
            fn save(&self, to: &mut alloc::vec::Vec<u8>) {
                to.push(*self as u8);
            }

            fn restore(from: &mut &[u8]) -> Option<Self> {
                let number = <u8 as $crate::saved::Saved>::restore(from)?;
                [$(Self::$variant),*].into_iter().find(|one| *one as u8 == number)
            }
        }
    };
}
pub(crate) use saved;

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Saved for $number {
            fn save(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn restore(from: &mut &[u8]) -> Option<Self> {
                let (taken, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*taken))
            }
        })*
    };
}

numbers!(u8, u16, u32, u128);

impl Saved for bool {
    fn save(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        u8::restore(from).filter(|flag| *flag < 2).map(|flag| flag == 1)
    }
}

impl Saved for Ipv4Addr {
    fn save(&self, to: &mut Vec<u8>) {
        self.to_bits().save(to);
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        u32::restore(from).map(Self::from_bits)
    }
}

impl Saved for SocketAddrV4 {
    fn save(&self, to: &mut Vec<u8>) {
        self.ip().save(to);
        self.port().save(to);
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        Some(Self::new(Saved::restore(from)?, Saved::restore(from)?))
    }
}

/// Without a flow label and a scope, which no translated packet has.
impl Saved for SocketAddrV6 {
    fn save(&self, to: &mut Vec<u8>) {
        self.ip().to_bits().save(to);
        self.port().save(to);
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        let address = u128::restore(from).map(Ipv6Addr::from_bits)?;
        Some(Self::new(address, Saved::restore(from)?, 0, 0))
    }
}

impl Saved for SocketAddr {
    fn save(&self, to: &mut Vec<u8>) {
        self.is_ipv6().save(to);
        match self {
            Self::V4(end) => end.save(to),
            Self::V6(end) => end.save(to),
        }
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        match bool::restore(from)? {
            false => Saved::restore(from).map(Self::V4),
            true => Saved::restore(from).map(Self::V6),
        }
    }
}

impl<T: Saved> Saved for Option<T> {
    fn save(&self, to: &mut Vec<u8>) {
        self.is_some().save(to);
        if let Some(one) = self {
            one.save(to);
        }
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        if bool::restore(from)? { T::restore(from).map(Some) } else { Some(None) }
    }
}

impl<A: Saved, B: Saved> Saved for (A, B) {
    fn save(&self, to: &mut Vec<u8>) {
        self.0.save(to);
        self.1.save(to);
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        Some((A::restore(from)?, B::restore(from)?))
    }
}

impl<T: Saved + Copy + Default, const N: usize> Saved for [T; N] {
    fn save(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|one| one.save(to));
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::restore(from)?;
        }
        Some(all)
    }
}

/// Bytes with their number, at most 65,535.
pub(crate) fn save_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    (bytes.len() as u16).save(to);
    to.extend_from_slice(bytes);
}

/// Reads what [`save_bytes`] wrote.
pub(crate) fn restore_bytes<'b>(from: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = u16::restore(from)?;
    let (bytes, rest) = from.split_at_checked(len.into())?;
    *from = rest;
    Some(bytes)
}
