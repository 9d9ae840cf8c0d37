//! Explicit address mapping, RFC 7757: a table of pairs of an IPv6 and an IPv4 prefix.
//!
//! The longest prefix decides, in both directions. The table has no tree: at the start each family
//! is divided into ranges of addresses that one pair decides. The ranges are sorted. A lookup takes
//! the cell of the address, which has the ranges with the same upper bits, and searches these.

use crate::Prefix6;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::Prefix;

/// A pair of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EamEntry {
    /// IPv6 prefix.
    pub ipv6: Prefix6,
    /// IPv4 prefix.
    pub ipv4: Prefix,
}

/// Reason why entries are no table. Entries are named by their places, which count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EamError {
    /// The IPv4 prefix leaves more bits than the IPv6 prefix.
    Narrow(usize, EamEntry),
    /// Two entries have the same IPv6 prefix.
    SameIpv6(usize, usize, Prefix6),
    /// Two entries have the same IPv4 prefix.
    SameIpv4(usize, usize, Prefix),
}

impl Display for EamError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Narrow(_, EamEntry { ipv6, ipv4 }) => write!(
                f,
                "{} leaves {} bits for hosts and {ipv6} only {}, so {} IPv4 addresses would \
                 share an IPv6 address (RFC 7757 section 3.2)",
                written(*ipv4),
                32 - ipv4.len(),
                128 - ipv6.len,
                1_u64 << (32 - ipv4.len() - (128 - ipv6.len)),
            ),
            Self::SameIpv6(_, _, prefix) => {
                write!(f, "two maps have {prefix}, so no IPv4 address can be chosen for it")
            }
            Self::SameIpv4(_, _, prefix) => {
                let prefix = written(*prefix);
                write!(f, "two maps have {prefix}, so no IPv6 address can be chosen for it")
            }
        }
    }
}

fn written(prefix: Prefix) -> impl Display {
    let (address, len) = (Ipv4Addr::from_bits(prefix.first()), prefix.len());
    fmt::from_fn(move |f| write!(f, "{address}/{len}"))
}

/// A table of explicit mappings.
///
/// ```
/// use natgate_ipv6::{Eam, EamEntry, Prefix6};
/// use natgate_engine::Prefix;
/// let ipv6 = Prefix6 { address: "2001:db8:3::".parse().unwrap(), len: 120 };
/// let ipv4 = Prefix::new("1.0.0.0".parse().unwrap(), 24);
/// let table = Eam::new(&[EamEntry { ipv6, ipv4 }]).unwrap();
/// assert_eq!(table.to_ipv6("1.0.0.9".parse().unwrap()), "2001:db8:3::9".parse().ok());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Eam {
    entries: Box<[EamEntry]>,
    ipv4: Ranges<u32>,
    ipv6: Ranges<u128>,
}

impl Eam {
    /// A table of these entries.
    ///
    /// # Errors
    /// [`EamError`] if an entry cannot be translated both ways, or two entries have one prefix.
    pub fn new(entries: &[EamEntry]) -> Result<Self, EamError> {
        for (place, entry) in entries.iter().enumerate() {
            //= rfc7757#section-3.2-suffix
            if 32 - entry.ipv4.len() > 128 - entry.ipv6.len {
                return Err(EamError::Narrow(place, *entry));
            }
        }
        let ipv4 =
            entries.iter().map(|entry| (entry.ipv4.first(), entry.ipv4.last(), entry.ipv4.len()));
        let ipv6 = entries.iter().map(|entry| {
            (entry.ipv6.first().to_bits(), entry.ipv6.last().to_bits(), entry.ipv6.len)
        });
        let ipv4 = Ranges::new(ipv4.collect(), |last| last.checked_add(1));
        let ipv4 = ipv4.map_err(|(a, b)| EamError::SameIpv4(a, b, entries[a].ipv4))?;
        let ipv6 = Ranges::new(ipv6.collect(), |last| last.checked_add(1));
        let ipv6 = ipv6.map_err(|(a, b)| EamError::SameIpv6(a, b, entries[a].ipv6))?;
        Ok(Self { entries: entries.into(), ipv4, ipv6 })
    }

    /// True if the table has no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, in the order in which they were given.
    pub fn entries(&self) -> &[EamEntry] {
        &self.entries
    }

    /// The entry that decides about an IPv4 address.
    #[inline]
    pub fn of_ipv4(&self, address: Ipv4Addr) -> Option<EamEntry> {
        Some(self.entries[self.ipv4.find(address.to_bits())?])
    }

    /// The entry that decides about an IPv6 address.
    #[inline]
    pub fn of_ipv6(&self, address: Ipv6Addr) -> Option<EamEntry> {
        Some(self.entries[self.ipv6.find(address.to_bits())?])
    }

    /// The IPv6 address of an IPv4 address, if an entry has it (RFC 7757 section 3.3.1).
    #[inline(always)]
    pub fn to_ipv6(&self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        // Most gateways have no entry, and look up two addresses of each packet.
        if self.is_empty() { None } else { self.mapped_to_ipv6(address) }
    }

    fn mapped_to_ipv6(&self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        let EamEntry { ipv6, ipv4 } = self.of_ipv4(address)?;
        let suffix = u128::from(address.to_bits() - ipv4.first());
        // The entry's lengths were checked, so the suffix fits behind the prefix.
        let shift = u32::from(128 - ipv6.len) - u32::from(32 - ipv4.len());
        Some(Ipv6Addr::from_bits(ipv6.first().to_bits() | suffix.checked_shl(shift).unwrap_or(0)))
    }

    /// The IPv4 address of an IPv6 address, if an entry has it (RFC 7757 section 3.3.2).
    #[inline(always)]
    pub fn to_ipv4(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if self.is_empty() { None } else { self.mapped_to_ipv4(address) }
    }

    fn mapped_to_ipv4(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let EamEntry { ipv6, ipv4 } = self.of_ipv6(address)?;
        let suffix = address.to_bits() - ipv6.first().to_bits();
        let shift = u32::from(128 - ipv6.len) - u32::from(32 - ipv4.len());
        let suffix = suffix.checked_shr(shift).unwrap_or(0) as u32;
        Some(Ipv4Addr::from_bits(ipv4.first() | suffix))
    }
}

/// Disjoint ranges of addresses, each with the number of the longest prefix that has it.
#[derive(Clone, Debug, Default)]
struct Ranges<A> {
    /// First addresses, sorted.
    first: Box<[A]>,
    /// Last address and number of each range.
    rest: Box<[(A, u32)]>,
    cells: Cells,
}

/// Cells of equal size, each with the place of the first range that begins in it or after it.
#[derive(Clone, Debug, Default)]
struct Cells {
    /// The lowest and the highest address that have a range.
    reach: (u128, u128),
    /// Bits of an address within a cell.
    bits: u32,
    /// One more than there are cells.
    places: Box<[u32]>,
}

impl Cells {
    /// Cells for ranges that begin with these addresses, which are sorted, and end with `last`:
    /// about as many as ranges.
    fn new(first: &[u128], last: u128) -> Self {
        let Some(&lowest) = first.first() else { return Self::default() };
        let room = 128 - (last - lowest).leading_zeros();
        let bits = room.saturating_sub(usize::BITS - first.len().leading_zeros());
        let count = ((last - lowest) >> bits) + 1;
        let place = |cell: u128| {
            let before = |one: &u128| (*one - lowest) >> bits < cell;
            first.partition_point(before) as u32
        };
        let places = (0..=count).map(place).collect();
        Self { reach: (lowest, last), bits, places }
    }

    /// The places of the ranges that begin in the cell of an address; `None`: no range has it.
    #[inline]
    fn of(&self, address: u128) -> Option<(usize, usize)> {
        let (lowest, highest) = self.reach;
        if address < lowest || address > highest {
            return None;
        }
        let cell = ((address - lowest) >> self.bits) as usize;
        let places = self.places.get(cell..cell + 2)?;
        Some((places[0] as usize, places[1] as usize))
    }
}

impl<A: Copy + Ord + Into<u128>> Ranges<A> {
    /// Divides prefixes into ranges: first address, last address and length of each. `after`
    /// returns the next address. The error names two equal prefixes.
    fn new(
        prefixes: Vec<(A, A, u8)>,
        after: impl Fn(A) -> Option<A>,
    ) -> Result<Self, (usize, usize)> {
        let mut order: Vec<u32> = (0..prefixes.len() as u32).collect();
        let key = |number: u32| {
            let (first, _, len) = prefixes[number as usize];
            (first, len)
        };
        order.sort_by_key(|&number| key(number));
        if let Some(two) = order.windows(2).find(|two| key(two[0]) == key(two[1])) {
            return Err((two[0].min(two[1]) as usize, two[0].max(two[1]) as usize));
        }
        let mut ranges = Builder { first: Vec::new(), rest: Vec::new(), from: None };
        // Prefixes that are open, each within the one before.
        let mut open: Vec<u32> = Vec::new();
        let close = |ranges: &mut Builder<A>, number: u32| {
            let last = prefixes[number as usize].1;
            ranges.end(last, number);
            ranges.from = after(last);
        };
        for number in order {
            let first = prefixes[number as usize].0;
            while let Some(&inner) = open.last().filter(|&&one| prefixes[one as usize].1 < first) {
                open.pop();
                close(&mut ranges, inner);
            }
            if let Some(&outer) = open.last() {
                ranges.end_before(first, outer);
            }
            ranges.from = Some(first);
            open.push(number);
        }
        while let Some(inner) = open.pop() {
            close(&mut ranges, inner);
        }
        let first: Vec<u128> = ranges.first.iter().map(|first| (*first).into()).collect();
        // The last range ends with its prefix, and no other address is higher.
        let last = ranges.rest.last().map_or(0, |(last, _)| (*last).into());
        let cells = Cells::new(&first, last);
        Ok(Self { first: ranges.first.into(), rest: ranges.rest.into(), cells })
    }

    /// The number of the longest prefix that has an address.
    //= rfc7757#section-3.3
    #[inline]
    fn find(&self, address: A) -> Option<usize> {
        let (from, to) = self.cells.of(address.into())?;
        let within = self.first[from..to].partition_point(|first| *first <= address);
        // The range may begin in an earlier cell.
        let place = (from + within).checked_sub(1)?;
        let (last, number) = self.rest[place];
        (address <= last).then_some(number as usize)
    }
}

/// Ranges in the making.
struct Builder<A> {
    first: Vec<A>,
    rest: Vec<(A, u32)>,
    /// First address that has no range yet; `None` at the end of all addresses.
    from: Option<A>,
}

impl<A: Copy + Ord> Builder<A> {
    /// Ends a range of a prefix with its last address.
    fn end(&mut self, last: A, number: u32) {
        if let Some(from) = self.from.filter(|from| *from <= last) {
            self.first.push(from);
            self.rest.push((last, number));
        }
    }

    /// Ends a range of a prefix before the first address of an inner prefix.
    fn end_before(&mut self, first: A, number: u32) {
        if let Some(from) = self.from.filter(|from| *from < first) {
            self.first.push(from);
            // A search stops at the inner prefix, so the range may reach to its first address.
            self.rest.push((first, number));
        }
    }
}

#[cfg(test)]
mod tests;
