//! Ownership of an address by one of several gateways.

use crate::spool::format::Holding;
use natgate_engine::Timestamp;

/// Ownership of an address by one of several gateways, about the time of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenure {
    /// True if another gateway may continue holdings when this one stops.
    pub is_of_pair: bool,
    /// Time before the question at which the gateway continued another's holdings. Its spool has
    /// their ends, and not their begins.
    pub inherited: Option<Timestamp>,
    /// Time until the question since which another gateway is the owner. It ended the holdings that
    /// the gateway had made before, and may have made the same ones again.
    pub away: Option<Timestamp>,
    /// Time after the question at which the gateway continued another's holdings.
    pub inherits: Option<Timestamp>,
    /// Time after the question at which another gateway became the owner. An end after it may be
    /// one of a holding that the other gateway made meanwhile.
    pub lost: Option<Timestamp>,
}

impl Tenure {
    /// True if an end of a holding in the spool may be another holding's, because another gateway
    /// was the owner in between. `since`: begin of the holding. Blocks have all their events in the
    /// spools of both gateways.
    pub(super) fn hides(
        &self,
        holding: &Holding,
        since: Option<Timestamp>,
        end: Timestamp,
    ) -> bool {
        let is_before = self.away.is_some_and(|away| since.is_none_or(|since| since <= away));
        let is_after = self.lost.is_some_and(|lost| lost < end);
        holding.protocol.is_some() && (is_before || is_after)
    }
}
