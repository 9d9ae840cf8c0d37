//! natgate's search: the rule set of its engine, asked one packet at a time, and for a batch whose
//! searches take their steps together.

use super::{BATCH, Finder, Source};
use arrayvec::ArrayVec;
use natgate_engine::{Rule, RuleSearch, RuleSet, Ruling};

/// Where the packets go; no rule looks at it.
const DESTINATION: (u32, u16) = (0xc633_6407, 443);

pub(super) struct Natgate(RuleSet);

impl Finder for Natgate {
    const BATCHED: bool = true;

    fn build(rules: &[Rule]) -> Self {
        Self(RuleSet::new(rules).expect("no two rules match the same"))
    }

    fn find(&self, source: Source) -> Option<u32> {
        self.0.find(source, DESTINATION).map(pool)
    }

    fn find_batch(&self, sources: &[Source], pools: &mut [Option<u32>]) {
        let rules = &self.0;
        let mut searches: ArrayVec<RuleSearch, BATCH> = ArrayVec::new();
        for &source in sources {
            let search = rules.search(source, DESTINATION);
            search.prefetch(rules);
            searches.push(search);
        }
        let mut more = true;
        while more {
            more = false;
            for search in &mut searches {
                more |= search.step(rules);
                search.prefetch(rules);
            }
        }
        for (search, found) in searches.iter().zip(pools) {
            *found = search.ruling(rules).map(pool);
        }
    }

    fn bytes(&self) -> u64 {
        self.0.memory()
    }
}

fn pool(ruling: Ruling) -> u32 {
    match ruling {
        Ruling::Snat(snat) => snat.pool as u32,
        Ruling::Bypass | Ruling::Drop => u32::MAX,
    }
}
