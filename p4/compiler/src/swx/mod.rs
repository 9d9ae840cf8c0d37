//! Programs for DPDK's SWX pipeline: the third output of the compiler.
//!
//! The output is the configuration of the pipeline: structs, headers, metadata, arrays of
//! registers, extern objects, actions, tables and instructions as text. Printed, it is a pipeline
//! specification (`.spec`). DPDK is not needed for that; the crate natgate-dpdk executes it.
//!
//! The pipeline knows neither the length of a packet nor its time, and only a few ports. So
//! natgate's ports put a private header, `arrival`, in front of each packet, and take another one,
//! `departure`, off packets that leave. Tables have natgate's own type: the pipeline's tables take
//! their time from the processor's clock, and tables to which packets add entries cannot be read.
//! Extern objects implement everything else that depends on time or tables.

mod checksum;
mod code;
mod expr;
mod externs;
mod lower;
mod names;
mod parser;
mod sets;
mod stmt;
mod table;
mod text;
mod tidy;

pub use lower::Use;

use crate::ir::{MatchKind, ObjectKind, Program};
use crate::source::{Checked, Error};
use code::{DEPARTURE, Field, Instr, Value};
use lower::Lower;
use tidy::{Code, Run};

/// Name of the tables' type.
pub const TABLE_TYPE: &str = "natgate";

/// Bytes of the header in front of received packets: port and length, 4 bytes each, and the time in
/// nanoseconds, 8 bytes; the most significant byte comes first.
pub const ARRIVAL_BYTES: usize = 16;

/// Bytes of the header in front of packets that leave: the port; the most significant byte comes
/// first.
pub const DEPARTURE_BYTES: usize = 4;

/// Width of an action's arguments and of fields of mailboxes, bits.
pub const WORD_BITS: u32 = 64;

/// Output ports of packets that leave, and of dropped packets.
pub const PORTS: [u32; 2] = [0, 1];

/// Largest offset into a struct that instructions can address, bytes.
const MOST_OFFSET: u32 = 255;

/// A struct: consecutive fields with their widths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// Name.
    pub name: String,
    /// Names and widths in bits.
    pub fields: Vec<(String, u32)>,
}

/// An array of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Name.
    pub name: String,
    /// Number of the program's object; an object may have several arrays, in order.
    pub object: usize,
    /// Number of elements.
    pub size: u32,
    /// Initial value of the elements.
    pub initial: u64,
}

/// An extern object. Its type is named after its mailbox's struct, without `_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extern {
    /// Name.
    pub name: String,
    /// Use of the object.
    pub of: Use,
    /// Struct of the mailbox.
    pub mailbox: String,
    /// Names of the functions.
    pub functions: Vec<&'static str>,
}

/// An action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Name.
    pub name: String,
    /// Struct of the arguments, if there are any.
    pub args: Option<String>,
    /// Instructions.
    pub instructions: Vec<String>,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Name.
    pub name: String,
    /// Kind of match.
    pub kind: MatchKind,
    /// Width of the value, bits.
    pub width: u32,
    /// Offset in the struct, and length, bytes.
    pub place: (usize, usize),
    /// True if the most significant byte comes first.
    pub is_big_endian: bool,
}

/// A table, with the program's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name.
    pub name: String,
    /// Keys, all in one struct.
    pub keys: Vec<KeyField>,
    /// Actions: index in [`Pipeline::actions`], and number of arguments.
    pub actions: Vec<(usize, usize)>,
    /// Action for keys without an entry: index into its actions, and arguments.
    pub default: (usize, Vec<u128>),
    /// True if the default is const.
    pub default_is_const: bool,
    /// Most entries.
    pub size: usize,
    /// True if entries that packets add have timers.
    pub expires: bool,
}

/// A program's object, as the control plane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlObject {
    /// An array of counters, with packets and bytes in two arrays.
    Counter {
        /// Number of counters.
        size: u32,
        /// Index of the array of packets.
        packets: usize,
        /// Index of the array of bytes.
        bytes: usize,
    },
    /// An array of meters.
    Meter {
        /// Number of meters.
        size: u32,
        /// True for bytes, false for packets.
        bytes: bool,
    },
    /// A random number within a range.
    Random {
        /// Width, bits.
        width: u32,
        /// Least number.
        least: u128,
        /// Largest number.
        most: u128,
    },
    /// An object without state for the control plane.
    Nothing,
}

/// A program for the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Structs: of headers, of metadata, of mailboxes, of arguments.
    pub structs: Vec<Struct>,
    /// Headers and their structs.
    pub headers: Vec<(String, String)>,
    /// Struct of the metadata.
    pub metadata: String,
    /// Arrays of registers.
    pub arrays: Vec<Array>,
    /// Extern objects.
    pub externs: Vec<Extern>,
    /// Actions.
    pub actions: Vec<Action>,
    /// Tables, in the program's order.
    pub tables: Vec<Table>,
    /// Objects of the program, by their numbers.
    pub objects: Vec<ControlObject>,
    /// Instructions for every packet.
    pub instructions: Vec<String>,
    /// Most bytes of a packet that the program reads.
    pub most_read: usize,
    /// Most bytes by which a packet grows: the size of all headers.
    pub most_grown: usize,
}

/// Index of the instruction that makes possibly unextracted headers use their own memory.
const START: usize = 2;

impl Program {
    /// Compiles the program for DPDK's SWX pipeline.
    ///
    /// # Errors
    ///
    /// Name and location of a feature that the pipeline lacks.
    pub fn swx(&self) -> Result<Pipeline, Error> {
        lowered(self).map_err(|problem| self.places.sources.locate(problem))
    }
}

fn lowered(program: &Program) -> Checked<Pipeline> {
    let mut lower = Lower::new(program)?;
    lower.place_keys()?;
    let mut main = lower.main()?;
    let mut tables = Vec::new();
    for (number, table) in program.tables.iter().enumerate() {
        let actions = (0..table.actions.len()).map(|action| lower.action(number, action));
        let actions = actions.collect::<Checked<Vec<Code>>>()?;
        let keys = lower.keys[number].fields.iter();
        let keys = keys.filter_map(|field| match field {
            Field::Meta(number) => Some(*number),
            _ => None,
        });
        tables.push(Run { keys: keys.collect(), actions });
    }
    // Objects that no packet reaches are included.
    let mut objects = Vec::new();
    for (object, kind) in program.objects.iter().map(|object| &object.kind).enumerate() {
        objects.push(match kind {
            ObjectKind::Counter { size, .. } => {
                let arrays = lower.counter_arrays(object, *size);
                ControlObject::Counter { size: *size, packets: arrays[0], bytes: arrays[1] }
            }
            ObjectKind::Register { .. } => {
                lower.register_arrays(object)?;
                ControlObject::Nothing
            }
            ObjectKind::Meter { size, bytes } => {
                ControlObject::Meter { size: *size, bytes: *bytes }
            }
            ObjectKind::Random { ty, least, most } => {
                ControlObject::Random { width: ty.width(), least: *least, most: *most }
            }
            _ => ControlObject::Nothing,
        });
    }
    main[START] = Instr::Reset(lower.reading.unsure.iter().copied().collect());
    for instr in &mut main {
        if let Instr::Reset(headers) = instr {
            headers.retain(|header| lower.loose.contains(header));
        }
    }
    tidy::tidy(&mut main, &mut tables, &|field| lower.bits(field));
    let zeros = tidy::unset(&main, &tables);
    let zeros = zeros.into_iter().map(|meta| Instr::Mov(Field::Meta(meta), Value::Const(0)));
    if let Some(place) = main.iter().position(|instr| *instr == Instr::Zero) {
        main.splice(place..=place, zeros);
    }
    text::assemble(&lower, objects, &main, &tables)
}

impl Lower<'_> {
    /// Code for every packet.
    fn main(&mut self) -> Checked<Code> {
        let program = self.program;
        self.push(Instr::Rx);
        self.push(Instr::Extract(code::ARRIVAL));
        debug_assert_eq!(self.code.len(), START);
        self.push(Instr::Reset(Vec::new()));
        self.push(Instr::Zero);
        self.parse()?;
        for part in &program.controls[..2] {
            self.part(*part)?;
        }
        let dropped = self.label();
        self.push(Instr::IfValid(false, dropped, DEPARTURE));
        self.push(Instr::Emit(DEPARTURE));
        self.part(program.controls[2])?;
        self.push(Instr::Tx);
        self.push(Instr::Label(dropped));
        self.push(Instr::TxDropped);
        Ok(std::mem::take(&mut self.code))
    }
}
