//! Ports whose mapping is at another worker than the one that gives out the port.
//!
//! Only a gateway of a pair has such ports: the partner has other workers, or its workers have
//! other ports. A copied mapping is at the worker of its host. The list has an entry for each port
//! of an address that has had such a mapping, so an inbound packet finds its worker in one step.
//!
//! An address that one host has as a whole is one stray, with all of its ports and with what has
//! none. One port, which no mapping has, stands for it.

use super::{PacketOwner, Partition, WORDS};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Protocols with ports, in the order of the list.
pub(super) const PROTOCOLS: [u8; 4] =
    [protocol::TCP, protocol::UDP, protocol::ICMP, protocol::DCCP];

const PORTS: usize = 64 * WORDS;

/// Words of 64 ports of all protocols, in the order of the list.
const ALL_WORDS: usize = PROTOCOLS.len() * WORDS;

/// The protocol and the port that stand for a whole address. No mapping has that port.
pub(crate) const WHOLE_ADDRESS: (u8, u16) = (protocol::DCCP, 0);

/// Strays of an address.
#[derive(Default)]
pub(super) struct Strays(OnceLock<List>);

enum List {
    /// Each port by itself.
    Ports(Ports),
    /// The address as a whole.
    Address(Users),
}

/// The workers that use an address as a whole and do not give it out.
#[derive(Default)]
struct Users {
    /// Number of the worker that has the address' mappings, plus one; 0: the one that gives it out.
    latest: AtomicU8,
    /// The workers, a bit each, that have mappings of the address, or something of it that rests.
    all: AtomicU64,
}

impl Users {
    fn latest(&self) -> Option<usize> {
        usize::from(self.latest.load(Ordering::Acquire)).checked_sub(1)
    }

    /// The workers beside one, a bit each.
    fn others(&self, worker: usize) -> u64 {
        self.all.load(Ordering::Acquire) & !(1 << worker)
    }

    fn add(&self, worker: usize) {
        self.all.fetch_or(1 << worker, Ordering::AcqRel);
        self.latest.store(worker as u8 + 1, Ordering::Release);
    }

    /// Takes a worker out. Returns false if it was not there.
    fn remove(&self, worker: usize) -> bool {
        let is_its = worker as u8 + 1;
        let _ = self.latest.compare_exchange(is_its, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.all.fetch_and(!(1 << worker), Ordering::AcqRel) >> worker & 1 != 0
    }

    /// The worker that has the address' mappings, or one with something that rests.
    fn one(&self) -> Option<usize> {
        let all = self.all.load(Ordering::Acquire);
        let lowest = (all != 0).then(|| all.trailing_zeros() as usize);
        self.latest().or(lowest)
    }
}

struct Ports {
    /// For each protocol and port the number of the worker plus one, or 0.
    workers: Box<[AtomicU8]>,
    /// For each protocol and word true if one of its ports has been a stray.
    words: Box<[AtomicBool]>,
}

impl Ports {
    fn new() -> Self {
        Self {
            workers: (0..64 * ALL_WORDS).map(|_| AtomicU8::new(0)).collect(),
            words: (0..ALL_WORDS).map(|_| AtomicBool::new(false)).collect(),
        }
    }
}

impl Strays {
    fn place(own: u8, port: u16) -> Option<usize> {
        let protocol = PROTOCOLS.iter().position(|protocol| *protocol == own)?;
        Some(protocol * PORTS + usize::from(port))
    }

    fn ports(&self) -> Option<&Ports> {
        match self.0.get()? {
            List::Ports(ports) => Some(ports),
            List::Address(_) => None,
        }
    }

    fn users(&self) -> Option<&Users> {
        match self.0.get()? {
            List::Ports(_) => None,
            List::Address(users) => Some(users),
        }
    }

    /// Worker of a port's mapping, if it is not the one that gives out the port.
    #[inline]
    pub(super) fn worker(&self, own: u8, port: u16) -> Option<usize> {
        match self.0.get()? {
            List::Ports(ports) => {
                let worker = ports.workers[Self::place(own, port)?].load(Ordering::Acquire);
                usize::from(worker).checked_sub(1)
            }
            List::Address(users) => users.latest(),
        }
    }

    /// Worker of the mappings of an address that one host has as a whole, if it is not the one that
    /// gives out the address.
    pub(super) fn of_address(&self) -> Option<usize> {
        self.users()?.latest()
    }

    fn set(&self, own: u8, port: u16, worker: usize) {
        let Some(place) = Self::place(own, port) else { return };
        let List::Ports(ports) = self.0.get_or_init(|| List::Ports(Ports::new())) else {
            debug_assert!(false, "the address is a stray as a whole");
            return;
        };
        ports.words[place / 64].store(true, Ordering::Release);
        ports.workers[place].store(worker as u8 + 1, Ordering::Release);
    }

    fn clear(&self, own: u8, port: u16) {
        if let Some((ports, place)) = self.ports().zip(Self::place(own, port)) {
            ports.workers[place].store(0, Ordering::Release);
        }
    }

    fn clear_of(&self, own: u8, port: u16, worker: usize) -> bool {
        let Some((ports, place)) = self.ports().zip(Self::place(own, port)) else { return false };
        let (is_its, entry) = (worker as u8 + 1, &ports.workers[place]);
        entry.compare_exchange(is_its, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A worker has a copied mapping of the address as a whole. `gives`: it gives the address out.
    fn note_user(&self, worker: usize, gives: bool) {
        if !gives {
            match self.0.get_or_init(|| List::Address(Users::default())) {
                List::Address(users) => users.add(worker),
                List::Ports(_) => debug_assert!(false, "ports of the address are strays"),
            }
        } else if let Some(users) = self.users() {
            users.latest.store(0, Ordering::Release);
        }
    }
}

/// Strays that a search has found: protocol and port.
pub(crate) type Found = Vec<(u8, u16)>;

impl Partition {
    /// A worker has a copied mapping now that is not static. If packets to its port would find
    /// another worker, they find this one from now on. A static mapping of the port comes first.
    pub(crate) fn note_copy(&self, worker: usize, own: u8, address: Ipv4Addr, port: u16) {
        let Some(row) = self.row(address.to_bits()) else { return };
        if row.is_whole {
            row.owners.strays.note_user(worker, row.owners.of(0) == worker);
            return;
        }
        if !PROTOCOLS.contains(&own) {
            // All workers are asked for a packet without ports.
            let is_only = row.owners.of(0) == worker;
            row.owners.split.fetch_or(!is_only, Ordering::Relaxed);
            return;
        }
        if self.giver(row, port) == PacketOwner::Of(worker) {
            row.owners.strays.clear(own, port);
        } else {
            row.owners.split.store(true, Ordering::Relaxed);
            row.owners.strays.set(own, port, worker);
        }
    }

    /// The mapping of a port has ended at a worker: it is no stray any more. Returns false if it
    /// was none of this worker. Of a whole address, nothing is left at the worker.
    pub(crate) fn note_end(&self, worker: usize, own: u8, address: Ipv4Addr, port: u16) -> bool {
        let Some(owners) = self.owners_of(address.to_bits()) else { return false };
        match owners.strays.users() {
            Some(users) => users.remove(worker),
            None => owners.strays.clear_of(own, port, worker),
        }
    }

    /// True if one host has an address as a whole. Of an address that has left the configuration,
    /// the list of strays knows.
    pub(crate) fn is_whole(&self, address: Ipv4Addr) -> bool {
        let list = self.owners_of(address.to_bits()).and_then(|owners| owners.strays.0.get());
        match list {
            Some(List::Address(_)) => true,
            Some(List::Ports(_)) => false,
            None => self.row(address.to_bits()).is_some_and(|row| row.is_whole),
        }
    }

    /// Words of a block around the word of a port that a worker gives out.
    pub(crate) fn own_words(
        &self,
        worker: usize,
        (address, port): (Ipv4Addr, u16),
        block: Range<usize>,
    ) -> Range<usize> {
        let word = usize::from(port) / 64;
        let Some(row) = self.row(address.to_bits()) else { return word..word };
        let is_own = |word: &usize| row.owners.of(*word) == worker;
        let before = (block.start..word).rev().take_while(is_own).count();
        let after = (word..block.end).take_while(is_own).count();
        word - before..word + after
    }

    /// True if all strays among some words of an address are of one worker.
    pub(crate) fn strays_are_of(
        &self,
        worker: usize,
        address: Ipv4Addr,
        words: Range<usize>,
    ) -> bool {
        let list = self.row(address.to_bits()).and_then(|row| row.owners.strays.0.get());
        let list = match list {
            None => return true,
            Some(List::Address(users)) => return users.others(worker) == 0,
            Some(List::Ports(ports)) => ports,
        };
        let all =
            (0..PROTOCOLS.len()).flat_map(|own| words.clone().map(move |at| own * WORDS + at));
        let mut some = all.filter(|word| list.words[*word].load(Ordering::Acquire));
        some.all(|word| {
            let mut strays = list.workers[word * 64..word * 64 + 64].iter();
            strays.all(|of| {
                let of = usize::from(of.load(Ordering::Acquire));
                of == 0 || of == worker + 1
            })
        })
    }

    /// Gives words of a block to the worker that has its subscriber. Its ports there are no strays
    /// any more.
    pub(crate) fn give_block(&self, address: Ipv4Addr, words: Range<usize>, worker: usize) {
        self.give(address, words.clone(), worker);
        let Some(row) = self.row(address.to_bits()) else { return };
        if let Some(users) = row.owners.strays.users() {
            users.remove(worker);
            return;
        }
        for port in words.start * 64..words.end * 64 {
            for own in PROTOCOLS {
                row.owners.strays.clear_of(own, port as u16, worker);
            }
        }
    }

    /// Worker of a port's mapping, if it is a stray. Of a whole address it is one of the workers
    /// that use the address and do not give it out.
    pub(crate) fn stray(&self, own: u8, address: Ipv4Addr, port: u16) -> Option<usize> {
        let strays = &self.row(address.to_bits())?.owners.strays;
        match strays.users() {
            Some(users) => users.one(),
            None => strays.worker(own, port),
        }
    }

    /// The worker that gives out a port, or would if no static mapping had it. `None`: no worker
    /// does.
    pub(crate) fn giver_of(&self, address: Ipv4Addr, port: u16) -> Option<usize> {
        let row = self.row(address.to_bits())?;
        match self.giver(row, port) {
            PacketOwner::Of(worker) => Some(worker),
            _ => Some(row.owners.of(usize::from(port) / 64)),
        }
    }

    /// Looks for ports that a worker gives out of an address and whose mappings other workers have,
    /// from word `from` of the list on. Ends when it has found `most`, with a whole word, or when
    /// `looks` places have been looked at, which it counts down. Returns the ports, and the next
    /// word; `None`: the list is done.
    pub(crate) fn strays_in_part(
        &self,
        worker: usize,
        (address, from): (Ipv4Addr, usize),
        (looks, most): (&mut usize, usize),
    ) -> (Found, Option<usize>) {
        let mut found = Vec::new();
        let Some(row) = self.row(address.to_bits()) else { return (found, None) };
        let list = match row.owners.strays.0.get() {
            None => return (found, None),
            Some(List::Address(users)) => {
                if row.owners.of(0) == worker && users.others(worker) != 0 {
                    found.push(WHOLE_ADDRESS);
                }
                return (found, None);
            }
            Some(List::Ports(ports)) => ports,
        };
        // Ports of subscribers are given out whatever word they are in.
        let by_words = row.plan.is_none();
        for word in from..ALL_WORDS {
            if *looks == 0 || found.len() >= most {
                return (found, Some(word));
            }
            *looks -= 1;
            let is_others = by_words && row.owners.of(word % WORDS) != worker;
            if is_others || !list.words[word].load(Ordering::Acquire) {
                continue;
            }
            *looks = looks.saturating_sub(64);
            let own = PROTOCOLS[word / WORDS];
            for place in word * 64..word * 64 + 64 {
                let of = usize::from(list.workers[place].load(Ordering::Acquire));
                let port = (place % PORTS) as u16;
                let is_stray = of != 0 && of != worker + 1;
                if is_stray && self.giver_of(address, port) == Some(worker) {
                    found.push((own, port));
                }
            }
        }
        (found, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{AddressRange, Allocation, Config, PoolConfig, Side, StaticMapping};

    #[test]
    fn a_stray_leads_to_its_worker_until_its_mapping_has_ended() {
        const UDP: u8 = protocol::UDP;
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let partition = Partition::new(&Config { pools, ..Config::default() }, None, 3, None);
        let row = partition.row(address.to_bits()).expect("it is external");
        let leads_to = |port| partition.of_external(row, UDP, port);
        let port = row.owners.stretches(0)[0].end as u16 * 64 - 1;
        partition.note_copy(0, UDP, address, port);
        assert_eq!(partition.stray(UDP, address, port), None, "it is at home");
        partition.note_copy(2, UDP, address, port);
        assert_eq!(leads_to(port), PacketOwner::Of(2));
        assert_eq!(partition.of_external(row, protocol::TCP, port), PacketOwner::Of(0));
        assert_eq!(leads_to(port - 1), PacketOwner::Of(0));
        let in_part = |worker| partition.strays_in_part(worker, (address, 0), (&mut 9999, 9)).0;
        assert_eq!(in_part(0), [(UDP, port)]);
        assert!(in_part(1).is_empty() && in_part(2).is_empty());
        assert_eq!(partition.giver_of(address, port), Some(0));
        assert!(!partition.note_end(1, UDP, address, port), "another's mapping");
        assert!(partition.note_end(2, UDP, address, port));
        assert_eq!(
            (leads_to(port), partition.stray(UDP, address, port)),
            (PacketOwner::Of(0), None)
        );
        assert!(!partition.note_end(2, UDP, address, port), "it has ended");
        assert!(in_part(0).is_empty());
    }

    /// A pool of whole addresses, and a partition of three workers.
    fn whole(count: u8) -> (Config, Partition) {
        let [first, last] = [1, count].map(|last| Ipv4Addr::new(203, 0, 113, last));
        let addresses = vec![AddressRange { first, last }];
        let pool = PoolConfig {
            addresses,
            ports: Allocation::ALL_PORTS,
            allocation: Some(Allocation::Address),
            ..PoolConfig::default()
        };
        let config = Config { pools: vec![pool], ..Config::default() };
        let partition = Partition::new(&config, None, 3, None);
        (config, partition)
    }

    #[test]
    fn a_whole_address_leads_to_the_worker_of_its_host_whatever_the_packet_is() {
        const GRE: u8 = 47;
        let (_, partition) = whole(3);
        let address = Ipv4Addr::new(203, 0, 113, 2);
        let row = partition.row(address.to_bits()).expect("it is external");
        let leads_to = || {
            let of_port = partition.of_external(row, protocol::UDP, 5);
            let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0x40, 0, 64, GRE, 0, 0, 9, 9, 9, 9];
            packet.extend(address.octets());
            packet.extend([0; 4]);
            assert_eq!(partition.owner_of_packet(Side::Outside, 0, &packet), of_port);
            // A later fragment.
            packet[7] = 9;
            assert_eq!(partition.owner_of_packet(Side::Outside, 0, &packet), of_port);
            assert_eq!(partition.guide_of(&packet), None);
            of_port
        };
        let found = |worker| partition.strays_in_part(worker, (address, 0), (&mut 9, 9)).0;
        assert_eq!(leads_to(), PacketOwner::Of(1));
        partition.note_copy(1, GRE, address, 0);
        assert_eq!((leads_to(), partition.stray(GRE, address, 0)), (PacketOwner::Of(1), None));
        partition.note_copy(2, GRE, address, 0);
        assert_eq!(leads_to(), PacketOwner::Of(2));
        assert_eq!((found(0), found(1), found(2)), (vec![], vec![WHOLE_ADDRESS], vec![]));
        assert!(partition.strays_are_of(2, address, 0..WORDS));
        // A third worker has something that rests.
        partition.note_copy(0, protocol::UDP, address, 9);
        partition.note_copy(2, protocol::UDP, address, 10);
        assert!(!partition.strays_are_of(2, address, 0..WORDS));
        let (own, port) = WHOLE_ADDRESS;
        assert!(partition.note_end(0, own, address, port));
        assert!(!partition.note_end(0, own, address, port), "it was given back");
        assert_eq!(leads_to(), PacketOwner::Of(2));
        partition.give_block(address, 0..WORDS, 2);
        assert_eq!((leads_to(), partition.stray(own, address, port)), (PacketOwner::Of(2), None));
        assert_eq!(partition.giver_of(address, 7), Some(2));
        assert!((0..3).all(|worker| found(worker).is_empty()));
        // Workers lend it.
        partition.give(address, 0..WORDS, 0);
        assert_eq!(leads_to(), PacketOwner::Of(0));
    }

    #[test]
    fn a_copy_at_the_worker_that_gives_a_whole_address_out_leaves_what_rests_elsewhere() {
        let (_, partition) = whole(3);
        let address = Ipv4Addr::new(203, 0, 113, 2);
        let row = partition.row(address.to_bits()).expect("it is external");
        partition.note_copy(2, protocol::UDP, address, 7);
        partition.note_copy(1, protocol::UDP, address, 7);
        assert_eq!(partition.of_external(row, protocol::UDP, 7), PacketOwner::Of(1));
        assert_eq!(partition.stray(protocol::UDP, address, 7), Some(2));
        assert!(partition.note_end(2, protocol::UDP, address, 7));
        assert_eq!(partition.stray(protocol::UDP, address, 7), None);
    }

    #[test]
    fn a_static_mapping_of_a_whole_address_comes_before_strays() {
        let (config, before) = whole(3);
        let address = Ipv4Addr::new(203, 0, 113, 2);
        let mut hosts = (0..=255).map(|host| Ipv4Addr::new(10, 0, 0, host));
        let host = hosts.find(|host| before.of_host(0, host.to_bits()) == 0).expect("one");
        before.note_copy(2, protocol::UDP, address, 7);
        let statics = vec![StaticMapping {
            external: (address, None),
            internal: (host, None),
            protocol: None,
            ..StaticMapping::default()
        }];
        let after = Partition::new(&Config { statics, ..config }, None, 3, Some(&before));
        let row = after.row(address.to_bits()).expect("it is external");
        for own in [protocol::UDP, protocol::TCP] {
            assert_eq!(after.of_external(row, own, 7), PacketOwner::Of(0));
        }
        // The first fragment of a datagram, and a later one.
        let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0x20, 0, 64, 47, 0, 0, 9, 9, 9, 9];
        packet.extend(address.octets());
        packet.extend([0; 4]);
        for offset in [0, 9] {
            packet[7] = offset;
            let owner = after.owner_of_packet(Side::Outside, 0, &packet);
            assert_eq!(owner, PacketOwner::Of(0), "of the static mapping");
        }
        assert_eq!(after.stray(protocol::UDP, address, 9), Some(2), "its rest goes on");
        assert!(after.note_end(2, protocol::UDP, address, 7));
        assert_eq!(after.stray(protocol::UDP, address, 9), None);
        // A reload of the partner comes first, and a host there gets the address.
        after.note_copy(2, protocol::UDP, address, 8);
        assert_eq!(after.of_external(row, protocol::UDP, 8), PacketOwner::Of(0));
        let without = Partition::new(&whole(3).0, None, 3, Some(&after));
        let row = without.row(address.to_bits()).expect("it is external");
        assert_eq!(without.of_external(row, protocol::UDP, 8), PacketOwner::Of(2));
        let mut left = Partition::new(&whole(1).0, None, 3, Some(&without));
        left.forget_left(&without, |_| true);
        assert!(left.is_whole(address) && left.note_end(2, protocol::UDP, address, 8));
    }

    /// A reload gives the port of a copy to a static mapping of a third worker.
    #[test]
    fn packets_find_a_static_mapping_before_the_copy_that_it_displaced() {
        const UDP: u8 = protocol::UDP;
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let config = Config { pools, ..Config::default() };
        let before = Partition::new(&config, None, 3, None);
        let leads_to = |partition: &Partition, port| {
            partition.of_external(partition.row(address.to_bits()).expect("it is there"), UDP, port)
        };
        let row = before.row(address.to_bits()).expect("it is external");
        let port = row.owners.stretches(1)[0].end as u16 * 64 - 1;
        for port in [port, port - 1] {
            before.note_copy(2, UDP, address, port);
        }
        let mut hosts = (0..=255).map(|host| Ipv4Addr::new(10, 0, 0, host));
        let host = hosts.find(|host| before.of_host(0, host.to_bits()) == 0).expect("one");
        let statics = vec![StaticMapping {
            external: (address, Some(port)),
            internal: (host, Some(80)),
            protocol: Some(UDP),
            ..StaticMapping::default()
        }];
        let after = Partition::new(&Config { statics, ..config }, None, 3, Some(&before));
        assert_eq!(leads_to(&after, port), PacketOwner::Of(0));
        assert_eq!(leads_to(&after, port - 1), PacketOwner::Of(2));
        assert_eq!(after.giver_of(address, port), Some(1));
        assert_eq!(after.stray(UDP, address, port), Some(2), "its rest goes on");
        assert!(after.note_end(2, UDP, address, port));
        assert_eq!(leads_to(&before, port), PacketOwner::Of(1), "without the static mapping");
    }

    #[test]
    fn a_search_for_strays_ends_and_goes_on() {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        let partition = Partition::new(&Config { pools, ..Config::default() }, None, 2, None);
        let row = partition.row(address.to_bits()).expect("it is external");
        let last = row.owners.stretches(0).last().expect("it has words").end as u16 * 64 - 1;
        let strays: Vec<(u8, u16)> = [protocol::TCP, protocol::ICMP]
            .into_iter()
            .flat_map(|own| (last - 299..=last).map(move |port| (own, port)))
            .collect();
        strays.iter().for_each(|(own, port)| partition.note_copy(1, *own, address, *port));
        let (mut all, mut next, mut steps) = (Vec::new(), Some(0), 0);
        while let Some(from) = next {
            let mut looks = 1000;
            let (found, then) = partition.strays_in_part(0, (address, from), (&mut looks, 100));
            assert!(found.len() < 100 + 64, "a share");
            assert!(then.is_none_or(|then| then > from), "it goes on");
            all.extend(found);
            (next, steps) = (then, steps + 1);
        }
        assert_eq!(all, strays);
        assert!((6..40).contains(&steps), "{steps}");
    }
}
