//! Declarations at the top level: types, constants, errors, externs; other declarations are
//! dispatched.

use super::scope::{Entity, Extern, Function};
use super::types::{Enum, Struct, Type};
use super::{Checker, MOST_SLOTS, Within};
use crate::ast::{Decl, DeclKind, Expr, Name, TypeRef};
use crate::ir::{self, Ty};
use crate::source::{Checked, problem};
use std::sync::Arc;

/// Greatest nesting depth of types.
const MOST_TYPE_DEPTH: usize = 16;

/// Most fields of a struct or header.
const MOST_FIELDS: usize = 256;

impl Checker {
    pub(super) fn top(&mut self, decl: &Decl) -> Checked<()> {
        let (name, span) = (&*decl.name.text, decl.name.span);
        self.count(span)?;
        let entity = match &decl.kind {
            DeclKind::Const(ty, value) => return self.constant(ty, &decl.name, value),
            DeclKind::Typedef(ty) => Entity::Type(self.shallow(ty)?),
            DeclKind::NewType(ty) => {
                let inner = self.shallow(ty)?;
                match inner.scalar() {
                    Some(_) => Entity::Type(Type::New(decl.name.text.clone(), Arc::new(inner))),
                    None => {
                        return problem(
                            ty.span,
                            format!("{inner} cannot become a type of its own"),
                        );
                    }
                }
            }
            DeclKind::Struct(fields) => Entity::Type(self.record(&decl.name, fields, false)?),
            DeclKind::Header(fields) => Entity::Type(self.record(&decl.name, fields, true)?),
            DeclKind::Enum(ty, members) => {
                Entity::Type(self.enumeration(&decl.name, ty.as_ref(), members)?)
            }
            DeclKind::Error(names) => return self.errors(names),
            DeclKind::MatchKind(names) => return self.match_kinds(names),
            DeclKind::Extern(types, methods) => Entity::Extern(Arc::new(Extern {
                name: decl.name.text.clone(),
                types: types.clone(),
                methods: methods.clone(),
            })),
            DeclKind::ExternFunction(method) => Entity::ExternFunctions(Arc::new([method.clone()])),
            DeclKind::Function(result, params, body) => {
                return self.function(&decl.name, result, params, body);
            }
            DeclKind::Action(params, body) => {
                return self.action(&decl.name, params, body);
            }
            DeclKind::ParserType(signature) => Entity::BlockType(Arc::new(signature.clone()), true),
            DeclKind::ControlType(signature) => {
                Entity::BlockType(Arc::new(signature.clone()), false)
            }
            DeclKind::Package(signature) => Entity::Package(Arc::new(signature.clone())),
            DeclKind::Parser(parser) => {
                self.tried(|checker| checker.instance_of_parser(parser, &decl.name).map(drop))?;
                Entity::ParserDecl(parser.clone())
            }
            DeclKind::Control(control) => {
                self.tried(|checker| checker.instance_of_control(control, &decl.name).map(drop))?;
                Entity::ControlDecl(control.clone())
            }
            DeclKind::Instance(ty, args) => return self.package(ty, args, &decl.name),
            DeclKind::Var(..) | DeclKind::Table(_) => {
                return problem(span, "this is declared in parsers and controls only");
            }
        };
        // Externs are declared in the architecture's text only.
        let is_extern = matches!(entity, Entity::Extern(_) | Entity::ExternFunctions(_));
        if is_extern && span.text == 0 {
            let what = format!("the extern `{name}` is none of the architecture's; delete it");
            return problem(span, what);
        }
        self.scopes.declare(name, span, entity)
    }

    /// Checks and discards the results.
    fn tried(&mut self, check: impl FnOnce(&mut Self) -> Checked<()>) -> Checked<()> {
        let (ir, added, params) = (self.ir.clone(), self.added.len(), self.action_params.len());
        let depths = self.depths.len();
        check(self)?;
        self.ir = ir;
        self.added.truncate(added);
        self.action_params.truncate(params);
        self.depths.truncate(depths);
        Ok(())
    }

    /// A type within the limits of nesting and size.
    fn shallow(&mut self, ty: &TypeRef) -> Checked<Type> {
        let found = self.ty(ty)?;
        if found.depth() >= MOST_TYPE_DEPTH {
            return problem(ty.span, format!("types nest deeper than {MOST_TYPE_DEPTH}"));
        }
        match found.size().is_some_and(|size| size > MOST_SLOTS) {
            true => problem(ty.span, format!("{found} has more than {MOST_SLOTS} fields")),
            false => Ok(found),
        }
    }

    fn record(
        &mut self,
        name: &Name,
        fields: &[(TypeRef, Name)],
        is_header: bool,
    ) -> Checked<Type> {
        if fields.len() > MOST_FIELDS {
            return problem(
                name.span,
                format!("`{}` has more than {MOST_FIELDS} fields", name.text),
            );
        }
        let mut all: Vec<(Arc<str>, Type)> = Vec::new();
        let (mut size, mut bits) = (usize::from(is_header), 0);
        for (ty, field) in fields {
            let found = self.shallow(ty)?;
            let is_right = match is_header {
                true => matches!(found.representation(), Type::Scalar(_)),
                false => found.size().is_some(),
            };
            if !is_right {
                let what = if is_header { "a header" } else { "a struct" };
                return problem(ty.span, format!("{found} cannot be a field of {what}"));
            }
            if all.iter().any(|(other, _)| *other == field.text) {
                return problem(field.span, format!("the field `{}` is there twice", field.text));
            }
            size += found.size().unwrap_or(0);
            bits += found.scalar().map_or(0, Ty::width);
            all.push((field.text.clone(), found));
        }
        if size > MOST_SLOTS {
            return problem(
                name.span,
                format!("`{}` has more than {MOST_SLOTS} fields", name.text),
            );
        }
        if is_header && bits % 8 != 0 {
            let what =
                format!("the header `{}` has {bits} bits; headers are of whole bytes", name.text);
            return problem(name.span, what);
        }
        Ok(Type::Struct(Arc::new(Struct { name: name.text.clone(), is_header, fields: all, size })))
    }

    fn enumeration(
        &mut self,
        name: &Name,
        ty: Option<&TypeRef>,
        members: &[(Name, Option<Expr>)],
    ) -> Checked<Type> {
        let representation = match ty {
            None => None,
            Some(ty) => match self.ty(ty)? {
                Type::Scalar(scalar @ (Ty::Bit(_) | Ty::Int(_))) => Some(scalar),
                other => {
                    return problem(
                        ty.span,
                        format!("an enum is represented by bit<W>, not {other}"),
                    );
                }
            },
        };
        let mut all: Vec<(Arc<str>, u128)> = Vec::new();
        for (number, (member, value)) in members.iter().enumerate() {
            if all.iter().any(|(other, _)| *other == member.text) {
                return problem(
                    member.span,
                    format!("the member `{}` is there twice", member.text),
                );
            }
            let value = match (representation, value) {
                (None, None) => number as u128,
                (Some(ty), Some(expr)) => {
                    let value = self.expr(expr)?;
                    let leaf = self.scalar(value, &Type::Scalar(ty), expr.span)?;
                    match leaf.as_constant() {
                        Some(value) => value,
                        None => return problem(expr.span, "a member's value is a constant"),
                    }
                }
                (Some(_), None) => {
                    return problem(
                        member.span,
                        format!("the member `{}` has no value; write one", member.text),
                    );
                }
                (None, Some(expr)) => {
                    return problem(
                        expr.span,
                        "members have values if the enum has a type, as `enum bit<8> E`",
                    );
                }
            };
            all.push((member.text.clone(), value));
        }
        Ok(Type::Enum(Arc::new(Enum { name: name.text.clone(), representation, members: all })))
    }

    fn errors(&mut self, names: &[Name]) -> Checked<()> {
        for name in names {
            if self.ir.errors.contains(&name.text) {
                return problem(name.span, format!("the error `{}` is there already", name.text));
            }
            self.ir.errors.push(name.text.clone());
        }
        Ok(())
    }

    fn match_kinds(&mut self, names: &[Name]) -> Checked<()> {
        for name in names {
            let kind = match (&*name.text, name.span.text) {
                (_, 0) => {
                    return problem(name.span, "match kinds of one's own are not supported");
                }
                ("exact", _) => Some(ir::MatchKind::Exact),
                ("lpm", _) => Some(ir::MatchKind::Lpm),
                ("ternary", _) => Some(ir::MatchKind::Ternary),
                _ => None,
            };
            self.scopes.declare(&name.text, name.span, Entity::MatchKind(kind))?;
        }
        Ok(())
    }

    fn function(
        &mut self,
        name: &Name,
        result: &TypeRef,
        params: &[crate::ast::Param],
        body: &[crate::ast::Stmt],
    ) -> Checked<()> {
        let result_ty = self.ty(result)?;
        self.path.push(name.text.clone());
        let first = match &result_ty {
            Type::Void => 0,
            ty => self.allocate("$return", ty, result.span)?.first,
        };
        let before = (self.within, std::mem::replace(&mut self.result, (result_ty.clone(), first)));
        self.within = Within::Function;
        let (params, body) = self.scoped(|checker| {
            let params = checker.params(params)?;
            checker.statements(body)?;
            Ok(params)
        })?;
        (self.within, self.result) = before;
        self.path.pop();
        if result_ty != Type::Void && !always_returns(&body) {
            return problem(
                name.span,
                format!("`{}` may end without a value; return one", name.text),
            );
        }
        let routine = self.routine(&name.text, body, name.span)?;
        let function = Function { params, result: result_ty, first, routine };
        self.scopes.declare(&name.text, name.span, Entity::Function(Arc::new(function)))
    }

    /// Checks local declarations that parsers and controls share.
    pub(super) fn local(&mut self, decl: &Decl) -> Checked<()> {
        match &decl.kind {
            DeclKind::Const(ty, value) => self.constant(ty, &decl.name, value),
            DeclKind::Var(ty, value) => {
                let found = self.ty(ty)?;
                self.variable(&found, &decl.name.text, decl.name.span, value.as_ref())
            }
            DeclKind::Instance(ty, args) => self.instance(ty, args, &decl.name),
            _ => problem(decl.name.span, "this is not declared here"),
        }
    }

    fn instance(&mut self, ty: &TypeRef, args: &[crate::ast::Arg], name: &Name) -> Checked<()> {
        let crate::ast::TypeKind::Named(of, types) = &ty.kind else {
            return problem(ty.span, "an extern, a parser or a control is expected here");
        };
        let types: Checked<Vec<Type>> = types.iter().map(|one| self.ty(one)).collect();
        let types = types?;
        self.named(of, types.clone())?;
        match self.find(&of.text, of.span)?.clone() {
            Entity::Extern(one) => self.object(&one, &types, args, name),
            Entity::ParserDecl(parser) if args.is_empty() && self.within == Within::Parser => {
                let instance = self.apart(|checker| checker.instance_of_parser(&parser, name))?;
                self.scopes.declare(&name.text, name.span, Entity::Parser(Arc::new(instance)))
            }
            Entity::ControlDecl(control) if args.is_empty() && self.within == Within::Control => {
                let instance = self.apart(|checker| checker.instance_of_control(&control, name))?;
                self.scopes.declare(&name.text, name.span, Entity::Control(Arc::new(instance)))
            }
            other => problem(ty.span, format!("there are no instances of {} here", other.what())),
        }
    }

    /// Runs `make` outside the present scopes: an instance sees the program's names and its own.
    fn apart<T>(&mut self, make: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        let aside = self.scopes.aside();
        let result = make(self);
        self.scopes.back(aside);
        result
    }
}

/// True if every path through a block returns.
fn always_returns(block: &[ir::Stmt]) -> bool {
    block.iter().any(|stmt| match stmt {
        ir::Stmt::Return => true,
        ir::Stmt::If(_, yes, no) => always_returns(yes) && always_returns(no),
        ir::Stmt::Switch(_, arms, default) => {
            arms.iter().all(|(_, arm)| always_returns(arm)) && always_returns(default)
        }
        _ => false,
    })
}

impl Type {
    /// Nesting depth of the type.
    fn depth(&self) -> usize {
        1 + match self {
            Self::Struct(one) => one.fields.iter().map(|(_, ty)| ty.depth()).max().unwrap_or(0),
            Self::Tuple(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            Self::New(_, inner) => inner.depth(),
            _ => 0,
        }
    }
}
