//! The router's own addresses on a link, and duplicate address detection (RFC 4862 section 5.4).
//!
//! An address is tentative until nobody has answered the question for it for a second; until then
//! the router does not use it. If another host has the address, the router does not use it either,
//! and asks again after a while: so one forged message does not stop the gateway for ever.

use natgate_engine::Timestamp;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Time to wait for an answer to a question for an own address (RetransTimer, RFC 4861 section 10).
pub(super) const WAIT: Duration = Duration::from_secs(1);

/// Time after which the router asks again for an address that another host has.
pub(super) const RETRY: Duration = Duration::from_secs(60);

/// State of an own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// The router asks whether another host has the address.
    Tentative,
    /// The router has the address.
    Assigned,
    /// Another host has the address.
    Duplicate,
}

impl AddressState {
    /// Name of the state in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tentative => "tentative",
            Self::Assigned => "assigned",
            Self::Duplicate => "duplicate",
        }
    }
}

/// An own address.
#[derive(Clone, Copy, Debug)]
struct Own {
    address: Ipv6Addr,
    state: AddressState,
    /// True if the question has been sent.
    asked: bool,
    /// Time of the next step; none if the address is assigned.
    deadline: Timestamp,
}

/// Work for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask whether another host has the address.
    Ask(Ipv6Addr),
    /// Tell all hosts that the router has the address now.
    Announce(Ipv6Addr),
}

/// The router's own addresses on a link.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses(Vec<Own>);

impl OwnAddresses {
    /// Tentative addresses.
    pub(super) fn new(addresses: impl IntoIterator<Item = Ipv6Addr>) -> Self {
        Self(addresses.into_iter().map(Own::tentative).collect())
    }

    /// Takes over the states of addresses that stay the same.
    pub(super) fn keep(&mut self, former: &Self) {
        for own in &mut self.0 {
            if let Some(known) = former.0.iter().find(|known| known.address == own.address) {
                *own = *known;
            }
        }
    }

    /// State of an address, if it is the router's own.
    pub(super) fn state(&self, address: Ipv6Addr) -> Option<AddressState> {
        self.0.iter().find(|own| own.address == address).map(|own| own.state)
    }

    /// True if the router has an address.
    pub(super) fn is_assigned(&self, address: Ipv6Addr) -> bool {
        self.state(address) == Some(AddressState::Assigned)
    }

    /// Addresses with their states.
    pub(super) fn list(&self) -> impl Iterator<Item = (Ipv6Addr, AddressState)> + '_ {
        self.0.iter().map(|own| (own.address, own.state))
    }

    /// An address that the router has, link-local or not.
    pub(super) fn assigned(&self, link_local: bool) -> Option<Ipv6Addr> {
        let is_kind = |address: &Ipv6Addr| address.is_unicast_link_local() == link_local;
        let assigned = self.list().filter(|(_, state)| *state == AddressState::Assigned);
        assigned.map(|(address, _)| address).find(is_kind)
    }

    //= rfc4862#section-5.4.5
    /// Notes that another host has a tentative address, or asks for it at the same time.
    pub(super) fn collide(&mut self, now: Timestamp, address: Ipv6Addr) {
        let tentative = self.0.iter_mut().find(|own| own.address == address);
        if let Some(own) = tentative.filter(|own| own.state == AddressState::Tentative) {
            own.state = AddressState::Duplicate;
            own.deadline = now.plus(RETRY);
        }
    }

    /// Does the work that is due.
    //= rfc4862#section-5.4
    pub(super) fn advance(&mut self, now: Timestamp, act: &mut dyn FnMut(Step)) {
        for own in &mut self.0 {
            if own.state == AddressState::Assigned || own.deadline > now {
                continue;
            }
            if own.state == AddressState::Tentative && own.asked {
                own.state = AddressState::Assigned;
                act(Step::Announce(own.address));
            } else {
                *own = Own { asked: true, deadline: now.plus(WAIT), ..Own::tentative(own.address) };
                act(Step::Ask(own.address));
            }
        }
    }

    /// Time of the next work.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let waiting = self.0.iter().filter(|own| own.state != AddressState::Assigned);
        waiting.map(|own| own.deadline).min()
    }
}

impl Own {
    fn tentative(address: Ipv6Addr) -> Self {
        let state = AddressState::Tentative;
        Self { address, state, asked: false, deadline: Timestamp(0) }
    }
}
