//! A slice that this node has given to the other one a moment ago.

use super::Slice;
use crate::fleet::board::Order;
use crate::fleet::inbound::SURE;
use natgate_engine::Timestamp;
use natgate_pair::Sent;
use std::time::Duration;

/// Time for which this node translates the packets of a slice that it has given, if the link loses
/// packets: routes move meanwhile.
pub(super) const STAYS: Duration = Duration::from_secs(1);

/// A link loses packets if one of so many was lost, and so many at least: a packet may count as
/// lost because a node was late.
const LOSSY: u64 = 32;
const FEW: u64 = 4;

/// True if this node takes a slice again that it gave a moment ago. The next owner waits longer
/// before it lets anything out without this node.
pub(super) fn has_just_given(order: &Order, now: Timestamp) -> bool {
    let gave = order.gave.filter(|(epoch, _)| epoch.saturating_add(1) == order.epoch);
    gave.is_some_and(|(_, at)| now.since(at) < SURE)
}

/// True if a stream with these counters has lost packets on the link.
pub(super) fn is_lossy(sent: Sent) -> bool {
    sent.lost >= FEW && LOSSY * sent.lost >= sent.packets
}

impl Slice {
    /// True if packets of the slice stay at this node although the owner is there: this node has
    /// just given the slice, and the tunnel would lose some of them. Its copies are whole.
    pub(in crate::fleet) fn stays(&self, now: Timestamp) -> bool {
        let gave = self.order.gave.filter(|(epoch, _)| *epoch == self.order.epoch);
        let is_new = gave.is_some_and(|(_, at)| now.since(at) < STAYS);
        is_new && self.is_link_lossy && !self.order.owns
    }
}
