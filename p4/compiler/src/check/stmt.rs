//! Statements.

use super::scope::{Entity, Value};
use super::types::Type;
use super::value::zeros;
use super::{Checker, Within};
use crate::ast::{Expr, ExprKind, Stmt, StmtKind};
use crate::ir;
use crate::source::{Checked, Span, problem};

/// Cases of a switch; labels that share a block are grouped.
type Cases<'s> = Vec<(Vec<&'s Expr>, &'s [Stmt])>;

impl Checker {
    pub(super) fn statements(&mut self, statements: &[Stmt]) -> Checked<()> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt) -> Checked<()> {
        self.count(statement.span)?;
        match &statement.kind {
            StmtKind::Empty => Ok(()),
            StmtKind::Block(statements) => {
                let ((), block) = self.scoped(|checker| checker.statements(statements))?;
                self.blocks.last_mut().expect("an open block").extend(block);
                Ok(())
            }
            StmtKind::Assign(target, value) => self.assign(target, value),
            StmtKind::Call(expr) => match &expr.kind {
                ExprKind::Call(call) => self.call(call, statement.span).map(drop),
                _ => problem(expr.span, "a call is expected here"),
            },
            StmtKind::If(condition, yes, no) => {
                if self.within == Within::Parser {
                    return problem(
                        statement.span,
                        "`if` in parsers is not supported; use `select`",
                    );
                }
                let condition = self.condition(condition)?;
                let ((), yes) = self.scoped(|checker| checker.statement(yes))?;
                let no = match no {
                    Some(no) => self.scoped(|checker| checker.statement(no))?.1,
                    None => Vec::new(),
                };
                self.emit(ir::Stmt::If(condition, yes, no));
                Ok(())
            }
            StmtKind::Switch(on, cases) => self.switch(on, cases, statement.span),
            StmtKind::Return(value) => self.return_from(value.as_ref(), statement.span),
            StmtKind::Exit => match self.within {
                Within::Control | Within::Action => {
                    self.emit(ir::Stmt::Exit);
                    Ok(())
                }
                _ => problem(statement.span, "`exit` stands in controls and actions only"),
            },
            StmtKind::Var(ty, name, value) => {
                let ty = self.ty(ty)?;
                self.variable(&ty, &name.text, name.span, value.as_ref())
            }
            StmtKind::Const(ty, name, value) => self.constant(ty, name, value),
        }
    }

    /// Declares a variable; without a value it is zero, and its headers are invalid.
    pub(super) fn variable(
        &mut self,
        ty: &Type,
        name: &str,
        span: Span,
        value: Option<&Expr>,
    ) -> Checked<()> {
        let values = match value {
            Some(expr) => {
                let value = self.expr(expr)?;
                self.coerce(value, ty, expr.span)?
            }
            None => zeros(ty),
        };
        let place = self.allocate(name, ty, span)?;
        self.store(&place, values);
        self.scopes.declare(name, span, Entity::Var(place))
    }

    pub(super) fn constant(
        &mut self,
        ty: &crate::ast::TypeRef,
        name: &crate::ast::Name,
        expr: &Expr,
    ) -> Checked<()> {
        let ty = self.ty(ty)?;
        let (value, calls) = self.block(|checker| {
            let value = checker.expr(expr)?;
            match (&ty, value) {
                (Type::Integer, value @ Value::Integer(_)) => Ok(value),
                (_, value) => Ok(Value::Leaves(ty.clone(), checker.coerce(value, &ty, expr.span)?)),
            }
        })?;
        let is_known = match &value {
            Value::Leaves(_, leaves) => leaves.iter().all(|leaf| leaf.as_constant().is_some()),
            _ => true,
        };
        match is_known && calls.is_empty() {
            true => self.scopes.declare(&name.text, name.span, Entity::Const(value)),
            false => {
                problem(expr.span, "a constant's value must be known when the program is compiled")
            }
        }
    }

    fn assign(&mut self, target: &Expr, expr: &Expr) -> Checked<()> {
        let place = self.target(target)?;
        let value = self.expr(expr)?;
        let values = self.coerce(value, &place.ty, expr.span)?;
        self.store(&place, values);
        Ok(())
    }

    fn return_from(&mut self, value: Option<&Expr>, span: Span) -> Checked<()> {
        let (ty, first) = self.result.clone();
        match (self.within, value) {
            (Within::Parser | Within::Top, _) => {
                problem(span, "`return` does not stand in parsers")
            }
            (Within::Function, Some(expr)) if ty != Type::Void => {
                let value = self.expr(expr)?;
                let values = self.coerce(value, &ty, expr.span)?;
                let numbered = values.into_iter().enumerate();
                let stores =
                    numbered.map(|(offset, value)| (first + offset as u32, value)).collect();
                self.emit(ir::Stmt::Assign(stores));
                self.emit(ir::Stmt::Return);
                Ok(())
            }
            (Within::Function, None) if ty != Type::Void => {
                problem(span, format!("this function returns {ty}; return a value"))
            }
            (_, Some(expr)) => problem(expr.span, "there is nothing to return a value to"),
            (_, None) => {
                self.emit(ir::Stmt::Return);
                Ok(())
            }
        }
    }

    fn switch(
        &mut self,
        on: &Expr,
        cases: &[(Expr, Option<Vec<Stmt>>)],
        span: Span,
    ) -> Checked<()> {
        if self.within == Within::Parser {
            return problem(span, "`switch` does not stand in parsers; use `select`");
        }
        let cases = grouped(cases)?;
        let (on, ty, table) = match self.asks_action_run(on) {
            Some((table, call)) => {
                let (_, action) = self.apply(table, call)?;
                (ir::Expr::slot(super::types::NUMBERED, action), Type::bits(32), Some(table))
            }
            None => {
                let value = self.expr(on)?;
                let (ty, mut leaves) = self.typed(value, on.span)?;
                match (leaves.pop(), leaves.is_empty()) {
                    (Some(leaf), true) => (leaf, ty, None),
                    _ => return problem(on.span, format!("a switch does not ask {ty}")),
                }
            }
        };
        let (mut arms, mut default, mut seen) = (Vec::new(), None, Vec::new());
        for (labels, body) in cases {
            let ((), body) = self.scoped(|checker| checker.statements(body))?;
            let mut values = Vec::new();
            for label in labels {
                if matches!(label.kind, ExprKind::DontCare) {
                    if default.replace(body.clone()).is_some() {
                        return problem(label.span, "`default` is there twice; delete one");
                    }
                    continue;
                }
                let value = self.label(label, &ty, table)?;
                if seen.contains(&value) {
                    return problem(label.span, "this case is there already; delete one");
                }
                seen.push(value);
                values.push(value);
            }
            if !values.is_empty() {
                arms.push((values, body));
            }
        }
        self.emit(ir::Stmt::Switch(on, arms, default.unwrap_or_default()));
        Ok(())
    }

    /// Value of a label: an action of the table, or a constant.
    fn label(&mut self, label: &Expr, ty: &Type, table: Option<usize>) -> Checked<u128> {
        let Some(table) = table else {
            let value = self.expr(label)?;
            return match self.scalar(value, ty, label.span)?.as_constant() {
                Some(value) => Ok(value),
                None => problem(label.span, "a case is known when the program is compiled"),
            };
        };
        let ExprKind::Name(name) = &label.kind else {
            return problem(label.span, "an action of the table is expected here");
        };
        let found = match self.find(name, label.span)? {
            Entity::Action(action) => {
                self.ir.tables[table].actions.iter().position(|one| one == action)
            }
            _ => None,
        };
        match found {
            Some(number) => Ok(number as u128),
            None => {
                problem(label.span, format!("`{name}` is no action of this table; list it there"))
            }
        }
    }
}

/// Groups labels without a block with the next label that has one.
fn grouped(cases: &[(Expr, Option<Vec<Stmt>>)]) -> Checked<Cases<'_>> {
    let mut groups: Cases<'_> = Vec::new();
    let mut labels = Vec::new();
    for (label, body) in cases {
        labels.push(label);
        if let Some(body) = body {
            groups.push((std::mem::take(&mut labels), body));
        }
    }
    match labels.first() {
        None => Ok(groups),
        Some(label) => problem(label.span, "the last case has no block; write one"),
    }
}
