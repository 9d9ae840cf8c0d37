//! A worker's part in a pair of gateways.

use super::Worker;
use super::stages::transmitters;
use crate::fleet::Fleet;
use natgate_engine::Timestamp;
use std::sync::Arc;

impl Worker {
    /// Becomes one of a pair. Until it knows that it owns a slice, the worker assigns no port.
    pub fn join_fleet(&mut self, fleet: Fleet, now: Timestamp) {
        self.stages.engine.join_pair();
        self.stages.engine.turn_in_steps();
        self.stages.tunnel = Some(Box::new(fleet.tunnel()));
        self.stages.pcp.join_pair();
        let mut fleet = Box::new(fleet);
        self.turn_fleet(&mut fleet, now);
        self.fleet = Some(fleet);
    }

    /// Ends the part in a pair of gateways, after the last turn. The guardian expects no more
    /// progress.
    pub fn leave_fleet(&mut self) {
        self.fleet = None;
        self.stages.tunnel = None;
    }

    /// Does a turn's work of a pair, if the gateway is one of a pair. Returns the number of packets
    /// that the other node has passed on.
    #[inline]
    pub(super) fn attend_fleet(&mut self, now: Timestamp) -> usize {
        let Some(mut fleet) = self.fleet.take() else { return 0 };
        self.turn_fleet(&mut fleet, now);
        self.stages.pcp.agree(&mut fleet.epoch(), now);
        self.stages.send_kept(now, &mut transmitters(&mut self.devices));
        let is_up = self.devices.iter().all(|device| device.link().up);
        let router = &mut self.stages.router;
        let silent = router.take_silent();
        let finds_router = |silent: &[_], asks| router.finds_router(now, silent, asks);
        fleet.note_ways(now, is_up, &silent, finds_router);
        let taken = self.take_passed(now, &mut fleet);
        if let Some(tunnel) = &mut self.stages.tunnel {
            fleet.attend_tunnel(now, tunnel, &self.stages.engine);
        }
        self.fleet = Some(fleet);
        taken
    }

    fn turn_fleet(&mut self, fleet: &mut Fleet, now: Timestamp) {
        let partition = self.stages.team.as_ref().map(|team| Arc::clone(team.partition()));
        let (engine, mut hosts, algs) = self.stages.copied(now);
        fleet.turn(now, (engine, algs), &mut hosts, partition.as_ref());
    }

    /// Tells the pair of a changed configuration.
    pub(super) fn renew_fleet(&mut self, now: Timestamp) {
        if let Some(fleet) = &mut self.fleet {
            let (engine, hosts, algs) = self.stages.copied(now);
            fleet.renew(engine, &hosts);
            fleet.renew_algs(now, (&*engine, algs));
            fleet.keep_silent(|router| self.stages.router.may_be_hop(router));
        }
        if let Some(tunnel) = &mut self.stages.tunnel {
            tunnel.renew();
        }
    }
}
