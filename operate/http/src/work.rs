//! Long work of requests: helper threads do it, and clients take turns.
//!
//! A group of clients has a fixed number of helper threads ([`ClientGroup`]). While all are busy,
//! work waits. Then users take turns, and the processes of a user take turns within the turns of
//! the user. So a client with hundreds of requests delays another client by no more than the work
//! under way. A user is a user number, a certificate's name or an address.

use crate::clients::sharing_address;
use crate::{ClientGroup, Peer, Response};
use axum::body::{Body, Bytes};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

tokio::task_local! {
    /// The client of the request that a task answers.
    static CLIENT: Arc<Client>;
}

/// A client that takes turns with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    group: ClientGroup,
    user: User,
    /// The number of the process, or 0.
    process: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum User {
    Number(u32),
    Certificate(String),
    Address(IpAddr),
    Unknown,
}

impl Client {
    pub(crate) fn of(group: ClientGroup, peer: &Peer) -> Self {
        let (user, process) = match peer {
            Peer::Process { uid, pid } => (User::Number(*uid), pid.unwrap_or_default()),
            Peer::Certificate(name, _) => (User::Certificate(name.clone()), 0),
            Peer::Address(address) => (User::Address(sharing_address(address.ip())), 0),
            Peer::Unknown => (User::Unknown, 0),
        };
        Self { group, user, process }
    }
}

/// Answers a request; the work for the answer counts as the client's.
pub(crate) async fn answered_for<F: Future>(client: Arc<Client>, answer: F) -> F::Output {
    CLIENT.scope(client, answer).await
}

fn current() -> Option<Arc<Client>> {
    CLIENT.try_with(Arc::clone).ok()
}

/// Does long work in a helper thread.
///
/// # Errors
/// A [`Response`] if the work panicked.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    let turn = turn(current().as_deref()).await;
    let failed =
        |_| Response::failure(500, "the request failed inside; this is a bug of natgate's");
    let work = move || {
        let _turn = turn;
        work()
    };
    spawn_blocking(work).await.map_err(failed)
}

/// A body that helper threads make piece by piece. A piece is made once the client has taken the
/// piece before. `step` returns a piece and the state for the next piece; `None` ends the body. If
/// `step` fails or panics, the answer breaks off, and the client sees that.
pub fn pieces<S: Send + 'static>(
    state: S,
    step: impl Fn(S) -> io::Result<Option<(Bytes, S)>> + Clone + Send + 'static,
) -> Body {
    let client = current();
    let next = move |state: Option<S>| {
        let (step, client) = (step.clone(), client.clone());
        async move {
            let state = state?;
            let turn = turn(client.as_deref()).await;
            let work = move || {
                let _turn = turn;
                step(state)
            };
            match spawn_blocking(work).await {
                Ok(Ok(Some((piece, state)))) => Some((Ok(piece), Some(state))),
                Ok(Ok(None)) => None,
                Ok(Err(error)) => Some((Err(error), None)),
                Err(failed) => Some((Err(io::Error::other(failed)), None)),
            }
        }
    };
    Body::from_stream(futures_util::stream::unfold(Some(state), next))
}

/// A queue for each group of clients.
static QUEUES: [Queue; ClientGroup::COUNT] = [const { Queue::new() }; ClientGroup::COUNT];

/// Waits for a client's turn. Work that no client asked for needs none.
async fn turn(client: Option<&Client>) -> Option<Turn> {
    let client = client?;
    Some(QUEUES[client.group as usize].turn(client, client.group.most_blocking()).await)
}

/// Work that waits for its turn.
#[derive(Debug)]
struct Queue(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Number of turns in use.
    taken: usize,
    /// Users with waiting work; the first user is the next.
    users: VecDeque<WaitingUser>,
}

#[derive(Debug)]
struct WaitingUser {
    user: User,
    /// The user's processes; the first process is the next.
    processes: VecDeque<WaitingProcess>,
}

#[derive(Debug)]
struct WaitingProcess {
    process: i32,
    /// The process's work, in the order in which it came.
    work: VecDeque<oneshot::Sender<Turn>>,
}

/// A turn in use. When it is dropped, the next work in the queue takes it.
#[derive(Debug)]
struct Turn(&'static Queue);

impl Queue {
    const fn new() -> Self {
        Self(Mutex::new(State { taken: 0, users: VecDeque::new() }))
    }

    async fn turn(&'static self, client: &Client, most: usize) -> Turn {
        let turn = {
            let mut state = self.state();
            if state.taken < most {
                state.taken += 1;
                return Turn(self);
            }
            let (sender, turn) = oneshot::channel();
            state.wait(client, sender);
            turn
        };
        turn.await.expect("a sender goes only with its turn")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        loop {
            let next = {
                let mut state = self.0.state();
                let Some(next) = state.next() else {
                    state.taken -= 1;
                    return;
                };
                next
            };
            match next.send(Turn(self.0)) {
                Ok(()) => return,
                // The client of this work is gone. The turn stays here.
                Err(unwanted) => std::mem::forget(unwanted),
            }
        }
    }
}

impl State {
    fn wait(&mut self, client: &Client, sender: oneshot::Sender<Turn>) {
        let Client { user, process, .. } = client;
        let place = self.users.iter().position(|waiting| waiting.user == *user);
        let place = place.unwrap_or_else(|| {
            let processes = VecDeque::new();
            self.users.push_back(WaitingUser { user: user.clone(), processes });
            self.users.len() - 1
        });
        let processes = &mut self.users[place].processes;
        match processes.iter_mut().find(|waiting| waiting.process == *process) {
            Some(waiting) => waiting.work.push_back(sender),
            None => {
                let work = VecDeque::from([sender]);
                processes.push_back(WaitingProcess { process: *process, work });
            }
        }
    }

    /// Takes the next work whose client still waits. Its process and its user go to the ends of
    /// their queues.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(mut user) = self.users.pop_front() {
            while let Some(mut process) = user.processes.pop_front() {
                process.work.retain(|work| !work.is_closed());
                let Some(work) = process.work.pop_front() else { continue };
                if !process.work.is_empty() {
                    user.processes.push_back(process);
                }
                if !user.processes.is_empty() {
                    self.users.push_back(user);
                }
                return Some(work);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::{Context, Poll};

    fn process(uid: u32, pid: i32) -> Client {
        Client::of(ClientGroup::Operators, &Peer::Process { uid, pid: Some(pid) })
    }

    /// Takes the only turn, lets clients wait in the given order, and returns the order of their
    /// turns. The clients of `gone` leave before the first turn ends.
    fn order(waiting: &[(u32, i32)], gone: &[usize]) -> Vec<(u32, i32)> {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let first = queue.turn(&process(0, 0), 1).await;
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for &(uid, pid) in waiting {
                let order = Arc::clone(&order);
                tasks.push(tokio::spawn(async move {
                    let _turn = queue.turn(&process(uid, pid), 1).await;
                    order.lock().expect("no test panics").push((uid, pid));
                }));
                tokio::task::yield_now().await;
            }
            for &number in gone {
                tasks[number].abort();
                tokio::task::yield_now().await;
            }
            drop(first);
            for task in tasks {
                let _ = task.await;
            }
            assert_eq!(queue.state().taken, 0);
            assert!(queue.state().users.is_empty());
            order.lock().expect("no test panics").clone()
        })
    }

    #[test]
    fn users_take_turns_and_so_do_the_processes_of_a_user() {
        let many = [(5, 1), (5, 1), (5, 1), (5, 2), (5, 2)];
        let waiting: Vec<_> = many.into_iter().chain([(7, 9), (0, 3)]).collect();
        let turns = order(&waiting, &[]);
        assert_eq!(turns, [(5, 1), (7, 9), (0, 3), (5, 2), (5, 1), (5, 2), (5, 1)]);
    }

    #[test]
    fn work_that_nobody_waits_for_has_no_turn() {
        let waiting = [(5, 1), (5, 1), (7, 1), (7, 1)];
        assert_eq!(order(&waiting, &[0, 3]), [(5, 1), (7, 1)]);
        assert_eq!(order(&waiting, &[0, 1, 2, 3]), []);
    }

    #[test]
    fn a_turn_that_has_come_and_is_not_taken_goes_on() {
        let queue: &'static Queue = Box::leak(Box::new(Queue::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let client = process(1, 1);
            let first = queue.turn(&client, 1).await;
            let mut waiting = Box::pin(queue.turn(&client, 1));
            let look = |context: &mut Context<'_>| Poll::Ready(waiting.as_mut().poll(context));
            assert!(poll_fn(look).await.is_pending());
            drop(first);
            drop(waiting);
            assert_eq!(queue.state().taken, 0);
        });
    }
}
