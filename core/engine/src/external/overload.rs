//! Ports that a subscriber's flow may share with others when no port is free (section 5.21 of the
//! specification): ports of the address that the subscriber is paired with, else of any address; in
//! pools that share ports out, the subscriber's own ports. The search for a free port that avoids
//! some ports uses the pieces too.

use super::shares::Mode;
use super::{ExternalPorts, Range, Wish};
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

    /// Ranges of ports, first to last, each with the index of its address.
    pub(crate) fn pieces(
        &self,
        wish: &Wish,
        subscriber: Host,
    ) -> impl Iterator<Item = (u32, (u16, u16))> {
        let &Wish { pool, protocol, internal_port, paired, fixed } = wish;
        let mode = self.pools[pool].mode;
        let range = self.range(pool, protocol, internal_port);
        let paired = paired.filter(|_| self.pooling != Pooling::Arbitrary);
        let only = fixed.or(paired);
        let everybodys = matches!(mode, Mode::Random | Mode::Preserve);
        let slots: &[u32] = if everybodys { &self.pools[pool].slots } else { &[] };
        let addresses = slots.iter().copied();
        let addresses = addresses.filter(move |&index| only.is_none_or(|it| it == index));
        let whole = addresses.map(move |index| (index, (range.first, range.last)));
        let has_blocks = mode == Mode::Block;
        let blocks = has_blocks.then(|| self.blocks.of(subscriber, pool)).into_iter().flatten();
        let blocks = blocks.map(|block| self.blocks.place_of(block));
        let blocks =
            blocks.filter(move |(_, (low, high))| *low <= range.last && *high >= range.first);
        let own = if mode == Mode::Deterministic { self.share_of(pool, subscriber) } else { None };
        let own = own.map(|(index, range)| (index, (range.first, range.last)));
        whole.chain(blocks).chain(own)
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
            let pieces = self.pieces(&wish, subscriber).filter(|(at, _)| *at == index);
            let pieces = pieces.map(|(_, piece)| piece).chain(dynamic);
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
