//! A number that identifies states of the model, for tests that follow each state once.

use crate::{Model, Session};
use natgate_engine::{Side, TICK, Timestamp};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Distances of the limits of one kind of ICMP errors from now: of the common limit, the reserve,
/// and the requesters that are not at rest.
type LimitsAhead = (u64, u64, Vec<(u32, u64)>);

impl Model {
    /// A hash of the state. Two states share it if nothing from now on distinguishes them: packet
    /// counts and absolute times are left out.
    pub fn digest(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        let ahead = |time: Timestamp| time.0.saturating_sub(self.now.0);
        let since = |time: &Option<Timestamp>| {
            time.map_or(1_000_000_000, |time| (self.now.0 - time.0).min(1_000_000_000))
        };
        (self.now.0 % TICK.as_nanos() as u64).hash(&mut hash);
        for (key, mapping) in &self.mappings {
            (key, mapping.external).hash(&mut hash);
            Vec::from_iter(mapping.timeouts.times()).hash(&mut hash);
            let mut sessions: Vec<_> = mapping.sessions.iter().collect();
            sessions.sort_by_key(|(_, session)| session.number); // order of firsts (3.35)
            mapping.marks.first.hash(&mut hash);
            for (remote, hold) in &mapping.marks.holds {
                (remote, ahead(hold.until)).hash(&mut hash);
            }
            for (remote, session) in sessions {
                let Session { connection, expires, made_from, seen, .. } = session;
                (remote, seen, connection, ahead(*expires), *made_from == Side::Inside)
                    .hash(&mut hash);
                session.marks.is_unanswered.hash(&mut hash);
            }
        }
        self.unanswered_ahead().hash(&mut hash);
        for (held, until) in &self.held {
            (held, ahead(*until)).hash(&mut hash);
        }
        self.blocks_ahead(ahead).hash(&mut hash);
        for syn in &self.chapters.syns {
            let back_to = (syn.back_to.0 == Side::Inside, syn.back_to.1);
            (syn.protocol, syn.external, syn.remote, back_to).hash(&mut hash);
            (ahead(syn.due), &syn.quote).hash(&mut hash);
        }
        for (subscriber, due) in &self.chapters.mapping_rate {
            (subscriber, ahead(Timestamp(*due))).hash(&mut hash);
        }
        for (subscriber, time) in &self.chapters.quota_reported {
            (subscriber, since(time)).hash(&mut hash);
        }
        for (whose, told) in &self.chapters.reported_thresholds {
            (whose, told.recent(self.now)).hash(&mut hash);
        }
        for (pool, time) in &self.chapters.exhaustion_reported {
            (pool, since(time)).hash(&mut hash);
        }
        self.errors_ahead().hash(&mut hash);
        hash.finish()
    }

    /// 8.6: the distances of the limits of ICMP errors from now, without limits at rest.
    fn errors_ahead(&self) -> [LimitsAhead; 2] {
        let ahead = |due: u64| due.saturating_sub(self.now.0);
        [&self.errors.too_big, &self.errors.others].map(|rates| {
            let requesters = rates.requesters.iter();
            let requesters = requesters.map(|(requester, due)| (*requester, ahead(*due)));
            let busy = requesters.filter(|(_, ahead)| *ahead > 0).collect();
            (ahead(rates.all), ahead(rates.reserve), busy)
        })
    }
}
