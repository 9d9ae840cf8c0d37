//! The gateways of a worker, which a reload can bring, change and set aside.
//!
//! A worker allocates and frees nothing large itself: the thread that prepares new settings makes
//! the gateways, and a worker without work for them keeps them for the next time.

use super::{AlgCounters, AlgSettings, Arrived, Kind, Stage, Taken};
use crate::counters::Losses;
use crate::limits::LONGEST;
use natgate_engine::{Config, Engine, Verdict};
use natgate_io::HEADROOM;
use natgate_ipv6::Translator;
use natgate_payload::Room;

/// Parts of a worker for application-level gateways.
#[derive(Debug)]
pub(crate) struct Algs {
    pub(crate) stage: Stage,
    /// Buffer for one packet, which may grow there, behind headroom.
    pub(crate) buffer: Vec<u8>,
}

impl Algs {
    /// The parts for an engine with this configuration. `None`: no protocol is on.
    pub(crate) fn new(
        settings: &AlgSettings,
        config: &Config,
        seed: [u8; 32],
    ) -> Option<Box<Self>> {
        Stage::new(settings, config, seed).map(Self::of)
    }

    /// Parts for a worker that has none and may need some.
    pub(crate) fn spare(settings: &AlgSettings) -> Box<Self> {
        Self::of(Stage::off(settings.flows(), [0; 32]))
    }

    fn of(stage: Stage) -> Box<Self> {
        Box::new(Self { stage, buffer: vec![0; HEADROOM + LONGEST] })
    }

    /// Counters of the protocols.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (Kind, AlgCounters)> + '_ {
        self.stage.counters()
    }

    /// Takes the packet of `len` bytes in the buffer through the engine and the framework. The
    /// translator has the hosts with numbers. `None`: nothing leaves.
    pub(crate) fn take(
        &mut self,
        (engine, translator, losses): (&mut Engine, Option<&Translator>, &mut Losses),
        arrived: Arrived,
        len: usize,
    ) -> Option<(Verdict, u16, usize)> {
        let mut room = Room::new(&mut self.buffer[HEADROOM..], len);
        match self.stage.take((engine, translator), arrived, &mut room, losses) {
            Taken::Decided(verdict, realm) => Some((verdict, realm, room.bytes().len())),
            Taken::Kept => None,
        }
    }
}

/// Gateways that a worker does not need now.
#[derive(Debug)]
pub(crate) struct Aside {
    algs: Option<Box<Algs>>,
    seed: [u8; 32],
}

impl Aside {
    /// Nothing is set aside. The seed is a secret of the worker.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { algs: None, seed }
    }

    /// Puts new settings in force for the gateways `on`. A worker without gateways takes those that
    /// it has set aside, else `spare`. Returns the spare ones that it does not need.
    pub(crate) fn renew(
        &mut self,
        on: &mut Option<Box<Algs>>,
        spare: Option<Box<Algs>>,
        settings: &AlgSettings,
        config: &Config,
    ) -> Option<Box<Algs>> {
        let mut spare = spare;
        if on.is_none() && !settings.is_off() {
            *on = self.algs.take().or_else(|| {
                let mut algs = spare.take().unwrap_or_else(|| Algs::spare(settings));
                algs.stage.set_seed(self.seed);
                Some(algs)
            });
        }
        if let Some(algs) = on {
            algs.stage.renew(settings, config);
        }
        spare
    }

    /// Sets gateways aside that are off and have no flows any more.
    pub(crate) fn put(&mut self, on: &mut Option<Box<Algs>>) {
        if on.as_ref().is_some_and(|algs| algs.stage.is_over()) {
            self.algs = on.take();
            self.algs.iter_mut().for_each(|algs| algs.stage.forget_connections());
        }
    }
}
