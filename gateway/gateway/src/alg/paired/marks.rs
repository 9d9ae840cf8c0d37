//! Marks of connections that pass unread from their SYN on. Their numbers are right, so they are in
//! no doubt.
//!
//! Only a SYN from inside makes a mark: that of a client, or the answer of a server. Anybody
//! outside can forge a SYN of an old connection. A mark ends when its connection is read, at this
//! node or by the record of the partner's; or without a segment of its host for long.

use super::{HostKey, keys_at};
use natgate_engine::Timestamp;
use natgate_payload::FlowKey;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;

/// Most marks, and most of one host inside.
const MOST_MARKS: usize = 4096;
const MOST_OF_HOST: usize = 256;

/// Connections that pass unread, and the time up to which each is remembered without a segment of
/// its host.
#[derive(Debug, Default)]
pub(super) struct Marks {
    until: BTreeMap<FlowKey, (Timestamp, HostKey)>,
    of_hosts: HashMap<HostKey, Vec<FlowKey>>,
}

impl Marks {
    /// True if a connection has passed unread from its SYN on.
    pub(super) fn has(&self, key: &FlowKey) -> bool {
        self.until.contains_key(key)
    }

    /// Number of connections.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.until.len()
    }

    /// Remembers a connection of a host. A host with many loses the mark that ends first. Returns
    /// false if there is no room.
    pub(super) fn insert(&mut self, key: FlowKey, host: HostKey, until: Timestamp) -> bool {
        self.remove(&key);
        let own = self.of_hosts.get(&host).map_or(&[][..], Vec::as_slice);
        if own.len() >= MOST_OF_HOST {
            let first = own.iter().min_by_key(|key| self.until.get(*key).map(|mark| mark.0));
            first.copied().iter().for_each(|first| self.remove(first));
        }
        let has_room = self.until.len() < MOST_MARKS;
        if has_room {
            self.until.insert(key, (until, host));
            self.of_hosts.entry(host).or_default().push(key);
        }
        has_room
    }

    /// Remembers a connection up to another time. Returns false if it is not known.
    pub(super) fn renew(&mut self, key: &FlowKey, until: Timestamp) -> bool {
        self.until.get_mut(key).map(|mark| mark.0 = until).is_some()
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, key: &FlowKey) {
        let Some((_, host)) = self.until.remove(key) else { return };
        if let Some(own) = self.of_hosts.get_mut(&host) {
            own.retain(|one| one != key);
            if own.is_empty() {
                self.of_hosts.remove(&host);
            }
        }
    }

    /// Forgets the connections with an external endpoint.
    pub(super) fn remove_all(&mut self, protocol: u8, external: SocketAddrV4) {
        let its = self.until.range(keys_at(protocol, external));
        let gone: Vec<FlowKey> = its.map(|(key, _)| *key).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    /// Forgets connections that are not `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&FlowKey, Timestamp) -> bool) {
        let all = self.until.iter().filter(|(key, (until, _))| !kept(key, *until));
        let gone: Vec<FlowKey> = all.map(|(key, _)| *key).collect();
        gone.iter().for_each(|key| self.remove(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_wire::protocol;
    use std::net::Ipv4Addr;

    fn key(port: u16) -> FlowKey {
        let end = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        (protocol::TCP, end(port), end(21))
    }

    #[test]
    fn a_host_has_few_marks_and_all_hosts_have_a_limit() {
        let host = |number: u32| (0, Ipv4Addr::from_bits(number).into());
        let mut marks = Marks::default();
        for port in 0..MOST_OF_HOST as u16 {
            assert!(marks.insert(key(port), host(0), Timestamp(100 + u64::from(port))));
        }
        assert!(marks.renew(&key(0), Timestamp(1000)) && !marks.renew(&key(999), Timestamp(0)));
        assert!(marks.insert(key(500), host(0), Timestamp(1)));
        assert!(marks.has(&key(0)) && !marks.has(&key(1)), "the one that ends first");
        assert!(marks.insert(key(501), host(0), Timestamp(1)) && !marks.has(&key(500)));
        assert!(marks.insert(key(501), host(0), Timestamp(2)), "the same again");
        assert_eq!(marks.until.len(), MOST_OF_HOST);
        for number in 1..MOST_MARKS as u16 {
            let has_room = marks.until.len() < MOST_MARKS;
            let of = host(u32::from(number) / MOST_OF_HOST as u32 + 1);
            assert_eq!(marks.insert(key(1000 + number), of, Timestamp(5)), has_room);
        }
        assert_eq!(marks.until.len(), MOST_MARKS);
        marks.remove_all(protocol::TCP, key(0).1);
        marks.retain(|_, until| until.0 > 5);
        assert_eq!(marks.until.len(), MOST_OF_HOST - 2);
        assert_eq!(marks.of_hosts.len(), 1);
        marks.retain(|_, _| false);
        assert!(marks.of_hosts.is_empty());
    }
}
