//! What the translator does for softwires: claims, counters, and errors of the gateway's own.

use super::{BindingTable, DomainCounters, Domains};
use crate::convert::ErrorMessage;
use crate::nat64::DUMMY;
use crate::translator::{Departure, Fate, Translator};
use alloc::sync::Arc;
use natgate_engine::{Counters, Direction, DropReason, Outcome, Side, Timestamp};

impl Translator {
    /// True if an IPv4 packet from outside with these addresses is a softwire's.
    #[inline]
    pub(crate) fn claims_softwire_ipv4(&self, ends: (u32, u32)) -> bool {
        self.softwires.as_ref().is_some_and(|softwires| {
            softwires.takes_all() && !self.is_inside_ipv4(ends) && !self.claims_siit_ipv4(ends)
                || softwires.has_address(ends.1)
        })
    }

    /// Exchanges the bindings of lw4o6 as a unit; returns the former ones. `None`: there is no
    /// lw4o6.
    pub fn exchange_bindings(&mut self, bindings: Arc<BindingTable>) -> Option<Arc<BindingTable>> {
        self.softwires.as_mut()?.exchange(bindings)
    }

    /// The bindings of lw4o6 in force.
    pub fn bindings(&self) -> Option<&Arc<BindingTable>> {
        self.softwires.as_ref()?.bindings()
    }

    /// The rules of MAP.
    pub fn domains(&self) -> Option<&Domains> {
        self.softwires.as_ref().map(|softwires| softwires.domains())
    }

    /// Counters of lw4o6, then of each rule of MAP in its order, then of DS-Lite. Empty without
    /// softwires.
    pub fn domain_counters(&self) -> &[DomainCounters] {
        self.softwires.as_ref().map_or(&[], |softwires| softwires.domain_counters())
    }

    /// The gateway's own IPv4 addresses, inside and outside.
    pub(super) fn own_ipv4(&self) -> [Option<u32>; 2] {
        self.own_ipv4
    }

    /// MTU of the outside link, bytes.
    pub(super) fn mtu_outside(&self) -> u16 {
        self.mtus[Side::Outside as usize]
    }

    /// Counts a packet of `len` bytes that goes on.
    #[inline]
    pub(super) fn count(&mut self, direction: Direction, len: usize) {
        self.counters.count(direction, Outcome::Forwarded, len);
    }

    /// Counts a dropped packet of `len` bytes.
    pub(crate) fn count_drop(&mut self, direction: Direction, reason: DropReason, len: usize) {
        self.counters.count_drop(direction, reason, len);
    }

    /// Counts a packet of `len` bytes to the gateway that was understood.
    pub(super) fn count_reply(&mut self, len: usize) {
        self.counters.count(Direction::Local, Outcome::Replied, len);
    }

    /// The packet in the buffer answers the one that came, which had `len` bytes.
    pub(super) fn reply(&mut self, len: usize) -> Fate {
        self.count_reply(len);
        let counted = (Direction::Local, Outcome::Replied, len);
        Fate::Send(Departure { side: Side::Inside, realm: 0, answers: true, cut: None, counted })
    }

    /// The counters.
    pub(super) fn counts(&self) -> &Counters {
        &self.counters
    }

    /// The counters, to be changed.
    pub(super) fn counts_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The source of ICMP errors that go into a tunnel.
    pub(super) fn error_source_in_tunnel(&self) -> u32 {
        self.own_ipv4[Side::Outside as usize].unwrap_or(DUMMY)
    }

    /// Sends an ICMP error into a tunnel.
    pub(super) fn send_tunneled(
        &mut self,
        now: Timestamp,
        source: u32,
        ends: (u128, u128),
        message: ErrorMessage,
        inner: &[u8],
    ) {
        match self.sends_errors(Side::Inside) {
            true => self.errors.send_tunneled(now.0, source, ends, message, inner),
            false => self.errors.suppressed += 1,
        }
    }
}
