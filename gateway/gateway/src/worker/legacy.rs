//! Export of a worker's state to another process, and adoption of another process's state.

use super::Worker;
use crate::handover::{Exchange, Legacy};
use crate::router::Router;
use crate::team::Division;
use crate::wiring::Devices;
use natgate_engine::{AddressRange, Engine, Timestamp};
use natgate_ipv6::{CarriedHost, CarriedPath, HostRealms, UnfitHost};
use std::sync::mpsc::SyncSender;

impl Worker {
    /// True if the worker takes no packets because another process is about to take over.
    pub(crate) fn is_halted(&self) -> bool {
        self.clerk.is_halted()
    }

    /// True if a command is in progress.
    pub(crate) fn is_told(&self) -> bool {
        self.clerk.is_busy()
    }

    /// Takes the pending answer to the command that halts the worker.
    pub(crate) fn halting(&mut self) -> Option<SyncSender<Legacy>> {
        self.clerk.halting()
    }

    /// State for another process besides the records of the translator. The first of several
    /// workers adds the division.
    pub(crate) fn legacy(&self) -> Legacy {
        let first = self.stages.team.as_ref().filter(|team| team.number() == 0);
        let families = self.stages.families.as_ref();
        let hosts = families.map(|families| families.translator.carried_hosts());
        let paths = families.map(|families| families.translator.carried_paths());
        let algs = self.stages.algs.as_ref();
        let (config, numbered) = (self.stages.engine.config(), self.realms_of_hosts());
        Legacy {
            known: self.stages.router.acquaintances(),
            epochs: vec![self.stages.pcp.epoch()],
            addresses: self.stages.pcp.addresses().to_vec(),
            division: first.and_then(|team| team.partition().division()),
            hosts: vec![hosts.map_or_else(Vec::new, Iterator::collect)],
            paths: vec![paths.map_or_else(Vec::new, Iterator::collect)],
            flows: vec![
                algs.map_or_else(Vec::new, |algs| algs.stage.saved_flows(config, numbered)),
            ],
        }
    }

    /// Does one turn's share of a command, and nothing else.
    pub(crate) fn obey_standing(&mut self, now: Timestamp) {
        let mut parts = self.stages.command_parts(now, &mut self.devices);
        // No other settings come into force while another process may take over.
        self.clerk.turn(&mut parts);
    }

    /// Adopts the division of another process. `None` if it does not fit.
    pub(crate) fn adopt_division(&mut self, division: Option<&Division>) -> Option<()> {
        match (&self.stages.team, division) {
            (None, None) => Some(()),
            (Some(team), Some(division)) => {
                team.partition().adopt(division)?;
                team.settle_only(&mut self.stages.engine);
                Some(())
            }
            _ => None,
        }
    }

    /// Takes the hosts of NAT64 and DS-Lite of another process.
    pub(crate) fn adopt_hosts(
        &mut self,
        hosts: &[CarriedHost],
        now: Timestamp,
    ) -> Result<(), UnfitHost> {
        let families = self.stages.families.as_mut();
        families
            .map_or(Ok(()), |families| families.translator.adopt_hosts(hosts.iter().copied(), now))
    }

    /// Takes the prefixes by which hosts of NAT64 of another process reach remote addresses.
    pub(crate) fn adopt_paths(&mut self, paths: &[CarriedPath]) {
        if let Some(families) = &mut self.stages.families {
            families.translator.adopt_paths(paths.iter().copied());
        }
    }

    /// Takes the control flows of another process.
    pub(crate) fn adopt_flows(&mut self, flows: &[Vec<u8>], now: Timestamp) {
        let numbered = self.realms_of_hosts();
        if let Some(algs) = &mut self.stages.algs {
            algs.stage.restore_flows((&mut self.stages.engine, now), flows, numbered);
        }
    }

    /// The realms of hosts with numbers.
    fn realms_of_hosts(&self) -> HostRealms {
        let families = self.stages.families.as_ref();
        families.map_or(HostRealms::NONE, |families| families.translator.realms())
    }

    /// Continues the service for requests for mappings of another process that lost none since
    /// `epoch`.
    pub(crate) fn go_on_since(
        &mut self,
        epoch: Timestamp,
        addresses: &[AddressRange],
        now: Timestamp,
    ) {
        self.stages.pcp.go_on(epoch, addresses, now);
    }

    /// Exchanges the devices.
    pub(crate) fn exchange(&mut self, mut exchange: Exchange) {
        exchange.turn(&mut self.stages.router, &self.stages.cables, &mut self.devices);
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.stages.engine
    }

    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.stages.engine
    }

    pub(crate) fn router_mut(&mut self) -> &mut Router {
        &mut self.stages.router
    }

    pub(crate) fn devices_mut(&mut self) -> &mut Devices {
        &mut self.devices
    }
}
