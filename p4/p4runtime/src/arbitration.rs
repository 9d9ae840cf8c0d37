//! Choice of the primary controller: the only one that may change anything.
//!
//! Each controller has a stream, by which it announces a number, its election id. The primary
//! controller is the one with the highest id that was ever announced. When its stream ends there is
//! no primary, until a controller announces that id or a higher one. All controllers are notified
//! of every change. There is one role, which may do everything.

use crate::proto::{Answered, Arbitration, RpcStatus, StreamResponse};
use tokio::sync::mpsc::Sender;
use tonic::{Code, Status};

/// Most controllers at a time.
pub const MOST_CONTROLLERS: usize = 64;

/// Sender of messages to a controller.
pub(crate) type Teller = Sender<Result<StreamResponse, Status>>;

struct Client {
    /// Number of the controller's stream.
    stream: u64,
    /// Election id; `None` if the controller is never primary.
    election: Option<u128>,
    teller: Teller,
}

/// Connected controllers.
pub(crate) struct Clients {
    device: u64,
    clients: Vec<Client>,
    /// Highest election id that was ever announced.
    highest: Option<u128>,
    /// Stream of the primary controller.
    primary: Option<u64>,
}

impl Clients {
    /// Creates the list of a device's controllers, empty.
    pub(crate) fn new(device: u64) -> Self {
        Self { device, clients: Vec::new(), highest: None, primary: None }
    }

    /// Processes the election id of a controller, its first or a new one.
    pub(crate) fn update(
        &mut self,
        stream: u64,
        election: Option<u128>,
        teller: &Teller,
    ) -> Result<(), Status> {
        // Zero counts as none.
        let election = election.filter(|election| *election != 0);
        let others = self.clients.iter().filter(|client| client.stream != stream);
        if election.is_some() && others.clone().any(|other| other.election == election) {
            return Err(Status::invalid_argument("another controller has this election id"));
        }
        if others.count() >= MOST_CONTROLLERS {
            let what = format!("{MOST_CONTROLLERS} controllers are connected; no more can be");
            return Err(Status::resource_exhausted(what));
        }
        match self.clients.iter_mut().find(|client| client.stream == stream) {
            Some(client) => client.election = election,
            None => self.clients.push(Client { stream, election, teller: teller.clone() }),
        }
        let before = self.primary;
        if election.is_some() && election >= self.highest {
            (self.highest, self.primary) = (election, Some(stream));
        } else if before == Some(stream) {
            self.primary = None;
        }
        // If nothing changes for the other controllers, they are not notified.
        let is_quiet = self.primary == before && before != Some(stream);
        self.tell(is_quiet.then_some(stream));
        Ok(())
    }

    /// Removes a controller whose stream has ended.
    pub(crate) fn leave(&mut self, stream: u64) {
        self.clients.retain(|client| client.stream != stream);
        if self.primary == Some(stream) {
            self.primary = None;
            self.tell(None);
        }
    }

    /// True if a stream is that of the primary controller.
    pub(crate) fn is_primary(&self, stream: u64) -> bool {
        self.primary == Some(stream)
    }

    /// Checks that a request comes from the primary controller: it must have that controller's
    /// election id.
    pub(crate) fn check(&self, election: Option<u128>) -> Result<(), Status> {
        let mut clients = self.clients.iter();
        let primary = clients.find(|client| Some(client.stream) == self.primary);
        match primary.is_some_and(|primary| primary.election == election) {
            true => Ok(()),
            false => Err(Status::permission_denied(
                "only the primary controller may do this; become it by StreamChannel",
            )),
        }
    }

    /// Notifies one controller, or all, of the primary one. A controller that does not read its
    /// messages is dropped.
    fn tell(&mut self, only: Option<u64>) {
        let (primary, device_id) = (self.primary, self.device);
        let election_id = self.highest.map(Into::into);
        let before = self.clients.len();
        self.clients.retain(|client| {
            if only.is_some_and(|only| only != client.stream) {
                return true;
            }
            let (code, message) = match primary {
                Some(primary) if primary == client.stream => {
                    (Code::Ok, "you are the primary controller")
                }
                Some(_) => (Code::AlreadyExists, "another controller is the primary one"),
                None => (Code::NotFound, "there is no primary controller"),
            };
            let status =
                RpcStatus { code: code as i32, message: message.to_owned(), details: Vec::new() };
            let told = Arbitration { device_id, role: None, election_id, status: Some(status) };
            let of = Some(Answered::Arbitration(told));
            client.teller.try_send(Ok(StreamResponse { of })).is_ok()
        });
        let is_there = |primary| self.clients.iter().any(|client| client.stream == primary);
        if self.clients.len() < before && primary.is_some_and(|primary| !is_there(primary)) {
            self.primary = None;
            self.tell(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{Receiver, channel};

    type ResponseReceiver = Receiver<Result<StreamResponse, Status>>;

    /// Codes and highest ids of the notifications to a controller.
    fn told(receiver: &mut ResponseReceiver) -> Vec<(i32, u128)> {
        let mut all = Vec::new();
        while let Ok(Ok(StreamResponse { of: Some(Answered::Arbitration(one)) })) =
            receiver.try_recv()
        {
            let highest = one.election_id.map_or(0, |id| id.value());
            all.push((one.status.expect("a status").code, highest));
        }
        all
    }

    const OK: i32 = 0;
    const NOT_FOUND: i32 = 5;
    const ALREADY_EXISTS: i32 = 6;

    #[test]
    fn the_highest_is_the_primary_one_until_it_goes() {
        let mut clients = Clients::new(0);
        let (one, mut one_hears) = channel(16);
        let (two, mut two_hears) = channel(16);
        assert!(clients.check(Some(5)).is_err(), "nobody is there");
        clients.update(1, Some(5), &one).expect("it is let in");
        assert_eq!(told(&mut one_hears), [(OK, 5)]);
        clients.check(Some(5)).expect("it is the primary one");
        clients.update(2, Some(4), &two).expect("it is let in");
        assert_eq!(
            (told(&mut one_hears), told(&mut two_hears)),
            (vec![], vec![(ALREADY_EXISTS, 5)])
        );
        assert!(clients.check(Some(4)).is_err());
        clients.update(2, Some(1 << 64), &two).expect("it may say more");
        assert_eq!(told(&mut one_hears), [(ALREADY_EXISTS, 1 << 64)]);
        assert_eq!(told(&mut two_hears), [(OK, 1 << 64)]);
        clients.leave(2);
        assert_eq!(told(&mut one_hears), [(NOT_FOUND, 1 << 64)]);
        assert!(clients.check(Some(1 << 64)).is_err() && clients.check(Some(5)).is_err());
        clients.update(1, Some(6), &one).expect("it may say more");
        assert_eq!(told(&mut one_hears), [(NOT_FOUND, 1 << 64)], "it is not enough");
        clients.update(1, Some(1 << 64), &one).expect("it may say as much");
        assert_eq!(told(&mut one_hears), [(OK, 1 << 64)]);
        clients.update(1, Some(2), &one).expect("it may step down");
        assert_eq!(told(&mut one_hears), [(NOT_FOUND, 1 << 64)]);
    }

    #[test]
    fn who_says_no_number_is_never_the_primary_one() {
        let mut clients = Clients::new(0);
        let (one, mut hears) = channel(16);
        for election in [None, Some(0)] {
            clients.update(1, election, &one).expect("it is let in");
            assert_eq!(told(&mut hears), [(NOT_FOUND, 0)]);
            assert!(clients.check(election).is_err() && clients.check(None).is_err());
        }
    }

    #[test]
    fn numbers_are_one_controllers_own_and_room_is_limited() {
        let mut clients = Clients::new(0);
        let (teller, _ear) = channel(10_000);
        clients.update(0, Some(5), &teller).expect("it is let in");
        let taken = clients.update(1, Some(5), &teller).expect_err("it is taken");
        assert_eq!(taken.code(), Code::InvalidArgument);
        for stream in 1..MOST_CONTROLLERS as u64 {
            clients.update(stream, None, &teller).expect("there is room");
        }
        let full = clients.update(99, None, &teller).expect_err("there is no room");
        assert_eq!(full.code(), Code::ResourceExhausted);
        clients.update(0, Some(6), &teller).expect("who is there may go on");
    }

    #[test]
    fn who_does_not_read_is_given_up() {
        let mut clients = Clients::new(0);
        let (deaf, _ear) = channel(1);
        let (other, mut hears) = channel(16);
        clients.update(1, Some(5), &deaf).expect("it is let in");
        clients.update(2, Some(4), &other).expect("it is let in");
        clients.update(1, Some(6), &deaf).expect("it says more");
        // The other controller gets two notifications: of the first one's number, and of its end.
        assert_eq!(told(&mut hears), [(ALREADY_EXISTS, 5), (ALREADY_EXISTS, 6), (NOT_FOUND, 6)]);
        assert!(clients.check(Some(6)).is_err());
    }
}
