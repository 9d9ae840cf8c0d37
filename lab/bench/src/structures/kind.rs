//! The compared structures, and their construction.

use super::binary::Binary;
use super::btree::BTree;
use super::cuckoo::Cuckoo;
use super::linear::Linear;
use super::lines::Lines;
use super::list::List;
use super::nat::{Headers, Nat, Translator};
use super::natgate::Natgate;
use super::radix::Radix;
use super::redblack::RedBlack;
use super::shared::Shared;
use super::swiss::Swiss;
use super::trees::Trees;
use super::{BATCH, Structure};
use serde::Serialize;

/// A structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// No table; only the headers are rewritten.
    Headers,
    /// An array of records.
    Linear,
    /// An unbalanced binary tree.
    Binary,
    /// A red-black tree.
    RedBlack,
    /// A B-tree.
    BTree,
    /// An adaptive radix tree.
    Radix,
    /// A hash table with lists.
    List,
    /// A hash table with binary trees.
    Trees,
    /// A hash table with chains of cache lines of two records.
    Lines2,
    /// A hash table with chains of cache lines of three records.
    Lines3,
    /// A cuckoo hash table.
    Cuckoo,
    /// hashbrown's table.
    Swiss,
    /// A lock-free table that all threads share.
    Shared,
    /// natgate's engine.
    Natgate,
}

impl Kind {
    /// All structures, in the order of the report.
    pub(super) const ALL: [Self; 14] = [
        Self::Headers,
        Self::Linear,
        Self::Binary,
        Self::RedBlack,
        Self::BTree,
        Self::Radix,
        Self::List,
        Self::Trees,
        Self::Lines2,
        Self::Lines3,
        Self::Cuckoo,
        Self::Swiss,
        Self::Shared,
        Self::Natgate,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers only",
            Self::Linear => "linear array",
            Self::Binary => "binary tree",
            Self::RedBlack => "red-black tree",
            Self::BTree => "B-tree",
            Self::Radix => "radix tree",
            Self::List => "hash, lists",
            Self::Trees => "hash, trees",
            Self::Lines2 => "hash, lines of 2",
            Self::Lines3 => "hash, lines of 3",
            Self::Cuckoo => "cuckoo hash",
            Self::Swiss => "hashbrown",
            Self::Shared => "shared, lock-free",
            Self::Natgate => "natgate",
        }
    }

    /// Returns true if the structure can fetch the memory of a batch together.
    pub(super) fn is_batched(self) -> bool {
        match self {
            Self::List => List::STAGES > 0,
            Self::Trees => Trees::STAGES > 0,
            Self::Lines2 => Lines::<2>::STAGES > 0,
            Self::Lines3 => Lines::<3>::STAGES > 0,
            Self::Cuckoo => Cuckoo::STAGES > 0,
            Self::Natgate => true,
            _ => false,
        }
    }
}

/// A structure, and the use of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variant {
    /// Kind of the structure.
    pub(super) kind: Kind,
    /// True if the memory of a batch is fetched together.
    pub(super) batched: bool,
}

impl Variant {
    /// All variants.
    pub(super) fn all() -> Vec<Self> {
        let both = |kind: Kind| {
            let ways = [Some(false), kind.is_batched().then_some(true)];
            ways.into_iter().flatten().map(move |batched| Self { kind, batched })
        };
        Kind::ALL.into_iter().flat_map(both).collect()
    }

    pub(super) fn name(self) -> String {
        let batched = if self.batched { ", batched" } else { "" };
        format!("{}{batched}", self.kind.name())
    }

    /// Creates a NAT with the structure, for `sessions` sessions.
    pub(super) fn build(self, sessions: usize) -> Box<dyn Translator> {
        match self.kind {
            Kind::Headers => Box::new(Headers),
            Kind::Linear => self.around::<Linear>(sessions),
            Kind::Binary => self.around::<Binary>(sessions),
            Kind::RedBlack => self.around::<RedBlack>(sessions),
            Kind::BTree => self.around::<BTree>(sessions),
            Kind::Radix => self.around::<Radix>(sessions),
            Kind::List => self.around::<List>(sessions),
            Kind::Trees => self.around::<Trees>(sessions),
            Kind::Lines2 => self.around::<Lines<2>>(sessions),
            Kind::Lines3 => self.around::<Lines<3>>(sessions),
            Kind::Cuckoo => self.around::<Cuckoo>(sessions),
            Kind::Swiss => self.around::<Swiss>(sessions),
            Kind::Shared => self.around::<Shared>(sessions),
            Kind::Natgate => {
                Box::new(Natgate::new(sessions as u64, if self.batched { BATCH } else { 1 }))
            }
        }
    }

    fn around<S: Structure + 'static>(self, sessions: usize) -> Box<dyn Translator> {
        Box::new(Nat::<S>::new(sessions, self.batched))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{External, Key};
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Checks that the structure behaves like a map with these keys.
    fn compare<S: Structure>(keys: &[(u8, u32, u16)]) {
        let mut structure = S::with_capacity(keys.len());
        let mut map = HashMap::new();
        for &(protocol, address, port) in keys {
            let key = Key::new(protocol, address, port);
            for stage in 0..S::STAGES {
                structure.prefetch(key, stage);
            }
            let number = map.len() as u32;
            let mut made = 0;
            let found = structure.translate(key, 7, || {
                made += 1;
                External::at(number)
            });
            let is_new = !map.contains_key(&key);
            assert_eq!(found, *map.entry(key).or_insert(External::at(number)));
            assert_eq!(made, u32::from(is_new), "{key:?}");
        }
    }

    fn all(keys: &[(u8, u32, u16)]) {
        compare::<Linear>(keys);
        compare::<Binary>(keys);
        compare::<RedBlack>(keys);
        compare::<BTree>(keys);
        compare::<Radix>(keys);
        compare::<List>(keys);
        compare::<Trees>(keys);
        compare::<Lines<2>>(keys);
        compare::<Lines<3>>(keys);
        compare::<Cuckoo>(keys);
        compare::<Swiss>(keys);
        compare::<Shared>(keys);
    }

    fn keys() -> impl Strategy<Value = Vec<(u8, u32, u16)>> {
        let few = (1_u8..3, 0_u32..4, 0_u16..4);
        let many = (1_u8..255, any::<u32>(), any::<u16>());
        // All keys have one port: the modulo puts every key of a small table into one bucket.
        let crowded = (Just(17_u8), any::<u32>(), Just(53_u16));
        let strategies = prop_oneof![few.boxed(), many.boxed(), crowded.boxed()];
        prop::collection::vec(strategies, 0..600)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_structure_is_as_a_map(keys in keys()) {
            all(&keys);
        }
    }

    #[test]
    fn every_structure_finds_what_it_was_filled_with() {
        let keys: Vec<_> = (0..20_000_u32).map(|n| (17, n.wrapping_mul(0x9e37_79b1), 9)).collect();
        let twice: Vec<_> = keys.iter().chain(&keys).copied().collect();
        compare::<Cuckoo>(&twice);
        compare::<Swiss>(&twice);
        compare::<Shared>(&twice);
        compare::<RedBlack>(&twice);
        compare::<Radix>(&twice);
        compare::<BTree>(&twice);
    }
}
