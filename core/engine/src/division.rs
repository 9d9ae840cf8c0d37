//! Several engines with one configuration that share its work. Each engine has some of the
//! subscribers, some of the external ports, and a share of each limit in all. The divider of the
//! work gives each packet to the engine of its subscriber, or of its external endpoint.

use crate::endpoint::External;
use crate::engine::Engine;
use crate::host::Host;
use crate::packet::Direction;
use crate::parse::parse;
use crate::sizes::Sizes;
use crate::{Change, Config, DropReason, Packet, Side, Timestamp, Verdict};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use core::ops::Range;

impl Config {
    /// [`Config::share`] for an engine that replaces one with a share of `before`. Sizes that only
    /// a restart changes, and that the configuration leaves open, stay as they were.
    #[must_use]
    pub fn share_after(&self, engines: u32, before: &Self) -> Self {
        let (mut config, before) = (self.share(engines), before.share(engines));
        let (own, limits) = (&self.limits, &mut config.limits);
        let kept = |is_open: bool, limit: &mut Option<u32>, before: Option<u32>| {
            if is_open {
                *limit = before;
            }
        };
        kept(own.mappings.is_none(), &mut limits.mappings, before.limits.mappings);
        kept(own.subscribers.is_none(), &mut limits.subscribers, before.limits.subscribers);
        let extra = before.limits.extra_sessions;
        kept(own.extra_sessions.is_none(), &mut limits.extra_sessions, extra);
        let twice = before.limits.twice_sessions;
        kept(own.twice_sessions.is_none(), &mut limits.twice_sessions, twice);
        let addresses = before.limits.external_addresses;
        kept(own.external_addresses.is_none(), &mut limits.external_addresses, addresses);
        config
    }

    /// Merges the numbering of pools and realms of several engines with one configuration. Each
    /// engine may still have numbers that it has not freed.
    #[must_use]
    pub fn with_numbers_of(mut self, other: Self) -> Self {
        for (number, pool) in other.pools.into_iter().enumerate() {
            match self.pools.get_mut(number) {
                Some(known) if known.name.is_empty() => *known = pool,
                Some(_) => {}
                None => self.pools.push(pool),
            }
        }
        for (number, realm) in other.realms.into_iter().enumerate() {
            match self.realms.get_mut(number) {
                Some(known) if known.is_free() => *known = realm,
                Some(_) => {}
                None => self.realms.push(realm),
            }
        }
        self
    }

    /// The configuration of one engine out of `engines` that share the work: a share of every limit
    /// in all.
    #[must_use]
    pub fn share(&self, engines: u32) -> Self {
        let sizes = Sizes::new(self);
        let share = |all: u32| all.div_ceil(engines.max(1));
        let some = |all: usize| Some(share(all as u32));
        let mut config = self.clone();
        let limits = &mut config.limits;
        limits.external_addresses = Some(sizes.address_room as u32);
        limits.mappings = some(sizes.room.dynamic);
        limits.extra_sessions = some(sizes.room.further);
        limits.extra_sessions_per_subscriber = Some(sizes.further_each);
        limits.subscribers = some(sizes.subscribers.subscribers);
        limits.twice_sessions = some(sizes.twice);
        limits.fragment_memory = limits.fragment_memory.div_ceil(engines.max(1) as usize);
        limits.icmp_errors_per_second = share(limits.icmp_errors_per_second);
        limits.explicit_mappings = share(limits.explicit_mappings);
        limits.held_ports = limits.held_ports.map(share);
        for total in config.classes.iter_mut().map(|class| &mut class.total) {
            let all = [
                &mut total.tcp_ports,
                &mut total.udp_ports,
                &mut total.icmp_ports,
                &mut total.sessions,
                &mut total.new_mappings_per_second,
            ];
            for limit in all {
                *limit = limit.map(share);
            }
        }
        config
    }
}

impl Engine {
    /// Makes this engine one of several that share the work: number `number` (from 0) of `engines`.
    /// The engine then gives out only ports that [`Engine::own`] names, and hands over packets that
    /// turn round. It reports the blocks assigned at the start of the subscribers that `has` names.
    pub fn divide(&mut self, (number, engines): (u16, u16), has: impl Fn(u16, Ipv4Addr) -> bool) {
        self.is_divided = true;
        self.identifications.divide(number, engines);
        self.external.divide();
        self.external.report_only(&has);
        let blocks = core::mem::take(&mut self.pinned);
        let is_own = |&block: &u32| {
            let block = self.external.block(block);
            has(block.realm, block.subscriber)
        };
        self.pinned = blocks.into_iter().filter(is_own).collect();
    }

    /// Makes this engine, until now alone, one of several. The engine keeps its ports and its
    /// state.
    pub fn divide_from_now(&mut self, (number, engines): (u16, u16)) {
        self.is_divided = true;
        self.identifications.divide(number, engines);
        self.external.divide_as_it_is();
    }

    /// Changes the number of engines that share the work.
    pub fn set_engines(&mut self, (number, engines): (u16, u16)) {
        self.identifications.divide(number, engines);
    }

    /// The number of this engine, from 0 on, and the number of engines that share the work.
    pub fn place(&self) -> (u16, u16) {
        self.identifications.place()
    }

    /// Gives out these ports of an external address from now on. `words` counts words of 64 ports.
    pub fn own(&mut self, address: Ipv4Addr, words: Range<usize>) {
        if let Some(index) = self.external.index(address.to_bits()) {
            self.external.own(index, words.start.min(1024)..words.end.min(1024));
        }
    }

    /// True if a word of 64 ports of an external address is this engine's own.
    pub fn owns(&self, address: Ipv4Addr, word: usize) -> bool {
        let index = self.external.index(address.to_bits());
        index.is_some_and(|index| word < 1024 && self.external.owns(index, word))
    }

    /// The words of 64 ports of the block that a port is in. `None`: the port is in no block, or in
    /// one without whole words.
    pub fn block_words(&self, address: Ipv4Addr, port: u16) -> Option<Range<usize>> {
        self.external.block_words(self.external.index(address.to_bits())?, port)
    }

    /// Gives up consecutive words of a block to another engine that shares the work: the block's
    /// subscriber has mappings there. Returns the ports in hold-down, which the other engine has to
    /// hold as well, with their protocols. `None`: not all words are this engine's, or a port there
    /// has a mapping or rests.
    pub fn cede_block(&mut self, address: Ipv4Addr, words: Range<usize>) -> Option<Vec<(u8, u16)>> {
        let index = self.external.index(address.to_bits())?;
        let (held, released) = self.external.cede_held(index, words)?;
        if let Some(block) = released {
            self.raise(self.now, Change::BlockReleased(block));
        }
        Some(held)
    }

    /// Gives out these words of a block from now on, as another engine gave them up
    /// ([`Engine::cede_block`]). The held ports have a whole hold-down. Beyond the limit of held
    /// ports, those that were held longest become free.
    pub fn own_block(&mut self, address: Ipv4Addr, words: Range<usize>, held: &[(u8, u16)]) {
        self.own(address, words);
        let until = self.deadline(self.now, self.timeouts.hold_down);
        if let Some(index) = self.external.index(address.to_bits()) {
            self.external.hold_all(index, held, [self.tick, until]);
        }
    }

    /// Gives out exactly these ports of an external address from now on, even if mappings have
    /// others. `words` counts words of 64 ports.
    pub fn own_only(&mut self, address: Ipv4Addr, words: &[Range<usize>]) {
        if let Some(index) = self.external.index(address.to_bits()) {
            self.external.own_only(index, words);
        }
    }

    /// Gives up free ports of a pool: of the ports below 1024 (`is_low`) or from 1024 on, at most
    /// `most` words of 64 in a row. `only` restricts the search to one address. `None`: there are
    /// no such ports.
    pub fn cede(
        &mut self,
        pool: usize,
        only: Option<Ipv4Addr>,
        is_low: bool,
        most: usize,
    ) -> Option<(Ipv4Addr, Range<usize>)> {
        let only = match only {
            Some(address) => Some(self.external.index(address.to_bits())?),
            None => None,
        };
        let (index, words) = self.external.cede(pool, only, is_low, most)?;
        Some((Ipv4Addr::from_bits(self.external.address(index)), words))
    }

    /// Looks for a block without a subscriber of which this engine has the first word of 64 ports,
    /// and not all, so that no engine can give the block to a subscriber. Returns the first words
    /// that it lacks. A call looks at some blocks, and the next one at others.
    pub fn next_split_block(&mut self) -> Option<(Ipv4Addr, Range<usize>)> {
        let (index, words) = self.external.next_split_block()?;
        Some((Ipv4Addr::from_bits(self.external.address(index)), words))
    }

    /// Gives up words of a block to the engine that has its first word. Returns false if a port of
    /// the words is in use or held, if not all of them are this engine's own, or if the block has a
    /// subscriber here.
    pub fn cede_rest(&mut self, address: Ipv4Addr, words: Range<usize>) -> bool {
        let index = self.external.index(address.to_bits());
        index.is_some_and(|index| self.external.cede_rest(index, words))
    }

    /// Number of free ports of a pool that this engine may give out, below 1024 (`is_low`) or from
    /// 1024 on. The protocol with the fewest free ports counts (of TCP, UDP and ICMP). In a pool
    /// with blocks, all ports of blocks that may be given to a subscriber count, and no others.
    pub fn free_ports(&self, pool: usize, is_low: bool) -> u32 {
        self.external.fewest_free(pool, is_low)
    }

    /// Time of a refusal because a pool had no free port. It is the first one of its second; those
    /// behind it are not noted.
    pub fn last_exhausted(&self, pool: usize) -> Option<Timestamp> {
        self.pool_reported.get(pool).copied().flatten().map(Timestamp)
    }

    /// [`Engine::free_ports`] of one external address; 0 if the address is not external.
    pub fn free_ports_of(&self, address: Ipv4Addr, is_low: bool) -> u32 {
        let index = self.external.index(address.to_bits());
        index.map_or(0, |index| self.external.fewest_free_of(index, is_low))
    }

    /// True if new mappings may have ports of an address of a pool, in this engine or in another
    /// one that shares the work.
    pub fn has_open_address(&self, pool: usize) -> bool {
        pool < self.external.count_pools() && self.external.has_open(pool)
    }

    /// True if a host inside has mappings or blocks here.
    pub fn knows(&self, realm: u16, address: Ipv4Addr) -> bool {
        self.subscribers.find(Host::new(realm, address.to_bits())).is_some()
    }

    /// True if a host inside has blocks of ports, be they empty.
    pub fn has_blocks(&self, realm: u16, address: Ipv4Addr) -> bool {
        let host = Host::new(realm, address.to_bits());
        let mut pools = 0..self.config.pools.len();
        // A copied block gives out no ports here, and yet it is the host's.
        pools.any(|pool| self.external.has_blocks(pool) && self.external.owns_block(pool, host))
    }

    /// True if a host inside has mappings, blocks or static mappings here.
    pub fn is_established(&self, realm: u16, address: Ipv4Addr) -> bool {
        let host = Host::new(realm, address.to_bits());
        self.subscribers.find(host).is_some() || self.static_hosts.binary_search(&host).is_ok()
    }

    /// True if more than half of the possible subscribers are present.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded_after(0)
    }

    /// True if more than half of the possible subscribers are present, or of their records taken,
    /// as soon as so many packets have made a subscriber each.
    #[inline]
    pub fn is_crowded_after(&self, packets: usize) -> bool {
        let all = [self.subscribers.filled(), self.subscribers.records_filled()];
        all.into_iter().any(|filled| filled.used + packets > filled.most / 2)
    }

    /// Leaves packets alone from now on that would make a host a subscriber while the table of
    /// subscribers is crowded ([`Engine::is_crowded`]): their verdict is [`Verdict::Held`], and
    /// nothing is counted. The caller gives them to [`Engine::process_admitted`], or drops them.
    /// Hosts that have numbers are not meant.
    pub fn guard_newcomers(&mut self) {
        self.guards_newcomers = true;
    }

    /// True if [`Engine::guard_newcomers`] has an effect on packets from a realm now.
    pub fn guards(&self, realm: u16) -> bool {
        self.guards_newcomers && self.is_crowded() && !self.has_numbers(realm)
    }

    /// True if a packet from inside with the verdict [`Verdict::Held`] is one that the engine has
    /// left alone.
    pub fn awaits_admission(&self, packet: &Packet<'_>) -> bool {
        // All other packets with that verdict are fragments behind the first.
        let field = packet.bytes().get(6..8).and_then(|field| <[u8; 2]>::try_from(field).ok());
        let is_first = field.is_some_and(|field| u16::from_be_bytes(field) & 0x1fff == 0);
        self.guards_newcomers && is_first && !self.has_numbers(packet.realm())
    }

    /// [`Engine::process`] of a packet from inside whose host may become a subscriber.
    pub fn process_admitted(&mut self, now: Timestamp, packet: &mut Packet<'_>) -> Verdict {
        self.process_unguarded(now, Side::Inside, packet)
    }

    pub(crate) fn process_unguarded(
        &mut self,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Verdict {
        let mut verdict = [Verdict::Held];
        self.admitting(|engine| {
            engine.process(now, from, core::slice::from_mut(packet), &mut verdict);
        });
        verdict[0]
    }

    /// Does something, with packets whose hosts may become subscribers.
    pub fn admitting<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let guards = core::mem::take(&mut self.guards_newcomers);
        let result = work(self);
        self.guards_newcomers = guards;
        result
    }

    /// True if the caller has the last word about packets of a host now.
    #[cold]
    pub(crate) fn is_left_alone(&self, host: Host) -> bool {
        self.guards(host.realm()) && !self.is_established(host.realm(), host.ip())
    }

    /// True if a mapping here, or an address that is mapped as a whole, takes this packet from
    /// outside. The packet's protocol has no ports.
    pub fn expects(&mut self, packet: &[u8]) -> bool {
        let Ok(headers) = parse(packet) else { return true };
        let Some(index) = self.external.index(headers.destination.address) else { return true };
        let external = External::new(index, headers.destination.port);
        let flow = self.find_external(headers.protocol, external, headers.remote_inbound());
        flow.is_some() || self.statics.internal(index, headers.protocol).is_some()
    }

    /// Number of dynamic mappings.
    pub fn count_mappings(&self) -> u64 {
        self.table.count_dynamic_mappings() as u64
    }

    /// Number of hosts of a [`bucket`](crate::bucket) that have mappings here.
    pub fn hosts_of(&self, bucket: usize) -> u32 {
        self.subscribers.count_of(bucket)
    }

    /// Counts a packet of `len` bytes as dropped that never reached [`Engine::process`].
    pub fn count_lost(&mut self, direction: Direction, reason: DropReason, len: usize) {
        self.counters.count_drop(direction, reason, len);
    }

    /// True if the packet that [`Engine::poll_transmit`] gave last turns round. Hand it over, as
    /// [`Verdict::HandOver`](crate::Verdict::HandOver) says. The packet has not been counted.
    pub fn transmit_turns(&self) -> bool {
        self.turns
    }
}
