//! Search from a place into the future: the next event about the endpoint, and ends of holdings.

use super::{HoldingMatch, Key, MOST_HOLDERS, Place, Search, SearchError, Tenure, key};
use crate::spool::format::Entry;
use crate::spool::outline::Follows;
use natgate_engine::Timestamp;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Next event about an endpoint after a place.
pub(super) enum Next {
    /// A holding ends.
    Ends(HoldingMatch),
    /// A holding begins, so there was no holder; or nothing is known.
    Nothing,
}

/// Ends of holdings that had not ended at a place.
pub(super) struct Ends {
    by_key: HashMap<Key, Option<Timestamp>>,
    /// Part that begins with the next start, and the time of the start, if one came before the ends
    /// of all.
    pub(super) start: Option<usize>,
    start_time: Option<Timestamp>,
    tenure: Tenure,
}

impl Ends {
    /// The end of a holding. A start ends those of a single gateway.
    pub(super) fn until(&self, found: &HoldingMatch) -> Option<Timestamp> {
        let end = self.by_key.get(&found.key()).copied().flatten();
        let end = end.or(self.start_time.filter(|_| !self.tenure.is_of_pair));
        end.filter(|end| !self.tenure.hides(&found.holding, found.since, *end))
    }

    /// True if the next start cuts a holding, which another gateway may continue.
    pub(super) fn has_cut(&self, found: &HoldingMatch) -> bool {
        let has_ended = self.by_key.get(&found.key()).is_some_and(Option::is_some);
        self.tenure.is_of_pair && self.start.is_some() && !has_ended
    }
}

impl Search<'_> {
    /// Calls `look` with each entry after a place, its part, and the number of missing events,
    /// until `look` breaks off. Unless the search `crosses` them, a start and missing parts end it.
    fn each_after(
        &mut self,
        place: &Place,
        crosses: bool,
        missing: &mut u64,
        mut look: impl FnMut(&Self, usize, Entry, &mut u64) -> ControlFlow<()>,
    ) -> Result<(), SearchError> {
        let outline = self.outline;
        for (part, about) in outline.parts.iter().enumerate().skip(place.part) {
            let is_broken = matches!(about.follows, Follows::After(_) | Follows::Start);
            if !crosses && part > place.part && is_broken {
                return Ok(());
            }
            for at in &outline.frames[about.frames.clone()] {
                if place.is_after(part, at.frame.head.last) {
                    continue;
                }
                let entries = self.entries(at, missing)?;
                for entry in entries.into_iter().filter(|it| !place.is_after(part, it.time())) {
                    if look(self, part, entry, missing).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Searches from a place into the future, for the next event about the endpoint before the
    /// gateway lost the address.
    pub(super) fn forward(
        &mut self,
        place: &Place,
        missing: &mut u64,
    ) -> Result<Next, SearchError> {
        let (tenure, mut next) = (self.question.tenure, Next::Nothing);
        self.each_after(place, false, missing, |search, _, entry, missing| {
            if tenure.lost.is_some_and(|lost| lost < entry.time()) {
                return ControlFlow::Break(());
            }
            match entry {
                Entry::Gap(gap) => *missing += gap.lost,
                Entry::Begins(_, holding) if search.is_of(&holding) => {
                    return ControlFlow::Break(());
                }
                Entry::Ends(time, holding) if search.is_of(&holding) => {
                    if !tenure.hides(&holding, None, time) {
                        let realm = search.realm(holding.realm);
                        let (since, ended) = (None, Some(time));
                        next = Next::Ends(HoldingMatch { holding, realm, since, ended });
                    }
                    return ControlFlow::Break(());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        Ok(next)
    }

    /// Ends of holdings that had not ended at a place.
    pub(super) fn ends_of(
        &mut self,
        place: &Place,
        open: &[HoldingMatch],
    ) -> Result<Ends, SearchError> {
        let mut by_key: HashMap<Key, Option<Timestamp>> =
            open.iter().map(|found| (found.key(), None)).collect();
        let (mut left, mut start, mut start_time) = (by_key.len(), None, None);
        self.each_after(place, true, &mut 0, |search, part, entry, _| {
            match entry {
                Entry::Start(time) => {
                    (start, start_time) = (Some(part), Some(time));
                    return ControlFlow::Break(());
                }
                Entry::Ends(time, holding) if search.is_of(&holding) => {
                    let key = key(&holding, &search.realm(holding.realm));
                    if let Some(end @ None) = by_key.get_mut(&key) {
                        *end = Some(time);
                        left -= 1;
                    }
                }
                _ => {}
            }
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(Ends { by_key, start, start_time, tenure: self.question.tenure })
    }

    /// The first event about the endpoint of each protocol and remote endpoint after a place: ends,
    /// and begins. A start and missing entries end the search, and so does `is_enough`.
    pub(super) fn next_events(
        &mut self,
        place: &Place,
        is_enough: impl Fn(&[HoldingMatch]) -> bool,
    ) -> Result<Vec<HoldingMatch>, SearchError> {
        let mut seen: Vec<HoldingMatch> = Vec::new();
        self.each_after(place, false, &mut 0, |search, _, entry, missing| {
            let (holding, since, ended) = match entry {
                _ if *missing > 0 => return ControlFlow::Break(()),
                Entry::Begins(time, holding) => (holding, Some(time), None),
                Entry::Ends(time, holding) => (holding, None, Some(time)),
                Entry::Gap(_) => return ControlFlow::Break(()),
                _ => return ControlFlow::Continue(()),
            };
            if !search.is_of(&holding) {
                return ControlFlow::Continue(());
            }
            let realm = search.realm(holding.realm);
            let found = HoldingMatch { holding, realm, since, ended };
            if !seen.iter().any(|known| known.overlaps(&found)) {
                seen.push(found);
            }
            let is_done = is_enough(&seen) || seen.len() >= MOST_HOLDERS;
            if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(seen)
    }
}
