//! The compared ways to choose ports, and their configurations.

use natgate_engine::{
    AddressRange, Allocation, BlockConfig, Blocking, Config, DeterministicConfig, Limits,
    PoolConfig, Prefix,
};
use std::net::Ipv4Addr;

/// Address of the first subscriber (RFC 6598).
pub(super) const INSIDE: u32 = 0x6440_0000;
/// First external address.
const POOL: u32 = 0xcb00_7100;
const PORTS: (u16, u16) = (1024, 65_535);
/// Ports of one address.
pub(super) const PORTS_OF_ADDRESS: u32 = (PORTS.1 - PORTS.0) as u32 + 1;
/// Daily sessions of a subscriber for each mapping that the table has room for. The table is
/// several times as large as necessary.
const SESSIONS_A_MAPPING: u32 = 6;

/// A way to choose ports.
pub(super) struct Scheme {
    pub(super) name: String,
    /// Subscribers of one external address.
    pub(super) sharing: u32,
    allocation: Allocation,
    subscribers: u32,
    sessions: u32,
}

/// All compared schemes.
pub(super) fn all(plan: &super::Plan) -> Vec<Scheme> {
    let with_dynamic = |dynamic_ports| deterministic(plan.subscribers, dynamic_ports);
    // Half of an address's ports.
    let half = (PORTS_OF_ADDRESS / 2) as u16;
    [
        ("random", 64, Allocation::Random),
        ("preserve", 64, Allocation::Preserve),
        ("block, 16 of 128", 64, blocks(128, 16)),
        ("block, 4 of 512", 64, blocks(512, 4)),
        ("deterministic, 1,008", 64, with_dynamic(0)),
        ("deterministic, 504 and dynamic", 64, with_dynamic(half)),
        ("random", 256, Allocation::Random),
        ("block, 32 of 64", 256, blocks(64, 32)),
        ("deterministic, 126 and dynamic", 256, with_dynamic(half)),
    ]
    .into_iter()
    .map(|(name, sharing, allocation)| Scheme {
        name: format!("{sharing}:1 {name}"),
        sharing,
        allocation,
        subscribers: plan.subscribers,
        sessions: plan.sessions,
    })
    .collect()
}

fn blocks(size: u16, max_per_subscriber: u16) -> Allocation {
    Allocation::Block(BlockConfig { size, max_per_subscriber, ..BlockConfig::default() })
}

fn deterministic(subscribers: u32, dynamic_ports: u16) -> Allocation {
    Allocation::Deterministic(DeterministicConfig {
        subscribers: prefixes(INSIDE, subscribers),
        dynamic_ports,
        ..DeterministicConfig::default()
    })
}

/// Prefixes that cover `count` addresses from `first` on. `first` has many zero bits.
fn prefixes(mut first: u32, mut count: u32) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    while count > 0 {
        let bits = count.ilog2();
        prefixes.push(Prefix::new(Ipv4Addr::from_bits(first), 32 - bits as u8));
        first += 1 << bits;
        count -= 1 << bits;
    }
    prefixes
}

impl Scheme {
    /// Number of external addresses.
    pub(super) fn addresses(&self) -> u32 {
        self.subscribers.div_ceil(self.sharing)
    }

    /// Complete configuration; everything except sizes and allocation has its default.
    pub(super) fn config(&self) -> Config {
        let range = AddressRange {
            first: Ipv4Addr::from_bits(POOL),
            last: Ipv4Addr::from_bits(POOL + self.addresses() - 1),
        };
        let ports = self.addresses() * PORTS_OF_ADDRESS;
        // TCP's and UDP's ports together.
        let most = u64::from(ports) * 2;
        let mappings = u64::from(self.subscribers) * u64::from(self.sessions / SESSIONS_A_MAPPING);
        Config {
            pools: vec![PoolConfig {
                name: "default".into(),
                addresses: vec![range],
                ports: PORTS,
                allocation: Some(self.allocation.clone()),
                ..PoolConfig::default()
            }],
            limits: Limits {
                mappings: Some(mappings.clamp(1000, most) as u32),
                subscribers: Some(self.subscribers),
                // The remote hosts do not answer, and the table must be able to fill.
                unanswered_give_way: false,
                ..Limits::default()
            },
            ..Config::default()
        }
    }

    /// Number of blocks of all addresses; 0 if the scheme has no blocks.
    pub(super) fn blocks(&self) -> u64 {
        match &self.allocation {
            Allocation::Block(block) => {
                let each = Blocking::new(PORTS, block.size).count();
                u64::from(each) * u64::from(self.addresses())
            }
            Allocation::Address => u64::from(self.addresses()),
            _ => 0,
        }
    }

    /// Ports that `blocks` assigned blocks withhold from other subscribers; `None` if only ports in
    /// use are withheld.
    pub(super) fn set_aside(&self, blocks: u64) -> Option<u64> {
        match &self.allocation {
            Allocation::Block(block) => Some(blocks * u64::from(block.size)),
            Allocation::Address => Some(blocks * u64::from(u16::MAX)),
            Allocation::Deterministic(_) => {
                let plan = self.plan()?;
                Some(u64::from(plan.subscribers()) * u64::from(plan.ports_per_subscriber()))
            }
            Allocation::Random | Allocation::Preserve => None,
        }
    }

    /// The dynamic ports of each address, first and last.
    pub(super) fn dynamic(&self) -> Option<(u16, u16)> {
        self.plan()?.dynamic()
    }

    fn plan(&self) -> Option<natgate_engine::Plan> {
        let Allocation::Deterministic(deterministic) = &self.allocation else { return None };
        let config = self.config();
        Some(
            natgate_engine::Plan::new(deterministic, &config.pools[0])
                .expect("every subscriber has ports"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::Plan;
    use natgate_engine::{Engine, Timestamp};

    #[test]
    fn prefixes_make_up_the_addresses() {
        for count in [1, 2, 1000, 100_000] {
            let mut next = INSIDE;
            for prefix in prefixes(INSIDE, count) {
                assert_eq!(prefix.first(), next);
                next = prefix.last() + 1;
            }
            assert_eq!(next, INSIDE + count);
        }
    }

    #[test]
    fn every_scheme_can_be_run_and_is_what_its_name_says() {
        for subscribers in [1, 64, 1000] {
            for scheme in all(&Plan { subscribers, ..Plan::quick() }) {
                let engine = Engine::new(&scheme.config(), [0; 32], Timestamp(0));
                assert!(engine.is_ok(), "{}: {:?}", scheme.name, engine.err());
            }
        }
        let schemes = all(&Plan::full());
        let own = |at: usize| schemes[at].plan().expect("a plan").ports_per_subscriber();
        assert_eq!([own(4), own(5), own(8)], [1008, 504, 126]);
        assert_eq!(schemes[3].blocks(), 126 * 1563);
    }
}
