//! Tables.

use super::scope::{Entity, Value};
use super::types::Type;
use super::{Checker, Within};
use crate::ast::{self, Direction, Expr, ExprKind, Name};
use crate::ir::{self, MatchKind, Ty};
use crate::source::{Checked, Span, problem};

/// Most keys, and most actions, of a table.
const MOST_LISTED: usize = 64;

/// Most entries of a table, and the default number.
const MOST_ENTRIES: usize = 1 << 24;
const USUAL_ENTRIES: usize = 1024;

impl Checker {
    pub(super) fn table(&mut self, table: &ast::Table, name: &Name) -> Checked<()> {
        let (keys, tys) = self.keys(table)?;
        let (actions, only_default) = self.listed_actions(table, name)?;
        let mut found = ir::Table {
            name: self.full_name(&name.text),
            keys,
            actions,
            default: (0, Vec::new()),
            default_is_const: false,
            size: USUAL_ENTRIES,
            add_on_miss: false,
            expires: false,
            entries: Vec::new(),
            default_only: only_default,
            id: None,
        };
        let mut has_default = false;
        for (property, value, is_const) in &table.properties {
            match &*property.text {
                "default_action" => {
                    found.default = self.chosen(&found.actions, value)?;
                    found.default_is_const = *is_const;
                    has_default = true;
                }
                "size" => match usize::try_from(&self.integer(value)?) {
                    Ok(size @ 1..=MOST_ENTRIES) => found.size = size,
                    _ => {
                        let what = format!("a table has from 1 to {MOST_ENTRIES} entries");
                        return problem(value.span, what);
                    }
                },
                "add_on_miss" => found.add_on_miss = self.flag(value)?,
                "idle_timeout_with_auto_delete" => found.expires = self.flag(value)?,
                other => {
                    let what = format!("the table property `{other}` is not supported");
                    return problem(property.span, what);
                }
            }
        }
        if !has_default {
            self.default_to_no_action(&mut found, name.span)?;
        }
        for entry in &table.entries {
            let keys = self.matches(&entry.keys, &tys)?;
            check_lpm(&found.keys, &keys, entry.span)?;
            let (action, args) = self.chosen(&found.actions, &entry.action)?;
            if found.default_only.contains(&action) {
                return problem(entry.span, "this action is for the default only");
            }
            found.entries.push(ir::Entry { keys, action, args });
        }
        if found.entries.len() > found.size {
            let what = format!("there are more entries than the table's size, {}", found.size);
            return problem(name.span, what);
        }
        self.check_adding(&found, name.span)?;
        self.ir.tables.push(found);
        self.ir.places.tables.push(name.span);
        let index = self.ir.tables.len() - 1;
        self.scopes.declare(&name.text, name.span, Entity::Table(index))
    }

    fn keys(&mut self, table: &ast::Table) -> Checked<(Vec<ir::Key>, Vec<Type>)> {
        let (mut keys, mut tys) = (Vec::new(), Vec::new());
        for (expr, kind, given) in &table.keys {
            if keys.len() == MOST_LISTED {
                return problem(expr.span, format!("a table has at most {MOST_LISTED} keys"));
            }
            let (value, calls) = self.block(|checker| checker.expr(expr))?;
            if !calls.is_empty() {
                return problem(expr.span, "calls in keys are not supported; use a variable");
            }
            let (ty, mut leaves) = self.typed(value, expr.span)?;
            let leaf = match (leaves.pop(), leaves.is_empty()) {
                (Some(leaf), true) => leaf,
                _ => return problem(expr.span, format!("{ty} is no key; use its fields")),
            };
            let kind = match self.find(&kind.text, kind.span)? {
                Entity::MatchKind(Some(kind)) => *kind,
                _ => {
                    let what = format!("the match kind `{}` is not supported", kind.text);
                    return problem(kind.span, what);
                }
            };
            let is_first = keys.iter().all(|key: &ir::Key| key.kind != MatchKind::Lpm);
            if kind == MatchKind::Lpm && !is_first {
                return problem(expr.span, "a table has one lpm key at most");
            }
            let name = given.clone().unwrap_or_else(|| written(expr));
            keys.push(ir::Key { name, expr: leaf, kind });
            tys.push(ty);
        }
        Ok((keys, tys))
    }

    /// Actions of the table, and positions of those that are for the default only.
    fn listed_actions(
        &mut self,
        table: &ast::Table,
        name: &Name,
    ) -> Checked<(Vec<usize>, Vec<usize>)> {
        let (mut actions, mut only_default) = (Vec::new(), Vec::new());
        for action in &table.actions {
            let (text, span) = (&action.name.text, action.name.span);
            let found = match self.find(text, span)? {
                Entity::Action(found) => *found,
                other => {
                    return problem(span, format!("`{text}` is {} and no action", other.what()));
                }
            };
            if self.action_params[found].iter().any(|param| param.direction != Direction::None) {
                let what = "actions of tables have parameters without direction only";
                return problem(span, what);
            }
            if actions.contains(&found) || actions.len() == MOST_LISTED {
                let what = format!("a table lists an action once, and {MOST_LISTED} at most");
                return problem(span, what);
            }
            for annotation in &action.annotations {
                if &*annotation.name.text == "defaultonly" {
                    only_default.push(actions.len());
                }
            }
            actions.push(found);
        }
        match actions.is_empty() {
            true => problem(name.span, format!("the table `{}` lists no actions", name.text)),
            false => Ok((actions, only_default)),
        }
    }

    /// An action of the list with its arguments, in a default or an entry.
    fn chosen(&mut self, actions: &[usize], expr: &Expr) -> Checked<(usize, Vec<u128>)> {
        let (callee, args) = match &expr.kind {
            ExprKind::Call(call) => (&call.callee, &call.args[..]),
            _ => (expr, &[][..]),
        };
        let (ExprKind::Name(name) | ExprKind::TopName(name)) = &callee.kind else {
            return problem(expr.span, "an action of the table is expected here");
        };
        let found = match self.find(name, callee.span)? {
            Entity::Action(found) => actions.iter().position(|action| action == found),
            _ => None,
        };
        let Some(position) = found else {
            return problem(
                callee.span,
                format!("`{name}` is no action of this table; list it there"),
            );
        };
        let params = self.action_params[actions[position]].clone();
        let names: Vec<_> = params.iter().map(|param| param.name.clone()).collect();
        let exprs: Vec<Expr> = self.bind(&names, args, expr.span)?.into_iter().cloned().collect();
        let mut values = Vec::new();
        for (param, expr) in params.iter().zip(&exprs) {
            let value: Value = self.expr(expr)?;
            for leaf in self.coerce(value, &param.ty, expr.span)? {
                match leaf.as_constant() {
                    Some(value) => values.push(value),
                    None => return problem(expr.span, "an entry's arguments are constants"),
                }
            }
        }
        Ok((position, values))
    }

    fn default_to_no_action(&mut self, table: &mut ir::Table, span: Span) -> Checked<()> {
        let Some(Entity::Action(none)) = self.scopes.find_top("NoAction") else {
            return problem(span, "the table has no default_action; write one");
        };
        let none = *none;
        let position = table.actions.iter().position(|action| *action == none);
        table.default.0 = position.unwrap_or_else(|| {
            table.actions.push(none);
            table.actions.len() - 1
        });
        Ok(())
    }

    fn flag(&mut self, expr: &Expr) -> Checked<bool> {
        Ok(self.known(expr, &Type::BOOL)? == 1)
    }

    /// Checks that default actions add entries only for actions of the same table, and that only
    /// tables with expiry use timers.
    fn check_adding(&self, table: &ir::Table, span: Span) -> Checked<()> {
        if table.add_on_miss && table.keys.iter().any(|key| key.kind != MatchKind::Exact) {
            return problem(span, "a table that adds on a miss has exact keys only");
        }
        for (position, action) in table.actions.iter().enumerate() {
            let (adds, times) = &self.added[*action];
            let name = &self.ir.actions[*action].name;
            let may_add = table.add_on_miss && position == table.default.0;
            if !adds.is_empty() && !may_add {
                let what = format!(
                    "`{name}` adds entries; the table needs `add_on_miss = true`, and it as its \
                     default"
                );
                return problem(span, what);
            }
            if let Some(other) = adds.iter().find(|other| !table.actions.contains(other)) {
                let what = format!(
                    "`{name}` adds entries for `{}`, which the table does not list",
                    self.ir.actions[*other].name
                );
                return problem(span, what);
            }
            if *times && !table.expires {
                let what = format!(
                    "`{name}` sets timers; the table needs `idle_timeout_with_auto_delete = true`"
                );
                return problem(span, what);
            }
        }
        debug_assert_eq!(self.within, Within::Control);
        Ok(())
    }
}

/// Checks that the ones of a prefix's mask are its highest bits.
fn check_lpm(keys: &[ir::Key], matches: &[ir::Match], span: Span) -> Checked<()> {
    for (key, asked) in keys.iter().zip(matches) {
        let all = key.expr.ty.mask();
        let is_right = match key.kind {
            MatchKind::Exact => asked.mask == all,
            MatchKind::Lpm => is_prefix(asked.mask, key.expr.ty),
            MatchKind::Ternary => true,
        };
        if !is_right {
            let what = format!("the key `{}` wants one value, or a prefix if it is lpm", key.name);
            return problem(span, what);
        }
    }
    Ok(())
}

/// True if a mask's ones are its highest bits.
pub(crate) fn is_prefix(mask: u128, ty: Ty) -> bool {
    let inverse = !mask & ty.mask();
    inverse & inverse.wrapping_add(1) == 0
}

/// Name of a key from its expression: `hdr.ipv4.src`.
fn written(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Name(name) => name.to_string(),
        ExprKind::Member(base, field) => format!("{}.{}", written(base), field.text),
        ExprKind::Slice(base, ..) => format!("{}[]", written(base)),
        ExprKind::Call(call) => format!("{}()", written(&call.callee)),
        _ => "key".to_owned(),
    }
}
