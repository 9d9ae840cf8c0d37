//! Figures of a slice for people.

use super::Slice;
use crate::fleet::board::Figures;
use crate::fleet::inbound::Inbound;
use crate::fleet::refusal::Refusal;
use natgate_engine::Timestamp;
use natgate_pair::ReceivedCounters;

impl Slice {
    /// Figures of this worker.
    pub(in crate::fleet) fn figures(&self, now: Timestamp) -> Figures {
        let received = self.inbound.iter().map(|inbound| inbound.receiver.counters());
        let refused = self.inbound.iter().map(Inbound::refused_records);
        let figures = Figures {
            received: received.reduce(ReceivedCounters::plus),
            records_without_realm: refused.reduce(|sum, one| sum + one),
            ended_to_move: self.ended_to_move,
            ..Figures::default()
        };
        let sum = |sum: Refusal, one: &Refusal| sum.plus(one);
        if let Some(outbound) = &self.outbound {
            let refusals = outbound.answers.iter().flatten().map(|answer| &answer.refusal);
            return Figures {
                is_complete: outbound.is_whole(now),
                completed: outbound.completed,
                lag: outbound.sender.lag(now.0),
                sent: Some(outbound.sender.counters()),
                refusal: refusals.fold(Refusal::default(), sum),
                ..figures
            };
        }
        let times: Option<Vec<_>> = self.inbound.iter().map(|inbound| inbound.completed).collect();
        let refusals = self.inbound.iter().map(Inbound::refusal);
        Figures {
            is_complete: !self.inbound.is_empty()
                && self.inbound.iter().all(|inbound| inbound.is_whole),
            completed: times.and_then(|times| times.into_iter().min()),
            refusal: refusals.fold(Refusal::default(), |all, one| sum(all, &one)),
            ..figures
        }
    }
}
