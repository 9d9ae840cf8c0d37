//! Marks of connections that pass unread from their SYN on. Their numbers are right, so they are in
//! no doubt.
//!
//! Only a SYN from inside makes a mark: that of a client, or the answer of a server. Anybody
//! outside can forge a SYN of an old connection. A mark ends when its connection is read, at this
//! node or by the record of the partner's; or without a segment of its host for long, or for a
//! short time before a segment from outside. Without room for a mark, the host with the most loses
//! one: no host keeps out the others.

use super::{FORGOTTEN, HostKey, keys_at};
use natgate_engine::Timestamp;
use natgate_payload::FlowKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Most marks, and most of one host inside.
const MOST_MARKS: usize = 4096;
const MOST_OF_HOST: usize = 256;

/// Time for which a connection is remembered without a segment of its host, before one from outside
/// and after it.
const UNANSWERED: Duration = Duration::from_secs(30);
const ANSWERED: Duration = FORGOTTEN;

/// A connection that passes unread.
#[derive(Debug)]
struct Mark {
    /// Time up to which it is remembered without a segment of its host.
    until: Timestamp,
    host: HostKey,
    is_answered: bool,
}

/// Connections that pass unread.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: BTreeMap<FlowKey, Mark>,
    of_hosts: HashMap<HostKey, Vec<FlowKey>>,
    /// The hosts with their numbers of marks.
    counts: BTreeSet<(usize, HostKey)>,
}

impl Marks {
    /// True if a connection has passed unread from its SYN on.
    pub(super) fn has(&self, key: &FlowKey) -> bool {
        self.marks.contains_key(key)
    }

    /// Number of connections.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// Remembers a connection of a host. A host with many loses the mark that ends first. Without
    /// room, the host with the most marks does.
    pub(super) fn insert(&mut self, key: FlowKey, host: HostKey, now: Timestamp) {
        self.remove(&key);
        let own = self.of_hosts.get(&host).map_or(0, Vec::len);
        if own >= MOST_OF_HOST {
            self.remove_first(host);
        } else if self.marks.len() >= MOST_MARKS
            && let Some((_, largest)) = self.counts.last().copied()
        {
            self.remove_first(largest);
        }
        let mark = Mark { until: now.plus(UNANSWERED), host, is_answered: false };
        self.marks.insert(key, mark);
        self.change(host, |own| own.push(key));
    }

    /// Notes a segment of a connection, from inside or not. Returns false if the connection is not
    /// known.
    pub(super) fn renew(&mut self, key: &FlowKey, is_inside: bool, now: Timestamp) -> bool {
        let Some(mark) = self.marks.get_mut(key) else { return false };
        mark.is_answered |= !is_inside;
        if is_inside {
            mark.until = now.plus(if mark.is_answered { ANSWERED } else { UNANSWERED });
        }
        true
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, key: &FlowKey) {
        if let Some(Mark { host, .. }) = self.marks.remove(key) {
            self.change(host, |own| own.retain(|one| one != key));
        }
    }

    /// Forgets the connection of a host that ends first.
    fn remove_first(&mut self, host: HostKey) {
        let own = self.of_hosts.get(&host).into_iter().flatten();
        let first = own.min_by_key(|key| self.marks.get(*key).map(|mark| mark.until)).copied();
        first.iter().for_each(|first| self.remove(first));
    }

    /// Changes the list of a host's connections.
    fn change(&mut self, host: HostKey, change: impl FnOnce(&mut Vec<FlowKey>)) {
        let own = self.of_hosts.entry(host).or_default();
        self.counts.remove(&(own.len(), host));
        change(own);
        if own.is_empty() {
            self.of_hosts.remove(&host);
        } else {
            self.counts.insert((own.len(), host));
        }
    }

    /// Forgets the connections with an external endpoint.
    pub(super) fn remove_all(&mut self, protocol: u8, external: SocketAddrV4) {
        let its = self.marks.range(keys_at(protocol, external));
        let gone: Vec<FlowKey> = its.map(|(key, _)| *key).collect();
        gone.iter().for_each(|key| self.remove(key));
    }

    /// Forgets connections that are not `kept`.
    pub(super) fn retain(&mut self, kept: impl Fn(&FlowKey, Timestamp) -> bool) {
        let all = self.marks.iter().filter(|(key, mark)| !kept(key, mark.until));
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

    fn host(number: u32) -> HostKey {
        (0, Ipv4Addr::from_bits(number).into())
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    #[test]
    fn a_host_has_few_marks() {
        let mut marks = Marks::default();
        for port in 0..MOST_OF_HOST as u16 {
            marks.insert(key(port), host(0), at(u64::from(port)));
        }
        assert!(marks.renew(&key(0), true, at(1000)) && !marks.renew(&key(999), true, at(0)));
        marks.insert(key(500), host(0), at(0));
        assert!(marks.has(&key(0)) && !marks.has(&key(1)), "the one that ends first");
        marks.insert(key(501), host(0), at(0));
        assert!(marks.has(&key(501)) && !marks.has(&key(500)));
        marks.insert(key(501), host(0), at(1));
        assert_eq!(marks.len(), MOST_OF_HOST, "the same again");
        marks.remove_all(protocol::TCP, key(0).1);
        marks.retain(|_, until| until > at(33));
        assert_eq!(marks.len(), MOST_OF_HOST - 4);
        marks.retain(|_, _| false);
        assert!(marks.of_hosts.is_empty() && marks.counts.is_empty());
    }

    #[test]
    fn hosts_with_many_marks_keep_no_other_host_out() {
        let mut marks = Marks::default();
        for port in 0..MOST_MARKS as u16 {
            marks.insert(key(port), host(u32::from(port) / MOST_OF_HOST as u32), at(0));
            // Without an answer from outside, a further segment makes no mark last.
            marks.renew(&key(port), true, at(u64::from(port % 10)));
        }
        assert_eq!(marks.len(), MOST_MARKS);
        for number in 0..64 {
            let new = 5000 + number;
            marks.insert(key(new), host(1000 + u32::from(number)), at(0));
            assert!(marks.has(&key(new)) && marks.len() == MOST_MARKS, "{number}");
        }
        let of = |number| marks.of_hosts.get(&host(number)).map_or(0, Vec::len);
        assert_eq!([of(0), of(15)], [MOST_OF_HOST - 4; 2], "each of them has lost as many");
        assert!((1000..1064).all(|number| of(number) == 1));
        assert!(!marks.has(&key(0)) && marks.has(&key(9)), "those that end first");
        marks.retain(|_, until| until > at(39));
        assert_eq!(marks.len(), 0);
    }

    #[test]
    fn a_mark_lasts_after_a_segment_from_outside() {
        let mut marks = Marks::default();
        let lasts = |marks: &mut Marks, at: Timestamp| {
            marks.retain(|_, until| at < until);
            marks.has(&key(1))
        };
        marks.insert(key(1), host(1), at(0));
        assert!(marks.renew(&key(1), false, at(5)));
        assert!(lasts(&mut marks, at(29)), "only its host makes it last");
        assert!(marks.renew(&key(1), true, at(29)));
        assert!(lasts(&mut marks, at(29).plus(FORGOTTEN - Duration::from_secs(1))));
        assert!(!lasts(&mut marks, at(29).plus(FORGOTTEN)));
    }
}
