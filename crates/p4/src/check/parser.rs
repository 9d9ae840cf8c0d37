//! Parsers: states, and what is asked to go from one to the next.

use super::scope::{Instance, Value};
use super::types::{self, Type};
use super::{Checker, Within};
use crate::ast::{Expr, ExprKind, Name, Parser, Transition};
use crate::ir::{self, Match, Next, Target};
use crate::source::{Checked, problem};

impl Checker {
    pub(super) fn instance_of_parser(&mut self, parser: &Parser, name: &Name) -> Checked<Instance> {
        self.count(name.span)?;
        let within = std::mem::replace(&mut self.within, Within::Parser);
        self.path.push(name.text.clone());
        let ((params, states), init) = self.scoped(|checker| {
            let params = checker.params(&parser.params)?;
            for local in &parser.locals {
                checker.local(local)?;
                checker.given(local)?;
            }
            Ok((params, checker.states(parser)?))
        })?;
        self.path.pop();
        self.within = within;
        let start = parser.states.iter().position(|state| &*state.name.text == "start");
        let Some(start) = start else {
            return problem(name.span, format!("the parser `{}` has no state `start`", name.text));
        };
        let name_ = self.full_name(&name.text);
        self.ir.parsers.push(ir::Parser { name: name_, init, states, start });
        let index = self.ir.parsers.len() - 1;
        match self.parser_depth(index) > super::MOST_CALLS {
            true => problem(name.span, format!("parsers nest deeper than {}", super::MOST_CALLS)),
            false => Ok(Instance { params, index }),
        }
    }

    fn states(&mut self, parser: &Parser) -> Checked<Vec<ir::State>> {
        let mut states = Vec::new();
        for (number, state) in parser.states.iter().enumerate() {
            let name = &state.name;
            let is_taken = matches!(&*name.text, "accept" | "reject")
                || parser.states[..number].iter().any(|other| other.name.text == name.text);
            if is_taken {
                return problem(name.span, format!("there is a state `{}` already", name.text));
            }
            let (next, body) = self.scoped(|checker| {
                checker.statements(&state.body)?;
                checker.transition(parser, &state.transition)
            })?;
            states.push(ir::State { name: name.text.clone(), body, next });
        }
        Ok(states)
    }

    fn transition(&mut self, parser: &Parser, transition: &Transition) -> Checked<Next> {
        let (keys, cases) = match transition {
            Transition::To(name) => return Ok(Next::To(target(parser, name)?)),
            Transition::Select(keys, cases) => (keys, cases),
        };
        let (mut exprs, mut all) = (Vec::new(), Vec::new());
        let mut tys = Vec::new();
        for (value, key) in self.in_order(keys)?.into_iter().zip(keys) {
            let (ty, leaves) = self.typed(value, key.span)?;
            match (ty.scalar(), leaves.len()) {
                (Some(_), 1) => exprs.extend(leaves),
                _ => {
                    return problem(
                        key.span,
                        format!("a select does not ask {ty}; ask its fields"),
                    );
                }
            }
            tys.push(ty);
        }
        for (sets, name) in cases {
            all.push((self.matches(sets, &tys)?, target(parser, name)?));
        }
        Ok(Next::Select(exprs, all))
    }

    /// What key sets ask: one for each key, or one `default` for all.
    pub(super) fn matches(&mut self, sets: &[Expr], tys: &[Type]) -> Checked<Vec<Match>> {
        let any = Match { value: 0, mask: 0 };
        if let [Expr { kind: ExprKind::DontCare, .. }] = sets {
            return Ok(vec![any; tys.len()]);
        }
        if sets.len() != tys.len() {
            let span = sets.first().map_or_else(Default::default, |set| set.span);
            let what = format!("{} values are expected here, and not {}", tys.len(), sets.len());
            return problem(span, what);
        }
        let mut matches = Vec::new();
        for (set, ty) in sets.iter().zip(tys) {
            matches.push(match &set.kind {
                ExprKind::DontCare => any,
                ExprKind::Mask(value, mask) => {
                    let mask = self.known(mask, ty)?;
                    Match { value: self.known(value, ty)? & mask, mask }
                }
                ExprKind::Range => return problem(set.span, "ranges are not supported"),
                _ => {
                    let scalar = ty.scalar().unwrap_or(types::NUMBERED);
                    Match { value: self.known(set, ty)?, mask: scalar.mask() }
                }
            });
        }
        Ok(matches)
    }

    /// A constant of a type.
    pub(super) fn known(&mut self, expr: &Expr, ty: &Type) -> Checked<u128> {
        let value: Value = self.expr(expr)?;
        match self.scalar(value, ty, expr.span)?.as_constant() {
            Some(value) => Ok(value),
            None => problem(expr.span, "this must be known when the program is compiled"),
        }
    }
}

fn target(parser: &Parser, name: &Name) -> Checked<Target> {
    match &*name.text {
        "accept" => Ok(Target::Accept),
        "reject" => Ok(Target::Reject),
        text => match parser.states.iter().position(|state| &*state.name.text == text) {
            Some(state) => Ok(Target::State(state)),
            None => problem(name.span, format!("there is no state `{text}`")),
        },
    }
}
