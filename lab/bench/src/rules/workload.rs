//! Rules and packets. The paper does not describe its rules, so there are two sorts. The first is a
//! carrier's: most rules match single hosts. The second is scattered over all addresses and
//! lengths, so no table of QNS is empty.

use super::Source;
use crate::random::Random;
use natgate_engine::{Match, Prefix, Rule, RuleAction};
use serde::Serialize;
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// Number of pools in the rules.
const POOLS: u64 = 64;
/// Upper bound of the random ports in rules. Port 0 stands for any port.
const PORTS: u64 = 1024;

/// Sorts of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sort {
    /// In 10.0.0.0/8: seven tenths hosts, two tenths /24, the rest /16 to /23; a quarter with a
    /// port.
    Carrier,
    /// All lengths from /8 to /32 equally often, over all addresses; half with a port.
    Scattered,
}

impl Sort {
    pub(super) const ALL: [Self; 2] = [Self::Carrier, Self::Scattered];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Carrier => "a carrier's",
            Self::Scattered => "scattered",
        }
    }

    fn draw(self, random: &mut Random) -> (Prefix, u16) {
        let address = random.next() as u32;
        let (address, len, with_port) = match self {
            Self::Carrier => {
                let len = match random.below(10) {
                    0..7 => 32,
                    7..9 => 24,
                    _ => 16 + random.below(8) as u8,
                };
                (0x0a00_0000 | address >> 8, len, random.below(4) == 0)
            }
            Self::Scattered => (address, 8 + random.below(25) as u8, random.below(2) == 0),
        };
        let port = if with_port { 1 + random.below(PORTS - 1) as u16 } else { 0 };
        (Prefix::new(Ipv4Addr::from_bits(address), len), port)
    }

    /// Creates `count` rules with different matches.
    pub(super) fn rules(self, count: u64, random: &mut Random) -> Vec<Rule> {
        let mut seen = HashSet::new();
        let mut rules = Vec::with_capacity(count as usize);
        while (rules.len() as u64) < count {
            let matches = self.draw(random);
            if seen.insert(matches) {
                let action = RuleAction::Snat(random.below(POOLS) as usize);
                rules.push(Rule::new(Match::Source(matches.0, matches.1), action));
            }
        }
        rules
    }
}

/// Creates `count` packets. A random rule matches each packet, and perhaps a better rule does, too.
pub(super) fn packets(rules: &[Rule], count: usize, random: &mut Random) -> Vec<Source> {
    let packet = |_| {
        let (prefix, port, _) = looks_at(&rules[random.below(rules.len() as u64) as usize]);
        let host = random.next() as u32 & (prefix.first() ^ prefix.last());
        let any = 1024 + random.below(64_512) as u16;
        (prefix.first() | host, if port == 0 { any } else { port })
    };
    (0..count).map(packet).collect()
}

/// Prefix, port and pool of a rule; all rules here match the source.
pub(super) fn looks_at(rule: &Rule) -> (Prefix, u16, u32) {
    let (Match::Source(prefix, port) | Match::Destination(prefix, port)) = rule.matches;
    match rule.action {
        RuleAction::Snat(pool) => (prefix, port, pool as u32),
        _ => (prefix, port, u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::super::linear::Linear;
    use super::super::natgate::Natgate;
    use super::super::qns::Qns;
    use super::super::{BATCH, Finder};
    use super::*;

    #[test]
    fn all_ways_find_the_same_rules() {
        let mut random = Random::new(3);
        for sort in Sort::ALL {
            let rules = sort.rules(3000, &mut random);
            let (linear, qns, natgate) =
                (Linear::build(&rules), Qns::build(&rules), Natgate::build(&rules));
            let mut packets = packets(&rules, 20_000, &mut random);
            packets.extend((0..20_000).map(|_| (random.next() as u32, random.next() as u16)));
            for sources in packets.chunks(BATCH) {
                let [mut batch, mut qns_batch] = [[None; BATCH]; 2];
                natgate.find_batch(sources, &mut batch);
                qns.find_batch(sources, &mut qns_batch);
                for ((&source, batched), qns_batched) in sources.iter().zip(batch).zip(qns_batch) {
                    let wanted = linear.find(source);
                    assert_eq!(qns.find(source), wanted, "QNS, {source:?}");
                    assert_eq!(natgate.find(source), wanted, "natgate, {source:?}");
                    assert_eq!(batched, wanted, "natgate in a batch, {source:?}");
                    assert_eq!(qns_batched, wanted, "QNS in a batch, {source:?}");
                }
            }
        }
    }
}
