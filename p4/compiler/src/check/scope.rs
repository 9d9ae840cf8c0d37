//! Names: their meanings and their scopes.

use super::types::Type;
use crate::ast;
use crate::ir;
use crate::source::{Checked, Span, problem};
use num_bigint::BigInt;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Meaning of a name.
#[derive(Clone)]
pub(crate) enum Entity {
    Type(Type),
    /// A generic extern: its parameters and methods.
    Extern(Arc<Extern>),
    Const(Value),
    Var(Place),
    MatchKind(Option<ir::MatchKind>),
    ExternFunctions(Arc<[ast::Method]>),
    Function(Arc<Function>),
    Action(usize),
    Table(usize),
    Object(Arc<ObjectRef>),
    /// The packet that a parser reads or a deparser writes.
    Packet {
        is_input: bool,
    },
    ParserDecl(Arc<ast::Parser>),
    ControlDecl(Arc<ast::Control>),
    BlockType(Arc<ast::Signature>, bool),
    Package(Arc<ast::Signature>),
    Parser(Arc<Instance>),
    Control(Arc<Instance>),
}

impl Entity {
    /// Kind of the entity, for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Type(_) | Self::Extern(_) => "a type",
            Self::Const(_) => "a constant",
            Self::Var(_) => "a variable",
            Self::MatchKind(_) => "a match kind",
            Self::ExternFunctions(_) | Self::Function(_) => "a function",
            Self::Action(_) => "an action",
            Self::Table(_) => "a table",
            Self::Object(_) => "an extern's instance",
            Self::Packet { .. } => "a packet",
            Self::ParserDecl(_) => "a parser's declaration",
            Self::ControlDecl(_) => "a control's declaration",
            Self::BlockType(..) => "a parser's or control's type",
            Self::Package(_) => "a package",
            Self::Parser(_) => "a parser",
            Self::Control(_) => "a control",
        }
    }
}

pub(crate) struct Extern {
    pub(crate) name: Arc<str>,
    pub(crate) types: Vec<Arc<str>>,
    pub(crate) methods: Vec<ast::Method>,
}

pub(crate) struct ObjectRef {
    pub(crate) of: Arc<Extern>,
    pub(crate) types: Vec<(Arc<str>, Type)>,
    pub(crate) index: usize,
}

/// A parameter, and the first slot in which the callee finds it.
#[derive(Clone)]
pub(crate) struct Param {
    pub(crate) name: Arc<str>,
    pub(crate) direction: ast::Direction,
    pub(crate) ty: Type,
    pub(crate) first: ir::Slot,
}

pub(crate) struct Function {
    pub(crate) params: Vec<Param>,
    pub(crate) result: Type,
    /// First slot of the result.
    pub(crate) first: ir::Slot,
    pub(crate) routine: usize,
}

/// A parser or control with its slots.
pub(crate) struct Instance {
    pub(crate) params: Vec<Param>,
    /// Index of a routine or a parser.
    pub(crate) index: usize,
}

/// A place that can be written: consecutive slots, or bits of one.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) ty: Type,
    pub(crate) first: ir::Slot,
    pub(crate) slice: Option<(u32, u32)>,
    pub(crate) is_writable: bool,
}

/// Value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Integer(BigInt),
    Text,
    /// One expression for each slot.
    Leaves(Type, Vec<ir::Expr>),
    List(Vec<Value>),
    Record(Vec<(ast::Name, Value)>),
    /// `{#}`
    Invalid,
}

impl Value {
    pub(crate) fn scalar(ty: Type, expr: ir::Expr) -> Self {
        Self::Leaves(ty, vec![expr])
    }

    /// Type of the value, for messages.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Integer(_) => "int".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Leaves(ty, _) => ty.to_string(),
            Self::List(_) | Self::Record(_) => "a list".to_owned(),
            Self::Invalid => "an invalid header".to_owned(),
        }
    }
}

/// Scopes, the innermost last; the first is the program's.
#[derive(Default)]
pub(crate) struct Scopes {
    stack: Vec<BTreeMap<Arc<str>, Entity>>,
}

impl Scopes {
    pub(crate) fn enter(&mut self) {
        self.stack.push(BTreeMap::new());
    }

    pub(crate) fn leave(&mut self) {
        self.stack.pop();
    }

    /// Sets everything but the program's scope aside.
    pub(crate) fn aside(&mut self) -> Vec<BTreeMap<Arc<str>, Entity>> {
        self.stack.split_off(1)
    }

    /// Restores the scopes that were set aside.
    pub(crate) fn back(&mut self, aside: Vec<BTreeMap<Arc<str>, Entity>>) {
        self.stack.truncate(1);
        self.stack.extend(aside);
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Entity> {
        self.stack.iter().rev().find_map(|scope| scope.get(name))
    }

    pub(crate) fn find_top(&self, name: &str) -> Option<&Entity> {
        self.stack.first()?.get(name)
    }

    pub(crate) fn declare(&mut self, name: &str, span: Span, entity: Entity) -> Checked<()> {
        let scope = self.stack.last_mut().expect("the program's scope is there");
        match scope.insert(name.into(), entity) {
            None => Ok(()),
            Some(_) => {
                problem(span, format!("`{name}` is declared here already; choose another name"))
            }
        }
    }
}
