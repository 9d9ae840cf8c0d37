//! Comparison of both nodes' clocks: a question that the link itself asks and answers.
//!
//! The answer has the partner's time, nanoseconds since 1970 in little-endian order. The question
//! was half a round trip ago, so a difference is wrong by half a round trip at most. A node that
//! does not know the question does not answer it: then the difference is not known.

use crate::lead::{Lead, QUESTION, ReadClock, nanoseconds, since_1970};
use crate::limits::{COMPARE, COMPARISON, QUESTIONS, TURN_TIME};
use crate::question::ask_on;
use crate::shared::Shared;
use std::sync::Arc;
use std::time::Instant;
use tokio::select;
use tokio::time::{sleep, timeout};

/// Compares the clocks on each new connection, and from time to time.
pub(crate) async fn compare(shared: Arc<Shared>, read: ReadClock) {
    let mut connections = shared.current.subscribe();
    loop {
        if let Some(nanoseconds) = difference(&shared, read).await {
            shared.questions.note_lead(Lead::found(nanoseconds));
        }
        select! {
            () = sleep(COMPARE) => {}
            // The sender is a part of the shared state.
            _ = connections.changed() => {}
        }
    }
}

async fn difference(shared: &Arc<Shared>, read: ReadClock) -> Option<i64> {
    let mut number = timeout(TURN_TIME, shared.questions.asked.lock()).await.ok()?;
    // The connection may have been another one before the wait.
    let active = shared.current.borrow().clone()?;
    if active.version < QUESTIONS {
        return None;
    }
    *number += 1;
    let (sent, began) = (since_1970(read()), Instant::now());
    let asking = ask_on(shared, &active, *number, QUESTION);
    let answer = timeout(COMPARISON, asking).await.ok()?.ok()?;
    let took = began.elapsed();
    // A process that stood still meanwhile may find the answer first.
    if took > COMPARISON {
        return None;
    }
    let own = sent + nanoseconds(took / 2);
    let partner = u64::from_le_bytes(answer.try_into().ok()?);
    i64::try_from(i128::from(partner) - own).ok()
}
