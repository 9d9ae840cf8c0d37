//! Externs of the architecture: the operation of each call, and objects that are instances of
//! externs.

use super::scope::{Entity, Extern, ObjectRef, Place, Value};
use super::types::Type;
use super::{Checker, Within};
use crate::ast::{Arg, Call, Expr, ExprKind, Method, Name};
use crate::fold::fold;
use crate::ir::{self, Algorithm, ExternCall, ObjectKind, Op, Stmt, Ty};
use crate::source::{Checked, Span, problem};
use std::sync::Arc;

/// Most counters, meters or registers of one object.
const MOST_CELLS: u32 = 1 << 24;

/// A call with resolved types.
struct Settled {
    /// Values of the slots of each argument.
    args: Vec<Vec<ir::Expr>>,
    result: Type,
}

impl Checker {
    /// The method of that name with as many parameters as there are arguments.
    fn overload<'m>(
        &self,
        methods: &'m [Method],
        call: &Call,
        name: &str,
        span: Span,
    ) -> Checked<&'m Method> {
        let named = || methods.iter().filter(|one| one.result.is_some() && &*one.name.text == name);
        if named().next().is_none() {
            return problem(span, format!("there is no method `{name}`, or it is not supported"));
        }
        match named().find(|one| one.params.len() == call.args.len()) {
            Some(method) => Ok(method),
            None => problem(span, format!("`{name}` does not take {} arguments", call.args.len())),
        }
    }

    /// Resolves arguments and result of a call by the method's declaration; parameters are `in`.
    fn settle(
        &mut self,
        method: &Method,
        known: &[(Arc<str>, Type)],
        call: &Call,
        span: Span,
    ) -> Checked<Settled> {
        let names: Vec<_> = method.params.iter().map(|param| param.name.text.clone()).collect();
        let exprs: Vec<Expr> = self.bind(&names, &call.args, span)?.into_iter().cloned().collect();
        let values = self.in_order(&exprs)?;
        let mut bindings = known.to_vec();
        if !call.types.is_empty() {
            if call.types.len() != method.types.len() {
                return problem(
                    span,
                    format!("{} type arguments are expected", method.types.len()),
                );
            }
            for (name, ty) in method.types.iter().zip(&call.types) {
                bindings.push((name.clone(), self.ty(ty)?));
            }
        }
        let mut args = Vec::new();
        for ((param, value), expr) in method.params.iter().zip(values).zip(&exprs) {
            let ty = self.declared(&param.ty, method, &bindings)?;
            if ty == Type::Text {
                args.push(Vec::new());
                continue;
            }
            let leaves = match ty {
                Type::Variable(name) => {
                    let (ty, mut leaves) = self.typed(value, expr.span)?;
                    if ty.is_header() {
                        // The data of a header are its fields.
                        leaves.remove(0);
                    }
                    bindings.push((name, ty));
                    leaves
                }
                ty => self.coerce(value, &ty, expr.span)?,
            };
            args.push(leaves);
        }
        let result = match &method.result {
            Some(result) => self.declared(result, method, &bindings)?,
            None => Type::Void,
        };
        match &result {
            Type::Variable(name) => {
                problem(span, format!("say what `{name}` is, as in {}<bit<8>>()", method.name.text))
            }
            _ => Ok(Settled { args, result }),
        }
    }

    /// Resolves a type of a declaration with known type parameters.
    fn declared(
        &mut self,
        ty: &crate::ast::TypeRef,
        method: &Method,
        bindings: &[(Arc<str>, Type)],
    ) -> Checked<Type> {
        let aside = self.scopes.aside();
        self.scopes.enter();
        for name in &method.types {
            let variable = Entity::Type(Type::Variable(name.clone()));
            self.scopes.declare(name, ty.span, variable)?;
        }
        self.scopes.enter();
        for (name, bound) in bindings {
            // If a name has two bindings, the first holds.
            let _ = self.scopes.declare(name, ty.span, Entity::Type(bound.clone()));
        }
        let ty = self.ty(ty);
        self.scopes.back(aside);
        Ok(ty?.substitute(bindings))
    }

    fn ask(
        &mut self,
        op: Op,
        args: Vec<ir::Expr>,
        result: &Type,
        span: Span,
    ) -> Checked<Option<Value>> {
        if *result == Type::Void {
            self.emit(Stmt::Extern(ExternCall { op, args, results: Vec::new() }));
            return Ok(None);
        }
        let place = self.allocate("$result", result, span)?;
        let size = result.size().unwrap_or(0) as u32;
        let results = (place.first..place.first + size).collect();
        self.emit(Stmt::Extern(ExternCall { op, args, results }));
        Ok(Some(Value::Leaves(result.clone(), self.load(&place))))
    }

    pub(super) fn extern_function(
        &mut self,
        methods: &[Method],
        call: &Call,
        span: Span,
    ) -> Checked<Option<Value>> {
        let name = methods[0].name.text.clone();
        let method = self.overload(methods, call, &name, span)?.clone();
        match &*name {
            "verify" => self.only_in(&name, &[Within::Parser], span)?,
            "add_entry" | "set_entry_expire_time" | "restart_expire_timer" => {
                self.only_in(&name, &[Within::Action], span)?;
                self.times |= &*name != "add_entry";
            }
            "SelectByDirection" => {}
            _ => self.only_in(&name, &[Within::Control, Within::Action], span)?,
        }
        if &*name == "add_entry" {
            return self.add_entry(&method, call, span);
        }
        let Settled { args, result } = self.settle(&method, &[], call, span)?;
        let leaves = |args: Vec<Vec<ir::Expr>>| args.into_iter().flatten().collect::<Vec<_>>();
        match &*name {
            "verify" => {
                let mut args = leaves(args).into_iter();
                if let (Some(condition), Some(error)) = (args.next(), args.next()) {
                    self.emit(Stmt::Verify(condition, error));
                }
                Ok(None)
            }
            "SelectByDirection" => {
                let direction = args[0][0].clone();
                let to_host = ir::Expr::constant(direction.ty, 0);
                let kind = ir::ExprKind::Binary(
                    crate::ast::Binary::Equal,
                    Box::new(direction),
                    Box::new(to_host),
                );
                let is_to_host = fold(Ty::Bool, kind);
                let pairs = args[1].iter().zip(&args[2]);
                let chosen = pairs.map(|(yes, no)| {
                    let (yes, no) = (Box::new(yes.clone()), Box::new(no.clone()));
                    fold(yes.ty, ir::ExprKind::Mux(Box::new(is_to_host.clone()), yes, no))
                });
                Ok(Some(Value::Leaves(result, chosen.collect())))
            }
            "drop_packet" => self.ask(Op::Drop, leaves(args), &result, span),
            "send_to_port" => self.ask(Op::SendToPort, leaves(args), &result, span),
            "set_entry_expire_time" => self.ask(Op::SetExpireTime, leaves(args), &result, span),
            "restart_expire_timer" => self.ask(Op::RestartTimer, leaves(args), &result, span),
            _ => problem(span, format!("the extern `{name}` is not supported")),
        }
    }

    fn only_in(&self, name: &str, places: &[Within], span: Span) -> Checked<()> {
        let where_ = match places {
            [Within::Parser] => "parsers",
            [Within::Action] => "actions",
            _ => "controls and actions",
        };
        match places.contains(&self.within) {
            true => Ok(()),
            false => problem(span, format!("`{name}` is called in {where_} only")),
        }
    }

    /// A string names the entry's action, and the arguments must match that action.
    fn add_entry(&mut self, method: &Method, call: &Call, span: Span) -> Checked<Option<Value>> {
        let names: Vec<_> = method.params.iter().map(|param| param.name.text.clone()).collect();
        let exprs: Vec<Expr> = self.bind(&names, &call.args, span)?.into_iter().cloned().collect();
        let ExprKind::Text(text) = &exprs[0].kind else {
            return problem(exprs[0].span, "the name of an action is expected here, as a string");
        };
        let Some(Entity::Action(action)) = self.scopes.find(text).cloned() else {
            return problem(
                exprs[0].span,
                format!("there is no action `{text}`; declare it before"),
            );
        };
        let params = &self.action_params[action];
        if params.iter().any(|param| param.direction != crate::ast::Direction::None) {
            return problem(
                exprs[0].span,
                "an entry's action has parameters without direction only",
            );
        }
        let tys: Vec<Type> = params.iter().map(|param| param.ty.clone()).collect();
        let values = self.in_order(&exprs[1..])?;
        let [given, profile] =
            <[Value; 2]>::try_from(values).expect("two arguments follow the name");
        let given = match (given, tys.len()) {
            (single @ (Value::Integer(_) | Value::Leaves(..)), 1) => Value::List(vec![single]),
            (other, _) => other,
        };
        let wanted = Type::Tuple(tys.into());
        let given = match given {
            Value::Leaves(Type::Struct(one), leaves) => Value::Leaves(
                Type::Tuple(one.fields.iter().map(|(_, ty)| ty.clone()).collect()),
                leaves,
            ),
            other => other,
        };
        let profile_ty = self.declared(&method.params[2].ty, method, &[])?;
        let mut args = self.coerce(profile, &profile_ty, exprs[2].span)?;
        args.extend(self.coerce(given, &wanted, exprs[1].span)?);
        self.adds.push(action);
        self.ask(Op::AddEntry(action), args, &Type::BOOL, span)
    }

    pub(super) fn packet_method(
        &mut self,
        is_input: bool,
        method: &Name,
        call: &Call,
        span: Span,
    ) -> Checked<Option<Value>> {
        let of = if is_input { "packet_in" } else { "packet_out" };
        let Some(Entity::Extern(one)) = self.scopes.find_top(of).cloned() else {
            return problem(span, format!("there is no {of}; include <core.p4>"));
        };
        let declared = self.overload(&one.methods, call, &method.text, method.span)?.clone();
        match &*method.text {
            "extract" => {
                let place = self.target(&call.args[0].value)?;
                match self.header(&place) {
                    Some(header) => self.emit(Stmt::Extract(header)),
                    None => {
                        let what = format!("a header is extracted, and not {}", place.ty);
                        return problem(call.args[0].value.span, what);
                    }
                }
                Ok(None)
            }
            "lookahead" => self.lookahead(call, span),
            "emit" => {
                let value = &call.args[0].value;
                match self.place(value)? {
                    Some(place) => {
                        self.note(ir::Noted::Emit, value.span);
                        self.emit_headers(&place, value.span).map(|()| None)
                    }
                    None => problem(value.span, "a header, or a struct of headers, is emitted"),
                }
            }
            _ => {
                let Settled { args, result } = self.settle(&declared, &[], call, span)?;
                match &*method.text {
                    "advance" => {
                        self.note(ir::Noted::Advance, span);
                        self.emit(Stmt::Advance(args[0][0].clone()));
                        Ok(None)
                    }
                    _ => self.ask(Op::PacketLength, Vec::new(), &result, span),
                }
            }
        }
    }

    fn lookahead(&mut self, call: &Call, span: Span) -> Checked<Option<Value>> {
        let [ty] = &call.types[..] else {
            return problem(span, "say what is looked at, as in lookahead<bit<8>>()");
        };
        let ty = self.ty(ty)?;
        let place = self.allocate("$ahead", &ty, span)?;
        let mut fields: Vec<_> =
            ty.tys().into_iter().enumerate().map(|(n, ty)| (place.first + n as u32, ty)).collect();
        match (&ty, ty.is_header()) {
            (_, true) => {
                let (valid, ty) = fields.remove(0);
                self.emit(Stmt::Assign(vec![(valid, ir::Expr::constant(ty, 1))]));
            }
            (Type::Struct(one), false) if one.fields.iter().any(|(_, ty)| ty.is_header()) => {
                return problem(span, "headers within a struct are not looked at; take one header");
            }
            _ => {}
        }
        self.note(ir::Noted::Lookahead, span);
        self.emit(Stmt::Lookahead(fields));
        Ok(Some(Value::Leaves(ty, self.load(&place))))
    }

    fn header(&self, place: &Place) -> Option<ir::Header> {
        if !place.ty.is_header() {
            return None;
        }
        let fields = place.ty.tys().into_iter().enumerate().skip(1);
        let fields = fields.map(|(offset, ty)| (place.first + offset as u32, ty)).collect();
        Some(ir::Header { valid: place.first, fields })
    }

    fn emit_headers(&mut self, place: &Place, span: Span) -> Checked<()> {
        if let Some(header) = self.header(place) {
            self.emit(Stmt::Emit(header));
            return Ok(());
        }
        let Type::Struct(one) = &place.ty else {
            return problem(span, format!("headers are emitted, and not {}", place.ty));
        };
        let mut first = place.first;
        for (_, ty) in &one.fields {
            let field = Place { ty: ty.clone(), first, slice: None, is_writable: false };
            self.emit_headers(&field, span)?;
            first += ty.size().unwrap_or(0) as u32;
        }
        Ok(())
    }

    pub(super) fn object_method(
        &mut self,
        object: &Arc<ObjectRef>,
        method: &Name,
        call: &Call,
        span: Span,
    ) -> Checked<Option<Value>> {
        let declared = self.overload(&object.of.methods, call, &method.text, method.span)?.clone();
        let Settled { args, result } = self.settle(&declared, &object.types, call, span)?;
        let index = object.index;
        let zero = |ty| vec![ir::Expr::constant(ty, 0)];
        let count = args.len();
        let (op, args) = match (&*object.of.name, &*method.text, count) {
            ("Counter", _, 1) => (Op::Count(index), vec![args[0].clone(), zero(Ty::Bit(32))]),
            ("Counter", ..) => (Op::Count(index), args),
            ("Meter", _, 2) => {
                // The meter is colour-blind: the packet counts as green.
                let green = vec![ir::Expr::constant(super::types::NUMBERED, 1)];
                (Op::Meter(index), vec![args[0].clone(), green, args[1].clone()])
            }
            ("Meter", ..) => (Op::Meter(index), args),
            ("Register", "read", _) => (Op::RegisterRead(index), args),
            ("Register", ..) => (Op::RegisterWrite(index), args),
            ("Hash", _, 1) => (Op::Hash(index), args),
            ("Hash", ..) => return self.ranged_hash(index, args, &result, span),
            ("InternetChecksum", name, _) => {
                let op = match name {
                    "clear" => Op::ChecksumClear(index),
                    "add" => Op::ChecksumAdd(index),
                    "subtract" => Op::ChecksumSubtract(index),
                    "get" => Op::ChecksumGet(index),
                    "get_state" => Op::ChecksumState(index),
                    _ => Op::ChecksumSetState(index),
                };
                let bits: u32 = args.iter().flatten().map(|leaf| leaf.ty.width()).sum();
                if !bits.is_multiple_of(16) {
                    let what =
                        format!("checksums are of whole 16-bit words, and not of {bits} bits");
                    return problem(span, what);
                }
                (op, args)
            }
            ("Random", ..) => (Op::Random(index), args),
            ("Digest", ..) => (Op::Digest(index), args),
            (other, ..) => return problem(span, format!("the extern `{other}` is not supported")),
        };
        self.ask(op, args.into_iter().flatten().collect(), &result, span)
    }

    /// Checks base + hash % max with a power of two as max: the hash's lowest bits.
    fn ranged_hash(
        &mut self,
        index: usize,
        args: Vec<Vec<ir::Expr>>,
        result: &Type,
        span: Span,
    ) -> Checked<Option<Value>> {
        let Some(most) = args[2][0].as_constant().filter(|most| most.is_power_of_two()) else {
            return problem(span, "the most that get_hash takes is a constant power of two");
        };
        let hash = self.ask(Op::Hash(index), args[1].clone(), result, span)?;
        let (Some(Value::Leaves(ty, leaves)), Some(scalar)) = (hash, result.scalar()) else {
            return problem(span, "a hash has a result");
        };
        use crate::ast::Binary;
        let operation = |operator, left, right| {
            fold(scalar, ir::ExprKind::Binary(operator, Box::new(left), Box::new(right)))
        };
        let base = fold(scalar, ir::ExprKind::Cast(Box::new(args[0][0].clone())));
        let kept = operation(Binary::And, leaves[0].clone(), ir::Expr::constant(scalar, most - 1));
        Ok(Some(Value::scalar(ty, operation(Binary::Add, base, kept))))
    }

    /// Creates an instance of an extern.
    pub(super) fn object(
        &mut self,
        of: &Arc<Extern>,
        types: &[Type],
        args: &[Arg],
        name: &Name,
    ) -> Checked<()> {
        let span = name.span;
        let constructors = of.methods.iter().filter(|method| method.result.is_none());
        let Some(constructor) = constructors.into_iter().find(|one| one.params.len() == args.len())
        else {
            let what = format!("no constructor of {} takes {} arguments", of.name, args.len());
            return problem(span, what);
        };
        let constructor = constructor.clone();
        let names: Vec<_> =
            constructor.params.iter().map(|param| param.name.text.clone()).collect();
        let exprs: Vec<Expr> = self.bind(&names, args, span)?.into_iter().cloned().collect();
        let types: Vec<_> = of.types.iter().cloned().zip(types.iter().cloned()).collect();
        let call = Call {
            callee: exprs.first().cloned().unwrap_or(Expr { kind: ExprKind::Invalid, span }),
            types: Vec::new(),
            args: args.to_vec(),
        };
        let (settled, block) =
            self.block(|checker| checker.settle(&constructor, &types, &call, span))?;
        let constants: Option<Vec<Vec<u128>>> = settled
            .args
            .iter()
            .map(|leaves| leaves.iter().map(ir::Expr::as_constant).collect())
            .collect();
        let Some(constants) = constants.filter(|_| block.is_empty()) else {
            return problem(
                span,
                "arguments of constructors are known when the program is compiled",
            );
        };
        let kind = self.object_kind(of, &types, &constants, span)?;
        let index = self.ir.objects.len();
        let control = super::annotations::control_info(&of.name, &types, &constants);
        self.ir.objects.push(ir::Object { name: self.full_name(&name.text), kind, control });
        self.ir.places.objects.push(span);
        let object = ObjectRef { of: of.clone(), types, index };
        self.scopes.declare(&name.text, span, Entity::Object(Arc::new(object)))
    }

    fn object_kind(
        &self,
        of: &Extern,
        types: &[(Arc<str>, Type)],
        args: &[Vec<u128>],
        span: Span,
    ) -> Checked<ObjectKind> {
        let size = || match u32::try_from(args[0][0]) {
            Ok(size @ 1..=MOST_CELLS) => Ok(size),
            _ => problem(span, format!("an array has from 1 to {MOST_CELLS} places")),
        };
        let scalar = |place: usize| match types.get(place).and_then(|(_, ty)| ty.scalar()) {
            Some(ty @ Ty::Bit(_)) => Ok(ty),
            _ => problem(span, format!("type arguments of {} are bit<W>", of.name)),
        };
        Ok(match &*of.name {
            "Counter" => {
                scalar(1)?;
                ObjectKind::Counter { size: size()?, width: scalar(0)?.width() }
            }
            "Meter" => ObjectKind::Meter { size: size()?, bytes: args[1][0] == 1 },
            "Register" => {
                scalar(1)?;
                let tys = types[0].1.tys();
                if types[0].1.size().is_none() {
                    return problem(span, format!("registers of {} are not supported", types[0].1));
                }
                let initial = args.get(1).cloned().unwrap_or_else(|| vec![0; tys.len()]);
                ObjectKind::Register {
                    size: size()?,
                    initial: tys.into_iter().zip(initial).collect(),
                }
            }
            "Hash" => {
                let algorithm = match args[0][0] {
                    0 => Algorithm::Identity,
                    2 => Algorithm::Crc16,
                    3 => Algorithm::OnesComplement16,
                    _ => Algorithm::Crc32,
                };
                ObjectKind::Hash { algorithm, ty: scalar(0)? }
            }
            "InternetChecksum" => ObjectKind::Checksum,
            "Random" if args[0][0] <= args[1][0] => {
                ObjectKind::Random { ty: scalar(0)?, least: args[0][0], most: args[1][0] }
            }
            "Random" => return problem(span, "the least random number is not above the most"),
            "Digest" => ObjectKind::Digest { fields: types[0].1.members() },
            other => return problem(span, format!("instances of {other} are not supported")),
        })
    }
}
