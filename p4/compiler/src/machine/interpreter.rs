//! The interpreter: written to be correct and readable. It handles bits one by one, and searches
//! tables that are not exact linearly.

use super::bits::{Cursor, Writer};
use super::execute::{Execute, Store, Verdict, World};
use super::externs::{Memory, Meter, Rates};
use super::run::{Flow, Run};
use super::table::Entries;
use crate::ir::{ObjectKind, Program, Slot};

/// An interpreted program, its tables and the state of its objects.
#[derive(Debug)]
pub(super) struct Interpreter<'p> {
    pub(super) program: &'p Program,
    pub(super) tables: Vec<Entries<'p>>,
    pub(super) memory: Vec<Memory>,
}

impl<'p> Interpreter<'p> {
    /// Creates an interpreter without entries; `seed` is that of its random numbers.
    pub(super) fn new(program: &'p Program, seed: u64) -> Self {
        Self {
            program,
            tables: program.tables.iter().map(Entries::new).collect(),
            memory: program.objects.iter().map(|object| Memory::new(&object.kind, seed)).collect(),
        }
    }
}

impl Execute for Interpreter<'_> {
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict {
        for (memory, object) in self.memory.iter_mut().zip(&self.program.objects) {
            if object.kind == ObjectKind::Checksum {
                *memory = Memory::Checksum(0);
            }
        }
        let (program, now) = (self.program, world.now());
        let mut run = Run {
            slots: vec![0; program.slots.len()],
            machine: self,
            world,
            now,
            packet,
            cursor: Cursor::default(),
            out: Writer::default(),
            port: None,
            error: 0,
            steps: 0,
            applied: None,
        };
        let shared = &program.metadata;
        fill(&mut run.slots, &shared.input_ports, port.into());
        fill(&mut run.slots, &shared.timestamps, now.into());
        let _: Flow = run.parse(program.parser);
        let error = run.error;
        fill(&mut run.slots, &shared.parser_errors, error);
        for part in 1..4 {
            for (from, to, size) in shared.handed_on(part) {
                copy(&mut run.slots, from, to, size);
            }
            let _: Flow = run.call(program.controls[part - 1], &[]);
        }
        let (port, cursor) = (run.port, run.cursor);
        head.extend(run.out.finish());
        Verdict { port, taken: cursor.at.div_ceil(8) }
    }

    fn table(&self, number: usize) -> &dyn Store {
        &self.tables[number]
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        &mut self.tables[number]
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match &self.memory[object] {
            Memory::Counter(cells) => cells.get(&index).copied().unwrap_or_default(),
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match (&mut self.memory[object], &self.program.objects[object].kind) {
            (Memory::Counter(cells), ObjectKind::Counter { size, .. }) if index < *size => {
                cells.insert(index, value);
                true
            }
            _ => false,
        }
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        match &self.memory[object] {
            Memory::Meter(cells) => cells.get(&index).map(Meter::rates),
            _ => None,
        }
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        match (&mut self.memory[object], &self.program.objects[object].kind) {
            (Memory::Meter(cells), ObjectKind::Meter { size, .. }) if index < *size => {
                match meter {
                    Some(meter) => cells.insert(index, meter),
                    None => cells.remove(&index),
                };
                true
            }
            _ => false,
        }
    }

    fn clear(&mut self) {
        for (memory, object) in self.memory.iter_mut().zip(&self.program.objects) {
            if !matches!(memory, Memory::Random(_)) {
                *memory = Memory::new(&object.kind, 0);
            }
        }
    }
}

fn fill(slots: &mut [u128], places: &[Slot], value: u128) {
    places.iter().for_each(|place| slots[*place as usize] = value);
}

fn copy(slots: &mut [u128], from: Slot, to: Slot, size: usize) {
    slots.copy_within(from as usize..from as usize + size, to as usize);
}
