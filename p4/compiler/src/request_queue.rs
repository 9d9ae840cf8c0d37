//! The queue in which a controller's requests wait for the thread that executes a program.
//!
//! That thread answers between batches of packets, one message at a time, so that a controller
//! never stands in the way of packets for longer than [`MOST_REQUESTS`] requests take. Nothing is
//! shared but messages.

use crate::machine::{Answer, Error, Request, Target};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Most requests in a message; more go as several.
pub const MOST_REQUESTS: usize = 256;

/// Most messages that wait; who sends more waits as well.
const MOST_WAITING: usize = 16;

/// What was asked together is answered together.
type Answers = Vec<Result<Answer, Error>>;

struct Message {
    requests: Vec<Request>,
    reply: SyncSender<Answers>,
}

/// A controller's end, of which there can be several.
#[derive(Clone, Debug)]
pub struct Controller {
    sender: SyncSender<Message>,
}

/// The queue of requests, at the end of the thread that executes a program.
#[derive(Debug)]
pub struct RequestQueue {
    receiver: Receiver<Message>,
}

/// A queue of requests, and a controller that fills it.
pub fn request_queue() -> (Controller, RequestQueue) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    (Controller { sender }, RequestQueue { receiver })
}

impl Controller {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    ///
    /// The target's, or [`Error::Gone`].
    pub fn ask(&self, request: Request) -> Result<Answer, Error> {
        self.ask_all(vec![request])?.pop().unwrap_or(Err(Error::Gone))
    }

    /// Asks one after the other, and waits for as many answers.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`]; what was asked for may have been done in part.
    pub fn ask_all(&self, requests: Vec<Request>) -> Result<Answers, Error> {
        let mut answers = Vec::with_capacity(requests.len());
        let mut left = requests.into_iter();
        loop {
            let requests: Vec<Request> = left.by_ref().take(MOST_REQUESTS).collect();
            if requests.is_empty() {
                return Ok(answers);
            }
            let (reply, answered) = sync_channel(1);
            self.sender.send(Message { requests, reply }).map_err(|_| Error::Gone)?;
            answers.extend(answered.recv().map_err(|_| Error::Gone)?);
        }
    }
}

impl RequestQueue {
    /// Answers the message that has waited longest; whether there was one. To be called between
    /// batches.
    pub fn serve(&self, target: &mut impl Target) -> bool {
        let Ok(Message { requests, reply }) = self.receiver.try_recv() else { return false };
        let answers = requests.iter().map(|request| target.answer(request)).collect();
        // Whoever asked may have gone.
        let _ = reply.send(answers);
        true
    }
}
