//! Statements.

use super::Parser;
use crate::ast::{ExprKind, Stmt, StmtKind};
use crate::lexer::Kind;
use crate::source::{Checked, problem};

impl Parser {
    /// Reads statements between braces.
    pub(super) fn block(&mut self) -> Checked<Vec<Stmt>> {
        self.annotations()?;
        self.expect("{")?;
        let mut statements = Vec::new();
        while !self.eat("}") {
            statements.push(self.statement()?);
        }
        Ok(statements)
    }

    pub(super) fn statement(&mut self) -> Checked<Stmt> {
        self.deeper(|parser| {
            let span = parser.span();
            let kind = parser.statement_kind()?;
            Ok(Stmt { kind, span: span.to(parser.last()) })
        })
    }

    fn statement_kind(&mut self) -> Checked<StmtKind> {
        self.annotations()?;
        if self.is(0, "{") {
            return Ok(StmtKind::Block(self.block()?));
        }
        if self.eat(";") {
            return Ok(StmtKind::Empty);
        }
        let word = match self.peek() {
            Kind::Name(name) => name.clone(),
            _ => "".into(),
        };
        match &*word {
            "if" => self.conditional(),
            "switch" => self.switch(),
            "exit" => {
                self.next();
                self.expect(";")?;
                Ok(StmtKind::Exit)
            }
            "return" => {
                self.next();
                let value = match self.is(0, ";") {
                    true => None,
                    false => Some(self.expr()?),
                };
                self.expect(";")?;
                Ok(StmtKind::Return(value))
            }
            "const" => {
                self.next();
                let ty = self.type_ref()?;
                let name = self.new_name()?;
                self.expect("=")?;
                let value = self.expr()?;
                self.expect(";")?;
                Ok(StmtKind::Const(ty, name, value))
            }
            _ if self.is_type(0) && !self.is(1, ".") => self.variable(),
            _ => self.assignment_or_call(),
        }
    }

    fn conditional(&mut self) -> Checked<StmtKind> {
        self.expect_word("if")?;
        self.expect("(")?;
        let condition = self.expr()?;
        self.expect(")")?;
        let yes = Box::new(self.statement()?);
        let no = match self.eat_word("else") {
            true => Some(Box::new(self.statement()?)),
            false => None,
        };
        Ok(StmtKind::If(condition, yes, no))
    }

    fn switch(&mut self) -> Checked<StmtKind> {
        self.expect_word("switch")?;
        self.expect("(")?;
        let on = self.expr()?;
        self.expect(")")?;
        self.expect("{")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            let label = self.key_set()?;
            self.expect(":")?;
            let body = match self.is(0, "{") {
                true => Some(self.block()?),
                false => None,
            };
            cases.push((label, body));
        }
        Ok(StmtKind::Switch(on, cases))
    }

    fn variable(&mut self) -> Checked<StmtKind> {
        let ty = self.type_ref()?;
        if self.is(0, "(") {
            let what = "an instance is declared outside of statements; move it before `apply`";
            return problem(ty.span, what);
        }
        let name = self.new_name()?;
        let value = match self.eat("=") {
            true => Some(self.expr()?),
            false => None,
        };
        self.expect(";")?;
        Ok(StmtKind::Var(ty, name, value))
    }

    fn assignment_or_call(&mut self) -> Checked<StmtKind> {
        let target = self.expr()?;
        if self.eat("=") {
            let value = self.expr()?;
            self.expect(";")?;
            return Ok(StmtKind::Assign(target, value));
        }
        if !matches!(target.kind, ExprKind::Call(_)) {
            return match self.is(0, ";") {
                true => problem(target.span, "this does nothing; a statement assigns or calls"),
                false => self.expected("`=`"),
            };
        }
        self.expect(";")?;
        Ok(StmtKind::Call(target))
    }
}
