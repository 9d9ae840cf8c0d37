//! P4 programs executed by DPDK's SWX pipeline, as far as natgate_p4 has made pipelines of them.
//!
//! The part of a packet that the program reads is copied into a buffer, the pipeline runs until the
//! packets have left, and the new beginning of each packet is returned. The pipeline takes in as
//! many packets as it has threads of its own kind. It switches threads only when one waits, and no
//! code here makes it wait. So a packet finds the tables and registers as the packet before left
//! them, as in other executors. Tables, extern objects and ports belong to [`Swx`]; the pipeline
//! has their addresses and uses them only while it runs, and only one thread at a time runs it.
#![allow(unsafe_code)]

mod objects;
mod ports;
mod sys;
mod table;

use crate::Error;
use crate::eal::{self, text};
use crate::error::Refusal;
use natgate_io::Frame;
use natgate_p4::rt::{Execute, Fate, Meter, Rates, Store, Tick, Verdict, World};
use natgate_p4::swx::{self, ControlObject};
use objects::{Memory, Object};
use ports::{BATCH, Ports, Shared};
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use sys::{Calls, Field, Raw};
use table::Table;

/// Instructions of one call: about as many as a packet needs.
const STEPS: u32 = 64;

/// Memory that DPDK's environment gets besides that for registers, MiB.
const MEMORY: u64 = 256;

/// A program that DPDK's SWX pipeline executes.
#[derive(Debug)]
pub struct Swx {
    raw: *mut Raw,
    program: swx::Pipeline,
    /// Names of the arrays of registers.
    arrays: Vec<CString>,
    shared: *mut Shared,
    ports: *mut Ports,
    tables: Vec<*mut Table>,
    memory: Vec<Memory>,
    objects: Vec<*mut Object>,
}

// SAFETY: all pointers belong to this executor alone, and the pipeline stores nothing that depends
// on the thread that runs it.
unsafe impl Send for Swx {}

impl Swx {
    /// Creates an executor without table entries; `seed` is that of random numbers. Starts DPDK's
    /// environment if it does not run.
    ///
    /// # Errors
    ///
    /// [`Error`] if DPDK does not start, lacks memory, or refuses a part.
    pub fn new(program: &swx::Pipeline, seed: u64) -> Result<Self, Error> {
        Self::reserve(program, 1, 1)?;
        let names = program.arrays.iter().map(|array| name(&array.name));
        let arrays = names.collect::<Result<Vec<_>, _>>()?;
        let ports = Ports::new(program.most_read, program.most_grown);
        let shared = Box::into_raw(Box::new(Shared {
            now: 0,
            tick: Tick::default(),
            world: ptr::null_mut(),
        }));
        let tables =
            program.tables.iter().map(|one| Box::into_raw(Box::new(Table::new(one, shared))));
        let mut swx = Self {
            raw: ptr::null_mut(),
            arrays,
            shared,
            ports: Box::into_raw(Box::new(ports)),
            tables: tables.collect(),
            memory: program.objects.iter().map(|kept| Memory::new(kept, seed)).collect(),
            objects: Vec::new(),
            program: program.clone(),
        };
        for one in &program.externs {
            let words = fields(program, &one.mailbox);
            let object = Object::new(one.of, words, &swx.tables, &mut swx.memory, program, shared);
            let object = object.ok_or_else(|| refused(&one.name, -libc::EINVAL))?;
            swx.objects.push(Box::into_raw(Box::new(object)));
        }
        swx.build()?;
        Ok(swx)
    }

    /// Starts DPDK's environment with memory for `pipelines` pipelines of this program, and with
    /// buffers for `workers` threads that have queues of ports, unless it runs.
    ///
    /// # Errors
    ///
    /// [`Error`] if the environment does not start.
    pub fn reserve(program: &swx::Pipeline, pipelines: u16, workers: u16) -> Result<(), Error> {
        eal::start_with_memory(memory(program, pipelines), workers).map(drop)
    }

    /// Builds the pipeline, with registers in their initial state.
    fn build(&mut self) -> Result<(), Error> {
        let calls = Calls {
            receive: ports::receive,
            send: ports::send,
            drop: ports::discard,
            lookup: table::lookup,
        };
        self.free();
        // SAFETY: the environment runs, and the ports live longer than the pipeline.
        let made = unsafe { sys::natgate_swx_new(&mut self.raw, &calls, self.ports.cast()) };
        check("the pipeline", made)?;
        self.add_structs()?;
        self.add_arrays_and_objects()?;
        self.add_tables()?;
        let instructions = texts(&self.program.instructions)?;
        let pointers = pointers(&instructions);
        // SAFETY: the number of texts is passed.
        let built =
            unsafe { sys::natgate_swx_build(self.raw, pointers.as_ptr(), pointers.len() as u32) };
        check("its instructions and memory", built)?;
        self.check_arguments()
    }

    fn add_structs(&self) -> Result<(), Error> {
        for one in &self.program.structs {
            let named = name(&one.name)?;
            let names: Vec<CString> =
                one.fields.iter().map(|(field, _)| name(field)).collect::<Result<_, _>>()?;
            let fields = names.iter().zip(&one.fields);
            let mut fields: Vec<Field> = fields
                .map(|(name, (_, bits))| Field { name: name.as_ptr(), bits: *bits })
                .collect();
            let count = fields.len() as u32;
            // SAFETY: texts and fields live during the call, which copies them.
            check(&one.name, unsafe {
                sys::natgate_swx_struct(self.raw, named.as_ptr(), fields.as_mut_ptr(), count)
            })?;
        }
        for (header, of) in &self.program.headers {
            let (named, of) = (name(header)?, name(of)?);
            // SAFETY: as above.
            check(header, unsafe {
                sys::natgate_swx_header(self.raw, named.as_ptr(), of.as_ptr())
            })?;
        }
        let of = name(&self.program.metadata)?;
        // SAFETY: as above.
        check("the metadata", unsafe { sys::natgate_swx_metadata(self.raw, of.as_ptr()) })
    }

    fn add_arrays_and_objects(&self) -> Result<(), Error> {
        for (array, named) in self.program.arrays.iter().zip(&self.arrays) {
            // SAFETY: the text lives during the call, which copies it.
            check(&array.name, unsafe {
                sys::natgate_swx_array(self.raw, named.as_ptr(), array.size, array.initial)
            })?;
        }
        for (one, object) in self.program.externs.iter().zip(&self.objects) {
            let functions = texts(&one.functions)?;
            let calls: Option<Vec<_>> =
                one.functions.iter().map(|function| objects::function(function)).collect();
            let calls = calls.ok_or_else(|| refused(&one.name, -libc::EINVAL))?;
            let [kind, mailbox, named] =
                [name(one.type_name())?, name(&one.mailbox)?, name(&one.name)?];
            // SAFETY: as above, and the object lives longer than the pipeline.
            check(&one.name, unsafe {
                sys::natgate_swx_extern(
                    self.raw,
                    kind.as_ptr(),
                    mailbox.as_ptr(),
                    named.as_ptr(),
                    object.cast(),
                    pointers(&functions).as_ptr(),
                    calls.as_ptr(),
                    calls.len() as u32,
                )
            })?;
        }
        Ok(())
    }

    fn add_tables(&self) -> Result<(), Error> {
        for action in &self.program.actions {
            let (named, args) =
                (name(&action.name)?, action.args.as_deref().map(name).transpose()?);
            let instructions = texts(&action.instructions)?;
            let (count, lines) = (instructions.len() as u32, pointers(&instructions));
            let args = args.as_ref().map_or(ptr::null(), |args| args.as_ptr());
            // SAFETY: the texts live during the call, which copies them.
            check(&action.name, unsafe {
                sys::natgate_swx_action(self.raw, named.as_ptr(), args, lines.as_ptr(), count)
            })?;
        }
        for (one, table) in self.program.tables.iter().zip(&self.tables) {
            let keys: Vec<&String> = one.keys.iter().map(|key| &key.name).collect();
            let keys = texts(&keys)?;
            let actions: Vec<&String> =
                one.actions.iter().map(|(number, _)| &self.program.actions[*number].name).collect();
            let actions = texts(&actions)?;
            let (default, args) = self.program.default_of(one);
            let (named, default, args) = (name(&one.name)?, name(default)?, name(&args)?);
            let has_args = one.actions[one.default.0].1 > 0;
            // SAFETY: as above, and the table lives longer than the pipeline.
            check(&one.name, unsafe {
                sys::natgate_swx_table(
                    self.raw,
                    named.as_ptr(),
                    pointers(&keys).as_ptr(),
                    keys.len() as u32,
                    pointers(&actions).as_ptr(),
                    actions.len() as u32,
                    default.as_ptr(),
                    if has_args { args.as_ptr() } else { ptr::null() },
                    one.size as u32,
                    table.cast(),
                )
            })?;
        }
        Ok(())
    }

    /// Checks the byte order of arguments. Tables have them in the processor's order; DPDK must
    /// expect the same.
    fn check_arguments(&self) -> Result<(), Error> {
        let counts = self.program.tables.iter().flat_map(|table| &table.actions);
        for (action, args) in counts {
            for arg in 0..*args {
                // SAFETY: the pipeline is built.
                let is_big_endian =
                    unsafe { sys::natgate_swx_is_big_endian(self.raw, *action as u32, arg as u32) };
                let name = &self.program.actions[*action].name;
                check(name, is_big_endian)?;
                if is_big_endian != 0 {
                    return Err(refused(name, -libc::ENOTSUP));
                }
            }
        }
        Ok(())
    }

    /// Updates defaults that have changed in the pipeline.
    fn tell_defaults(&mut self) {
        for (number, table) in self.tables.iter().enumerate() {
            // SAFETY: the table belongs to this executor, and the pipeline does not run.
            let table = unsafe { &mut **table };
            if std::mem::replace(&mut table.is_default_told, true) {
                continue;
            }
            let (action, args) = table.default_action();
            let count = args.len() as u32;
            // SAFETY: the pipeline has room for the arguments of each of the table's actions.
            let told = unsafe {
                sys::natgate_swx_default(
                    self.raw,
                    number as u32,
                    action as u64,
                    args.as_ptr(),
                    count,
                )
            };
            assert_eq!(told, 0, "a pipeline that was built has tables");
        }
    }

    /// Runs packets that came in by a port through the pipeline, at most [`BATCH`]; the ports
    /// record their fates.
    fn run<'p>(
        &mut self,
        world: &mut World,
        port: u32,
        packets: impl Iterator<Item = &'p [u8]>,
    ) -> &Ports {
        self.tell_defaults();
        let (now, tick) = (world.now(), world.tick());
        // SAFETY: both pointers belong to this executor. The pipeline's functions access ports,
        // tables and the world only while the pipeline runs, one after the other, and no other
        // reference to them exists meanwhile.
        unsafe {
            (*self.shared).now = now;
            (*self.shared).tick = tick;
            (*self.shared).world = world;
            (*self.ports).begin();
            packets.for_each(|packet| (*self.ports).put(now, port, packet));
            while (*self.ports).is_busy() {
                sys::natgate_swx_run(self.raw, STEPS);
            }
            &*self.ports
        }
    }

    fn free(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the pipeline belongs to this executor and is not used any more.
            unsafe { sys::natgate_swx_free(self.raw) };
        }
        self.raw = ptr::null_mut();
    }

    /// Value at an index of an array of registers.
    fn register(&self, array: usize, index: u32) -> u64 {
        let mut value = 0;
        // SAFETY: the text and the variable for the value live during the call.
        let read = unsafe {
            sys::natgate_swx_read(self.raw, self.arrays[array].as_ptr(), index, &mut value)
        };
        assert_eq!(read, 0, "there is that place");
        value
    }

    fn set_register(&mut self, array: usize, index: u32, value: u64) {
        // SAFETY: the text lives during the call.
        let written =
            unsafe { sys::natgate_swx_write(self.raw, self.arrays[array].as_ptr(), index, value) };
        assert_eq!(written, 0, "there is that place");
    }
}

impl Execute for Swx {
    fn process(
        &mut self,
        world: &mut World,
        port: u32,
        packet: &[u8],
        head: &mut Vec<u8>,
    ) -> Verdict {
        let ports = self.run(world, port, [packet].into_iter());
        let (verdict, begins) = ports.fate(0);
        head.extend_from_slice(begins);
        verdict
    }

    fn forward_all(
        &mut self,
        world: &mut World,
        port: u32,
        frames: &mut [Frame<'_>],
        fates: &mut [Fate],
    ) {
        for (frames, fates) in frames.chunks_mut(BATCH).zip(fates.chunks_mut(BATCH)) {
            let ports = self.run(world, port, frames.iter().map(Frame::bytes));
            for (number, (frame, fate)) in frames.iter_mut().zip(fates).enumerate() {
                let (verdict, head) = ports.fate(number);
                *fate = Fate::of(verdict, head, frame);
            }
        }
    }

    fn table(&self, number: usize) -> &dyn Store {
        // SAFETY: the table belongs to this executor; the pipeline, its only other user, does not
        // run during this borrow.
        unsafe { &*self.tables[number] }
    }

    fn table_mut(&mut self, number: usize) -> &mut dyn Store {
        // SAFETY: as above.
        unsafe { &mut *self.tables[number] }
    }

    fn counter(&self, object: usize, index: u32) -> (u64, u64) {
        match self.program.objects[object] {
            ControlObject::Counter { size, packets, bytes } if index < size => {
                (self.register(packets, index), self.register(bytes, index))
            }
            _ => (0, 0),
        }
    }

    fn set_counter(&mut self, object: usize, index: u32, value: (u64, u64)) -> bool {
        match self.program.objects[object] {
            ControlObject::Counter { size, packets, bytes } if index < size => {
                self.set_register(packets, index, value.0);
                self.set_register(bytes, index, value.1);
                true
            }
            _ => false,
        }
    }

    fn meter(&self, object: usize, index: u32) -> Option<Rates> {
        match &self.memory[object] {
            Memory::Meters(meters) => meters.read(index),
            _ => None,
        }
    }

    fn set_meter(&mut self, object: usize, index: u32, meter: Option<Meter>) -> bool {
        match &mut self.memory[object] {
            Memory::Meters(meters) => meters.set(index, meter),
            _ => false,
        }
    }

    fn clear(&mut self) {
        for memory in &mut self.memory {
            if let Memory::Meters(meters) = memory {
                meters.clear();
            }
        }
        // There are many registers, so the pipeline is built again; the memory of the former one is
        // free.
        if let Err(error) = self.build() {
            panic!("a pipeline that was made once is made again: {error}");
        }
        for table in &self.tables {
            // SAFETY: the table belongs to this executor, and the pipeline does not run.
            unsafe { (**table).is_default_told = false };
        }
    }
}

impl Drop for Swx {
    fn drop(&mut self) {
        self.free();
        // SAFETY: each pointer came from a box and is freed once, after the pipeline that used it.
        unsafe {
            self.objects.drain(..).for_each(|object| drop(Box::from_raw(object)));
            self.tables.drain(..).for_each(|table| drop(Box::from_raw(table)));
            drop(Box::from_raw(self.ports));
            drop(Box::from_raw(self.shared));
        }
    }
}

/// Memory for the registers of `pipelines` pipelines and everything else, MiB.
fn memory(program: &swx::Pipeline, pipelines: u16) -> u32 {
    let places = program.arrays.iter().map(|array| u64::from(array.size).next_power_of_two());
    let bytes: u64 = places.map(|places| places * 8).sum();
    u32::try_from(u64::from(pipelines) * ((bytes >> 20) + 1) + MEMORY).unwrap_or(u32::MAX)
}

/// Number of words of a mailbox; its last field is padding for reads beyond the others.
fn fields(program: &swx::Pipeline, mailbox: &str) -> usize {
    let found = program.structs.iter().find(|one| one.name == *mailbox);
    found.map_or(0, |found| found.fields.len() - 1)
}

fn name(name: &str) -> Result<CString, Error> {
    text("the program's", name)
}

fn texts(lines: &[impl AsRef<str>]) -> Result<Vec<CString>, Error> {
    lines.iter().map(|line| name(line.as_ref())).collect()
}

/// Addresses of texts; valid as long as the texts live.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn check(what: &str, result: c_int) -> Result<(), Error> {
    if result < 0 { Err(refused(what, result)) } else { Ok(()) }
}

fn refused(what: &str, result: c_int) -> Error {
    Error::Pipeline { what: what.to_owned(), reason: Refusal::new(-result) }
}
