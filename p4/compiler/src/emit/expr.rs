//! Expressions.
//!
//! A value has the smallest unsigned type that holds its bits, and no bits beyond its own. Results
//! of Rust on whole types are cut to those bits; operators that Rust lacks use 128 bits.

use super::names::{Names, carrier, rust};
use crate::ast::{Binary, Unary};
use crate::ir::{Expr, ExprKind, Ty};

/// A literal of a type.
pub(super) fn literal(ty: Ty, value: u128) -> String {
    match ty {
        Ty::Bool => (value != 0).to_string(),
        _ if value < 100 => format!("{value}_{}", rust(ty)),
        _ => format!("{value:#x}_{}", rust(ty)),
    }
}

/// Cuts a text to a type's bits; the text has that type's carrier.
fn masked(ty: Ty, text: String) -> String {
    match ty.width() == carrier(ty.width()).1 {
        true => text,
        false => format!("{text} & {}", literal(ty, ty.mask())),
    }
}

/// Converts from 128 bits to a type.
pub(super) fn narrowed(ty: Ty, text: &str) -> String {
    match ty {
        Ty::Bool => format!("{text} & 1 == 1"),
        _ => masked(ty, format!("({text}) as {}", rust(ty))),
    }
}

/// True if the text of this expression needs no brackets.
fn is_whole(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Slot(_) => true,
        ExprKind::Unary(Unary::Plus, operand) => is_whole(operand),
        _ => false,
    }
}

impl Names<'_> {
    pub(super) fn expr(&self, expr: &Expr) -> String {
        let ty = expr.ty;
        match &expr.kind {
            ExprKind::Const(value) => literal(ty, *value),
            ExprKind::Slot(slot) => self.place(*slot).to_owned(),
            ExprKind::Unary(operator, operand) => {
                let text = self.operand(operand);
                match operator {
                    Unary::Not => format!("!{text}"),
                    Unary::Complement => masked(ty, format!("!{text}")),
                    Unary::Minus => masked(ty, format!("{text}.wrapping_neg()")),
                    Unary::Plus => self.expr(operand),
                }
            }
            ExprKind::Binary(operator, left, right) => self.binary(*operator, left, right, ty),
            ExprKind::Mux(condition, yes, no) => {
                let [condition, yes, no] = [condition, yes, no].map(|part| self.expr(part));
                format!("(if {condition} {{ {yes} }} else {{ {no} }})")
            }
            ExprKind::Cast(operand) => cast(operand.ty, ty, &self.operand(operand)),
            ExprKind::Slice(operand, high, low) => {
                let text = self.operand(operand);
                let shifted = if *low == 0 { text } else { format!("({text} >> {low})") };
                let shifted = format!("{shifted} as {}", rust(ty));
                let is_cut =
                    high - low + 1 == carrier(ty.width()).1 || high + 1 == operand.ty.width();
                if is_cut { shifted } else { masked(ty, shifted) }
            }
        }
    }

    /// An expression as an operand of another.
    pub(super) fn operand(&self, expr: &Expr) -> String {
        match is_whole(expr) {
            true => self.expr(expr),
            false => format!("({})", self.expr(expr)),
        }
    }

    /// An expression as 128 bits.
    pub(super) fn wide(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Const(value) => format!("{value:#x}"),
            _ => format!("{} as u128", self.operand(expr)),
        }
    }

    fn signed(&self, expr: &Expr) -> String {
        format!("signed({}, {})", expr.ty.width(), self.wide(expr))
    }

    fn binary(&self, operator: Binary, left: &Expr, right: &Expr, ty: Ty) -> String {
        let (l, r) = (self.operand(left), self.operand(right));
        let by = |what: &str| masked(ty, format!("{l}.{what}({r})"));
        let compared = |operator: &str| match left.ty {
            Ty::Int(_) => format!("{} {operator} {}", self.signed(left), self.signed(right)),
            _ => format!("{l} {operator} {r}"),
        };
        match operator {
            Binary::Add => by("wrapping_add"),
            Binary::Subtract => by("wrapping_sub"),
            Binary::Multiply => by("wrapping_mul"),
            Binary::SaturatingAdd | Binary::SaturatingSubtract => {
                self.saturating(operator == Binary::SaturatingAdd, left, right, ty)
            }
            Binary::Divide => format!("{l}.checked_div({r}).unwrap_or(0)"),
            Binary::Modulo => format!("{l}.checked_rem({r}).unwrap_or(0)"),
            Binary::ShiftLeft | Binary::ShiftRight => self.shift(operator, left, right, ty),
            Binary::And => format!("{l} & {r}"),
            Binary::Or => format!("{l} | {r}"),
            Binary::Xor => format!("{l} ^ {r}"),
            Binary::LogicalAnd => format!("{l} && {r}"),
            Binary::LogicalOr => format!("{l} || {r}"),
            Binary::Concat => {
                let (to, by) = (rust(ty), right.ty.width());
                match left.ty.width() {
                    0 => format!("{r} as {to}"),
                    _ => format!("({l} as {to}) << {by} | {r} as {to}"),
                }
            }
            Binary::Equal => format!("{l} == {r}"),
            Binary::NotEqual => format!("{l} != {r}"),
            Binary::Less => compared("<"),
            Binary::LessOrEqual => compared("<="),
            Binary::Greater => compared(">"),
            Binary::GreaterOrEqual => compared(">="),
        }
    }

    fn saturating(&self, adds: bool, left: &Expr, right: &Expr, ty: Ty) -> String {
        let what = if adds { "saturating_add" } else { "saturating_sub" };
        if let Ty::Int(width) = ty {
            let most = i128::MAX >> (128 - width);
            let sum = format!("{}.{what}({})", self.signed(left), self.signed(right));
            return narrowed(ty, &format!("{sum}.clamp({}, {most}) as u128", -most - 1));
        }
        let sum = format!("{}.{what}({})", self.operand(left), self.operand(right));
        match ty.width() == carrier(ty.width()).1 || !adds {
            true => sum,
            false => format!("{sum}.min({})", literal(ty, ty.mask())),
        }
    }

    fn shift(&self, operator: Binary, left: &Expr, right: &Expr, ty: Ty) -> String {
        let (wide, width) = (self.wide(left), left.ty.width());
        let is_left = operator == Binary::ShiftLeft;
        if let (Ty::Int(_), false) = (left.ty, is_left) {
            let by = format!("{}.min(127_u128)", self.operand_wide(right));
            return narrowed(ty, &format!("({} >> {by}) as u128", self.signed(left)));
        }
        match right.as_constant() {
            Some(by) if by >= u128::from(width) => literal(ty, 0),
            Some(by) if is_left => masked(ty, format!("{} << {by}", self.operand(left))),
            Some(by) => format!("{} >> {by}", self.operand(left)),
            None => {
                let what = if is_left { "shift_left" } else { "shift_right" };
                narrowed(ty, &format!("{what}({wide}, {})", self.wide(right)))
            }
        }
    }

    /// An expression as 128 bits, as an operand.
    fn operand_wide(&self, expr: &Expr) -> String {
        format!(
            "({})",
            match &expr.kind {
                ExprKind::Const(value) => format!("{value:#x}_u128"),
                _ => self.wide(expr),
            }
        )
    }
}

/// Converts a value to another type.
fn cast(from: Ty, to: Ty, text: &str) -> String {
    let (before, after) = (from.width(), to.width());
    match (from, to) {
        (Ty::Bool, Ty::Bool) => text.to_owned(),
        (_, Ty::Bool) => format!("{text} & 1 == 1"),
        (Ty::Int(width), _) if after > before => {
            narrowed(to, &format!("signed({width}, {text} as u128) as u128"))
        }
        _ => {
            let same = from != Ty::Bool && carrier(before) == carrier(after);
            let text = if same { text.to_owned() } else { format!("{text} as {}", rust(to)) };
            if after < before { masked(to, text) } else { text }
        }
    }
}
