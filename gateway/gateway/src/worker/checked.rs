//! Health checks of servers: their packets, and what the translator learns from them.

use super::Worker;
use super::stages::transmitters;
use crate::health::Health;
use crate::link::Link;
use crate::observer::Observer;
use crate::settings::Settings;
use natgate_engine::Timestamp;
use natgate_io::HEADROOM;

/// Most packets of checks in one turn.
const BUDGET: usize = 16;

/// Most slots at which one turn looks for sessions to end.
const SLOTS_A_TURN: usize = 2048;

impl Worker {
    /// Sends the packets of checks that are due.
    pub(super) fn check_servers(&mut self, now: Timestamp) {
        let Self { stages, devices, scratch, .. } = self;
        for _ in 0..BUDGET {
            let Some(health) = &mut stages.health else { return };
            let (router, team) = (&stages.router, stages.team.as_ref());
            let own = |realm, host| {
                let link = devices[stages.cables.device_of(Link::inside(realm))].link();
                let is_own = link.up && team.is_none_or(|team| team.has(realm, host));
                is_own.then(|| router.address(Link::inside(realm)))
            };
            let next = health.poll(now, own, &mut scratch[HEADROOM..]);
            let Some((realm, len)) = next else { return };
            let own = (&mut scratch[..], len);
            stages.send_own(now, Link::inside(realm), own, &mut transmitters(devices));
        }
    }

    /// Tells the translator which servers are up, and ends sessions of others.
    pub(super) fn mark_servers(&mut self, observer: &mut dyn Observer) {
        let Some(health) = &mut self.stages.health else { return };
        let engine = &mut self.stages.engine;
        while let Some(((service, server), is_up, change)) = health.next_change() {
            engine.mark_server(service, server, is_up);
            observer.server(&change);
        }
        if let Some((filter, cursor)) = health.ending().front_mut() {
            let (_, is_over) = engine.clear_sessions(cursor, SLOTS_A_TURN, filter);
            if is_over {
                health.ending().pop_front();
            }
        }
        if health.is_over() {
            self.stages.health = None;
        }
    }

    /// Puts other health checks in force.
    pub(super) fn renew_checks(&mut self, settings: &Settings, now: Timestamp) {
        let stages = &mut self.stages;
        let settings = (&settings.engine.services[..], &settings.health[..]);
        match &mut stages.health {
            Some(health) => {
                for (service, server) in health.renew(settings, now) {
                    stages.engine.mark_server(service, server, true);
                }
            }
            None => stages.health = Health::new(settings, self.seed, now),
        }
    }
}
