//! The choice of an external endpoint for a new mapping: address first, then port.
//!
//! A choice changes nothing; the caller takes the port.

use super::{Draw, ExternalPorts, Mode, PORTLESS, Parity, Pool, Ports, Range, Wish};
use crate::config::Pooling;
use crate::endpoint::External;
use crate::prefetch::prefetch_within;
use crate::protocols::protocol_index;
use crate::random::Generator;
use natgate_wire::protocol;

/// Largest number of a pool's addresses that are looked at for one mapping without a port. Of a
/// pool with more addresses, random ones are drawn until so many give out such mappings.
const PORTLESS_LOOKS: usize = 32;
/// Largest number of these draws.
const PORTLESS_DRAWS: usize = 256;

impl ExternalPorts {
    /// The ports of a pool that an internal port may have. ICMP identifiers are on no side of 1024.
    #[inline(always)]
    pub(super) fn range(&self, pool: usize, protocol: u8, internal_port: u16) -> Range {
        let Pool { ports: (first, last), sides, .. } = &self.pools[pool];
        match protocol {
            protocol::ICMP => Range { first: *first, last: *last },
            _ => sides[usize::from(internal_port >= 1024)],
        }
    }

    /// Chooses a free external endpoint for a new mapping. `tenants` is the number of subscribers
    /// that are paired with each address.
    pub(crate) fn choose(
        &self,
        wish: Wish,
        tenants: &[u32],
        generator: &mut Generator,
    ) -> Option<External> {
        let range = self.range(wish.pool, wish.protocol, wish.internal_port);
        let ports = &self.ports[protocol_index(wish.protocol)];
        let index = match (self.pooling, wish.fixed.or(wish.paired)) {
            // A rule has chosen the address.
            (_, Some(index)) if wish.fixed.is_some() => index,
            //= rfc4787#REQ-2
            //= rfc7857#section-4
            //= rfc7857#section-4-tcp
            //= rfc6146#section-3.5.1.1-address
            //= rfc6146#section-3.5.2.3-address
            (Pooling::Paired, Some(index)) => index,
            //= rfc7857#section-4-soft
            (Pooling::SoftPaired, Some(index)) if ports.free_in(index, range) > 0 => index,
            _ => self.choose_address(wish, range, tenants, generator)?,
        };
        Some(External::new(index, self.choose_port(index, wish, range, generator)?))
    }

    /// The better of two random addresses; if neither has a free port, the next address that has
    /// one. While both have plenty of ports, the address with fewer subscribers is better, because
    /// its subscribers will need more ports later. Otherwise the address with more free ports is
    /// better.
    pub(super) fn choose_address(
        &self,
        wish: Wish,
        range: Range,
        tenants: &[u32],
        generator: &mut Generator,
    ) -> Option<u32> {
        let Pool { slots, members, .. } = &self.pools[wish.pool];
        let ports = &self.ports[protocol_index(wish.protocol)];
        if Ports::in_range(ports.pool_count[wish.pool], range) == 0 {
            return None;
        }
        let free = |place: u32| ports.free_in(slots[place as usize], range);
        let tenants = |place: u32| tenants[slots[place as usize] as usize];
        let plenty = (u32::from(range.last) - u32::from(range.first)) / 4;
        let is_better = |a: u32, b: u32| {
            let by_tenants = self.pooling != Pooling::Arbitrary
                && free(a).min(free(b)) > plenty
                && tenants(a) != tenants(b);
            if by_tenants { tenants(a) < tenants(b) } else { free(a) >= free(b) }
        };
        let place = generator.better_of_two(slots.len() as u32, is_better);
        let index = *slots.get(place as usize)?;
        if free(place) > 0 { Some(index) } else { ports.next_free(members, index, range) }
    }

    /// Chooses an external address for a mapping without a port: the wished address, or an address
    /// that the pooling behavior permits and `is_free` accepts. It is the first one from a random
    /// one on; in a large pool, the first of some random ones.
    pub(crate) fn choose_portless(
        &self,
        wish: &Wish,
        generator: &mut Generator,
        is_free: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let &Wish { pool, paired, fixed, .. } = wish;
        let is_open = |index: &u32| {
            let slot = &self.slots[*index as usize];
            !slot.is_closed && usize::from(slot.pool) == pool && slot.kept & PORTLESS == 0
        };
        let fits = |index: &u32| is_open(index) && is_free(*index);
        if fixed.is_some() {
            return fixed.filter(fits);
        }
        if self.pooling != Pooling::Arbitrary && paired.is_some() {
            let index = paired.filter(fits);
            if index.is_some() || self.pooling == Pooling::Paired {
                return index;
            }
        }
        // Replies reach the engine that gives out the address's ports.
        let is_deterministic = self.pools[pool].mode == Mode::Deterministic;
        let answers_come = |index: &u32| is_deterministic || self.part.has_any(*index);
        let Pool { slots, members, .. } = &self.pools[pool];
        let count = slots.len() as u32;
        if self.is_looked_at_in_part(pool) {
            let own = |word| if is_deterministic { u64::MAX } else { self.part.addresses(word) };
            let draw = |_| members.next(slots[generator.below(count) as usize], own);
            let open = (0..PORTLESS_DRAWS).map_while(draw).filter(is_open);
            return open.take(PORTLESS_LOOKS).find(|index| is_free(*index));
        }
        let start = generator.below(count) as usize;
        let (before, after) = slots.split_at_checked(start)?;
        after.iter().chain(before).copied().find(|index| answers_come(index) && fits(index))
    }

    /// True if a pool has so many addresses that a mapping without a port may find none although
    /// one is free.
    pub(crate) fn is_looked_at_in_part(&self, pool: usize) -> bool {
        self.pools[pool].slots.len() > PORTLESS_LOOKS
    }

    /// The pool's address that gives out ports, if there is exactly one.
    pub(crate) fn only_address(&self, pool: usize) -> Option<u32> {
        match self.pools[pool].slots[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    pub(super) fn choose_port(
        &self,
        index: u32,
        wish: Wish,
        range: Range,
        generator: &mut Generator,
    ) -> Option<u16> {
        let ports = &self.ports[protocol_index(wish.protocol)];
        //= rfc7857#section-9-preserve
        //= rfc6056#section-4-preserve
        if self.pools[wish.pool].mode == Mode::Preserve
            && (range.first..=range.last).contains(&wish.internal_port)
            && ports.is_free(index, wish.internal_port)
        {
            return Some(wish.internal_port);
        }
        if ports.free_in(index, range) == 0 {
            return None;
        }
        self.parity(&wish).or_any(|parity| ports.choose(index, range, parity, generator))
    }

    /// Draws a word of the port bitmap for a TCP or UDP flow of a subscriber that has an address,
    /// or whose address a rule chose. Prefetches the word for [`ExternalPorts::drawn`]. `None`: the
    /// pool chooses ports in another way.
    #[inline(always)]
    pub(crate) fn draw(&self, wish: Wish, generator: &mut Generator) -> Option<Draw> {
        let paired = || wish.paired.filter(|_| self.pooling != Pooling::Arbitrary);
        let index = wish.fixed.or_else(paired)?;
        let Pool { sides, mode, .. } = &self.pools[wish.pool];
        let range = sides[usize::from(wish.internal_port >= 1024)];
        let kept = || (range.first..=range.last).contains(&wish.internal_port);
        let draw = match mode {
            Mode::Preserve if kept() => Draw::exactly(index, wish.internal_port),
            Mode::Random | Mode::Preserve => range.draw(index, self.parity(&wish), generator),
            Mode::Block | Mode::Deterministic => return None,
        };
        prefetch_within(&self.tcp_or_udp(wish.protocol).free, draw.place());
        Some(draw)
    }

    /// Prefetches the entry of the port that a draw gives. Returns the port; 0: there is none.
    #[inline(always)]
    pub(crate) fn prefetch_drawn(&self, protocol: u8, draw: &Draw) -> u16 {
        let ports = self.tcp_or_udp(protocol);
        let Some(port) = ports.pick(draw) else { return 0 };
        prefetch_within(&ports.owner, Self::entry(draw.address, port));
        port
    }

    /// The external endpoint that a draw gives, if the word has a free port. `port` is the port
    /// that the draw gave a moment ago; in the meantime it may have been taken.
    #[inline(always)]
    pub(crate) fn drawn(&self, protocol: u8, draw: &Draw, port: u16) -> Option<External> {
        let ports = self.tcp_or_udp(protocol);
        let port = if ports.is_free(draw.address, port) { port } else { ports.pick(draw)? };
        Some(External::new(draw.address, port))
    }

    /// True if new mappings keep a free internal port.
    pub(crate) fn keeps(&self, wish: &Wish) -> bool {
        self.pools[wish.pool].mode == Mode::Preserve
    }

    pub(super) fn parity(&self, wish: &Wish) -> Parity {
        //= rfc4787#REQ-4
        //= rfc7857#section-8
        //= rfc6146#section-3.5.1.1-parity
        match (self.parity && wish.protocol == protocol::UDP, wish.internal_port & 1) {
            (false, _) => Parity::Any,
            (true, 0) => Parity::Even,
            (true, _) => Parity::Odd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AddressRange, Config, PoolConfig};
    use crate::external::WORDS;
    use crate::random::HashKey;
    use alloc::vec;
    use core::cell::Cell;
    use core::net::Ipv4Addr;

    const FIRST: u32 = 0xcb00_7100;

    /// The ports of one pool of this many addresses.
    fn external(addresses: u32) -> ExternalPorts {
        let last = Ipv4Addr::from_bits(FIRST + addresses - 1);
        let range = AddressRange { first: Ipv4Addr::from_bits(FIRST), last };
        let pool = PoolConfig { addresses: vec![range], ..PoolConfig::default() };
        let config = Config { pools: vec![pool], ..Config::default() };
        let key = HashKey::new(&mut Generator::new([1; 32]));
        ExternalPorts::new(&config, addresses as usize, 1, key)
    }

    const WISH: Wish =
        Wish { pool: 0, protocol: protocol::TCP, internal_port: 4000, paired: None, fixed: None };

    #[test]
    fn a_pool_without_a_free_address_is_left_after_a_few_looks() {
        let mut generator = Generator::new([2; 32]);
        for addresses in [1, 5, PORTLESS_LOOKS as u32, 300] {
            let external = external(addresses);
            let looks = Cell::new(0);
            let chosen = external.choose_portless(&WISH, &mut generator, |_| {
                looks.set(looks.get() + 1);
                false
            });
            assert_eq!(chosen, None);
            assert_eq!(looks.get(), (addresses as usize).min(PORTLESS_LOOKS), "{addresses}");
        }
    }

    /// One of 64 engines gives out one of 64 addresses.
    #[test]
    fn an_engine_with_few_addresses_of_a_large_pool_finds_one() {
        const COUNT: u32 = 320;
        let mut generator = Generator::new([5; 32]);
        let mut external = external(COUNT);
        external.divide();
        (0..COUNT).step_by(64).for_each(|index| external.own(index, 0..WORDS));
        for number in 0..1000 {
            let chosen = external.choose_portless(&WISH, &mut generator, |_| true);
            assert!(chosen.is_some_and(|index| index % 64 == 0), "{number}: {chosen:?}");
        }
    }

    /// An engine that gives out few addresses of a large pool draws no more often than another.
    #[test]
    fn a_refusal_takes_as_many_draws_as_looks() {
        const COUNT: u32 = 320;
        let mut external = external(COUNT);
        external.divide();
        (0..COUNT).step_by(64).for_each(|index| external.own(index, 0..WORDS));
        let mut generator = Generator::new([6; 32]);
        let mut other = generator.clone();
        assert_eq!(external.choose_portless(&WISH, &mut generator, |_| false), None);
        (0..PORTLESS_LOOKS).for_each(|_| _ = other.below(COUNT));
        assert_eq!(generator.below(u32::MAX), other.below(u32::MAX));
    }

    #[test]
    fn the_only_address_with_free_ports_is_found() {
        const COUNT: u32 = 150;
        let mut generator = Generator::new([4; 32]);
        let mut external = external(COUNT);
        for index in 1..COUNT {
            external.ports[0].renew(index, Some(0), false, &[0; WORDS]);
        }
        let mut usable = [0; WORDS];
        usable[100] = 1 << 7;
        for index in (0..COUNT).rev() {
            external.ports[0].renew((index + 1) % COUNT, Some(0), false, &[0; WORDS]);
            external.ports[0].renew(index, Some(0), false, &usable);
            let chosen = external.choose(WISH, &[0; COUNT as usize], &mut generator);
            assert_eq!(chosen, Some(External::new(index, 100 * 64 + 7)));
            external.take(protocol::TCP, index, 100 * 64 + 7, 0);
            let chosen = external.choose(WISH, &[0; COUNT as usize], &mut generator);
            assert_eq!(chosen, None);
        }
    }

    #[test]
    fn a_small_pools_last_free_address_is_found() {
        let mut generator = Generator::new([3; 32]);
        let external = external(PORTLESS_LOOKS as u32);
        for free in 0..PORTLESS_LOOKS as u32 {
            let chosen = external.choose_portless(&WISH, &mut generator, |index| index == free);
            assert_eq!(chosen, Some(free));
        }
    }
}
