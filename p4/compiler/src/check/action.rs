//! Actions.

use super::scope::Entity;
use super::types::Type;
use super::{Checker, Within};
use crate::ast::{Direction, Name, Param, Stmt};
use crate::ir;
use crate::source::{Checked, problem};

impl Checker {
    /// Checks an action of the program or of the present control.
    pub(super) fn action(&mut self, name: &Name, params: &[Param], body: &[Stmt]) -> Checked<()> {
        let mut is_from_entries = false;
        for param in params {
            match param.direction {
                Direction::None => is_from_entries = true,
                _ if is_from_entries => {
                    let what = "parameters without direction stand behind those with one";
                    return problem(param.name.span, what);
                }
                _ => {}
            }
        }
        let before = (self.within, std::mem::replace(&mut self.result, (Type::Void, 0)));
        self.within = Within::Action;
        let (adds, times) = (std::mem::take(&mut self.adds), std::mem::take(&mut self.times));
        self.path.push(name.text.clone());
        let (places, body) = self.scoped(|checker| {
            let places = checker.params(params)?;
            checker.statements(body)?;
            Ok(places)
        })?;
        self.path.pop();
        (self.within, self.result) = before;
        let added =
            (std::mem::replace(&mut self.adds, adds), std::mem::replace(&mut self.times, times));
        let routine = self.routine(&name.text, body, name.span)?;
        let mut all = Vec::new();
        for place in &places {
            let mut leaves = Vec::new();
            place.ty.leaves(&place.name, &mut leaves);
            let numbered = leaves.into_iter().enumerate();
            all.extend(
                numbered.map(|(offset, (name, ty))| (name, place.first + offset as u32, ty)),
            );
        }
        let action =
            ir::Action { name: self.full_name(&name.text), params: all, routine, id: None };
        self.ir.actions.push(action);
        self.added.push(added);
        self.action_params.push(places);
        let index = self.ir.actions.len() - 1;
        self.scopes.declare(&name.text, name.span, Entity::Action(index))
    }
}
