//! Services (RFC 2391): several servers behind one external endpoint, and the choice of a server
//! for a new session.
//!
//! Each server has a permanent mapping with the same external endpoint. The port belongs to the
//! first mapping, and the table's index of shared endpoints tells the server of a session. So this
//! file only chooses servers for new sessions. If all sessions of a remote address go to one
//! server, no memory of addresses is needed: each server has a number for the address, and the
//! highest number wins. The removal of a server does not change the numbers of the others
//! (rendezvous hashing).
//!
//! A server that is down is left out of the choice, and backup servers are in it only while no
//! other server is. The caller knows which servers are down; at first all are up.

use crate::config::{Affinity, Config, Server};
use crate::endpoint::External;
use crate::random::{Generator, HashKey};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// A server of a service.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Slot of the server's mapping.
    slot: u32,
    /// Address and port of the server.
    endpoint: u64,
    /// Share in the choice while the server is up and its turn has come; 0: no new sessions.
    weight: u16,
    is_backup: bool,
    is_up: bool,
    /// Share in the choice now.
    share: u16,
}

/// A service of one protocol.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    /// Place of the service in the configuration.
    service: usize,
    /// Place of the first member, and number of members.
    first: usize,
    count: usize,
    affinity: Affinity,
    /// The sum of the members' shares.
    shares: u32,
}

/// Protocol, index of the external address, port.
fn key(protocol: u8, External { index, port }: External) -> u64 {
    u64::from(index) << 24 | u64::from(port) << 8 | u64::from(protocol)
}

/// The endpoint of a server as a number.
fn number_of((address, port): (Ipv4Addr, u16)) -> u64 {
    u64::from(address.to_bits()) << 16 | u64::from(port)
}

/// All services.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    /// Entries, sorted by key.
    entries: Vec<Entry>,
    members: Vec<Member>,
    hash: HashKey,
}

impl Services {
    pub(crate) fn new(hash: HashKey) -> Self {
        Self { entries: Vec::new(), members: Vec::new(), hash }
    }

    /// The hash key of the choice, for another engine.
    pub(crate) fn key(&self) -> [u64; 3] {
        self.hash.words()
    }

    /// Sets the hash key of another engine, so that every remote address keeps its server.
    pub(crate) fn set_key(&mut self, words: [u64; 3]) {
        self.hash = HashKey::from_words(words);
    }

    /// Bytes that the services take.
    pub(crate) fn memory(config: &Config) -> u64 {
        let of = |servers: usize| 4 * (size_of::<Entry>() + servers * size_of::<Member>());
        config.services.iter().map(|service| of(service.servers.len()) as u64).sum()
    }

    /// Begins a service of a protocol at an external endpoint. `service`: its place in the
    /// configuration.
    pub(crate) fn add(
        &mut self,
        service: usize,
        protocol: u8,
        external: External,
        affinity: Affinity,
    ) {
        let (key, first) = (key(protocol, external), self.members.len());
        self.entries.push(Entry { key, service, first, count: 0, affinity, shares: 0 });
    }

    /// Adds a server to the latest service. It is up.
    pub(crate) fn add_server(&mut self, slot: u32, server: &Server) {
        let endpoint = number_of(server.internal);
        let (weight, is_backup) = (server.share(), server.backup);
        self.members.push(Member { slot, endpoint, weight, is_backup, is_up: true, share: 0 });
        let entry = self.entries.last_mut().expect("a service was begun");
        entry.count += 1;
    }

    /// Completes the additions: the services can be found now.
    pub(crate) fn settle(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.key);
        (0..self.entries.len()).for_each(|at| self.divide(at));
    }

    /// Marks a server of a service as up or down, for new sessions of all its protocols.
    pub(crate) fn mark(&mut self, service: usize, server: usize, is_up: bool) {
        for at in 0..self.entries.len() {
            let Entry { service: of, first, count, .. } = self.entries[at];
            if of == service && server < count {
                self.members[first + server].is_up = is_up;
                self.divide(at);
            }
        }
    }

    /// Divides the new sessions of a service among its servers.
    fn divide(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        let members = &mut self.members[entry.first..entry.first + entry.count];
        let takes = |member: &Member| member.is_up && member.weight > 0;
        let has_usual = members.iter().any(|member| takes(member) && !member.is_backup);
        entry.shares = 0;
        for member in members {
            let is_in = takes(member) && (!has_usual || !member.is_backup);
            member.share = if is_in { member.weight } else { 0 };
            entry.shares += u32::from(member.share);
        }
    }

    /// True if the server with the mapping in this slot takes no new sessions now.
    pub(crate) fn is_closed(&self, protocol: u8, external: External, slot: u32) -> bool {
        let Some(&Entry { first, count, .. }) = self.entry(protocol, external) else {
            return false;
        };
        let members = &self.members[first..first + count];
        members.iter().any(|member| member.slot == slot && member.share == 0)
    }

    /// The slot of the mapping of a server. `None`: it is none of a service with this endpoint.
    pub(crate) fn server(
        &self,
        protocol: u8,
        external: External,
        internal: (Ipv4Addr, u16),
    ) -> Option<u32> {
        let &Entry { first, count, .. } = self.entry(protocol, external)?;
        let endpoint = number_of(internal);
        let members = &self.members[first..first + count];
        members.iter().find(|member| member.endpoint == endpoint).map(|member| member.slot)
    }

    fn entry(&self, protocol: u8, external: External) -> Option<&Entry> {
        let key = key(protocol, external);
        let at = self.entries.binary_search_by_key(&key, |entry| entry.key).ok()?;
        Some(&self.entries[at])
    }

    /// The slot of the mapping of the server for a new session from a remote address. `None`: there
    /// is no such service, or no server takes new sessions.
    pub(crate) fn choose(
        &self,
        protocol: u8,
        external: External,
        remote: u32,
        generator: &mut Generator,
    ) -> Option<u32> {
        let &Entry { first, count, affinity, shares, .. } = self.entry(protocol, external)?;
        let members = &self.members[first..first + count];
        match affinity {
            _ if shares == 0 => None,
            Affinity::Address => self.highest(members, remote),
            Affinity::None => drawn(members, generator.below(shares)),
        }
    }

    /// The member with the highest number for a remote address. If u is the hash as a fraction of
    /// 1, the number is -share / log u. So each member wins as often as its share says.
    fn highest(&self, members: &[Member], remote: u32) -> Option<u32> {
        let mut best: Option<(u64, u64, u32)> = None;
        for member in members.iter().filter(|member| member.share > 0) {
            // The second hash separates the numbers of servers with similar endpoints.
            let hash = self.hash.hash(member.endpoint, u64::from(remote) | 1 << 60);
            let hash = self.hash.hash(hash, member.endpoint);
            let (share, log) = (u64::from(member.share), negative_log(hash));
            // Compares two quotients without a division.
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

/// The member at this place in the sequence of all shares.
fn drawn(members: &[Member], mut place: u32) -> Option<u32> {
    let member = members.iter().find(|member| {
        let here = place < u32::from(member.share);
        place -= if here { 0 } else { u32::from(member.share) };
        here
    });
    member.map(|member| member.slot)
}

/// Number of parts in the table of logarithms from 1 to 2, a power of two.
const PARTS: usize = 256;

/// log2(1 + i / 256) in units of 2^-32, computed by squaring.
const LOGS: [u64; PARTS + 1] = {
    let mut logs = [0; PARTS + 1];
    let mut part = 1;
    while part < PARTS {
        // A number from 1 to 2, in units of 2^-63.
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

/// -log2 of a hash as a fraction of 2^64, in units of 2^-32; at least 1. It is linear between the
/// values in the table. The error is less than one part in 300, even near 0.
fn negative_log(hash: u64) -> u64 {
    let hash = hash | 1;
    let zeros = hash.leading_zeros();
    // The first bit is always 1. Then come the part and the place within the part.
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
        let servers: Vec<_> = shares.iter().map(|&weight| (weight, false)).collect();
        services_with_backups(&servers, affinity)
    }

    /// A service of servers with weights, some of them backups.
    fn services_with_backups(servers: &[(u16, bool)], affinity: Affinity) -> (Services, Generator) {
        let mut generator = Generator::new([3; 32]);
        let mut services = Services::new(HashKey::new(&mut generator));
        services.add(7, 6, External::new(2, 80), affinity);
        for (number, &(weight, backup)) in servers.iter().enumerate() {
            let internal = (Ipv4Addr::from_bits(10 << 24 | number as u32), 8080);
            let server = Server { internal, weight, draining: false, backup };
            services.add_server(number as u32, &server);
        }
        services.settle();
        (services, generator)
    }

    /// Number of remote addresses that each server gets.
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
                    // Five standard deviations, plus the error of the logarithm.
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
    fn servers_that_are_down_get_nothing_and_backups_only_what_nobody_else_takes() {
        for affinity in [Affinity::Address, Affinity::None] {
            let of = [(1, false), (2, false), (1, true), (0, true)];
            let (mut services, mut generator) = services_with_backups(&of, affinity);
            let mut chosen = |services: &Services| {
                let mut all: Vec<u32> = (0..2000)
                    .filter_map(|remote| {
                        services.choose(6, External::new(2, 80), remote, &mut generator)
                    })
                    .collect();
                all.sort_unstable();
                all.dedup();
                all
            };
            assert_eq!(chosen(&services), [0, 1]);
            services.mark(7, 0, false);
            services.mark(6, 1, false);
            services.mark(7, 9, false);
            assert_eq!(chosen(&services), [1]);
            services.mark(7, 1, false);
            assert_eq!(chosen(&services), [2]);
            services.mark(7, 2, false);
            assert_eq!(chosen(&services), []);
            services.mark(7, 0, true);
            assert_eq!(chosen(&services), [0]);
        }
    }

    #[test]
    fn a_server_that_comes_back_gets_its_clients_back() {
        let (mut services, mut generator) = services(&[1, 2, 3], Affinity::Address);
        let mut chosen = |services: &Services| -> Vec<_> {
            let choose = |remote| services.choose(6, External::new(2, 80), remote, &mut generator);
            (0..2000).map(choose).collect()
        };
        let before = chosen(&services);
        services.mark(7, 1, false);
        let meanwhile = chosen(&services);
        for (before, meanwhile) in before.iter().zip(&meanwhile) {
            assert!(*meanwhile != Some(1) && (*before == Some(1) || before == meanwhile));
        }
        services.mark(7, 1, true);
        assert_eq!(chosen(&services), before);
    }

    #[test]
    fn nobody_is_chosen_where_nobody_is() {
        let (nobody, mut generator) = services(&[0, 0], Affinity::Address);
        assert_eq!(nobody.choose(6, External::new(2, 80), 1, &mut generator), None);
        let (some, mut generator) = services(&[1], Affinity::None);
        assert_eq!(some.choose(17, External::new(2, 80), 1, &mut generator), None);
        assert_eq!(some.choose(6, External::new(2, 81), 1, &mut generator), None);
    }

    #[test]
    fn a_server_is_closed_while_it_gets_nothing() {
        let of = [(1, false), (0, false), (1, true)];
        let (mut services, _) = services_with_backups(&of, Affinity::Address);
        let closed = |services: &Services| {
            [0, 1, 2].map(|slot| services.is_closed(6, External::new(2, 80), slot))
        };
        assert_eq!(closed(&services), [false, true, true]);
        services.mark(7, 0, false);
        assert_eq!(closed(&services), [true, true, false]);
        // No server of this service.
        assert!(!services.is_closed(6, External::new(2, 80), 3));
        assert!(!services.is_closed(6, External::new(2, 81), 0));
        assert!(!services.is_closed(17, External::new(2, 80), 0));
    }
}
