//! Controls: each instance has its own variables, tables and actions.

use super::scope::Instance;
use super::types::Type;
use super::{Checker, Within};
use crate::ast::{Control, DeclKind, Name};
use crate::source::Checked;

impl Checker {
    pub(super) fn instance_of_control(
        &mut self,
        control: &Control,
        name: &Name,
    ) -> Checked<Instance> {
        self.count(name.span)?;
        let within = std::mem::replace(&mut self.within, Within::Control);
        let result = std::mem::replace(&mut self.result, (Type::Void, 0));
        self.path.push(name.text.clone());
        let (params, body) = self.scoped(|checker| {
            let params = checker.params(&control.params)?;
            for local in &control.locals {
                match &local.kind {
                    DeclKind::Action(params, body) => checker.action(&local.name, params, body)?,
                    DeclKind::Table(table) => checker.table(table, &local.name)?,
                    _ => checker.local(local)?,
                }
                checker.apply_annotations(local)?;
            }
            checker.scopes.enter();
            checker.statements(&control.body)?;
            checker.scopes.leave();
            Ok(params)
        })?;
        self.path.pop();
        let index = self.routine(&name.text, body, name.span)?;
        self.within = within;
        self.result = result;
        Ok(Instance { params, index })
    }
}
