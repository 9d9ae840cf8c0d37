//! Externs: counters and registers are arrays of registers. Extern objects implement what depends
//! on time or on tables, because the pipeline has other means for these, or none.

use super::code::{Field, Instr, Test, Value};
use super::lower::{Array, Extern, Lower, Place, Use};
use crate::ir::{Expr, ExternCall, ObjectKind, Op, Slot};
use crate::source::{Checked, Problem, Span};

/// Most fields of a message.
const MOST_FIELDS: usize = 30;

/// Fields of the mailbox of the object that adds entries; the arguments follow.
const ACTION: usize = 0;
const PROFILE: usize = 1;
const ADDED: usize = 2;
const FIRST_ARG: usize = 3;

impl Lower<'_> {
    pub(super) fn ask(&mut self, call: &ExternCall) -> Checked<()> {
        let ExternCall { op, args, results } = call;
        match op {
            Op::PacketLength => self.give(results, Self::length()),
            Op::Drop => {
                self.push(Instr::Invalidate(super::code::DEPARTURE));
                Ok(())
            }
            Op::SendToPort => {
                let port = self.operand(&args[0])?;
                // In the opposite order the pipeline would copy all arguments into a header at
                // once.
                self.push(Instr::Mov(Self::departure(), port));
                self.push(Instr::Validate(super::code::DEPARTURE));
                Ok(())
            }
            Op::AddEntry(action) => self.add_entry(*action, args, results),
            Op::SetExpireTime => {
                let profile = self.operand(&args[0])?;
                if let Some(object) = self.timed() {
                    self.push(Instr::Mov(Field::Mail(object, PROFILE), profile));
                    self.push(Instr::Extern(object, "set_timeout"));
                }
                Ok(())
            }
            Op::RestartTimer => {
                if let Some(object) = self.timed() {
                    self.push(Instr::Extern(object, "restart"));
                }
                Ok(())
            }
            Op::Count(object) => self.count(*object, &args[0], &args[1]),
            Op::Meter(object) => self.meter(*object, args, results),
            Op::RegisterRead(object) => self.read(*object, &args[0], results),
            Op::RegisterWrite(object) => self.write(*object, &args[0], &args[1..]),
            Op::Hash(object) => {
                let what = format!("hash as `{}`", self.program.objects[*object].name);
                Err(self.lacks_object(*object, &what))
            }
            Op::ChecksumClear(_)
            | Op::ChecksumAdd(_)
            | Op::ChecksumSubtract(_)
            | Op::ChecksumGet(_)
            | Op::ChecksumState(_)
            | Op::ChecksumSetState(_) => self.checksum(*op, args, results),
            Op::Random(object) => self.random(*object, results),
            Op::Digest(object) => self.digest(*object, args),
        }
    }

    fn lacks_object(&self, object: usize, what: &str) -> Problem {
        let span: Option<&Span> = self.program.places.objects.get(object);
        self.lacks(span.copied().unwrap_or_default(), what)
    }

    pub(super) fn give(&mut self, results: &[Slot], value: Value) -> Checked<()> {
        for slot in results {
            if let Place::In(field) = self.place(*slot)? {
                self.push(Instr::Mov(field, value));
            }
        }
        Ok(())
    }

    /// Extern object of a use; created if it does not exist.
    fn object(&mut self, of: Use, name: &str, fields: &[String], function: &'static str) -> usize {
        let known = self.externs.iter().position(|one| one.of == of);
        let number = known.unwrap_or_else(|| {
            let name = self.names.other(name);
            let (fields, functions) = (fields.to_vec(), Vec::new());
            self.externs.push(Extern { name, of, fields, functions });
            self.externs.len() - 1
        });
        let functions = &mut self.externs[number].functions;
        if !functions.contains(&function) {
            functions.push(function);
        }
        number
    }

    /// Object that adds entries to the table whose action is being compiled; `None` outside of
    /// tables' actions.
    fn timed(&mut self) -> Option<usize> {
        let table = self.table?;
        let name = format!("{}_entries", self.program.tables[table].name);
        let mut fields: Vec<String> = ["action", "profile", "added"].map(str::to_owned).to_vec();
        fields.extend((0..super::table::MOST_ARGS).map(|number| format!("a{number}")));
        let object = self.object(Use::Table(table), &name, &fields, "restart");
        for function in ["set_timeout", "add"] {
            self.object(Use::Table(table), &name, &fields, function);
        }
        Some(object)
    }

    fn add_entry(&mut self, action: usize, args: &[Expr], results: &[Slot]) -> Checked<()> {
        let position = self.table.and_then(|table| {
            self.program.tables[table].actions.iter().position(|one| *one == action)
        });
        let (Some(position), Some(object)) = (position, self.timed()) else {
            return self.give(results, Value::Const(0));
        };
        self.push(Instr::Mov(Field::Mail(object, ACTION), Value::Const(position as u64)));
        for (number, arg) in args.iter().enumerate() {
            let place = if number == 0 { PROFILE } else { FIRST_ARG + number - 1 };
            let value = self.operand(arg)?;
            self.push(Instr::Mov(Field::Mail(object, place), value));
        }
        self.push(Instr::Extern(object, "add"));
        self.give(results, Value::Field(Field::Mail(object, ADDED)))
    }

    /// Arrays of an object, one for each part of it.
    fn arrays(&mut self, object: usize, parts: &[(&str, u64)], size: u32) -> Vec<usize> {
        let known = self.arrays.iter().position(|array| array.object == object);
        let first = known.unwrap_or_else(|| {
            let name = &self.program.objects[object].name;
            let first = self.arrays.len();
            for (part, initial) in parts {
                let name = match *part {
                    "" => self.names.other(name),
                    part => self.names.other(&format!("{name}_{part}")),
                };
                self.arrays.push(Array { name, object, size, initial: *initial });
            }
            first
        });
        (first..first + parts.len()).collect()
    }

    /// Arrays of a counter: packets and bytes.
    pub(super) fn counter_arrays(&mut self, object: usize, size: u32) -> Vec<usize> {
        self.arrays(object, &[("packets", 0), ("bytes", 0)], size)
    }

    /// Arrays of a register object, one for each field.
    pub(super) fn register_arrays(&mut self, object: usize) -> Checked<Vec<usize>> {
        let program = self.program;
        let ObjectKind::Register { size, initial } = &program.objects[object].kind else {
            return Ok(Vec::new());
        };
        if let Some((ty, _)) = initial.iter().find(|(ty, _)| ty.width() > 64) {
            let what = format!("registers of {ty}: 64 bits at most");
            return Err(self.lacks_object(object, &what));
        }
        let names: Vec<String> = match initial.len() {
            1 => vec![String::new()],
            count => (0..count).map(|number| format!("f{number}")).collect(),
        };
        let parts: Vec<(&str, u64)> = names
            .iter()
            .zip(initial)
            .map(|(name, (_, initial))| (&**name, *initial as u64))
            .collect();
        Ok(self.arrays(object, &parts, *size))
    }

    /// Value of an index, and a label that is reached if it is beyond the array. `None` if a
    /// constant index is beyond it.
    fn index(&mut self, index: &Expr, size: u32) -> Checked<Option<(Value, usize)>> {
        let value = self.operand(index)?;
        let behind = self.label();
        match value {
            Value::Const(index) if index >= size.into() => return Ok(None),
            Value::Field(field) if index.ty.mask() >= u128::from(size) => {
                let last = Value::Const(u64::from(size) - 1);
                self.compare(Test::Greater, Value::Field(field), last, behind);
            }
            _ => {}
        }
        Ok(Some((value, behind)))
    }

    fn count(&mut self, object: usize, index: &Expr, bytes: &Expr) -> Checked<()> {
        let ObjectKind::Counter { size, width } = self.program.objects[object].kind else {
            return Ok(());
        };
        let arrays = self.counter_arrays(object, size);
        let Some((index, behind)) = self.index(index, size)? else { return Ok(()) };
        let bytes = self.operand(bytes)?;
        for (array, by) in arrays.into_iter().zip([Value::Const(1), bytes]) {
            if by == Value::Const(0) {
                continue;
            }
            if width >= 64 {
                self.push(Instr::Increase(array, index, by));
                continue;
            }
            let count = self.temp(64);
            self.push(Instr::Read(array, count, index));
            self.push(Instr::Alu("add", count, by));
            self.push(Instr::Alu("and", count, Value::Const((1 << width) - 1)));
            self.push(Instr::Write(array, index, Value::Field(count)));
        }
        self.push(Instr::Label(behind));
        Ok(())
    }

    fn meter(&mut self, object: usize, args: &[Expr], results: &[Slot]) -> Checked<()> {
        let name = self.program.objects[object].name.clone();
        let fields = ["index", "colour", "length"].map(str::to_owned);
        let number = self.object(Use::Meter(object), &name, &fields, "execute");
        for (place, arg) in args.iter().enumerate() {
            let value = self.operand(arg)?;
            self.push(Instr::Mov(Field::Mail(number, place), value));
        }
        self.push(Instr::Extern(number, "execute"));
        self.give(results, Value::Field(Field::Mail(number, 1)))
    }

    fn read(&mut self, object: usize, index: &Expr, results: &[Slot]) -> Checked<()> {
        let arrays = self.register_arrays(object)?;
        let ObjectKind::Register { size, initial } = &self.program.objects[object].kind else {
            return Ok(());
        };
        for (slot, (_, initial)) in results.iter().zip(initial) {
            let may_be_beyond = index.as_constant().map_or_else(
                || index.ty.mask() >= u128::from(*size),
                |index| index >= u128::from(*size),
            );
            if may_be_beyond {
                self.give(&[*slot], Value::Const(*initial as u64))?;
            }
        }
        let Some((index, behind)) = self.index(index, *size)? else { return Ok(()) };
        for (slot, array) in results.iter().zip(arrays) {
            if let Place::In(field) = self.place(*slot)? {
                self.push(Instr::Read(array, field, index));
            }
        }
        self.push(Instr::Label(behind));
        Ok(())
    }

    fn write(&mut self, object: usize, index: &Expr, values: &[Expr]) -> Checked<()> {
        let arrays = self.register_arrays(object)?;
        let ObjectKind::Register { size, .. } = self.program.objects[object].kind else {
            return Ok(());
        };
        let Some((index, behind)) = self.index(index, size)? else { return Ok(()) };
        for (array, value) in arrays.into_iter().zip(values) {
            let value = self.operand(value)?;
            self.push(Instr::Write(array, index, value));
        }
        self.push(Instr::Label(behind));
        Ok(())
    }

    fn random(&mut self, object: usize, results: &[Slot]) -> Checked<()> {
        let name = self.program.objects[object].name.clone();
        let number = self.object(Use::Random(object), &name, &["value".to_owned()], "draw");
        self.push(Instr::Extern(number, "draw"));
        self.give(results, Value::Field(Field::Mail(number, 0)))
    }

    fn digest(&mut self, object: usize, args: &[Expr]) -> Checked<()> {
        let name = self.program.objects[object].name.clone();
        if args.len() > MOST_FIELDS {
            let what = format!("messages of more than {MOST_FIELDS} fields (`{name}`)");
            return Err(self.lacks_object(object, &what));
        }
        let fields: Vec<String> = (0..args.len()).map(|number| format!("f{number}")).collect();
        let number = self.object(Use::Digest(object), &name, &fields, "pack");
        for (place, arg) in args.iter().enumerate() {
            let value = self.operand(arg)?;
            self.push(Instr::Mov(Field::Mail(number, place), value));
        }
        self.push(Instr::Extern(number, "pack"));
        Ok(())
    }
}
