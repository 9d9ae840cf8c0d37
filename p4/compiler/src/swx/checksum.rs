//! Checksums as sums of 64 bits. They have the same remainder modulo 65535 as ones' complement
//! sums, and are zero if and only if those are. Nothing else of them matters (RFC 1071).

use super::code::{Field, Instr, SUM_OUT, SUM_TOTAL, Test, Value};
use super::lower::{Lower, Place};
use crate::ir::{Expr, ExprKind, Op, Slot, Stmt, Ty};
use crate::source::Checked;

impl Lower<'_> {
    pub(super) fn checksum(&mut self, op: Op, args: &[Expr], results: &[Slot]) -> Checked<()> {
        match op {
            Op::ChecksumClear(object) => {
                let sum = self.sum_of(object);
                self.pending.insert(object, self.code.len());
                self.push(Instr::Mov(sum, Value::Const(0)));
                Ok(())
            }
            Op::ChecksumSetState(object) => {
                let (sum, state) = (self.sum_of(object), self.operand(&args[0])?);
                self.pending.remove(&object);
                self.push(Instr::Mov(sum, state));
                Ok(())
            }
            Op::ChecksumAdd(object) => self.add_words(object, args, "add"),
            Op::ChecksumSubtract(object) => self.add_words(object, args, "sub"),
            Op::ChecksumGet(object) => {
                self.fold(object);
                self.give(results, Value::Field(Self::sum(SUM_OUT)))
            }
            Op::ChecksumState(object) => {
                self.fold(object);
                let out = Self::sum(SUM_OUT);
                self.push(Instr::Alu("xor", out, Value::Const(0xffff)));
                self.give(results, Value::Field(out))
            }
            _ => Ok(()),
        }
    }

    /// Replaces clearing a checksum, adding a header and getting the sum by the pipeline's
    /// instruction for it, if these come next. The instruction never gives zero: it gives 0xffff if
    /// the header's sum is zero or 0xffff.
    pub(super) fn sum_of_header(&mut self, stmts: &[Stmt]) -> Checked<bool> {
        let Some((object, args, results)) = cleared_and_got(stmts) else { return Ok(false) };
        let Some(header) = self.whole_header(args).filter(|_| self.is_only_got(object)) else {
            return Ok(false);
        };
        let out = Self::sum(SUM_OUT);
        let (other, done) = (self.label(), self.label());
        // The complement is added, too, so that the sum is never zero.
        self.push(Instr::Mov(out, Value::Const(0)));
        self.push(Instr::CheckAddHeader(out, header));
        self.compare(Test::NotEqual, Value::Field(out), Value::Const(0xffff), done);
        for field in 0..args.len() {
            let field = Value::Field(Field::Header(header, field));
            self.compare(Test::NotEqual, field, Value::Const(0), other);
        }
        self.push(Instr::Jump(done));
        self.push(Instr::Label(other));
        self.push(Instr::Mov(out, Value::Const(0)));
        self.push(Instr::Label(done));
        self.give(results, Value::Field(out))?;
        Ok(true)
    }

    /// Header with exactly these fields, if it consists of whole 32-bit words.
    fn whole_header(&mut self, args: &[Expr]) -> Option<usize> {
        let mut header = None;
        for (number, arg) in args.iter().enumerate() {
            let ExprKind::Slot(slot) = arg.kind else { return None };
            match self.place(slot) {
                Ok(Place::In(Field::Header(of, field)))
                    if field == number && *header.get_or_insert(of) == of => {}
                _ => return None,
            }
        }
        let fields = &self.headers[header?].fields;
        let bits: u32 = fields.iter().map(|(_, bits)| bits).sum();
        header.filter(|_| fields.len() == args.len() && bits.is_multiple_of(32))
    }

    /// True if a checksum is always cleared, added to and read at once, so that no intermediate
    /// state is needed.
    fn is_only_got(&self, object: usize) -> bool {
        let program = self.program;
        let states = program.parsers.iter().flat_map(|parser| &parser.states);
        let bodies = program.routines.iter().map(|routine| &routine.body);
        let mut bodies = bodies.chain(states.map(|state| &state.body));
        bodies.all(|body| only_got(body, object))
    }

    /// Field with the sum of a checksum.
    fn sum_of(&mut self, object: usize) -> Field {
        if let Some(sum) = self.sums.get(&object) {
            return *sum;
        }
        let name = self.names.meta(&self.program.objects[object].name);
        let sum = Field::Meta(self.metas.len());
        self.metas.push((name, 64));
        self.sums.insert(object, sum);
        sum
    }

    /// Adds consecutive values to a sum, or their complements: the contribution of all ones, less
    /// the values.
    fn add_words(&mut self, object: usize, args: &[Expr], name: &'static str) -> Checked<()> {
        let sum = self.sum_of(object);
        let mut at = 0;
        let mut constant = 0_u64;
        for arg in args {
            let width = arg.ty.width();
            at += width;
            // Distance of the value from the end of its last word.
            let shift = (16 - at % 16) % 16;
            if name == "sub" {
                constant = constant.wrapping_add(ones(width, shift));
            }
            let value = self.operand(arg)?;
            if let Value::Const(value) = value {
                let value = remainder(value, width, shift);
                constant = match name {
                    "sub" => constant.wrapping_sub(value),
                    _ => constant.wrapping_add(value),
                };
                continue;
            }
            if width + shift <= 48 {
                let value = self.shifted(value, width, shift);
                self.push(Instr::Alu(name, sum, value));
                continue;
            }
            for (low, width, shift) in [(0, 32, shift), (32, width - 32, shift)] {
                let part = self.temp(64);
                self.push(Instr::Mov(part, value));
                match low {
                    0 => self.push(Instr::Alu("and", part, Value::Const(0xffff_ffff))),
                    low => self.push(Instr::Alu("shr", part, Value::Const(low))),
                }
                let part = self.shifted(Value::Field(part), width, shift);
                self.push(Instr::Alu(name, sum, part));
            }
        }
        self.add_constant(object, sum, constant);
        Ok(())
    }

    fn shifted(&mut self, value: Value, width: u32, shift: u32) -> Value {
        if shift == 0 {
            return value;
        }
        let shifted = self.temp(width + shift);
        self.push(Instr::Mov(shifted, value));
        self.push(Instr::Alu("shl", shifted, Value::Const(shift.into())));
        Value::Field(shifted)
    }

    /// Adds to the constant that was added before, if no other instruction could come in between.
    fn add_constant(&mut self, object: usize, sum: Field, constant: u64) {
        if constant == 0 {
            return;
        }
        let before = self.pending.get(&object).copied();
        if let Some(
            Instr::Mov(_, Value::Const(known)) | Instr::Alu("add", _, Value::Const(known)),
        ) = before.and_then(|place| self.code.get_mut(place))
        {
            *known = known.wrapping_add(constant);
            return;
        }
        self.pending.insert(object, self.code.len());
        self.push(Instr::Alu("add", sum, Value::Const(constant)));
    }

    /// Computes the complement of the folded sum with the pipeline's instruction.
    ///
    /// The instruction never gives zero. If it gives 0xffff, only the sum shows whether that is
    /// right.
    fn fold(&mut self, object: usize) {
        let sum = Value::Field(self.sum_of(object));
        let (out, total) = (Self::sum(SUM_OUT), Self::sum(SUM_TOTAL));
        let done = self.label();
        self.push(Instr::Mov(total, sum));
        self.push(Instr::Mov(out, Value::Const(0xffff)));
        self.push(Instr::CheckAdd(out, total));
        self.compare(Test::NotEqual, Value::Field(out), Value::Const(0xffff), done);
        self.compare(Test::Equal, sum, Value::Const(0), done);
        self.push(Instr::Mov(out, Value::Const(0)));
        self.push(Instr::Label(done));
    }
}

/// The checksum that the first three statements clear, add to and read; the added values, and the
/// slots of the result.
fn cleared_and_got(stmts: &[Stmt]) -> Option<(usize, &[Expr], &[Slot])> {
    let [Stmt::Extern(clear), Stmt::Extern(add), Stmt::Extern(get), ..] = stmts else {
        return None;
    };
    match (clear.op, add.op, get.op) {
        (Op::ChecksumClear(one), Op::ChecksumAdd(other), Op::ChecksumGet(third))
            if one == other && other == third =>
        {
            Some((one, &add.args, &get.results))
        }
        _ => None,
    }
}

fn only_got(block: &[Stmt], object: usize) -> bool {
    let mut rest = block;
    while let Some(stmt) = rest.first() {
        let mut count = 1;
        if let Stmt::Extern(call) = stmt
            && let Op::ChecksumClear(own)
            | Op::ChecksumAdd(own)
            | Op::ChecksumSubtract(own)
            | Op::ChecksumGet(own)
            | Op::ChecksumState(own)
            | Op::ChecksumSetState(own) = call.op
            && own == object
        {
            match cleared_and_got(rest) {
                Some(_) => count = 3,
                None => return false,
            }
        }
        if !stmt.blocks().into_iter().all(|block| only_got(block, object)) {
            return false;
        }
        rest = &rest[count..];
    }
    true
}

/// Contribution of an all-ones value to a sum of words, at a distance from the end of its last
/// word.
fn ones(width: u32, shift: u32) -> u64 {
    match width + shift <= 48 {
        true => (Ty::Bit(width).mask() as u64) << shift,
        false => {
            let high = Ty::Bit(width - 32).mask() as u64;
            (0xffff_ffff_u64 << shift) + (high << shift)
        }
    }
}

/// Contribution of a value of `width` bits.
fn remainder(value: u64, width: u32, shift: u32) -> u64 {
    match width + shift <= 48 {
        true => value << shift,
        false => ((value & 0xffff_ffff) << shift) + (value >> 32 << shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_word_have_its_remainder() {
        let values = [(1, 16, 0), (u64::MAX, 64, 0), (0x1234_5678_9abc, 48, 8), (3, 8, 8)];
        for (value, width, shift) in values {
            let whole = (u128::from(value) << shift) % 0xffff;
            let is = u128::from(remainder(value, width, shift));
            assert_eq!(is % 0xffff, whole, "{value:x} {shift}");
            assert!(is <= u128::from(ones(width, shift)), "{value:x} {shift}");
        }
        assert_eq!(ones(16, 0), 0xffff);
        assert_eq!((ones(8, 8) + ones(8, 0)) % 0xffff, 0);
        assert_eq!(ones(64, 0) % 0xffff, 0);
    }
}
