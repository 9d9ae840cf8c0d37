//! Calls: of functions and actions, of parsers and controls, of methods of headers, packets and
//! externs.

use super::scope::{Entity, Instance, Param, Place, Value};
use super::types::Type;
use super::{Checker, Within};
use crate::ast::{Arg, Call, Direction, Expr, ExprKind, Name};
use crate::ir::{self, Slot, Stmt, Ty};
use crate::source::{Checked, Span, problem};
use std::sync::Arc;

/// An evaluated argument.
enum Passed {
    Value(Value, Span),
    Place(Place),
    Packet,
}

/// Assignments to parameters before a call, and to arguments after it.
type Copies = (Vec<(Slot, ir::Expr)>, Vec<(Slot, ir::Expr)>);

impl Checker {
    /// Checks a call; returns its result, if it has one.
    pub(super) fn call(&mut self, call: &Call, span: Span) -> Checked<Option<Value>> {
        self.count(span)?;
        match &call.callee.kind {
            ExprKind::Name(name) | ExprKind::TopName(name) => {
                let entity = match &call.callee.kind {
                    ExprKind::TopName(_) => self.scopes.find_top(name).cloned(),
                    _ => self.scopes.find(name).cloned(),
                };
                match entity {
                    Some(Entity::Function(function)) => {
                        self.refuse_types(call)?;
                        let copies = self.pass(&function.params, &call.args, span)?;
                        self.enter(function.routine, copies);
                        let result = Place {
                            ty: function.result.clone(),
                            first: function.first,
                            slice: None,
                            is_writable: false,
                        };
                        Ok((function.result != Type::Void)
                            .then(|| Value::Leaves(result.ty.clone(), self.load(&result))))
                    }
                    Some(Entity::Action(action)) => {
                        self.call_action(action, call, span).map(|()| None)
                    }
                    Some(Entity::ExternFunctions(methods)) => {
                        self.extern_function(&methods, call, span)
                    }
                    Some(other) => {
                        problem(span, format!("`{name}` is {} and cannot be called", other.what()))
                    }
                    None => problem(span, self.unknown(name)),
                }
            }
            ExprKind::Member(base, method) => self.method(base, method, call, span),
            _ => problem(span, "this cannot be called"),
        }
    }

    fn refuse_types(&self, call: &Call) -> Checked<()> {
        match call.types.first() {
            Some(ty) => problem(ty.span, "this is not generic; call it without type arguments"),
            None => Ok(()),
        }
    }

    fn enter(&mut self, routine: usize, (before, after): Copies) {
        if !before.is_empty() {
            self.emit(Stmt::Assign(before));
        }
        self.emit(Stmt::Call(routine, after));
    }

    fn method(
        &mut self,
        base: &Expr,
        method: &Name,
        call: &Call,
        span: Span,
    ) -> Checked<Option<Value>> {
        if let ExprKind::Name(name) = &base.kind {
            match self.scopes.find(name).cloned() {
                Some(Entity::Table(table)) if &*method.text == "apply" => {
                    return self.apply(table, call).map(|_| None);
                }
                Some(Entity::Object(object)) => {
                    return self.object_method(&object, method, call, span);
                }
                Some(Entity::Packet { is_input }) => {
                    return self.packet_method(is_input, method, call, span);
                }
                Some(Entity::Control(instance)) if &*method.text == "apply" => {
                    return self.apply_block(&instance, Within::Control, call, span).map(|()| None);
                }
                Some(Entity::Parser(instance)) if &*method.text == "apply" => {
                    return self.apply_block(&instance, Within::Parser, call, span).map(|()| None);
                }
                Some(Entity::ControlDecl(_) | Entity::ParserDecl(_)) => {
                    let what = "a type is not applied; declare an instance, and apply that";
                    return problem(span, what);
                }
                Some(Entity::Var(_) | Entity::Const(_)) | None => {}
                Some(other) => {
                    let what = format!("{} has no method `{}`", other.what(), method.text);
                    return problem(method.span, what);
                }
            }
        }
        self.value_method(base, method, call)
    }

    /// Methods of all values, or of all headers.
    fn value_method(&mut self, base: &Expr, method: &Name, call: &Call) -> Checked<Option<Value>> {
        let Some(place) = self.place(base)? else {
            return problem(method.span, format!("this has no method `{}`", method.text));
        };
        if let Some(arg) = call.args.first() {
            return problem(arg.value.span, format!("`{}` takes no arguments", method.text));
        }
        let valid = |value| Stmt::Assign(vec![(place.first, ir::Expr::constant(Ty::Bool, value))]);
        let is_header = place.ty.is_header();
        match &*method.text {
            "minSizeInBits" | "minSizeInBytes" => {
                let skipped = usize::from(is_header);
                let bits: u32 = place.ty.tys().iter().skip(skipped).map(|ty| ty.width()).sum();
                let is_bits = &*method.text == "minSizeInBits";
                let size = if is_bits { bits } else { bits.div_ceil(8) };
                Ok(Some(Value::Integer(size.into())))
            }
            "isValid" if is_header => {
                Ok(Some(Value::scalar(Type::BOOL, ir::Expr::slot(Ty::Bool, place.first))))
            }
            "setValid" | "setInvalid" if is_header => {
                self.target(base)?;
                self.emit(valid(u128::from(&*method.text == "setValid")));
                Ok(None)
            }
            _ => problem(method.span, format!("{} has no method `{}`", place.ty, method.text)),
        }
    }

    fn call_action(&mut self, action: usize, call: &Call, span: Span) -> Checked<()> {
        if !matches!(self.within, Within::Control | Within::Action) {
            return problem(span, "actions are called in controls and actions only");
        }
        self.refuse_types(call)?;
        let params = self.action_params[action].clone();
        let copies = self.pass(&params, &call.args, span)?;
        let (adds, times) = self.added[action].clone();
        self.adds.extend(adds);
        self.times |= times;
        self.enter(self.ir.actions[action].routine, copies);
        Ok(())
    }

    fn apply_block(
        &mut self,
        instance: &Arc<Instance>,
        within: Within,
        call: &Call,
        span: Span,
    ) -> Checked<()> {
        if self.within != within {
            return problem(span, "parsers are applied in parsers, and controls in controls, only");
        }
        let copies = self.pass(&instance.params, &call.args, span)?;
        if within == Within::Control {
            self.enter(instance.index, copies);
            return Ok(());
        }
        self.emit(Stmt::Assign(copies.0));
        self.emit(Stmt::Parse(instance.index));
        for copy in copies.1 {
            self.emit(Stmt::Assign(vec![copy]));
        }
        Ok(())
    }

    /// Arguments in the order of the parameters.
    pub(super) fn bind<'a>(
        &self,
        names: &[Arc<str>],
        args: &'a [Arg],
        span: Span,
    ) -> Checked<Vec<&'a Expr>> {
        if names.len() != args.len() {
            let what =
                format!("{} arguments are expected here, and not {}", names.len(), args.len());
            return problem(span, what);
        }
        let mut bound = vec![None; names.len()];
        for (number, arg) in args.iter().enumerate() {
            let place = match &arg.name {
                None => number,
                Some(given) => match names.iter().position(|name| *name == given.text) {
                    Some(place) => place,
                    None => {
                        return problem(
                            given.span,
                            format!("there is no parameter `{}`", given.text),
                        );
                    }
                },
            };
            if bound[place].replace(&arg.value).is_some() {
                return problem(arg.value.span, "this parameter has its argument already");
            }
        }
        Ok(bound.into_iter().flatten().collect())
    }

    /// Evaluates arguments from left to right: the copies before and after the call.
    fn pass(&mut self, params: &[Param], args: &[Arg], span: Span) -> Checked<Copies> {
        let names: Vec<_> = params.iter().map(|param| param.name.clone()).collect();
        let args = self.bind(&names, args, span)?;
        let mut passed: Vec<Passed> = Vec::new();
        for (param, arg) in params.iter().zip(args) {
            let (one, calls) = self.block(|checker| checker.argument(param, arg))?;
            if !calls.is_empty() {
                self.keep_passed(&mut passed)?;
            }
            self.blocks.last_mut().expect("an open block").extend(calls);
            passed.push(one);
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (param, one) in params.iter().zip(passed) {
            let own =
                Place { ty: param.ty.clone(), first: param.first, slice: None, is_writable: true };
            match one {
                Passed::Packet => {}
                Passed::Value(value, span) => {
                    let values = self.coerce(value, &param.ty, span)?;
                    before.extend(self.stores(&own, values));
                }
                Passed::Place(place) => {
                    let values = match param.direction {
                        Direction::Out => super::value::zeros(&param.ty),
                        _ => self.load(&place),
                    };
                    before.extend(self.stores(&own, values));
                    after.extend(self.stores(&place, self.load(&own)));
                }
            }
        }
        Ok((before, after))
    }

    fn keep_passed(&mut self, passed: &mut [Passed]) -> Checked<()> {
        for one in passed {
            if let Passed::Value(value, span) = one {
                let span = *span;
                self.keep(value, span)?;
            }
        }
        Ok(())
    }

    fn argument(&mut self, param: &Param, arg: &Expr) -> Checked<Passed> {
        if let Type::Extern(wanted, _) = &param.ty {
            let is_same = match &arg.kind {
                ExprKind::Name(name) => match self.scopes.find(name) {
                    Some(Entity::Packet { is_input: true }) => &**wanted == "packet_in",
                    Some(Entity::Packet { is_input: false }) => &**wanted == "packet_out",
                    _ => false,
                },
                _ => false,
            };
            return match is_same {
                true => Ok(Passed::Packet),
                false => problem(arg.span, format!("the {wanted} is expected here")),
            };
        }
        match param.direction {
            Direction::In | Direction::None => Ok(Passed::Value(self.expr(arg)?, arg.span)),
            Direction::Out if matches!(arg.kind, ExprKind::DontCare) => {
                Ok(Passed::Place(self.allocate("$unused", &param.ty, arg.span)?))
            }
            Direction::Out | Direction::InOut => {
                let place = self.target(arg)?;
                match place.ty == param.ty {
                    true => Ok(Passed::Place(place)),
                    false => {
                        let what = format!("{} is expected here, and not {}", param.ty, place.ty);
                        problem(arg.span, what)
                    }
                }
            }
        }
    }
}
