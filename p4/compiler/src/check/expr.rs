//! Expressions. A call in an expression becomes a statement before the statement that contains it.
//! A value that was read before the call is saved in a slot, so that the call does not change it.

use super::place::sliceable;
use super::scope::{Entity, Value};
use super::types::{self, Type};
use super::{Checker, Within};
use crate::ast::{self, Expr, ExprKind, Unary};
use crate::fold::fold;
use crate::ir::{self, Slot, Stmt, Ty};
use crate::source::{Checked, Span, problem};

impl Checker {
    pub(super) fn expr(&mut self, expr: &Expr) -> Checked<Value> {
        self.count(expr.span)?;
        let span = expr.span;
        match &expr.kind {
            ExprKind::Number(value, None) => Ok(Value::Integer(value.clone())),
            ExprKind::Number(value, Some((width, is_signed))) => {
                let ty = match (is_signed, *width) {
                    (false, 1..=ir::MOST_BITS) => Ty::Bit(*width),
                    (true, 2..=ir::MOST_BITS) => Ty::Int(*width),
                    _ => {
                        let most = ir::MOST_BITS;
                        let what = format!("{width} bits are not supported; the most are {most}");
                        return problem(span, what);
                    }
                };
                match types::fits(value, ty) {
                    true => Ok(constant(Type::Scalar(ty), types::cut(value, ty))),
                    false => problem(span, format!("{value} does not fit {ty}; write a wider one")),
                }
            }
            ExprKind::Bool(value) => Ok(constant(Type::BOOL, (*value).into())),
            ExprKind::Text(_) => Ok(Value::Text),
            ExprKind::Name(name) => match self.find(name, span)?.clone() {
                Entity::Const(value) => Ok(value),
                Entity::Var(_) => self.loaded(expr),
                other => problem(span, format!("`{name}` is {} and has no value", other.what())),
            },
            ExprKind::TopName(name) => match self.scopes.find_top(name) {
                Some(Entity::Const(value)) => Ok(value.clone()),
                _ => problem(span, format!("there is no constant `{name}` at the top")),
            },
            ExprKind::Member(base, name) => self.member(expr, base, name),
            ExprKind::Slice(base, high, low) => self.slice(expr, base, high, low),
            ExprKind::Unary(operator, operand) => self.unary(*operator, operand, span),
            ExprKind::Binary(operator, left, right) => self.binary(*operator, left, right, span),
            ExprKind::Mux(condition, yes, no) => self.mux(condition, yes, no, span),
            ExprKind::Cast(ty, operand) => self.cast(ty, operand, span),
            ExprKind::Call(call) => match self.call(call, span)? {
                Some(value) => Ok(value),
                None => problem(span, "this call has no result; write it as a statement"),
            },
            ExprKind::List(items) => {
                let items = self.in_order(items)?;
                Ok(Value::List(items))
            }
            ExprKind::Record(fields) => {
                let exprs: Vec<Expr> = fields.iter().map(|(_, value)| value.clone()).collect();
                let values = self.in_order(&exprs)?;
                let names = fields.iter().map(|(name, _)| name.clone());
                Ok(Value::Record(names.zip(values).collect()))
            }
            ExprKind::Invalid => Ok(Value::Invalid),
            ExprKind::DontCare | ExprKind::Mask(..) | ExprKind::Range(..) => {
                problem(span, "this stands in cases only; a value is expected")
            }
        }
    }

    /// Evaluates expressions from left to right: calls of a later one do not change values of an
    /// earlier one.
    pub(super) fn in_order(&mut self, exprs: &[Expr]) -> Checked<Vec<Value>> {
        let mut values: Vec<Value> = Vec::new();
        for expr in exprs {
            let (value, calls) = self.block(|checker| checker.expr(expr))?;
            if !calls.is_empty() {
                for earlier in &mut values {
                    self.keep(earlier, expr.span)?;
                }
                self.blocks.last_mut().expect("an open block").extend(calls);
            }
            values.push(value);
        }
        Ok(values)
    }

    /// Copies a value to slots of its own, unless it is constant.
    pub(super) fn keep(&mut self, value: &mut Value, span: Span) -> Checked<()> {
        match value {
            Value::Leaves(_, leaves) => {
                for leaf in leaves.iter_mut().filter(|leaf| leaf.as_constant().is_none()) {
                    let slot = self.temporary(leaf.ty, span)?;
                    let kept = std::mem::replace(leaf, ir::Expr::slot(leaf.ty, slot));
                    self.emit(Stmt::Assign(vec![(slot, kept)]));
                }
                Ok(())
            }
            Value::List(values) => values.iter_mut().try_for_each(|value| self.keep(value, span)),
            Value::Record(fields) => {
                fields.iter_mut().try_for_each(|(_, value)| self.keep(value, span))
            }
            Value::Integer(_) | Value::Text | Value::Invalid => Ok(()),
        }
    }

    fn loaded(&mut self, expr: &Expr) -> Checked<Value> {
        match self.place(expr)? {
            Some(place) => Ok(Value::Leaves(place.ty.clone(), self.load(&place))),
            None => problem(expr.span, "a value is expected here"),
        }
    }

    fn member(&mut self, whole: &Expr, base: &Expr, name: &ast::Name) -> Checked<Value> {
        if let ExprKind::Name(text) = &base.kind {
            if &**text == "error" {
                let found = self.ir.errors.iter().position(|error| *error == name.text);
                return match found {
                    Some(number) => Ok(constant(Type::Error, number as u128)),
                    None => problem(name.span, format!("there is no error `{}`", name.text)),
                };
            }
            if let Some(Entity::Type(ty)) = self.scopes.find(text) {
                let Type::Enum(one) = ty else {
                    return problem(base.span, format!("{ty} is a type without members"));
                };
                let found = one.members.iter().find(|(member, _)| *member == name.text);
                return match found {
                    Some((_, value)) => Ok(constant(ty.clone(), *value)),
                    None => problem(name.span, format!("{ty} has no member `{}`", name.text)),
                };
            }
        }
        if let Some(place) = self.place(base)? {
            if place.ty.field(&name.text).is_none() {
                return problem(name.span, format!("{} has no field `{}`", place.ty, name.text));
            }
            return self.loaded(whole);
        }
        if let ExprKind::Call(call) = &base.kind
            && let Some(table) = self.applied(call)
        {
            return self.apply_result(table, call, name);
        }
        let Value::Leaves(ty, leaves) = self.expr(base)? else {
            return problem(base.span, "this has no fields");
        };
        match ty.field(&name.text) {
            Some((field, offset)) => {
                let size = field.size().unwrap_or(0);
                Ok(Value::Leaves(field.clone(), leaves[offset..offset + size].to_vec()))
            }
            None => problem(name.span, format!("{ty} has no field `{}`", name.text)),
        }
    }

    fn slice(&mut self, whole: &Expr, base: &Expr, high: &Expr, low: &Expr) -> Checked<Value> {
        if self.place(base)?.is_some() {
            return self.loaded(whole);
        }
        let value = self.expr(base)?;
        let (ty, leaves) = self.typed(value, base.span)?;
        let width = sliceable(&ty, base.span)?;
        let (high, low) = self.bounds(high, low, width)?;
        let operand = Box::new(leaves.into_iter().next().expect("one slot"));
        let ty = Ty::Bit(high - low + 1);
        Ok(Value::scalar(Type::Scalar(ty), fold(ty, ir::ExprKind::Slice(operand, high, low))))
    }

    fn unary(&mut self, operator: Unary, operand: &Expr, span: Span) -> Checked<Value> {
        let value = self.expr(operand)?;
        if let Value::Integer(value) = value {
            return match operator {
                Unary::Minus => Ok(Value::Integer(-value)),
                Unary::Plus => Ok(Value::Integer(value)),
                _ => problem(span, format!("`{}` wants a number with a width", operator.symbol())),
            };
        }
        let (ty, leaves) = self.typed(value, operand.span)?;
        let ty = ty.enum_representation();
        let is_right = match (&ty, operator) {
            (Type::Scalar(Ty::Bool), Unary::Not) => true,
            (Type::Scalar(Ty::Bit(_) | Ty::Int(_)), operator) => operator != Unary::Not,
            _ => false,
        };
        if !is_right {
            return problem(span, format!("`{}` does not go with {ty}", operator.symbol()));
        }
        let operand = leaves.into_iter().next().expect("one slot");
        let kind = ir::ExprKind::Unary(operator, Box::new(operand.clone()));
        Ok(Value::scalar(ty, fold(operand.ty, kind)))
    }

    /// Checks a condition.
    pub(super) fn condition(&mut self, expr: &Expr) -> Checked<ir::Expr> {
        let value = self.expr(expr)?;
        self.scalar(value, &Type::BOOL, expr.span)
    }

    fn mux(&mut self, condition: &Expr, yes: &Expr, no: &Expr, span: Span) -> Checked<Value> {
        let condition = self.condition(condition)?;
        let (yes_value, yes_calls) = self.block(|checker| checker.expr(yes))?;
        let (no_value, no_calls) = self.block(|checker| checker.expr(no))?;
        let ty = match (&yes_value, &no_value) {
            (Value::Leaves(ty, _), _) | (_, Value::Leaves(ty, _)) => ty.clone(),
            _ => return problem(span, "one of the two values must have a type; give it a width"),
        };
        let yes_leaves = self.coerce(yes_value, &ty, yes.span)?;
        let no_leaves = self.coerce(no_value, &ty, no.span)?;
        if yes_calls.is_empty() && no_calls.is_empty() {
            let pairs = yes_leaves.into_iter().zip(no_leaves);
            let leaves = pairs.map(|(yes, no)| {
                let condition = Box::new(condition.clone());
                fold(yes.ty, ir::ExprKind::Mux(condition, Box::new(yes), Box::new(no)))
            });
            return Ok(Value::Leaves(ty, leaves.collect()));
        }
        let result = self.allocate("$mux", &ty, span)?;
        let branch = |mut calls: ir::Block, stores: Vec<(Slot, ir::Expr)>| {
            calls.push(Stmt::Assign(stores));
            calls
        };
        let yes = branch(yes_calls, self.stores(&result, yes_leaves));
        let no = branch(no_calls, self.stores(&result, no_leaves));
        self.emit(Stmt::If(condition, yes, no));
        Ok(Value::Leaves(ty, self.load(&result)))
    }

    fn cast(&mut self, to: &ast::TypeRef, operand: &Expr, span: Span) -> Checked<Value> {
        let to = self.ty(to)?;
        let value = self.expr(operand)?;
        let (ty, leaves) = match value {
            Value::Integer(value) => match (&to, to.representation()) {
                (Type::Integer, _) => return Ok(Value::Integer(value)),
                (_, Type::Scalar(ty @ (Ty::Bit(_) | Ty::Int(_)))) => {
                    return Ok(constant(to, types::cut(&value, ty)));
                }
                _ => return problem(span, format!("a number cannot be cast to {to}")),
            },
            Value::Leaves(ty, leaves) => (ty, leaves),
            other => return Ok(Value::Leaves(to.clone(), self.coerce(other, &to, span)?)),
        };
        if ty == to {
            return Ok(Value::Leaves(ty, leaves));
        }
        if to == Type::Integer {
            return self.integer(operand).map(Value::Integer);
        }
        let is_right = match (ty.representation(), to.representation()) {
            (Type::Scalar(Ty::Bit(a)), Type::Scalar(Ty::Int(b))) => a == b,
            (Type::Scalar(Ty::Int(a)), Type::Scalar(Ty::Bit(b))) => a == b,
            (Type::Scalar(Ty::Bit(_)), Type::Scalar(Ty::Bit(_))) => true,
            (Type::Scalar(Ty::Int(_)), Type::Scalar(Ty::Int(_))) => true,
            (Type::Scalar(Ty::Bool), Type::Scalar(Ty::Bit(1))) => true,
            (Type::Scalar(Ty::Bit(1)), Type::Scalar(Ty::Bool)) => true,
            (from, to) => from == to,
        };
        match (is_right, to.scalar()) {
            (true, Some(scalar)) => {
                let operand = Box::new(leaves.into_iter().next().expect("one slot"));
                if matches!(operand.ty, Ty::Int(_)) {
                    self.note(ir::Noted::Extension, span);
                }
                Ok(Value::scalar(to, fold(scalar, ir::ExprKind::Cast(operand))))
            }
            _ => problem(span, format!("{ty} cannot be cast to {to}; cast to bit<W> in between")),
        }
    }

    /// Table that a call applies, if it applies one.
    fn applied(&self, call: &ast::Call) -> Option<usize> {
        let ExprKind::Member(base, method) = &call.callee.kind else { return None };
        let ExprKind::Name(name) = &base.kind else { return None };
        match self.scopes.find(name) {
            Some(Entity::Table(table)) if &*method.text == "apply" => Some(*table),
            _ => None,
        }
    }

    /// Checks `table.apply().hit` and `.miss`.
    fn apply_result(&mut self, table: usize, call: &ast::Call, name: &ast::Name) -> Checked<Value> {
        let (hit, _) = self.apply(table, call)?;
        let hit = ir::Expr::slot(Ty::Bool, hit);
        match &*name.text {
            "hit" => Ok(Value::scalar(Type::BOOL, hit)),
            "miss" => {
                let kind = ir::ExprKind::Unary(Unary::Not, Box::new(hit));
                Ok(Value::scalar(Type::BOOL, fold(Ty::Bool, kind)))
            }
            "action_run" => {
                problem(name.span, "`action_run` is what a `switch` asks; use it there")
            }
            other => problem(
                name.span,
                format!("applying a table tells hit, miss and action_run, not {other}"),
            ),
        }
    }

    /// Table whose `action_run` an expression reads.
    pub(super) fn asks_action_run<'e>(&self, expr: &'e Expr) -> Option<(usize, &'e ast::Call)> {
        let ExprKind::Member(base, name) = &expr.kind else { return None };
        let ExprKind::Call(call) = &base.kind else { return None };
        match &*name.text {
            "action_run" => Some((self.applied(call)?, call)),
            _ => None,
        }
    }

    /// Applies a table; returns the slots of the hit flag and of the action's number.
    pub(super) fn apply(&mut self, table: usize, call: &ast::Call) -> Checked<(Slot, Slot)> {
        let span = call.callee.span;
        if self.within != Within::Control {
            return problem(span, "a table is applied in a control's `apply`, not elsewhere");
        }
        if !call.args.is_empty() {
            return problem(span, "a table is applied without arguments");
        }
        let hit = self.temporary(Ty::Bool, span)?;
        let action = self.temporary(types::NUMBERED, span)?;
        self.emit(Stmt::Apply { table, hit, action });
        Ok((hit, action))
    }
}

/// A constant of a type.
pub(super) fn constant(ty: Type, value: u128) -> Value {
    let scalar = ty.scalar().expect("constants take one slot");
    Value::scalar(ty, ir::Expr::constant(scalar, value))
}
