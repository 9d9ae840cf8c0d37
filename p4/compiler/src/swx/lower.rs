//! Conversion of a program to instructions: locations of its slots, and the code so far.

use super::code::{
    ARRIVAL, DEPARTURE, FIRST_OWN, Field, Instr, LENGTH, Label, PORT, SUM, TIME, Value,
};
use super::names::Names;
use super::parser::Reading;
use super::sets::Sets;
use super::tidy::Code;
use crate::ir::{Header, Noted, Program, Slot, Ty};
use crate::source::{Checked, Problem, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Widest number in instructions, bits.
pub(super) const MOST_BITS: u32 = 64;

/// Most instructions of a program: all calls are inlined.
const MOST_INSTRUCTIONS: usize = 1 << 14;

/// A named list of fields with their widths.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    pub(super) name: String,
    pub(super) fields: Vec<(String, u32)>,
}

/// Location of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    In(Field),
    /// Validity of a header.
    Valid(usize),
}

/// A routine that is being inlined.
#[derive(Debug)]
pub(super) struct Frame {
    /// Label behind the routine.
    pub(super) end: Label,
    /// Label for an exit from all routines.
    pub(super) exit: Label,
    pub(super) exits: bool,
}

/// Purpose of an array of registers.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) name: String,
    pub(super) object: usize,
    pub(super) size: u32,
    pub(super) initial: u64,
}

/// Use of an extern object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Adds entries to the table with that number, and restarts their timers.
    Table(usize),
    /// Executes the meters of the object with that number.
    Meter(usize),
    /// Draws the random numbers of the object with that number.
    Random(usize),
    /// Takes the messages of the object with that number.
    Digest(usize),
}

/// An extern object: its use and its mailbox.
#[derive(Clone, Debug)]
pub(super) struct Extern {
    pub(super) name: String,
    pub(super) of: Use,
    pub(super) fields: Vec<String>,
    pub(super) functions: Vec<&'static str>,
}

/// Keys of a table, for the look-up.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    pub(super) fields: Vec<Field>,
    /// True if they are copied there first.
    pub(super) are_copied: bool,
    /// Headers known to be valid wherever the table is applied.
    pub(super) known: Option<BTreeSet<usize>>,
}

pub(super) struct Lower<'p> {
    pub(super) program: &'p Program,
    pub(super) sets: Sets<'p>,
    pub(super) names: Names,
    pub(super) places: BTreeMap<Slot, Place>,
    pub(super) headers: Vec<Fields>,
    pub(super) metas: Vec<(String, u32)>,
    /// Slot of each piece of metadata, if it holds one.
    pub(super) meta_slots: BTreeMap<usize, Slot>,
    pub(super) arrays: Vec<Array>,
    pub(super) externs: Vec<Extern>,
    pub(super) keys: Vec<Keys>,
    /// Values that replace slots: arguments.
    pub(super) env: BTreeMap<Slot, Value>,
    pub(super) code: Code,
    pub(super) labels: usize,
    pub(super) frames: Vec<Frame>,
    /// Metadata by which actions signal an exit.
    pub(super) exit_flag: Option<Field>,
    /// State of the parser that is being converted.
    pub(super) reading: Reading,
    /// Table of the action that is being converted.
    pub(super) table: Option<usize>,
    /// Headers known to be valid here.
    pub(super) known: BTreeSet<usize>,
    /// Headers whose fields are accessed where they may be invalid.
    pub(super) loose: BTreeSet<usize>,
    /// Metadata for intermediate values by width, and number of those in use.
    temps: BTreeMap<u32, Vec<usize>>,
    used: BTreeMap<u32, usize>,
    /// Fields with the sums of checksums.
    pub(super) sums: BTreeMap<usize, Field>,
    /// For each checksum, the instruction to whose constant the next one can be added.
    pub(super) pending: BTreeMap<usize, usize>,
    pub(super) emitted: BTreeSet<usize>,
}

impl<'p> Lower<'p> {
    pub(super) fn new(program: &'p Program) -> Checked<Self> {
        let named = |name: &str, fields: &[(&str, u32)]| Fields {
            name: name.to_owned(),
            fields: fields.iter().map(|(name, bits)| ((*name).to_owned(), *bits)).collect(),
        };
        let mut names = Names::default();
        let headers = vec![
            named("arrival", &[("port", 32), ("length", 32), ("time", 64)]),
            named("departure", &[("port", 32)]),
            named("sum", &[("out", 16), ("total", 64)]),
        ];
        headers.iter().for_each(|header| drop(names.header(&header.name)));
        let metas = ["in", "out"].map(|name| (names.meta(name), 32)).to_vec();
        let mut lower = Self {
            program,
            sets: Sets::new(program),
            names,
            places: BTreeMap::new(),
            headers,
            metas,
            meta_slots: BTreeMap::new(),
            arrays: Vec::new(),
            externs: Vec::new(),
            keys: vec![Keys::default(); program.tables.len()],
            env: BTreeMap::new(),
            code: Vec::new(),
            labels: 0,
            frames: Vec::new(),
            exit_flag: None,
            reading: Reading::default(),
            table: None,
            known: BTreeSet::new(),
            loose: BTreeSet::new(),
            temps: BTreeMap::new(),
            used: BTreeMap::new(),
            sums: BTreeMap::new(),
            pending: BTreeMap::new(),
            emitted: BTreeSet::new(),
        };
        let shared = &program.metadata;
        for (slots, field) in [(&shared.input_ports, PORT), (&shared.timestamps, TIME)] {
            if let Some(first) = slots.first() {
                let place = Place::In(Field::Header(ARRIVAL, field));
                lower.places.insert(lower.sets.root(*first), place);
            }
        }
        lower.find_headers()?;
        Ok(lower)
    }

    /// Adds a header that is extracted or emitted to the pipeline's; its fields must be whole
    /// bytes.
    pub(super) fn add_header(&mut self, header: &Header) -> Checked<()> {
        let valid = self.sets.root(header.valid);
        if let Some(Place::Valid(known)) = self.places.get(&valid) {
            let is_same = header.fields.iter().enumerate().all(|(number, (slot, _))| {
                let place = self.places.get(&self.sets.root(*slot));
                place == Some(&Place::In(Field::Header(*known, number)))
            });
            let apart = self.lacks(self.span_of(header.valid), "headers of which a part is copied");
            return if is_same { Ok(()) } else { Err(apart) };
        }
        let number = self.headers.len();
        let full = self.program.slots[header.valid as usize].0.trim_end_matches(".$valid");
        let mut fields = Fields { name: self.names.header(full), fields: Vec::new() };
        self.places.insert(valid, Place::Valid(number));
        for (slot, ty) in &header.fields {
            let name = &self.program.slots[*slot as usize].0;
            if !matches!(ty, Ty::Bit(_) | Ty::Int(_))
                || !ty.width().is_multiple_of(8)
                || ty.width() > MOST_BITS
            {
                let what = format!(
                    "header fields of {ty}, such as `{name}`: 8 to 64 bits, in whole bytes"
                );
                return Err(self.lacks(self.span_of(*slot), &what));
            }
            let own = name.strip_prefix(full).unwrap_or(name).trim_start_matches('.');
            let place = Place::In(Field::Header(number, fields.fields.len()));
            let own = Names::field(own, &fields.fields);
            fields.fields.push((own, ty.width()));
            self.places.insert(self.sets.root(*slot), place);
        }
        let bits: u32 = fields.fields.iter().map(|(_, bits)| bits).sum();
        if bits > 255 * 8 || bits == 0 {
            let what = format!("headers of {} bytes, such as `{full}`: 1 to 255", bits / 8);
            return Err(self.lacks(self.span_of(header.valid), &what));
        }
        self.headers.push(fields);
        Ok(())
    }

    pub(super) fn span_of(&self, slot: Slot) -> Span {
        self.program.places.slots.get(slot as usize).copied().unwrap_or_default()
    }

    /// Problem for a feature that the pipeline lacks.
    pub(super) fn lacks(&self, span: Span, what: &str) -> Problem {
        let message =
            format!("DPDK's SWX pipeline has no {what}; the interpreter and Rust have all of it");
        Problem { span, message }
    }

    /// Problem for a feature with a noted location.
    pub(super) fn lacks_noted(&self, noted: Noted, what: &str) -> Problem {
        let places = &self.program.places.noted;
        let span = places.iter().find(|(what, _)| *what == noted).map(|(_, span)| *span);
        self.lacks(span.unwrap_or_default(), what)
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        self.labels
    }

    pub(super) fn push(&mut self, instr: Instr) {
        if matches!(instr, Instr::Label(_)) || instr.target().is_some() {
            self.pending.clear();
        }
        for field in instr.reads().into_iter().chain(instr.writes()) {
            self.touch(field);
        }
        self.code.push(instr);
    }

    /// Notes an access to a header's field.
    pub(super) fn touch(&mut self, field: Field) {
        if let Field::Header(header, _) = field
            && header >= FIRST_OWN
            && !self.known.contains(&header)
        {
            self.loose.insert(header);
            if self.reading.is_under_way {
                self.reading.unsure.insert(header);
            }
        }
    }

    /// Refuses a program that is too long.
    pub(super) fn check_size(&self) -> Checked<()> {
        match self.code.len() > MOST_INSTRUCTIONS {
            true => {
                let what = format!("room for more than {MOST_INSTRUCTIONS} instructions");
                Err(self.lacks(Span::default(), &what))
            }
            false => Ok(()),
        }
    }

    pub(super) fn bits(&self, field: Field) -> u32 {
        match field {
            Field::Meta(number) => self.metas[number].1,
            Field::Header(header, field) => self.headers[header].fields[field].1,
            Field::Arg(_) | Field::Mail(..) => 64,
        }
    }

    /// Location of a slot; a new slot gets metadata.
    pub(super) fn place(&mut self, slot: Slot) -> Checked<Place> {
        let root = self.sets.root(slot);
        if let Some(place) = self.places.get(&root) {
            return Ok(*place);
        }
        let (name, ty) = &self.program.slots[root as usize];
        if ty.width() > MOST_BITS {
            let what = format!("numbers of {} bits, such as `{name}`: 64 at most", ty.width());
            return Err(self.lacks(self.span_of(slot), &what));
        }
        let number = self.metas.len();
        self.metas.push((self.names.meta(name), whole(ty.width())));
        self.meta_slots.insert(number, root);
        let place = Place::In(Field::Meta(number));
        self.places.insert(root, place);
        Ok(place)
    }

    /// Field of a slot that is not a header's validity.
    pub(super) fn field(&mut self, slot: Slot) -> Checked<Field> {
        match self.place(slot)? {
            Place::In(field) => Ok(field),
            Place::Valid(_) => unreachable!("a header's validity is asked for as such"),
        }
    }

    /// Metadata for an intermediate value, until the end of the statement.
    pub(super) fn temp(&mut self, bits: u32) -> Field {
        let bits = whole(bits);
        let used = self.used.entry(bits).or_default();
        let pool = self.temps.entry(bits).or_default();
        if *used == pool.len() {
            pool.push(self.metas.len());
            self.metas.push((self.names.meta("tmp"), bits));
        }
        *used += 1;
        Field::Meta(pool[*used - 1])
    }

    /// Releases the intermediate values.
    pub(super) fn release(&mut self) {
        self.used.clear();
    }

    /// Length of the packet as received.
    pub(super) fn length() -> Value {
        Value::Field(Field::Header(ARRIVAL, LENGTH))
    }

    /// Field with the output port of the packet.
    pub(super) fn departure() -> Field {
        Field::Header(DEPARTURE, PORT)
    }

    pub(super) fn sum(field: usize) -> Field {
        Field::Header(SUM, field)
    }
}

/// Number of bits rounded up to whole bytes.
pub(super) fn whole(bits: u32) -> u32 {
    bits.max(1).div_ceil(8) * 8
}
