//! Starts of one of several gateways. A start cuts the holdings before it: the other gateway may
//! have continued them, and this one may end them when it owns the address again.

use super::{
    Holder, Holding, HoldingMatch, MOST_HOLDERS, Past, Place, Search, SearchError, Traces,
};
use crate::json::seconds;
use natgate_engine::Timestamp;

/// Most holders that have ended in an answer.
const MOST_ENDED: usize = 64;

/// Holdings after whose next events the search ends early.
const FEW: usize = 8;

/// Most starts before which the search looks for holdings: a gateway may fail again soon.
const MOST_STARTS: usize = 8;

impl HoldingMatch {
    /// True if one endpoint may be of one of the two only: they have a protocol and a remote
    /// endpoint in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let [one, other] = [&self.holding, &other.holding];
        let is_any = |holding: &Holding| holding.remote.address.is_unspecified();
        let has_protocol =
            one.protocol.is_none() || other.protocol.is_none() || one.protocol == other.protocol;
        has_protocol && (is_any(one) || is_any(other) || one.remote == other.remote)
    }

    /// True if two entries of different runs are about one holding, by names: numbers of hosts
    /// change. The host of an entry about an end may be known no more.
    fn is_one(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|it| Holder { since: None, ..it.holder(0, None) });
        let has_host =
            one.internal.is_none() || two.internal.is_none() || one.internal == two.internal;
        let is_named = Holder { internal: None, ..one } == Holder { internal: None, ..two };
        has_host && is_named && self.holding.internal_port == other.holding.internal_port
    }
}

impl Search<'_> {
    /// Last time that the spool covers before the start of a part.
    pub(super) fn stop_before(&self, start: usize) -> Timestamp {
        self.outline.parts[start - 1].until
    }

    /// Holdings that the start of a part has cut. The end is that of the next event after a place
    /// that is in the run of the start, if it is about the same holding: it was continued.
    pub(super) fn cut_by(
        &mut self,
        start: usize,
        place: &Place,
        cut: &[HoldingMatch],
        missing: u64,
    ) -> Result<Vec<Holder>, SearchError> {
        // Each event is a reason to ask, so many are compared with none.
        let is_enough = |seen: &[HoldingMatch]| {
            cut.len() <= FEW && cut.iter().all(|one| seen.iter().any(|next| next.overlaps(one)))
        };
        let next = if cut.is_empty() { Vec::new() } else { self.next_events(place, is_enough)? };
        let stopped = Some(seconds(self.stop_before(start)));
        let holder = |found: &HoldingMatch| {
            let next = next.iter().find(|next| next.overlaps(found));
            let end = next.filter(|next| next.is_one(found)).and_then(|next| next.ended);
            Holder { cut: stopped, ..found.holder(missing, end) }
        };
        Ok(cut.iter().take(MOST_HOLDERS).map(holder).collect())
    }

    /// What the spool of one of several gateways says beside the holders: holdings that the start
    /// before the place has cut, the latest ends before the place, and ends of holdings that the
    /// gateway continues later.
    pub(super) fn traces(&mut self, place: &Place, past: &Past) -> Result<Traces, SearchError> {
        let tenure = self.question.tenure;
        if !tenure.is_of_pair {
            return Ok(Traces::default());
        }
        // Few are compared with few: a port of many sessions would take too long.
        let later = &past.found[..past.found.len().min(MOST_HOLDERS)];
        let (mut found, mut cut) = (later.to_vec(), Vec::new());
        let (mut start, mut missing) = (past.start, past.missing);
        for _ in 0..MOST_STARTS {
            let Some(at) = start.filter(|start| *start > 0) else { break };
            let end = Place { part: at - 1, until: Timestamp(u64::MAX) };
            let mut before = Past::default();
            self.backward(&end, &mut before)?;
            missing += before.missing;
            before.found.truncate(MOST_HOLDERS);
            before.found.retain(|one| !later.iter().any(|later| later.overlaps(one)));
            let open = before.found.iter().filter(|one| one.ended.is_none()).cloned();
            let open: Vec<HoldingMatch> = open.collect();
            cut = self.cut_by(at, place, &open, missing)?;
            start = before.start.filter(|_| before.found.is_empty());
            found.extend(before.found);
        }
        let mut ended: Vec<HoldingMatch> = Vec::new();
        for one in found.into_iter().filter(|one| one.ended.is_some()) {
            if ended.len() < MOST_ENDED && !ended.iter().any(|known| known.overlaps(&one)) {
                ended.push(one);
            }
        }
        if let Some(taken) = tenure.inherits {
            let of_one = self.question.protocol.is_some();
            let is_enough =
                |seen: &[HoldingMatch]| of_one && seen.iter().any(|next| !next.holding.is_session);
            let lost = tenure.lost.filter(|lost| *lost > taken);
            let is_own = |next: &HoldingMatch| {
                next.ended.is_some_and(|end| end >= taken && lost.is_none_or(|lost| end <= lost))
            };
            let next = self.next_events(place, is_enough)?;
            ended.extend(next.into_iter().filter(is_own).take(MOST_ENDED));
        }
        let ended = ended.iter().map(|one| one.holder(0, one.ended)).collect();
        Ok(Traces { cut, ended })
    }
}

#[cfg(test)]
mod tests;
