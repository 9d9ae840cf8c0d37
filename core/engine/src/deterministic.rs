//! Deterministic mapping (RFC 7422): arithmetic on the configuration alone gives the external
//! address and ports of a subscriber, and the subscriber of a port. The engine, `natgate who` and
//! `natgate check` all use a [`Plan`]. There is no state, so nothing need be logged or restored
//! after a restart.
//!
//! Subscribers are numbered in configured order, and external addresses likewise. Each address
//! serves the same number of consecutive subscribers, and each subscriber gets the same number of
//! consecutive ports (sequential assignment, algorithm 0 of section 2). Ports left at an address's
//! end may be given out on demand.

use crate::config::{DeterministicConfig, PoolConfig, Prefix};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// The first port above the system ports (RFC 6335).
const SYSTEM_PORTS: u16 = 1024;

/// Consecutive addresses, and the number of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    last: u32,
    number: u32,
}

/// Assignment of a pool's ports to subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    realm: u16,
    /// Subscribers, sorted by number and by address.
    by_number: Vec<Run>,
    by_address: Vec<Run>,
    /// External addresses, sorted by number and by address.
    external: Vec<Run>,
    external_by_address: Vec<Run>,
    subscribers: u32,
    addresses: u32,
    ports: (u16, u16),
    /// Subscribers that share an address, and the ports of each.
    each: u32,
    share: u32,
    has_dynamic: bool,
}

/// Error of a plan: the configuration key with the fault, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The pool's key.
    pub key: &'static str,
    /// One sentence with the error, the arithmetic and the remedy.
    pub message: String,
}

fn fail<T>(key: &'static str, message: String) -> Result<T, PlanError> {
    Err(PlanError { key, message })
}

impl Plan {
    /// Makes the plan of a pool.
    ///
    /// # Errors
    /// When the pool has no addresses, has too few ports for its subscribers, or names a subscriber
    /// twice.
    pub fn new(config: &DeterministicConfig, pool: &PoolConfig) -> Result<Self, PlanError> {
        //= rfc7422#section-2-system
        let (first, last) = (pool.ports.0.max(1), pool.ports.1);
        if first < SYSTEM_PORTS && last >= SYSTEM_PORTS {
            let message = format!("{first}-{last} has ports of both sides of {SYSTEM_PORTS}");
            let remedy = "begin at 1024, for which of them a subscriber got would be luck";
            return fail("ports", format!("{message}; {remedy}"));
        }
        let by_address = sorted(&config.subscribers)?;
        let subscribers: u64 = config.subscribers.iter().map(|prefix| size(*prefix)).sum();
        let addresses = pool.count() as u64;
        if addresses == 0 {
            return fail("addresses", "has none; write one such as \"203.0.113.1\"".into());
        }
        let all = u64::from(last) + 1 - u64::from(first);
        let dynamic = u64::from(config.dynamic_ports);
        if dynamic >= all {
            let message =
                format!("{dynamic} of the {all} ports of an address leave none of its own");
            return fail("dynamic_ports", format!("{message} to a subscriber; write less"));
        }
        let (each, share) = divide(subscribers, addresses, all - dynamic, config)?;
        let prefixes = config.subscribers.iter().map(|prefix| (prefix.first(), prefix.last()));
        let ranges =
            pool.addresses.iter().map(|range| (range.first.to_bits(), range.last.to_bits()));
        let (by_number, external) = (runs(prefixes), runs(ranges));
        let numbered = |run: &Run| {
            let place = by_number.iter().position(|other| other.first == run.first);
            by_number[place.expect("the same runs")]
        };
        let by_address = match by_number.is_sorted_by_key(|run| run.first) {
            true => by_number.clone(),
            false => by_address.iter().map(numbered).collect(),
        };
        let mut external_by_address = external.clone();
        external_by_address.sort_unstable_by_key(|run| run.first);
        Ok(Self {
            realm: config.realm,
            by_number,
            by_address,
            external,
            external_by_address,
            subscribers: subscribers as u32,
            addresses: addresses as u32,
            ports: (first, last),
            each,
            share,
            has_dynamic: dynamic > 0,
        })
    }

    /// The number of the subscribers' realm.
    pub fn realm(&self) -> u16 {
        self.realm
    }

    /// The external address of a subscriber and its ports, first and last.
    pub fn forward(&self, subscriber: Ipv4Addr) -> Option<(Ipv4Addr, (u16, u16))> {
        let (number, ports) = self.share_of(subscriber.to_bits())?;
        Some((Ipv4Addr::from_bits(address(&self.external, number)), ports))
    }

    /// The subscriber that has a port of an external address. A dynamic port has no subscriber.
    pub fn reverse(&self, external: Ipv4Addr, port: u16) -> Option<Ipv4Addr> {
        let address = number(&self.external_by_address, external.to_bits())?;
        let (first, _) = self.ports;
        let place = u32::from(port.checked_sub(first)?) / self.share;
        let subscriber = address * self.each + place;
        (place < self.each && subscriber < self.subscribers)
            .then(|| Ipv4Addr::from_bits(self::address(&self.by_number, subscriber)))
    }

    /// The next subscriber, from the number `from` on, that is in one range of addresses and has
    /// ports of an address in another; with its number. A range is its first and last address.
    pub(crate) fn next_subscriber(
        &self,
        from: u32,
        subscribers: (u32, u32),
        external: (u32, u32),
    ) -> Option<(u32, Ipv4Addr)> {
        let mut from = from;
        loop {
            let number = next_within(&self.by_number, from, subscribers)?;
            let own = number / self.each;
            let next = next_within(&self.external, own, external)?;
            if next == own {
                return Some((number, Ipv4Addr::from_bits(address(&self.by_number, number))));
            }
            from = next.checked_mul(self.each)?;
        }
    }

    /// The number of the external address, in the order configured, and the ports that a subscriber
    /// has of it.
    pub(crate) fn share_of(&self, subscriber: u32) -> Option<(u32, (u16, u16))> {
        //= rfc7422#section-2-equal
        let number = number(&self.by_address, subscriber)?;
        let first = u32::from(self.ports.0) + number % self.each * self.share;
        Some((number / self.each, (first as u16, (first + self.share - 1) as u16)))
    }

    /// The ports of an external address that belong to subscribers, from the first to the last.
    pub(crate) fn shared(&self, external: u32) -> Option<(u16, u16)> {
        let before = number(&self.external_by_address, external)?.checked_mul(self.each)?;
        let here = self.subscribers.checked_sub(before)?.min(self.each);
        let first = u32::from(self.ports.0);
        (here > 0).then(|| (self.ports.0, (first + here * self.share - 1) as u16))
    }

    /// True if another plan gives the same ports to the subscribers and addresses that both plans
    /// know.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let sizes = |plan: &Self| (plan.ports, plan.each, plan.share, plan.has_dynamic);
        sizes(self) == sizes(other)
            && agree(&self.by_number, &other.by_number, self.subscribers.min(other.subscribers))
            && agree(&self.external, &other.external, self.addresses.min(other.addresses))
    }

    /// The ports of each address that are given out on demand, first and last.
    pub fn dynamic(&self) -> Option<(u16, u16)> {
        let first = u32::from(self.ports.0) + self.each * self.share;
        self.has_dynamic.then_some((first as u16, self.ports.1))
    }

    /// Number of subscribers.
    pub fn subscribers(&self) -> u32 {
        self.subscribers
    }

    /// Largest number of subscribers that share an external address.
    pub fn subscribers_per_address(&self) -> u32 {
        self.each.min(self.subscribers)
    }

    /// Number of ports of each subscriber.
    pub fn ports_per_subscriber(&self) -> u32 {
        self.share
    }

    /// Number of addresses that have subscribers.
    pub fn addresses_used(&self) -> u32 {
        self.subscribers.div_ceil(self.each)
    }

    /// Number of ports, over all addresses, that subscribers can get.
    pub fn ports_usable(&self) -> u64 {
        let all = u64::from(self.ports.1) + 1 - u64::from(self.ports.0);
        u64::from(self.addresses) * all - self.ports_unused()
    }

    /// Number of ports, over all addresses, that no subscriber can get.
    pub fn ports_unused(&self) -> u64 {
        let all = u64::from(self.ports.1) + 1 - u64::from(self.ports.0);
        let dynamic = self.dynamic().map_or(0, |(first, last)| u64::from(last - first) + 1);
        let given = u64::from(self.subscribers) * u64::from(self.share);
        u64::from(self.addresses) * (all - dynamic) - given
    }
}

/// Number of subscribers that share an address of `ports` ports, and the ports of each.
fn divide(
    subscribers: u64,
    addresses: u64,
    ports: u64,
    config: &DeterministicConfig,
) -> Result<(u32, u32), PlanError> {
    let Some(wanted) = config.ports_per_subscriber.map(|wanted| u64::from(wanted.max(1))) else {
        let each = subscribers.div_ceil(addresses);
        if each > ports {
            let sum = format!("{addresses} x {ports} = {}", addresses * ports);
            let message = format!("{subscribers} subscribers are more than the {sum} ports");
            let remedy = "name fewer subscribers or more addresses";
            return fail("subscribers", format!("{message} of the pool's addresses; {remedy}"));
        }
        return Ok((each as u32, (ports / each) as u32));
    };
    let each = ports / wanted;
    if each * addresses < subscribers {
        let shares = format!("{ports} / {wanted} = {each} subscribers");
        let message = format!("{shares} an address, {} on {addresses}", each * addresses);
        let need = format!("there are {subscribers}");
        return fail("ports_per_subscriber", format!("{message}, but {need}; write less"));
    }
    Ok((each as u32, wanted as u32))
}

/// Number of addresses of a prefix.
fn size(prefix: Prefix) -> u64 {
    u64::from(prefix.last() - prefix.first()) + 1
}

/// Sorts the prefixes by address, and checks that no two overlap.
fn sorted(prefixes: &[Prefix]) -> Result<Vec<Run>, PlanError> {
    if prefixes.is_empty() {
        return fail("subscribers", "names nobody; write prefixes such as \"10.0.0.0/24\"".into());
    }
    let mut sorted: Vec<Run> = prefixes
        .iter()
        .map(|prefix| Run { first: prefix.first(), last: prefix.last(), number: 0 })
        .collect();
    sorted.sort_unstable_by_key(|run| run.first);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[1].first <= pair[0].last) {
        let [one, other] = [pair[0], pair[1]].map(|run| {
            format!("{}-{}", Ipv4Addr::from_bits(run.first), Ipv4Addr::from_bits(run.last))
        });
        return fail(
            "subscribers",
            format!("{one} and {other} overlap; name each subscriber once"),
        );
    }
    Ok(sorted)
}

/// Numbers addresses from 0 in the order given.
fn runs(ranges: impl Iterator<Item = (u32, u32)>) -> Vec<Run> {
    let mut number = 0_u32;
    let run = |(first, last): (u32, u32)| {
        let run = Run { first, last, number };
        number = number.wrapping_add((last - first).wrapping_add(1));
        run
    };
    ranges.map(run).collect()
}

/// The number of an address.
fn number(by_address: &[Run], address: u32) -> Option<u32> {
    let run = by_address.get(by_address.partition_point(|run| run.last < address))?;
    (run.first <= address).then(|| run.number + (address - run.first))
}

/// The address with a number. The number must exist.
fn address(by_number: &[Run], number: u32) -> u32 {
    let run = by_number[by_number.partition_point(|run| run.number <= number) - 1];
    run.first + (number - run.number)
}

/// The first number, from one on, of which the address is in a range.
fn next_within(by_number: &[Run], from: u32, (first, last): (u32, u32)) -> Option<u32> {
    let begin = by_number.partition_point(|run| run.number <= from).saturating_sub(1);
    by_number[begin..].iter().find_map(|run| {
        let own = run.first.checked_add(from.saturating_sub(run.number))?;
        let low = own.max(first);
        (low <= run.last.min(last)).then(|| run.number + (low - run.first))
    })
}

/// True if the first `count` numbers have the same addresses in both sets of runs.
fn agree(one: &[Run], other: &[Run], count: u32) -> bool {
    let mut starts = one.iter().chain(other).map(|run| run.number).filter(|&start| start < count);
    starts.all(|start| address(one, start) == address(other, start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AddressRange;
    use alloc::vec;
    use proptest::prelude::*;

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    fn pool(first: u32, count: u32, ports: (u16, u16)) -> PoolConfig {
        let at = |off: u32| Ipv4Addr::from_bits(first + off);
        let addresses = vec![AddressRange { first: at(0), last: at(count - 1) }];
        PoolConfig { addresses, ports, ..PoolConfig::default() }
    }

    fn subscribers(text: &str, len: u8) -> DeterministicConfig {
        let subscribers = vec![Prefix::new(ip(text), len)];
        DeterministicConfig { subscribers, ..DeterministicConfig::default() }
    }

    //= test rfc7422#section-2-equal
    /// The example of RFC 7422 section 2.3, with all sixteen addresses of its prefix: 64,512 / 16.
    #[test]
    fn the_example_of_the_standard() {
        let pool = pool(0xc000_0201, 1, (1024, 65_535));
        let config = subscribers("198.51.100.0", 28);
        let plan = Plan::new(&config, &pool).unwrap();
        assert_eq!(plan.forward(ip("198.51.100.0")), Some((ip("192.0.2.1"), (1024, 5055))));
        assert_eq!(plan.forward(ip("198.51.100.1")), Some((ip("192.0.2.1"), (5056, 9087))));
        assert_eq!(plan.forward(ip("198.51.100.15")), Some((ip("192.0.2.1"), (61_504, 65_535))));
        assert_eq!(plan.forward(ip("198.51.100.16")), None);
        assert_eq!(plan.reverse(ip("192.0.2.1"), 2001), Some(ip("198.51.100.0")));
        assert_eq!(plan.reverse(ip("192.0.2.1"), 1023), None);
        assert_eq!(plan.reverse(ip("192.0.2.2"), 2001), None);
        assert_eq!((plan.dynamic(), plan.ports_unused()), (None, 0));

        let with = DeterministicConfig { dynamic_ports: 8064, ..config };
        let plan = Plan::new(&with, &pool).unwrap();
        assert_eq!(plan.ports_per_subscriber(), 3528);
        assert_eq!(plan.dynamic(), Some((57_472, 65_535)));
        assert_eq!(plan.reverse(ip("192.0.2.1"), 58_204), None);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_arithmetic() {
        let small = pool(0xcb00_7101, 2, (2000, 2003));
        let refused = |config: &DeterministicConfig, pool| Plan::new(config, pool).unwrap_err();
        let error = refused(&subscribers("10.0.0.0", 28), &small);
        assert_eq!(error.key, "subscribers");
        assert!(error.message.contains("16 subscribers are more than the 2 x 4 = 8"), "{error:?}");
        let three =
            DeterministicConfig { ports_per_subscriber: Some(3), ..subscribers("10.0.0.0", 30) };
        let error = refused(&three, &small);
        assert_eq!(error.key, "ports_per_subscriber");
        assert!(error.message.contains("4 / 3 = 1 subscribers an address, 2 on 2"), "{error:?}");
        let four = DeterministicConfig { dynamic_ports: 4, ..subscribers("10.0.0.0", 30) };
        assert_eq!(refused(&four, &small).key, "dynamic_ports");
        assert_eq!(refused(&subscribers("0.0.0.0", 0), &small).key, "subscribers");
        assert_eq!(refused(&DeterministicConfig::default(), &small).key, "subscribers");
        let mut twice = subscribers("10.0.0.0", 30);
        twice.subscribers.push(Prefix::new(ip("10.0.0.3"), 32));
        assert!(refused(&twice, &small).message.contains("10.0.0.3-10.0.0.3 overlap"));
        let wide = pool(0xcb00_7101, 2, (1000, 2003));
        assert_eq!(refused(&subscribers("10.0.0.0", 30), &wide).key, "ports");
        let empty = PoolConfig { addresses: vec![], ..pool(0, 1, (2000, 2003)) };
        assert_eq!(refused(&subscribers("10.0.0.0", 30), &empty).key, "addresses");
    }

    /// First address of the pools of `configurations`.
    const FIRST_EXTERNAL: u32 = 0xcb00_0000;

    fn prefixes() -> impl Strategy<Value = Vec<Prefix>> {
        // Each prefix is in a /16 of its own, in any order.
        let one = (any::<u16>(), 22_u8..=32);
        prop::collection::btree_map(0_u8..40, one, 1..6).prop_map(|places| {
            let mut prefixes: Vec<Prefix> = places
                .into_iter()
                .map(|(place, (low, len))| {
                    Prefix::new(
                        Ipv4Addr::from_bits(10 << 24 | u32::from(place) << 16 | u32::from(low)),
                        len,
                    )
                })
                .collect();
            prefixes.sort_by_key(|prefix| (prefix.first() >> 16).wrapping_mul(2_654_435_761));
            prefixes
        })
    }

    fn configurations() -> impl Strategy<Value = (DeterministicConfig, PoolConfig)> {
        let ranges = prop::collection::btree_map(0_u32..30, 1_u32..20, 1..4);
        let ports = (1024_u16..=65_535, 1024_u16..=65_535);
        let ports_per_subscriber = prop::option::of(1_u16..500);
        let dynamic_ports = prop_oneof![Just(0_u16), 1_u16..2000];
        let all = (prefixes(), ranges, ports, ports_per_subscriber, dynamic_ports);
        all.prop_map(|(subscribers, ranges, ports, ports_per_subscriber, dynamic_ports)| {
            let at = |place: u32, off: u32| Ipv4Addr::from_bits(FIRST_EXTERNAL + place * 32 + off);
            let mut addresses: Vec<AddressRange> = ranges
                .iter()
                .map(|(&place, &count)| (at(place, 0), at(place, count - 1)))
                .map(|(first, last)| AddressRange { first, last })
                .collect();
            addresses.reverse();
            let ports = (ports.0.min(ports.1), ports.0.max(ports.1));
            let pool = PoolConfig { addresses, ports, ..PoolConfig::default() };
            let config =
                DeterministicConfig { realm: 0, subscribers, ports_per_subscriber, dynamic_ports };
            (config, pool)
        })
    }

    /// All numbers from the first to the last, then each half of them.
    fn halves((first, last): (u32, u32)) -> [(u32, u32); 3] {
        let middle = first + (last - first) / 2;
        [(first, last), (first, middle), (middle + 1, last)]
    }

    proptest! {
        //= test rfc7422#section-2-equal
        //= test rfc7422#section-2-functions
        /// Forward and reverse are inverse for any configuration. No two subscribers share a port,
        /// and all have equally many.
        #[test]
        fn forward_and_reverse_are_inverse((config, pool) in configurations()) {
            let Ok(plan) = Plan::new(&config, &pool) else { return Ok(()) };
            let mut ends = Vec::new();
            for prefix in &config.subscribers {
                for address in prefix.first()..=prefix.last() {
                    let subscriber = Ipv4Addr::from_bits(address);
                    let (external, (first, last)) = plan.forward(subscriber).unwrap();
                    prop_assert_eq!(u32::from(last - first) + 1, plan.ports_per_subscriber());
                    prop_assert!(pool.ports.0 <= first && last <= pool.ports.1);
                    prop_assert!(plan.dynamic().is_none_or(|(from, _)| last < from));
                    for port in [first, first + (last - first) / 2, last] {
                        prop_assert_eq!(plan.reverse(external, port), Some(subscriber));
                    }
                    ends.push((external, first, last));
                }
            }
            prop_assert_eq!(ends.len(), plan.subscribers() as usize);
            // In configured order the shares follow each other.
            for pair in ends.windows(2) {
                let follows = pair[0].0 != pair[1].0 || pair[0].2 + 1 == pair[1].1;
                prop_assert!(follows, "{:?} and {:?}", pair[0], pair[1]);
            }
            ends.sort_unstable();
            for pair in ends.windows(2) {
                prop_assert!(pair[0].0 != pair[1].0 || pair[0].2 < pair[1].1);
            }
        }

        /// The walk finds all subscribers, and those in each half of the subscribers and of the
        /// addresses.
        #[test]
        fn the_walk_finds_each_subscriber_once((config, pool) in configurations()) {
            let Ok(plan) = Plan::new(&config, &pool) else { return Ok(()) };
            for inside in halves((10 << 24, 11 << 24)) {
                for outside in halves((FIRST_EXTERNAL, FIRST_EXTERNAL + 30 * 32)) {
                    let mut walked = Vec::new();
                    let mut from = 0;
                    while let Some((at, subscriber)) = plan.next_subscriber(from, inside, outside) {
                        from = at + 1;
                        walked.push(subscriber);
                    }
                    let within = |(first, last): (u32, u32), address: Ipv4Addr| {
                        (first..=last).contains(&address.to_bits())
                    };
                    let all = (0..plan.subscribers()).map(|at| address(&plan.by_number, at));
                    let sought: Vec<_> = all.map(Ipv4Addr::from_bits).filter(|address| {
                        let (external, _) = plan.forward(*address).unwrap();
                        within(inside, *address) && within(outside, external)
                    }).collect();
                    prop_assert_eq!(walked, sought);
                }
            }
        }

        /// A port outside all shares has no subscriber: every port of one address is examined.
        #[test]
        fn ports_outside_the_shares_have_no_subscriber((config, pool) in configurations()) {
            let Ok(plan) = Plan::new(&config, &pool) else { return Ok(()) };
            let external = pool.addresses[0].first;
            let mut own = 0_u64;
            for port in 0..=u16::MAX {
                if let Some(subscriber) = plan.reverse(external, port) {
                    let (address, (first, last)) = plan.forward(subscriber).unwrap();
                    prop_assert!(address == external && (first..=last).contains(&port));
                    own += 1;
                }
            }
            let all = (0..plan.subscribers()).map(|at| address(&plan.by_number, at));
            let shares = all.map(|ip| plan.forward(Ipv4Addr::from_bits(ip)).unwrap());
            let here = shares.filter(|(address, _)| *address == external);
            let given: u64 = here.map(|(_, (first, last))| u64::from(last - first) + 1).sum();
            prop_assert_eq!(own, given);
        }
    }
}
