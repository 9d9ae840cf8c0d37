//! Control flows of the worker's gateways: which connections they may read, where their changes go,
//! and what packets wait for.

use super::slice::Slice;
use super::{Fleet, outbound_of};
use crate::alg::{Algs, MappingEnds};
use natgate_engine::{Engine, Timestamp};

impl Fleet {
    /// The worker has other gateways, perhaps. They take no packet before they know whose
    /// connections they may read, and which they have missed.
    pub(crate) fn renew_algs(
        &mut self,
        now: Timestamp,
        (engine, algs): (&Engine, &mut Option<Box<Algs>>),
    ) {
        let had_algs = self.has_algs;
        self.take_algs(algs);
        self.tell_parts(now);
        if self.has_algs && !had_algs {
            let Self { slices, ports, .. } = self;
            slices.iter().for_each(|slice| slice.sever_refused((engine, now), ports));
        }
        *algs = self.ports.algs.take();
    }

    /// Takes the worker's gateways for a while.
    pub(super) fn take_algs(&mut self, algs: &mut Option<Box<Algs>>) {
        self.ports.algs = algs.take();
        self.has_algs = self.ports.algs.is_some();
        if let Some(stage) = self.ports.stage() {
            stage.join_pair();
        }
        self.tell_version();
    }

    /// Takes changes of control flows to the streams of their slices, and packets that wait.
    pub(super) fn note_flows(&mut self, now: Timestamp, engine: &Engine) {
        let Self { ports, slices, .. } = self;
        let Some(stage) = ports.stage() else { return };
        for mapping in stage.changed_flows() {
            if let Some(key) = key_of(engine, mapping)
                && let Some(outbound) = outbound_of(slices, mapping.1.address)
            {
                outbound.sender.change(key, now.0);
            }
        }
        for (ticket, awaited) in stage.new_tickets() {
            for mapping in awaited {
                let outbound = outbound_of(slices, mapping.1.address);
                match key_of(engine, mapping).zip(outbound) {
                    Some((key, outbound)) => {
                        outbound.wait_for(key, ticket, now);
                    }
                    None => stage.arrive(ticket),
                }
            }
        }
    }

    /// Lets packets go for which the partner has what they tell of.
    pub(super) fn release_flows(&mut self, now: Timestamp) {
        let Self { ports, slices, .. } = self;
        let lost: Vec<u64> = slices.iter_mut().flat_map(Slice::lost).collect();
        let arrived = slices.iter_mut().flat_map(|slice| slice.arrived(now));
        let arrived: Vec<u64> = arrived.collect();
        if let Some(stage) = ports.stage() {
            stage.drop_kept(&lost);
            arrived.into_iter().for_each(|ticket| stage.arrive(ticket));
        }
        self.has_waiting = slices.iter().any(|slice| slice.waits_since().is_some());
    }

    /// Tells the gateways which connections they may read, and which they do not know.
    pub(super) fn tell_parts(&mut self, now: Timestamp) {
        for (number, slice) in self.slices.iter_mut().enumerate() {
            let (ranges, part, doubted) = slice.part(now, self.lacks_flows);
            if let Some(stage) = self.ports.stage() {
                stage.set_part(number, ranges, part, doubted);
            }
        }
    }

    /// Tells the gateways if there is a partner whose version of the link has no control flows.
    pub(super) fn tell_version(&mut self) {
        let has_partner = self.slices.iter().any(|slice| slice.outbound.is_some());
        let lacks_flows = self.lacks_flows && has_partner;
        self.ports.is_partner_old = lacks_flows;
        self.ports.lacks_sums = self.lacks_sums;
        if let Some(stage) = self.ports.stage() {
            stage.set_version(lacks_flows);
        }
    }
}

/// The key of a mapping.
fn key_of(engine: &Engine, (protocol, external, internal): MappingEnds) -> Option<u32> {
    match internal {
        Some(internal) => engine.copy_key_of(protocol, external, internal),
        None => engine.copy_key(protocol, external),
    }
}
