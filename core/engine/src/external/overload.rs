//! Ports that a subscriber's flow may share with others when no port is free (section 5.21 of the
//! specification): ports of the address that the subscriber is paired with, else of any address; in
//! pools that share ports out, the subscriber's own ports. The search for a free port that avoids
//! some ports looks at the same ports.

use super::shares::Mode;
use super::{ExternalPorts, Pool, Range, Wish};
use crate::config::Pooling;
use crate::deterministic::Plan;
use crate::host::Host;
use crate::protocols::protocol_index;
use crate::random::Generator;

impl ExternalPorts {
    /// True if a port with an owner would be given out if it were free.
    pub(crate) fn may_share(&self, protocol: u8, index: u32, port: u16) -> bool {
        self.gives_out(protocol_index(protocol), index, port)
    }

    /// The addresses of which a flow may have any port of a range, and that range, first to last.
    /// None in pools that share ports out.
    pub(crate) fn everybodys<'a>(&'a self, wish: &'a Wish) -> (&'a [u32], (u16, u16)) {
        let Wish { pool, protocol, internal_port, paired, fixed } = wish;
        let Range { first, last } = self.range(*pool, *protocol, *internal_port);
        let Pool { slots, members, mode, .. } = &self.pools[*pool];
        let paired = if self.pooling == Pooling::Arbitrary { &None } else { paired };
        let only = if fixed.is_some() { fixed } else { paired };
        let addresses: &[u32] = match only {
            _ if !matches!(mode, Mode::Random | Mode::Preserve) => &[],
            None => &slots[..],
            Some(index) if members.has(*index) => only.as_slice(),
            Some(_) => &[],
        };
        (addresses, (first, last))
    }

    /// The ranges of ports, first to last, each with the index of its address, that a pool has
    /// shared out to a subscriber, as far as a flow may have them.
    pub(crate) fn shared_out(
        &self,
        wish: &Wish,
        subscriber: Host,
    ) -> impl Iterator<Item = (u32, (u16, u16))> {
        let &Wish { pool, protocol, internal_port, .. } = wish;
        let mode = self.pools[pool].mode;
        let range = self.range(pool, protocol, internal_port);
        let has_blocks = mode == Mode::Block;
        let blocks = has_blocks.then(|| self.blocks.of(subscriber, pool)).into_iter().flatten();
        let blocks = blocks.map(|block| self.blocks.place_of(block));
        let blocks =
            blocks.filter(move |(_, (low, high))| *low <= range.last && *high >= range.first);
        let own = if mode == Mode::Deterministic { self.share_of(pool, subscriber) } else { None };
        blocks.chain(own.map(|(index, range)| (index, (range.first, range.last))))
    }

    /// Chooses a free port of an address other than `but`: one of the subscriber's own if the pool
    /// shares ports out, with the internal port's parity if possible.
    #[cold]
    pub(crate) fn choose_but(
        &self,
        (wish, index): (Wish, u32),
        subscriber: Host,
        but: &[u16],
        generator: &mut Generator,
    ) -> Option<u16> {
        let ports = &self.ports[protocol_index(wish.protocol)];
        let dynamic = self.plans.get(wish.pool).and_then(Plan::dynamic);
        let wish = Wish { fixed: Some(index), ..wish };
        self.parity(&wish).or_any(|parity| {
            let (addresses, range) = self.everybodys(&wish);
            let whole = addresses.iter().map(|_| range);
            let own = self.shared_out(&wish, subscriber).filter(|(at, _)| *at == index);
            let pieces = whole.chain(own.map(|(_, piece)| piece)).chain(dynamic);
            pieces
                .map(|(first, last)| {
                    let start = first + generator.below(u32::from(last - first) + 1) as u16;
                    let free = |range| ports.first_but(index, range, parity, but);
                    free(Range { first: start, last })
                        .or_else(|| free(Range { first, last: start }))
                })
                .find_map(|port| port)
        })
    }
}
