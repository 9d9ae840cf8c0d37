//! The choice of a port among a subscriber's own ports: blocks or a deterministic range.

use super::shares::Chosen;
use super::{ExternalPorts, Mode, Parity, Pool, Range, Wish};
use crate::DropReason;
use crate::blocks::{HIGH, LOW};
use crate::config::Pooling;
use crate::deterministic::Plan;
use crate::endpoint::External;
use crate::host::Host;
use crate::protocols::protocol_index;
use crate::random::Generator;

impl ExternalPorts {
    /// Chooses a free external endpoint among the subscriber's own ports. `wish.paired` comes from
    /// [`ExternalPorts::pairing`].
    pub(crate) fn choose_share(
        &self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Result<Chosen, DropReason> {
        if self.pools[wish.pool].mode != Mode::Block {
            let external = self.choose_by_plan(wish, subscriber, generator)?;
            return Ok(Chosen { external, block: None });
        }
        let range = self.range(wish.pool, wish.protocol, wish.internal_port);
        if let Some(external) = self.choose_in_own(wish, range, subscriber, generator) {
            return Ok(Chosen { external, block: None });
        }
        let owned = self.blocks_of(wish.pool, subscriber);
        if owned.used >= owned.most {
            return Err(DropReason::PortQuota);
        }
        let block = self.draw_block(wish, range, generator).ok_or(DropReason::PoolExhausted)?;
        debug_assert!(self.gives_block(block), "the block is not this engine's own");
        let (index, (first, last)) = self.blocks.place_of(block);
        let port = match self.pools[wish.pool].is_whole {
            true => self.port_of_own(index, wish, generator),
            false => self.choose_within(index, Range { first, last }, wish, generator),
        };
        let port = port.expect("a block with a free port was drawn");
        Ok(Chosen { external: External::new(index, port), block: Some(block) })
    }

    /// Assigns a block that nobody has to a subscriber.
    pub(crate) fn assign(&mut self, block: u32, subscriber: Host) {
        //= rfc6888#REQ-14
        self.blocks.assign(block, subscriber);
    }

    /// True if all of a subscriber's own ports of a pool are on the address with this index.
    pub(crate) fn is_alone(&self, wish: Wish, subscriber: Host, index: u32) -> bool {
        match self.pools[wish.pool].mode {
            Mode::Deterministic => {
                self.share_of(wish.pool, subscriber).is_some_and(|(own, _)| own == index)
            }
            _ => {
                let mut own = self.blocks.of(subscriber, wish.pool);
                own.all(|block| self.blocks.place_of(block).0 == index)
            }
        }
    }

    /// A port of the blocks that the subscriber has: of each as likely as it has free ones.
    pub(super) fn choose_in_own(
        &self,
        wish: Wish,
        range: Range,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Option<External> {
        if self.pools[wish.pool].is_whole {
            return self.choose_at_own(wish, subscriber, generator);
        }
        let protocol = protocol_index(wish.protocol);
        let fits = move |&(_, (first, last)): &(u32, (u16, u16))| {
            range.first <= last && first <= range.last
        };
        let free = |block: u32| self.blocks.free(block, protocol);
        let own = self.blocks.of(subscriber, wish.pool).filter(|&block| free(block) > 0);
        let own = own.filter(|&block| fits(&self.blocks.place_of(block)));
        let near = |block: &u32| Some(self.blocks.place_of(*block).0) == wish.paired;
        let preferred =
            self.pooling == Pooling::SoftPaired && own.clone().any(|block| near(&block));
        let own = own.filter(|block| !preferred || near(block));
        let all: u32 = own.clone().map(free).sum();
        if all == 0 {
            return None;
        }
        let mut which = generator.below(all);
        let place = own.clone().position(|block| {
            let here = which < free(block);
            which -= if here { 0 } else { free(block) };
            here
        })?;
        let mut turned = own.clone().skip(place).chain(own.take(place)).map(|block| {
            let (index, (first, last)) = self.blocks.place_of(block);
            (index, Range { first, last })
        });
        let first = turned.clone().next()?;
        let ports = &self.ports[protocol];
        let parity = self.parity(&wish);
        let kept = turned.find_map(|(index, range)| {
            Some(External::new(index, ports.choose_within(index, range, parity, generator)?))
        });
        if kept.is_some() || parity == Parity::Any {
            return kept;
        }
        let (index, range) = first;
        Some(External::new(index, ports.choose_within(index, range, Parity::Any, generator)?))
    }

    /// Draws a block without an owner, for a subscriber with full blocks.
    pub(super) fn draw_block(
        &self,
        wish: Wish,
        range: Range,
        generator: &mut Generator,
    ) -> Option<u32> {
        if self.pools[wish.pool].is_whole {
            return self.draw_whole(wish.pool, protocol_index(wish.protocol), generator);
        }
        let protocol = protocol_index(wish.protocol);
        let ports = &self.ports[protocol];
        let permitted = |&side: &usize| {
            let (first, last) = if side == LOW { (0, 1023) } else { (1024, u16::MAX) };
            range.first <= last && first <= range.last && self.blocks.has_side(wish.pool, side)
        };
        // A subscriber that may have blocks of both sides gets one of the upper side first.
        let sides = [HIGH, LOW];
        if self.pooling != Pooling::Arbitrary
            && let Some(index) = wish.paired
        {
            let mut sides = sides.iter().filter(|side| permitted(side));
            let block = sides
                .find_map(|&side| self.blocks.draw(wish.pool, index, side, protocol, generator));
            if block.is_some() || self.pooling == Pooling::Paired {
                return block;
            }
        }
        sides.iter().filter(|side| permitted(side)).find_map(|&side| {
            let has_port = |index| ports.free_in(index, range) > 0;
            self.blocks.draw_anywhere(wish.pool, side, protocol, generator, has_port)
        })
    }

    pub(super) fn choose_by_plan(
        &self,
        wish: Wish,
        subscriber: Host,
        generator: &mut Generator,
    ) -> Result<External, DropReason> {
        let own = self.share_of(wish.pool, subscriber);
        //= rfc7422#section-2-own
        //= rfc7422#section-2-icmp
        if let Some((index, range)) = own
            && let Some(port) = self.choose_within(index, range, wish, generator)
        {
            return Ok(External::new(index, port));
        }
        let Some((first, last)) = self.plans.get(wish.pool).and_then(Plan::dynamic) else {
            // The other engine of a pair gives out the ports of a closed address.
            let used_up = own.is_some_and(|(index, _)| self.assigns(index));
            return Err(if used_up { DropReason::PortQuota } else { DropReason::PoolExhausted });
        };
        //= rfc7422#section-2-dynamic
        let index =
            self.choose_dynamic_address(wish, generator).ok_or(DropReason::PoolExhausted)?;
        let port = self.choose_within(index, Range { first, last }, wish, generator);
        Ok(External::new(index, port.ok_or(DropReason::PoolExhausted)?))
    }

    /// The address for a dynamic port: the paired address if the pooling behavior says so, else the
    /// better of two random addresses, or the next address with a free dynamic port.
    pub(super) fn choose_dynamic_address(
        &self,
        wish: Wish,
        generator: &mut Generator,
    ) -> Option<u32> {
        let protocol = protocol_index(wish.protocol);
        let free = |index: u32| self.plans.free[index as usize][protocol];
        match (self.pooling, wish.paired) {
            (Pooling::Paired, Some(index)) => return Some(index),
            (Pooling::SoftPaired, Some(index)) if free(index) > 0 => return Some(index),
            _ => {}
        }
        if self.plans.pool_free[wish.pool][protocol] == 0 {
            return None;
        }
        let Pool { slots, members, .. } = &self.pools[wish.pool];
        let at = |place: u32| free(slots[place as usize]);
        let place = generator.better_of_two(slots.len() as u32, |a, b| at(a) >= at(b));
        let index = *slots.get(place as usize)?;
        if free(index) > 0 {
            return Some(index);
        }
        members.next(index, |word| self.plans.some_free[protocol].word(word))
    }

    pub(super) fn choose_within(
        &self,
        index: u32,
        range: Range,
        wish: Wish,
        generator: &mut Generator,
    ) -> Option<u16> {
        let ports = &self.ports[protocol_index(wish.protocol)];
        self.parity(&wish).or_any(|parity| ports.choose_within(index, range, parity, generator))
    }
}
