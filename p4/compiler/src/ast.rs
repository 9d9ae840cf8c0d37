//! Syntax tree of a program: the parser's output, before names are looked up.

use crate::source::Span;
use num_bigint::BigInt;
use std::sync::Arc;

/// A name with its location.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: Arc<str>,
    pub(crate) span: Span,
}

/// `@name` or `@name(...)`; the text in the brackets is kept.
#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    pub(crate) name: Name,
    pub(crate) body: Option<String>,
}

/// A type in the source text.
#[derive(Clone, Debug)]
pub(crate) struct TypeRef {
    pub(crate) kind: TypeKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeKind {
    Void,
    Bool,
    /// `bit<W>`; `bit` alone has one bit.
    Bit(Option<Box<Expr>>),
    /// `int<W>`.
    Signed(Box<Expr>),
    /// `int`: a number with a value known at compile time.
    Integer,
    String,
    Error,
    MatchKind,
    Tuple(Vec<TypeRef>),
    Named(Name, Vec<TypeRef>),
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Number(BigInt, Option<(u32, bool)>),
    Bool(bool),
    Text(Arc<str>),
    /// A name; `error` and `default` are names, too.
    Name(Arc<str>),
    /// `.name`: looked up outside every parser and control.
    TopName(Arc<str>),
    /// `_`
    DontCare,
    Member(Box<Expr>, Name),
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Mux(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(TypeRef, Box<Expr>),
    Call(Box<Call>),
    List(Vec<Expr>),
    Record(Vec<(Name, Expr)>),
    /// `{#}`
    Invalid,
    /// `value &&& mask`
    Mask(Box<Expr>, Box<Expr>),
    /// `from .. to`
    Range(Box<Expr>, Box<Expr>),
}

/// A call of a function, method, action, table, parser or control, or of a constructor.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) callee: Expr,
    pub(crate) types: Vec<TypeRef>,
    pub(crate) args: Vec<Arg>,
}

/// An argument; `_` for an `out` parameter is [`ExprKind::DontCare`].
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Complement,
    Minus,
    Plus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    SaturatingAdd,
    SaturatingSubtract,
    Multiply,
    Divide,
    Modulo,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Xor,
    Concat,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    LogicalAnd,
    LogicalOr,
}

impl Binary {
    /// The operator in the source text.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::SaturatingAdd => "|+|",
            Self::SaturatingSubtract => "|-|",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::Concat => "++",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::LogicalAnd => "&&",
            Self::LogicalOr => "||",
        }
    }
}

impl Unary {
    /// The operator in the source text.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Not => "!",
            Self::Complement => "~",
            Self::Minus => "-",
            Self::Plus => "+",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    In,
    Out,
    InOut,
}

#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) direction: Direction,
    pub(crate) ty: TypeRef,
    pub(crate) name: Name,
}

#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum StmtKind {
    Empty,
    Block(Vec<Stmt>),
    Assign(Expr, Expr),
    Call(Expr),
    If(Expr, Box<Stmt>, Option<Box<Stmt>>),
    /// A label without a block shares that of the next label; `default` is a name.
    Switch(Expr, Vec<(Expr, Option<Vec<Stmt>>)>),
    Return(Option<Expr>),
    Exit,
    Var(TypeRef, Name, Option<Expr>),
    Const(TypeRef, Name, Expr),
}

/// A declaration, at the top or in a parser or control.
#[derive(Clone, Debug)]
pub(crate) struct Decl {
    pub(crate) name: Name,
    pub(crate) kind: DeclKind,
    pub(crate) annotations: Vec<Annotation>,
}

#[derive(Clone, Debug)]
pub(crate) enum DeclKind {
    Const(TypeRef, Expr),
    Var(TypeRef, Option<Expr>),
    Typedef(TypeRef),
    /// `type`: a new type, distinct from its representation.
    NewType(TypeRef),
    Struct(Vec<(TypeRef, Name)>),
    Header(Vec<(TypeRef, Name)>),
    /// Members, with values if the enum has a representation.
    Enum(Option<TypeRef>, Vec<(Name, Option<Expr>)>),
    Error(Vec<Name>),
    MatchKind(Vec<Name>),
    Extern(Vec<Arc<str>>, Vec<Method>),
    ExternFunction(Method),
    Function(TypeRef, Vec<Param>, Vec<Stmt>),
    Action(Vec<Param>, Vec<Stmt>),
    ParserType(Signature),
    ControlType(Signature),
    Package(Signature),
    Parser(Arc<Parser>),
    Control(Arc<Control>),
    Table(Arc<Table>),
    Instance(TypeRef, Vec<Arg>),
}

/// A method of an extern, its constructor, or a function.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    /// Type of the result; `None` for a constructor.
    pub(crate) result: Option<TypeRef>,
    pub(crate) name: Name,
    pub(crate) types: Vec<Arc<str>>,
    pub(crate) params: Vec<Param>,
}

#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) types: Vec<Arc<str>>,
    pub(crate) params: Vec<Param>,
}

#[derive(Debug)]
pub(crate) struct Parser {
    pub(crate) params: Vec<Param>,
    pub(crate) locals: Vec<Decl>,
    pub(crate) states: Vec<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: Name,
    pub(crate) body: Vec<Stmt>,
    pub(crate) transition: Transition,
}

#[derive(Debug)]
pub(crate) enum Transition {
    To(Name),
    /// Keys, and for each case its key sets and the next state.
    Select(Vec<Expr>, Vec<(Vec<Expr>, Name)>),
}

#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) params: Vec<Param>,
    pub(crate) locals: Vec<Decl>,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Expression, match kind, and the name from an annotation.
    pub(crate) keys: Vec<(Expr, Name, Option<String>)>,
    pub(crate) actions: Vec<TableAction>,
    pub(crate) properties: Vec<(Name, Expr, bool)>,
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug)]
pub(crate) struct TableAction {
    pub(crate) name: Name,
    pub(crate) annotations: Vec<Annotation>,
}

/// An entry that is part of the program.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) keys: Vec<Expr>,
    pub(crate) action: Expr,
    pub(crate) span: Span,
}
