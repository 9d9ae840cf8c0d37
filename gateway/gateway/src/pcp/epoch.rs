//! The epoch that two gateways have in common: the time of the last loss of requested mappings at
//! either of them (RFC 6887 section 8.5). Hosts may ask either node, and see one epoch.
//!
//! The owner of a slice tells the age of its epoch once a second. A later epoch counts at every
//! node, because each loss is one of the pair. A node that owns nothing also follows an earlier
//! one: it has started, and has lost nothing that hosts rely on.

use natgate_engine::Timestamp;
use std::time::Duration;

/// Difference below which two epochs are the same one: messages take time. RFC 6887 section 8.5
/// lets clients tolerate two seconds.
const SAME: Duration = Duration::from_secs(1);

/// The epoch of a pair, as one node knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonEpoch {
    /// `None` before this node has lost mappings or has heard of the partner.
    began: Option<Timestamp>,
}

impl CommonEpoch {
    /// The beginning, in this node's time.
    pub(crate) fn began(&self) -> Option<Timestamp> {
        self.began
    }

    /// The time since the beginning.
    pub(crate) fn age(&self, now: Timestamp) -> Option<Duration> {
        self.began.map(|began| now.since(began))
    }

    /// This node has lost mappings, or may have lost some.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        self.began = self.began.max(Some(now));
    }

    /// The partner owns a slice, and tells the age of its epoch. `owns`: so does this node.
    pub(crate) fn hear(&mut self, age: Duration, owns: bool, now: Timestamp) {
        let heard = Timestamp(now.0.saturating_sub(age.as_nanos() as u64));
        let is_other =
            self.began.is_none_or(|own| heard > own.plus(SAME) || !owns && heard.plus(SAME) < own);
        if is_other {
            self.began = Some(heard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_loss_is_one_of_the_pair() {
        let mut epoch = CommonEpoch::default();
        assert_eq!(epoch.age(at(50)), None);
        epoch.begin(at(100));
        epoch.hear(seconds(60), true, at(110));
        assert_eq!(epoch.age(at(110)), Some(seconds(10)), "an owner keeps the later one");
        epoch.hear(seconds(5), true, at(120));
        assert_eq!(epoch.began(), Some(at(115)));
    }

    #[test]
    fn a_node_without_a_slice_follows_the_owner() {
        let mut epoch = CommonEpoch::default();
        epoch.begin(at(100));
        epoch.hear(seconds(60), false, at(110));
        assert_eq!(epoch.began(), Some(at(50)));
    }

    //= test rfc6887#section-8.5-reset
    #[test]
    fn two_owners_do_not_push_each_other_on() {
        let mut nodes = [CommonEpoch::default(); 2];
        nodes.iter_mut().for_each(|epoch| epoch.begin(at(100)));
        // Each message takes half a second.
        for turn in 0..1000 {
            let sent = at(200 + turn);
            let arrives = sent.plus(Duration::from_millis(500));
            let age = nodes[turn as usize % 2].age(sent).expect("it has begun");
            nodes[1 - turn as usize % 2].hear(age, true, arrives);
        }
        assert!(nodes.iter().all(|epoch| epoch.began() == Some(at(100))));
    }
}
