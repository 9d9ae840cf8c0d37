//! Rules by prefix and port: which packets bypass translation, and which pool serves the others.

use crate::config::{Match, Prefix, Rule, RuleAction};
use alloc::vec::Vec;

/// What the best rule says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// Forward it untranslated.
    Bypass,
    /// Translate its source from this pool.
    Pool(usize),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    prefix: Prefix,
    port: u16,
    by_source: bool,
    ruling: Ruling,
}

/// The rules, best first: the longest prefix, then the exact port, then the source's.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    entries: Vec<Entry>,
    by_port: bool,
}

impl Rules {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let entry = |rule: &Rule| {
            let (prefix, port, by_source) = match rule.matches {
                Match::Source(prefix, port) => (prefix, port, true),
                Match::Destination(prefix, port) => (prefix, port, false),
            };
            let ruling = match rule.action {
                RuleAction::Bypass => Ruling::Bypass,
                RuleAction::Snat(pool) => Ruling::Pool(pool),
                RuleAction::Dnat(..) => return None,
            };
            Some(Entry { prefix, port, by_source, ruling })
        };
        let mut entries: Vec<Entry> = rules.iter().filter_map(entry).collect();
        entries.sort_by_key(|entry| {
            (core::cmp::Reverse(entry.prefix.len()), entry.port == 0, !entry.by_source)
        });
        Self { by_port: entries.iter().any(|entry| entry.port != 0), entries }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a rule looks at a port.
    pub(crate) fn by_port(&self) -> bool {
        self.by_port
    }

    /// The best rule for a packet with these endpoints, `inner` being the one on the inside.
    #[inline]
    pub(crate) fn find(&self, inner: (u32, u16), outer: (u32, u16)) -> Option<Ruling> {
        self.entries
            .iter()
            .find(|entry| {
                //= rfc6888#REQ-6
                let (address, port) = if entry.by_source { inner } else { outer };
                entry.prefix.contains(address) && (entry.port == 0 || entry.port == port)
            })
            .map(|entry| entry.ruling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn rule(matches: fn(Prefix, u16) -> Match, len: u8, port: u16, action: RuleAction) -> Rule {
        let prefix = Prefix::new(Ipv4Addr::new(10, 1, 2, 3), len);
        Rule { matches: matches(prefix, port), action }
    }

    #[test]
    fn longest_prefix_wins_then_exact_port() {
        let rules = Rules::new(&[
            rule(Match::Source, 8, 0, RuleAction::Snat(1)),
            rule(Match::Source, 16, 0, RuleAction::Snat(2)),
            rule(Match::Source, 16, 80, RuleAction::Bypass),
            rule(Match::Destination, 32, 53, RuleAction::Snat(3)),
        ]);
        let pool = |pool| Some(Ruling::Pool(pool));
        let (a, b) = (0x0a01_0001, 0x0a02_0001);
        assert_eq!(rules.find((b, 5), (1, 1)), pool(1));
        assert_eq!(rules.find((a, 5), (1, 1)), pool(2));
        assert_eq!(rules.find((a, 80), (1, 1)), Some(Ruling::Bypass));
        assert_eq!(rules.find((a, 80), (0x0a01_0203, 53)), pool(3));
        assert_eq!(rules.find((1, 80), (2, 53)), None);
    }
}
