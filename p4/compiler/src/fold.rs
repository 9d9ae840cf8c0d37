//! Results of operators: for constants at compile time, for values in the interpreter.

use crate::ast::{Binary, Unary};
use crate::ir::{Expr, ExprKind, MOST_BITS, Ty};

/// Extends a value's sign bit to all higher bits.
pub(crate) fn signed(ty: Ty, value: u128) -> i128 {
    let shift = MOST_BITS - ty.width();
    match (ty, shift) {
        (Ty::Int(_), shift) if shift < MOST_BITS => ((value << shift) as i128) >> shift,
        _ => value as i128,
    }
}

pub(crate) fn unary(operator: Unary, ty: Ty, value: u128) -> u128 {
    let result = match operator {
        Unary::Not => value ^ 1,
        Unary::Complement => !value,
        Unary::Minus => value.wrapping_neg(),
        Unary::Plus => value,
    };
    result & ty.mask()
}

/// Applies an operator to two values; types of the left one, the right one, and the result.
pub(crate) fn binary(
    operator: Binary,
    (left_ty, left): (Ty, u128),
    (right_ty, right): (Ty, u128),
    ty: Ty,
) -> u128 {
    let truth = u128::from;
    let less = |or_equal: bool| match left_ty {
        Ty::Int(_) => {
            let (left, right) = (signed(left_ty, left), signed(right_ty, right));
            truth(left < right || (or_equal && left == right))
        }
        _ => truth(left < right || (or_equal && left == right)),
    };
    let result = match operator {
        Binary::Add => left.wrapping_add(right),
        Binary::Subtract => left.wrapping_sub(right),
        Binary::SaturatingAdd | Binary::SaturatingSubtract => {
            saturating(operator == Binary::SaturatingAdd, ty, left, right)
        }
        Binary::Multiply => left.wrapping_mul(right),
        Binary::Divide => left.checked_div(right).unwrap_or(0),
        Binary::Modulo => left.checked_rem(right).unwrap_or(0),
        Binary::ShiftLeft => shift(right).and_then(|by| left.checked_shl(by)).unwrap_or(0),
        Binary::ShiftRight => match left_ty {
            Ty::Int(_) => {
                let by = shift(right).unwrap_or(u32::MAX).min(MOST_BITS - 1);
                (signed(left_ty, left) >> by) as u128
            }
            _ => shift(right).and_then(|by| left.checked_shr(by)).unwrap_or(0),
        },
        Binary::And | Binary::LogicalAnd => left & right,
        Binary::Or | Binary::LogicalOr => left | right,
        Binary::Xor => left ^ right,
        Binary::Concat => left.checked_shl(right_ty.width()).unwrap_or(0) | right,
        Binary::Equal => truth(left == right),
        Binary::NotEqual => truth(left != right),
        Binary::Less => less(false),
        Binary::LessOrEqual => less(true),
        Binary::Greater => less(true) ^ 1,
        Binary::GreaterOrEqual => less(false) ^ 1,
    };
    result & ty.mask()
}

fn shift(by: u128) -> Option<u32> {
    u32::try_from(by).ok()
}

fn saturating(adds: bool, ty: Ty, left: u128, right: u128) -> u128 {
    let Ty::Int(width) = ty else {
        let limited = |sum: u128| sum.min(ty.mask());
        return match adds {
            true => limited(left.saturating_add(right)),
            false => left.saturating_sub(right),
        };
    };
    let most = i128::MAX >> (MOST_BITS - width);
    let (left, right) = (signed(ty, left), signed(ty, right));
    let sum = match adds {
        true => left.saturating_add(right),
        false => left.saturating_sub(right),
    };
    sum.clamp(-most - 1, most) as u128
}

/// Converts a value to another type: cut or extended.
pub(crate) fn cast(from: Ty, to: Ty, value: u128) -> u128 {
    signed(from, value) as u128 & to.mask()
}

pub(crate) fn slice(value: u128, high: u32, low: u32) -> u128 {
    (value >> low) & Ty::Bit(high - low + 1).mask()
}

/// An expression with its constants folded.
pub(crate) fn fold(ty: Ty, kind: ExprKind) -> Expr {
    let known = |expr: &Expr| Some((expr.ty, expr.as_constant()?));
    let value = match &kind {
        ExprKind::Unary(operator, operand) => {
            known(operand).map(|(_, value)| unary(*operator, ty, value))
        }
        ExprKind::Binary(operator, left, right) => match (known(left), known(right)) {
            (Some(left), Some(right)) => Some(binary(*operator, left, right, ty)),
            _ => None,
        },
        ExprKind::Mux(condition, yes, no) => match known(condition) {
            Some((_, 0)) => return (**no).clone(),
            Some(_) => return (**yes).clone(),
            None => None,
        },
        ExprKind::Cast(operand) if operand.ty == ty => return (**operand).clone(),
        ExprKind::Cast(operand) => known(operand).map(|(from, value)| cast(from, ty, value)),
        ExprKind::Slice(operand, high, low) => {
            known(operand).map(|(_, value)| slice(value, *high, *low))
        }
        ExprKind::Const(_) | ExprKind::Slot(_) => None,
    };
    match value {
        Some(value) => Expr::constant(ty, value),
        None => Expr { ty, kind },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTE: Ty = Ty::Bit(8);
    const NIBBLE: Ty = Ty::Int(4);

    fn both(operator: Binary, ty: Ty, left: u128, right: u128) -> u128 {
        binary(operator, (ty, left), (ty, right), ty)
    }

    #[test]
    fn arithmetic_stays_within_its_width() {
        assert_eq!(both(Binary::Add, BYTE, 250, 10), 4);
        assert_eq!(both(Binary::Subtract, BYTE, 3, 5), 254);
        assert_eq!(both(Binary::SaturatingAdd, BYTE, 250, 10), 255);
        assert_eq!(both(Binary::SaturatingSubtract, BYTE, 3, 5), 0);
        assert_eq!(both(Binary::SaturatingAdd, NIBBLE, 7, 3), 7);
        assert_eq!(both(Binary::SaturatingSubtract, NIBBLE, 0b1000, 1), 0b1000);
        assert_eq!(both(Binary::ShiftRight, NIBBLE, 0b1000, 1), 0b1100);
        assert_eq!(both(Binary::ShiftRight, NIBBLE, 0b1000, 15), 0b1111);
        assert_eq!(both(Binary::ShiftLeft, BYTE, 1, 200), 0);
        assert_eq!(unary(Unary::Minus, BYTE, 1), 255);
        let wide = Ty::Bit(128);
        assert_eq!(both(Binary::Add, wide, u128::MAX, 1), 0);
        assert_eq!(both(Binary::SaturatingAdd, wide, u128::MAX, 1), u128::MAX);
    }

    #[test]
    fn signed_numbers_compare_as_such() {
        let less = |ty| binary(Binary::Less, (ty, 0b1111), (ty, 1), Ty::Bool);
        assert_eq!((less(NIBBLE), less(Ty::Bit(4))), (1, 0));
        assert_eq!(cast(NIBBLE, Ty::Int(8), 0b1111), 0xff);
        assert_eq!(cast(Ty::Bit(4), Ty::Bit(8), 0b1111), 0x0f);
        assert_eq!(slice(0xabcd, 11, 4), 0xbc);
    }
}
