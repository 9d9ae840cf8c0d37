//! Services (RFC 2391): several servers behind one external endpoint, and which of them gets a new
//! session.
//!
//! Each server has a mapping of its own, always there, with the same external endpoint; the port
//! belongs to the first of them, and the table's index of shared ends tells whose a session is. So
//! what is kept here is only who may get new ones. Where a remote address stays with one server
//! nothing is remembered of it either: each server has a number for the address, the highest wins,
//! and a server that goes leaves the others' numbers as they are (rendezvous hashing).

use crate::config::{Affinity, Config};
use crate::endpoint::{AddressPort, External};
use crate::random::{Generator, HashKey};
use alloc::vec::Vec;

/// A server as its service knows it.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Its mapping's slot.
    slot: u32,
    /// Its address and port.
    endpoint: u64,
    /// Its part in the choice; 0: it gets no new sessions.
    share: u16,
}

/// A service of one protocol.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    /// Its members: the first, and how many.
    first: usize,
    count: usize,
    affinity: Affinity,
    /// The sum of its members' shares.
    shares: u32,
}

/// Protocol, index of the external address, port.
fn key(protocol: u8, External { index, port }: External) -> u64 {
    u64::from(index) << 24 | u64::from(port) << 8 | u64::from(protocol)
}

/// All services.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    /// In order of their keys.
    entries: Vec<Entry>,
    members: Vec<Member>,
    hash: HashKey,
}

impl Services {
    pub(crate) fn new(hash: HashKey) -> Self {
        Self { entries: Vec::new(), members: Vec::new(), hash }
    }

    /// What decides who serves whom.
    pub(crate) fn key(&self) -> [u64; 3] {
        self.hash.words()
    }

    /// Goes by another's key, so that everybody's server stays the same.
    pub(crate) fn set_key(&mut self, words: [u64; 3]) {
        self.hash = HashKey::from_words(words);
    }

    /// Bytes that they take.
    pub(crate) fn memory(config: &Config) -> u64 {
        let of = |servers: usize| 4 * (size_of::<Entry>() + servers * size_of::<Member>());
        config.services.iter().map(|service| of(service.servers.len()) as u64).sum()
    }

    /// Begins a service of a protocol at an external endpoint, which is given by its address's
    /// index.
    pub(crate) fn add(&mut self, protocol: u8, external: External, affinity: Affinity) {
        let (key, first) = (key(protocol, external), self.members.len());
        self.entries.push(Entry { key, first, count: 0, affinity, shares: 0 });
    }

    /// Adds a server to the service that was begun last.
    pub(crate) fn add_server(
        &mut self,
        slot: u32,
        AddressPort { address, port }: AddressPort,
        share: u16,
    ) {
        let endpoint = u64::from(address) << 16 | u64::from(port);
        self.members.push(Member { slot, endpoint, share });
        let entry = self.entries.last_mut().expect("a service was begun");
        entry.count += 1;
        entry.shares += u32::from(share);
    }

    /// Puts all that were added where they are found.
    pub(crate) fn settle(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.key);
    }

    /// The slot of the mapping of the server that gets a new session from a remote address; `None`:
    /// there is no such service, or no server of it takes any.
    pub(crate) fn choose(
        &self,
        protocol: u8,
        external: External,
        remote: u32,
        generator: &mut Generator,
    ) -> Option<u32> {
        let key = key(protocol, external);
        let at = self.entries.binary_search_by_key(&key, |entry| entry.key).ok()?;
        let Entry { first, count, affinity, shares, .. } = self.entries[at];
        let members = &self.members[first..first + count];
        match affinity {
            _ if shares == 0 => None,
            Affinity::Address => self.highest(members, remote),
            Affinity::None => drawn(members, generator.below(shares)),
        }
    }

    /// The member whose number for a remote address is the highest. With a hash as a fraction u of
    /// 1, it is -share / log u, so that each has the highest as often as its share says.
    fn highest(&self, members: &[Member], remote: u32) -> Option<u32> {
        let mut best: Option<(u64, u64, u32)> = None;
        for member in members.iter().filter(|member| member.share > 0) {
            // Once more, for the numbers of servers alike must not be alike.
            let hash = self.hash.hash(member.endpoint, u64::from(remote) | 1 << 60);
            let hash = self.hash.hash(hash, member.endpoint);
            let (share, log) = (u64::from(member.share), negative_log(hash));
            // One quotient against another, without dividing.
            let better = best.is_none_or(|(best_share, best_log, _)| {
                u128::from(share) * u128::from(best_log) > u128::from(best_share) * u128::from(log)
            });
            if better {
                best = Some((share, log, member.slot));
            }
        }
        best.map(|(.., slot)| slot)
    }
}

/// The member at this place of all shares, one after the other.
fn drawn(members: &[Member], mut place: u32) -> Option<u32> {
    let member = members.iter().find(|member| {
        let here = place < u32::from(member.share);
        place -= if here { 0 } else { u32::from(member.share) };
        here
    });
    member.map(|member| member.slot)
}

/// Parts that the logarithms from 1 to 2 are tabled in, a power of two.
const PARTS: usize = 256;

/// log2(1 + i / 256) in units of 2^-32, by squaring.
const LOGS: [u64; PARTS + 1] = {
    let mut logs = [0; PARTS + 1];
    let mut part = 1;
    while part < PARTS {
        // 1 to 2, in units of 2^-63.
        let mut value = ((PARTS + part) as u128) << (63 - PARTS.trailing_zeros());
        let (mut log, mut bits) = (0, 0);
        while bits < 32 {
            value = (value * value) >> 63;
            log <<= 1;
            if value >> 64 != 0 {
                value >>= 1;
                log |= 1;
            }
            bits += 1;
        }
        logs[part] = log;
        part += 1;
    }
    logs[PARTS] = 1 << 32;
    logs
};

/// -log2 of a hash as a fraction of 2^64, in units of 2^-32; at least 1. Between the tabled values
/// it is a straight line: off by less than a part in 300, for values near 0 too.
fn negative_log(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = hash.leading_zeros();
    // The first bit is always 1; then the part, then how far into it.
    let mantissa = hash << zeros;
    let shift = 63 - PARTS.trailing_zeros();
    let part = (mantissa >> shift) as usize - PARTS;
    let within = mantissa << (64 - shift) >> 32;
    let log = LOGS[part] + (((LOGS[part + 1] - LOGS[part]) * within) >> 32);
    (((u64::from(zeros) + 1) << 32) - log).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;
    use alloc::vec;

    fn services(shares: &[u16], affinity: Affinity) -> (Services, Generator) {
        let mut generator = Generator::new([3; 32]);
        let mut services = Services::new(HashKey::new(&mut generator));
        services.add(6, External::new(2, 80), affinity);
        for (number, &share) in shares.iter().enumerate() {
            services.add_server(
                number as u32,
                AddressPort::new(10 << 24 | number as u32, 8080),
                share,
            );
        }
        services.settle();
        (services, generator)
    }

    /// How many of so many remote addresses each server gets.
    fn spread(shares: &[u16], affinity: Affinity) -> Vec<u32> {
        let (services, mut generator) = services(shares, affinity);
        let mut got = vec![0; shares.len()];
        for remote in 0..100_000 {
            let slot = services
                .choose(6, External::new(2, 80), 0xc633_0000 + remote, &mut generator)
                .unwrap();
            got[slot as usize] += 1;
        }
        got
    }

    #[test]
    fn logarithms_are_right() {
        for hash in [u64::MAX, 1 << 63, (1 << 63) + 1, u64::MAX - (1 << 50), 12_345, 1, 3 << 40] {
            let right = 64.0 - (hash as f64).log2();
            let here = negative_log(hash) as f64 / (1_u64 << 32) as f64;
            assert!((here - right).abs() <= right * 0.004 + 1e-9, "{hash:x}: {here}, not {right}");
        }
    }

    #[test]
    fn sessions_are_spread_by_weight() {
        for affinity in [Affinity::Address, Affinity::None] {
            for shares in [&[1_u16, 1][..], &[1, 2, 5], &[100, 0, 300], &[65_535, 65_535, 1]] {
                let all: u32 = shares.iter().map(|&share| u32::from(share)).sum();
                for (&got, &share) in spread(shares, affinity).iter().zip(shares) {
                    let right = 100_000.0 * f64::from(share) / f64::from(all);
                    let off = (f64::from(got) - right).abs();
                    // Five standard deviations, and what the logarithm is off by.
                    assert!(off <= 5.0 * right.sqrt() + right * 0.01 + 1.0, "{shares:?}: {got}");
                }
            }
        }
    }

    #[test]
    fn a_server_that_goes_moves_only_its_own() {
        let (all, mut generator) = services(&[1, 2, 3, 4], Affinity::Address);
        let (without, _) = services(&[1, 2, 0, 4], Affinity::Address);
        for remote in 0..20_000 {
            let before = all.choose(6, External::new(2, 80), remote, &mut generator).unwrap();
            let after = without.choose(6, External::new(2, 80), remote, &mut generator).unwrap();
            assert!(after != 2 && (before == 2 || before == after));
        }
    }

    #[test]
    fn nobody_is_chosen_where_nobody_is() {
        let (nobody, mut generator) = services(&[0, 0], Affinity::Address);
        assert_eq!(nobody.choose(6, External::new(2, 80), 1, &mut generator), None);
        let (some, mut generator) = services(&[1], Affinity::None);
        assert_eq!(some.choose(17, External::new(2, 80), 1, &mut generator), None);
        assert_eq!(some.choose(6, External::new(2, 81), 1, &mut generator), None);
    }
}
