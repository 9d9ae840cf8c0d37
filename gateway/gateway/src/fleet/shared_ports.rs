//! External ports that the workers of one node share: a copied mapping is at the worker of its
//! host, and another worker may give out the mapping's port.
//!
//! The partition has the list of such ports, the strays. Before a node assigns ports of a slice,
//! each worker guards the strays among its ports: no new mapping gets one. When a stray's mapping
//! has ended and its rest is over, the guard ends, and the hold-down begins.

use super::board::Board;
use super::{read_port, written};
use crate::team::Partition;
use natgate_engine::{AddressRange, Engine, PairPort};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Addresses whose strays are guarded in one turn.
const ADDRESSES_A_TURN: usize = 8;

/// The shared ports, as one worker sees them.
#[derive(Debug, Default)]
pub(super) struct SharedPorts {
    worker: usize,
    board: Option<Arc<Board>>,
    partition: Option<Arc<Partition>>,
    guards: BTreeSet<u128>,
}

impl SharedPorts {
    /// The ports of a worker of several.
    pub(super) fn new(worker: usize, board: Arc<Board>) -> Self {
        Self { worker, board: Some(board), partition: None, guards: BTreeSet::new() }
    }

    /// Sets the partition in force. `None`: the node has one worker.
    pub(super) fn set_partition(&mut self, partition: Option<&Arc<Partition>>) {
        self.partition = partition.cloned();
    }

    /// True if the mappings of a host are at this worker.
    pub(super) fn has_host(&self, (realm, host): (u16, Ipv4Addr)) -> bool {
        let partition = self.partition.as_ref();
        partition.is_none_or(|partition| partition.of_host(realm, host.to_bits()) == self.worker)
    }

    /// True if the mapping of a record is at this worker. The first worker refuses a record of a
    /// realm that this node does not have.
    pub(super) fn has_record(&self, engine: &Engine, record: &[u8]) -> bool {
        self.partition.is_none()
            || engine.copy_host(record).map_or(self.worker == 0, |host| self.has_host(host))
    }

    /// A copied mapping is here now.
    pub(super) fn note_copy(&mut self, port: PairPort) {
        let Some(partition) = &self.partition else { return };
        let PairPort { protocol, external, .. } = port;
        partition.note_copy(self.worker, protocol, external.address, external.port);
        self.guards.remove(&written(PairPort { number: 0, ..port }));
    }

    /// A mapping here has ended, and its port does not rest, or no more. If another worker gives
    /// out the port, that worker ends its guard.
    pub(super) fn note_end(&self, engine: &Engine, port: PairPort) {
        let Some((partition, board)) = self.partition.as_ref().zip(self.board.as_ref()) else {
            return;
        };
        let PairPort { protocol, external, .. } = port;
        if engine.is_mapped(protocol, external) {
            return;
        }
        let other = partition.note_end(self.worker, protocol, external.address, external.port);
        if let Some(other) = other {
            board.give_back(other, written(port));
        }
    }

    /// Ends the guards of ports that other workers have given back.
    pub(super) fn take_back(&mut self, engine: &mut Engine) {
        let Some((partition, board)) = self.partition.as_ref().zip(self.board.as_ref()) else {
            return;
        };
        for port in board.returned(self.worker) {
            let PairPort { protocol, external, .. } = read_port(port);
            // The port may have got another copied mapping since.
            let is_stray = partition.stray(protocol, external.address, external.port).is_some();
            if !is_stray && self.guards.remove(&port) {
                engine.end_rest(read_port(port));
            }
        }
    }

    /// Guards strays of some addresses of a slice, from the address with number `from` on. Returns
    /// the number of the next address; `None`: all are guarded.
    pub(super) fn guard_some(
        &mut self,
        engine: &mut Engine,
        ranges: &[AddressRange],
        from: usize,
    ) -> Option<usize> {
        let partition = self.partition.as_ref()?;
        let mut addresses = ranges.iter().flat_map(|range| range.each()).skip(from);
        for _ in 0..ADDRESSES_A_TURN {
            let address = addresses.next()?;
            for (protocol, port) in partition.strays_in_part(self.worker, address) {
                let external = natgate_engine::Endpoint { address, port };
                let remote = Ipv4Addr::UNSPECIFIED;
                let port = PairPort { protocol, external, remote, number: 0 };
                if engine.guard(port) {
                    self.guards.insert(written(port));
                }
            }
        }
        addresses.next().map(|_| from + ADDRESSES_A_TURN)
    }

    /// Number of ports that rest because of a guard.
    pub(super) fn guards(&self) -> usize {
        self.guards.len()
    }
}
