//! Rules by prefix and port: which packets bypass translation or are dropped, which pool or address
//! serves the others, and where destinations are translated to.
//!
//! A [`RuleSet`] is made apart from the engine, in another thread if need be, and never changes.
//! What it costs to ask it hardly grows with the rules: which is best is worked out for every
//! address when it is made (`build`), and a search takes two or three steps through a trie
//! (`trie`), each of which reads one cache line. There are four tries to ask, for the source and
//! the destination each without and with the port; the best of their answers is the answer. A batch
//! of searches takes its steps together and fetches what the next ones need (`search`).
//!
//! Which rule is better is one number, its rank: priority, then length of the prefix, then whether
//! the port is exact, then the source before the destination. Answers are numbered by rank, so the
//! greatest is the best rule's.
//!
//! Rules that translate destinations are a search of their own, through tries of the same kind
//! (`dnat`): of a packet both searches ask the ends that it came with.

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

/// What the best rule says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Forward it untranslated.
    Bypass,
    /// Drop it.
    Drop,
    /// Translate its source.
    Snat(Snat),
}

/// Where the external endpoint of a new mapping comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Snat {
    /// The pool, by its index.
    pub pool: usize,
    /// The one address of the pool that it is to be; `None`: any, as the pooling behavior says.
    pub address: Option<Ipv4Addr>,
    /// The rule's set of timeouts, by its number; 0: none.
    pub timeouts: u8,
}

/// Rules, ready to be searched. Clones share their memory.
#[derive(Clone, Debug)]
pub struct RuleSet {
    source: Roots,
    destination: Roots,
    dnat: Dnats,
    tries: Tries,
    /// What answers stand for, from the first on.
    rulings: Arc<[Ruling]>,
    len: usize,
    by_port: bool,
    drops: bool,
    bypasses: bool,
}

/// Where the searches for one end of a packet begin, those that there are.
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

    /// Works out what to do with every packet.
    ///
    /// # Errors
    /// [`ConfigError`] when two rules match the same with the same priority, when there are too
    /// many rules or priorities, and for rules that this version does not have.
    pub fn new(rules: &[Rule]) -> Result<Self, ConfigError> {
        build::build(rules)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no rule.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a rule looks at a port.
    #[inline(always)]
    pub fn by_port(&self) -> bool {
        self.by_port
    }

    /// Whether a rule drops packets.
    #[inline(always)]
    pub fn drops(&self) -> bool {
        self.drops
    }

    /// Whether a rule sends packets past the translator.
    #[inline(always)]
    pub(crate) fn bypasses(&self) -> bool {
        self.bypasses
    }

    /// Bytes that it takes.
    pub fn memory(&self) -> u64 {
        (self.tries.memory() + size_of_val(&*self.rulings) + self.dnat.memory()) as u64
    }

    /// Whether the pools have what the rules take from them.
    ///
    /// # Errors
    /// [`ConfigError`] names the first pool or address that is not there.
    pub(crate) fn check(
        &self,
        config: &Config,
        has: impl Fn(usize, Ipv4Addr) -> bool,
    ) -> Result<(), ConfigError> {
        let fail = |message: String| Err(ConfigError { message });
        for ruling in self.rulings.iter() {
            let Ruling::Snat(Snat { pool, address, timeouts }) = *ruling else { continue };
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
