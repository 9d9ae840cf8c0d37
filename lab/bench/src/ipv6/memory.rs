//! Memory of NAT64's sessions and hosts, by the growth of the resident memory.

use crate::memory::resident;
use natgate_ipv6::{Hosts, Share};
use serde::Serialize;

/// Prefix of the subscribers.
const SUBSCRIBERS: u128 = 0x2001_0db8_0001_0000_u128 << 64;
/// Hosts of a subscriber that the table has room for on average.
const HOSTS_EACH: u64 = 16;

/// Bytes of a host in the table of NAT64's hosts, which exists for a number of subscribers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Hosts64 {
    /// Subscribers that the table has room for. All of them have hosts.
    pub subscribers: u64,
    /// Bytes a host if every subscriber has one.
    pub one_each_bytes: f64,
    /// Bytes a host if the table is full: every subscriber has 16.
    pub full_bytes: f64,
}

/// Memory of sessions.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Bytes a session of NAT44.
    pub nat44_bytes_per_session: f64,
    /// Bytes a session of NAT64, with the table of hosts.
    pub nat64_bytes_per_session: f64,
    /// Bytes that a session of NAT64 takes more than one of NAT44, without the table of hosts.
    pub more_bytes_per_session: f64,
}

/// Measures the table of hosts.
pub(super) fn hosts(subscribers: u64) -> Hosts64 {
    let bytes = |each| table(subscribers, subscribers, each) as f64 / (subscribers * each) as f64;
    Hosts64 { subscribers, one_each_bytes: bytes(1), full_bytes: bytes(HOSTS_EACH) }
}

/// Bytes of a table with room for so many subscribers, of which the first `subscribers` have a
/// number of hosts each.
pub(super) fn table(room: u64, subscribers: u64, each: u64) -> u64 {
    let before = resident();
    let mut hosts = Hosts::new(64, room as usize, Share::default(), [1; 32]);
    for host in 0..subscribers * each {
        let (subscriber, within) = (u128::from(host % subscribers), host / subscribers);
        let address = SUBSCRIBERS | subscriber << 64 | u128::from(within + 1);
        hosts.intern(address, 0).expect("there is room for the host");
    }
    let bytes = resident().saturating_sub(before);
    drop(hosts);
    bytes
}
