//! Remote endpoints that the inside knows by another endpoint, because a rule translated the
//! destination (twice NAT, RFC 2663 section 4.3). Replies come back from the endpoint that the host
//! addressed.
//!
//! A session is filed by its remote endpoint as seen outside. If the inside knows that endpoint by
//! another one, a record here holds both. The record is found from either end and lives as long as
//! its session. A mapping without such sessions costs one flag. Room is reserved at the start;
//! memory that was never used was never touched.

use crate::calendar::NONE;
use crate::endpoint::{AddressPort, Internal};
use crate::host::Host;
use crate::index::Index;
use crate::random::HashKey;
use alloc::vec::Vec;

/// An address, host byte order, and a port.
type End = AddressPort;

/// The internal endpoint of a session, with its protocol.
pub(crate) type Flow = (u8, Internal);

/// A session whose remote endpoint has another name inside.
#[derive(Clone, Copy, Debug)]
struct Record {
    host: Host,
    /// The mapping's slot. In a free record, the next free one.
    mapping: u32,
    remote_address: u32,
    seen_address: u32,
    port: u16,
    remote_port: u16,
    seen_port: u16,
    protocol: u8,
}

const _: () = assert!(size_of::<Record>() == 32);

impl Record {
    fn remote(&self) -> End {
        AddressPort::new(self.remote_address, self.remote_port)
    }

    fn seen(&self) -> End {
        AddressPort::new(self.seen_address, self.seen_port)
    }

    fn flow(&self) -> Flow {
        (self.protocol, Internal::new(self.host, self.port))
    }
}

/// All sessions whose remote endpoint has another name inside.
#[derive(Clone, Debug)]
pub(crate) struct Twice {
    key: HashKey,
    room: usize,
    records: Vec<Record>,
    free: u32,
    used: usize,
    /// Records by mapping and remote endpoint, and also by internal endpoint and endpoint seen
    /// inside.
    index: Index,
}

impl Twice {
    pub(crate) fn new(room: usize, key: HashKey) -> Self {
        Self {
            key,
            room,
            records: Vec::with_capacity(room),
            free: NONE,
            used: 0,
            index: Index::new(2 * room),
        }
    }

    /// Bytes that `room` records take.
    pub(crate) fn memory(room: usize) -> u64 {
        (room * size_of::<Record>()) as u64 + Index::memory(2 * room)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used == self.room
    }

    fn hash_outside(&self, mapping: u32, remote: End) -> u64 {
        self.key.hash(u64::from(mapping) | 1 << 61, word(remote))
    }

    fn hash_inside(&self, (protocol, Internal { host, port }): Flow, seen: End) -> u64 {
        let internal = host.bits() | u64::from(port) << 44 | 1 << 62;
        self.key.hash(internal, word(seen) | u64::from(protocol) << 48)
    }

    fn find(&self, mapping: u32, remote: End) -> Option<u32> {
        self.index.find(self.hash_outside(mapping, remote), |at| {
            let record = &self.records[at as usize];
            (record.mapping, record.remote()) == (mapping, remote)
        })
    }

    /// The endpoint by which the inside knows the remote endpoint of a mapping's session, if it
    /// differs.
    pub(crate) fn seen(&self, mapping: u32, remote: End) -> Option<End> {
        self.find(mapping, remote).map(|at| self.records[at as usize].seen())
    }

    /// The remote endpoint of the session of `flow` whose remote endpoint is seen inside as `seen`.
    pub(crate) fn remote(&self, flow: Flow, seen: End) -> Option<End> {
        let found = self.index.find(self.hash_inside(flow, seen), |at| {
            let record = &self.records[at as usize];
            (record.flow(), record.seen()) == (flow, seen)
        });
        found.map(|at| self.records[at as usize].remote())
    }

    /// Notes the endpoint by which the inside knows the remote endpoint of a new session.
    ///
    /// # Panics
    /// When there is no room: the caller must check first.
    pub(crate) fn add(&mut self, mapping: u32, flow: Flow, remote: End, seen: End) {
        assert!(!self.is_full(), "there is room for one more");
        let (protocol, Internal { host, port }) = flow;
        let record = Record {
            host,
            mapping,
            remote_address: remote.address,
            seen_address: seen.address,
            port,
            remote_port: remote.port,
            seen_port: seen.port,
            protocol,
        };
        let at = if self.free != NONE {
            let at = self.free;
            self.free = self.records[at as usize].mapping;
            self.records[at as usize] = record;
            at
        } else {
            self.records.push(record);
            self.records.len() as u32 - 1
        };
        self.used += 1;
        self.index.insert(self.hash_outside(mapping, remote), at);
        self.index.insert(self.hash_inside(flow, seen), at);
    }

    /// Removes the record of a session that ends, if it has one.
    pub(crate) fn remove(&mut self, mapping: u32, remote: End) {
        let Some(at) = self.find(mapping, remote) else { return };
        let record = self.records[at as usize];
        self.index.remove(self.hash_outside(mapping, remote), at);
        self.index.remove(self.hash_inside(record.flow(), record.seen()), at);
        self.records[at as usize].mapping = core::mem::replace(&mut self.free, at);
        self.used -= 1;
    }
}

fn word(AddressPort { address, port }: End) -> u64 {
    u64::from(address) << 16 | u64::from(port)
}
