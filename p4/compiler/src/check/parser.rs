//! Parsers: states, and the conditions of transitions.

use super::scope::{Instance, Value};
use super::types::{self, Type};
use super::{Checker, Within};
use crate::ast::{Expr, ExprKind, Name, Parser, Transition};
use crate::ir::{self, Match, Next, Target, Ty};
use crate::source::{Checked, Span, problem};

impl Checker {
    pub(super) fn instance_of_parser(&mut self, parser: &Parser, name: &Name) -> Checked<Instance> {
        self.count(name.span)?;
        let within = std::mem::replace(&mut self.within, Within::Parser);
        self.path.push(name.text.clone());
        let ((params, states), init) = self.scoped(|checker| {
            let params = checker.params(&parser.params)?;
            for local in &parser.locals {
                checker.local(local)?;
                checker.apply_annotations(local)?;
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
            let target = target(parser, name)?;
            all.extend(self.cases(sets, &tys)?.into_iter().map(|asked| (asked, target)));
        }
        Ok(Next::Select(exprs, all))
    }

    /// Matches of key sets; a range becomes as many masks as it needs.
    fn cases(&mut self, sets: &[Expr], tys: &[Type]) -> Checked<Vec<Vec<Match>>> {
        let is_range = |set: &Expr| matches!(set.kind, ExprKind::Range(..));
        if !sets.iter().any(is_range) {
            return Ok(vec![self.matches(sets, tys)?]);
        }
        check_count(sets, tys)?;
        let mut cases = vec![Vec::new()];
        for (set, ty) in sets.iter().zip(tys) {
            let asked = match &set.kind {
                ExprKind::Range(from, to) => self.range(from, to, ty, set.span)?,
                _ => vec![self.asked(set, ty)?],
            };
            if cases.len() * asked.len() > MOST_MASKS {
                let what = format!(
                    "these ranges come to more than {MOST_MASKS} masks; ask one key after the other"
                );
                return problem(set.span, what);
            }
            let longer = |case: &Vec<Match>| {
                let case = case.clone();
                asked.iter().map(move |one| [&case[..], &[*one]].concat()).collect::<Vec<_>>()
            };
            cases = cases.iter().flat_map(longer).collect();
        }
        for _ in &cases {
            self.count(sets[0].span)?;
        }
        Ok(cases)
    }

    fn range(&mut self, from: &Expr, to: &Expr, ty: &Type, span: Span) -> Checked<Vec<Match>> {
        let Some(scalar @ Ty::Bit(_)) = ty.scalar() else {
            return problem(span, format!("a range is of bit<W>, not {ty}"));
        };
        let (from, to) = (self.known(from, ty)?, self.known(to, ty)?);
        match from <= to {
            true => Ok(masks(from, to, scalar)),
            false => problem(span, "a range goes from the least to the most: `1 .. 5`"),
        }
    }

    /// Matches of key sets: one for each key, or one `default` for all.
    pub(super) fn matches(&mut self, sets: &[Expr], tys: &[Type]) -> Checked<Vec<Match>> {
        if let [Expr { kind: ExprKind::DontCare, .. }] = sets {
            return Ok(vec![ANY; tys.len()]);
        }
        check_count(sets, tys)?;
        sets.iter().zip(tys).map(|(set, ty)| self.asked(set, ty)).collect()
    }

    /// Match of one key set.
    fn asked(&mut self, set: &Expr, ty: &Type) -> Checked<Match> {
        match &set.kind {
            ExprKind::DontCare => Ok(ANY),
            ExprKind::Mask(value, mask) => {
                let mask = self.known(mask, ty)?;
                Ok(Match { value: self.known(value, ty)? & mask, mask })
            }
            ExprKind::Range(..) => {
                problem(set.span, "ranges are supported in `select` only; write values or masks")
            }
            _ => {
                let scalar = ty.scalar().unwrap_or(types::NUMBERED);
                Ok(Match { value: self.known(set, ty)?, mask: scalar.mask() })
            }
        }
    }

    /// Evaluates a constant of a type.
    pub(super) fn known(&mut self, expr: &Expr, ty: &Type) -> Checked<u128> {
        let value: Value = self.expr(expr)?;
        match self.scalar(value, ty, expr.span)?.as_constant() {
            Some(value) => Ok(value),
            None => problem(expr.span, "this must be known when the program is compiled"),
        }
    }
}

/// A match of every key.
const ANY: Match = Match { value: 0, mask: 0 };

/// Most masks for the ranges of one case.
const MOST_MASKS: usize = 1024;

fn check_count(sets: &[Expr], tys: &[Type]) -> Checked<()> {
    if sets.len() == tys.len() {
        return Ok(());
    }
    let span = sets.first().map_or_else(Default::default, |set| set.span);
    problem(span, format!("{} values are expected here, and not {}", tys.len(), sets.len()))
}

/// The fewest masks that together match the numbers of a range.
fn masks(mut from: u128, to: u128, ty: Ty) -> Vec<Match> {
    let ones = |bits: u32| u128::MAX.checked_shr(128 - bits).unwrap_or(0);
    let mut masks = Vec::new();
    loop {
        // The largest aligned block that begins here and ends within the range.
        let mut bits = from.trailing_zeros().min(ty.width());
        while ones(bits) > to - from {
            bits -= 1;
        }
        masks.push(Match { value: from, mask: ty.mask() & !ones(bits) });
        match from | ones(bits) {
            last if last == to => return masks,
            last => from = last + 1,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_masks_that_fit_their_numbers_once_and_no_others() {
        const BITS: u32 = 5;
        let all = 0..1_u128 << BITS;
        for (from, to) in all.clone().flat_map(|from| (from..1 << BITS).map(move |to| (from, to))) {
            let masks = masks(from, to, Ty::Bit(BITS));
            assert!(masks.len() <= 2 * BITS as usize - 2, "{from} .. {to}: {masks:?}");
            for value in all.clone() {
                let fit = masks.iter().filter(|one| value & one.mask == one.value).count();
                assert_eq!(fit, usize::from(from <= value && value <= to), "{from} .. {to}");
            }
        }
        let whole = masks(0, u128::MAX, Ty::Bit(128));
        assert_eq!(whole, [Match { value: 0, mask: 0 }]);
        assert_eq!(masks(1, u128::MAX - 1, Ty::Bit(128)).len(), 254);
    }
}
