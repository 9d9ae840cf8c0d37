//! Rules by prefix and port: packets that bypass translation or are dropped, the pool or address
//! for other packets, and the translation of destinations.
//!
//! A [`RuleSet`] is made apart from the engine, in another thread if need be, and never changes.
//! The cost of a search hardly grows with the number of rules. `build` computes the best rule of
//! every address in advance. A search takes two or three steps through a trie (`trie`), and each
//! step reads one cache line. There are four tries: for the source and the destination, each
//! without and with the port. The best of their answers wins. A batch of searches takes its steps
//! together and prefetches the data of the next steps (`search`).
//!
//! The rank of a rule is one number: priority, then length of the prefix, then exact port, then
//! source before destination. Answers are numbered by rank, so the greatest answer is the best
//! rule's.
//!
//! Rules that translate destinations have a search of their own, through tries of the same kind
//! (`dnat`). Both searches use the original endpoints of a packet.

mod build;
mod dnat;
mod search;
#[cfg(test)]
mod tests;
mod trie;

pub use search::RuleBatch;

use crate::ConfigError;
use crate::config::{Allocation, Config, Rule};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::net::Ipv4Addr;
use dnat::Dnats;
use trie::{Ref, Root, Tries};

/// Decision of the best rule about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Forward the packet untranslated.
    Bypass,
    /// Drop the packet.
    Drop,
    /// Translate the packet's source.
    Snat(Snat),
}

/// Source of the external endpoint of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Snat {
    /// The pool, by its index.
    pub pool: usize,
    /// The required address of the pool; `None`: any address, by the pooling behavior.
    pub address: Option<Ipv4Addr>,
    /// The rule's set of timeouts, by its number; 0: none.
    pub timeouts: u8,
    /// The rule's mark; 0: none.
    pub mark: u16,
}

impl Snat {
    /// Any address of a pool, without a rule's own timeouts and mark.
    pub(crate) const fn of_pool(pool: usize) -> Self {
        Self { pool, address: None, timeouts: 0, mark: 0 }
    }
}

/// Rules, ready to be searched. Clones share their memory.
#[derive(Clone, Debug)]
pub struct RuleSet {
    source: Roots,
    destination: Roots,
    dnat: Dnats,
    tries: Tries,
    /// Rulings of the answers, from answer 1 on.
    rulings: Arc<[Ruling]>,
    len: usize,
    by_port: bool,
    /// Pools of the rules that look at a port, in order.
    pools_by_port: Arc<[usize]>,
    drops: bool,
    bypasses: bool,
}

/// Roots of the tries for one endpoint of a packet.
#[derive(Clone, Copy, Debug, Default)]
struct Roots {
    any_port: Option<Root>,
    by_port: Option<Root>,
}

impl RuleSet {
    /// Most rules of a set.
    pub const MOST_RULES: usize = Ref::MOST_ANSWER as usize;
    /// Most different priorities in a set.
    pub const MOST_PRIORITIES: usize = 16;

    /// Computes the decision for every address and port.
    ///
    /// # Errors
    /// [`ConfigError`] when two rules match the same with the same priority, when there are too
    /// many rules or priorities, and for rules that this version does not have.
    pub fn new(rules: &[Rule]) -> Result<Self, ConfigError> {
        build::build(rules)
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no rule.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if a rule looks at a port.
    #[inline(always)]
    pub fn by_port(&self) -> bool {
        self.by_port
    }

    /// Pools of the rules that look at a port, in order.
    pub fn pools_by_port(&self) -> &[usize] {
        &self.pools_by_port
    }

    /// True if a rule drops packets.
    #[inline(always)]
    pub fn drops(&self) -> bool {
        self.drops
    }

    /// True if a rule lets packets bypass translation.
    #[inline(always)]
    pub(crate) fn bypasses(&self) -> bool {
        self.bypasses
    }

    /// Bytes that the rules take.
    pub fn memory(&self) -> u64 {
        let pools = size_of_val(&*self.pools_by_port);
        (self.tries.memory() + size_of_val(&*self.rulings) + pools + self.dnat.memory()) as u64
    }

    /// Checks that the pools and addresses that rules name exist.
    ///
    /// # Errors
    /// [`ConfigError`] names the first pool or address that does not exist.
    pub(crate) fn check(
        &self,
        config: &Config,
        has: impl Fn(usize, Ipv4Addr) -> bool,
    ) -> Result<(), ConfigError> {
        let fail = |message: String| Err(ConfigError { message });
        for ruling in self.rulings.iter() {
            let Ruling::Snat(Snat { pool, address, timeouts, .. }) = *ruling else { continue };
            if usize::from(timeouts) > config.timeout_sets.len() {
                return fail(format!(
                    "a rule names set {timeouts} of timeouts, which is not there"
                ));
            }
            let Some(named) = config.pools.get(pool) else {
                return fail("a rule names a pool that does not exist".into());
            };
            let (Some(address), name) = (address, &named.name) else { continue };
            if !has(pool, address) {
                return fail(format!(
                    "a rule takes {address} from pool {name}, which does not have it"
                ));
            }
            let allocation = config.allocation_of(named);
            if !matches!(allocation, Allocation::Random | Allocation::Preserve) {
                return fail(format!(
                    "a rule takes {address} from pool {name}, whose ports are shared out: no \
                     subscriber can have an address of another's there"
                ));
            }
        }
        Ok(())
    }
}
