//! Places that can be written: variables, their fields, their bits.

use super::Checker;
use super::scope::{Entity, Place};
use super::types::Type;
use crate::ast::Binary;
use crate::ast::{Expr, ExprKind};
use crate::ir::{self, Slot, Stmt, Ty};
use crate::source::{Checked, Span, problem};

impl Checker {
    /// Place of an expression, if it is a variable, a field or bits of one.
    pub(super) fn place(&mut self, expr: &Expr) -> Checked<Option<Place>> {
        self.count(expr.span)?;
        match &expr.kind {
            ExprKind::Name(name) => match self.scopes.find(name) {
                Some(Entity::Var(place)) => Ok(Some(place.clone())),
                _ => Ok(None),
            },
            ExprKind::Member(base, field) => {
                let Some(place) = self.place(base)? else { return Ok(None) };
                match place.ty.field(&field.text) {
                    Some((ty, offset)) => {
                        let first = place.first + offset as Slot;
                        Ok(Some(Place { ty: ty.clone(), first, ..place }))
                    }
                    None => {
                        problem(field.span, format!("{} has no field `{}`", place.ty, field.text))
                    }
                }
            }
            ExprKind::Slice(base, high, low) => {
                let Some(place) = self.place(base)? else { return Ok(None) };
                let width = sliceable(&place.ty, base.span)?;
                let (high, low) = self.bounds(high, low, width)?;
                let below = place.slice.map_or(0, |(_, low)| low);
                let slice = Some((high + below, low + below));
                let ty = Type::bits(high - low + 1);
                Ok(Some(Place { ty, slice, ..place }))
            }
            _ => Ok(None),
        }
    }

    /// Bounds of a slice within `width` bits.
    pub(super) fn bounds(&mut self, high: &Expr, low: &Expr, width: u32) -> Checked<(u32, u32)> {
        let (from, to) = (self.integer(high)?, self.integer(low)?);
        match (u32::try_from(&from), u32::try_from(&to)) {
            (Ok(high), Ok(low)) if low <= high && high < width => Ok((high, low)),
            _ => problem(
                high.span.to(low.span),
                format!("[{from}:{to}] is no slice of {width} bits; the higher bit comes first"),
            ),
        }
    }

    /// A place that may be written.
    pub(super) fn target(&mut self, expr: &Expr) -> Checked<Place> {
        match self.place(expr)? {
            Some(place) if place.is_writable => Ok(place),
            Some(_) => problem(expr.span, "this cannot be written; copy it to a variable"),
            None => problem(expr.span, "this cannot be written; a variable or field is expected"),
        }
    }

    /// Values in a place.
    pub(super) fn load(&self, place: &Place) -> Vec<ir::Expr> {
        if let Some((high, low)) = place.slice {
            let whole = self.ir.slots[place.first as usize].1;
            let kind = ir::ExprKind::Slice(Box::new(ir::Expr::slot(whole, place.first)), high, low);
            let ty = Ty::Bit(high - low + 1);
            return vec![ir::Expr { ty, kind }];
        }
        let tys = place.ty.tys().into_iter().enumerate();
        tys.map(|(offset, ty)| ir::Expr::slot(ty, place.first + offset as Slot)).collect()
    }

    /// Assignments that give a place these values.
    pub(super) fn stores(&self, place: &Place, values: Vec<ir::Expr>) -> Vec<(Slot, ir::Expr)> {
        let Some((high, low)) = place.slice else {
            let numbered = values.into_iter().enumerate();
            return numbered.map(|(offset, value)| (place.first + offset as Slot, value)).collect();
        };
        let whole = self.ir.slots[place.first as usize].1;
        let value = values.into_iter().next().expect("a slice is one value");
        let mask = Ty::Bit(high - low + 1).mask() << low;
        let constant = |value| Box::new(ir::Expr::constant(whole, value));
        let operation = |operator, left, right| ir::Expr {
            ty: whole,
            kind: ir::ExprKind::Binary(operator, left, right),
        };
        let wide = Box::new(crate::fold::fold(whole, ir::ExprKind::Cast(Box::new(value))));
        let kept =
            operation(Binary::And, Box::new(ir::Expr::slot(whole, place.first)), constant(!mask));
        let moved = operation(Binary::ShiftLeft, wide, constant(low.into()));
        let value = operation(Binary::Or, Box::new(kept), Box::new(moved));
        vec![(place.first, value)]
    }

    pub(super) fn store(&mut self, place: &Place, values: Vec<ir::Expr>) {
        let stores = self.stores(place, values);
        self.emit(Stmt::Assign(stores));
    }
}

/// Width of a type whose bits can be sliced.
pub(super) fn sliceable(ty: &Type, span: Span) -> Checked<u32> {
    match ty.representation().scalar() {
        Some(Ty::Bit(width) | Ty::Int(width)) if !matches!(ty, Type::Error | Type::Enum(_)) => {
            Ok(width)
        }
        _ => problem(span, format!("{ty} has no bits to take some of; cast it to bit<W>")),
    }
}
