//! Limits on the ARP questions of a link in one second.
//!
//! A scan of the link's addresses from the other side, or answers to forged sources, must not
//! become a storm of ARP requests. One budget serves every new neighbour. When it is used up, each
//! group of prefixes still has a small share of its own, and neighbours that were known before have
//! a reserve: so a flood into one prefix leaves room for the others.

use natgate_engine::Timestamp;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Most new neighbours that are asked for in a second by one link, whatever their prefix.
pub const MOST_NEW_PER_SECOND: u32 = 1000;

/// Most questions of each group of prefixes of 24 bits when the common budget is used up.
pub const SHARE_PER_SECOND: u8 = 16;

/// Most neighbours that were known before and are asked for beyond the budgets of all others.
pub const MOST_FORMER_PER_SECOND: u32 = 1000;

/// Number of groups of prefixes of 24 bits: a power of two.
const GROUPS: usize = 64;

/// Duration of a budget.
const WINDOW: Duration = Duration::from_secs(1);

/// Used parts of a link's budgets.
#[derive(Debug)]
pub(super) struct Budget {
    began: Timestamp,
    common: u32,
    former: u32,
    groups: [u8; GROUPS],
}

impl Default for Budget {
    fn default() -> Self {
        Self { began: Timestamp(0), common: 0, former: 0, groups: [0; GROUPS] }
    }
}

impl Budget {
    /// Takes one question out of a budget; returns false if none is left. `former` says that the
    /// neighbour was known before.
    pub(super) fn take(&mut self, now: Timestamp, address: Ipv4Addr, former: bool) -> bool {
        if now.since(self.began) >= WINDOW {
            *self = Self { began: now, ..Self::default() };
        }
        let group = &mut self.groups[group(address)];
        if self.common < MOST_NEW_PER_SECOND {
            self.common += 1;
            *group = group.saturating_add(1);
            true
        } else if *group < SHARE_PER_SECOND {
            *group += 1;
            true
        } else if former && self.former < MOST_FORMER_PER_SECOND {
            self.former += 1;
            true
        } else {
            false
        }
    }
}

/// The group of an address: neighbouring prefixes of 24 bits are in different groups.
fn group(address: Ipv4Addr) -> usize {
    let prefix = address.to_bits() as usize >> 8;
    (prefix ^ prefix >> 6 ^ prefix >> 12) & (GROUPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp(1_000_000_000_000).plus(Duration::from_millis(millis))
    }

    #[test]
    fn a_flood_into_one_prefix_leaves_the_shares_of_the_others() {
        let mut budget = Budget::default();
        let flood = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number % 256);
        let taken = (0..5000).filter(|number| budget.take(at(0), flood(*number), false)).count();
        assert_eq!(taken, MOST_NEW_PER_SECOND as usize);
        let other = Ipv4Addr::new(10, 0, 1, 1);
        let taken = (0..100).filter(|_| budget.take(at(1), other, false)).count();
        assert_eq!(taken, usize::from(SHARE_PER_SECOND));
        assert!(budget.take(at(2), other, true), "it was known before");
        assert!(budget.take(at(1000), flood(0), false), "another second");
    }

    #[test]
    fn all_budgets_together_are_bounded() {
        let mut budget = Budget::default();
        let any = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + number * 256);
        let taken = (0..100_000).filter(|number| budget.take(at(0), any(*number), true)).count();
        let most = MOST_NEW_PER_SECOND + MOST_FORMER_PER_SECOND;
        assert!(taken <= most as usize + GROUPS * usize::from(SHARE_PER_SECOND), "{taken}");
    }
}
