//! Client groups and budgets: no group of clients uses up what another group needs.
//!
//! Each group has a thread, helper threads and places of its own. So clients of the page, who show
//! no name, cannot delay the answer to an operator at the Unix socket.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Clients that share a thread, its helper threads, and budgets. Each request has its client's
/// group as an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientGroup {
    /// Clients of a Unix socket that have the role `operate`.
    Operators,
    /// Clients of a Unix socket that have the role `read`.
    Readers,
    /// Clients with a certificate.
    Remote,
    /// Clients of a TCP port without a certificate.
    Public,
    /// Monitoring systems that read metrics.
    Metrics,
}

impl ClientGroup {
    /// Number of groups.
    pub const COUNT: usize = 5;

    /// The name of the group's thread.
    pub(crate) fn thread(self) -> &'static str {
        match self {
            Self::Operators => "control",
            Self::Readers => "control read",
            Self::Remote => "control tls",
            Self::Public => "page",
            Self::Metrics => "metrics",
        }
    }

    /// Threads for work that takes long. Clients of one group keep so many threads busy, and no
    /// more.
    pub(crate) fn most_blocking(self) -> usize {
        match self {
            Self::Operators => 16,
            Self::Readers | Self::Remote | Self::Public => 4,
            Self::Metrics => 2,
        }
    }
}

/// The client of a connection, as far as it is known. Each request has its client as an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, by its credentials at the Unix socket.
    Process {
        /// The number of the process's user.
        uid: u32,
        /// The process's number.
        pid: Option<i32>,
    },
    /// The common name of a certificate, and the address that the client comes from.
    Certificate(String, SocketAddr),
    /// The address of a client without a certificate.
    Address(SocketAddr),
    /// The system does not say who the client is.
    Unknown,
}

/// Longest part of a certificate's name that is shown, characters.
const LONGEST_NAME: usize = 80;

impl Display for Peer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { uid, pid: Some(pid) } => write!(f, "uid {uid}, pid {pid}"),
            Self::Process { uid, pid: None } => write!(f, "uid {uid}"),
            // Debug writes control characters as escapes, so a name cannot begin a line of its own.
            Self::Certificate(name, address) => {
                let shown: String = name.chars().take(LONGEST_NAME).collect();
                write!(f, "certificate {shown:?} from {address}")
            }
            Self::Address(address) => write!(f, "{address}"),
            Self::Unknown => f.write_str("an unknown client"),
        }
    }
}

/// The address by which clients are told apart. An IPv6 client has a whole /64, so all addresses
/// of a /64 are one.
pub(crate) fn sharing_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

/// Places for long work, such as streams: each group of clients has the same number of them.
#[derive(Clone, Debug)]
pub struct Places {
    each: usize,
    taken: Arc<[AtomicUsize; ClientGroup::COUNT]>,
}

/// A place that is taken; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    taken: Arc<[AtomicUsize; ClientGroup::COUNT]>,
    group: ClientGroup,
}

impl Places {
    /// Places, this number for each group.
    pub fn new(each: usize) -> Self {
        Self { each, taken: Arc::default() }
    }

    /// Takes one of a group's places, if one is free.
    pub fn take(&self, group: ClientGroup) -> Option<Place> {
        let more = |taken| (taken < self.each).then_some(taken + 1);
        let counter = &self.taken[group as usize];
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place { taken: Arc::clone(&self.taken), group })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken[self.group as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_its_own_places_alone() {
        let places = Places::new(2);
        let mut held: Vec<_> = (0..2).map(|_| places.take(ClientGroup::Public)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(places.take(ClientGroup::Public).is_none());
        assert!(places.take(ClientGroup::Operators).is_some());
        held.pop();
        assert!(places.take(ClientGroup::Public).is_some());
    }

    #[test]
    fn a_peer_is_shown_on_one_line() {
        let process = Peer::Process { uid: 0, pid: Some(7) };
        assert_eq!(process.to_string(), "uid 0, pid 7");
        let address = "192.0.2.1:5".parse().unwrap();
        let odd = Peer::Certificate("a\nb".to_owned() + &"c".repeat(200), address).to_string();
        assert!(odd.starts_with("certificate \"a\\nbccc") && odd.len() < 120, "{odd}");
    }
}
