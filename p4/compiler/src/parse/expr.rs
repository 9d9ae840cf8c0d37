//! Expressions, by precedence.

use super::Parser;
use crate::ast::{Arg, Binary, Call, Expr, ExprKind, Unary};
use crate::lexer::Kind;
use crate::source::{Checked, Span, problem};

/// Infix operators with their precedence; a higher number binds closer.
const BINARY: [(&str, Binary, u8); 20] = [
    ("||", Binary::LogicalOr, 1),
    ("&&", Binary::LogicalAnd, 2),
    ("==", Binary::Equal, 3),
    ("!=", Binary::NotEqual, 3),
    ("<", Binary::Less, 4),
    (">", Binary::Greater, 4),
    ("<=", Binary::LessOrEqual, 4),
    (">=", Binary::GreaterOrEqual, 4),
    ("|", Binary::Or, 5),
    ("^", Binary::Xor, 6),
    ("&", Binary::And, 7),
    ("<<", Binary::ShiftLeft, 8),
    ("++", Binary::Concat, 9),
    ("+", Binary::Add, 9),
    ("-", Binary::Subtract, 9),
    ("|+|", Binary::SaturatingAdd, 9),
    ("|-|", Binary::SaturatingSubtract, 9),
    ("*", Binary::Multiply, 10),
    ("/", Binary::Divide, 10),
    ("%", Binary::Modulo, 10),
];

impl Parser {
    pub(super) fn expr(&mut self) -> Checked<Expr> {
        self.deeper(|parser| {
            let condition = parser.binary(1)?;
            if !parser.eat("?") {
                return Ok(condition);
            }
            let yes = parser.expr()?;
            parser.expect(":")?;
            let no = parser.expr()?;
            let span = condition.span.to(no.span);
            let kind = ExprKind::Mux(Box::new(condition), Box::new(yes), Box::new(no));
            Ok(Expr { kind, span })
        })
    }

    /// Reads an expression, or another comparison of a key: `default`, `_`, a mask, a range.
    pub(super) fn key_set(&mut self) -> Checked<Expr> {
        let span = self.span();
        if self.eat_word("default") || self.eat("_") {
            return Ok(Expr { kind: ExprKind::DontCare, span });
        }
        let value = self.expr()?;
        let is_mask = match self.peek() {
            Kind::Punct("&&&") => true,
            Kind::Punct("..") => false,
            _ => return Ok(value),
        };
        self.next();
        let other = self.expr()?;
        let span = value.span.to(other.span);
        let kind = match is_mask {
            true => ExprKind::Mask(Box::new(value), Box::new(other)),
            false => ExprKind::Range(Box::new(value), Box::new(other)),
        };
        Ok(Expr { kind, span })
    }

    fn operator(&self) -> Option<(Binary, u8, usize)> {
        // `>>` is two adjacent tokens.
        let (first, second) = (self.token(0).span, self.token(1).span);
        if self.is(0, ">") && self.is(1, ">") && first.end == second.start {
            return Some((Binary::ShiftRight, 8, 2));
        }
        let Kind::Punct(punct) = self.peek() else { return None };
        let found = BINARY.iter().find(|(symbol, ..)| symbol == punct)?;
        Some((found.1, found.2, 1))
    }

    fn binary(&mut self, least: u8) -> Checked<Expr> {
        let depth = self.depth;
        let mut left = self.unary()?;
        while let Some((operator, precedence, length)) = self.operator() {
            if precedence < least {
                break;
            }
            // Each step makes the tree one level deeper.
            self.deepen()?;
            (0..length).for_each(|_| drop(self.next()));
            // `>>=` is the tokens `>` and `>=`.
            if self.is(0, "=") || operator == Binary::Greater && self.is(0, ">=") {
                let what = "operators that assign are not supported; write `x = x + 1`";
                return problem(self.span(), what);
            }
            let right = self.binary(precedence + 1)?;
            let span = left.span.to(right.span);
            let kind = ExprKind::Binary(operator, Box::new(left), Box::new(right));
            left = Expr { kind, span };
        }
        self.depth = depth;
        Ok(left)
    }

    pub(super) fn unary(&mut self) -> Checked<Expr> {
        self.deeper(|parser| {
            let span = parser.span();
            let operator = match parser.peek() {
                Kind::Punct("!") => Unary::Not,
                Kind::Punct("~") => Unary::Complement,
                Kind::Punct("-") => Unary::Minus,
                Kind::Punct("+") => Unary::Plus,
                Kind::Punct("(") if parser.is_type(1) && !parser.is(2, ".") => {
                    return parser.cast(span);
                }
                _ => return parser.postfix(),
            };
            parser.next();
            let operand = parser.unary()?;
            let span = span.to(operand.span);
            Ok(Expr { kind: ExprKind::Unary(operator, Box::new(operand)), span })
        })
    }

    fn cast(&mut self, span: Span) -> Checked<Expr> {
        self.expect("(")?;
        let ty = self.type_ref()?;
        self.expect(")")?;
        let operand = self.unary()?;
        let span = span.to(operand.span);
        Ok(Expr { kind: ExprKind::Cast(ty, Box::new(operand)), span })
    }

    fn postfix(&mut self) -> Checked<Expr> {
        let depth = self.depth;
        let mut expr = self.primary()?;
        loop {
            let start = expr.span;
            let kind = if self.eat(".") {
                ExprKind::Member(Box::new(expr), self.name()?)
            } else if self.eat("[") {
                let high = self.expr()?;
                if self.is(0, "]") {
                    let what = "an index is not supported, for there are neither header stacks nor \
                                members of tuples by number; a slice is `x[7:0]`";
                    return problem(start.to(self.span()), what);
                }
                self.expect(":")?;
                let low = self.expr()?;
                self.expect("]")?;
                ExprKind::Slice(Box::new(expr), Box::new(high), Box::new(low))
            } else if self.is(0, "(") || self.begins_type_arguments() {
                let types = match self.eat("<") {
                    true => self.list(">", Self::type_ref)?,
                    false => Vec::new(),
                };
                self.expect("(")?;
                let args = self.arguments()?;
                ExprKind::Call(Box::new(Call { callee: expr, types, args }))
            } else {
                self.depth = depth;
                return Ok(expr);
            };
            self.deepen()?;
            expr = Expr { kind, span: start.to(self.last()) };
        }
    }

    /// True if `<` opens type arguments rather than compares.
    fn begins_type_arguments(&self) -> bool {
        if !self.is(0, "<") || !self.is_type(1) {
            return false;
        }
        matches!(&self.token(1).kind, Kind::Name(name) if !self.types.contains(name))
            || [">", ",", "<"].iter().any(|punct| self.is(2, punct))
    }

    /// Reads arguments up to and including the closing bracket.
    pub(super) fn arguments(&mut self) -> Checked<Vec<Arg>> {
        self.list(")", |parser| {
            let named = matches!(parser.peek(), Kind::Name(_)) && parser.is(1, "=");
            let name = match named {
                true => {
                    let name = parser.name()?;
                    parser.expect("=")?;
                    Some(name)
                }
                false => None,
            };
            let span = parser.span();
            let value = match parser.eat("_") {
                true => Expr { kind: ExprKind::DontCare, span },
                false => parser.expr()?,
            };
            Ok(Arg { name, value })
        })
    }

    fn primary(&mut self) -> Checked<Expr> {
        let span = self.span();
        let kind = match self.peek().clone() {
            Kind::Number(value, width) => {
                self.next();
                ExprKind::Number(value, width)
            }
            Kind::Text(text) => {
                self.next();
                ExprKind::Text(text)
            }
            Kind::Name(name) => match &*name {
                "true" | "false" => {
                    self.next();
                    ExprKind::Bool(&*name == "true")
                }
                "error" => {
                    self.next();
                    ExprKind::Name(name)
                }
                _ => ExprKind::Name(self.name()?.text),
            },
            Kind::Punct(".") => {
                self.next();
                ExprKind::TopName(self.name()?.text)
            }
            Kind::Punct("(") => {
                self.next();
                let inner = self.expr()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Kind::Punct("{#}") => {
                self.next();
                ExprKind::Invalid
            }
            Kind::Punct("{") => {
                self.next();
                self.braced()?
            }
            _ => return self.expected("an expression"),
        };
        Ok(Expr { kind, span: span.to(self.last()) })
    }

    /// Reads `{ a, b }` or `{ x = a, y = b }`, after the opening bracket.
    fn braced(&mut self) -> Checked<ExprKind> {
        if matches!(self.peek(), Kind::Name(_)) && self.is(1, "=") {
            return Ok(ExprKind::Record(self.list("}", |parser| {
                let name = parser.name()?;
                parser.expect("=")?;
                Ok((name, parser.expr()?))
            })?));
        }
        Ok(ExprKind::List(self.list("}", Self::expr)?))
    }
}
