//! Room for connections: how many a server has at a time, and which one gives way to a new one.
//!
//! Without a limit of its own a server leaves further connections waiting. With a limit
//! ([`crate::Listen::at_most`]) each client address has a share of the places. A new connection
//! beyond the share of its address, or beyond all places, takes the place of an idle connection;
//! if none can give way, the new one is closed. An IPv6 client has a whole /64, so all addresses
//! of a /64 are one address here.
//!
//! Always true: a connection whose request is being answered keeps its place, and an address loses
//! no place to an address that holds more.

use crate::Listen;
use crate::activity::Activity;
use crate::clients::sharing_address;
use crate::listener::{ConnectionLimit, Listener, NewConnection};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Connections of a server at a time; more wait.
pub const MOST_CONNECTIONS: usize = 1024;

/// One server's connections may take one in so many of the descriptors of the process. The rest is
/// for devices, logs, files and other servers.
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// One client address may take one in so many of the places of a server with a limit.
const SHARE_OF_ADDRESS: usize = 4;

/// Room of a server for connections, and the treatment of further ones.
pub(crate) enum Room {
    /// Further connections wait.
    Waiting(Arc<Semaphore>),
    /// An idle connection, or the new one, is closed.
    Limited(LimitedRoom),
}

/// A connection that has come in and has a place.
pub(crate) struct Admitted {
    pub(crate) arrived: NewConnection,
    pub(crate) activity: Activity,
    /// The place, if further connections wait.
    pub(crate) place: Option<OwnedSemaphorePermit>,
    /// The client, where each address has a share.
    client: Client,
}

impl Room {
    pub(crate) fn of(listen: &Listen) -> Self {
        let descriptors = descriptors();
        match listen.limit() {
            None => Self::Waiting(Arc::new(Semaphore::new(MOST_CONNECTIONS.min(descriptors)))),
            Some(ConnectionLimit { most, refused }) => {
                Self::Limited(LimitedRoom::new((*most).min(descriptors), Arc::clone(refused)))
            }
        }
    }

    /// The next connection with a place; `None`: a connection has come and there was no place for
    /// it.
    pub(crate) async fn admit(&mut self, listener: &Listener) -> io::Result<Option<Admitted>> {
        let place = match self {
            Self::Waiting(places) => {
                let place = Arc::clone(places).acquire_owned().await;
                Some(place.map_err(io::Error::other)?)
            }
            Self::Limited(_) => None,
        };
        let arrived = listener.accept().await?;
        let client = client(arrived.address());
        if let Self::Limited(room) = self
            && !room.makes_room(client)
        {
            return Ok(None);
        }
        let activity = Activity::new(Instant::now());
        Ok(Some(Admitted { arrived, activity, place, client }))
    }

    /// Keeps in mind the connection that a task serves from now on.
    pub(crate) fn keep(&mut self, admitted: (Client, Activity), task: AbortHandle) {
        if let Self::Limited(room) = self {
            let (client, activity) = admitted;
            room.connections.push(Connection { client, activity, task });
        }
    }
}

impl Admitted {
    /// Values that [`Room::keep`] needs.
    pub(crate) fn kept(&self) -> (Client, Activity) {
        (self.client, self.activity.clone())
    }
}

/// Client with a share of the connections; `None`: a client without an address.
type Client = Option<IpAddr>;

/// The client that has an address.
fn client(address: Option<IpAddr>) -> Client {
    address.map(sharing_address)
}

/// The connections of a server with a limit.
pub(crate) struct LimitedRoom {
    /// Places in all.
    most: usize,
    /// Places of one address.
    share: usize,
    /// Counts connections that were closed to keep to the limit.
    refused: Arc<AtomicU64>,
    connections: Vec<Connection>,
}

/// A connection that has a place.
struct Connection {
    client: Client,
    activity: Activity,
    task: AbortHandle,
}

impl LimitedRoom {
    fn new(most: usize, refused: Arc<AtomicU64>) -> Self {
        let share = most.div_ceil(SHARE_OF_ADDRESS);
        Self { most, share, refused, connections: Vec::with_capacity(most) }
    }

    /// Has an idle connection give way if a new one has no place otherwise. False: none can give
    /// way, and the new one has no place.
    fn makes_room(&mut self, newcomer: Client) -> bool {
        self.connections.retain(|connection| !connection.task.is_finished());
        let state = |connection: &Connection| (connection.client, connection.activity.idle_since());
        let states: Vec<_> = self.connections.iter().map(state).collect();
        let own = states.iter().filter(|(client, _)| *client == newcomer).count();
        let index = if own >= self.share {
            longest_idle(&states, newcomer)
        } else if states.len() >= self.most {
            most_dispensable(&states, newcomer)
        } else {
            return true;
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        let Some(index) = index else { return false };
        self.connections.swap_remove(index).task.abort();
        true
    }
}

/// A connection's client, and since when it is idle, if it is.
type ConnectionState = (Client, Option<Instant>);

/// The longest idle connection of one client.
fn longest_idle(states: &[ConnectionState], of: Client) -> Option<usize> {
    let of_client = states.iter().enumerate().filter(|(_, (client, _))| *client == of);
    let idle = of_client.filter_map(|(index, (_, since))| Some(((*since)?, index)));
    idle.min().map(|(_, index)| index)
}

/// The longest idle connection of the client that holds most, among clients that have an idle one
/// and hold no less than the newcomer would.
fn most_dispensable(states: &[ConnectionState], newcomer: Client) -> Option<usize> {
    let mut held: HashMap<Client, usize> = HashMap::from([(newcomer, 1)]);
    for (client, _) in states {
        *held.entry(*client).or_default() += 1;
    }
    let candidates =
        states.iter().enumerate().filter(|(_, (client, _))| held[client] >= held[&newcomer]);
    let idle = candidates
        .filter_map(|(index, (client, since))| Some((Reverse(held[client]), (*since)?, index)));
    idle.min().map(|(_, _, index)| index)
}

/// Number of descriptors that the connections of one server may take.
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let share = limit.map_or(u64::MAX, |limit| (limit / SHARE_OF_DESCRIPTORS).max(1));
    usize::try_from(share).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Connections of clients 10.0.0.x, idle since so many seconds after some time.
    fn states(of: &[(u8, Option<u64>)]) -> Vec<ConnectionState> {
        let began = Instant::now();
        let state = |&(host, idle): &(u8, Option<u64>)| {
            (host_client(host), idle.map(|seconds| began + Duration::from_secs(seconds)))
        };
        of.iter().map(state).collect()
    }

    fn host_client(host: u8) -> Client {
        client(Some(IpAddr::from([10, 0, 0, host])))
    }

    #[test]
    fn the_longest_idle_connection_of_the_client_that_holds_most_gives_way() {
        let states = states(&[
            (1, Some(0)),
            (2, None),
            (2, Some(5)),
            (2, Some(4)),
            (3, Some(1)),
            (3, Some(2)),
        ]);
        assert_eq!(most_dispensable(&states, host_client(9)), Some(3));
        assert_eq!(longest_idle(&states, host_client(3)), Some(4));
    }

    #[test]
    fn a_connection_that_is_being_answered_keeps_its_place() {
        let states = states(&[(1, None), (1, None), (1, None), (2, Some(1)), (2, None), (3, None)]);
        assert_eq!(most_dispensable(&states, host_client(9)), Some(3));
        assert_eq!(longest_idle(&states, host_client(1)), None);
        let busy = states.iter().map(|(client, _)| (*client, None)).collect::<Vec<_>>();
        assert_eq!(most_dispensable(&busy, host_client(9)), None);
    }

    #[test]
    fn a_client_loses_no_place_to_a_client_that_holds_more() {
        let states = states(&[(1, None), (1, None), (2, Some(1)), (2, Some(2)), (3, Some(0))]);
        // Client 1 would hold three, client 3 two, as client 2 does.
        assert_eq!(most_dispensable(&states, host_client(1)), None);
        assert_eq!(most_dispensable(&states, host_client(3)), Some(4));
        // Client 2 itself would hold most.
        assert_eq!(most_dispensable(&states, host_client(2)), Some(2));
        assert_eq!(most_dispensable(&states, host_client(9)), Some(2));
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_a_prefix_of_64_bits() {
        let of = |text: &str| client(Some(text.parse().expect("an address")));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(client(None), None);
    }
}
