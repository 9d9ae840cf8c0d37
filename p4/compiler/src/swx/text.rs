//! Instructions as text, and the pipeline with everything that they need.

use super::code::{Field, Instr, META_IN, META_OUT, Value};
use super::lower::{Lower, Use};
use super::tidy::{Code, Run};
use super::{
    Action, Array, ControlObject, Extern, KeyField, MOST_OFFSET, PORTS, Pipeline, Struct,
    TABLE_TYPE, Table, WORD_BITS,
};
use crate::ir::MatchKind;
use crate::source::{Checked, Span};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// Padding: instructions read eight bytes at every field, so this many must follow the last one. No
/// name of a program ends like this.
const PAD: (&str, u32) = ("pad_", 64);

/// Bytes that instructions read and write back: an instruction on a field nearby has to wait for
/// the one before.
const APART: u32 = 8;

/// Most objects of each kind that the pipeline's instructions can name.
const MOST_NAMED: usize = 255;
const MOST_HEADERS: usize = 63;

/// Names of the objects in instructions.
struct Text<'l, 'p> {
    lower: &'l Lower<'p>,
    actions: Vec<Vec<String>>,
    tables: Vec<String>,
    externs: Vec<String>,
}

pub(super) fn assemble(
    lower: &Lower<'_>,
    objects: Vec<ControlObject>,
    main: &Code,
    tables: &[Run],
) -> Checked<Pipeline> {
    let mut text = Text {
        lower,
        actions: Vec::new(),
        tables: Vec::new(),
        externs: lower.externs.iter().map(|one| one.name.clone()).collect(),
    };
    text.name_tables();
    let used = text.used(main, tables);
    let (metadata, offsets) = text.metadata(&used.metas)?;
    let mut pipeline = Pipeline {
        structs: Vec::new(),
        headers: Vec::new(),
        metadata: metadata.name.clone(),
        arrays: text.arrays(),
        externs: Vec::new(),
        actions: Vec::new(),
        tables: Vec::new(),
        objects,
        instructions: text.code(main),
        most_read: lower.reading.most,
        most_grown: lower.headers.iter().map(|one| bytes(&one.fields)).sum(),
    };
    text.add_headers(&mut pipeline, &used.headers)?;
    pipeline.structs.push(metadata);
    text.add_externs(&mut pipeline);
    for (number, run) in tables.iter().enumerate() {
        text.add_table(&mut pipeline, number, run, &offsets);
    }
    text.check_counts(&pipeline)?;
    Ok(pipeline)
}

#[derive(Default)]
struct Used {
    /// Metadata in use, with the number of uses.
    metas: BTreeMap<usize, usize>,
    headers: BTreeSet<usize>,
}

fn bytes(fields: &[(String, u32)]) -> usize {
    fields.iter().map(|(_, bits)| *bits as usize / 8).sum()
}

impl Text<'_, '_> {
    fn name_tables(&mut self) {
        let mut names = super::names::Names::default();
        let program = self.lower.program;
        self.tables = program.tables.iter().map(|table| names.other(&table.name)).collect();
        for (table, name) in program.tables.iter().zip(&self.tables) {
            let actions = table.actions.iter().map(|action| {
                let action = &program.actions[*action].name;
                let own = action.rsplit('.').next().unwrap_or(action);
                names.other(&format!("{name}_{own}"))
            });
            let actions = actions.collect();
            self.actions.push(actions);
        }
    }

    /// Metadata and headers that any instruction uses.
    fn used(&self, main: &Code, tables: &[Run]) -> Used {
        let mut used = Used::default();
        used.metas.extend([(META_IN, 0), (META_OUT, 0)]);
        used.headers.extend([super::code::ARRIVAL, super::code::DEPARTURE]);
        let actions = tables.iter().flat_map(|table| &table.actions);
        let instrs = std::iter::once(main).chain(actions).flatten();
        let keys = self.lower.keys.iter().flat_map(|keys| keys.fields.iter().copied());
        let mut fields: Vec<Field> = keys.collect();
        for instr in instrs {
            fields.extend(instr.reads());
            fields.extend(instr.writes());
            match instr {
                Instr::Extract(header)
                | Instr::Lookahead(header)
                | Instr::Emit(header)
                | Instr::Validate(header)
                | Instr::Invalidate(header)
                | Instr::IfValid(_, _, header) => {
                    used.headers.insert(*header);
                }
                Instr::CheckAddHeader(_, header) => {
                    used.headers.insert(*header);
                }
                Instr::Reset(headers) => used.headers.extend(headers),
                _ => {}
            }
        }
        for field in fields {
            match field {
                Field::Meta(number) => *used.metas.entry(number).or_default() += 1,
                Field::Header(header, _) => {
                    used.headers.insert(header);
                }
                Field::Arg(_) | Field::Mail(..) => {}
            }
        }
        used
    }

    /// Struct of the metadata, and offsets of its fields: the most used ones come first, spaced
    /// apart as far as there is room.
    fn metadata(&self, used: &BTreeMap<usize, usize>) -> Checked<(Struct, Vec<(usize, u32)>)> {
        let mut order: Vec<usize> = used.keys().copied().collect();
        order.sort_by_key(|number| Reverse(used[number]));
        let bytes = |number: &usize| self.lower.metas[*number].1 / 8;
        let (mut fields, mut offsets, mut at) = (Vec::new(), Vec::new(), 0);
        let mut rest: u32 = order.iter().map(bytes).sum();
        for number in order {
            let (name, bits) = &self.lower.metas[number];
            if at > MOST_OFFSET {
                let slot = self.lower.meta_slots.get(&number);
                let span = slot.map_or_else(Span::default, |slot| self.lower.span_of(*slot));
                let what = format!("room for more than {MOST_OFFSET} bytes of metadata (`{name}`)");
                return Err(self.lower.lacks(span, &what));
            }
            fields.push((name.clone(), *bits));
            offsets.push((number, at));
            at += bits / 8;
            rest -= bits / 8;
            let gap = APART - bits / 8;
            if gap > 0 && at + gap + rest <= MOST_OFFSET {
                fields.push((format!("gap_{at}_"), gap * 8));
                at += gap;
            }
        }
        fields.push((PAD.0.to_owned(), PAD.1));
        Ok((Struct { name: "metadata_t".to_owned(), fields }, offsets))
    }

    fn arrays(&self) -> Vec<Array> {
        let arrays = self.lower.arrays.iter().map(|one| Array {
            name: one.name.clone(),
            object: one.object,
            size: one.size,
            initial: one.initial,
        });
        arrays.collect()
    }

    fn add_headers(&self, pipeline: &mut Pipeline, used: &BTreeSet<usize>) -> Checked<()> {
        for number in used {
            let header = &self.lower.headers[*number];
            let name = format!("{}_t", header.name);
            pipeline.headers.push((header.name.clone(), name.clone()));
            pipeline.structs.push(Struct { name, fields: header.fields.clone() });
        }
        // Fields at the end of the last struct are read beyond its end.
        let (name, bits) = PAD;
        let fields = vec![(name.to_owned(), bits)];
        pipeline.structs.push(Struct { name: format!("{name}_t"), fields });
        pipeline.headers.push((name.to_owned(), format!("{name}_t")));
        match pipeline.headers.len() > MOST_HEADERS {
            true => {
                let what = format!("room for more than {MOST_HEADERS} headers");
                Err(self.lower.lacks(Span::default(), &what))
            }
            false => Ok(()),
        }
    }

    fn add_externs(&self, pipeline: &mut Pipeline) {
        for one in &self.lower.externs {
            let mailbox = format!("{}_{}_t", kind(one.of), one.name);
            let mut fields: Vec<(String, u32)> =
                one.fields.iter().map(|name| (name.clone(), WORD_BITS)).collect();
            fields.push((PAD.0.to_owned(), PAD.1));
            pipeline.structs.push(Struct { name: mailbox.clone(), fields });
            pipeline.externs.push(Extern {
                name: one.name.clone(),
                of: one.of,
                mailbox,
                functions: one.functions.clone(),
            });
        }
    }

    fn add_table(
        &self,
        pipeline: &mut Pipeline,
        number: usize,
        run: &Run,
        offsets: &[(usize, u32)],
    ) {
        let program = self.lower.program;
        let table = &program.tables[number];
        let mut actions = Vec::new();
        for (place, code) in run.actions.iter().enumerate() {
            let name = self.actions[number][place].clone();
            let params = &program.actions[table.actions[place]].params;
            let args = (!params.is_empty()).then(|| {
                let fields = (0..params.len()).map(|at| (arg(params, at), WORD_BITS)).collect();
                let name = format!("{name}_args_t");
                pipeline.structs.push(Struct { name: name.clone(), fields });
                name
            });
            actions.push((pipeline.actions.len(), params.len()));
            let instructions = self.action_code(code, params);
            pipeline.actions.push(Action { name, args, instructions });
        }
        let keys = table.keys.iter().zip(&self.lower.keys[number].fields);
        let keys = keys.map(|(key, field)| self.key(key, *field, offsets));
        pipeline.tables.push(Table {
            name: self.tables[number].clone(),
            keys: keys.collect(),
            actions,
            default: table.default.clone(),
            default_is_const: table.default_is_const,
            size: table.size,
            expires: table.expires,
        });
    }

    fn key(&self, key: &crate::ir::Key, field: Field, offsets: &[(usize, u32)]) -> KeyField {
        let bits = self.lower.bits(field);
        let offset = match field {
            Field::Header(header, field) => bytes(&self.lower.headers[header].fields[..field]),
            Field::Meta(number) => {
                let found = offsets.iter().find(|(other, _)| *other == number);
                found.map_or(0, |(_, at)| *at as usize)
            }
            _ => unreachable!("keys are in headers or in metadata"),
        };
        KeyField {
            name: self.field(field, &[]),
            kind: key.kind,
            width: key.expr.ty.width(),
            place: (offset, bits as usize / 8),
            is_big_endian: matches!(field, Field::Header(..)),
        }
    }

    /// Refuses more objects than instructions have numbers for.
    fn check_counts(&self, pipeline: &Pipeline) -> Checked<()> {
        let structs = pipeline.headers.len() + pipeline.externs.len() + 2;
        let counts = [
            (structs, "headers and extern objects"),
            (pipeline.actions.len(), "actions of tables"),
            (pipeline.tables.len(), "tables"),
            (pipeline.arrays.len(), "arrays of registers"),
        ];
        match counts.into_iter().find(|(count, _)| *count > MOST_NAMED) {
            Some((_, what)) => {
                let what = format!("room for more than {MOST_NAMED} {what}");
                Err(self.lower.lacks(Span::default(), &what))
            }
            None => Ok(()),
        }
    }

    fn code(&self, code: &Code) -> Vec<String> {
        self.action_code(code, &[])
    }

    /// Instructions of an action; several labels of one instruction become its first.
    fn action_code(&self, code: &Code, params: &[Param]) -> Vec<String> {
        let mut same: Vec<(usize, usize)> = Vec::new();
        let mut first = None;
        for instr in code {
            match (instr, first) {
                (Instr::Label(label), None) => {
                    first = Some(*label);
                    same.push((*label, *label));
                }
                (Instr::Label(label), Some(first)) => same.push((*label, first)),
                _ => first = None,
            }
        }
        let label = |wanted: usize| {
            let found = same.iter().find(|(label, _)| *label == wanted);
            format!("L{}", found.map_or(wanted, |(_, first)| *first))
        };
        let (mut lines, mut before) = (Vec::new(), String::new());
        for instr in code {
            if let Instr::Label(wanted) = instr {
                before = format!("{} : ", label(*wanted));
                continue;
            }
            for line in self.instr(instr, params, &label) {
                lines.push(format!("{before}{line}"));
                before.clear();
            }
        }
        lines
    }

    fn instr(
        &self,
        instr: &Instr,
        params: &[Param],
        label: &impl Fn(usize) -> String,
    ) -> Vec<String> {
        let field = |one: &Field| self.field(*one, params);
        let value = |one: &Value| match one {
            Value::Field(one) => self.field(*one, params),
            Value::Const(number) => number.to_string(),
        };
        let header = |number: &usize| format!("h.{}", self.lower.headers[*number].name);
        let array = |number: &usize| &self.lower.arrays[*number].name;
        let not = |is_so: &bool| if *is_so { "" } else { "n" };
        vec![match instr {
            Instr::Rx => format!("rx {}", field(&Field::Meta(META_IN))),
            Instr::Tx => format!("tx {}", field(&Field::Meta(META_OUT))),
            Instr::TxDropped => format!("tx {}", PORTS[1]),
            Instr::Extract(one) => format!("extract {}", header(one)),
            Instr::Lookahead(one) => format!("lookahead {}", header(one)),
            Instr::Emit(one) => format!("emit {}", header(one)),
            Instr::Validate(one) => format!("validate {}", header(one)),
            Instr::Invalidate(one) => format!("invalidate {}", header(one)),
            Instr::Reset(headers) => {
                let both = |one| {
                    [format!("validate {}", header(one)), format!("invalidate {}", header(one))]
                };
                return headers.iter().flat_map(both).collect();
            }
            Instr::Mov(to, from) => format!("mov {} {}", field(to), value(from)),
            Instr::Alu(name, to, from) => format!("{name} {} {}", field(to), value(from)),
            Instr::CheckAdd(to, from) => format!("ckadd {} {}", field(to), field(from)),
            Instr::CheckAddHeader(to, from) => format!("ckadd {} {}", field(to), header(from)),
            Instr::Read(one, to, index) => {
                format!("regrd {} {} {}", field(to), array(one), value(index))
            }
            Instr::Write(one, index, from) => {
                format!("regwr {} {} {}", array(one), value(index), value(from))
            }
            Instr::Increase(one, index, by) => {
                format!("regadd {} {} {}", array(one), value(index), value(by))
            }
            Instr::Extern(object, function) => {
                format!("extern e.{}.{function}", self.externs[*object])
            }
            Instr::Table(table) => format!("table {}", self.tables[*table]),
            Instr::Jump(to) => format!("jmp {}", label(*to)),
            Instr::Compare(test, to, left, right) => {
                format!("{} {} {} {}", test.name(), label(*to), field(left), value(right))
            }
            Instr::IfValid(is_so, to, one) => {
                format!("jmp{}v {} {}", not(is_so), label(*to), header(one))
            }
            Instr::IfHit(is_so, to) => format!("jmp{}h {}", not(is_so), label(*to)),
            Instr::IfAction(is_so, to, table, number) => {
                format!("jmp{}a {} {}", not(is_so), label(*to), self.actions[*table][*number])
            }
            Instr::Return => "return".to_owned(),
            Instr::Zero | Instr::Label(_) => return Vec::new(),
        }]
    }

    fn field(&self, field: Field, params: &[Param]) -> String {
        match field {
            Field::Meta(number) => format!("m.{}", self.lower.metas[number].0),
            Field::Header(number, field) => {
                let header = &self.lower.headers[number];
                format!("h.{}.{}", header.name, header.fields[field].0)
            }
            Field::Arg(number) => format!("t.{}", arg(params, number)),
            Field::Mail(object, field) => {
                format!("e.{}.{}", self.externs[object], self.lower.externs[object].fields[field])
            }
        }
    }
}

/// A parameter of an action: its name, its slot and its type.
type Param = (String, crate::ir::Slot, crate::ir::Ty);

/// Name of an argument, from its parameter.
fn arg(params: &[Param], number: usize) -> String {
    let mut fields: Vec<(String, u32)> = Vec::new();
    for (name, ..) in &params[..=number] {
        let name = super::names::Names::field(name, &fields);
        fields.push((name, WORD_BITS));
    }
    fields.pop().map(|(name, _)| name).unwrap_or_default()
}

fn kind(of: Use) -> &'static str {
    match of {
        Use::Table(_) => "entries",
        Use::Meter(_) => "meter",
        Use::Random(_) => "random",
        Use::Digest(_) => "digest",
    }
}

impl Extern {
    /// Name of the object's type.
    pub fn type_name(&self) -> &str {
        self.mailbox.strip_suffix("_t").unwrap_or(&self.mailbox)
    }
}

/// Writes the pipeline specification.
impl Display for Pipeline {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "; Made by `natgate p4 compile --emit spec`: changes belong into the program."
        )?;
        for one in &self.structs {
            writeln!(f, "\nstruct {} {{", one.name)?;
            for (name, bits) in &one.fields {
                writeln!(f, "\tbit<{bits}> {name}")?;
            }
            writeln!(f, "}}")?;
        }
        f.write_str("\n")?;
        for (name, of) in &self.headers {
            writeln!(f, "header {name} instanceof {of}")?;
        }
        writeln!(f, "\nmetadata instanceof {}\n", self.metadata)?;
        for one in &self.externs {
            writeln!(f, "extobj {} instanceof {}", one.name, one.type_name())?;
        }
        for one in &self.arrays {
            writeln!(f, "regarray {} size {} initval {}", one.name, one.size, one.initial)?;
        }
        for action in &self.actions {
            let args = action.args.as_ref();
            let args = args.map_or_else(|| "none".to_owned(), |args| format!("instanceof {args}"));
            writeln!(f, "\naction {} args {args} {{", action.name)?;
            lines(f, &action.instructions)?;
        }
        for table in &self.tables {
            self.table(f, table)?;
        }
        writeln!(f, "\napply {{")?;
        lines(f, &self.instructions)
    }
}

fn lines(f: &mut Formatter<'_>, instructions: &[String]) -> fmt::Result {
    instructions.iter().try_for_each(|one| writeln!(f, "\t{one}"))?;
    writeln!(f, "}}")
}

impl Pipeline {
    fn table(&self, f: &mut Formatter<'_>, table: &Table) -> fmt::Result {
        writeln!(f, "\ntable {} {{\n\tkey {{", table.name)?;
        for key in &table.keys {
            let kind = match key.kind {
                MatchKind::Exact => "exact",
                MatchKind::Lpm => "lpm",
                MatchKind::Ternary => "wildcard",
            };
            writeln!(f, "\t\t{} {kind}", key.name)?;
        }
        writeln!(f, "\t}}\n\tactions {{")?;
        for (action, _) in &table.actions {
            writeln!(f, "\t\t{}", self.actions[*action].name)?;
        }
        let is_const = if table.default_is_const { " const" } else { "" };
        let (name, args) = self.default_of(table);
        writeln!(f, "\t}}\n\tdefault_action {name} args {args}{is_const}")?;
        writeln!(f, "\tinstanceof {TABLE_TYPE}\n\tsize {}\n}}", table.size)
    }

    /// The action of a table's default, and its arguments as text, by name.
    pub fn default_of(&self, table: &Table) -> (&str, String) {
        let (number, values) = &table.default;
        let action = &self.actions[table.actions[*number].0];
        let fields = action.args.as_ref().and_then(|args| {
            let found = self.structs.iter().find(|one| one.name == *args);
            found.map(|found| &found.fields)
        });
        let args = match fields {
            None => "none".to_owned(),
            Some(fields) => {
                let pairs =
                    fields.iter().zip(values).map(|((name, _), value)| format!("{name} {value}"));
                pairs.collect::<Vec<_>>().join(" ")
            }
        };
        (&action.name, args)
    }
}
