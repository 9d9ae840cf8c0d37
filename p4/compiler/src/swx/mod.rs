//! Programs for DPDK's SWX pipeline: the third way out of the compiler.
//!
//! What comes out is what the pipeline is configured with: structs, headers, metadata, arrays of
//! registers, extern objects, actions, tables and instructions as text. Printed, it is a pipeline
//! specification (`.spec`). Nothing of DPDK's is needed for that; the crate natgate-dpdk executes
//! it.
//!
//! The pipeline knows neither how long a packet is, nor by which port it came beyond its own few,
//! nor when. So its ports put a header of natgate's own in front of each packet, `arrival`, and
//! take another one off those that leave, `departure`. Tables are of natgate's own type: the
//! pipeline's take their time from the processor's clock, and nobody can read those that packets
//! add entries to. What depends on time or tables otherwise is asked of extern objects.

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

/// What tables' type is called.
pub const TABLE_TYPE: &str = "natgate";

/// Bytes of the header in front of packets that come in: port and length, 4 bytes each, and the
/// time in nanoseconds, 8 bytes, all of them with the most significant byte first.
pub const ARRIVAL_BYTES: usize = 16;

/// Bytes of the header in front of packets that leave: the port, with the most significant byte
/// first.
pub const DEPARTURE_BYTES: usize = 4;

/// What the fields of an action's arguments and of mailboxes have, bits.
pub const WORD_BITS: u32 = 64;

/// The output port of what leaves, and that of what is dropped.
pub const PORTS: [u32; 2] = [0, 1];

/// How far into a struct instructions see.
const MOST_OFFSET: u32 = 255;

/// A struct: fields, each of so many bits, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Names and bits.
    pub fields: Vec<(String, u32)>,
}

/// An array of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// The number of the program's object that it is of, which may have several, in order.
    pub object: usize,
    /// How many places it has.
    pub size: u32,
    /// What they have at the start.
    pub initial: u64,
}

/// An extern object. Its type is called as its mailbox's struct, without `_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extern {
    /// Its name.
    pub name: String,
    /// What it does.
    pub of: Use,
    /// Its mailbox's struct.
    pub mailbox: String,
    /// Its functions' names.
    pub functions: Vec<&'static str>,
}

/// An action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// The struct of its arguments, if it has some.
    pub args: Option<String>,
    /// Its instructions.
    pub instructions: Vec<String>,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Its name.
    pub name: String,
    /// How it is matched.
    pub kind: MatchKind,
    /// The value's bits.
    pub width: u32,
    /// Where it is in its struct, bytes, and how many.
    pub place: (usize, usize),
    /// Whether its most significant byte comes first.
    pub is_big_endian: bool,
}

/// A table, with the number that it has in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its keys, all of one struct.
    pub keys: Vec<KeyField>,
    /// Its actions' numbers among [`Pipeline::actions`], and how many arguments each takes.
    pub actions: Vec<(usize, usize)>,
    /// What is done with keys that are not there: an index into its actions, and arguments.
    pub default: (usize, Vec<u128>),
    /// Whether that stays so.
    pub default_is_const: bool,
    /// Most entries.
    pub size: usize,
    /// Whether entries that packets add have timers.
    pub expires: bool,
}

/// What the control plane knows of the program's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlObject {
    /// Counters: so many, with packets and bytes in the arrays of these numbers.
    Counter {
        /// How many.
        size: u32,
        /// The array of packets.
        packets: usize,
        /// The array of bytes.
        bytes: usize,
    },
    /// Meters: so many, and whether they are of bytes or of packets.
    Meter {
        /// How many.
        size: u32,
        /// Of bytes.
        bytes: bool,
    },
    /// Random numbers of so many bits, between these two.
    Random {
        /// Bits.
        width: u32,
        /// The least.
        least: u128,
        /// The most.
        most: u128,
    },
    /// Nothing.
    Nothing,
}

/// A program as the pipeline takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// Structs: of headers, of metadata, of mailboxes, of arguments.
    pub structs: Vec<Struct>,
    /// Headers and their structs.
    pub headers: Vec<(String, String)>,
    /// The metadata's struct.
    pub metadata: String,
    /// Arrays of registers.
    pub arrays: Vec<Array>,
    /// Extern objects.
    pub externs: Vec<Extern>,
    /// Actions.
    pub actions: Vec<Action>,
    /// Tables, as many as the program has and in its order.
    pub tables: Vec<Table>,
    /// The program's objects, by their numbers.
    pub objects: Vec<ControlObject>,
    /// The instructions of every packet.
    pub instructions: Vec<String>,
    /// The program looks at no byte of a packet beyond so many.
    pub most_read: usize,
    /// A packet that leaves is no longer than that it came and all headers, so many bytes.
    pub most_grown: usize,
}

/// Which instruction has headers lie in their own memory that may have been extracted or not.
const START: usize = 2;

impl Program {
    /// The program for DPDK's SWX pipeline.
    ///
    /// # Errors
    ///
    /// What the pipeline does not have, and where.
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
    // Also of those that no packet reaches.
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
    /// What every packet goes through.
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
