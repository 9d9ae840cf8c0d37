//! What the two engines of a pair must have alike for the same ports to be the same subscribers':
//! pools with computed ports, sizes of blocks, the mapping behavior, and what hosts with numbers
//! are (`docs/design/pair.md`).
//!
//! Each key of the configuration has a sum of its values over the pools of some addresses. Equal
//! configurations have equal sums, in whatever order the pools are. Different ones have the same
//! sum with a probability of 2^-64.

use crate::config::{AddressRange, Allocation, Config, PoolConfig};
use crate::handover::{fingerprint, number_of};
use alloc::vec::Vec;

/// Sums of the keys that give ports to subscribers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic([u64; Arithmetic::KEYS.len()]);

impl Arithmetic {
    /// The keys of the configuration, in the order of the sums.
    pub const KEYS: [&str; 14] = [
        "allocation",
        "nat.block.size",
        "addresses",
        "ports",
        "realm",
        "subscribers",
        "ports_per_subscriber",
        "dynamic_ports",
        "nat.mapping",
        "nat64.prefixes",
        "nat64.subscribers",
        "nat64.subscriber_length",
        "dslite.address",
        "dslite.b4",
    ];
    /// Bytes of [`Arithmetic::write`].
    pub const LEN: usize = 8 * Self::KEYS.len();

    /// The sums over the pools that have addresses of some ranges.
    pub fn of(config: &Config, ranges: &[AddressRange]) -> Self {
        let mut sums = Self::default();
        sums.0[8] = number_of(config.mapping).into();
        for pool in &config.pools {
            let meets = |one: &AddressRange| {
                ranges.iter().any(|other| one.first <= other.last && other.first <= one.last)
            };
            if pool.addresses.iter().any(meets) {
                let allocation = pool.allocation.as_ref().unwrap_or(&config.allocation);
                sums.add(config, pool, allocation);
            }
        }
        sums
    }

    /// Sets the sum of a key that the engine does not know, from its value.
    pub fn set(&mut self, key: &str, value: &[u8]) {
        if let Some(place) = Self::KEYS.iter().position(|known| *known == key) {
            self.0[place] = fingerprint(value);
        }
    }

    fn add(&mut self, config: &Config, pool: &PoolConfig, allocation: &Allocation) {
        let least = pool.addresses.iter().map(|range| range.first.to_bits()).min();
        let mut put = |key: usize, value: &[u8]| {
            let mut bytes = Vec::from(least.unwrap_or_default().to_le_bytes());
            bytes.push(key as u8);
            bytes.extend(value);
            self.0[key] = self.0[key].wrapping_add(fingerprint(&bytes));
        };
        let plan = match allocation {
            Allocation::Block(block) => {
                put(0, b"block");
                put(1, &block.size.to_le_bytes());
                return;
            }
            Allocation::Address => {
                put(0, b"address");
                return;
            }
            Allocation::Deterministic(plan) => plan,
            // Any port can be any subscriber's.
            _ => return,
        };
        put(0, b"deterministic");
        let ends = |(first, last): (u32, u32)| [first.to_le_bytes(), last.to_le_bytes()].concat();
        let ranges =
            pool.addresses.iter().map(|range| (range.first.to_bits(), range.last.to_bits()));
        put(2, &ranges.flat_map(ends).collect::<Vec<_>>());
        put(3, &[pool.ports.0.to_le_bytes(), pool.ports.1.to_le_bytes()].concat());
        let realm = usize::from(plan.realm).checked_sub(1).and_then(|at| config.realms.get(at));
        put(4, realm.map_or("", |realm| &realm.name).as_bytes());
        let prefixes = plan.subscribers.iter().map(|prefix| (prefix.first(), prefix.last()));
        put(5, &prefixes.flat_map(ends).collect::<Vec<_>>());
        put(6, &plan.ports_per_subscriber.unwrap_or_default().to_le_bytes());
        put(7, &plan.dynamic_ports.to_le_bytes());
    }

    /// The keys whose sums differ. If pools have other kinds of allocation, no other key is named.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let keys = Self::KEYS.into_iter().zip(self.0.iter().zip(&other.0));
        let differing: Vec<_> =
            keys.filter(|(_, (own, its))| own != its).map(|(key, _)| key).collect();
        match differing.first() {
            Some(&first) if first == Self::KEYS[0] => Vec::from([first]),
            _ => differing,
        }
    }

    /// Appends the sums as bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
    }

    /// Reads sums. `None`: there are more or fewer bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (words, odd) = bytes.as_chunks();
        let sums: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        sums.try_into().ok().filter(|_| odd.is_empty()).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BlockConfig, DeterministicConfig, Prefix, RealmConfig};
    use alloc::vec;
    use core::net::Ipv4Addr;
    use core::time::Duration;

    fn range(first: u8, last: u8) -> AddressRange {
        let at = |last| Ipv4Addr::new(203, 0, 113, last);
        AddressRange { first: at(first), last: at(last) }
    }

    fn plan(len: u8) -> DeterministicConfig {
        DeterministicConfig {
            subscribers: vec![Prefix::new(Ipv4Addr::new(10, 0, 0, 0), len)],
            ..DeterministicConfig::default()
        }
    }

    fn pool(addresses: AddressRange, allocation: Allocation) -> PoolConfig {
        let allocation = Some(allocation);
        PoolConfig { addresses: vec![addresses], allocation, ..PoolConfig::default() }
    }

    fn config(pools: Vec<PoolConfig>) -> Config {
        let named = |name: &str| RealmConfig { name: name.into(), ..RealmConfig::default() };
        Config { pools, realms: vec![named("red"), named("blue")], ..Config::default() }
    }

    #[test]
    fn each_key_that_gives_ports_is_compared() {
        let computed = |plan| pool(range(1, 4), Allocation::Deterministic(plan));
        let sums = |pool| Arithmetic::of(&config(vec![pool]), &[range(2, 2)]);
        let own = sums(computed(plan(28)));
        let differs = |pool: PoolConfig| own.differences(&sums(pool));
        assert!(differs(computed(plan(28))).is_empty());
        assert_eq!(differs(computed(plan(27))), ["subscribers"]);
        assert_eq!(
            differs(computed(DeterministicConfig { dynamic_ports: 5, realm: 1, ..plan(28) })),
            ["realm", "dynamic_ports"]
        );
        let less = DeterministicConfig { ports_per_subscriber: Some(64), ..plan(28) };
        assert_eq!(differs(computed(less)), ["ports_per_subscriber"]);
        let further = PoolConfig { ports: (2000, 2999), ..computed(plan(28)) };
        assert_eq!(differs(further), ["ports"]);
        let longer = PoolConfig { addresses: vec![range(1, 5)], ..computed(plan(28)) };
        assert_eq!(differs(longer), ["addresses"]);
        assert_eq!(differs(pool(range(1, 4), Allocation::Random)), ["allocation"]);
        let block = |size| {
            let block = BlockConfig { size, max_per_subscriber: 1, release_after: Duration::ZERO };
            sums(pool(range(1, 4), Allocation::Block(block)))
        };
        assert_eq!(block(512).differences(&block(1024)), ["nat.block.size"]);
        assert_eq!(own.differences(&block(512)), ["allocation"]);
        let mut other = config(vec![computed(plan(28))]);
        other.mapping = crate::Behavior::AddressDependent;
        assert_eq!(own.differences(&Arithmetic::of(&other, &[range(2, 2)])), ["nat.mapping"]);
        let mut of_hosts = own;
        of_hosts.set("nat64.subscriber_length", &[64]);
        assert_eq!(own.differences(&of_hosts), ["nat64.subscriber_length"]);
    }

    #[test]
    fn other_orders_and_other_addresses_do_not_count() {
        let pools = [
            pool(range(1, 2), Allocation::Deterministic(plan(28))),
            pool(range(3, 4), Allocation::Deterministic(plan(29))),
            pool(range(5, 6), Allocation::Deterministic(plan(30))),
        ];
        let [a, b, c] = pools;
        let one = config(vec![a.clone(), b.clone(), c.clone()]);
        let mut other = config(vec![b, a]);
        other.realms.reverse();
        assert_eq!(Arithmetic::of(&one, &[range(1, 4)]), Arithmetic::of(&other, &[range(1, 4)]));
        assert_ne!(Arithmetic::of(&one, &[range(1, 6)]), Arithmetic::of(&other, &[range(1, 6)]));
        let sums = Arithmetic::of(&one, &[range(1, 6)]);
        let mut bytes = Vec::new();
        sums.write(&mut bytes);
        assert_eq!((bytes.len(), Arithmetic::read(&bytes)), (Arithmetic::LEN, Some(sums)));
        assert_eq!(Arithmetic::read(&bytes[1..]), None);
    }
}
