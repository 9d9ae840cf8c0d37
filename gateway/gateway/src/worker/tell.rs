//! Answers to questions about a worker: figures, and its part of lists.

use super::Worker;
use super::families::{Families, input_counters};
use super::stages::Stages;
use crate::alg::Algs;
use crate::health::Health;
use crate::link::Link;
use crate::load::Load;
use crate::router::Router;
use crate::survey::{Figures, SurveyContext};
use crate::team::Member;
use crate::wiring::{Devices, LinkMap};
use natgate_engine::{Engine, Timestamp};

impl Worker {
    /// Figures of the worker.
    pub fn figures(&mut self, now: Timestamp) -> Figures {
        let mut figures = Figures::default();
        let (engine, mut teller) = self.stages.teller(&mut self.devices, now);
        teller.write(engine, &mut figures);
        figures
    }

    /// Does one turn's share of answering a question.
    pub(super) fn answer(&mut self, now: Timestamp) {
        let Self { stages, devices, clerk, .. } = self;
        let (engine, mut teller) = stages.teller(devices, now);
        let (router, cables, team) = (teller.router, teller.cables, teller.team);
        let (families, algs, health) = (teller.families, teller.algs, teller.health);
        let mut neighbors = |list: &mut Vec<_>| {
            for link in links(cables) {
                router.tell_neighbors(link, |neighbor| {
                    if list.len() < list.capacity() {
                        list.push((link, neighbor));
                    }
                });
            }
        };
        clerk.answer(&mut SurveyContext {
            now,
            engine,
            figures: &mut |engine, figures| teller.write(engine, figures),
            neighbors: &mut neighbors,
            learnt: &|| router.learnt(),
            translator: families.map(|families| &families.translator),
            neighbors6: &|| {
                let neighbors = |link: Link| {
                    let known = families.map(|families| families.router.neighbors(link));
                    known.into_iter().flatten().map(move |neighbor| (link, neighbor))
                };
                [Link::inside(0), Link::OUTSIDE].into_iter().flat_map(neighbors).collect()
            },
            alg: algs.map(|algs| &algs.stage),
            health,
            has_host: &|realm, address| team.is_none_or(|team: &Member| team.has(realm, address)),
        });
    }
}

/// Links of all realms that exist, and the outside.
fn links(cables: &LinkMap) -> impl Iterator<Item = Link> + '_ {
    let sides = [Link::inside(0), Link::OUTSIDE];
    sides.into_iter().chain(cables.further().map(Link::inside))
}

/// Writer of a worker's figures.
struct FigureWriter<'a> {
    now: Timestamp,
    router: &'a Router,
    cables: &'a LinkMap,
    team: Option<&'a Member>,
    load: &'a Load,
    families: Option<&'a Families>,
    algs: Option<&'a Algs>,
    health: Option<&'a Health>,
    not_addressed: u64,
    devices: &'a mut Devices,
}

impl Stages {
    /// Splits the stages into the writer of figures and the translator.
    fn teller<'a>(
        &'a mut self,
        devices: &'a mut Devices,
        now: Timestamp,
    ) -> (&'a mut Engine, FigureWriter<'a>) {
        let Self { engine, router, cables, team, load, not_addressed, families, .. } = self;
        let (algs, health) = (&self.algs, &self.health);
        let (team, not_addressed) = (team.as_ref(), *not_addressed);
        let (families, algs) = (families.as_deref(), algs.as_deref());
        let health = health.as_deref();
        let parts = FigureWriter {
            now,
            router,
            cables,
            team,
            load,
            families,
            algs,
            health,
            not_addressed,
            devices,
        };
        (engine, parts)
    }
}

impl FigureWriter<'_> {
    fn write(&mut self, engine: &Engine, figures: &mut Figures) {
        let Self { now, router, cables, team, load, families, algs, .. } = self;
        let Self { not_addressed, devices, .. } = self;
        let losses = router.losses();
        figures.worker = team.map_or((0, 1), |team| (team.number(), team.workers()));
        figures.now = *now;
        figures.counters = input_counters(engine, router, *families);
        figures.router = router.counters();
        figures.router6 = families.map(|families| families.router.counters());
        let domains = families.map_or(&[][..], |families| families.translator.domain_counters());
        figures.domains.clear();
        figures.domains.extend_from_slice(domains);
        figures.algs.clear();
        figures.algs.extend(algs.iter().flat_map(|algs| algs.counters()));
        figures.own_lost = losses.own();
        figures.not_addressed = *not_addressed;
        figures.totals = engine.totals();
        figures.load = load.now();
        figures.set_links(links(cables), |link, figures| {
            let device = &mut devices[cables.device_of(link)];
            figures.write(link, device.statistics(), device.link());
        });
        figures.set_pools(engine);
    }
}
