//! The syntax tree as text: one line for each declaration, statement and field, with its location.
//! Inner parts follow below, indented.
//!
//! Expressions are written in one line as in a program, but with brackets around each operator and
//! its operands, so that precedence is visible.

use crate::ast::{
    Annotation, Arg, Control, Decl, DeclKind, Direction, Expr, ExprKind, Method, Name, Param,
    Parser, Signature, Stmt, StmtKind, Table, Transition, TypeKind, TypeRef,
};
use crate::source::{Lines, Span};
use std::fmt::{self, Display, Formatter};

/// Least width of locations, characters.
const PLACE: usize = 8;

/// Declarations of the program's own text.
pub(crate) fn tree(decls: &[Decl], text: &str) -> String {
    let mut tree = Tree { lines: Lines::new(text), text: String::new(), depth: 0 };
    decls.iter().filter(|decl| decl.name.span.text == 0).for_each(|decl| tree.decl(decl));
    tree.text
}

struct Tree<'t> {
    lines: Lines<'t>,
    text: String,
    depth: usize,
}

impl Tree<'_> {
    fn line(&mut self, span: Span, what: impl Display) {
        let (line, column) = self.lines.position(span);
        let (place, depth) = (format!("{line}:{column}"), 2 * self.depth);
        self.text += &format!("{place:PLACE$} {:depth$}{what}\n", "");
    }

    fn within(&mut self, show: impl FnOnce(&mut Self)) {
        self.depth += 1;
        show(self);
        self.depth -= 1;
    }

    fn decl(&mut self, decl: &Decl) {
        let name = &*decl.name.text;
        let what = match &decl.kind {
            DeclKind::Const(ty, value) => format!("const {ty} {name} = {value}"),
            DeclKind::Var(ty, None) => format!("variable {ty} {name}"),
            DeclKind::Var(ty, Some(value)) => format!("variable {ty} {name} = {value}"),
            DeclKind::Typedef(ty) => format!("typedef {ty} {name}"),
            DeclKind::NewType(ty) => format!("type {ty} {name}"),
            DeclKind::Struct(_) => format!("struct {name}"),
            DeclKind::Header(_) => format!("header {name}"),
            DeclKind::Enum(None, _) => format!("enum {name}"),
            DeclKind::Enum(Some(ty), _) => format!("enum {ty} {name}"),
            DeclKind::Error(_) | DeclKind::MatchKind(_) => name.to_owned(),
            DeclKind::Extern(types, _) => format!("extern {name}{}", parameters(types)),
            DeclKind::ExternFunction(method) => format!("extern {method}"),
            DeclKind::Function(ty, params, _) => {
                format!("function {ty} {name}({})", listed(params))
            }
            DeclKind::Action(params, _) => format!("action {name}({})", listed(params)),
            DeclKind::ParserType(signature) => format!("parser type {name}{signature}"),
            DeclKind::ControlType(signature) => format!("control type {name}{signature}"),
            DeclKind::Package(signature) => format!("package {name}{signature}"),
            DeclKind::Parser(parser) => format!("parser {name}({})", listed(&parser.params)),
            DeclKind::Control(control) => format!("control {name}({})", listed(&control.params)),
            DeclKind::Table(_) => format!("table {name}"),
            DeclKind::Instance(ty, args) => format!("instance {name} = {ty}({})", listed(args)),
        };
        self.line(decl.name.span, format!("{}{what}", marks(&decl.annotations)));
        self.within(|tree| tree.inside(&decl.kind));
    }

    /// Writes the inner parts of a declaration.
    fn inside(&mut self, kind: &DeclKind) {
        match kind {
            DeclKind::Struct(fields) | DeclKind::Header(fields) => {
                for (ty, name) in fields {
                    self.line(name.span, format!("{ty} {}", name.text));
                }
            }
            DeclKind::Enum(_, members) => {
                for (name, value) in members {
                    let value = value.as_ref().map(|value| format!(" = {value}"));
                    self.line(name.span, format!("{}{}", name.text, value.unwrap_or_default()));
                }
            }
            DeclKind::Error(names) | DeclKind::MatchKind(names) => {
                names.iter().for_each(|name| self.line(name.span, &name.text));
            }
            DeclKind::Extern(_, methods) => {
                methods.iter().for_each(|method| self.line(method.name.span, method));
            }
            DeclKind::Function(_, _, body) | DeclKind::Action(_, body) => self.stmts(body),
            DeclKind::Parser(parser) => self.parser(parser),
            DeclKind::Control(control) => self.control(control),
            DeclKind::Table(table) => self.table(table),
            _ => {}
        }
    }

    fn parser(&mut self, parser: &Parser) {
        parser.locals.iter().for_each(|local| self.decl(local));
        for state in &parser.states {
            self.line(state.name.span, format!("state {}", state.name.text));
            self.within(|tree| {
                tree.stmts(&state.body);
                tree.transition(&state.transition);
            });
        }
    }

    fn transition(&mut self, transition: &Transition) {
        match transition {
            Transition::To(name) => self.line(name.span, format!("transition {}", name.text)),
            Transition::Select(keys, cases) => {
                let first = keys.first().map(|key| key.span).unwrap_or_default();
                self.line(first, format!("select {}", listed(keys)));
                self.within(|tree| {
                    for (sets, to) in cases {
                        let first = sets.first().map(|set| set.span).unwrap_or_default();
                        tree.line(first, format!("{}: {}", listed(sets), to.text));
                    }
                });
            }
        }
    }

    fn control(&mut self, control: &Control) {
        control.locals.iter().for_each(|local| self.decl(local));
        self.stmts(&control.body);
    }

    fn table(&mut self, table: &Table) {
        for (expr, kind, name) in &table.keys {
            let name = name.as_ref().map(|name| format!(" @name({name})"));
            let name = name.unwrap_or_default();
            self.line(expr.span, format!("key {expr}: {}{name}", kind.text));
        }
        for action in &table.actions {
            let marks = marks(&action.annotations);
            self.line(action.name.span, format!("{marks}listed {}", action.name.text));
        }
        for (name, value, is_const) in &table.properties {
            let constant = if *is_const { "const " } else { "" };
            self.line(name.span, format!("{constant}{} = {value}", name.text));
        }
        for entry in &table.entries {
            self.line(entry.span, format!("entry {}: {}", listed(&entry.keys), entry.action));
        }
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let what = match &stmt.kind {
            StmtKind::Empty => "nothing".to_owned(),
            StmtKind::Block(_) => "block".to_owned(),
            StmtKind::Assign(target, value) => format!("{target} = {value}"),
            StmtKind::Call(call) => format!("call {call}"),
            StmtKind::If(condition, ..) => format!("if {condition}"),
            StmtKind::Switch(on, _) => format!("switch {on}"),
            StmtKind::Return(None) => "return".to_owned(),
            StmtKind::Return(Some(value)) => format!("return {value}"),
            StmtKind::Exit => "exit".to_owned(),
            StmtKind::Var(ty, name, None) => format!("variable {ty} {}", name.text),
            StmtKind::Var(ty, name, Some(value)) => {
                format!("variable {ty} {} = {value}", name.text)
            }
            StmtKind::Const(ty, name, value) => format!("const {ty} {} = {value}", name.text),
        };
        self.line(stmt.span, what);
        self.within(|tree| match &stmt.kind {
            StmtKind::Block(stmts) => tree.stmts(stmts),
            StmtKind::If(_, yes, no) => {
                tree.stmt(yes);
                if let Some(no) = no {
                    tree.line(no.span, "else");
                    tree.stmt(no);
                }
            }
            StmtKind::Switch(_, cases) => tree.cases(cases),
            _ => {}
        });
    }

    /// Writes cases; a label without statements has those of the next.
    fn cases(&mut self, cases: &[(Expr, Option<Vec<Stmt>>)]) {
        for (label, body) in cases {
            self.line(label.span, format!("case {label}"));
            self.within(|tree| body.iter().for_each(|body| tree.stmts(body)));
        }
    }
}

/// Items separated by commas.
fn listed<T: Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// `<A, B>`, or nothing.
fn parameters<T: Display>(types: &[T]) -> String {
    match types.is_empty() {
        true => String::new(),
        false => format!("<{}>", listed(types)),
    }
}

fn marks(annotations: &[Annotation]) -> String {
    let mark = |one: &Annotation| match &one.body {
        None => format!("@{} ", one.name.text),
        Some(body) => format!("@{}({body}) ", one.name.text),
    };
    annotations.iter().map(mark).collect()
}

impl Display for TypeRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TypeKind::Void => f.write_str("void"),
            TypeKind::Bool => f.write_str("bool"),
            TypeKind::Bit(None) => f.write_str("bit"),
            TypeKind::Bit(Some(width)) => write!(f, "bit<{width}>"),
            TypeKind::Signed(width) => write!(f, "int<{width}>"),
            TypeKind::Integer => f.write_str("int"),
            TypeKind::String => f.write_str("string"),
            TypeKind::Error => f.write_str("error"),
            TypeKind::MatchKind => f.write_str("match_kind"),
            TypeKind::Tuple(items) => write!(f, "tuple<{}>", listed(items)),
            TypeKind::Named(name, types) => write!(f, "{}{}", name.text, parameters(types)),
        }
    }
}

impl Display for Param {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::None => "",
            Direction::In => "in ",
            Direction::Out => "out ",
            Direction::InOut => "inout ",
        };
        write!(f, "{direction}{} {}", self.ty, self.name.text)
    }
}

impl Display for Signature {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", parameters(&self.types), listed(&self.params))
    }
}

impl Display for Method {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { result, name, types, params } = self;
        let result = result.as_ref().map(|result| format!("{result} "));
        let (result, types) = (result.unwrap_or_default(), parameters(types));
        write!(f, "{result}{}{types}({})", name.text, listed(params))
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} = {}", name.text, self.value),
            None => self.value.fmt(f),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Number(value, None) => write!(f, "{value}"),
            ExprKind::Number(value, Some((width, false))) => write!(f, "{width}w{value}"),
            ExprKind::Number(value, Some((width, true))) => write!(f, "{width}s{value}"),
            ExprKind::Bool(value) => write!(f, "{value}"),
            ExprKind::Text(text) => write!(f, "{text:?}"),
            ExprKind::Name(name) => f.write_str(name),
            ExprKind::TopName(name) => write!(f, ".{name}"),
            ExprKind::DontCare => f.write_str("_"),
            ExprKind::Member(base, name) => write!(f, "{base}.{}", name.text),
            ExprKind::Slice(base, high, low) => write!(f, "{base}[{high}:{low}]"),
            ExprKind::Unary(operator, operand) => write!(f, "({}{operand})", operator.symbol()),
            ExprKind::Binary(operator, left, right) => {
                write!(f, "({left} {} {right})", operator.symbol())
            }
            ExprKind::Mux(condition, yes, no) => write!(f, "({condition} ? {yes} : {no})"),
            ExprKind::Cast(ty, operand) => write!(f, "(({ty}) {operand})"),
            ExprKind::Call(call) => {
                write!(f, "{}{}({})", call.callee, parameters(&call.types), listed(&call.args))
            }
            ExprKind::List(items) => write!(f, "{{{}}}", listed(items)),
            ExprKind::Record(fields) => {
                let field = |(name, value): &(Name, Self)| format!("{} = {value}", name.text);
                write!(f, "{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }
            ExprKind::Invalid => f.write_str("{#}"),
            ExprKind::Mask(value, mask) => write!(f, "{value} &&& {mask}"),
            ExprKind::Range(from, to) => write!(f, "{from} .. {to}"),
        }
    }
}
