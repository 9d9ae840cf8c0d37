//! Questions of one node that the other one answers: a stream in both directions for each.
//!
//! The node that asks sends a number, 64 bits in little-endian order, and the question, to the end
//! of the stream. The other node sends the same number and its answer. An answer with another
//! number is no answer. A node that does not answer resets the stream.
//!
//! Only connections of [`QUESTIONS`] and later versions have questions. Each node asks one at a
//! time and answers one at a time. Length and time of both parts are bounded, and answers leave
//! after views and messages. The link reads the bytes of one question alone, that for the clock.

use crate::lead;
use crate::limits::{ANSWER_TIME, MAX_ANSWER, MAX_QUESTION, QUESTION_TIME, QUESTIONS, TURN_TIME};
use crate::shared::{Active, Shared, count};
use quinn::{RecvStream, SendStream, VarInt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::select;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Answers after views and messages.
const PRIORITY: i32 = -1;

/// Codes of a stream that ends early: the node does not answer, it answers another question, it
/// needs the answer no longer.
const NO_ANSWER: VarInt = VarInt::from_u32(1);
const BUSY: VarInt = VarInt::from_u32(2);
const NOT_WANTED: VarInt = VarInt::from_u32(3);

/// The reason why the partner has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no connection.
    #[error("it is not connected")]
    NotConnected,
    /// The partner's version of the link has no questions.
    #[error("its version of natgate cannot be asked")]
    OldVersion,
    /// The question is longer than [`MAX_QUESTION`](crate::MAX_QUESTION).
    #[error("the question is too long")]
    TooLong,
    /// The partner answers another question, or earlier questions of this node took too long.
    #[error("another question is under way")]
    Busy,
    /// The partner does not answer this question.
    #[error("it does not answer")]
    Refused,
    /// The answer belongs to another question, or is too long.
    #[error("its answer is malformed")]
    Malformed,
    /// The connection has ended before the answer.
    #[error("the connection ended before its answer")]
    Broken,
    /// The answer took too long.
    #[error("its answer took too long")]
    Late,
    /// The caller needs the answer no longer.
    #[error("the question was cancelled")]
    Cancelled,
}

/// Asks the partner on the connection in use, after earlier questions. The time of the question
/// begins after the wait for them.
pub(crate) async fn ask(shared: Arc<Shared>, question: Vec<u8>) -> Result<Vec<u8>, AskError> {
    if question.len() > MAX_QUESTION {
        return Err(AskError::TooLong);
    }
    askable(&shared)?;
    let turn = timeout(TURN_TIME, shared.questions.asked.lock()).await;
    let mut number = turn.map_err(|_| AskError::Busy)?;
    *number += 1;
    let active = askable(&shared)?;
    let asking = ask_on(&shared, &active, *number, &question);
    timeout(QUESTION_TIME, asking).await.unwrap_or(Err(AskError::Late))
}

/// The connection in use, if its partner can be asked.
fn askable(shared: &Shared) -> Result<Arc<Active>, AskError> {
    let active = shared.current.borrow().clone().ok_or(AskError::NotConnected)?;
    if active.version < QUESTIONS {
        return Err(AskError::OldVersion);
    }
    Ok(active)
}

/// Asks on a connection. The caller holds the lock of the number.
pub(crate) async fn ask_on(
    shared: &Arc<Shared>,
    active: &Active,
    number: u64,
    question: &[u8],
) -> Result<Vec<u8>, AskError> {
    let opened = active.connection.open_bi().await.map_err(|_| AskError::Broken)?;
    let mut stream = BothWays::new(opened);
    let pending = shared.stream_pending();
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend_from_slice(question);
    stream.send.write_all(&bytes).await.map_err(|_| AskError::Broken)?;
    stream.send.finish().map_err(|_| AskError::Broken)?;
    // An error means that the connection has ended, which the answer tells, too.
    let _ = stream.send.stopped().await;
    drop(pending);
    let answer = stream.receive.read_to_end(8 + MAX_ANSWER).await.map_err(|error| match error {
        quinn::ReadToEndError::Read(quinn::ReadError::Reset(BUSY)) => AskError::Busy,
        quinn::ReadToEndError::Read(quinn::ReadError::Reset(_)) => AskError::Refused,
        quinn::ReadToEndError::Read(_) => AskError::Broken,
        quinn::ReadToEndError::TooLong => AskError::Malformed,
    })?;
    stream.is_whole = true;
    match answer.split_first_chunk() {
        Some((first, rest)) if u64::from_le_bytes(*first) == number => Ok(rest.to_vec()),
        _ => {
            count(&shared.counters.malformed);
            Err(AskError::Malformed)
        }
    }
}

/// Answers the questions of a connection until its end.
pub(crate) async fn serve(shared: Arc<Shared>, active: Arc<Active>) {
    if active.version < QUESTIONS {
        return;
    }
    // Until here the partner could open no such stream.
    active.connection.set_max_concurrent_bi_streams(1_u32.into());
    while let Ok(stream) = active.connection.accept_bi().await {
        let mut stream = BothWays::new(stream);
        let outcome = match shared.questions.take_place() {
            Some(place) => {
                timeout(QUESTION_TIME, answer(&shared, &mut stream, place)).await.unwrap_or(None)
            }
            None => {
                stream.code = BUSY;
                None
            }
        };
        stream.is_whole = outcome.is_some();
    }
}

/// Reads a question and answers it. `None`: there is no answer.
async fn answer(
    shared: &Arc<Shared>,
    stream: &mut BothWays,
    place: OwnedSemaphorePermit,
) -> Option<()> {
    let bytes = match stream.receive.read_to_end(8 + MAX_QUESTION).await {
        Ok(bytes) if bytes.len() >= 8 => bytes,
        Ok(_) | Err(quinn::ReadToEndError::TooLong) => {
            count(&shared.counters.malformed);
            return None;
        }
        Err(_) => return None,
    };
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let (of_answerer, is_wanted) = (Arc::clone(shared), Arc::clone(&wanted.0));
    let (reply, answered) = oneshot::channel();
    spawn_blocking(move || {
        let go_on = || is_wanted.load(Ordering::Relaxed);
        let questions = &of_answerer.questions;
        let found = match (&bytes[8..], questions.clock.get()) {
            (lead::QUESTION, Some(read)) => Some(lead::answer(*read)),
            (question, _) => questions.answerer.get().and_then(|answer| answer(question, &go_on)),
        };
        // The place is free when the work has ended, wanted or not.
        drop(place);
        let _ = reply.send(found.map(|found| (bytes, found)));
    });
    let found = select! {
        found = timeout(ANSWER_TIME, answered) => found.ok()?.ok()?,
        // The partner has gone, or needs the answer no longer.
        _ = stream.send.stopped() => None,
    };
    let (bytes, found) = found.filter(|(_, found)| found.len() <= MAX_ANSWER)?;
    let _pending = shared.stream_pending();
    stream.send.set_priority(PRIORITY).ok()?;
    stream.send.write_all(&bytes[..8]).await.ok()?;
    stream.send.write_all(&found).await.ok()?;
    stream.send.finish().ok()?;
    // An error means that the connection has ended.
    let _ = stream.send.stopped().await;
    Some(())
}

/// Tells the answerer that its answer is needed no longer.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Both directions of a question's stream. They are reset if the exchange ends early.
struct BothWays {
    send: SendStream,
    receive: RecvStream,
    is_whole: bool,
    code: VarInt,
}

impl BothWays {
    fn new((send, receive): (SendStream, RecvStream)) -> Self {
        Self { send, receive, is_whole: false, code: NO_ANSWER }
    }
}

impl Drop for BothWays {
    fn drop(&mut self) {
        if !self.is_whole {
            // Errors mean that a direction has ended already.
            let _ = self.send.reset(self.code);
            let _ = self.receive.stop(NOT_WANTED);
        }
    }
}
