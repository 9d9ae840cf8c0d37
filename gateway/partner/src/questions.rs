//! State of the questions that the nodes ask each other.

use crate::lead::{Lead, ReadClock};
use std::sync::{Arc, OnceLock, PoisonError};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Answers a question of the partner, in a thread that may wait. `None`: there is no answer. The
/// function that is passed returns false when the answer is needed no longer.
pub type Answerer = dyn Fn(&[u8], &dyn Fn() -> bool) -> Option<Vec<u8>> + Send + Sync;

/// State of questions in both directions.
#[derive(Default)]
pub(crate) struct Questions {
    pub(crate) answerer: OnceLock<Box<Answerer>>,
    /// Number of the last question. Its lock is held while a question is under way.
    pub(crate) asked: Mutex<u64>,
    /// A permit to answer.
    place: OnceLock<Arc<Semaphore>>,
    /// This node's clock, if the clocks are compared.
    pub(crate) clock: OnceLock<ReadClock>,
    /// The last difference of the clocks that was found.
    lead: std::sync::Mutex<Option<Lead>>,
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl Questions {
    /// Sets the answerer, once.
    pub(crate) fn answer_by(&self, answerer: Box<Answerer>) {
        let _ = self.answerer.set(answerer);
    }

    pub(crate) fn note_lead(&self, lead: Lead) {
        *self.lead.lock().unwrap_or_else(PoisonError::into_inner) = Some(lead);
    }

    /// Lead of the partner's clock over this node's, nanoseconds, if it is known.
    pub(crate) fn lead(&self) -> Option<i64> {
        let lead = *self.lead.lock().unwrap_or_else(PoisonError::into_inner);
        lead.and_then(Lead::present)
    }

    /// Takes the permit; `None`: an answer is under way.
    pub(crate) fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        let place = self.place.get_or_init(|| Arc::new(Semaphore::new(1)));
        Arc::clone(place).try_acquire_owned().ok()
    }
}
