//! Values, and their conversion to the expected type.

use super::Checker;
use super::scope::Value;
use super::types::{self, Type};
use crate::ir::{self, Ty};
use crate::source::{Checked, Span, problem};
use num_bigint::BigInt;

impl Checker {
    /// Converts a value to the expected type: numbers get its width, lists its fields. No other
    /// implicit conversion exists, except from an enum's member to its representation.
    pub(super) fn coerce(&mut self, value: Value, ty: &Type, span: Span) -> Checked<Vec<ir::Expr>> {
        self.count(span)?;
        match value {
            Value::Leaves(from, leaves) if from == *ty => Ok(leaves),
            Value::Leaves(from, leaves) if is_represented(&from, ty) => Ok(leaves),
            Value::Integer(value) => self.sized(&value, ty, span),
            Value::List(values) => self.listed(values, ty, span),
            Value::Record(fields) => self.recorded(fields, ty, span),
            Value::Invalid if ty.is_header() => Ok(zeros(ty)),
            other => {
                let what = format!("{ty} is expected here, and not {}", other.what());
                problem(span, what)
            }
        }
    }

    fn sized(&mut self, value: &BigInt, ty: &Type, span: Span) -> Checked<Vec<ir::Expr>> {
        match ty.scalar() {
            Some(scalar) if takes_numbers(ty) => match types::fits(value, scalar) {
                true => Ok(vec![ir::Expr::constant(scalar, types::cut(value, scalar))]),
                false => problem(
                    span,
                    format!("{value} does not fit {scalar}; cast it, or widen the type"),
                ),
            },
            _ => problem(span, format!("{ty} is expected here, and not the number {value}")),
        }
    }

    fn listed(&mut self, values: Vec<Value>, ty: &Type, span: Span) -> Checked<Vec<ir::Expr>> {
        let wanted: Vec<Type> = match ty {
            Type::Struct(one) => one.fields.iter().map(|(_, ty)| ty.clone()).collect(),
            Type::Tuple(items) => items.to_vec(),
            _ => return problem(span, format!("{ty} is expected here, and not a list")),
        };
        if wanted.len() != values.len() {
            let what = format!("{ty} has {} fields, and the list {}", wanted.len(), values.len());
            return problem(span, what);
        }
        let mut leaves = valid(ty);
        for (value, ty) in values.into_iter().zip(&wanted) {
            leaves.extend(self.coerce(value, ty, span)?);
        }
        Ok(leaves)
    }

    fn recorded(
        &mut self,
        mut fields: Vec<(crate::ast::Name, Value)>,
        ty: &Type,
        span: Span,
    ) -> Checked<Vec<ir::Expr>> {
        let Type::Struct(one) = ty else {
            return problem(span, format!("{ty} is expected here, and not a list of fields"));
        };
        let mut leaves = valid(ty);
        for (name, ty) in &one.fields {
            let Some(place) = fields.iter().position(|(given, _)| given.text == *name) else {
                return problem(span, format!("the field `{name}` of {} is missing", one.name));
            };
            let (given, value) = fields.swap_remove(place);
            leaves.extend(self.coerce(value, ty, given.span)?);
        }
        match fields.first() {
            None => Ok(leaves),
            Some((name, _)) => {
                problem(name.span, format!("{} has no field `{}`", one.name, name.text))
            }
        }
    }

    /// Converts a value to one slot.
    pub(super) fn scalar(&mut self, value: Value, ty: &Type, span: Span) -> Checked<ir::Expr> {
        let mut leaves = self.coerce(value, ty, span)?;
        match (leaves.pop(), leaves.is_empty()) {
            (Some(leaf), true) => Ok(leaf),
            _ => problem(span, format!("a single value is expected here, and not {ty}")),
        }
    }

    /// Converts a value to its own type: lists become tuples; a bare number has no width.
    pub(super) fn typed(&mut self, value: Value, span: Span) -> Checked<(Type, Vec<ir::Expr>)> {
        match value {
            Value::Leaves(ty, leaves) => Ok((ty, leaves)),
            Value::List(values) => {
                let (mut items, mut all) = (Vec::new(), Vec::new());
                for value in values {
                    let (ty, leaves) = self.typed(value, span)?;
                    items.push(ty);
                    all.extend(leaves);
                }
                Ok((Type::Tuple(items.into()), all))
            }
            other => {
                let what = format!("{} has no width here; write one, such as 8w1", other.what());
                problem(span, what)
            }
        }
    }
}

/// True if a number can be a value of the type.
fn takes_numbers(ty: &Type) -> bool {
    matches!(ty, Type::Scalar(Ty::Bit(_) | Ty::Int(_)))
}

/// True if values of an enum are accepted for its representation.
fn is_represented(from: &Type, to: &Type) -> bool {
    matches!(from, Type::Enum(one) if one.representation.map(Type::Scalar).as_ref() == Some(to))
}

/// The validity slot in front of a header's fields.
fn valid(ty: &Type) -> Vec<ir::Expr> {
    match ty.is_header() {
        true => vec![ir::Expr::constant(Ty::Bool, 1)],
        false => Vec::new(),
    }
}

/// Zeros for all slots.
pub(super) fn zeros(ty: &Type) -> Vec<ir::Expr> {
    ty.tys().into_iter().map(|ty| ir::Expr::constant(ty, 0)).collect()
}
