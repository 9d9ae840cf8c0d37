//! Operators with two operands.

use super::Checker;
use super::scope::Value;
use super::types::Type;
use crate::ast::{Binary, Expr, Unary};
use crate::fold::fold;
use crate::ir::{self, MOST_BITS, Stmt, Ty};
use crate::source::{Checked, Span, problem};
use num_bigint::BigInt;

/// Longest shift of a number without a width, bits.
const MOST_SHIFT: u32 = 1024;

/// Most slots in one comparison: the resulting expression nests as deep.
const MOST_COMPARED: usize = 256;

impl Checker {
    pub(super) fn binary(
        &mut self,
        operator: Binary,
        left: &Expr,
        right: &Expr,
        span: Span,
    ) -> Checked<Value> {
        if matches!(operator, Binary::LogicalAnd | Binary::LogicalOr) {
            return self.logical(operator, left, right, span);
        }
        let mut values = self.in_order_pair(left, right)?;
        if let (Value::Integer(a), Value::Integer(b)) = (&values.0, &values.1) {
            return numbers(operator, a, b, span);
        }
        let is_signed = [&values.0, &values.1].into_iter().any(is_signed);
        self.note(ir::Noted::Operator(operator, is_signed), span);
        match operator {
            Binary::ShiftLeft | Binary::ShiftRight => self.shift(operator, values, span),
            Binary::Concat => {
                let (left_ty, left_leaves) = self.typed(values.0, left.span)?;
                let (right_ty, right_leaves) = self.typed(values.1, right.span)?;
                concat((left_ty, left_leaves), (right_ty, right_leaves), span)
            }
            _ => {
                // A number without a width gets the other operand's width.
                let ty = match (&values.0, &values.1) {
                    (Value::Leaves(ty, _), Value::Leaves(other, _)) => {
                        common(ty, other, operator, span)?
                    }
                    (Value::Leaves(ty, _), _) | (_, Value::Leaves(ty, _)) => ty
                        .enum_representation_if(
                            matches!(values.0, Value::Integer(_))
                                || matches!(values.1, Value::Integer(_)),
                        ),
                    _ => {
                        values.0 = self.tuple(values.0, left.span)?;
                        match &values.0 {
                            Value::Leaves(ty, _) => ty.clone(),
                            _ => return problem(span, "these cannot be compared"),
                        }
                    }
                };
                let left = self.coerce(values.0, &ty, left.span)?;
                let right = self.coerce(values.1, &ty, right.span)?;
                same(operator, &ty, left, right, span)
            }
        }
    }

    fn in_order_pair(&mut self, left: &Expr, right: &Expr) -> Checked<(Value, Value)> {
        let mut values = self.in_order(&[left.clone(), right.clone()])?;
        let (second, first) = (values.pop(), values.pop());
        Ok((first.expect("two values"), second.expect("two values")))
    }

    fn tuple(&mut self, value: Value, span: Span) -> Checked<Value> {
        let (ty, leaves) = self.typed(value, span)?;
        Ok(Value::Leaves(ty, leaves))
    }

    /// Checks `&&` and `||`: calls on the right run only if the left side does not decide.
    fn logical(
        &mut self,
        operator: Binary,
        left: &Expr,
        right: &Expr,
        span: Span,
    ) -> Checked<Value> {
        let left = self.condition(left)?;
        let (right, mut calls) = self.block(|checker| checker.condition(right))?;
        if calls.is_empty() {
            let kind = ir::ExprKind::Binary(operator, Box::new(left), Box::new(right));
            return Ok(Value::scalar(Type::BOOL, fold(Ty::Bool, kind)));
        }
        let result = self.temporary(Ty::Bool, span)?;
        calls.push(Stmt::Assign(vec![(result, right)]));
        let settled = Stmt::Assign(vec![(
            result,
            ir::Expr::constant(Ty::Bool, u128::from(operator == Binary::LogicalOr)),
        )]);
        self.emit(match operator {
            Binary::LogicalAnd => Stmt::If(left, calls, vec![settled]),
            _ => Stmt::If(left, vec![settled], calls),
        });
        Ok(Value::scalar(Type::BOOL, ir::Expr::slot(Ty::Bool, result)))
    }

    fn shift(
        &mut self,
        operator: Binary,
        (left, right): (Value, Value),
        span: Span,
    ) -> Checked<Value> {
        let (ty, leaves) = match left {
            Value::Integer(_) => {
                return problem(span, "a number that is shifted by a variable wants a width");
            }
            other => self.typed(other, span)?,
        };
        let ty = ty.enum_representation();
        let by = match right {
            Value::Integer(by) => match u32::try_from(&by) {
                Ok(by) => ir::Expr::constant(Ty::Bit(32), by.into()),
                Err(_) => return problem(span, "a number of bits to shift by is not negative"),
            },
            other => {
                let (by, leaves) = self.typed(other, span)?;
                match by.enum_representation() {
                    Type::Scalar(Ty::Bit(_)) => leaves.into_iter().next().expect("one slot"),
                    by => return problem(span, format!("bits to shift by are bit<W>, not {by}")),
                }
            }
        };
        match &ty {
            Type::Scalar(scalar @ (Ty::Bit(_) | Ty::Int(_))) => {
                let left = Box::new(leaves.into_iter().next().expect("one slot"));
                let kind = ir::ExprKind::Binary(operator, left, Box::new(by));
                Ok(Value::scalar(ty.clone(), fold(*scalar, kind)))
            }
            _ => problem(span, format!("{ty} cannot be shifted; cast it to bit<W>")),
        }
    }
}

/// Common type of both operands.
fn common(left: &Type, right: &Type, operator: Binary, span: Span) -> Checked<Type> {
    if left == right {
        let compares = matches!(operator, Binary::Equal | Binary::NotEqual);
        return Ok(left.enum_representation_if(!compares));
    }
    let (plain_left, plain_right) = (left.enum_representation(), right.enum_representation());
    match plain_left == plain_right {
        true => Ok(plain_left),
        false => {
            let symbol = operator.symbol();
            problem(
                span,
                format!("`{symbol}` wants two of one type, not {left} and {right}; cast one"),
            )
        }
    }
}

impl Type {
    /// Representation of an enum, if the program gives one; other types are unchanged.
    pub(super) fn enum_representation(&self) -> Self {
        match self {
            Self::Enum(_) => self.representation(),
            _ => self.clone(),
        }
    }

    fn enum_representation_if(&self, wanted: bool) -> Self {
        match wanted {
            true => self.enum_representation(),
            false => self.clone(),
        }
    }
}

/// Operators on numbers without a width.
fn numbers(operator: Binary, left: &BigInt, right: &BigInt, span: Span) -> Checked<Value> {
    let zero = BigInt::from(0);
    let truth = |value: bool| Ok(super::expr::constant(Type::BOOL, value.into()));
    let value = match operator {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide | Binary::Modulo if *left < zero || *right <= zero => {
            return problem(span, "division wants a number from 0 and a divisor from 1");
        }
        Binary::Divide => left / right,
        Binary::Modulo => left % right,
        Binary::ShiftLeft | Binary::ShiftRight => match u32::try_from(right) {
            Ok(by) if by <= MOST_SHIFT && operator == Binary::ShiftLeft => left << by,
            Ok(by) if by <= MOST_SHIFT => left >> by,
            _ => return problem(span, format!("a number is shifted by 0 to {MOST_SHIFT} bits")),
        },
        Binary::Equal => return truth(left == right),
        Binary::NotEqual => return truth(left != right),
        Binary::Less => return truth(left < right),
        Binary::LessOrEqual => return truth(left <= right),
        Binary::Greater => return truth(left > right),
        Binary::GreaterOrEqual => return truth(left >= right),
        _ => return problem(span, format!("`{}` wants a number with a width", operator.symbol())),
    };
    match value.bits() > u64::from(MOST_SHIFT) {
        true => problem(span, format!("this number has more than {MOST_SHIFT} bits")),
        false => Ok(Value::Integer(value)),
    }
}

fn concat(
    (left_ty, left): (Type, Vec<ir::Expr>),
    (right_ty, right): (Type, Vec<ir::Expr>),
    span: Span,
) -> Checked<Value> {
    let (left_ty, right_ty) = (left_ty.enum_representation(), right_ty.enum_representation());
    let (Type::Scalar(a @ (Ty::Bit(_) | Ty::Int(_))), Type::Scalar(b @ (Ty::Bit(_) | Ty::Int(_)))) =
        (&left_ty, &right_ty)
    else {
        return problem(span, format!("`++` does not go with {left_ty} and {right_ty}"));
    };
    let width = a.width() + b.width();
    if width > MOST_BITS {
        return problem(span, format!("{width} bits are not supported; the most are {MOST_BITS}"));
    }
    let ty = match a {
        Ty::Int(_) => Ty::Int(width),
        _ => Ty::Bit(width),
    };
    let operand = |leaves: Vec<ir::Expr>| Box::new(leaves.into_iter().next().expect("one slot"));
    let kind = ir::ExprKind::Binary(Binary::Concat, operand(left), operand(right));
    Ok(Value::scalar(Type::Scalar(ty), fold(ty, kind)))
}

/// Operators whose operands have one type.
fn same(
    operator: Binary,
    ty: &Type,
    left: Vec<ir::Expr>,
    right: Vec<ir::Expr>,
    span: Span,
) -> Checked<Value> {
    let is_number = matches!(ty, Type::Scalar(Ty::Bit(_) | Ty::Int(_)));
    let compares = matches!(
        operator,
        Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual
    );
    let is_right = match operator {
        Binary::Equal | Binary::NotEqual => ty.size().is_some(),
        Binary::Divide | Binary::Modulo => {
            return problem(span, "division is for numbers known when the program is compiled");
        }
        _ if compares => is_number || matches!(ty.representation(), Type::Scalar(Ty::Bit(_))),
        _ => is_number,
    };
    if !is_right {
        return problem(span, format!("`{}` does not go with {ty}", operator.symbol()));
    }
    if left.len() > MOST_COMPARED {
        return problem(span, format!("more than {MOST_COMPARED} fields are not compared at once"));
    }
    if matches!(operator, Binary::Equal | Binary::NotEqual) {
        let equal = equal(ty, &left, &right);
        let result = match operator {
            Binary::Equal => equal,
            _ => fold(Ty::Bool, ir::ExprKind::Unary(Unary::Not, Box::new(equal))),
        };
        return Ok(Value::scalar(Type::BOOL, result));
    }
    let operand = |leaves: Vec<ir::Expr>| leaves.into_iter().next().expect("one slot");
    let (left, right) = (operand(left), operand(right));
    let result = match compares {
        true => (Type::BOOL, Ty::Bool),
        false => (ty.clone(), left.ty),
    };
    let kind = ir::ExprKind::Binary(operator, Box::new(left), Box::new(right));
    Ok(Value::scalar(result.0, fold(result.1, kind)))
}

fn operation(operator: Binary, left: ir::Expr, right: ir::Expr) -> ir::Expr {
    fold(Ty::Bool, ir::ExprKind::Binary(operator, Box::new(left), Box::new(right)))
}

/// Compares two values slot by slot; two invalid headers are equal whatever their fields are.
fn equal(ty: &Type, left: &[ir::Expr], right: &[ir::Expr]) -> ir::Expr {
    let truth = ir::Expr::constant(Ty::Bool, 1);
    let all = |pairs: Vec<ir::Expr>| {
        let mut terms = pairs.into_iter();
        let first = terms.next().unwrap_or_else(|| truth.clone());
        terms.fold(first, |all, one| operation(Binary::LogicalAnd, all, one))
    };
    let parts: Vec<&Type> = match ty {
        Type::Struct(one) => one.fields.iter().map(|(_, ty)| ty).collect(),
        Type::Tuple(items) => items.iter().collect(),
        _ => return operation(Binary::Equal, left[0].clone(), right[0].clone()),
    };
    let mut at = usize::from(ty.is_header());
    let mut terms = Vec::new();
    for part in parts {
        let end = at + part.size().unwrap_or(0);
        terms.push(equal(part, &left[at..end], &right[at..end]));
        at = end;
    }
    let fields = all(terms);
    if !ty.is_header() {
        return fields;
    }
    let invalid = fold(Ty::Bool, ir::ExprKind::Unary(Unary::Not, Box::new(left[0].clone())));
    let either = operation(Binary::LogicalOr, invalid, fields);
    operation(
        Binary::LogicalAnd,
        operation(Binary::Equal, left[0].clone(), right[0].clone()),
        either,
    )
}

/// True if a value is a signed number.
fn is_signed(value: &Value) -> bool {
    matches!(value, Value::Leaves(ty, _) if matches!(ty.scalar(), Some(Ty::Int(_))))
}
