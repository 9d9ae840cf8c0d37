//! From tokens to the syntax tree, by recursive descent; operators by precedence climbing.
//!
//! `(a) - b` is a cast if `a` is a type, so the parser keeps the names of types. Depth is limited:
//! nesting deeper than [`MOST_DEPTH`], chains of operators included, is refused, so no later walk
//! of the tree runs out of stack.

mod decl;
mod expr;
mod stmt;
mod table;

use crate::ast::{Decl, Name, TypeKind, TypeRef};
use crate::lexer::{Kind, Token, tokens};
use crate::prelude;
use crate::source::{Checked, Problem, Sources, Span, problem};
use crate::unsupported;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Greatest nesting depth of expressions, statements and types.
const MOST_DEPTH: usize = 64;

/// Names that are no identifiers.
const KEYWORDS: [&str; 44] = [
    "action",
    "apply",
    "bit",
    "bool",
    "const",
    "control",
    "default",
    "else",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "header",
    "header_union",
    "if",
    "in",
    "inout",
    "int",
    "list",
    "match_kind",
    "out",
    "package",
    "parser",
    "return",
    "select",
    "state",
    "string",
    "struct",
    "switch",
    "table",
    "this",
    "transition",
    "true",
    "tuple",
    "type",
    "typedef",
    "varbit",
    "value_set",
    "void",
    "for",
    "break",
    "continue",
    "abstract",
];

/// Keywords of unsupported features.
const UNSUPPORTED: [(&str, &str); 9] = [
    ("header_union", "header unions"),
    ("varbit", "`varbit`"),
    ("value_set", "value sets"),
    ("list", "`list`"),
    ("for", "`for`"),
    ("break", "`break`"),
    ("continue", "`continue`"),
    ("abstract", "abstract methods"),
    ("this", "`this`"),
];

/// Names of the included texts that have been read.
#[derive(Debug, Default)]
struct Included {
    names: BTreeSet<&'static str>,
}

/// Reads a program and the texts that it includes.
pub(crate) fn program(sources: &mut Sources, name: &str, text: &str) -> Checked<Vec<Decl>> {
    let mut decls = Vec::new();
    let mut types = BTreeSet::new();
    let mut included = Included::default();
    read(sources, name, text, &mut types, &mut included, &mut decls)?;
    Ok(decls)
}

fn read(
    sources: &mut Sources,
    name: &str,
    text: &str,
    types: &mut BTreeSet<Arc<str>>,
    included: &mut Included,
    decls: &mut Vec<Decl>,
) -> Checked<()> {
    let number = sources.add(name, text);
    let mut parser = Parser::new(tokens(number, text)?, std::mem::take(types));
    loop {
        match parser.peek().clone() {
            Kind::End => break,
            Kind::Include(wanted) => {
                let span = parser.next().span;
                let Some((name, text)) = prelude::text(&wanted) else {
                    let known = prelude::NAMES.join(">, <");
                    let what = format!("there is no <{wanted}>; what can be included is <{known}>");
                    return problem(span, what);
                };
                if included.names.insert(name) {
                    read(sources, name, text, &mut parser.types, included, decls)?;
                }
            }
            _ => {
                if let Some(decl) = parser.declaration()? {
                    decls.push(decl);
                }
            }
        }
    }
    *types = parser.types;
    Ok(())
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    types: BTreeSet<Arc<str>>,
}

impl Parser {
    fn new(tokens: Vec<Token>, types: BTreeSet<Arc<str>>) -> Self {
        Self { tokens, at: 0, depth: 0, types }
    }

    fn token(&self, ahead: usize) -> &Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &Kind {
        &self.token(0).kind
    }

    fn span(&self) -> Span {
        self.token(0).span
    }

    /// Location of the last token that was taken.
    fn last(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn next(&mut self) -> Token {
        let token = self.token(0).clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, ahead: usize, punct: &str) -> bool {
        matches!(&self.token(ahead).kind, Kind::Punct(found) if *found == punct)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Kind::Name(found) if &**found == word)
    }

    fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(0, punct);
        if found {
            self.next();
        }
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    fn expected<T>(&self, what: &str) -> Checked<T> {
        match self.peek() {
            Kind::Name(name) => self.supported(name)?,
            Kind::Punct("...") => {
                let what = "values left to `...` are not supported; write all of them";
                return problem(self.span(), what);
            }
            _ => {}
        }
        problem(self.span(), format!("{what} is expected here, and not {}", self.peek()))
    }

    /// Refuses unsupported features of the language.
    fn supported(&self, word: &str) -> Checked<()> {
        match UNSUPPORTED.iter().find(|(keyword, _)| *keyword == word) {
            Some((_, what)) => {
                problem(self.span(), format!("{what} are not supported").replace("` are", "` is"))
            }
            None => match unsupported::name(word).filter(|_| !self.types.contains(word)) {
                Some(what) => problem(self.span(), what),
                None => Ok(()),
            },
        }
    }

    fn expect(&mut self, punct: &str) -> Checked<Span> {
        match self.is(0, punct) {
            true => Ok(self.next().span),
            false => self.expected(&format!("`{punct}`")),
        }
    }

    fn expect_word(&mut self, word: &str) -> Checked<Span> {
        match self.is_word(word) {
            true => Ok(self.next().span),
            false => self.expected(&format!("`{word}`")),
        }
    }

    /// Reads any name but a keyword; `apply`, `key`, `actions`, `state`, `entries` and `type` are
    /// names where the language permits it.
    fn name(&mut self) -> Checked<Name> {
        let text = match self.peek() {
            Kind::Name(text) => text.clone(),
            _ => return self.expected("a name"),
        };
        let is_soft = matches!(&*text, "apply" | "state" | "type" | "list");
        if KEYWORDS.contains(&&*text) && !is_soft {
            return self.expected("a name");
        }
        let span = self.next().span;
        Ok(Name { text, span })
    }

    /// Reads the name of a new object, which must not be a type's.
    fn new_name(&mut self) -> Checked<Name> {
        let name = self.name()?;
        match self.types.contains(&name.text) {
            true => {
                let what = format!("`{}` is a type's name already; choose another", name.text);
                problem(name.span, what)
            }
            false => Ok(name),
        }
    }

    /// Reads one nesting level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Checked<T>) -> Checked<T> {
        let depth = self.depth;
        self.deepen()?;
        let result = read(self);
        self.depth = depth;
        result
    }

    fn deepen(&mut self) -> Checked<()> {
        self.depth += 1;
        match self.depth > MOST_DEPTH {
            true => Err(Problem {
                span: self.span(),
                message: format!("this nests deeper than {MOST_DEPTH}; use variables in between"),
            }),
            false => Ok(()),
        }
    }

    /// Reads elements separated by commas, up to and including the closing bracket.
    fn list<T>(
        &mut self,
        close: &str,
        mut read: impl FnMut(&mut Self) -> Checked<T>,
    ) -> Checked<Vec<T>> {
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(read(self)?);
            if !self.eat(",") {
                self.expect(close)?;
                return Ok(items);
            }
            if self.eat(close) {
                return Ok(items);
            }
        }
    }

    /// True if a type begins `ahead` tokens from here.
    fn is_type(&self, ahead: usize) -> bool {
        match &self.token(ahead).kind {
            Kind::Name(name) => match &**name {
                "bit" | "int" | "bool" | "string" | "void" | "tuple" | "varbit" | "list"
                | "match_kind" => true,
                "error" => !self.is(ahead + 1, "."),
                name => self.types.contains(name),
            },
            _ => false,
        }
    }

    fn type_ref(&mut self) -> Checked<TypeRef> {
        self.deeper(Self::type_within)
    }

    fn type_within(&mut self) -> Checked<TypeRef> {
        let span = self.span();
        if !self.is_type(0) {
            return match self.peek() {
                Kind::Name(name) if !KEYWORDS.contains(&&**name) => {
                    self.supported(name)?;
                    let what = format!("there is no type `{name}`; declare it before its use");
                    problem(span, what)
                }
                _ => self.expected("a type"),
            };
        }
        let Kind::Name(word) = self.peek().clone() else { return self.expected("a type") };
        self.supported(&word)?;
        self.next();
        let kind = match &*word {
            "void" => TypeKind::Void,
            "bool" => TypeKind::Bool,
            "string" => TypeKind::String,
            "error" => TypeKind::Error,
            "match_kind" => TypeKind::MatchKind,
            "bit" if !self.is(0, "<") => TypeKind::Bit(None),
            "bit" => TypeKind::Bit(Some(Box::new(self.width()?))),
            "int" if !self.is(0, "<") => TypeKind::Integer,
            "int" => TypeKind::Signed(Box::new(self.width()?)),
            "tuple" => {
                self.expect("<")?;
                TypeKind::Tuple(self.list(">", Self::type_ref)?)
            }
            _ => {
                let types = match self.eat("<") {
                    true => self.list(">", Self::type_ref)?,
                    false => Vec::new(),
                };
                TypeKind::Named(Name { text: word, span }, types)
            }
        };
        if self.is(0, "[") {
            return problem(
                self.span(),
                "header stacks are not supported; declare a field for each",
            );
        }
        Ok(TypeRef { kind, span: span.to(self.last()) })
    }

    /// Reads `<8>`, or `<(expression)>`.
    fn width(&mut self) -> Checked<crate::ast::Expr> {
        self.expect("<")?;
        let width = self.unary()?;
        self.expect(">")?;
        Ok(width)
    }
}
