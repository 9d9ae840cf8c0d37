//! Queue of controllers' requests to the thread that answers them for a program.
//!
//! That thread answers between batches of packets, one message at a time, and packets that wait
//! come before the next message. So controllers, however many, never delay packets for longer than
//! [`MOST_REQUESTS`] requests take. Controllers share nothing but messages with the program.

use crate::machine::{Answer, Error, Request, Target};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Most requests in a message; more requests are sent as several messages.
pub const MOST_REQUESTS: usize = 256;

/// Most messages that wait; further senders are blocked.
const MOST_WAITING: usize = 16;

/// Answers to the requests of one message.
type Answers = Vec<Result<Answer, Error>>;

/// A message of a controller that waits for its answer.
#[derive(Debug)]
pub struct Message {
    requests: Vec<Request>,
    reply: SyncSender<Answers>,
}

/// A controller's end; there can be several.
#[derive(Clone, Debug)]
pub struct Controller {
    sender: SyncSender<Message>,
}

/// The answering thread's end of the queue.
#[derive(Debug)]
pub struct RequestQueue {
    receiver: Receiver<Message>,
}

/// Creates a queue of requests, and a controller that fills it.
pub fn request_queue() -> (Controller, RequestQueue) {
    let (sender, receiver) = sync_channel(MOST_WAITING);
    (Controller { sender }, RequestQueue { receiver })
}

impl Controller {
    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    ///
    /// The target's error, or [`Error::Gone`].
    pub fn ask(&self, request: Request) -> Result<Answer, Error> {
        self.ask_all(vec![request])?.pop().unwrap_or(Err(Error::Gone))
    }

    /// Sends requests one after the other, and waits for as many answers.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`]; some of the requests may have been executed.
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
    /// Answers the message that has waited longest; returns true if there was one. Call it between
    /// batches.
    pub fn serve(&self, target: &mut impl Target) -> bool {
        self.receiver.try_recv().map(|message| message.answer(target)).is_ok()
    }

    /// Returns the message that has waited longest, or the next one within `patience`.
    pub fn wait(&self, patience: Duration) -> Option<Message> {
        self.receiver.recv_timeout(patience).ok()
    }
}

impl Message {
    /// Has the target answer the requests, one after the other.
    pub fn answer(self, target: &mut impl Target) {
        let answers = self.requests.iter().map(|request| target.answer(request)).collect();
        // The asker may have ended.
        let _ = self.reply.send(answers);
    }
}
