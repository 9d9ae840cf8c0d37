//! Partition among the workers: the owner of each subscriber and of each external endpoint.
//!
//! A subscriber's worker follows from the subscriber's address, so a packet from inside is
//! dispatched by arithmetic. One worker owns all servers of a service. Each external port has an
//! owner, by words of 64 ports. At the start a pool's addresses are divided whole; if the pool has
//! fewer addresses than there are workers, each address is cut into as many slices. Ports change
//! their owner when a worker runs short of them (`port_lender`). So all workers share the list of
//! owners, and read it with each packet from outside.

mod handed;
mod left;
mod packet_owner;
mod servers;
mod strays;

use crate::limits::MOST_WORKERS;
use crate::settings::Settings;
use left::Left;
use natgate_engine::{Allocation, BlockConfig, Config, Plan, PoolConfig, RecordHost, Side, bucket};
use natgate_io::{MOST_STRETCHES, Share, Stretch};
use natgate_ipv6::{Division, HostRealms};
use natgate_wire::protocol;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug, Formatter};
use std::mem;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use strays::Strays;
pub(crate) use strays::WHOLE_ADDRESS;

/// Words of 64 ports that an address has.
pub(super) const WORDS: usize = 1024;

/// Owners of an address's ports, by words.
pub(super) struct Owners {
    words: [AtomicU8; WORDS],
    /// True if several workers may own ports of the address.
    split: AtomicBool,
    strays: Strays,
}

impl Debug for Owners {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owners").field("split", &self.split).finish_non_exhaustive()
    }
}

impl Owners {
    fn new(owner: impl Fn(usize) -> usize) -> Arc<Self> {
        let words: [AtomicU8; WORDS] = std::array::from_fn(|word| AtomicU8::new(owner(word) as u8));
        let first = words[0].load(Ordering::Relaxed);
        let split = words.iter().any(|word| word.load(Ordering::Relaxed) != first);
        Arc::new(Self { words, split: AtomicBool::new(split), strays: Strays::default() })
    }

    fn of(&self, word: usize) -> usize {
        self.words[word].load(Ordering::Relaxed).into()
    }

    /// Runs of words that a worker owns.
    fn stretches(&self, worker: usize) -> Vec<Range<usize>> {
        let mut stretches: Vec<Range<usize>> = Vec::new();
        for word in (0..WORDS).filter(|&word| self.of(word) == worker) {
            match stretches.last_mut() {
                Some(last) if last.end == word => last.end += 1,
                _ => stretches.push(word..word + 1),
            }
        }
        stretches
    }
}

/// Number of buckets of subscribers; each bucket has one owner.
const BUCKETS: usize = 256;

/// Present and former owners of the buckets. A worker that joins gets some buckets, but a
/// subscriber stays with the worker that has its mappings until these have gone.
pub(super) struct Buckets {
    owners: [AtomicU8; BUCKETS],
    /// Workers, one bit each, that may still have subscribers of a bucket.
    former: [AtomicU64; BUCKETS],
}

impl Debug for Buckets {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Buckets")
    }
}

impl Buckets {
    fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            // Devices are steered by the same division.
            owners: std::array::from_fn(|bucket| AtomicU8::new((bucket % workers) as u8)),
            former: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    fn of(&self, bucket: usize) -> (usize, u64) {
        let owner = self.owners[bucket].load(Ordering::Acquire);
        (owner.into(), self.former[bucket].load(Ordering::Acquire))
    }

    /// Gives the last of `workers` workers its part, evenly from all others.
    fn deal_to_last(&self, workers: usize) {
        let mut left: Vec<usize> = vec![0; workers];
        for bucket in 0..BUCKETS {
            let (owner, _) = self.of(bucket);
            left[owner] += 1;
            // Each worker keeps its share; further buckets move.
            if left[owner] > BUCKETS.div_ceil(workers) {
                self.former[bucket].fetch_or(1 << owner, Ordering::Release);
                self.owners[bucket].store((workers - 1) as u8, Ordering::Release);
            }
        }
    }
}

/// Ownership of one external address.
#[derive(Debug)]
struct Row {
    address: u32,
    owners: Arc<Owners>,
    /// Index of the plan by which the ports follow from subscribers' addresses.
    plan: Option<usize>,
    /// True if the address has a static endpoint.
    has_fixed: bool,
    /// True if one host has the address as a whole.
    is_whole: bool,
}

impl Row {
    /// True if several workers may have ports of the address.
    fn is_shared(&self) -> bool {
        self.has_fixed || self.plan.is_some() || self.owners.split.load(Ordering::Relaxed)
    }
}

/// Partition among the workers. A reload makes a new one, in which ports keep their owners.
#[derive(Debug)]
pub(crate) struct Partition {
    workers: usize,
    /// True if a worker has joined.
    has_grown: bool,
    buckets: Arc<Buckets>,
    /// The division of IPv6 packets, and the realms of hosts that have numbers.
    ipv6: Option<(Division, HostRealms)>,
    /// Sorted by address.
    rows: Vec<Row>,
    /// Addresses that the configuration does not have any more.
    left: Left,
    plans: Vec<Plan>,
    /// Owners of hosts that were fixed: most differ from the arithmetic.
    hosts: HashMap<(u16, u32), usize>,
    /// True for each bucket that has such a host.
    has_odd: Box<[bool; BUCKETS]>,
    /// Owners of static endpoints, by address, port and protocol.
    fixed: HashMap<(u32, u16, u8), usize>,
    /// Owners of whole static addresses, by address and protocol; 0 stands for all portless
    /// protocols.
    whole: HashMap<(u32, u8), usize>,
}

/// Owner of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketOwner {
    /// One worker.
    Of(usize),
    /// The worker of an internal host: the owner of its bucket, or a former owner.
    Host(Host),
    /// Unknown: a fragment without ports, to an address that several workers share. This worker
    /// finds the owner.
    Fragment(usize),
    /// Any worker that shares the address: the protocol has no ports.
    Portless,
}

/// An internal host: realm and address.
pub(super) type Host = (u16, u32);

impl Partition {
    /// Divides settings among `workers` workers; ports that had an owner in `before` keep it.
    pub(crate) fn of(settings: &Settings, workers: usize, before: Option<&Self>) -> Self {
        let ipv6 = settings.ipv6.configured.then(|| Division::new(&settings.ipv6));
        Self::new(&settings.engine, ipv6, workers, before)
    }

    fn new(config: &Config, ipv6: Option<Division>, workers: usize, before: Option<&Self>) -> Self {
        assert!((1..=MOST_WORKERS).contains(&workers));
        let buckets = before.map(|before| Arc::clone(&before.buckets));
        let has_grown = before.is_some_and(|before| before.has_grown || before.workers < workers);
        let mut partition = Self {
            workers,
            has_grown,
            buckets: buckets.unwrap_or_else(|| Buckets::new(workers)),
            ipv6: ipv6.map(|division| {
                let realms = division.realms(realms_without_numbers(config));
                (division, realms)
            }),
            rows: Vec::new(),
            left: Left::default(),
            plans: Vec::new(),
            hosts: HashMap::new(),
            has_odd: Box::new([false; BUCKETS]),
            fixed: HashMap::new(),
            whole: HashMap::new(),
        };
        if let Some(before) = before.filter(|before| before.workers < workers) {
            partition.keep_fixed(config, before);
        }
        partition.keep_servers_together(config);
        for &(realm, address) in partition.hosts.keys() {
            partition.has_odd[bucket(realm, address)] = true;
        }
        for pool in &config.pools {
            let plan = partition.plan(config, pool);
            let is_whole = *config.allocation_of(pool) == Allocation::Address;
            for (place, address) in pool.each_address().enumerate() {
                let owners = || Owners::new(|word| deal(config, pool, workers, place, word));
                partition.add(address, before, owners, (plan, is_whole));
            }
        }
        let mut known: HashSet<u32> = partition.rows.iter().map(|row| row.address).collect();
        for (place, address) in config.fixed_addresses().enumerate() {
            if known.insert(address.to_bits()) {
                let owners = || Owners::new(|_| place % workers);
                partition.add(address, before, owners, (None, false));
            }
        }
        partition.rows.sort_unstable_by_key(|row| row.address);
        partition.left = before.map_or_else(Left::default, |before| before.left_behind(&partition));
        partition.fix(config);
        partition
    }

    fn add(
        &mut self,
        address: Ipv4Addr,
        before: Option<&Self>,
        owners: impl FnOnce() -> Arc<Owners>,
        (plan, is_whole): (Option<usize>, bool),
    ) {
        let address = address.to_bits();
        let known = before.and_then(|before| before.owners_of(address));
        let owners = known.map_or_else(owners, Arc::clone);
        self.rows.push(Row { address, owners, plan, has_fixed: false, is_whole });
    }

    /// Index of a pool's plan, if its ports follow from the subscribers' addresses.
    fn plan(&mut self, config: &Config, pool: &PoolConfig) -> Option<usize> {
        let Allocation::Deterministic(deterministic) = config.allocation_of(pool) else {
            return None;
        };
        self.plans.push(Plan::new(deterministic, pool).ok()?);
        Some(self.plans.len() - 1)
    }

    /// Keeps hosts of static mappings with their worker although another worker joins.
    fn keep_fixed(&mut self, config: &Config, before: &Self) {
        let statics = config.statics.iter().map(|one| (one.realm, one.internal.0));
        let services = config.services.iter().flat_map(|service| {
            service.servers.iter().map(|server| (service.realm, server.internal.0))
        });
        for (realm, address) in statics.chain(services) {
            let host = (realm, address.to_bits());
            self.hosts.insert(host, before.of_host(host.0, host.1));
        }
    }

    /// Gives all servers of a service to one worker. Services may share servers.
    fn keep_servers_together(&mut self, config: &Config) {
        let several = config.services.iter().filter(|service| service.servers.len() > 1);
        let services = several.map(|service| {
            let host = |address: Ipv4Addr| (service.realm, address.to_bits());
            service.servers.iter().map(|server| host(server.internal.0)).collect()
        });
        let services: Vec<Vec<Host>> = services.collect();
        let known = mem::take(&mut self.hosts);
        let by_number = |(realm, address): Host| self.of_number(realm, address);
        let worker_of = |(realm, address): Host| self.of_host(realm, address);
        self.hosts = servers::together(self.workers, known, &services, by_number, worker_of);
    }

    /// Enters the owners of static endpoints.
    fn fix(&mut self, config: &Config) {
        const PORTS: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];
        for one in &config.statics {
            let worker = self.of_host(one.realm, one.internal.0.to_bits());
            let address = one.external.0.to_bits();
            let protocols = |own: u8| one.protocol.is_none_or(|only| only == own);
            for own in PORTS.into_iter().filter(|&own| protocols(own)) {
                match one.external.1 {
                    Some(port) => drop(self.fixed.insert((address, port, own), worker)),
                    None => drop(self.whole.insert((address, own), worker)),
                }
            }
            if one.external.1.is_none() && one.protocol.is_none_or(|only| !PORTS.contains(&only)) {
                self.whole.insert((address, 0), worker);
            }
        }
        for service in &config.services {
            let worker = self.of_host(service.realm, service.servers[0].internal.0.to_bits());
            let (address, port) = service.external;
            let own = PORTS.into_iter().filter(|&own| service.protocol.is_none_or(|it| it == own));
            self.fixed.extend(own.map(|own| ((address.to_bits(), port, own), worker)));
        }
        let fixed = self.fixed.keys().map(|key| key.0);
        let addresses: Vec<u32> = fixed.chain(self.whole.keys().map(|key| key.0)).collect();
        for address in addresses {
            if let Ok(at) = self.rows.binary_search_by_key(&address, |row| row.address) {
                self.rows[at].has_fixed = true;
            }
        }
    }

    #[inline]
    fn row(&self, address: u32) -> Option<&Row> {
        // Most gateways have addresses in one run.
        let place = address.wrapping_sub(self.rows.first()?.address) as usize;
        if let Some(row) = self.rows.get(place).filter(|row| row.address == address) {
            return Some(row);
        }
        let at = self.rows.binary_search_by_key(&address, |row| row.address).ok()?;
        Some(&self.rows[at])
    }

    /// Owner of an internal host.
    pub(crate) fn of_host(&self, realm: u16, address: u32) -> usize {
        if let Some(worker) = self.of_number(realm, address) {
            return worker;
        }
        let by_arithmetic = || self.buckets.of(bucket(realm, address)).0;
        match self.hosts.is_empty() {
            true => by_arithmetic(),
            false => self.hosts.get(&(realm, address)).copied().unwrap_or_else(by_arithmetic),
        }
    }

    /// Owner of a host with a number; `None`: hosts of the realm have addresses.
    fn of_number(&self, realm: u16, number: u32) -> Option<usize> {
        let (division, realms) = self.ipv6.as_ref()?;
        let kind = realms.kind(realm)?;
        Some(division.worker_of_number(kind, number.into(), self.workers))
    }

    /// Owner of the host of a record of another node. Numbers are of this node, identities of both.
    pub(crate) fn of_record(&self, host: RecordHost) -> usize {
        match host {
            RecordHost::Address(realm, address) => self.of_host(realm, address.to_bits()),
            RecordHost::Identity(host) => {
                let division = self.ipv6.as_ref().map(|(division, _)| division);
                division.map_or(0, |division| division.worker_of_host(host, self.workers))
            }
        }
    }

    /// Owner of an IPv6 packet that came in by a side.
    pub(super) fn owner_of_ipv6(&self, from: Side, packet: &[u8]) -> usize {
        self.ipv6.as_ref().map_or(0, |(division, _)| division.worker(from, packet, self.workers))
    }

    /// Owner of an external endpoint.
    #[inline]
    fn of_external(&self, row: &Row, own: u8, port: u16) -> PacketOwner {
        // A static mapping displaces a copy, and the port is a stray until the copy's rest is over.
        let fixed = self.of_static(row, own, port);
        if let Some(worker) = fixed.or_else(|| row.owners.strays.worker(own, port)) {
            return PacketOwner::Of(worker);
        }
        self.giver(row, port)
    }

    /// Worker of the static mapping that has an external endpoint.
    #[inline]
    fn of_static(&self, row: &Row, own: u8, port: u16) -> Option<usize> {
        if !row.has_fixed {
            return None;
        }
        self.of_fixed(row, own, port)
    }

    #[inline(never)]
    fn of_fixed(&self, row: &Row, own: u8, port: u16) -> Option<usize> {
        let fixed = self.fixed.get(&(row.address, port, own));
        fixed.or_else(|| self.whole.get(&(row.address, own))).copied()
    }

    /// Owner of an external endpoint that neither a static mapping nor a copy has.
    #[inline]
    fn giver(&self, row: &Row, port: u16) -> PacketOwner {
        let planned = row.plan.and_then(|place| self.planned(&self.plans[place], row, port));
        planned.unwrap_or_else(|| PacketOwner::Of(row.owners.of(usize::from(port) / 64)))
    }

    /// Owner of an external endpoint by a pool's plan, if the plan has the endpoint.
    #[inline(never)]
    fn planned(&self, plan: &Plan, row: &Row, port: u16) -> Option<PacketOwner> {
        let host = plan.reverse(Ipv4Addr::from_bits(row.address), port)?;
        Some(self.owner_of_host((plan.realm(), host.to_bits())))
    }

    /// Workers that may own a packet. The last of them owns it if no other knows it.
    pub(crate) fn candidates(&self, link: crate::link::Link, bytes: &[u8]) -> Vec<usize> {
        if bytes.first().is_some_and(|first| first >> 4 == 6) {
            return vec![self.owner_of_ipv6(link.side, bytes)];
        }
        match self.owner_of_packet(link.side, link.realm, bytes) {
            PacketOwner::Of(worker) | PacketOwner::Fragment(worker) => vec![worker],
            PacketOwner::Portless => (0..self.workers).collect(),
            PacketOwner::Host(host) => {
                let (now, before) = self.now_and_before(host);
                let before = (0..self.workers).filter(|worker| before >> worker & 1 != 0);
                before.chain([now]).collect()
            }
        }
    }

    /// Owner of an internal host, if it follows from the host's bucket and the bucket has no former
    /// owner.
    #[inline(always)]
    fn only_owner_of_host(&self, (realm, address): Host) -> Option<usize> {
        let has_number = self.ipv6.as_ref().is_some_and(|(_, realms)| realms.has(realm));
        let bucket = bucket(realm, address);
        match self.buckets.of(bucket) {
            (owner, 0) if !has_number && !self.has_odd[bucket] => Some(owner),
            _ => None,
        }
    }

    /// Owner of an internal host, present or former.
    pub(super) fn owner_of_host(&self, host: Host) -> PacketOwner {
        if let Some(worker) = self.of_number(host.0, host.1) {
            return PacketOwner::Of(worker);
        }
        if let Some(&worker) = self.hosts.get(&host) {
            return PacketOwner::Of(worker);
        }
        match self.buckets.of(bucket(host.0, host.1)) {
            (owner, 0) => PacketOwner::Of(owner),
            _ => PacketOwner::Host(host),
        }
    }

    /// Present owner of a host's bucket, and the former owners, one bit each.
    pub(super) fn now_and_before(&self, (realm, address): Host) -> (usize, u64) {
        self.buckets.of(bucket(realm, address))
    }

    /// Gives the worker that has joined last its part of the subscribers.
    pub(super) fn welcome(&self) {
        self.buckets.deal_to_last(self.workers);
    }

    /// Notes that a worker has no subscribers left of buckets that it had before. `has_none` says
    /// so of a bucket.
    pub(super) fn forget(&self, worker: usize, has_none: impl Fn(usize) -> bool) {
        for (bucket, former) in self.buckets.former.iter().enumerate() {
            if former.load(Ordering::Relaxed) >> worker & 1 != 0 && has_none(bucket) {
                former.fetch_and(!(1 << worker), Ordering::Release);
            }
        }
    }

    /// Runs of words of ports that a worker owns, by address.
    pub(super) fn owned(&self, worker: usize) -> impl Iterator<Item = (Ipv4Addr, Range<usize>)> {
        self.rows.iter().flat_map(move |row| {
            let address = Ipv4Addr::from_bits(row.address);
            row.owners.stretches(worker).into_iter().map(move |words| (address, words))
        })
    }

    /// Runs of words, among some of an address, that a worker owns.
    pub(crate) fn owned_of(
        &self,
        worker: usize,
        address: Ipv4Addr,
        words: &Range<usize>,
    ) -> Vec<Range<usize>> {
        let all = self.owners_of(address.to_bits()).map(|owners| owners.stretches(worker));
        let common = |run: Range<usize>| run.start.max(words.start)..run.end.min(words.end);
        all.into_iter().flatten().map(common).filter(|run| !run.is_empty()).collect()
    }

    /// Makes a worker the owner of ports, by words.
    pub(super) fn give(&self, address: Ipv4Addr, words: Range<usize>, worker: usize) {
        let Some(owners) = self.owners_of(address.to_bits()) else { return };
        // Packets without ports to a whole address have one worker.
        if words != (0..WORDS) || !self.is_whole(address) {
            owners.split.store(true, Ordering::Relaxed);
        }
        for word in &owners.words[words] {
            word.store(worker as u8, Ordering::Release);
        }
    }

    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }
}

/// Realms without hosts with numbers: the translator adds those with numbers behind them.
fn realms_without_numbers(config: &Config) -> usize {
    let place = config.realms.iter().position(|realm| realm.host_bits.is_some());
    place.unwrap_or(config.realms.len())
}

/// First owner of a word of ports; `place` is the address's index in the pool.
fn deal(config: &Config, pool: &PoolConfig, workers: usize, place: usize, word: usize) -> usize {
    let is_whole = *config.allocation_of(pool) == Allocation::Address;
    if pool.count() >= workers || is_whole {
        return place % workers;
    }
    // Mappings stay on their side of port 1024, so each side is cut by itself.
    let is_low = word < LOW_WORDS && pool.ports.0 < 1024;
    let ports = if is_low { (pool.ports.0, pool.ports.1.min(1023)) } else { high_ports(pool) };
    let size = block_size(config, pool);
    if size == 1 {
        // As evenly as possible: each worker gets some while there are words.
        let (first, last) = (usize::from(ports.0) / 64, usize::from(ports.1) / 64);
        return word.saturating_sub(first).min(last - first) * workers / (last - first + 1);
    }
    let (first, len) = slices(config, pool, ports, workers);
    let begins = |slice: usize| (first + slice * len).div_ceil(64);
    (1..workers).take_while(|&slice| begins(slice) <= word).count()
}

fn block_size(config: &Config, pool: &PoolConfig) -> usize {
    match config.allocation_of(pool) {
        Allocation::Block(BlockConfig { size, .. }) => usize::from(*size),
        // An address belongs to one worker.
        Allocation::Address => usize::from(u16::MAX),
        _ => 1,
    }
}

/// Words of ports below 1024.
pub(super) const LOW_WORDS: usize = 1024 / 64;

/// Ports of a pool from 1024 on, if it has any; else all.
fn high_ports(pool: &PoolConfig) -> (u16, u16) {
    let (first, last) = pool.ports;
    if last < 1024 { pool.ports } else { (first.max(1024), last) }
}

/// Cuts the ports of an address, first to last, into slices: the first port, and the ports of each
/// slice. Slices end where blocks end.
fn slices(
    config: &Config,
    pool: &PoolConfig,
    (first, last): (u16, u16),
    workers: usize,
) -> (usize, usize) {
    let (first, last) = (usize::from(first.max(1)), usize::from(last));
    let size = block_size(config, pool);
    let blocks = (last + 1 - first) / size;
    (first, (blocks.div_ceil(workers) * size).next_multiple_of(64))
}

/// Division of the external addresses, for devices that steer packets.
pub(super) fn stretches(config: &Config, workers: usize) -> Vec<Stretch> {
    let of_pool = |pool: &PoolConfig| {
        let mut place = 0;
        let mut stretches = Vec::new();
        for range in &pool.addresses {
            let is_whole = *config.allocation_of(pool) == Allocation::Address;
            let share = if pool.count() >= workers || is_whole {
                Share::Whole { place }
            } else {
                let (first, len) = slices(config, pool, high_ports(pool), workers);
                Share::Slices { first: first as u16, len: len as u16 }
            };
            stretches.push(Stretch { first: range.first, last: range.last, share });
            place += range.count() as u32;
        }
        stretches
    };
    config.pools.iter().flat_map(of_pool).take(MOST_STRETCHES).collect()
}
