//! natgate's search: the rule set of its engine, for single packets, and for batches whose searches
//! take their steps together.

use super::{BATCH, Finder, Source};
use natgate_engine::{AddressPort, Rule, RuleBatch, RuleSet, Ruling};
use std::cell::RefCell;

const _: () = assert!(BATCH <= RuleBatch::MOST);

/// Destination of the packets; no rule reads it.
const DESTINATION: AddressPort = AddressPort::new(0xc633_6407, 443);

pub(super) struct Natgate {
    rules: RuleSet,
    batch: RefCell<RuleBatch>,
}

/// The source in the form of the engine's rules.
fn end((address, port): Source) -> AddressPort {
    AddressPort::new(address, port)
}

impl Finder for Natgate {
    const BATCHED: bool = true;

    fn build(rules: &[Rule]) -> Self {
        let rules = RuleSet::new(rules).expect("no two rules match the same");
        Self { rules, batch: RefCell::default() }
    }

    fn find(&self, source: Source) -> Option<u32> {
        self.rules.find(end(source), DESTINATION).map(pool)
    }

    fn find_batch(&self, sources: &[Source], pools: &mut [Option<u32>]) {
        let rules = &self.rules;
        let mut batch = self.batch.borrow_mut();
        batch.clear();
        for &source in sources {
            batch.add(rules, end(source), DESTINATION);
        }
        while batch.step(rules) {}
        for (packet, found) in pools[..sources.len()].iter_mut().enumerate() {
            *found = batch.ruling(rules, packet).map(pool);
        }
    }

    fn bytes(&self) -> u64 {
        self.rules.memory()
    }
}

fn pool(ruling: Ruling) -> u32 {
    match ruling {
        Ruling::Snat(snat) => snat.pool as u32,
        Ruling::Bypass | Ruling::Drop => u32::MAX,
    }
}
