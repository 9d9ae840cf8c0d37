//! The state that a gateway hands over to another process, and its export by the workers.

use crate::router::{KnownNeighbor, Router};
use crate::team::Division;
use crate::wiring::{Devices, LinkMap};
use natgate_engine::{AddressRange, Engine, Export, Exported, Timestamp};
use natgate_ipv6::{CarriedHost, CarriedPath};
use std::sync::mpsc::Receiver;

/// Mappings that a worker exports in one turn: some ten microseconds.
const A_TURN: u32 = 256;

/// Bytes of records after which a buffer is returned.
const ENOUGH: usize = 1 << 20;

/// An export in progress with its buffer. The asker allocates both.
#[derive(Debug)]
pub struct Writing {
    /// Position of the export.
    pub export: Export,
    /// Exported records.
    pub out: Vec<u8>,
}

impl Writing {
    /// Starts an export of an engine with this configuration.
    pub fn new(config: &natgate_engine::Config) -> Self {
        Self { export: Export::new(config), out: Self::room() }
    }

    /// Allocates a buffer for records.
    pub fn room() -> Vec<u8> {
        Vec::with_capacity(Export::ROOM + ENOUGH)
    }

    /// Exports one turn's share. Returns `Some` if the buffer goes back to the asker, true in it if
    /// the pass is complete. A halted worker fills the buffer in one turn.
    pub(crate) fn turn(&mut self, engine: &Engine, is_halted: bool) -> Option<bool> {
        let budget = if is_halted { u32::MAX } else { A_TURN };
        match engine.export(&mut self.export, &mut self.out, budget) {
            Exported::Done => Some(true),
            Exported::Full => Some(false),
            Exported::More => (self.out.len() >= ENOUGH).then_some(false),
        }
    }
}

/// State of a halted gateway besides the records of its engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legacy {
    /// Neighbours with known hardware addresses.
    pub known: Vec<KnownNeighbor>,
    /// PCP epoch of each worker: the time since which no requested mapping was lost.
    pub epochs: Vec<Timestamp>,
    /// The external addresses.
    pub addresses: Vec<AddressRange>,
    /// Division among the workers; `None` with a single worker.
    pub division: Option<Division>,
    /// Hosts of NAT64 or DS-Lite of each worker.
    pub hosts: Vec<Vec<CarriedHost>>,
    /// Prefixes by which hosts of NAT64 of each worker reach remote addresses.
    pub paths: Vec<Vec<CarriedPath>>,
    /// Control flows of application-level gateways of each worker, each as bytes.
    pub flows: Vec<Vec<Vec<u8>>>,
}

impl Legacy {
    /// Combines the states of several workers.
    pub(crate) fn of_all(all: Vec<Self>) -> Self {
        let mut sum = Self::default();
        for (number, one) in all.into_iter().enumerate() {
            for known in one.known {
                if !sum.known.contains(&known) {
                    sum.known.push(known);
                }
            }
            sum.epochs.extend(one.epochs);
            sum.hosts.extend(one.hosts);
            sum.paths.extend(one.paths);
            sum.flows.extend(one.flows);
            if number == 0 {
                (sum.addresses, sum.division) = (one.addresses, one.division);
            }
        }
        sum
    }
}

/// New devices; after the exchange the former ones.
#[derive(Debug)]
pub(crate) struct Exchange(pub(crate) Devices);

impl Exchange {
    /// Exchanges the devices. If their numbers differ, nothing changes.
    pub(crate) fn turn(&mut self, router: &mut Router, cables: &LinkMap, devices: &mut Devices) {
        if self.0.len() != devices.len() {
            return;
        }
        std::mem::swap(&mut self.0, devices);
        for (place, device) in devices.iter().enumerate() {
            let mac = device.link().mac;
            for link in
                cables.links(place).filter(|&link| mac != router.mac(link)).collect::<Vec<_>>()
            {
                router.relink(link, mac);
            }
        }
    }
}

/// Receiver of an export buffer, with true if the pass is complete.
pub type Written = Receiver<(Box<Writing>, bool)>;
