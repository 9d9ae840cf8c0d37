//! Expressions: values into fields, and conditional jumps.

use super::code::{Field, Instr, Label, Test, Value};
use super::lower::{Lower, MOST_BITS, Place};
use crate::ast::{Binary, Unary};
use crate::ir::{Expr, ExprKind, Noted, Ty};
use crate::source::{Checked, Problem, Span};
use std::collections::BTreeSet;

impl Lower<'_> {
    /// Value of an expression, in any location.
    pub(super) fn operand(&mut self, expr: &Expr) -> Checked<Value> {
        match &expr.kind {
            ExprKind::Const(value) => match u64::try_from(*value) {
                Ok(value) => Ok(Value::Const(value)),
                Err(_) => Err(self.lacks(Span::default(), "numbers of more than 64 bits")),
            },
            ExprKind::Slot(slot) => {
                if let Some(value) = self.env.get(slot) {
                    return Ok(*value);
                }
                match self.place(*slot)? {
                    Place::In(field) => Ok(Value::Field(field)),
                    Place::Valid(_) => self.computed(expr),
                }
            }
            ExprKind::Cast(inner)
                if !matches!(inner.ty, Ty::Int(_)) && inner.ty.width() <= expr.ty.width() =>
            {
                self.operand(inner)
            }
            _ => self.computed(expr),
        }
    }

    fn computed(&mut self, expr: &Expr) -> Checked<Value> {
        if expr.ty.width() > MOST_BITS {
            return Err(self.lacks(Span::default(), "numbers of more than 64 bits"));
        }
        let temp = self.temp(expr.ty.width());
        self.into(temp, expr)?;
        Ok(Value::Field(temp))
    }

    /// Copies a value to a field, if it is none.
    pub(super) fn as_field(&mut self, value: Value) -> Field {
        match value {
            Value::Field(field) => field,
            constant => {
                let temp = self.temp(64);
                self.push(Instr::Mov(temp, constant));
                temp
            }
        }
    }

    /// Cuts a result to its type, if the field is wider.
    fn trim(&mut self, to: Field, ty: Ty) {
        if ty.width() < self.bits(to) {
            self.push(Instr::Alu("and", to, Value::Const(ty.mask() as u64)));
        }
    }

    /// Writes an expression's value to a field.
    pub(super) fn into(&mut self, to: Field, expr: &Expr) -> Checked<()> {
        match &expr.kind {
            ExprKind::Const(_) => {
                let value = self.operand(expr)?;
                self.push(Instr::Mov(to, value));
            }
            ExprKind::Slot(slot) => match self.env.get(slot) {
                Some(value) => self.push(Instr::Mov(to, *value)),
                None => match self.place(*slot)? {
                    Place::In(field) => self.push(Instr::Mov(to, Value::Field(field))),
                    Place::Valid(_) => self.truth(to, expr)?,
                },
            },
            ExprKind::Unary(operator, operand) => self.unary(to, *operator, operand, expr.ty)?,
            ExprKind::Binary(operator, left, right) => {
                self.binary(to, *operator, left, right, expr)?;
            }
            ExprKind::Mux(condition, yes, no) => {
                // The condition may use the target field.
                let temp = self.temp(self.bits(to));
                let (other, end) = (self.label(), self.label());
                self.jump(condition, false, other)?;
                self.into(temp, yes)?;
                self.push(Instr::Jump(end));
                self.push(Instr::Label(other));
                self.into(temp, no)?;
                self.push(Instr::Label(end));
                self.push(Instr::Mov(to, Value::Field(temp)));
            }
            ExprKind::Cast(inner) => self.cast(to, inner, expr.ty)?,
            ExprKind::Slice(inner, high, low) => self.slice(to, inner, (*high, *low))?,
        }
        Ok(())
    }

    fn unary(&mut self, to: Field, operator: Unary, operand: &Expr, ty: Ty) -> Checked<()> {
        match operator {
            Unary::Plus => self.into(to, operand)?,
            Unary::Not => {
                self.into(to, operand)?;
                self.push(Instr::Alu("xor", to, Value::Const(1)));
            }
            Unary::Complement => {
                self.into(to, operand)?;
                self.push(Instr::Alu("xor", to, Value::Const(ty.mask() as u64)));
            }
            Unary::Minus => {
                let temp = self.temp(ty.width());
                self.into(temp, operand)?;
                self.push(Instr::Mov(to, Value::Const(0)));
                self.push(Instr::Alu("sub", to, Value::Field(temp)));
                self.trim(to, ty);
            }
        }
        Ok(())
    }

    fn cast(&mut self, to: Field, inner: &Expr, ty: Ty) -> Checked<()> {
        if inner.ty.width() <= ty.width() {
            if matches!(inner.ty, Ty::Int(_)) && inner.ty.width() < ty.width() {
                let what = "widening of signed numbers";
                return Err(self.lacks_noted(Noted::Extension, what));
            }
            return self.into(to, inner);
        }
        let value = self.operand(inner)?;
        self.push(Instr::Mov(to, value));
        self.trim(to, ty);
        Ok(())
    }

    fn slice(&mut self, to: Field, inner: &Expr, (high, low): (u32, u32)) -> Checked<()> {
        let ty = Ty::Bit(high - low + 1);
        let value = self.operand(inner)?;
        if low == 0 {
            self.push(Instr::Mov(to, value));
        } else if self.bits(to) >= inner.ty.width() {
            self.push(Instr::Mov(to, value));
            self.push(Instr::Alu("shr", to, Value::Const(low.into())));
        } else {
            let temp = self.temp(inner.ty.width());
            self.push(Instr::Mov(temp, value));
            self.push(Instr::Alu("shr", temp, Value::Const(low.into())));
            self.push(Instr::Mov(to, Value::Field(temp)));
        }
        self.trim(to, ty);
        Ok(())
    }

    fn binary(
        &mut self,
        to: Field,
        operator: Binary,
        left: &Expr,
        right: &Expr,
        whole: &Expr,
    ) -> Checked<()> {
        let ty = whole.ty;
        match operator {
            Binary::Add => self.arithmetic("add", to, left, right, ty),
            Binary::Subtract => self.arithmetic("sub", to, left, right, ty),
            Binary::And => self.arithmetic("and", to, left, right, ty),
            Binary::Or => self.arithmetic("or", to, left, right, ty),
            Binary::Xor => self.arithmetic("xor", to, left, right, ty),
            Binary::ShiftLeft => self.shift("shl", to, left, right, ty),
            Binary::ShiftRight if matches!(left.ty, Ty::Int(_)) => {
                Err(self.lacks_operator(operator, true, "shifts of signed numbers to the right"))
            }
            Binary::ShiftRight => self.shift("shr", to, left, right, ty),
            Binary::Concat => {
                if self.uses(right, to) {
                    let temp = self.temp(self.bits(to));
                    self.binary(temp, operator, left, right, whole)?;
                    self.push(Instr::Mov(to, Value::Field(temp)));
                    return Ok(());
                }
                self.into(to, left)?;
                self.push(Instr::Alu("shl", to, Value::Const(right.ty.width().into())));
                let right = self.operand(right)?;
                self.push(Instr::Alu("or", to, right));
                Ok(())
            }
            Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessOrEqual
            | Binary::Greater
            | Binary::GreaterOrEqual
            | Binary::LogicalAnd
            | Binary::LogicalOr => self.truth(to, whole),
            Binary::Multiply
            | Binary::Divide
            | Binary::Modulo
            | Binary::SaturatingAdd
            | Binary::SaturatingSubtract => {
                let is_signed = matches!(left.ty, Ty::Int(_));
                let what = format!("operator `{}`", operator.symbol());
                Err(self.lacks_operator(operator, is_signed, &what))
            }
        }
    }

    fn lacks_operator(&self, operator: Binary, is_signed: bool, what: &str) -> Problem {
        self.lacks_noted(Noted::Operator(operator, is_signed), what)
    }

    fn arithmetic(
        &mut self,
        name: &'static str,
        to: Field,
        left: &Expr,
        right: &Expr,
        ty: Ty,
    ) -> Checked<()> {
        let (left, right) = match self.uses(right, to) {
            false => (left, right),
            true if name != "sub" && !self.uses(left, to) => (right, left),
            true => {
                let temp = self.temp(ty.width());
                self.arithmetic(name, temp, left, right, ty)?;
                self.push(Instr::Mov(to, Value::Field(temp)));
                return Ok(());
            }
        };
        self.into(to, left)?;
        let right = self.operand(right)?;
        self.push(Instr::Alu(name, to, right));
        if matches!(name, "add" | "sub") {
            self.trim(to, ty);
        }
        Ok(())
    }

    fn shift(
        &mut self,
        name: &'static str,
        to: Field,
        left: &Expr,
        right: &Expr,
        ty: Ty,
    ) -> Checked<()> {
        if let Some(by) = right.as_constant() {
            if by >= ty.width().into() {
                self.push(Instr::Mov(to, Value::Const(0)));
                return Ok(());
            }
            self.into(to, left)?;
            self.push(Instr::Alu(name, to, Value::Const(by as u64)));
        } else {
            let by = self.operand(right)?;
            let temp = self.temp(ty.width());
            self.into(temp, left)?;
            // The processor uses only six bits of the shift count.
            if right.ty.width() > 6 {
                let (small, field) = (self.label(), self.as_field(by));
                self.push(Instr::Compare(Test::Less, small, field, Value::Const(64)));
                self.push(Instr::Mov(temp, Value::Const(0)));
                self.push(Instr::Label(small));
            }
            self.push(Instr::Alu(name, temp, by));
            self.push(Instr::Mov(to, Value::Field(temp)));
        }
        if name == "shl" {
            self.trim(to, ty);
        }
        Ok(())
    }

    /// Writes 1 or 0 to a field.
    fn truth(&mut self, to: Field, expr: &Expr) -> Checked<()> {
        let (yes, end) = (self.label(), self.label());
        self.jump(expr, true, yes)?;
        self.push(Instr::Mov(to, Value::Const(0)));
        self.push(Instr::Jump(end));
        self.push(Instr::Label(yes));
        self.push(Instr::Mov(to, Value::Const(1)));
        self.push(Instr::Label(end));
        Ok(())
    }

    /// Jumps if a condition holds, or if it does not, as `when` says.
    pub(super) fn jump(&mut self, expr: &Expr, when: bool, to: Label) -> Checked<()> {
        match &expr.kind {
            ExprKind::Slot(slot) if !self.env.contains_key(slot) => {
                if let Place::Valid(header) = self.place(*slot)? {
                    self.push(Instr::IfValid(when, to, header));
                    return Ok(());
                }
            }
            ExprKind::Unary(Unary::Not, inner) => return self.jump(inner, !when, to),
            ExprKind::Cast(inner) if inner.ty.width() == 1 => return self.jump(inner, when, to),
            ExprKind::Binary(Binary::LogicalAnd, left, right) => {
                return self.both(left, right, when, to);
            }
            ExprKind::Binary(Binary::LogicalOr, left, right) => {
                return self.either(left, right, when, to);
            }
            ExprKind::Binary(operator, left, right) => {
                if let Some(done) = self.comparison(*operator, left, right, when, to) {
                    return done;
                }
            }
            _ => {}
        }
        let value = self.operand(expr)?;
        let test = if when { Test::NotEqual } else { Test::Equal };
        self.compare(test, value, Value::Const(0), to);
        Ok(())
    }

    fn both(&mut self, left: &Expr, right: &Expr, when: bool, to: Label) -> Checked<()> {
        let (no, before) = (self.label(), self.known.clone());
        self.jump(left, false, if when { no } else { to })?;
        self.suppose(left, true);
        self.jump(right, when, to)?;
        self.known = before;
        self.push(Instr::Label(no));
        Ok(())
    }

    fn either(&mut self, left: &Expr, right: &Expr, when: bool, to: Label) -> Checked<()> {
        let (yes, before) = (self.label(), self.known.clone());
        self.jump(left, true, if when { to } else { yes })?;
        self.suppose(left, false);
        self.jump(right, when, to)?;
        self.known = before;
        self.push(Instr::Label(yes));
        Ok(())
    }

    fn comparison(
        &mut self,
        operator: Binary,
        left: &Expr,
        right: &Expr,
        when: bool,
        to: Label,
    ) -> Option<Checked<()>> {
        // The comparison, and true if it must fail.
        let (test, fails) = match operator {
            Binary::Equal => (Test::Equal, false),
            Binary::NotEqual => (Test::Equal, true),
            Binary::Less => (Test::Less, false),
            Binary::GreaterOrEqual => (Test::Less, true),
            Binary::Greater => (Test::Greater, false),
            Binary::LessOrEqual => (Test::Greater, true),
            _ => return None,
        };
        if matches!(left.ty, Ty::Int(_)) && test != Test::Equal {
            let what = "order of signed numbers";
            return Some(Err(self.lacks_operator(operator, true, what)));
        }
        let values = self.operand(left).and_then(|left| Ok((left, self.operand(right)?)));
        Some(values.map(|(left, right)| match fails == when {
            false => self.compare(test, left, right, to),
            true => self.compare_not(test, left, right, to),
        }))
    }

    /// Jumps if a comparison fails.
    fn compare_not(&mut self, test: Test, left: Value, right: Value, to: Label) {
        match (test, right) {
            (Test::Equal, _) => self.compare(Test::NotEqual, left, right, to),
            (Test::Less, Value::Const(0)) | (Test::Greater, Value::Const(u64::MAX)) => {
                self.push(Instr::Jump(to));
            }
            (Test::Less, Value::Const(most)) => {
                self.compare(Test::Greater, left, Value::Const(most - 1), to);
            }
            (Test::Greater, Value::Const(least)) => {
                self.compare(Test::Less, left, Value::Const(least + 1), to);
            }
            _ => {
                let no = self.label();
                self.compare(test, left, right, no);
                self.push(Instr::Jump(to));
                self.push(Instr::Label(no));
            }
        }
    }

    /// Jumps if a comparison holds.
    pub(super) fn compare(&mut self, test: Test, left: Value, right: Value, to: Label) {
        match (left, right) {
            (Value::Const(left), Value::Const(right)) => {
                if test.holds(left, right) {
                    self.push(Instr::Jump(to));
                }
            }
            (Value::Const(_), Value::Field(right)) => {
                self.push(Instr::Compare(test.mirrored(), to, right, left));
            }
            (Value::Field(mut left), right) => {
                // Fields of headers are compared as bytes, from the first one.
                if let (Field::Header(..), Value::Field(other @ Field::Header(..))) = (left, right)
                    && self.bits(left) != self.bits(other)
                {
                    let temp = self.temp(self.bits(left));
                    self.push(Instr::Mov(temp, Value::Field(left)));
                    left = temp;
                }
                self.push(Instr::Compare(test, to, left, right));
            }
        }
    }

    /// True if an expression's value depends on a field.
    pub(super) fn uses(&mut self, expr: &Expr, field: Field) -> bool {
        let mut all = BTreeSet::new();
        expr.slots(&mut |slot| {
            all.insert(slot);
        });
        all.into_iter().any(|slot| match self.env.get(&slot) {
            Some(value) => *value == Value::Field(field),
            None => self.places.get(&self.sets.root(slot)) == Some(&Place::In(field)),
        })
    }
}
