//! What a protocol sees: bytes in order, the endpoints of its flow, and the means to edit and to
//! expect.
//!
//! The rules about expectations that hold for every protocol are here, in one place: only the
//! internal host makes them, for its own address, for ports from 1024 on, and not too many.

use crate::Side;
use crate::expectation::{
    CallStep, Counterpart, Endpoints, Expectation, FurtherFlow, Ports, Uses, Wanted,
};
use crate::reason::Reason;
use crate::saved::Saved;
use crate::stream::edits::Edits;
use crate::text::Family;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use core::ops::Range;
use natgate_wire::protocol;

/// Result of a protocol that reads the bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first bytes pass, with the edits that were made; at least one byte.
    Pass(usize),
    /// The message is not complete. All bytes are held, and come again with more.
    More,
    /// The flow leaves the protocol for ever.
    Leave(Reason),
}

/// A protocol of one flow.
pub(crate) trait Protocol {
    /// Reads the bytes of the direction [`Context::from`] after those that passed. The result must
    /// not depend on the number of bytes behind the message.
    ///
    /// A datagram is one message: [`Step::More`] leaves the protocol there.
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step;
}

/// Expectations that a flow may make now: a token bucket. The time is in bytes, so that it fits
/// between others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    tokens: u8,
    since: [u8; 4],
}

const _: () = assert!(Budget::BURST <= u8::MAX as u16);

impl Saved for Budget {
    fn save(&self, to: &mut Vec<u8>) {
        u16::from(self.tokens).save(to);
        self.since.save(to);
    }

    fn restore(from: &mut &[u8]) -> Option<Self> {
        let tokens = u16::restore(from)?.min(Self::BURST) as u8;
        Some(Self { tokens, since: Saved::restore(from)? })
    }
}

impl Budget {
    /// Most expectations at once.
    pub(crate) const BURST: u16 = 64;
    /// More expectations in each second.
    pub(crate) const RATE: u32 = 16;

    /// A full budget at a time in seconds.
    pub(crate) const fn new(now: u32) -> Self {
        Self { tokens: Self::BURST as u8, since: now.to_le_bytes() }
    }

    /// Takes `count` tokens. False: there are not so many.
    fn take(&mut self, count: u16, now: u32) -> bool {
        let since = u32::from_le_bytes(self.since);
        let grown = now.saturating_sub(since).saturating_mul(Self::RATE);
        let tokens = u32::from(self.tokens).saturating_add(grown).min(u32::from(Self::BURST));
        self.since = now.to_le_bytes();
        let left = (tokens as u16).checked_sub(count);
        self.tokens = left.unwrap_or(tokens as u16) as u8;
        left.is_some()
    }
}

/// An expectation that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opened {
    /// What was asked for.
    pub expectation: Expectation,
    /// The external endpoint of the expected flow.
    pub external: SocketAddrV4,
}

/// The surroundings of one message.
pub(crate) struct Context<'c> {
    pub(crate) flow: &'c Endpoints,
    pub(crate) from: Side,
    pub(crate) opener: Side,
    pub(crate) is_datagram: bool,
    pub(crate) now: u32,
    pub(crate) budget: &'c mut Budget,
    pub(crate) draft: &'c mut Edits,
    pub(crate) ports: &'c mut dyn Ports,
    pub(crate) opened: &'c mut Vec<Opened>,
    pub(crate) refused: &'c mut Vec<Reason>,
}

impl Context<'_> {
    /// The endpoints of the flow.
    pub(crate) fn flow(&self) -> &Endpoints {
        self.flow
    }

    /// The side that the bytes come from.
    pub(crate) fn from(&self) -> Side {
        self.from
    }

    /// IP protocol number of the flow.
    pub(crate) fn transport(&self) -> u8 {
        if self.is_datagram { protocol::UDP } else { protocol::TCP }
    }

    /// True if the bytes come from the client.
    pub(crate) fn is_from_client(&self) -> bool {
        self.from == self.opener
    }

    /// True if the internal host has an IPv6 address.
    pub(crate) fn is_between_families(&self) -> bool {
        self.flow.internal.is_ipv6()
    }

    /// The family of the addresses that the sender writes.
    pub(crate) fn family(&self) -> Family {
        match self.from {
            Side::Inside => Family::of(self.flow.internal.ip()),
            Side::Outside => Family::Ipv4,
        }
    }

    /// Between families, the address by which the receiver knows a remote host that the sender
    /// names. `None`: there is none, or both sides have one family.
    pub(crate) fn across(&self, address: IpAddr) -> Option<IpAddr> {
        match (self.is_between_families(), address) {
            (false, _) => None,
            // Held media have no address (RFC 3264 section 8.4).
            (true, IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => Some(Ipv6Addr::UNSPECIFIED.into()),
            (true, IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => Some(Ipv4Addr::UNSPECIFIED.into()),
            (true, address) => self.ports.across(self.flow, address),
        }
    }

    /// True if there is room for all edits of one message with these texts.
    pub(crate) fn has_room<'t>(&self, texts: impl Iterator<Item = &'t [u8]>) -> bool {
        let (count, len) = texts.fold((0, 0), |(count, len), text| (count + 1, len + text.len()));
        self.draft.has_room(count, len)
    }

    /// Replaces bytes of the message. The ranges of one message come in order.
    pub(crate) fn replace(&mut self, range: Range<usize>, text: &[u8]) -> Result<(), Step> {
        let start = range.start as u32;
        let is_added = self.draft.push(start, range.len(), text);
        if is_added { Ok(()) } else { Err(Step::Leave(Reason::NoBuffer)) }
    }

    /// Counts something that is not done, and why.
    pub(crate) fn refuse(&mut self, reason: Reason) {
        if self.refused.len() < self.refused.capacity() {
            self.refused.push(reason);
        }
    }

    /// Makes an expectation for flows of `protocol` from the control flow's remote address to an
    /// endpoint that the internal host named. `None`: it was refused, and counted.
    pub(crate) fn expect(
        &mut self,
        protocol: u8,
        internal: SocketAddr,
        uses: Uses,
        lifetime: u16,
    ) -> Option<SocketAddrV4> {
        let remote = Some(*self.flow.remote.ip());
        let wanted = Wanted::AddressOfFlow;
        let expectation =
            Expectation { protocol, remote, remote_port: 0, internal, wanted, lifetime, uses };
        self.expect_exactly(expectation)
    }

    /// Makes an expectation. `None`: it was refused, and counted.
    pub(crate) fn expect_exactly(&mut self, expectation: Expectation) -> Option<SocketAddrV4> {
        self.try_to_expect(expectation).map_err(|reason| self.refuse(reason)).ok()
    }

    /// Makes an expectation. `Err`: it was refused, and is not counted yet.
    pub(crate) fn try_to_expect(
        &mut self,
        expectation: Expectation,
    ) -> Result<SocketAddrV4, Reason> {
        if let Some(reason) = self.refusal(&expectation) {
            return Err(reason);
        }
        let external = self.ports.expect(self.flow, &expectation).ok_or(Reason::NoPort)?;
        if self.opened.len() < self.opened.capacity() {
            self.opened.push(Opened { expectation, external });
        }
        Ok(external)
    }

    /// Limits an expectation that the internal host made for any remote address. A message from
    /// outside may do so too: nothing more is admitted.
    pub(crate) fn limit(&mut self, expectation: Expectation) {
        if let Some(external) = self.ports.limit(self.flow, &expectation)
            && self.opened.len() < self.opened.capacity()
        {
            self.opened.push(Opened { expectation, external });
        }
    }

    /// Lets an expectation end sooner. A message from outside may do so.
    pub(crate) fn shorten(&mut self, expectation: &Expectation) {
        self.ports.shorten(self.flow, expectation);
    }

    /// Ends an expectation at the wish of the internal host, which an answer from outside may
    /// grant.
    pub(crate) fn withdraw(&mut self, expectation: &Expectation) {
        self.ports.withdraw(self.flow, expectation);
    }

    fn refusal(&mut self, expectation: &Expectation) -> Option<Reason> {
        if self.from != Side::Inside
            || expectation.internal.ip().to_canonical() != self.flow.internal.ip().to_canonical()
        {
            return Some(Reason::ForeignAddress);
        }
        let is_own = expectation.internal.port() == self.flow.internal.port()
            && expectation.wanted == Wanted::EndpointOfFlow;
        let is_port = expectation.wanted != Wanted::CallId;
        if expectation.internal.port() < 1024 && is_port && !is_own {
            return Some(Reason::LowPort);
        }
        let count = if expectation.wanted == Wanted::Pair { 2 } else { 1 };
        (!self.budget.take(count, self.now)).then_some(Reason::Flood)
    }

    /// The address by which the other side knows a host that the message names.
    pub(crate) fn counterpart(&self, address: Ipv4Addr) -> Option<Counterpart> {
        self.ports.counterpart(self.flow, self.from, address)
    }

    /// Takes a step of a call of PPTP.
    pub(crate) fn call(&mut self, step: CallStep) -> Option<u16> {
        self.ports.call(self.flow, step)
    }

    /// Has a further control flow between the same hosts read.
    pub(crate) fn follow(&mut self, further: &FurtherFlow, lifetime: u16) {
        if !self.ports.follow(self.flow, further, lifetime) {
            self.refuse(Reason::NoFlow);
        }
    }

    /// True if an address is the internal host's own.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        address.to_canonical() == self.flow.internal.ip().to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_fills_again() {
        let mut budget = Budget::new(100);
        assert!((0..Budget::BURST).all(|_| budget.take(1, 100)));
        assert!(!budget.take(1, 100));
        assert!((0..Budget::RATE).all(|_| budget.take(1, 101)) && !budget.take(1, 101));
        assert!(budget.take(64, u32::MAX) && !budget.take(1, 0));
    }
}
