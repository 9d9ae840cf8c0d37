//! From the syntax tree to the typed intermediate form: names are looked up, types checked,
//! constants folded, and instances get their slots.
//!
//! A parser or control is checked where it is declared, and once more for each of its instances,
//! which has statements and slots of its own. The result of the first check is discarded. All nodes
//! count against one limit, so that instances of instances cannot use all memory.

mod action;
mod annotations;
mod binary;
mod call;
mod control;
mod declare;
mod expr;
mod externs;
mod package;
mod parser;
mod place;
mod scope;
mod stmt;
mod table;
mod types;
mod value;

use crate::ast::{self, Direction, TypeKind, TypeRef};
use crate::ir::{self, MOST_BITS, Slot, Stmt, Ty};
use crate::source::{Checked, Span, problem};
use crate::unsupported;
use scope::{Entity, Param, Place, Scopes, Value};
use std::sync::Arc;
use types::Type;

/// Most expressions and statements of a program, including instances and discarded checks.
const MOST_NODES: usize = 1 << 18;

/// Most slots of a program.
const MOST_SLOTS: usize = 1 << 16;

/// Greatest depth of calls of routines, and of parsers within parsers.
const MOST_CALLS: usize = 32;

/// Context of a statement: it decides which statements are permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Top,
    Parser,
    Control,
    Action,
    Function,
}

/// Checks a program, and resolves it.
pub(crate) fn check(decls: &[ast::Decl], end: Span) -> Checked<ir::Program> {
    let mut checker = Checker::new();
    checker.scopes.enter();
    for decl in decls {
        checker.top(decl)?;
        checker.apply_annotations(decl)?;
    }
    match checker.is_complete {
        true => Ok(checker.ir),
        false => problem(end, "there is no `main`; end the program with `PNA_NIC(...) main;`"),
    }
}

struct Checker {
    scopes: Scopes,
    ir: ir::Program,
    /// Blocks that get statements, the innermost last.
    blocks: Vec<ir::Block>,
    /// Names of the enclosing instances and blocks.
    path: Vec<Arc<str>>,
    within: Within,
    /// Result of the function: its type and first slot.
    result: (Type, Slot),
    /// Actions for which the present action adds entries.
    adds: Vec<usize>,
    /// For every action, the actions for which it adds entries, and true if it sets an expiry.
    added: Vec<(Vec<usize>, bool)>,
    times: bool,
    /// Parameters of every action.
    action_params: Vec<Vec<Param>>,
    /// Depth of calls in every routine.
    depths: Vec<usize>,
    nodes: usize,
    is_complete: bool,
}

impl Checker {
    fn new() -> Self {
        Self {
            scopes: Scopes::default(),
            ir: ir::Program::default(),
            blocks: Vec::new(),
            path: Vec::new(),
            within: Within::Top,
            result: (Type::Void, 0),
            adds: Vec::new(),
            added: Vec::new(),
            times: false,
            action_params: Vec::new(),
            depths: Vec::new(),
            nodes: 0,
            is_complete: false,
        }
    }

    /// Counts a node against the limit.
    fn count(&mut self, span: Span) -> Checked<()> {
        self.nodes += 1;
        match self.nodes > MOST_NODES {
            true => problem(
                span,
                format!(
                    "the program comes to more than {MOST_NODES} operations; use fewer instances"
                ),
            ),
            false => Ok(()),
        }
    }

    /// Notes the location of a feature that some targets lack.
    fn note(&mut self, what: ir::Noted, span: Span) {
        self.ir.places.noted.push((what, span));
    }

    fn emit(&mut self, stmt: Stmt) {
        self.blocks.last_mut().expect("statements stand in a block").push(stmt);
    }

    /// Collects the statements of `make` in a block of its own.
    fn block<T>(&mut self, make: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<(T, ir::Block)> {
        self.blocks.push(Vec::new());
        let result = make(self);
        let block = self.blocks.pop().unwrap_or_default();
        Ok((result?, block))
    }

    /// Collects the statements of `make` in a block with a scope of its own.
    fn scoped<T>(&mut self, make: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<(T, ir::Block)> {
        self.scopes.enter();
        let result = self.block(make);
        self.scopes.leave();
        result
    }

    /// A name with the names of the enclosing instances.
    fn full_name(&self, name: &str) -> Arc<str> {
        let mut parts: Vec<&str> = self.path.iter().map(|part| &**part).collect();
        parts.push(name);
        parts.join(".").into()
    }

    /// Allocates slots for a variable.
    fn allocate(&mut self, name: &str, ty: &Type, span: Span) -> Checked<Place> {
        let mut leaves = Vec::new();
        if ty.size().is_none() {
            return problem(span, format!("there are no variables of type {ty}"));
        }
        ty.leaves(&self.full_name(name), &mut leaves);
        let first = self.ir.slots.len() as Slot;
        self.ir.slots.extend(leaves.into_iter().map(|(name, ty)| (name.into(), ty)));
        self.ir.places.slots.resize(self.ir.slots.len(), span);
        if self.ir.slots.len() > MOST_SLOTS {
            return problem(span, format!("the program has more than {MOST_SLOTS} variables"));
        }
        Ok(Place { ty: ty.clone(), first, slice: None, is_writable: true })
    }

    /// Allocates a slot for an intermediate value.
    fn temporary(&mut self, ty: Ty, span: Span) -> Checked<Slot> {
        Ok(self.allocate("$tmp", &Type::Scalar(ty), span)?.first)
    }

    fn routine(&mut self, name: &str, body: ir::Block, span: Span) -> Checked<usize> {
        let depth = 1 + self.depth(&body);
        if depth > MOST_CALLS {
            return problem(span, format!("calls go deeper than {MOST_CALLS}"));
        }
        let name = self.full_name(name);
        self.ir.routines.push(ir::Routine { name, body });
        self.depths.push(depth);
        Ok(self.ir.routines.len() - 1)
    }

    /// Depth of calls in a block.
    fn depth(&self, block: &[Stmt]) -> usize {
        let depth = |stmt: &Stmt| match stmt {
            Stmt::If(_, yes, no) => self.depth(yes).max(self.depth(no)),
            Stmt::Switch(_, arms, default) => {
                let arms = arms.iter().map(|(_, arm)| self.depth(arm));
                arms.max().unwrap_or(0).max(self.depth(default))
            }
            Stmt::Call(routine, _) => self.depths[*routine],
            Stmt::Apply { table, .. } => {
                let actions = self.ir.tables[*table].actions.iter();
                let depths = actions.map(|action| self.depths[self.ir.actions[*action].routine]);
                depths.max().unwrap_or(0)
            }
            Stmt::Parse(parser) => 1 + self.parser_depth(*parser),
            _ => 0,
        };
        block.iter().map(depth).max().unwrap_or(0)
    }

    fn parser_depth(&self, parser: usize) -> usize {
        let parser = &self.ir.parsers[parser];
        let states = parser.states.iter().map(|state| self.depth(&state.body));
        states.max().unwrap_or(0).max(self.depth(&parser.init))
    }

    fn find(&self, name: &str, span: Span) -> Checked<&Entity> {
        match self.scopes.find(name) {
            Some(entity) => Ok(entity),
            None => problem(span, self.unknown(name)),
        }
    }

    /// Message about an unknown name.
    fn unknown(&self, name: &str) -> String {
        let is_around = self.path.iter().any(|part| **part == *name);
        unsupported::name(name).unwrap_or_else(|| match is_around {
            true => format!("`{name}` is not known within itself: the language has no recursion"),
            false => format!("there is no `{name}` here; declare it before its use"),
        })
    }

    /// Looks a type up.
    fn ty(&mut self, ty: &TypeRef) -> Checked<Type> {
        Ok(match &ty.kind {
            TypeKind::Void => Type::Void,
            TypeKind::Bool => Type::BOOL,
            TypeKind::Bit(None) => Type::bits(1),
            TypeKind::Bit(Some(width)) => Type::bits(self.width(width, 1)?),
            TypeKind::Signed(width) => Type::Scalar(Ty::Int(self.width(width, 2)?)),
            TypeKind::Integer => Type::Integer,
            TypeKind::String => Type::Text,
            TypeKind::Error => Type::Error,
            TypeKind::MatchKind => Type::MatchKind,
            TypeKind::Tuple(items) => {
                let items: Checked<Vec<_>> = items.iter().map(|item| self.ty(item)).collect();
                Type::Tuple(items?.into())
            }
            TypeKind::Named(name, types) => {
                let types: Checked<Vec<_>> = types.iter().map(|one| self.ty(one)).collect();
                self.named(name, types?)?
            }
        })
    }

    fn named(&self, name: &ast::Name, types: Vec<Type>) -> Checked<Type> {
        let (ty, wanted) = match self.find(&name.text, name.span)? {
            Entity::Type(ty) => (ty.clone(), 0),
            Entity::Extern(one) => {
                (Type::Extern(one.name.clone(), types.clone().into()), one.types.len())
            }
            Entity::BlockType(signature, _) | Entity::Package(signature) => {
                (Type::Block(name.text.clone(), types.clone().into()), signature.types.len())
            }
            Entity::ParserDecl(_) | Entity::ControlDecl(_) => {
                (Type::Block(name.text.clone(), Arc::new([])), 0)
            }
            other => {
                let what = format!("`{}` is {} and no type", name.text, other.what());
                return problem(name.span, what);
            }
        };
        match types.len() == wanted {
            true => Ok(ty),
            false => {
                let what =
                    format!("`{}` takes {wanted} type arguments, not {}", name.text, types.len());
                problem(name.span, what)
            }
        }
    }

    fn width(&mut self, width: &ast::Expr, least: u32) -> Checked<u32> {
        let value = self.integer(width)?;
        match u32::try_from(&value) {
            Ok(bits) if (least..=MOST_BITS).contains(&bits) => Ok(bits),
            _ => problem(
                width.span,
                format!("{value} bits are not supported; a width is from {least} to {MOST_BITS}"),
            ),
        }
    }

    /// Evaluates a number that must be known at compile time.
    fn integer(&mut self, expr: &ast::Expr) -> Checked<num_bigint::BigInt> {
        let (value, block) = self.block(|checker| checker.expr(expr))?;
        let known = match &value {
            Value::Integer(value) => Some(value.clone()),
            Value::Leaves(ty, leaves) if ty.scalar().is_some_and(|ty| ty != Ty::Bool) => {
                let leaf = &leaves[0];
                leaf.as_constant().map(|value| match leaf.ty {
                    Ty::Int(_) => crate::fold::signed(leaf.ty, value).into(),
                    _ => value.into(),
                })
            }
            _ => None,
        };
        match known {
            Some(value) if block.is_empty() => Ok(value),
            _ => problem(
                expr.span,
                "a number that is known when the program is compiled is expected",
            ),
        }
    }

    /// Declares parameters in the present scope, and allocates their slots.
    fn params(&mut self, params: &[ast::Param]) -> Checked<Vec<Param>> {
        let mut places = Vec::new();
        for param in params {
            let (name, span) = (param.name.text.clone(), param.name.span);
            let ty = self.ty(&param.ty)?;
            let mut first = 0;
            let entity = match &ty {
                Type::Extern(name, _) if &**name == "packet_in" => {
                    Entity::Packet { is_input: true }
                }
                Type::Extern(name, _) if &**name == "packet_out" => {
                    Entity::Packet { is_input: false }
                }
                Type::Extern(..) => {
                    let what = format!("parameters of type {ty} are not supported");
                    return problem(param.ty.span, what);
                }
                _ => {
                    let mut place = self.allocate(&name, &ty, param.ty.span)?;
                    first = place.first;
                    place.is_writable = !matches!(param.direction, Direction::In | Direction::None);
                    Entity::Var(place)
                }
            };
            self.scopes.declare(&name, span, entity)?;
            places.push(Param { name, direction: param.direction, ty, first });
        }
        Ok(places)
    }
}
