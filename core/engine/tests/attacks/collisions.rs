//! Keys that are chosen to collide: an attacker who knew the seed could make all lookups of a table
//! take the same long way. Hash and index are the engine's own files, so that the keys are bad for
//! the real table. The effects in the engine are seen from outside.

#[allow(dead_code, missing_docs)]
#[path = "../../src/index.rs"]
mod index;
#[allow(dead_code, missing_docs, unreachable_pub)]
#[path = "../../src/random.rs"]
mod random;

use crate::common::*;
use crate::world::*;
use index::Index;
use natgate_engine::Config;
use natgate_wire::protocol;
use random::{Generator, HashKey};
use std::collections::BTreeSet;
use std::time::Instant;

/// Number of mappings in the table, and number of buckets of its index.
const CAPACITY: usize = 1000;
const BUCKETS: u64 = 155;

/// The seed that the attacker has found out, and other seeds.
const KNOWN: u8 = 1;
const OTHERS: [u8; 4] = [2, 3, 4, 5];

fn hash_key(seed: u8) -> HashKey {
    HashKey::new(&mut Generator::new([seed; 32]))
}

/// The hash of an internal endpoint's TCP mapping, computed like the table's.
fn hash(key: HashKey, (address, port): (u32, u16)) -> u64 {
    let end = u64::from(address) << 32 | u64::from(port) << 16;
    key.hash(end | u64::from(protocol::TCP), 0)
}

/// True if a lookup begins with the first bucket.
fn begins_first(hash: u64) -> bool {
    ((hash >> 32) * BUCKETS) >> 32 == 0
}

/// Internal endpoints whose hash under the known seed meets a predicate.
fn chosen(count: usize, is_bad: impl Fn(u64) -> bool) -> Vec<(u32, u16)> {
    let key = hash_key(KNOWN);
    let all =
        (0x0a64_0000_u32..).flat_map(|address| (1024..=65_535).map(move |port| (address, port)));
    all.filter(|&end| is_bad(hash(key, end))).take(count).collect()
}

/// Average number of entries that a lookup visits in an index of these endpoints.
fn looks(seed: u8, ends: &[(u32, u16)]) -> f64 {
    let key = hash_key(seed);
    let mut index = Index::new(CAPACITY);
    for (slot, &end) in ends.iter().enumerate() {
        index.insert(hash(key, end), slot as u32);
    }
    let mut looks = 0;
    for (slot, &end) in ends.iter().enumerate() {
        let found = index.find(hash(key, end), |at| {
            looks += 1;
            at == slot as u32
        });
        assert_eq!(found, Some(slot as u32));
    }
    f64::from(looks) / ends.len() as f64
}

/// Forty endpoints with one bucket and one tag under the known seed: a lookup visits 20.5 of them
/// on average. Under any other seed it visits only its own.
#[test]
fn endpoints_that_collide_under_one_seed_do_not_under_another() {
    let ends = chosen(40, |hash| begins_first(hash) && hash as u16 | 1 == 0x1235);
    let known = looks(KNOWN, &ends);
    assert_eq!(known, 20.5, "the chosen endpoints are bad ones for the real index");
    for seed in OTHERS {
        let other = looks(seed, &ends);
        println!(
            "entries looked at in a lookup: {known} under the known seed, {other} under another"
        );
        assert!(other < 1.2);
    }
}

/// A full table of endpoints that all begin in one bucket: it is slow under the known seed only,
/// and its results are right under each.
#[test]
fn a_table_full_of_colliding_endpoints_translates_rightly() {
    let ends = chosen(CAPACITY, begins_first);
    for seed in [KNOWN, OTHERS[0]] {
        let mut config = Config::default();
        config.pools = crate::common::config().pools;
        config.limits.mappings = Some(CAPACITY as u32);
        config.limits.new_mappings_per_second = 1_000_000;
        let mut lab = Lab::seeded(&config, seed);
        let name = |&(address, port): &(u32, u16)| {
            format!("{}:{port}", std::net::Ipv4Addr::from_bits(address))
        };
        let began = Instant::now();
        let external: Vec<String> =
            ends.iter().map(|end| lab.external_of(&tcp(&name(end), REMOTE, "S", 1, 0))).collect();
        println!("seed {seed}: {CAPACITY} mappings in {:?}", began.elapsed());
        assert_eq!(external.iter().collect::<BTreeSet<_>>().len(), CAPACITY);
        for (end, external) in ends.iter().zip(&external) {
            assert_eq!(lab.external_of(&tcp(&name(end), REMOTE, "A", 2, 2)), *external);
            assert_eq!(ends_of(&mut lab, external), name(end));
        }
        // All mappings go, in any order, and leave the index in order: others take their place.
        lab.wait_s(3600.0 * 3.0);
        assert_eq!(lab.removed().len(), CAPACITY);
        lab.created();
        for n in 0..CAPACITY {
            lab.out(&tcp(&format!("10.1.{}.{}:4000", n / 250, n % 250), REMOTE, "S", 1, 0));
        }
        assert!(!passes(&mut lab, natgate_engine::Side::Inside, &tcp(VICTIM, REMOTE, "S", 1, 0)));
    }
}

/// The internal endpoint that a reply to an external endpoint reaches.
fn ends_of(lab: &mut Lab, external: &str) -> String {
    ends(&lab.inward(&tcp(REMOTE, external, "SA", 1, 2))).1
}
