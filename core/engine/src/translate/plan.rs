//! The plan for a packet: decided, and not yet done. The decision (`decide.rs`) makes plans,
//! `carry_out.rs` carries them out.

use super::mappings::{Arrival, WholeMapping};
use super::{Engine, Fate};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::Chosen;
use crate::fragments::Fragment;
use crate::packet::{Direction, Verdict};
use crate::parse::Embedded;
use crate::respond::Message;
use crate::rewrite::Rewrite;
use crate::rules::Snat;
use crate::table::SessionRef;

/// The decision about one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The packet's fate. The table of fragments has the last word on the fate of fragments.
    pub(super) fate: Fate,
    /// Direction under which the packet is counted.
    pub(super) direction: Direction,
    /// The realm that the packet goes to, if it leaves by the inside.
    pub(super) leaving: u16,
    /// The first fragment of a datagram that the packet is, if the table of fragments is asked.
    pub(super) first: Option<Fragment>,
    /// Changes of the packet and of the state.
    pub(super) act: Act,
    /// Answer to the packet's sender.
    pub(super) answer: Answer,
    /// The pool of which a new mapping was refused.
    pub(super) refused: Option<usize>,
}

impl Plan {
    /// A plan that changes nothing, for a packet from a realm.
    pub(super) fn new(direction: Direction, realm: u16) -> Self {
        Self {
            fate: Ok(Verdict::Held),
            direction,
            leaving: realm,
            first: None,
            act: Act::Nothing,
            answer: Answer::None,
            refused: None,
        }
    }
}

/// Changes by a plan: of the packet and of the engine's state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Nothing.
    Nothing,
    /// An echo request becomes its reply.
    Echo,
    /// The packet goes on untranslated.
    Forward,
    /// A fragment other than the first gets the rewrite of the first.
    Later(Fragment),
    /// The packet goes out by a session.
    Send(SessionPlan),
    /// The packet goes out by a session and turns round to the external address with this index.
    /// The decision about its receiver comes after: the receiver may be asked about what is made
    /// for the sender.
    Turn(SessionPlan, u32),
    /// The packet comes in by a session.
    Receive {
        by: SessionPlan,
        arrival: Arrival,
        /// The source that the packet gets, if that is another.
        source: Option<AddressPort>,
    },
    /// An ICMP error is translated.
    Error {
        embedded: Embedded,
        /// Rewrite of the embedded packet.
        inner: Rewrite,
        /// Rewrite of the error itself.
        outer: Rewrite,
    },
}

/// The session that a packet goes by, and what is to be made for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionPlan {
    /// A session that is there: its mapping, and itself.
    Refresh(u32, SessionRef),
    /// A new session of a mapping that is there, of a subscriber with this record.
    Begin(u32, Option<u32>),
    /// A new mapping with its first session.
    Map(NewFlow),
    /// A new mapping of an address that is mapped as a whole.
    MapWhole(WholeMapping),
    /// A new mapping for an inbound packet, of the host that has the address.
    MapToOwner(NewFlow, Internal),
}

impl SessionPlan {
    /// True if a session is to be made.
    pub(super) fn makes_session(&self) -> bool {
        !matches!(self, Self::Refresh(..))
    }
}

/// A new mapping within the subscriber's limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFlow {
    pub(super) snat: Snat,
    /// The subscriber's record, if it has one.
    pub(super) record: Option<u32>,
    /// True if the subscriber is paired anew, with the address of this mapping.
    pub(super) parts: bool,
    /// True if the mapping shares a port that is in use.
    pub(super) overloads: bool,
    pub(super) chosen: Chosen,
}

/// The answer to the sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing.
    None,
    /// An ICMP error at once.
    Now(Message),
    /// An ICMP error six seconds later, unless the connection has come about; the remote endpoint
    /// is this as seen outside.
    Late(AddressPort),
}

/// Work that a decision depends on: it is done, then the decision begins anew.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unsettled {
    /// The configuration in force has not judged this mapping.
    Mapping(u32),
    /// The subscriber with this record is of no class yet.
    Subscriber(u32),
    /// The packet opens a connection in the place of this closed session.
    Reopened(SessionRef),
}

/// Reason why a decision ends early.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    Drop(DropReason),
    Unsettled(Unsettled),
    /// The packet would make its host a subscriber, and the caller has the last word about that
    /// ([`Engine::guard_newcomers`]).
    Newcomer,
}

impl From<DropReason> for Stop {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

impl From<Unsettled> for Stop {
    fn from(unsettled: Unsettled) -> Self {
        Self::Unsettled(unsettled)
    }
}

impl Engine {
    /// The external endpoint of the mapping that a packet goes by.
    pub(super) fn external_by(&self, by: &SessionPlan) -> AddressPort {
        let External { index, port } = match by {
            SessionPlan::Refresh(slot, _) | SessionPlan::Begin(slot, _) => {
                return self.external_of(*slot);
            }
            SessionPlan::Map(flow) | SessionPlan::MapToOwner(flow, _) => flow.chosen.external,
            SessionPlan::MapWhole(whole) => whole.external,
        };
        AddressPort::new(self.external.address(index), port)
    }

    /// The internal endpoint of the mapping that a packet comes in by.
    pub(super) fn internal_by(&self, by: &SessionPlan) -> AddressPort {
        match by {
            SessionPlan::Refresh(slot, _) | SessionPlan::Begin(slot, _) => self.internal_of(*slot),
            SessionPlan::MapWhole(WholeMapping { internal, .. })
            | SessionPlan::MapToOwner(_, internal) => {
                AddressPort::new(internal.host.address(), internal.port)
            }
            SessionPlan::Map(_) => unreachable!("only packets from inside begin dynamic mappings"),
        }
    }
}
