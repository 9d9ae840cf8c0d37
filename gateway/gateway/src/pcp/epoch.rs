//! The epoch that two gateways have in common: the time of the last loss of requested mappings at
//! either of them (RFC 6887 section 8.5). Hosts may ask either node, and see one epoch.
//!
//! The owner of a slice tells the loss and its age once a second. A later loss counts at every
//! node, because each loss is one of the pair. A loss has a mark, so that a message that comes
//! late does not look like a later loss.

use natgate_engine::Timestamp;
use std::time::Duration;

/// Difference below which two losses are the same one for clients, which tolerate two seconds (RFC
/// 6887 section 8.5).
const SAME: Duration = Duration::from_secs(1);

/// The age of a loss, and its mark.
pub(crate) type Told = (Duration, u64);

/// The epoch of a pair, as one node knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommonEpoch {
    /// Number of this node.
    node: u8,
    /// Time and mark of the last loss. `None` before this node has lost mappings or has heard of
    /// the partner.
    loss: Option<(Timestamp, u64)>,
}

impl CommonEpoch {
    pub(crate) fn new(node: u8) -> Self {
        Self { node, loss: None }
    }

    /// The beginning, in this node's time.
    pub(crate) fn began(&self) -> Option<Timestamp> {
        self.loss.map(|(began, _)| began)
    }

    /// The time since the beginning, and the mark.
    pub(crate) fn told(&self, now: Timestamp) -> Option<Told> {
        self.loss.map(|(began, mark)| (now.since(began), mark))
    }

    /// This node has lost mappings, or may have lost some.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.began() < Some(now) {
            self.loss = Some((now, now.0 ^ u64::from(self.node) << 63));
        }
    }

    /// The partner owns a slice, and tells its last loss.
    pub(crate) fn hear(&mut self, (age, mark): Told, now: Timestamp) {
        let heard = Timestamp(now.0.saturating_sub(age.as_nanos() as u64));
        let is_later = |(own, known): (Timestamp, u64)| mark != known && heard > own.plus(SAME);
        if self.loss.is_none_or(is_later) {
            self.loss = Some((heard, mark));
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
        let mut epoch = CommonEpoch::new(0);
        assert_eq!(epoch.told(at(50)), None);
        epoch.begin(at(100));
        epoch.hear((seconds(60), 7), at(110));
        assert_eq!(epoch.began(), Some(at(100)), "the later one counts");
        epoch.hear((seconds(5), 8), at(120));
        assert_eq!(epoch.told(at(121)), Some((seconds(6), 8)));
    }

    #[test]
    fn a_node_that_has_started_follows_the_owner_and_then_forgets_no_loss() {
        let mut epoch = CommonEpoch::new(1);
        epoch.hear((seconds(60), 7), at(110));
        assert_eq!(epoch.began(), Some(at(50)));
        epoch.begin(at(111));
        epoch.hear((seconds(62), 7), at(112));
        assert_eq!(epoch.began(), Some(at(111)));
    }

    //= test rfc6887#section-8.5-reset
    #[test]
    fn two_owners_do_not_push_each_other_on() {
        for (late, moved) in [(500, false), (1_500, true), (20_000, true)] {
            let mut nodes = [CommonEpoch::new(0), CommonEpoch::new(1)];
            nodes.iter_mut().for_each(|epoch| epoch.begin(at(100)));
            // Each message comes late.
            for turn in 0..1000 {
                let sent = at(200 + turn);
                let arrives = sent.plus(Duration::from_millis(late));
                let told = nodes[turn as usize % 2].told(sent).expect("it has begun");
                nodes[1 - turn as usize % 2].hear(told, arrives);
            }
            let began = nodes.map(|epoch| epoch.began());
            assert!(began.iter().all(|began| *began <= Some(at(100 + 20))), "{began:?}");
            assert_eq!(began.iter().any(|began| *began != Some(at(100))), moved);
        }
    }
}
