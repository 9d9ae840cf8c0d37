//! The parts of a worker that commands read and change.

use super::stages::Stages;
use crate::command::WorkerParts;
use crate::wiring::Devices;
use natgate_engine::Timestamp;

impl Stages {
    /// The parts for the commands of one turn.
    pub(super) fn command_parts<'a>(
        &'a mut self,
        now: Timestamp,
        devices: &'a mut Devices,
    ) -> WorkerParts<'a> {
        let Self { engine, router, cables, team, captures, families, .. } = self;
        let algs = (&mut self.algs, &mut self.algs_aside);
        let families = families.as_deref_mut();
        let families = families.map(|families| (&mut families.translator, &families.router));
        let (translator, router6) = families.unzip();
        WorkerParts {
            now,
            captures,
            engine,
            router,
            cables,
            devices,
            team,
            translator,
            router6,
            algs,
        }
    }
}
