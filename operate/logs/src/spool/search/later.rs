//! Search from a place into the future: the next event about the endpoint, and ends of holdings.

use super::{HoldingMatch, Key, MOST_HOLDERS, Place, Search, SearchError, Tenure, key};
use crate::spool::format::Entry;
use crate::spool::outline::Follows;
use natgate_engine::Timestamp;
use std::collections::HashMap;

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
    /// Searches from a place into the future, for the next event about the endpoint before the
    /// gateway lost the address.
    pub(super) fn forward(
        &mut self,
        place: &Place,
        missing: &mut u64,
    ) -> Result<Next, SearchError> {
        let outline = self.outline;
        for (part, about) in outline.parts.iter().enumerate().skip(place.part) {
            if part > place.part && matches!(about.follows, Follows::After(_) | Follows::Start) {
                return Ok(Next::Nothing);
            }
            for at in &outline.frames[about.frames.clone()] {
                if place.is_after(part, at.frame.head.last) {
                    continue;
                }
                for entry in self.entries(at, missing)? {
                    if place.is_after(part, entry.time()) {
                        continue;
                    }
                    if self.question.tenure.lost.is_some_and(|lost| lost < entry.time()) {
                        return Ok(Next::Nothing);
                    }
                    match entry {
                        Entry::Gap(gap) => *missing += gap.lost,
                        Entry::Begins(_, holding) if self.is_of(&holding) => {
                            return Ok(Next::Nothing);
                        }
                        Entry::Ends(time, holding) if self.is_of(&holding) => {
                            if self.question.tenure.hides(&holding, None, time) {
                                return Ok(Next::Nothing);
                            }
                            let realm = self.realm(holding.realm);
                            let (since, ended) = (None, Some(time));
                            return Ok(Next::Ends(HoldingMatch { holding, realm, since, ended }));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(Next::Nothing)
    }

    /// Ends of holdings that had not ended at a place.
    pub(super) fn ends_of(
        &mut self,
        place: &Place,
        open: &[HoldingMatch],
    ) -> Result<Ends, SearchError> {
        let outline = self.outline;
        let mut by_key: HashMap<Key, Option<Timestamp>> =
            open.iter().map(|found| (found.key(), None)).collect();
        let (mut left, mut start, mut start_time) = (by_key.len(), None, None);
        'all: for (part, about) in outline.parts.iter().enumerate().skip(place.part) {
            for at in &outline.frames[about.frames.clone()] {
                if place.is_after(part, at.frame.head.last) {
                    continue;
                }
                for entry in self.entries(at, &mut 0)? {
                    if place.is_after(part, entry.time()) {
                        continue;
                    }
                    match entry {
                        Entry::Start(time) => {
                            (start, start_time) = (Some(part), Some(time));
                            break 'all;
                        }
                        Entry::Ends(time, holding) if self.is_of(&holding) => {
                            let key = key(&holding, &self.realm(holding.realm));
                            if let Some(end @ None) = by_key.get_mut(&key) {
                                *end = Some(time);
                                left -= 1;
                            }
                        }
                        _ => {}
                    }
                    if left == 0 {
                        break 'all;
                    }
                }
            }
        }
        Ok(Ends { by_key, start, start_time, tenure: self.question.tenure })
    }

    /// The first event about the endpoint of each protocol and remote endpoint after a place: ends,
    /// and begins. A start and missing entries end the search, and so does `is_enough`.
    pub(super) fn next_events(
        &mut self,
        place: &Place,
        is_enough: impl Fn(&[HoldingMatch]) -> bool,
    ) -> Result<Vec<HoldingMatch>, SearchError> {
        let (outline, mut seen): (_, Vec<HoldingMatch>) = (self.outline, Vec::new());
        for (part, about) in outline.parts.iter().enumerate().skip(place.part) {
            if part > place.part && matches!(about.follows, Follows::After(_) | Follows::Start) {
                break;
            }
            for at in &outline.frames[about.frames.clone()] {
                if place.is_after(part, at.frame.head.last) {
                    continue;
                }
                let mut missing = 0;
                let entries = self.entries(at, &mut missing)?;
                for entry in entries.into_iter().filter(|it| !place.is_after(part, it.time())) {
                    let (holding, since, ended) = match entry {
                        Entry::Begins(time, holding) => (holding, Some(time), None),
                        Entry::Ends(time, holding) => (holding, None, Some(time)),
                        Entry::Gap(_) => return Ok(seen),
                        _ => continue,
                    };
                    if !self.is_of(&holding) {
                        continue;
                    }
                    let realm = self.realm(holding.realm);
                    let found = HoldingMatch { holding, realm, since, ended };
                    if !seen.iter().any(|known| known.overlaps(&found)) {
                        seen.push(found);
                    }
                    if is_enough(&seen) || seen.len() >= MOST_HOLDERS {
                        return Ok(seen);
                    }
                }
                if missing > 0 {
                    return Ok(seen);
                }
            }
        }
        Ok(seen)
    }
}
