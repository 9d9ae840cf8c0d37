//! Widths of the paths through tunnels, as routers report them (RFC 2473 section 6.7, RFC 8201).
//!
//! The number of paths is bounded; the oldest report makes room. A path is forgotten after ten
//! minutes (RFC 8201 section 4), so that a wider one is found again.

use alloc::collections::{BTreeMap, VecDeque};

/// Most paths that are remembered.
const MOST: usize = 4096;
/// Time that a path is remembered, nanoseconds.
const LIFETIME: u64 = 600 * 1_000_000_000;

/// Paths that are narrower than the link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    widths: BTreeMap<u128, (u16, u64)>,
    ends: VecDeque<(u64, u128)>,
}

impl Paths {
    /// Largest packet of the path to a tunnel's end, bytes.
    #[inline]
    pub(crate) fn mtu(&self, customer: u128, link: u16) -> u16 {
        if self.widths.is_empty() {
            return link;
        }
        self.widths.get(&customer).map_or(link, |(width, _)| link.min(*width))
    }

    /// Remembers the width of a path, at least that of IPv6's smallest link. The width of a known
    /// path only shrinks.
    pub(crate) fn note(&mut self, now: u64, customer: u128, mtu: u16) {
        let end = now.saturating_add(LIFETIME);
        match self.widths.get_mut(&customer) {
            Some((width, until)) => {
                *width = mtu.min(*width);
                *until = end;
            }
            None => {
                if self.widths.len() >= MOST {
                    self.end_oldest();
                }
                self.widths.insert(customer, (mtu, end));
                self.ends.push_back((end, customer));
            }
        }
    }

    fn end_oldest(&mut self) {
        if let Some((_, customer)) = self.ends.pop_front() {
            self.widths.remove(&customer);
        }
    }

    /// Forgets old paths.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(&(end, customer)) = self.ends.front()
            && end <= now
        {
            match self.widths.get(&customer) {
                // The path was reported again.
                Some(&(_, until)) if until > now => {
                    self.ends.pop_front();
                    self.ends.push_back((until, customer));
                }
                _ => self.end_oldest(),
            }
        }
    }

    /// Paths that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.widths.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_as_narrow_as_reported_until_it_is_forgotten() {
        let mut paths = Paths::default();
        assert_eq!(paths.mtu(5, 1500), 1500);
        paths.note(0, 5, 1400);
        paths.note(1, 5, 1450);
        paths.note(1, 6, 1280);
        assert_eq!([5, 6, 7].map(|to| paths.mtu(to, 1500)), [1400, 1280, 1500]);
        assert_eq!(paths.mtu(5, 1300), 1300);
        paths.expire(LIFETIME);
        assert_eq!(paths.mtu(5, 1500), 1400);
        paths.expire(LIFETIME + 1);
        assert_eq!((paths.mtu(5, 1500), paths.len()), (1500, 0));
        for customer in 0..10_000 {
            paths.note(9, customer, 1300);
        }
        assert_eq!((paths.len(), paths.ends.len()), (MOST, MOST));
    }
}
