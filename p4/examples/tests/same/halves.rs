//! Rust that runs every packet through its two halves, however small the tables are.

use natgate_io::Frame;
use natgate_p4::rt::{Execute, Fate, Halves, Meter, Rates, Store, Verdict, World, in_halves};

/// A program that is always executed in halves.
#[derive(Debug)]
pub(crate) struct InHalves<H>(pub(crate) H);

impl<H: Execute + Halves> Execute for InHalves<H> {
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict {
        let mut kept = H::PacketState::default();
        self.0.begin(world, port, packet, &mut kept);
        let mut found = 0..9;
        while found.next().is_some_and(|found| self.0.fetch(world, packet, &kept, found)) {}
        self.0.finish(world, packet, &kept, head)
    }

    fn forward_all(
        &mut self,
        world: &mut World,
        port: u32,
        frames: &mut [Frame<'_>],
        fates: &mut [Fate],
    ) {
        in_halves(&mut self.0, world, port, frames, fates);
    }

    fn table(&self, number: usize) -> &dyn Store {
        self.0.table(number)
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        self.0.table_mut(number)
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        self.0.counter(object, index)
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        self.0.set_counter(object, index, value)
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        self.0.meter(object, index)
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        self.0.set_meter(object, index, meter)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
