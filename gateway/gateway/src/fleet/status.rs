//! State of a pair, as a node knows it.

use super::refusal::Refusal;
use super::tunnel::TunnelCounters;
use natgate_engine::AddressRange;
use natgate_engine::Timestamp;
use natgate_pair::{Boot, Epoch, Node, ReceivedCounters, Sent};
use std::time::Duration;

/// A node owns a slice from now on, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceChange {
    /// Time at which this node learned of it.
    pub time: Timestamp,
    /// Number of the slice, from 0 on.
    pub slice: u16,
    /// The epoch that has begun.
    pub epoch: Epoch,
    /// The owner, in the order of names.
    pub owner: Node,
    /// If this node takes the slice: number of mappings that it continues.
    pub continued: Option<u32>,
}

/// An owner of a slice, as far as a node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceOwner {
    /// Number of the slice, from 0 on.
    pub slice: usize,
    /// Time at which the node learned of it.
    pub since: Timestamp,
    /// Epoch of the ownership.
    pub epoch: Epoch,
    /// Name of the owner.
    pub owner: String,
    /// If the node itself took the slice: number of mappings that it continued.
    pub continued: Option<u32>,
}

/// State of the link to the partner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkStatus {
    /// Time since the connection came about; `None`: there is no connection.
    pub connected: Option<Duration>,
    /// Round trip time.
    pub round_trip: Option<Duration>,
    /// Lead of the partner's clock over this node's, nanoseconds; `None`: it is not known.
    pub clock_lead: Option<i64>,
    /// Connections since the start.
    pub connections: u64,
    /// Connections that were refused, and the last reason.
    pub refused: u64,
    /// Reason of the last refusal, or of the last failure to connect.
    pub reason: Option<String>,
    /// Messages that found no room in a queue, or no connection.
    pub lost: u64,
    /// Packets of the tunnel that found no room in a queue, or whose connection has ended.
    pub tunnel_lost: u64,
    /// True if the partner's version of the link has no control flows in records. The state of a
    /// node says so only if the node has gateways.
    pub lacks_flows: bool,
    /// True if the partner's version of the link has no sums over gateways in states.
    pub lacks_sums: bool,
    /// True if the partner's version of the link takes records that leave out their keys.
    pub leaves_keys: bool,
}

/// Difference of the nodes' clocks that makes times in their logs disagree, nanoseconds.
const CLOCKS_DIFFER: u64 = 1_000_000_000;

impl LinkStatus {
    /// A clause if no connection is read by gateways because of the partner's version.
    pub fn flows_fault(&self) -> Option<String> {
        self.lacks_flows.then(|| {
            "the other node's version of natgate does not take control flows: gateways ([alg]) do \
             not read new ones"
                .into()
        })
    }

    /// A clause if the nodes' clocks differ by more than a second.
    pub fn clock_fault(&self) -> Option<String> {
        let lead = self.clock_lead.filter(|lead| lead.unsigned_abs() > CLOCKS_DIFFER)?;
        Some(format!("the clocks of the nodes differ by {:.1} s", lead.unsigned_abs() as f64 / 1e9))
    }
}

/// What a node knows about the pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetStatus {
    /// Name of this node.
    pub node: String,
    /// Name of the other node.
    pub partner: String,
    /// Boot number of this node.
    pub boot: Boot,
    /// The greatest boot number of the partner; 0: none is known.
    pub partner_boot: Boot,
    /// True if that process of the partner is known to have ended.
    pub has_partner_ended: bool,
    /// The link.
    pub link: LinkStatus,
    /// Ports of ended mappings that the partner may have copies of.
    pub resting: u64,
    /// Views of the partner that were refused.
    pub refused_views: u64,
    /// Packets of the tunnel.
    pub tunnel: TunnelCounters,
    /// The slices, in the order of the configuration.
    pub slices: Vec<SliceStatus>,
    /// The latest changes of owners since the start of this node, the oldest first.
    pub owners: Vec<SliceOwner>,
}

/// What a node knows about a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceStatus {
    /// Its addresses.
    pub addresses: Vec<AddressRange>,
    /// Name of its home.
    pub home: String,
    /// Name of its owner; `None`: this node does not know it.
    pub owner: Option<String>,
    /// This node's part: `unknown`, `owner`, `yielding` or `partner`.
    pub role: &'static str,
    /// Epoch of the ownership.
    pub epoch: Epoch,
    /// True if this node assigns ports of it.
    pub assigns: bool,
    /// Time until this node assigns ports, after a take-over.
    pub rests: Option<Duration>,
    /// True if the slice goes to the partner as soon as the copy is complete.
    pub drains: bool,
    /// Name of the node that a planned move leads to; `None`: no move goes on. It ends when the
    /// former owner has a complete copy.
    pub moves_to: Option<String>,
    /// True if that move has gone on for longer than a minute.
    pub is_move_overdue: bool,
    /// True if this node passes packets of the slice on to its owner.
    pub passes: bool,
    /// True if the copy is complete, as far as this node knows.
    pub is_complete: bool,
    /// Time since a moment whose mappings the copy has all, as far as this node knows; `None`:
    /// there is none.
    pub age: Option<Duration>,
    /// Time for which the oldest change has waited to be sent or confirmed.
    pub lag: Duration,
    /// True if the partner says that it is the owner, too.
    pub is_disputed: bool,
    /// Counters of the stream that this node sends.
    pub sent: Option<Sent>,
    /// Counters of the stream that this node receives.
    pub received: Option<ReceivedCounters>,
    /// What the partner of the slice refuses to copy: this node, or the other one.
    pub refusal: Refusal,
    /// Records of the stream that this node has refused, because it has no such realm.
    pub records_without_realm: Option<u64>,
    /// Mappings that this node has ended since its start, so that the slice could move: the other
    /// node had no number for their hosts, whose subscribers had as many as possible there.
    pub ended_to_move: u64,
}

impl SliceStatus {
    /// Largest age of a copy that counts as present.
    const PRESENT: Duration = Duration::from_secs(5);

    /// The fault of a slice whose only fault is a planned move to this node.
    pub fn move_fault(node: &str) -> String {
        format!("it moves to node {node}; its copy is not complete yet")
    }

    /// True if nothing is wrong but a planned move, which ends by itself.
    pub fn only_moves(&self) -> bool {
        self.moves_to.as_ref().is_some_and(|node| self.fault() == Some(Self::move_fault(node)))
    }

    /// The first thing that is wrong with the slice; `None`: nothing is. During a move it is that
    /// the copy is not complete yet.
    pub fn fault(&self) -> Option<String> {
        let is_present = self.age.is_some_and(|age| age < Self::PRESENT);
        let who = if self.role == "owner" { "the other node" } else { "this node" };
        if self.is_disputed {
            Some("both nodes say that they own it".into())
        } else if self.owner.is_none() {
            Some("no node is known to own it".into())
        } else if let Some(refused) = self.refusal.text(who) {
            Some(refused)
        } else if !self.is_complete {
            let node = self.moves_to.as_ref().filter(|_| !self.is_move_overdue);
            Some(node.map_or("its copy is not complete".into(), |node| Self::move_fault(node)))
        } else if !is_present {
            Some("its copy is older than 5 s".into())
        } else {
            None
        }
    }
}
